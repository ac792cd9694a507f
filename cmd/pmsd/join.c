// SPDX-License-Identifier: GPL-2.0-or-later
// The joining node's side of cluster join.
//
// Goes well: the peer admits us over TLS with the token, and gives key and identity; they are saved; Raft
// starts empty and waits for the leader to add us; done when our own state names us and Raft has given us our
// role. Goes wrong before the identity is saved: nothing has changed here. After it: pmsd goes on trying by
// itself, also after a restart, and says so.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ASK_MS  15000
#define JOIN_MS 60000

struct join_task {
    struct pms_task task;
    struct pms_token token;
    struct sockaddr_storage peer, addr;
    char name[PMS_NAME_MAX + 1];
    bool witness;
};

enum { JOIN_ASK, JOIN_ASKED, JOIN_MEMBER };

static void on_undone(struct pms_app *app)
{
    int rv = pms_member_forget(app);

    if (rv != 0)
        pms_log(PMS_LOG_ERROR, "the state directory could not be cleared: %s", pms_err_text(rv));
}

// 0, or PMS_EPROTO: the answer is not what a node gives.
static int identity_take(struct join_task *j, const json_t *answer)
{
    struct pms_node_file *node = &j->task.app->node, fresh = {.id = node->id, .member = true};
    const json_t *list = json_object_get(answer, "nodes"), *former = json_object_get(answer, "former"), *peer;
    struct sockaddr_storage addr;
    uint64_t id;
    size_t i;

    if (pms_uuid_parse(pms_json_str(answer, "cluster", ""), &fresh.cluster) != 0 ||
        pms_realm_from_json(json_object_get(answer, "realm"), &fresh.realm) != 0)
        return PMS_EPROTO;
    json_array_foreach (former, i, peer) {
        if (fresh.n_former == PMS_NODE_FORMER_MAX ||
            pms_realm_from_json(peer, &fresh.former[fresh.n_former++]) != 0)
            return PMS_EPROTO;
    }
    json_array_foreach (list, i, peer) {
        if (pms_json_id(peer, "id", &id) != 0 ||
            pms_addr_parse(pms_json_str(peer, "addr", ""), PMS_PORT_NODE, &addr) != 0)
            return PMS_EPROTO;
        if (id != node->id)
            pms_node_file_peer(&fresh, id, &addr);
    }
    strcpy(fresh.name, j->name);
    fresh.feature_level = 1; // until the log says more
    fresh.addr = j->addr;
    fresh.witness = j->witness;
    *node = fresh;
    return 0;
}

static void member_begin(struct join_task *j, const json_t *answer)
{
    struct pms_app *app = j->task.app;
    char why[512];
    int rv = pms_node_dir_wipe_log(app->opt.state_dir);

    if (rv == 0)
        rv = identity_take(j, answer);
    if (rv == 0)
        rv = pms_node_file_save(app->opt.state_dir, &app->node);
    if (rv != 0) {
        app->node.member = false;
        pms_task_fail(&j->task, rv, "the cluster admitted this node, but it cannot be recorded: %s",
                      pms_err_text(rv));
        return;
    }
    rv = pms_member_start(app, false, why, sizeof(why));
    if (rv != 0) {
        pms_task_fail(&j->task, rv, "%s", why);
        pms_member_stop(app, on_undone);
        return;
    }
    j->task.stage = JOIN_MEMBER;
}

static void ask_failed(struct join_task *j, int status)
{
    char peer[PMS_ADDR_TEXT_SIZE];

    pms_addr_format(&j->peer, peer);
    if (status == PMS_EAUTH)
        pms_task_fail(
            &j->task, status,
            "%s does not take this token: it is wrong, used or expired; make a new one there with pmsctl "
            "token create",
            peer);
    else if (status == PMS_EPROTO)
        pms_task_fail(&j->task, status, "there is no pms node at %s", peer);
    else if (status == PMS_EUNKNOWN)
        pms_task_fail(&j->task, status, "%s did not answer in time; the same token may be tried again", peer);
    else
        pms_task_fail(&j->task, status, "%s cannot be reached: %s: is pmsd running there, and in a cluster?",
                      peer, pms_err_text(status));
}

static void on_answer(void *data, int status, const json_t *answer)
{
    struct join_task *j = data;

    if (status != 0)
        ask_failed(j, status);
    else if (j->task.ended)
        ; // pmsd is stopping
    else if (!pms_json_bool(answer, "ok", false))
        pms_task_fail(&j->task, pms_err_from_name(pms_json_str(answer, "error", "")), "%s",
                      pms_json_str(answer, "text", "refused"));
    else
        member_begin(j, answer);
    pms_task_return(&j->task);
}

