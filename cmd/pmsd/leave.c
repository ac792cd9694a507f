// SPDX-License-Identifier: GPL-2.0-or-later
// cluster leave: primaries move away first, one by one; then the node is struck from the list; it removes its
// bricks; the leader removes it from the Raft group last (membership.c), and the node itself finds out and
// forgets the cluster. It has left when it answers as a member no more. The last node of all just forgets the
// cluster, if there is no array.
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/gather.h"
#include "cmd/pmsd/handover.h"
#include "cmd/pmsd/member.h"
#include "cmd/pmsd/task.h"

#include <errno.h>
#include <string.h>

#define GATHER_MS  800
#define COMMAND_MS 10000
#define LEAVE_MS   120000
#define MOVE_NS    15000000000ull
#define REMOVE_NS  40000000000ull // more than the farewell of membership.c takes
#define ASK_NS     200000000ull
#define ASK_MS     1000

enum { LEAVE_LOOK, LEAVE_MOVING, LEAVE_STRIKE, LEAVE_REMOVE };

struct leave_task {
    struct pms_task task;
    char name[PMS_NAME_MAX + 1];
    uint64_t id;
    bool self;
    struct pms_leave_step move;
    struct pms_array_info moving;
    uint64_t since_ns, ask_ns;
};

static void leave_done(struct leave_task *l)
{
    struct pms_app *app = l->task.app;
    json_t *body;

    // This node may be asked to begin or join another cluster as soon as it has answered.
    if (l->self && app->left_req == NULL && !l->task.ended) {
        app->left_req = l->task.req;
        strcpy(app->left_name, l->name);
        l->task.req = NULL;
        pms_task_finish(&l->task, NULL);
        return;
    }
    body = json_object();
    pms_json_set_str(body, "node", l->name);
    pms_json_set_bool(body, "left", true);
    pms_task_finish(&l->task, body);
}

static bool is_last(struct pms_app *app, const char *name)
{
    struct pms_node_info node;
    size_t c = 0;

    return pms_state_node_next(app->state, &c, &node) && strcmp(node.name, name) == 0 &&
           node.id == app->node.id && !pms_state_node_next(app->state, &c, &node);
}

// Nobody stays who could agree to anything: the cluster ends here.
static void last_leaves(struct leave_task *l)
{
    struct pms_app *app = l->task.app;
    struct pms_array_info info;
    size_t c = 0;

    if (pms_state_array_next(app->state, &c, &info)) {
        pms_task_fail(&l->task, PMS_EREFUSED,
                      "%s is the cluster's only node and holds array %s: delete its arrays first "
                      "(pmsctl array delete), or let another node join",
                      l->name, info.name);
        return;
    }
    pms_log(PMS_LOG_WARN, "the last node leaves: cluster %s is no more", pms_state_cluster_name(app->state));
    leave_done(l);
    pms_member_leave(app);
}

static void on_gathered(void *data, struct pms_gather *g)
{
    struct leave_task *l = data;
    struct pms_node_info node;
    char why[400] = "";
    int rv;

    if (l->task.ended)
        goto out;
    if (!g->quorum) {
        pms_task_fail(&l->task, PMS_ENOQUORUM, "no quorum: leaving must be agreed; start the missing nodes");
        goto out;
    }
    if (l->task.app->phase == PMS_APP_MEMBER && is_last(l->task.app, l->name)) {
        last_leaves(l);
        goto out;
    }
    rv = pms_policy_leave_next(l->task.app->state, &g->view, l->name, &l->move, why, sizeof(why));
    if (rv < 0) {
        pms_task_fail(&l->task, rv, "%s", why);
    } else if (rv == 0) {
        if (pms_state_node_get_by_name(l->task.app->state, l->name, &node) == 0)
            l->id = node.id;
        l->task.stage = LEAVE_STRIKE;
    } else if (pms_state_array_get(l->task.app->state, l->move.array_id, &l->moving) == 0) {
        l->task.stage = LEAVE_MOVING;
        l->since_ns = pms_clock_boot_ns();
        pms_handover_ask(&l->task, &l->moving, (unsigned)l->move.to_slot);
    }
out:
    pms_task_return(&l->task);
}

static bool in_raft(struct pms_app *app, uint64_t id)
{
    struct pms_raft_status st;

    pms_raft_status_get(app->raft, &st);
    for (unsigned i = 0; i < st.members_n; i++)
        if (st.members[i].id == id)
            return true;
    return false;
}

static void on_answer(void *data, int status, const json_t *body)
{
    struct leave_task *l = data;

    (void)body;
    if (status != 0)
        leave_done(l);
    pms_task_return(&l->task);
}

// Whoever left does not answer any more once it has forgotten the cluster. The leaving node itself ends this
// when it stops being a member.
static void remove_step(struct leave_task *l)
{
    struct pms_app *app = l->task.app;
    uint64_t now = pms_clock_boot_ns();

    if (now - l->since_ns > REMOVE_NS) {
        pms_task_fail(
            &l->task, -ETIMEDOUT,
            "%s is in the cluster no more, but has not cleared up in time: it goes on by itself; look "
            "at its log",
            l->name);
        return;
    }
    if (l->self || in_raft(app, l->id) || now - l->ask_ns < ASK_NS)
        return;
    l->ask_ns = now;
    if (pms_rpc_call(app->rpc, l->id, "local", NULL, ASK_MS, on_answer, l) == 0)
        pms_task_call(&l->task);
}

static void moving_step(struct leave_task *l)
{
    struct pms_array_info info;

    if (pms_state_array_get(l->task.app->state, l->move.array_id, &info) != 0 ||
        info.primary != l->moving.primary)
        l->task.stage = LEAVE_LOOK;
    else if (pms_clock_boot_ns() - l->since_ns > MOVE_NS)
        pms_task_fail(&l->task, -ETIMEDOUT,
                      "array %s could not be handed over in time: nothing has changed, try again", info.name);
}

static void leave_step(struct pms_task *task)
{
    struct leave_task *l = (struct leave_task *)task;
    json_t *cmd;

    switch (task->stage) {
    case LEAVE_LOOK:
        pms_task_call(task);
        pms_gather_start(task->app, GATHER_MS, on_gathered, l);
        break;
    case LEAVE_MOVING:
        moving_step(l);
        break;
    case LEAVE_STRIKE:
        task->stage = LEAVE_REMOVE;
        l->since_ns = pms_clock_boot_ns();
        cmd = pms_command_new("node_leave");
        pms_json_set_str(cmd, "name", l->name);
        pms_task_command(task, cmd, COMMAND_MS, NULL);
        break;
    default:
        remove_step(l);
        break;
    }
}

// The node that leaves hears of it by being struck, and then it is done.
static void leave_stopping(struct pms_task *task)
{
    struct leave_task *l = (struct leave_task *)task;
    struct pms_node_info node;

    if (l->self && task->stage == LEAVE_REMOVE &&
        pms_state_node_get_by_name(task->app->state, l->name, &node) != 0)
        leave_done(l);
}

void pms_leave_route(struct pms_req *req)
{
    struct pms_app *app = pms_req_app(req);
    const char *name = pms_json_str(pms_req_body(req), "node", app->node.name);
    struct leave_task *l;

    if (strlen(name) > PMS_NAME_MAX) {
        pms_req_refuse(req, PMS_ENOTFOUND, "there is no such node");
        return;
    }
    l = pms_task_start(app, req, "cluster leave", sizeof(*l), LEAVE_MS, leave_step, NULL);
    strcpy(l->name, name);
    l->self = strcmp(name, app->node.name) == 0;
    l->task.stopping = leave_stopping;
}
