// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's loops are watched (base/watchdog.h), and a service manager is told that they turn.
#ifndef PMS_CMD_PMSD_ALIVE_H
#define PMS_CMD_PMSD_ALIVE_H

#include "cmd/pmsd/app.h"

// 0 or -errno, logged.
int pms_alive_begin(struct pms_app *app);
void pms_alive_end(struct pms_app *app);

#endif
