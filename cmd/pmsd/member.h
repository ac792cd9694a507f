// SPDX-License-Identifier: GPL-2.0-or-later
// Being a member: opening all rooms with this node's identity, feeding the agreed state, and closing them
// again.
#ifndef PMS_CMD_PMSD_MEMBER_H
#define PMS_CMD_PMSD_MEMBER_H

#include "cmd/pmsd/app.h"

// Opens everything as app->node says (member must be true). bootstrap: this is the cluster's first node.
// 0, or a negative code and why; then pms_member_stop must follow.
int pms_member_start(struct pms_app *app, bool bootstrap, char *why, size_t why_len);

// Targets down first, then everything else; cb runs when the phase is IDLE again (at once if it is already).
void pms_member_stop(struct pms_app *app, void (*cb)(struct pms_app *app));

// Writes node.json; a failure is logged only.
void pms_node_save(struct pms_app *app);

// Goes on with a stop; called after each change.
void pms_member_stop_step(struct pms_app *app);

// This node has left: stop, forget the cluster, take a new id, wait for a new one.
void pms_member_leave(struct pms_app *app);
// Answers app->left_req, if there is one: 0, or why this node has not forgotten its cluster.
void pms_member_left_answer(struct pms_app *app, int err);
// The same without stopping: only what is on disk.
int pms_member_forget(struct pms_app *app);

#endif
