// SPDX-License-Identifier: GPL-2.0-or-later
// Being a member: opening all rooms with this node's identity, feeding the agreed state, and closing them
// again.
//
//   start: what an earlier pmsd left, guard, listener, control RPC, data loop, Raft (which replays the log into the state)
//   stop:  tasks end, targets go down (address first), data loop, Raft, RPC, listener, guard, state
#include "cmd/pmsd/member.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/http.h"
#include "cmd/pmsd/left.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/carrier.h"
#include "cmd/pmsd/data.h"
#include "cmd/pmsd/handover.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/links.h"
#include "cmd/pmsd/membership.h"
#include "cmd/pmsd/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pms_node_save(struct pms_app *app)
{
    int rv = pms_node_file_save(app->opt.state_dir, &app->node);

    if (rv != 0)
        pms_log(PMS_LOG_WARN, "node.json could not be written: %s", pms_err_text(rv));
}

// ---- The state machine's driver ----

// The cluster's feature level is kept beside the log: a pmsd that does not support it refuses to start at once.
// 0, or PMS_EVERSION: this one is such.
static int level_note(struct pms_app *app)
{
    unsigned level = pms_state_feature_level(app->state);

    if (!pms_state_has_cluster(app->state))
        return 0;
    if (level > app->node.feature_level) {
        app->node.feature_level = level;
        pms_node_save(app);
    }
    return level > pms_feature_level_max ? PMS_EVERSION : 0;
}

// Settings that are not looked up where they are used: the guard's, and those that Raft must know before the state is.
static void settings_note(struct pms_app *app)
{
    unsigned election_ms = (unsigned)pms_state_setting(app->state, PMS_SET_RAFT_ELECTION_MS);
    unsigned heartbeat_ms = (unsigned)pms_state_setting(app->state, PMS_SET_RAFT_HEARTBEAT_MS);

    if (!app->caught_up)
        return; // what is replayed is not what is so
    if (app->guard != NULL)
        pms_guard_lifetime_set(app->guard, (unsigned)pms_state_setting(app->state, PMS_SET_ADDR_LIFETIME_S));
    if (election_ms == app->node.raft_election_ms && heartbeat_ms == app->node.raft_heartbeat_ms)
        return;
    app->node.raft_election_ms = election_ms;
    app->node.raft_heartbeat_ms = heartbeat_ms;
    pms_node_save(app);
}

static void on_applied(struct pms_app *app)
{
    settings_note(app);
    if (app->members != NULL)
        pms_members_note_addresses(app);
    pms_locals_sync(app);
    pms_app_kick(app);
}

// What an applied command means for a running target beyond the new state.
static void session_effects(struct pms_app *app, const char *command, size_t len, const char *result)
{
    json_t *cmd, *res;
    struct pms_local *a;
    uint64_t tsih = 0, id;
    const char *array;

    if (memmem(command, len, "session_expire", 14) == NULL)
        return;
    cmd = json_loadb(command, len, 0, NULL);
    res = json_loads(result, 0, NULL);
    array = pms_json_str(cmd, "array", "");
    if (strcmp(pms_json_str(cmd, "op", ""), "session_expire") == 0 && pms_json_bool(res, "ok", false) &&
        pms_json_u64(cmd, "tsih", &tsih) == 0) {
        a = pms_id_parse(array, &id) == 0 ? pms_local_find(app, id) : pms_local_find_by_name(app, array);
        if (a != NULL)
            pms_local_session_gone(a, (uint16_t)tsih);
    }
    json_decref(cmd);
    json_decref(res);
}

static int on_apply(void *data, const char *command, size_t len, uint64_t index, char **result)
{
    struct pms_app *app = data;

    while (len > 0 && (command[len - 1] == '\0' || command[len - 1] == ' '))
        len--;
    *result = pms_state_apply(app->state, command, len, index);
    if (level_note(app) != 0)
        return PMS_EVERSION;
    session_effects(app, command, len, *result);
    on_applied(app);
    return 0;
}

static int on_snapshot(void *data, char **buf, size_t *len)
{
    struct pms_app *app = data;

    *buf = pms_state_encode(app->state, len);
    return 0;
}

