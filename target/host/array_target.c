// SPDX-License-Identifier: GPL-2.0-or-later
// One array's iSCSI target on one node.
//
//   IDLE --activate--> LISTENER  the socket, bound though the address is elsewhere
//                         |
//        +----------> TGTD       process, target, LUN; hello -> ring_attach -> attached -> hello answered
//        |                |
//        |            IMPORT     sessions from the cluster state
//        |                |
//        |            PORTAL     the plugin accepts from the listener; nobody can reach it yet
//        |                |
//        |            SERVE      commands flow
//        |                |
//        |            ADDRESS    may_serve, address up, ARP, tickles <--- address lost ---+
//        |                |                                                               |
//        |            SERVING ------------------------------------------------------------+
//        |                | tgtd died, the plugin's connection ended, or any step above failed
//        +-- pause -- DRAIN      kill, ring_release -> released; the address stays if it was up
//
//   any --deactivate--> STOP_ADDRESS  address off
//                         |           gone, or not within ADDRESS_OFF_MS (then its lifetime ends it)
//                       STOP_TGTD     kill, ring_release -> released, listener closed --> IDLE
//
// Why the address stays while tgtd is started anew: the listener is pmsd's, so a connection that comes
// meanwhile is completed by the kernel and waits, with its login, for the new tgtd. Taking the address away
// would cost the initiator a retransmission timer, refusing costs open-iscsi three seconds.
#include "target/host/array_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/util.h"

#define LISTENER_RETRY_MS 20
#define LISTENER_RETRIES  100
#define PLUGIN_ANSWER_MS  5000 // for import, portal, serve
#define MAY_SERVE_MS      20   // between two questions
#define ADDRESS_RETRY_MS  500
#define ADDRESS_OFF_MS    1000
#define PAUSE_MS_FIRST    50 // before the second start; the first follows at once
#define PAUSE_MS_MAX      2000
#define STEADY_MS         10000 // served for so long: the next failure counts as the first

PMS_STATIC_ASSERT(ADDRESS_OFF_MS + PMS_TGTD_KILL_MS <= PMS_AT_STOP_MS_MAX, "a stop is bounded");

enum step {
    STEP_IDLE,
    STEP_LISTENER,
    STEP_TGTD,
    STEP_IMPORT,
    STEP_PORTAL,
    STEP_SERVE,
    STEP_ADDRESS,
    STEP_SERVING,
    STEP_DRAIN,
    STEP_STOP_ADDRESS,
    STEP_STOP_TGTD,
};

enum ring_state { RING_NONE, RING_ATTACHING, RING_ATTACHED, RING_RELEASING };

struct waiter {
    struct pms_list link;
    pms_at_cb cb;
    void *arg;
};

struct pms_at {
    uv_loop_t *loop;
    struct pms_guard *guard;
    const struct pms_tgtd_paths *paths;
    struct pms_portal_conf portal_conf;
    uint64_t array_id;
    char name[PMS_NAME_MAX + 1];
    char iqn[PMS_IQN_MAX + 1];
    char plugin_sock[108];
    struct pms_at_cbs cbs;
    void *arg;

    enum step step;
    enum pms_at_state state;
    bool wanted;       // activate was the last word
    bool addr_up;      // or rising
    bool addr_falling; // for a hold
    bool held;
    uv_timer_t timer; // the current step's deadline, pause or next try
    struct pms_session_server *server;
    struct pms_portal *portal;
    struct pms_tgtd *tgtd;
    bool tgtd_stopping;
    enum ring_state ring;
    unsigned starts;
    unsigned failures; // since it was steady
    uint64_t serving_since_ns;
    int stop_err;
    struct pms_list waiters;
};

static void start(struct pms_at *at);
static void listener_open(struct pms_at *at);
static void address_raise(struct pms_at *at);

