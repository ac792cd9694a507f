// SPDX-License-Identifier: GPL-2.0-or-later
// This node's counters as Prometheus text.
#ifndef PMS_CMD_PMSD_METRICS_H
#define PMS_CMD_PMSD_METRICS_H

#include "cmd/pmsd/app.h"

// Heap text.
char *pms_metrics_text(struct pms_app *app);

#endif
