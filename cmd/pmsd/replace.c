// SPDX-License-Identifier: GPL-2.0-or-later
// array replace: gives a stale or vacant slot of an array a new, blank place. The node makes its brick and
// the primary fills it; the answer comes when the place is agreed, the filling is seen in the array's state.
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"

#include <string.h>

#define COMMAND_MS 10000
#define REPLACE_MS 30000

enum { REPLACE_LOOK, REPLACE_PROPOSE, REPLACE_DONE };

struct replace_task {
    struct pms_task task;
    char array[PMS_NAME_MAX + 1];
    char node[PMS_NAME_MAX + 1];
    char brick[PMS_BRICK_PATH_MAX + 1];
    uint64_t slot;
    bool slot_given;
};

// The only slot that is not in sync; -1: there is none, or it is not the only one (said).
static int slot_choose(struct replace_task *r, const struct pms_array_info *info)
{
    int slot = -1;

    if (r->slot_given)
        return (int)r->slot;
    for (unsigned i = 0; i < info->n_slots; i++) {
        if (info->slots[i].in_sync)
            continue;
        if (slot >= 0) {
            pms_task_fail(&r->task, PMS_EUSAGE,
                          "several slots of array %s are not in sync: name one with --slot", info->name);
            return -1;
        }
        slot = (int)i;
    }
    if (slot < 0)
        pms_task_fail(&r->task, PMS_EREFUSED,
                      "every slot of array %s is in sync: there is nothing to replace", info->name);
    return slot;
}

static void propose(struct replace_task *r)
{
    struct pms_array_info info;
    struct pms_node_info node;
    json_t *cmd;
    int slot;

    if (pms_state_array_get_by_name(r->task.app->state, r->array, &info) != 0) {
        pms_task_fail(&r->task, PMS_ENOTFOUND, "there is no array %s: pmsctl array list shows them",
                      r->array);
        return;
    }
    if (pms_state_node_get_by_name(r->task.app->state, r->node, &node) != 0) {
        pms_task_fail(&r->task, PMS_ENOTFOUND, "there is no node %s: pmsctl node list shows them", r->node);
        return;
    }
    slot = slot_choose(r, &info);
    if (slot < 0)
        return;
    r->slot = (uint64_t)slot;
    r->task.stage = REPLACE_DONE;
    cmd = pms_command_new("array_replace");
    pms_json_set_id(cmd, "array", info.id);
    pms_json_set_u64(cmd, "slot", r->slot);
    pms_json_set_id(cmd, "node", node.id);
    json_object_set_new(cmd, "brick", r->brick[0] != '\0' ? json_string(r->brick) : json_null());
    pms_task_command(&r->task, cmd, COMMAND_MS, NULL);
}

static void replace_step(struct pms_task *task)
{
    struct replace_task *r = (struct replace_task *)task;
    json_t *body;

    switch (task->stage) {
    case REPLACE_LOOK:
        task->stage = REPLACE_PROPOSE;
        pms_task_barrier(task);
        break;
    case REPLACE_PROPOSE:
        propose(r);
        break;
    default:
        body = json_object();
        pms_json_set_str(body, "array", r->array);
        pms_json_set_u64(body, "slot", r->slot);
        pms_json_set_str(body, "node", r->node);
        pms_task_finish(task, body);
        break;
    }
}

void pms_replace_route(struct pms_req *req)
{
    const json_t *body = pms_req_body(req);
    const char *node = pms_json_str(body, "node", ""), *brick = pms_json_str(body, "brick", "");
    struct replace_task *r;
    uint64_t slot = 0;
    int rv = pms_json_u64(body, "slot", &slot);

    if (strlen(node) == 0 || strlen(node) > PMS_NAME_MAX || strlen(brick) > PMS_BRICK_PATH_MAX ||
        strlen(pms_req_arg(req)) > PMS_NAME_MAX || (rv != 0 && rv != PMS_ENOTFOUND) ||
        slot >= PMS_SLOTS_MAX) {
        pms_req_refuse(req, PMS_EUSAGE, "name the array, a node, and if need be a slot and an absolute path");
        return;
    }
    r = pms_task_start(pms_req_app(req), req, "array replace", sizeof(*r), REPLACE_MS, replace_step, NULL);
    strcpy(r->array, pms_req_arg(req));
    strcpy(r->node, node);
    strcpy(r->brick, brick);
    r->slot = slot;
    r->slot_given = rv == 0;
}
