// SPDX-License-Identifier: GPL-2.0-or-later
// Looking at the whole cluster from here: a barrier for the agreed state, and each node's own report.
#ifndef PMS_CMD_PMSD_GATHER_H
#define PMS_CMD_PMSD_GATHER_H

#include "cmd/pmsd/app.h"
#include "consensus/core/policy.h"

#include <jansson.h>

struct pms_gather_node {
    struct pms_node_info info;
    bool answered;
    json_t *report; // "local" of that node; NULL: it did not answer
};

// Valid inside the callback only.
struct pms_gather {
    bool quorum; // the state here is as new as the moment when the gathering began
    unsigned n_nodes;
    struct pms_gather_node nodes[PMS_NODES_MAX];
    struct pms_policy_view view;
    struct pms_policy_array arrays[PMS_STATE_ARRAYS_MAX];
    struct pms_policy_brick bricks[PMS_STATE_ARRAYS_MAX];
};

typedef void (*pms_gather_cb)(void *data, struct pms_gather *g);

// cb runs once, at most about timeout_ms later, never before the return. Only in PMS_APP_MEMBER.
void pms_gather_start(struct pms_app *app, unsigned timeout_ms, pms_gather_cb cb, void *data);

// What node `id` reports of an array; NULL: nothing.
const json_t *pms_gather_array(const struct pms_gather *g, uint64_t node_id, uint64_t array_id);

#endif
