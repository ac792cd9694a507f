// SPDX-License-Identifier: GPL-2.0-or-later
// A portal's interface without carrier: its array is handed to a node that has some.
#ifndef PMS_CMD_PMSD_CARRIER_H
#define PMS_CMD_PMSD_CARRIER_H

#include "cmd/pmsd/local.h"
#include "target/host/carrier.h"

// Of the array's portal on this node.
enum pms_carrier_state pms_local_carrier(const struct pms_local *a);

// From the tick.
void pms_carrier_tick(struct pms_app *app);

#endif
