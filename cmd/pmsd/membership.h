// SPDX-License-Identifier: GPL-2.0-or-later
// Raft membership follows the agreed list of nodes: the leader adds and removes; a node that is on the list
// no more finds out and forgets that it ever belonged.
#ifndef PMS_CMD_PMSD_MEMBERSHIP_H
#define PMS_CMD_PMSD_MEMBERSHIP_H

#include "cmd/pmsd/app.h"
#include "consensus/raft/rpc.h"

struct pms_members *pms_members_create(struct pms_app *app);
// Callbacks still out find it by the app and do nothing.
void pms_members_destroy(struct pms_members *m);

// From the tick.
void pms_members_tick(struct pms_members *m);

// Service "member": {"member": bool}, by the leader only (PMS_ENOTLEADER elsewhere).
void pms_members_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body);

// This node has applied that it left, and nothing of its arrays is left here.
bool pms_members_cleared(const struct pms_app *app);

// The state's nodes were applied: addresses are kept for when there is no state (node.json).
void pms_members_note_addresses(struct pms_app *app);

#endif
