// SPDX-License-Identifier: GPL-2.0-or-later
// Making and removing arrays, and leaving the cluster: the long operations' routes.
#ifndef PMS_CMD_PMSD_CREATE_H
#define PMS_CMD_PMSD_CREATE_H

#include "cmd/pmsd/http.h"

// POST /v1/arrays {"name", "level", "size_bytes", "portal": "ADDR/LEN", "nodes": [..] or "copies": N,
// "bricks": {node: path}, "write_cache": bool}. Answered with the array when it serves; on failure everything is taken back first.
void pms_create_route(struct pms_req *req);
// POST /v1/arrays/NAME/replace {"node", "slot", "brick"}: a new, blank place for a slot that is not in sync.
void pms_replace_route(struct pms_req *req);
// POST /v1/arrays/NAME/recover {"slot", "give_up", "accept_data_loss"}: a stale copy becomes the only good one.
void pms_array_recover_route(struct pms_req *req);
// POST /v1/arrays/NAME/set {"write_cache": bool}.
void pms_set_route(struct pms_req *req);
// DELETE /v1/arrays/NAME {"force": bool}. Answered when the last brick is gone.
void pms_delete_route(struct pms_req *req);
// POST /v1/cluster/leave {"node": name; absent: this one}.
void pms_leave_route(struct pms_req *req);

#endif