const char *pms_at_state_name(enum pms_at_state state)
{
    static const char *const names[] = {[PMS_AT_DOWN] = "down",       [PMS_AT_STARTING] = "starting",
                                        [PMS_AT_SERVING] = "serving", [PMS_AT_RESTARTING] = "restarting",
                                        [PMS_AT_HELD] = "held",       [PMS_AT_STOPPING] = "stopping"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static void invariants(const struct pms_at *at)
{
    PMS_CHECK(at->step != STEP_IDLE ||
              (!at->tgtd && !at->tgtd_stopping && !at->portal && at->ring == RING_NONE));
    PMS_CHECK(!at->tgtd || !at->tgtd_stopping);
    PMS_CHECK(at->step < STEP_TGTD || at->step > STEP_SERVING || at->tgtd);
    PMS_CHECK(at->step < STEP_IMPORT || at->step > STEP_SERVING || at->ring == RING_ATTACHED);
    PMS_CHECK(!at->addr_up || at->portal);
}

static void step_enter(struct pms_at *at, enum step step, uv_timer_cb on_timer, unsigned ms)
{
    at->step = step;
    uv_update_time(at->loop); // a deadline counts from now, not from when the loop last looked
    if (on_timer)
        uv_timer_start(&at->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&at->timer);
    invariants(at);
}

static void state_set(struct pms_at *at, enum pms_at_state state, int err)
{
    if (state == at->state && err == 0)
        return;
    pms_log(err ? PMS_LOG_WARN : PMS_LOG_INFO, "array %s: target is %s%s%s", at->name,
            pms_at_state_name(state), err ? ": " : "", err ? pms_err_text(err) : "");
    at->state = state;
    at->cbs.state(at->arg, state, err);
}

static bool stopping(const struct pms_at *at)
{
    return at->step == STEP_STOP_ADDRESS || at->step == STEP_STOP_TGTD;
}

// ---- Down: kill tgtd, have the ring released, then start anew or be idle ----

static void on_waiters(uv_timer_t *t)
{
    struct pms_at *at = t->data;
    struct pms_list done = PMS_LIST_INIT(done);
    struct pms_list *it;
    int err = at->stop_err;

    pms_list_splice_tail(&done, &at->waiters);
    while ((it = pms_list_pop(&done)) != NULL) {
        struct waiter *w = pms_list_entry(it, struct waiter, link);

        w->cb(w->arg, err);
        free(w);
    }
    if (at->step == STEP_IDLE && at->wanted)
        start(at);
}

static void on_pause_over(uv_timer_t *t)
{
    listener_open(t->data);
}

static unsigned pause_ms(const struct pms_at *at)
{
    unsigned ms = PAUSE_MS_FIRST;

    if (at->failures <= 1)
        return 0;
    for (unsigned i = 2; i < at->failures && ms < PAUSE_MS_MAX; i++)
        ms *= 2;
    return ms < PAUSE_MS_MAX ? ms : PAUSE_MS_MAX;
}

static void drained_check(struct pms_at *at)
{
    if (at->tgtd_stopping || at->ring != RING_NONE)
        return;
    if (at->step == STEP_DRAIN) {
        step_enter(at, STEP_DRAIN, on_pause_over, pause_ms(at));
    } else if (at->step == STEP_STOP_TGTD) {
        if (at->portal)
            pms_portal_close(at->portal, NULL, NULL);
        at->portal = NULL;
        at->addr_up = false;
        at->addr_falling = false;
        step_enter(at, STEP_IDLE, on_waiters, 0);
        state_set(at, PMS_AT_DOWN, at->stop_err);
    }
}

static void on_tgtd_stopped(void *arg, int err)
{
    struct pms_at *at = arg;

    at->tgtd_stopping = false;
    if (err)
        at->stop_err = err;
    drained_check(at);
}

static void ring_release(struct pms_at *at)
{
    if (at->ring != RING_ATTACHED)
        return; // an answer to ring_attach or ring_release is due, or there is none
    at->ring = RING_RELEASING;
    at->cbs.ring_release(at->arg);
}

static void drain_begin(struct pms_at *at, enum step step)
{
    struct pms_tgtd *tgtd = at->tgtd;

    at->tgtd = NULL;
    at->tgtd_stopping = at->tgtd_stopping || tgtd;
    step_enter(at, step, NULL, 0);
    pms_session_expect(at->server, 0);
    if (tgtd)
        pms_tgtd_stop(tgtd, on_tgtd_stopped, at);
    ring_release(at);
    drained_check(at);
}

// Something of tgtd's life failed: all of it again.
static void fail(struct pms_at *at, int err)
{
    bool served;

    if (at->step < STEP_TGTD || at->step > STEP_SERVING)
        return;
    if (at->step == STEP_SERVING && pms_clock_boot_ns() - at->serving_since_ns > STEADY_MS * 1000000ull)
        at->failures = 0;
    at->failures++;
    served = at->state != PMS_AT_STARTING;
    drain_begin(at, STEP_DRAIN);
    // A callback may have deactivated.
    if (!stopping(at))
        state_set(at, served ? PMS_AT_RESTARTING : PMS_AT_STARTING, err);
}

// ---- Up, step by step ----

static void on_plugin_silent(uv_timer_t *t)
{
    fail(t->data, -ETIMEDOUT);
}

static void on_may_serve_time(uv_timer_t *t)
{
    address_raise(t->data);
}

static void on_address_up(void *arg, int err)
{
    struct pms_at *at = arg;

    if (err)
        at->addr_up = false;
    // Any other step: tgtd failed meanwhile, or this node goes down.
    if (at->step != STEP_ADDRESS && at->step != STEP_SERVING)
        return;
    if (err) {
        pms_log(PMS_LOG_ERROR, "array %s: cannot raise the portal %s: %s", at->name,
                pms_portal_text(at->portal), pms_err_text(err));
        step_enter(at, STEP_ADDRESS, on_may_serve_time, ADDRESS_RETRY_MS);
        state_set(at, PMS_AT_STARTING, err);
        return;
    }
    at->serving_since_ns = pms_clock_boot_ns();
    step_enter(at, STEP_SERVING, NULL, 0);
    state_set(at, PMS_AT_SERVING, 0);
}

static void on_address_lost(void *arg, int err)
{
    struct pms_at *at = arg;

    (void)err;
    at->addr_up = false;
    // Not at once again: if this node was stopped for long, another owns the array, and the news is under
    // way.
    if (at->step == STEP_SERVING) {
        step_enter(at, STEP_ADDRESS, on_may_serve_time, ADDRESS_RETRY_MS);
        state_set(at, PMS_AT_STARTING, -EADDRNOTAVAIL);
    }
}

// The addresses of the sessions' last connections: they may still believe in a peer that is gone.
static unsigned peers_get(struct pms_at *at, struct pms_session_rec *recs, unsigned n,
                          struct sockaddr_storage *peers)
{
    unsigned count = 0;

    for (unsigned i = 0; i < n; i++)
        if (recs[i].peer.ss_family == at->portal_conf.addr.ss_family)
            peers[count++] = recs[i].peer;
    return count;
}

static int address_up(struct pms_at *at)
{
    struct pms_session_rec *recs = calloc(PMS_SESSIONS_MAX, sizeof(*recs));
    struct sockaddr_storage peers[PMS_SESSIONS_MAX];
    unsigned n;
    int err;

    if (!recs)
        return -ENOMEM;
    n = at->cbs.sessions_get(at->arg, recs, PMS_SESSIONS_MAX);
    PMS_CHECK(n <= PMS_SESSIONS_MAX);
    n = peers_get(at, recs, n, peers);
    free(recs);
    err = pms_portal_up(at->portal, peers, n, on_address_up, at);
    if (!err)
        at->addr_up = true;
    return err;
}

static void address_raise(struct pms_at *at)
{
    int err;

    if (at->addr_up) { // through a restart of tgtd
        on_address_up(at, 0);
        return;
    }
    if (at->addr_falling)
        return; // on_address_held goes on
    if (at->held || (at->cbs.may_serve && !at->cbs.may_serve(at->arg))) {
        step_enter(at, STEP_ADDRESS, on_may_serve_time, MAY_SERVE_MS);
        return;
    }
    step_enter(at, STEP_ADDRESS, NULL, 0);
    err = address_up(at);
    if (err)
        on_address_up(at, err);
}

static void on_serve_done(void *arg, bool on)
{
    struct pms_at *at = arg;

    if (at->step != STEP_SERVE || !on)
        return;
    step_enter(at, STEP_ADDRESS, NULL, 0);
    address_raise(at);
}

static void on_portal_done(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_PORTAL)
        return;
    if (!err)
        err = pms_session_serve(at->server, true);
    if (err)
        fail(at, err);
    else
        step_enter(at, STEP_SERVE, on_plugin_silent, PLUGIN_ANSWER_MS);
}

static void on_import_done(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_IMPORT)
        return;
    if (!err)
        err = pms_session_portal(at->server, &at->portal_conf.addr);
    if (err)
        fail(at, err);
    else
        step_enter(at, STEP_PORTAL, on_plugin_silent, PLUGIN_ANSWER_MS);
}