static int on_restore(void *data, const char *buf, size_t len)
{
    struct pms_app *app = data;
    struct pms_state *fresh;
    int rv = pms_state_decode(buf, len, &fresh);

    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "a snapshot of the cluster's state cannot be used: %s%s", pms_err_text(rv),
                rv == PMS_EVERSION ? ": a newer pms wrote it; install that on this node again" : "");
        return rv;
    }
    pms_state_destroy(app->state);
    app->state = fresh;
    level_note(app);
    on_applied(app);
    return 0;
}

static void on_leader(void *data, uint64_t leader, bool is_self)
{
    struct pms_app *app = data;

    (void)leader;
    (void)is_self;
    pms_app_kick(app);
}

static void on_ready(void *data)
{
    pms_app_kick(data);
}

static void on_caught_up(void *data)
{
    struct pms_app *app = data;

    pms_log(PMS_LOG_INFO, "the cluster state is up to date");
    app->caught_up = true;
    settings_note(app);
    if (!app->node.settled) {
        app->node.settled = true;
        pms_node_save(app);
    }
    pms_locals_live(app);
    pms_app_kick(app);
}

static bool level_is_beyond(const struct pms_app *app)
{
    return app->node.feature_level > pms_feature_level_max;
}

static void on_fatal(void *data, const char *text)
{
    struct pms_app *app = data;
    char why[256];

    app->raft_failed = true;
    pms_log(PMS_LOG_ERROR, "Raft cannot go on: %s", text);
    if (level_is_beyond(app)) {
        pms_node_level_text(app->node.feature_level, why, sizeof(why));
        pms_log(PMS_LOG_ERROR, "%s", why);
    }
    pms_app_quit(app, 1);
}

// ---- The listener's questions ----

static int on_resolve(void *data, uint64_t id, struct sockaddr_storage *addr)
{
    struct pms_app *app = data;
    struct pms_node_info node;

    if (app->state != NULL && pms_state_node_get(app->state, id, &node) == 0)
        return pms_addr_parse(node.addr, PMS_PORT_NODE, addr) == 0 ? 0 : PMS_ENOTFOUND;
    for (unsigned i = 0; i < app->node.n_peers; i++) {
        if (app->node.peers[i].id == id) {
            *addr = app->node.peers[i].addr;
            return 0;
        }
    }
    return PMS_ENOTFOUND;
}

// The cluster goes on without this node, which was given up: nothing that it still believes counts.
static void on_superseded(void *data, uint64_t peer)
{
    struct pms_app *app = data;

    if (app->node.superseded)
        return;
    pms_log(PMS_LOG_ERROR,
            "this cluster was recovered on node %s without this node, which must not go on: empty the state "
            "directory %s, start pmsd, and join again with a new token",
            pms_log_hexid(peer), app->opt.state_dir);
    app->node.superseded = true;
    pms_node_save(app);
    pms_app_quit(app, 1);
}

// ---- Start ----

__attribute__((format(printf, 4, 5))) static int failed(char *why, size_t why_len, int err, const char *fmt,
                                                        ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(why, why_len, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < why_len)
        snprintf(why + n, why_len - (size_t)n, ": %s", pms_err_text(err));
    return err;
}

static int net_start(struct pms_app *app, char *why, size_t why_len)
{
    struct pms_net_config config = {.listen = app->node.addr,
                                    .data = app,
                                    .former = app->node.former,
                                    .n_former = app->node.n_former,
                                    .resolve = on_resolve,
                                    .on_superseded = on_superseded,
                                    .on_data = app->node.witness ? NULL : pms_data_accept,
                                    .token_secret = pms_join_token_secret,
                                    .on_join = pms_join_serve};
    char addr[PMS_ADDR_TEXT_SIZE];
    int rv;

    config.identity.cluster = app->node.realm.cluster;
    config.identity.node = app->node.id;
    memcpy(config.identity.key, app->node.realm.key, sizeof(config.identity.key));
    rv = pms_net_open(app->loop, &config, &app->net);
    explicit_bzero(config.identity.key, sizeof(config.identity.key));
    if (rv != 0)
        return failed(why, why_len, rv, "cannot listen on %s (this node's --addr)%s",
                      pms_addr_format(&app->node.addr, addr),
                      rv == -EADDRINUSE      ? ", another process does (ss -ltnp names it)"
                      : rv == -EADDRNOTAVAIL ? ", which this host has not"
                                             : "");
    rv = pms_rpc_open(app->loop, app->net, &app->rpc);
    if (rv == 0)
        rv = pms_rpc_serve(app->rpc, "local", pms_report_serve, app);
    if (rv == 0)
        rv = pms_rpc_serve(app->rpc, "member", pms_members_serve, app);
    if (rv == 0)
        rv = pms_rpc_serve(app->rpc, "handover", pms_handover_serve, app);
    if (rv == 0)
        rv = pms_rpc_serve(app->rpc, "pulse", pms_links_serve, app);
    return rv == 0 ? 0 : failed(why, why_len, rv, "the control channel cannot be opened");
}

