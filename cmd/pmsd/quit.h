// SPDX-License-Identifier: GPL-2.0-or-later
// A clean end of pmsd.
#ifndef PMS_CMD_PMSD_QUIT_H
#define PMS_CMD_PMSD_QUIT_H

#include "cmd/pmsd/app.h"

// Goes on with pms_app_quit; called after each change.
void pms_quit_step(struct pms_app *app);

struct pms_local;
// A clean end waits a little until nothing of the array is volatile; its target is down.
bool pms_quit_waits(const struct pms_app *app, const struct pms_local *a);

#endif