static int import(struct pms_at *at)
{
    struct pms_session_rec *recs = calloc(PMS_SESSIONS_MAX, sizeof(*recs));
    unsigned n;
    int err;

    if (!recs)
        return -ENOMEM;
    n = at->cbs.sessions_get(at->arg, recs, PMS_SESSIONS_MAX);
    PMS_CHECK(n <= PMS_SESSIONS_MAX);
    err = pms_session_import(at->server, recs, n);
    free(recs);
    return err;
}

// tgtd is set up; that includes the LUN, so the plugin has said hello.
static void on_tgtd_ready(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_TGTD)
        return;
    if (!err && at->ring != RING_ATTACHED)
        err = PMS_EPROTO;
    if (!err)
        err = import(at);
    if (err)
        fail(at, err);
    else
        step_enter(at, STEP_IMPORT, on_plugin_silent, PLUGIN_ANSWER_MS);
}

static void on_tgtd_exit(void *arg, int status)
{
    (void)status; // logged by tgtd.c
    fail(arg, -EPIPE);
}

static void on_hello(void *arg, const struct pms_session_fds *fds)
{
    struct pms_at *at = arg;

    if (at->step == STEP_TGTD && at->ring == RING_NONE) {
        at->ring = RING_ATTACHING;
        at->cbs.ring_attach(at->arg, fds);
        return;
    }
    close(fds->memfd);
    close(fds->sq_efd);
    close(fds->cq_efd);
    pms_session_hello_done(at->server, PMS_EBUSY);
}