static void ask(struct join_task *j)
{
    json_t *request = json_object();
    char addr[PMS_ADDR_TEXT_SIZE];
    int rv;

    rv = pms_join_addr_try(&j->addr);
    if (rv != 0) {
        pms_task_fail(&j->task, PMS_EREFUSED,
                      "cannot listen on %s: %s: --addr must be an address of this host",
                      pms_addr_format(&j->addr, addr), strerror(-rv));
        json_decref(request);
        return;
    }
    pms_json_set_id(request, "id", j->task.app->node.id);
    pms_json_set_str(request, "name", j->name);
    pms_json_set_str(request, "addr", pms_addr_format(&j->addr, addr));
    pms_json_set_str(request, "role", j->witness ? "witness" : "data");
    pms_json_set_u64(request, "supports", pms_feature_level_max);
    json_object_set_new(request, "protocol", pms_versions_to_json(pms_node_versions));
    j->task.stage = JOIN_ASKED;
    rv = pms_join_request(j->task.app->loop, &j->peer, &j->token, request, ASK_MS, on_answer, j);
    json_decref(request);
    if (rv == 0)
        pms_task_call(&j->task);
    else
        ask_failed(j, rv);
}

static bool arrived(struct pms_app *app)
{
    struct pms_raft_status st;
    struct pms_node_info node;

    if (pms_state_node_get(app->state, app->node.id, &node) != 0)
        return false;
    pms_raft_status_get(app->raft, &st);
    for (unsigned i = 0; i < st.members_n; i++)
        if (st.members[i].id == app->node.id && st.members[i].role >= PMS_RAFT_STANDBY)
            return true;
    return false;
}

static void join_step(struct pms_task *task)
{
    struct join_task *j = (struct join_task *)task;
    json_t *body;

    if (task->stage == JOIN_ASK) {
        if (task->app->phase == PMS_APP_IDLE) // else it is still leaving its former cluster
            ask(j);
        return;
    }
    if (task->stage != JOIN_MEMBER || task->app->phase != PMS_APP_MEMBER || !arrived(task->app))
        return;
    pms_log(PMS_LOG_INFO, "node %s has joined cluster %s", j->name, pms_state_cluster_name(task->app->state));
    body = json_object();
    pms_json_set_str(body, "cluster", pms_state_cluster_name(task->app->state));
    pms_json_set_str(body, "node", j->name);
    pms_json_set_str(body, "role", j->witness ? "witness" : "data");
    pms_task_finish(task, body);
}

static void join_timeout(struct pms_task *task)
{
    pms_task_fail(
        task, -ETIMEDOUT,
        "the cluster admitted this node but has not brought it up to date yet: it goes on by itself; look at "
        "pmsctl cluster status, and whether the other nodes can reach this node's --addr");
}

void pms_join_route(struct pms_req *req)
{
    struct pms_app *app = pms_req_app(req);
    const json_t *body = pms_req_body(req);
    const char *peer = pms_json_str(body, "peer", ""), *token = pms_json_str(body, "token", "");
    struct join_task want = {.witness = pms_json_bool(body, "witness", false)}, *j;

    if (pms_join_node_fields(req, want.name, &want.addr) != 0)
        return;
    if (app->phase == PMS_APP_MEMBER) {
        pms_req_refuse(req, PMS_EREFUSED,
                       "this node is in a cluster already, as %s: run pmsctl cluster leave first",
                       app->node.name);
        return;
    }
    if (pms_addr_parse(peer, PMS_PORT_NODE, &want.peer) != 0) {
        pms_req_refuse(req, PMS_EUSAGE,
                       "the peer must be a numeric ADDRESS or ADDRESS:PORT of a node in the cluster");
        return;
    }
    if (pms_token_parse(token, &want.token) != 0) {
        pms_req_refuse(req, PMS_EUSAGE,
                       "that is no token: one looks like pms1-xxxxxxxx-... and is printed by pmsctl "
                       "cluster init and pmsctl token create");
        return;
    }
    pms_list_for_each (it, &app->tasks) {
        struct pms_task *other = pms_list_entry(it, struct pms_task, link);

        if (!other->ended && other->step == join_step) {
            pms_req_refuse(req, PMS_EBUSY, "this node is joining a cluster already");
            return;
        }
    }
    j = pms_task_start(app, req, "cluster join", sizeof(*j), JOIN_MS, join_step, NULL);
    want.task = j->task;
    *j = want;
    // The list's neighbours point at j->task, which kept its place.
    j->task.timeout = join_timeout;
    j->task.stage = JOIN_ASK;
}
