// SPDX-License-Identifier: GPL-2.0-or-later
// The cluster's feature level: reported by each node, raised by `cluster upgrade`.
#ifndef PMS_CMD_PMSD_UPGRADE_H
#define PMS_CMD_PMSD_UPGRADE_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/http.h"

#include <jansson.h>

// Route POST /v1/cluster/upgrade: {"from", "level", "changed"}.
void pms_upgrade_route(struct pms_req *req);

// null: every node supports what the cluster's level is; else {"newest": level that some node supports,
// "possible": all of them do, "behind": names of those that do not}. New reference.
json_t *pms_upgrade_view(const struct pms_app *app);

// From the tick, as a member: has the agreed state say what this build supports.
void pms_upgrade_tick(struct pms_app *app);

// The builds for tests of upgrades only (upgrade_next.c), else nothing: proposes a command of feature level 2
// now and then, and logs what becomes of it.
void pms_upgrade_next_tick(struct pms_app *app);

#endif