void pms_at_ring_attached(struct pms_at *at, int err)
{
    PMS_CHECK(at->ring == RING_ATTACHING);
    at->ring = err ? RING_NONE : RING_ATTACHED;
    if (at->step == STEP_TGTD) {
        // With an error the plugin refuses the LUN, and the step fails by that.
        pms_session_hello_done(at->server, err);
        return;
    }
    ring_release(at);
    drained_check(at);
}

void pms_at_ring_released(struct pms_at *at)
{
    PMS_CHECK(at->ring == RING_RELEASING);
    at->ring = RING_NONE;
    drained_check(at);
}

static void on_plugin_lost(void *arg, int err)
{
    fail(arg, err ? err : -ECONNRESET);
}

static void tgtd_start(struct pms_at *at)
{
    struct pms_tgtd_conf conf = {.array_id = at->array_id,
                                 .name = at->name,
                                 .iqn = at->iqn,
                                 .listen_fd = pms_portal_listen_fd(at->portal),
                                 .plugin_sock = at->plugin_sock};
    int err;

    err = pms_tgtd_start(at->loop, at->guard, at->paths, &conf, on_tgtd_ready, on_tgtd_exit, at, &at->tgtd);
    if (err) {
        at->failures++;
        step_enter(at, STEP_DRAIN, on_pause_over, PAUSE_MS_MAX);
        state_set(at, at->state, err);
        return;
    }
    at->starts++;
    pms_session_expect(at->server, pms_tgtd_pid(at->tgtd));
    step_enter(at, STEP_TGTD, NULL, 0);
}

