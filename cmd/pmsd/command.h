// SPDX-License-Identifier: GPL-2.0-or-later
// Proposing a command to the cluster state, from any node, and its result as a code and a text.
#ifndef PMS_CMD_PMSD_COMMAND_H
#define PMS_CMD_PMSD_COMMAND_H

#include "cmd/pmsd/app.h"

#include <jansson.h>

// err 0: applied and ok. Else why not: the state machine's refusal (result holds its details), or
// PMS_ENOQUORUM (certainly not applied), PMS_EUNKNOWN (may be applied or not), PMS_ESHUTDOWN,
// PMS_EVERSION (of a newer kind than the cluster's feature level: never proposed). text is for a
// person; text and result are borrowed, result is never NULL.
typedef void (*pms_command_cb)(void *data, int err, const char *text, const json_t *result);

// Takes over cmd, adds "client" and "seq". An unknown outcome is resolved by proposing the same {client, seq}
// again, which the state machine executes once at most, until timeout_ms is over. cb runs once, never before
// this returns.
void pms_command_propose(struct pms_app *app, json_t *cmd, unsigned timeout_ms, unsigned flags,
                         pms_command_cb cb, void *data);

enum {
    PMS_COMMAND_ONCE = 1, // an unknown outcome stays unknown: the proposer has its own way to find out
    PMS_COMMAND_HERE = 2, // cb waits until it is applied on this node too: the proposer reads the state next
};

// The state moved: commands that waited for it end.
void pms_commands_applied(struct pms_app *app);

// {"op": op}
json_t *pms_command_new(const char *op);

#endif
