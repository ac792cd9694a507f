// SPDX-License-Identifier: GPL-2.0-or-later
// A clean end of pmsd.
#ifndef PMS_CMD_PMSD_QUIT_H
#define PMS_CMD_PMSD_QUIT_H

#include "cmd/pmsd/app.h"

// Goes on with pms_app_quit; called after each change.
void pms_quit_step(struct pms_app *app);

#endif