static void listener_open(struct pms_at *at)
{
    int err = 0;

    if (!at->portal)
        err = pms_portal_open(at->loop, at->guard, &at->portal_conf, on_address_lost, at, &at->portal);
    if (err) {
        bool soon = err == -EADDRINUSE && ++at->failures < LISTENER_RETRIES;

        // A killed pmsd's tgtd or guard holds the address for a moment yet: no news.
        step_enter(at, STEP_LISTENER, on_pause_over, soon ? LISTENER_RETRY_MS : PAUSE_MS_MAX);
        if (!soon)
            state_set(at, PMS_AT_STARTING, err);
        return;
    }
    if (at->step == STEP_LISTENER)
        at->failures = 0;
    tgtd_start(at);
}

// ---- Plugin's events that pmsd answers ----

static void on_login(void *arg, uint64_t login_id, const struct pms_session_rec *rec, uint16_t requested_tsih,
                     bool known)
{
    struct pms_at *at = arg;

    at->cbs.login(at->arg, login_id, rec, requested_tsih, known);
}

static void on_closed(void *arg, const struct pms_session_rec *rec, enum pms_session_end how)
{
    struct pms_at *at = arg;

    at->cbs.closed(at->arg, rec, how);
}

void pms_at_login_done(struct pms_at *at, uint64_t login_id, int err, uint16_t tsih)
{
    pms_session_login_done(at->server, login_id, err, tsih);
}

void pms_at_session_expire(struct pms_at *at, uint16_t tsih)
{
    pms_session_expire(at->server, tsih);
}

// ---- Calls of pmsd's policy ----

int pms_at_open(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_paths *paths,
                const struct pms_at_conf *conf, const struct pms_at_cbs *cbs, void *arg,
                struct pms_at **at_out)
{
    static const struct pms_session_cbs session_cbs = {.on_hello = on_hello,
                                                       .on_login = on_login,
                                                       .on_closed = on_closed,
                                                       .on_import_done = on_import_done,
                                                       .on_portal_done = on_portal_done,
                                                       .on_serve_done = on_serve_done,
                                                       .on_lost = on_plugin_lost};
    struct pms_session_conf session = {
        .array_id = conf->array_id, .size_bytes = conf->size_bytes, .write_cache = conf->write_cache};
    struct pms_at *at;
    int n;
    int err;

