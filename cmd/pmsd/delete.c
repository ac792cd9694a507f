// SPDX-License-Identifier: GPL-2.0-or-later
// array delete: marked in the state (refused while initiators are connected, unless forced), then each node
// takes down its target, closes and removes its brick and says so; the last one makes the state forget the
// array.
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"

#include <string.h>

#define COMMAND_MS 10000
#define DELETE_MS  30000

enum { DELETE_LOOK, DELETE_MARK, DELETE_WAIT, DELETE_FORGET };

struct delete_task {
    struct pms_task task;
    char name[PMS_NAME_MAX + 1];
    uint64_t array_id;
    bool force;
};

static void array_command(struct delete_task *d, const char *op)
{
    json_t *cmd = pms_command_new(op);

    pms_json_set_id(cmd, "array", d->array_id);
    pms_json_set_bool(cmd, "force", d->force);
    pms_task_command(&d->task, cmd, COMMAND_MS, NULL);
}

static void delete_done(struct delete_task *d)
{
    json_t *body = json_object();

    pms_json_set_str(body, "array", d->name);
    pms_json_set_bool(body, "deleted", true);
    pms_task_finish(&d->task, body);
}

static void delete_step(struct pms_task *task)
{
    struct delete_task *d = (struct delete_task *)task;
    struct pms_array_info info;

    switch (task->stage) {
    case DELETE_LOOK:
        task->stage = DELETE_MARK;
        pms_task_barrier(task);
        break;
    case DELETE_MARK:
        if (pms_state_array_get_by_name(task->app->state, d->name, &info) != 0) {
            pms_task_fail(task, PMS_ENOTFOUND, "there is no array %s: pmsctl array list shows them", d->name);
            break;
        }
        d->array_id = info.id;
        task->stage = DELETE_WAIT;
        if (info.phase != PMS_ARRAY_DELETING)
            array_command(d, "array_delete");
        break;
    default:
        if (pms_state_array_get(task->app->state, d->array_id, &info) != 0)
            delete_done(d);
        break;
    }
}

// Some node has not removed its brick.
static void delete_timeout(struct pms_task *task)
{
    struct delete_task *d = (struct delete_task *)task;
    struct pms_array_info info;
    const char *node = "?";

    if (d->force) {
        task->stage = DELETE_FORGET;
        array_command(d, "array_forget");
        return;
    }
    if (pms_state_array_get(task->app->state, d->array_id, &info) != 0) {
        delete_done(d);
        return;
    }
    for (unsigned i = 0; i < info.n_slots; i++)
        if (info.slots[i].node_id != 0)
            node = pms_view_node_name(task->app, info.slots[i].node_id);
    pms_task_fail(
        task, PMS_EBUSY,
        "array %s serves no more, but node %s has not removed its brick: it does so when it is back; --force "
        "forgets the array without it",
        d->name, node);
}

void pms_delete_route(struct pms_req *req)
{
    bool force = pms_json_bool(pms_req_body(req), "force", false);
    struct delete_task *d;

    if (strlen(pms_req_arg(req)) > PMS_NAME_MAX) {
        pms_req_refuse(req, PMS_ENOTFOUND, "there is no such array");
        return;
    }
    d = pms_task_start(pms_req_app(req), req, "array delete", sizeof(*d), DELETE_MS, delete_step, NULL);
    strcpy(d->name, pms_req_arg(req));
    d->force = force;
    d->task.timeout = delete_timeout;
}
