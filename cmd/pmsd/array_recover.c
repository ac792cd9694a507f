// SPDX-License-Identifier: GPL-2.0-or-later
// array recover: the in-sync copies of an array are lost for ever, and the operator takes a stale one for good.
//
// Refused while a good copy is there: a node that answers and can use its brick. One that does not answer, or cannot
// use it, counts as lost only if it is named. The stale brick keeps its incarnation (it is the same brick as before);
// what a lost one brings back later is stale, and is overwritten where the dirty maps of both say that they may differ.
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/gather.h"
#include "cmd/pmsd/task.h"

#include <string.h>

#define GATHER_MS  1000
#define COMMAND_MS 10000
#define RECOVER_MS 20000

enum { RECOVER_LOOK, RECOVER_DONE };

struct recover_task {
    struct pms_task task;
    char array[PMS_NAME_MAX + 1];
    char node[PMS_NAME_MAX + 1];
    json_t *give_up; // names
    json_t *cmd;
    unsigned slot;
};

static bool is_given_up(const struct recover_task *r, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach (r->give_up, i, item) {
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

static bool answers(const struct pms_gather *g, uint64_t id)
{
    for (unsigned i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].info.id == id)
            return g->nodes[i].answered;
    return false;
}

// True if every in-sync slot is lost, and its node named where there is one; else the task has failed. Puts the
// nodes' ids into lost.
static bool good_copies_lost(struct recover_task *r, const struct pms_gather *g,
                             const struct pms_array_info *info, json_t *lost)
{
    size_t named = 0;
    char text[PMS_ID_TEXT_SIZE];

    for (unsigned i = 0; i < info->n_slots; i++) {
        const json_t *report = pms_gather_array(g, info->slots[i].node_id, info->id);
        struct pms_node_info node;

        if (!info->slots[i].in_sync ||
            pms_state_node_get(r->task.app->state, info->slots[i].node_id, &node) != 0)
            continue;
        if (answers(g, node.id) && json_object_get(report, "brick_error") == NULL) {
            pms_task_fail(&r->task, PMS_EREFUSED,
                          "node %s answers and has a good copy of array %s: nothing needs to be given up",
                          node.name, info->name);
            return false;
        }
        if (!is_given_up(r, node.name)) {
            pms_task_fail(
                &r->task, PMS_EREFUSED,
                "the good copy of array %s on node %s may come back: bring it back, or give it up by "
                "name (--give-up %s) if it is lost for ever",
                info->name, node.name, node.name);
            return false;
        }
        named++;
        json_array_append_new(lost, json_string(pms_id_format(node.id, text)));
    }
    if (named == json_array_size(r->give_up))
        return true;
    pms_task_fail(
        &r->task, PMS_EUSAGE,
        "name with --give-up only nodes that have a good copy of array %s; pmsctl array show tells them",
        info->name);
    return false;
}

static void command_make(struct recover_task *r, const struct pms_gather *g)
{
    struct pms_state *st = r->task.app->state;
    uint64_t incarnation = 0, floor = 0;
    struct pms_array_info info;
    struct pms_node_info node;
    const json_t *report;
    json_t *lost;
    int slot;

    if (pms_state_array_get_by_name(st, r->array, &info) != 0) {
        pms_task_fail(&r->task, PMS_ENOTFOUND, "there is no array %s: pmsctl array list shows them",
                      r->array);
        return;
    }
    slot = pms_state_node_get_by_name(st, r->node, &node) == 0 ? pms_array_slot_of(&info, node.id) : -1;
    if (slot < 0) {
        pms_task_fail(&r->task, PMS_ENOTFOUND, "array %s has no copy on a node %s", r->array, r->node);
        return;
    }
    if (info.slots[slot].in_sync) {
        pms_task_fail(&r->task, PMS_EREFUSED,
                      "the copy of array %s on node %s is in sync: nothing is to be done", r->array, r->node);
        return;
    }
    report = pms_gather_array(g, node.id, info.id);
    if (pms_json_id(report, "incarnation", &incarnation) != 0 || pms_json_u64(report, "floor", &floor) != 0) {
        pms_task_fail(&r->task, PMS_EREFUSED, "node %s %s", r->node,
                      answers(g, node.id) ? "cannot use its brick; pmsctl array show tells why"
                                          : "does not answer");
        return;
    }
    lost = json_array();
    if (good_copies_lost(r, g, &info, lost)) {
        r->slot = (unsigned)slot;
        r->cmd = pms_command_new("array_recover");
        pms_json_set_id(r->cmd, "array", info.id);
        pms_json_set_u64(r->cmd, "epoch", info.epoch);
        pms_json_set_u64(r->cmd, "slot", r->slot);
        pms_json_set_id(r->cmd, "incarnation", incarnation);
        pms_json_set_u64(r->cmd, "floor", floor);
        if (json_array_size(lost) > 0)
            json_object_set(r->cmd, "lost", lost);
    }
    json_decref(lost);
}

static void on_gathered(void *data, struct pms_gather *g)
{
    struct recover_task *r = data;

    if (!r->task.ended) {
        if (!g->quorum || r->task.app->phase != PMS_APP_MEMBER)
            pms_task_fail(
                &r->task, PMS_ENOQUORUM,
                "no quorum: this must be agreed; start the missing nodes, or, if they are lost for ever, "
                "run pmsctl recover first");
        else
            command_make(r, g);
    }
    pms_task_return(&r->task);
}

static void recover_step(struct pms_task *task)
{
    struct recover_task *r = (struct recover_task *)task;
    json_t *body, *cmd = r->cmd;

    if (task->stage == RECOVER_LOOK && cmd == NULL) {
        pms_task_call(task);
        pms_gather_start(task->app, GATHER_MS, on_gathered, r);
    } else if (task->stage == RECOVER_LOOK) {
        task->stage = RECOVER_DONE;
        r->cmd = NULL;
        pms_task_command(task, cmd, COMMAND_MS, NULL);
    } else {
        body = json_object();
        pms_json_set_str(body, "array", r->array);
        pms_json_set_u64(body, "slot", r->slot);
        pms_json_set_str(body, "node", r->node);
        pms_task_finish(task, body);
    }
}

static void recover_deinit(struct pms_task *task)
{
    struct recover_task *r = (struct recover_task *)task;

    json_decref(r->cmd);
    json_decref(r->give_up);
}

void pms_array_recover_route(struct pms_req *req)
{
    const json_t *body = pms_req_body(req), *names = json_object_get(body, "give_up"), *item;
    const char *node = pms_json_str(body, "slot", "");
    struct recover_task *r;
    bool ok = names == NULL || (json_is_array(names) && json_array_size(names) <= PMS_NODES_MAX);
    size_t i;

    json_array_foreach (names, i, item)
        ok = ok && json_is_string(item);
    if (!ok || strlen(node) == 0 || strlen(node) > PMS_NAME_MAX || strlen(pms_req_arg(req)) > PMS_NAME_MAX) {
        pms_req_refuse(
            req, PMS_EUSAGE,
            "name the array, in \"slot\" the node whose copy is taken, and in \"give_up\" a list of nodes");
        return;
    }
    if (!pms_json_bool(body, "accept_data_loss", false)) {
        pms_req_refuse(req, PMS_EREFUSED,
                       "what was written since the copy on node %s fell out of sync will be lost: say so "
                       "(--accept-data-loss)",
                       node);
        return;
    }
    r = pms_task_start(pms_req_app(req), req, "array recover", sizeof(*r), RECOVER_MS, recover_step,
                       recover_deinit);
    strcpy(r->array, pms_req_arg(req));
    strcpy(r->node, node);
    r->give_up = names != NULL ? json_deep_copy(names) : json_array();
    r->task.stage = RECOVER_LOOK;
}
