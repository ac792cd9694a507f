// SPDX-License-Identifier: GPL-2.0-or-later
// The control loop's end of the data loop: its events, and the connections that it wants.
#ifndef PMS_CMD_PMSD_DATA_H
#define PMS_CMD_PMSD_DATA_H

#include "cmd/pmsd/app.h"

// Starts the data loop and listens to it. 0 or -errno.
int pms_data_start(struct pms_app *app);
// Stops it; cb runs when its handle is closed.
void pms_data_stop(struct pms_app *app, void (*cb)(struct pms_app *app));

// pms_net's on_data: a peer's data connection.
void pms_data_accept(void *data, uint64_t peer, int fd, unsigned version);

#endif
