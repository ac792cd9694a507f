// SPDX-License-Identifier: GPL-2.0-or-later
// Handover: asking an array's primary, on whichever node it is, to let another node take its place.
//
// Goes well: barrier, the primary's node drains and proposes, the applied state names the new primary. Goes
// wrong: the primary refuses (not serving, the other one not in sync), or does not come to an end and goes on
// serving.
#include "cmd/pmsd/handover.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MS      5000
#define HANDOVER_MS 15000
#define GATHER_MS   800

// ---- At the primary's node ----

static void on_taken(void *data, int status)
{
    pms_rpc_answer(data, status, NULL);
}

void pms_handover_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct pms_app *app = data;
    uint64_t array = 0, slot = 0;
    struct pms_local *a;
    int rv = PMS_EPROTO;

    (void)from;
    if (app->phase != PMS_APP_MEMBER)
        rv = PMS_ESHUTDOWN;
    else if (pms_json_id(body, "array", &array) == 0 && pms_json_u64(body, "slot", &slot) == 0 &&
             slot < PMS_SLOTS_MAX) {
        a = pms_local_find(app, array);
        rv = a != NULL ? pms_local_handover(a, (uint8_t)slot, on_taken, request) : PMS_ENOTFOUND;
    }
    if (rv != 0)
        pms_rpc_answer(request, rv, NULL);
}

// ---- Anywhere ----

static void on_asked(void *data, int status, const json_t *body)
{
    struct pms_task *task = data;

    (void)body;
    if (status == PMS_EREFUSED)
        pms_task_fail(
            task, status,
            "the primary does not hand over now: it is not serving, is busy admitting a copy, or the other "
            "node is not in sync (pmsctl cluster status says more)");
    else if (status != 0)
        pms_task_fail(task, status, "the primary's node could not be asked: %s", pms_err_text(status));
    pms_task_return(task);
}

void pms_handover_ask(struct pms_task *task, const struct pms_array_info *array, unsigned to_slot)
{
    json_t *body = json_object();
    int rv;

    pms_json_set_id(body, "array", array->id);
    pms_json_set_u64(body, "slot", to_slot);
    rv = pms_rpc_call(task->app->rpc, array->slots[array->primary].node_id, "handover", body, ASK_MS,
                      on_asked, task);
    json_decref(body);
    if (rv == 0)
        pms_task_call(task);
    else
        pms_task_fail(task, rv, "%s", pms_err_text(rv));
}

struct handover_task {
    struct pms_task task;
    char array[PMS_NAME_MAX + 1];
    char to[PMS_NAME_MAX + 1]; // "": the best one
    int from_slot, to_slot;
    uint64_t asked_ns;
};

enum { HANDOVER_LOOK, HANDOVER_LOOKED, HANDOVER_WAIT };

// 0 and to_slot, or the task has failed.
static int target_choose(struct handover_task *h, const struct pms_array_info *info,
                         const struct pms_gather *g)
{
    struct pms_node_info node;
    char why[256];

    if (h->to[0] == '\0') {
        h->to_slot = pms_policy_handover_target(h->task.app->state, &g->view, info->id,
                                                info->slots[info->primary].node_id, why, sizeof(why));
        if (h->to_slot >= 0)
            return 0;
        pms_task_fail(&h->task, PMS_EREFUSED, "%s", why);
        return PMS_EREFUSED;
    }
    if (pms_state_node_get_by_name(h->task.app->state, h->to, &node) != 0) {
        pms_task_fail(&h->task, PMS_ENOTFOUND, "there is no node %s: pmsctl node list shows them", h->to);
        return PMS_ENOTFOUND;
    }
    h->to_slot = pms_array_slot_of(info, node.id);
    if (h->to_slot < 0 || !info->slots[h->to_slot].in_sync) {
        pms_task_fail(&h->task, PMS_EREFUSED, "node %s holds no copy of array %s that is in sync", h->to,
                      info->name);
        return PMS_EREFUSED;
    }
    return 0;
}

static void on_gathered(void *data, struct pms_gather *g)
{
    struct handover_task *h = data;
    struct pms_array_info info;

    if (h->task.ended)
        goto out;
    if (!g->quorum)
        pms_task_fail(&h->task, PMS_ENOQUORUM,
                      "no quorum: a handover must be agreed; start the missing nodes");
    else if (pms_state_array_get_by_name(h->task.app->state, h->array, &info) != 0)
        pms_task_fail(&h->task, PMS_ENOTFOUND, "there is no array %s", h->array);
    else if (info.phase != PMS_ARRAY_READY)
        pms_task_fail(&h->task, PMS_EREFUSED, "array %s does not serve", h->array);
    else if (target_choose(h, &info, g) == 0) {
        h->from_slot = info.primary;
        h->asked_ns = pms_clock_boot_ns();
        h->task.stage = HANDOVER_WAIT;
        if (h->from_slot != h->to_slot)
            pms_handover_ask(&h->task, &info, (unsigned)h->to_slot);
    }
out:
    pms_task_return(&h->task);
}

static void handover_done(struct handover_task *h, const struct pms_array_info *info)
{
    struct pms_node_info node = {0};
    json_t *body = json_object();

    pms_state_node_get(h->task.app->state, info->slots[info->primary].node_id, &node);
    pms_json_set_str(body, "array", info->name);
    pms_json_set_str(body, "primary", node.name);
    pms_json_set_u64(body, "epoch", info->epoch);
    pms_json_set_u64(body, "took_ms", (pms_clock_boot_ns() - h->asked_ns) / 1000000);
    pms_json_set_bool(body, "moved", h->from_slot != h->to_slot);
    pms_task_finish(&h->task, body);
}

static void handover_step(struct pms_task *task)
{
    struct handover_task *h = (struct handover_task *)task;
    struct pms_array_info info;

    if (task->stage == HANDOVER_LOOK) {
        task->stage = HANDOVER_LOOKED;
        pms_task_call(task);
        pms_gather_start(task->app, GATHER_MS, on_gathered, h);
    } else if (task->stage == HANDOVER_WAIT) {
        if (pms_state_array_get_by_name(task->app->state, h->array, &info) != 0 ||
            info.phase != PMS_ARRAY_READY)
            pms_task_fail(task, PMS_ENOTFOUND, "array %s was deleted meanwhile", h->array);
        else if (info.primary == h->to_slot)
            handover_done(h, &info);
    }
}

static void handover_timeout(struct pms_task *task)
{
    struct handover_task *h = (struct handover_task *)task;

    pms_task_fail(task, -ETIMEDOUT, "array %s was not handed over in time; its primary goes on serving",
                  h->array);
}

void pms_handover_route(struct pms_req *req)
{
    const char *to = pms_json_str(pms_req_body(req), "to", "");
    struct handover_task *h;

    if (strlen(to) > PMS_NAME_MAX || strlen(pms_req_arg(req)) > PMS_NAME_MAX) {
        pms_req_refuse(req, PMS_EUSAGE, "a name has at most %d characters", PMS_NAME_MAX);
        return;
    }
    h = pms_task_start(pms_req_app(req), req, "array handover", sizeof(*h), HANDOVER_MS, handover_step, NULL);
    strcpy(h->array, pms_req_arg(req));
    strcpy(h->to, to);
    h->task.timeout = handover_timeout;
}