static int raft_start(struct pms_app *app, bool bootstrap, char *why, size_t why_len)
{
    char dir[4096];
    struct pms_raft_config config = {.id = app->node.id,
                                     .dir = dir,
                                     .net = app->net,
                                     .rpc = app->rpc,
                                     .election_ms = app->node.raft_election_ms,
                                     .heartbeat_ms = app->node.raft_heartbeat_ms,
                                     .data = app,
                                     .apply = on_apply,
                                     .snapshot = on_snapshot,
                                     .restore = on_restore,
                                     .on_leader = on_leader,
                                     .on_ready = on_ready,
                                     .on_caught_up = on_caught_up,
                                     .on_fatal = on_fatal};
    int rv;

    pms_node_dir_log(app->opt.state_dir, dir, sizeof(dir));
    // A voter that forgot its votes could give them twice.
    if (app->node.settled && !pms_node_dir_has_log(app->opt.state_dir))
        return failed(
            why, why_len, PMS_ECORRUPT,
            "Raft's log in %s is gone, and this node must not go on without it under its old id: empty %s, "
            "start pmsd and join the cluster again with a new token",
            dir, app->opt.state_dir);
    if (app->node.raft_election_ms != 0)
        pms_log(PMS_LOG_INFO, "Raft's timings: election %u ms, heartbeat %u ms", app->node.raft_election_ms,
                app->node.raft_heartbeat_ms);
    rv = pms_raft_open(app->loop, &config, &app->raft);
    if (rv != 0)
        return failed(why, why_len, rv, "Raft's log in %s cannot be used", dir);
    if (bootstrap) {
        rv = pms_raft_bootstrap(app->raft);
        if (rv != 0)
            return failed(why, why_len, rv, "Raft's log in %s cannot be begun", dir);
    }
    rv = pms_raft_start(app->raft);
    if (rv != 0 && level_is_beyond(app)) {
        pms_node_level_text(app->node.feature_level, why, why_len);
        return PMS_EVERSION;
    }
    if (rv != 0)
        return failed(why, why_len, rv, "Raft's log in %s cannot be read", dir);
    return 0;
}

static void on_interface(void *arg)
{
    pms_app_kick(arg);
}

static void carrier_start(struct pms_app *app)
{
    int rv = pms_carrier_open(app->loop, on_interface, app, &app->carrier);

    if (rv != 0)
        pms_log(PMS_LOG_WARN,
                "the kernel does not tell of its interfaces, a lost carrier will not be noticed: %s",
                pms_err_text(rv));
}

int pms_member_start(struct pms_app *app, bool bootstrap, char *why, size_t why_len)
{
    int rv = 0;

    PMS_CHECK(app->phase == PMS_APP_IDLE && app->node.member);
    app->phase = PMS_APP_MEMBER;
    app->state = pms_state_create();
    app->caught_up = false;
    app->member_since_ns = pms_clock_boot_ns();
    app->members = pms_members_create(app);
    app->links = pms_links_create(app);
    if (!app->node.witness) {
        char path[sizeof(app->run_dir) + 16];

        pms_left_open(app);
        snprintf(path, sizeof(path), "%s/guard.sock", app->run_dir);
        rv = pms_guard_open(app->loop, NULL, path, &app->guard);
        if (rv != 0)
            return failed(why, why_len, rv, "the guard process cannot be started");
        pms_left_guard(app);
        carrier_start(app);
        rv = pms_data_start(app);
        if (rv != 0)
            return failed(why, why_len, rv, "the data loop cannot be started%s",
                          rv == -ENOSYS || rv == -EPERM ? " (it needs io_uring)" : "");
    }
    rv = net_start(app, why, why_len);
    if (rv == 0)
        rv = raft_start(app, bootstrap, why, why_len);
    return rv;
}

