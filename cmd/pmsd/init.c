// SPDX-License-Identifier: GPL-2.0-or-later
// The first node of a cluster (cluster init), and tokens for the others.
//
// Goes well: identity saved, Raft begun with this node alone, cluster_init, a first token. An init that was
// cut short is gone on with when it is asked for again.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/member.h"

#include <stdio.h>
#include <string.h>

#define INIT_MS  20000
#define TOKEN_MS 5000

struct init_task {
    struct pms_task task;
    char cluster[PMS_NAME_MAX + 1];
    char why[512];
    int err;
    struct pms_token token;
};

enum { INIT_READY, INIT_CLUSTER, INIT_TOKEN, INIT_DONE };

// ---- Token ----

static void token_answer(struct pms_task *task)
{
    struct init_task *init = (struct init_task *)task;
    json_t *body = pms_token_answer(task->app, &init->token);

    pms_json_set_str(body, "cluster", pms_state_cluster_name(task->app->state));
    pms_json_set_str(body, "node", task->app->node.name);
    pms_task_finish(task, body);
}

static void token_step(struct pms_task *task)
{
    struct init_task *init = (struct init_task *)task;

    if (task->stage == INIT_TOKEN) {
        task->stage = INIT_DONE;
        pms_task_command(task, pms_token_command(task->app, &init->token), TOKEN_MS, NULL);
    } else {
        token_answer(task);
    }
}

void pms_token_route(struct pms_req *req)
{
    struct init_task *init =
        pms_task_start(pms_req_app(req), req, "token create", sizeof(*init), 2 * TOKEN_MS, token_step, NULL);

    init->task.stage = INIT_TOKEN;
}

// ---- Init ----

// Nothing of it was agreed: it never was.
static void on_undone(struct pms_app *app)
{
    int rv = pms_member_forget(app);

    if (rv != 0)
        pms_log(PMS_LOG_ERROR, "the state directory could not be cleared: %s", pms_err_text(rv));
}

static void init_step(struct pms_task *task)
{
    struct init_task *init = (struct init_task *)task;
    struct pms_app *app = task->app;
    json_t *cmd, *node;
    char id[PMS_UUID_TEXT_SIZE], addr[PMS_ADDR_TEXT_SIZE];

    switch (task->stage) {
    case INIT_READY:
        if (!pms_raft_is_ready(app->raft))
            return;
        task->stage = INIT_CLUSTER;
        cmd = pms_command_new("cluster_init");
        node = json_object();
        pms_json_set_id(node, "id", app->node.id);
        pms_json_set_str(node, "name", app->node.name);
        pms_json_set_str(node, "addr", pms_addr_format(&app->node.addr, addr));
        pms_json_set_u64(node, "supports", pms_feature_level_max);
        pms_json_set_str(cmd, "id", pms_uuid_format(&app->node.cluster, id));
        pms_json_set_str(cmd, "name", init->cluster);
        json_object_set_new(cmd, "node", node);
        pms_task_command(task, cmd, TOKEN_MS, NULL);
        return;
    case INIT_CLUSTER:
        pms_log(PMS_LOG_INFO, "cluster %s begins with node %s", init->cluster, app->node.name);
        task->stage = INIT_TOKEN;
        // fall through
    default:
        token_step(task);
    }
}

static int identity_make(struct pms_app *app, const char *name, const struct sockaddr_storage *addr)
{
    int rv = pms_node_dir_wipe_log(app->opt.state_dir); // of a cluster that never came about

    if (rv != 0)
        return rv;
    app->node.member = true;
    pms_uuid_random(&app->node.cluster);
    app->node.realm.cluster = app->node.cluster;
    pms_random_bytes(app->node.realm.key, sizeof(app->node.realm.key));
    app->node.n_former = 0;
    strcpy(app->node.name, name);
    app->node.addr = *addr;
    app->node.witness = false;
    app->node.n_peers = 0;
    app->node.feature_level = pms_feature_level_max;
    rv = pms_node_file_save(app->opt.state_dir, &app->node);
    if (rv != 0)
        app->node.member = false;
    return rv;
}

static bool may_begin(struct pms_req *req, struct pms_app *app)
{
    if (app->phase == PMS_APP_STOPPING) {
        pms_req_refuse(req, PMS_EBUSY, "this node is just leaving a cluster: try again in a moment");
        return false;
    }
    if (app->phase == PMS_APP_MEMBER && (pms_state_has_cluster(app->state) || app->node.n_peers > 0)) {
        pms_req_refuse(req, PMS_EREFUSED,
                       "this node is in cluster %s already, as %s: run pmsctl cluster leave first",
                       pms_state_has_cluster(app->state) ? pms_state_cluster_name(app->state) : "(joining)",
                       app->node.name);
        return false;
    }
    return true;
}

void pms_init_route(struct pms_req *req)
{
    struct pms_app *app = pms_req_app(req);
    const char *cluster = pms_json_str(pms_req_body(req), "name", "");
    char name[PMS_NAME_MAX + 1], why[512], text[PMS_ADDR_TEXT_SIZE];
    struct sockaddr_storage addr;
    struct init_task *init;
    int rv;

    if (pms_join_node_fields(req, name, &addr) != 0 || !may_begin(req, app))
        return;
    if (*cluster == '\0' || strlen(cluster) > PMS_NAME_MAX ||
        strspn(cluster, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
            strlen(cluster) ||
        strchr("._-", cluster[0]) != NULL) {
        pms_req_refuse(req, PMS_EUSAGE, "the cluster's name must be 1 to %d letters, digits, '.', '_' or '-'",
                       PMS_NAME_MAX);
        return;
    }
    if (app->phase == PMS_APP_IDLE) {
        rv = pms_join_addr_try(&addr);
        if (rv != 0) {
            pms_req_refuse(req, PMS_EREFUSED,
                           "cannot listen on %s: %s: --addr must be an address of this host",
                           pms_addr_format(&addr, text), strerror(-rv));
            return;
        }
        rv = identity_make(app, name, &addr);
        if (rv != 0) {
            pms_req_refuse(req, rv, "the state directory %s cannot be written: %s", app->opt.state_dir,
                           pms_err_text(rv));
            return;
        }
        rv = pms_member_start(app, true, why, sizeof(why));
        if (rv != 0) {
            pms_req_refuse(req, rv, "%s", why);
            pms_member_stop(app, on_undone);
            return;
        }
    }
    init = pms_task_start(app, req, "cluster init", sizeof(*init), INIT_MS, init_step, NULL);
    strcpy(init->cluster, cluster);
    init->task.stage = INIT_READY;
}
