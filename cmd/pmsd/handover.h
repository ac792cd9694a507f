// SPDX-License-Identifier: GPL-2.0-or-later
// Asking an array's primary, on whichever node it is, to hand over.
#ifndef PMS_CMD_PMSD_HANDOVER_H
#define PMS_CMD_PMSD_HANDOVER_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/task.h"
#include "consensus/raft/rpc.h"

// Service "handover": {"array": id, "slot": N}, at the primary's node. Answered when the data loop has taken
// it (0) or refused it; whether it came about is seen in the applied state.
void pms_handover_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body);

// A call of the task: status 0 when the primary has begun. A refusal ends the task.
void pms_handover_ask(struct pms_task *task, const struct pms_array_info *array, unsigned to_slot);

// Route POST /v1/arrays/NAME/handover {"to": node name or absent}: waits until the other one is primary.
void pms_handover_route(struct pms_req *req);

#endif