    if (strlen(conf->name) > PMS_NAME_MAX || strlen(conf->iqn) > PMS_IQN_MAX ||
        strlen(conf->serial) >= sizeof(session.serial))
        return -EINVAL;
    at = calloc(1, sizeof(*at));
    if (!at)
        return -ENOMEM;
    at->loop = loop;
    at->guard = guard;
    at->paths = paths;
    at->portal_conf = conf->portal;
    at->array_id = conf->array_id;
    memcpy(at->name, conf->name, strlen(conf->name));
    memcpy(at->iqn, conf->iqn, strlen(conf->iqn));
    at->cbs = *cbs;
    at->arg = arg;
    pms_list_init(&at->waiters);
    memcpy(session.serial, conf->serial, strlen(conf->serial));
    pms_session_naa(conf->cluster_uuid, conf->array_id, session.naa);
    n = snprintf(at->plugin_sock, sizeof(at->plugin_sock), "%s/plug-%s", paths->run_dir,
                 pms_log_hexid(conf->array_id));
    err = n < 0 || (size_t)n >= sizeof(at->plugin_sock) ? -ENAMETOOLONG : 0;
    if (!err)
        err = pms_session_server_open(loop, at->plugin_sock, &session, &session_cbs, at, &at->server);
    if (err) {
        free(at);
        return err;
    }
    uv_timer_init(loop, &at->timer);
    at->timer.data = at;
    *at_out = at;
    return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

void pms_at_close(struct pms_at *at)
{
    PMS_CHECK(at->step == STEP_IDLE && !at->wanted && pms_list_empty(&at->waiters));
    pms_session_server_close(at->server);
    uv_close((uv_handle_t *)&at->timer, on_timer_closed);
}

static void on_start_time(uv_timer_t *t)
{
    listener_open(t->data);
}

static void start(struct pms_at *at)
{
    at->held = false;
    at->failures = 0;
    step_enter(at, STEP_LISTENER, on_start_time, 0);
    state_set(at, PMS_AT_STARTING, 0);
}

void pms_at_activate(struct pms_at *at)
{
    if (at->wanted)
        return;
    at->wanted = true;
    // While something still goes down, and while its waiters have not been told, on_waiters goes on from
    // here.
    if (at->step == STEP_IDLE && pms_list_empty(&at->waiters))
        start(at);
}

static void on_address_off_late(uv_timer_t *t)
{
    struct pms_at *at = t->data;

    pms_log(PMS_LOG_ERROR, "array %s: the portal's address does not go; its lifetime will end it", at->name);
    at->stop_err = -ETIMEDOUT;
    drain_begin(at, STEP_STOP_TGTD);
}

static void on_address_off(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_STOP_ADDRESS)
        return;
    at->addr_up = false;
    if (err)
        at->stop_err = err;
    drain_begin(at, STEP_STOP_TGTD);
}

static void on_address_held(void *arg, int err)
{
    struct pms_at *at = arg;

    at->addr_falling = false;
    if (at->step == STEP_STOP_ADDRESS)
        on_address_off(at, err);
    else if (at->step == STEP_ADDRESS)
        step_enter(at, STEP_ADDRESS, on_may_serve_time, 0);
}

void pms_at_address_hold(struct pms_at *at, bool hold)
{
    at->held = hold;
    if (!hold || !at->addr_up || stopping(at))
        return; // the way up asks
    at->addr_up = false;
    at->addr_falling = true;
    pms_portal_down(at->portal, on_address_held, at);
    if (at->step != STEP_SERVING && at->step != STEP_ADDRESS)
        return; // tgtd is being started anew
    step_enter(at, STEP_ADDRESS, NULL, 0);
    state_set(at, PMS_AT_HELD, 0);
}

void pms_at_deactivate(struct pms_at *at, pms_at_cb cb, void *arg)
{
    at->wanted = false;
    if (cb) {
        struct waiter *w = calloc(1, sizeof(*w));

        PMS_CHECK_MSG(w, "out of memory");
        w->cb = cb;
        w->arg = arg;
        pms_list_add_tail(&at->waiters, &w->link);
    }
    if (stopping(at))
        return;
    at->stop_err = 0;
    if (at->step == STEP_IDLE) {
        uv_timer_start(&at->timer, on_waiters, 0, 0);
        return;
    }
    if (!at->portal) {
        step_enter(at, STEP_STOP_ADDRESS, NULL, 0);
        state_set(at, PMS_AT_STOPPING, 0);
        on_address_off(at, 0);
        return;
    }
    step_enter(at, STEP_STOP_ADDRESS, on_address_off_late, ADDRESS_OFF_MS);
    if (!at->addr_falling)
        pms_portal_down(at->portal, on_address_off, at);
    state_set(at, PMS_AT_STOPPING, 0);
}

enum pms_at_state pms_at_state_get(const struct pms_at *at)
{
    return at->state;
}

pid_t pms_at_tgtd_pid(const struct pms_at *at)
{
    return at->tgtd ? pms_tgtd_pid(at->tgtd) : 0;
}

unsigned pms_at_restarts(const struct pms_at *at)
{
    return at->starts > 0 ? at->starts - 1 : 0;
}
