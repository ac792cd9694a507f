// SPDX-License-Identifier: GPL-2.0-or-later
// The cluster's feature level: each node reports what it supports, `cluster upgrade` raises the level, status
// says when it can.
//
// Goes well: every node was restarted with the newer pms and has reported so; the level is raised to what all
// support. Goes wrong: a node supports less (refused, it is named); all support no more than the level is
// (done, nothing changes).
#include "cmd/pmsd/upgrade.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/util.h"
#include "base/version.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"
#include "consensus/core/policy.h"

#define COMMAND_MS 10000
#define REPORT_MS  5000
#define RETRY_NS   1000000000ull

// ---- Raising it ----

struct upgrade_task {
    struct pms_task task;
    unsigned from, to;
};

enum { UPGRADE_LOOK, UPGRADE_RAISE, UPGRADE_DONE };

static void answer(struct upgrade_task *u)
{
    json_t *body = json_object();

    pms_json_set_u64(body, "from", u->from);
    pms_json_set_u64(body, "level", u->to);
    pms_json_set_bool(body, "changed", u->to != u->from);
    pms_task_finish(&u->task, body);
}

static void upgrade_step(struct pms_task *task)
{
    struct upgrade_task *u = (struct upgrade_task *)task;
    struct pms_upgrade now;
    json_t *cmd;

    switch (task->stage) {
    case UPGRADE_LOOK:
        task->stage = UPGRADE_RAISE;
        pms_task_barrier(task);
        return;
    case UPGRADE_RAISE:
        pms_policy_upgrade(task->app->state, &now);
        u->from = now.level;
        u->to = now.newest;
        task->stage = UPGRADE_DONE;
        cmd = pms_command_new("cluster_upgrade");
        pms_json_set_u64(cmd, "level", u->to);
        pms_task_command(task, cmd, COMMAND_MS, NULL);
        return;
    default:
        if (u->to != u->from)
            pms_log(PMS_LOG_INFO, "the cluster's feature level was raised from %u to %u", u->from, u->to);
        answer(u);
    }
}

void pms_upgrade_route(struct pms_req *req)
{
    pms_task_start(pms_req_app(req), req, "cluster upgrade", sizeof(struct upgrade_task), 2 * COMMAND_MS,
                   upgrade_step, NULL);
}

// ---- Looking ----

json_t *pms_upgrade_view(const struct pms_app *app)
{
    struct pms_upgrade up;
    json_t *obj, *behind;

    pms_policy_upgrade(app->state, &up);
    if (up.newest == up.level)
        return json_null();
    obj = json_object();
    behind = json_array();
    for (unsigned i = 0; i < up.n_behind; i++)
        json_array_append_new(behind, json_string(pms_view_node_name(app, up.behind[i])));
    pms_json_set_u64(obj, "newest", up.newest);
    pms_json_set_bool(obj, "possible", up.n_behind == 0);
    json_object_set_new(obj, "behind", behind);
    return obj;
}

// ---- Reporting ----

static void on_reported(void *data, int err, const char *text, const json_t *result)
{
    struct pms_app *app = data;

    (void)result;
    app->level_reporting = false;
    if (err != 0 && err != PMS_ENOQUORUM && err != PMS_ESHUTDOWN)
        pms_log(PMS_LOG_WARN, "what feature level this node supports could not be recorded: %s", text);
}

void pms_upgrade_tick(struct pms_app *app)
{
    uint64_t now = pms_clock_boot_ns();
    struct pms_node_info self;
    json_t *cmd;

    if (!app->caught_up || app->level_reporting || now < app->level_ns ||
        pms_state_node_get(app->state, app->node.id, &self) != 0 ||
        self.feature_level == pms_feature_level_max)
        return;
    app->level_reporting = true;
    app->level_ns = now + RETRY_NS;
    cmd = pms_command_new("node_level");
    pms_json_set_id(cmd, "id", self.id);
    pms_json_set_u64(cmd, "supports", pms_feature_level_max);
    pms_log(PMS_LOG_INFO, "this node supports feature level %u now, %u before", pms_feature_level_max,
            self.feature_level);
    pms_command_propose(app, cmd, REPORT_MS, 0, on_reported, app);
}
