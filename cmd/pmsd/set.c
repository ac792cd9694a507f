// SPDX-License-Identifier: GPL-2.0-or-later
// array set: changes an array's properties while it serves.
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"

#include <string.h>

#define COMMAND_MS 10000
#define SET_MS     30000

enum { SET_LOOK, SET_PROPOSE, SET_DONE };

struct set_task {
    struct pms_task task;
    char array[PMS_NAME_MAX + 1];
    bool write_cache;
};

static void propose(struct set_task *s)
{
    struct pms_array_info info;
    json_t *cmd;

    if (pms_state_array_get_by_name(s->task.app->state, s->array, &info) != 0) {
        pms_task_fail(&s->task, PMS_ENOTFOUND, "there is no array %s: pmsctl array list shows them",
                      s->array);
        return;
    }
    s->task.stage = SET_DONE;
    cmd = pms_command_new("array_set");
    pms_json_set_id(cmd, "array", info.id);
    pms_json_set_bool(cmd, "write_cache", s->write_cache);
    pms_task_command(&s->task, cmd, COMMAND_MS, NULL);
}

static void set_step(struct pms_task *task)
{
    struct set_task *s = (struct set_task *)task;
    json_t *body;

    switch (task->stage) {
    case SET_LOOK:
        task->stage = SET_PROPOSE;
        pms_task_barrier(task);
        break;
    case SET_PROPOSE:
        propose(s);
        break;
    default:
        body = json_object();
        pms_json_set_str(body, "array", s->array);
        pms_json_set_bool(body, "write_cache", s->write_cache);
        pms_task_finish(task, body);
        break;
    }
}

void pms_set_route(struct pms_req *req)
{
    const json_t *body = pms_req_body(req);
    struct set_task *s;

    if (strlen(pms_req_arg(req)) > PMS_NAME_MAX || !json_is_boolean(json_object_get(body, "write_cache"))) {
        pms_req_refuse(req, PMS_EUSAGE, "name the array, and write_cache: true or false");
        return;
    }
    s = pms_task_start(pms_req_app(req), req, "array set", sizeof(*s), SET_MS, set_step, NULL);
    strcpy(s->array, pms_req_arg(req));
    s->write_cache = pms_json_bool(body, "write_cache", false);
}