// ---- Stop: each step when the one before is over ----

static void stop_done(struct pms_app *app)
{
    void (*cb)(struct pms_app *) = app->stopped;

    pms_state_destroy(app->state);
    app->state = NULL;
    pms_members_destroy(app->members);
    app->members = NULL;
    pms_carrier_close(app->carrier);
    app->carrier = NULL;
    pms_links_destroy(app->links);
    app->links = NULL;
    app->phase = PMS_APP_IDLE;
    app->stopped = NULL;
    cb(app);
}

static void on_guard_closed(void *data)
{
    struct pms_app *app = data;

    app->guard = NULL;
    stop_done(app);
}

static void on_net_closed(void *data)
{
    struct pms_app *app = data;

    app->net = NULL;
    pms_left_close(app);
    if (app->guard != NULL)
        pms_guard_close(app->guard, on_guard_closed, app);
    else
        stop_done(app);
}

static void on_rpc_closed(void *data)
{
    struct pms_app *app = data;

    app->rpc = NULL;
    if (app->net != NULL)
        pms_net_close(app->net, on_net_closed, app);
    else
        on_net_closed(app);
}

static void on_raft_closed(void *data)
{
    struct pms_app *app = data;

    app->raft = NULL;
    if (app->rpc != NULL)
        pms_rpc_close(app->rpc, on_rpc_closed, app);
    else
        on_rpc_closed(app);
}

static void on_data_stopped(struct pms_app *app)
{
    if (app->raft != NULL)
        pms_raft_close(app->raft, on_raft_closed, app);
    else
        on_raft_closed(app);
}

void pms_member_stop_step(struct pms_app *app)
{
    if (app->phase != PMS_APP_STOPPING || app->stop_closing)
        return;
    if (app->data != NULL && !pms_locals_shutdown(app))
        return;
    app->stop_closing = true;
    if (app->data != NULL)
        pms_data_stop(app, on_data_stopped);
    else
        on_data_stopped(app);
}

void pms_member_stop(struct pms_app *app, void (*cb)(struct pms_app *app))
{
    app->stopped = cb;
    if (app->phase == PMS_APP_IDLE) {
        app->stopped = NULL;
        cb(app);
        return;
    }
    if (app->phase == PMS_APP_STOPPING)
        return; // the newest cb is told
    app->phase = PMS_APP_STOPPING;
    app->stop_closing = false;
    pms_tasks_end(app);
    pms_app_kick(app);
}

// ---- Leaving ----

int pms_member_forget(struct pms_app *app)
{
    struct pms_node_file fresh = {.id = pms_id_random()};
    int rv = pms_node_file_save(app->opt.state_dir, &fresh);

    // First the identity: a log without it is wiped before the next use, an identity without log is none.
    if (rv != 0)
        return rv;
    explicit_bzero(&app->node, sizeof(app->node));
    app->node = fresh;
    return pms_node_dir_wipe_log(app->opt.state_dir);
}

void pms_member_left_answer(struct pms_app *app, int err)
{
    struct pms_req *req = app->left_req;
    json_t *body;

    app->left_req = NULL;
    if (req == NULL)
        return;
    if (err != 0) {
        pms_req_refuse(req, err, "this node is out of the cluster, but has not forgotten it: %s",
                       pms_err_text(err));
        return;
    }
    body = json_object();
    pms_json_set_str(body, "node", app->left_name);
    pms_json_set_bool(body, "left", true);
    pms_req_answer(req, body);
}

static void on_left(struct pms_app *app)
{
    int rv = pms_member_forget(app);

    pms_member_left_answer(app, rv);
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "the state directory %s could not be cleared: %s", app->opt.state_dir,
                pms_err_text(rv));
        pms_app_quit(app, 1);
        return;
    }
    pms_log(PMS_LOG_INFO, "this node is in no cluster and waits for pmsctl cluster init or join");
}

void pms_member_leave(struct pms_app *app)
{
    pms_member_stop(app, on_left);
}
