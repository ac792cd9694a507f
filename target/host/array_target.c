// SPDX-License-Identifier: GPL-2.0-or-later
// One array's iSCSI target on one node.
//
//   IDLE --activate, standby--> LISTENER  the socket, bound though the address is elsewhere
//                         |
//        +----------> TGTD       process, target, LUN; hello -> ring_attach -> attached -> hello answered
//        |                |      (of one that an earlier pmsd left: hello only)
//        |            STANDBY    only when it was asked for, until activate
//        |                |
//        |            IMPORT     sessions from the cluster state
//        |                |
//        |            PORTAL     the plugin accepts from the listener; nobody can reach it yet
//        |                |
//        |            ADDRESS    may_serve, address up, ARP, tickles <--- address lost ---+
//        |                |                                                               |
//        |            SERVE      the gate opens, if it is not: commands flow              |
//        |                |                                                               |
//        |            SERVING ------------------------------------------------------------+
//        |                | tgtd died, the plugin's connection ended, or any step above failed
//        +-- pause -- DRAIN      kill, ring_release -> released; the address stays if it was up
//
//   any --deactivate, leave--> STOP_ADDRESS  address off
//                         |           gone, or not within ADDRESS_OFF_MS (then its lifetime ends it)
//                       STOP_TGTD     kill or leave, ring_release -> released, listener closed --> IDLE
//
// The address comes before the gate is opened, so that the answers which a left tgtd has in store are not sent
// while they would be lost: TCP would wait longer and longer before it tries again.
//
// Why the address stays while tgtd is started anew: the listener is pmsd's, so a connection that comes
// meanwhile is completed by the kernel and waits, with its login, for the new tgtd. Taking the address away
// would cost the initiator a retransmission timer, refusing costs open-iscsi three seconds.
#include "target/host/array_target_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#define ADDRESS_OFF_MS 1000
#define PAUSE_MS_FIRST 50    // before the second start; the first follows at once
#define STEADY_MS      10000 // served for so long: the next failure counts as the first

PMS_STATIC_ASSERT(ADDRESS_OFF_MS + PMS_TGTD_KILL_MS <= PMS_AT_STOP_MS_MAX, "a stop is bounded");

static void start(struct pms_at *at);

const char *pms_at_state_name(enum pms_at_state state)
{
    static const char *const names[] = {
        [PMS_AT_DOWN] = "down",        [PMS_AT_STARTING] = "starting",     [PMS_AT_STANDBY] = "standby",
        [PMS_AT_SERVING] = "serving",  [PMS_AT_RESTARTING] = "restarting", [PMS_AT_HELD] = "held",
        [PMS_AT_STOPPING] = "stopping"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static void invariants(const struct pms_at *at)
{
    PMS_CHECK(at->step != STEP_IDLE ||
              (!at->tgtd && !at->tgtd_stopping && !at->portal && at->ring == RING_NONE));
    PMS_CHECK(!at->tgtd || !at->tgtd_stopping);
    PMS_CHECK(at->step < STEP_TGTD || at->step > STEP_SERVING || at->tgtd);
    PMS_CHECK(at->step < STEP_STANDBY || at->step > STEP_SERVING || at->ring == RING_ATTACHED);
    PMS_CHECK(!at->addr_up || at->portal);
}

void pms_at_step_enter(struct pms_at *at, enum step step, uv_timer_cb on_timer, unsigned ms)
{
    at->step = step;
    uv_update_time(at->loop); // a deadline counts from now, not from when the loop last looked
    if (on_timer)
        uv_timer_start(&at->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&at->timer);
    invariants(at);
}

// pmsd writes the log: it knows what else happened.
void pms_at_state_set(struct pms_at *at, enum pms_at_state state, int err)
{
    if (state == at->state && err == 0)
        return;
    at->state = state;
    at->cbs.state(at->arg, state, err);
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
    if (at->step == STEP_IDLE && at->goal != GOAL_DOWN)
        start(at);
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
        pms_at_step_enter(at, STEP_DRAIN, pms_at_on_start_time, pause_ms(at));
    } else if (at->step == STEP_STOP_TGTD) {
        if (at->portal)
            pms_portal_close(at->portal, NULL, NULL);
        at->portal = NULL;
        at->addr_up = false;
        at->addr_falling = false;
        pms_at_step_enter(at, STEP_IDLE, on_waiters, 0);
        pms_at_state_set(at, PMS_AT_DOWN, at->stop_err);
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
    bool leave = at->leaving && step == STEP_STOP_TGTD && at->stop_err == 0;
    struct pms_tgtd *tgtd = at->tgtd;

    at->tgtd = NULL;
    at->tgtd_stopping = at->tgtd_stopping || (tgtd && !leave);
    pms_at_step_enter(at, step, NULL, 0);
    pms_session_expect(at->server, 0);
    if (tgtd && leave)
        pms_tgtd_leave(tgtd);
    else if (tgtd)
        pms_tgtd_stop(tgtd, on_tgtd_stopped, at);
    ring_release(at);
    drained_check(at);
}

// Something of tgtd's life failed: all of it again.
void pms_at_fail(struct pms_at *at, int err)
{
    bool served;

    if (at->step < STEP_TGTD || at->step > STEP_SERVING)
        return;
    if ((at->step == STEP_SERVING || at->step == STEP_STANDBY) &&
        pms_clock_boot_ns() - at->steady_since_ns > STEADY_MS * 1000000ull)
        at->failures = 0;
    at->failures++;
    served = at->state != PMS_AT_STARTING && at->state != PMS_AT_STANDBY;
    drain_begin(at, STEP_DRAIN);
    // A callback may have deactivated.
    if (!pms_at_stopping(at))
        pms_at_state_set(at, served ? PMS_AT_RESTARTING : PMS_AT_STARTING, err);
}

void pms_at_ring_attached(struct pms_at *at, int err)
{
    PMS_CHECK(at->ring == RING_ATTACHING);
    at->ring = err ? RING_NONE : RING_ATTACHED;
    if (at->step == STEP_TGTD) {
        // With an error the plugin refuses the LUN, and the step fails by that.
        pms_session_hello_done(at->server, err);
        if (at->adopted)
            pms_at_on_tgtd_ready(at, err);
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

// ---- Calls of pmsd's policy ----

int pms_at_open(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_paths *paths,
                const struct pms_at_conf *conf, const struct pms_at_cbs *cbs, void *arg,
                struct pms_at **at_out)
{
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
    at->write_cache = conf->write_cache;
    memcpy(at->name, conf->name, strlen(conf->name));
    memcpy(at->iqn, conf->iqn, strlen(conf->iqn));
    at->cbs = *cbs;
    at->arg = arg;
    at->deaf_ms = conf->tgtd_deaf_ms ? conf->tgtd_deaf_ms : PMS_TGTD_DEAF_MS;
    pms_list_init(&at->waiters);
    memcpy(session.serial, conf->serial, strlen(conf->serial));
    pms_session_naa(conf->cluster_uuid, conf->array_id, session.naa);
    n = snprintf(at->plugin_sock, sizeof(at->plugin_sock), "%s/plug-%s", paths->run_dir,
                 pms_log_hexid(conf->array_id));
    err = n < 0 || (size_t)n >= sizeof(at->plugin_sock) ? -ENAMETOOLONG : 0;
    if (!err)
        err = pms_session_server_open(loop, at->plugin_sock, &session, &pms_at_session_cbs, at, &at->server);
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
    PMS_CHECK(at->step == STEP_IDLE && at->goal == GOAL_DOWN && pms_list_empty(&at->waiters));
    pms_session_server_close(at->server);
    uv_close((uv_handle_t *)&at->timer, on_timer_closed);
}

static void start(struct pms_at *at)
{
    at->held = false;
    at->failures = 0;
    pms_at_step_enter(at, STEP_LISTENER, pms_at_on_start_time, 0);
    pms_at_state_set(at, PMS_AT_STARTING, 0);
}

void pms_at_left_kill(struct pms_at *at)
{
    if (at->left.pid == 0)
        return;
    pidfd_send_signal(at->left.pidfd, SIGKILL, NULL, 0);
    pms_guard_child_close(&at->left);
    at->left.pid = 0;
}

// While something still goes down, and while its waiters have not been told, on_waiters goes on from here.
static void goal_set(struct pms_at *at, enum goal goal)
{
    at->goal = goal;
    if (at->step == STEP_IDLE && pms_list_empty(&at->waiters))
        start(at);
}

void pms_at_activate(struct pms_at *at, uint64_t tenure, struct pms_guard_child *left)
{
    PMS_CHECK(tenure != 0);
    pms_at_left_kill(at);
    if (left)
        at->left = *left;
    if (at->step != STEP_IDLE)
        pms_at_left_kill(at); // there is one of our own already
    if (at->goal == GOAL_SERVE)
        return;
    at->tenure = tenure;
    goal_set(at, GOAL_SERVE);
    if (at->step == STEP_STANDBY)
        pms_at_serve_begin(at);
}

void pms_at_standby(struct pms_at *at)
{
    if (at->goal == GOAL_DOWN)
        goal_set(at, GOAL_STANDBY);
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
        pms_at_step_enter(at, STEP_ADDRESS, pms_at_on_address_time, 0);
}

void pms_at_address_hold(struct pms_at *at, bool hold)
{
    at->held = hold;
    if (!hold || !at->addr_up || pms_at_stopping(at))
        return; // the way up asks
    at->addr_up = false;
    at->addr_falling = true;
    pms_portal_down(at->portal, on_address_held, at);
    if (at->step != STEP_SERVING && at->step != STEP_ADDRESS)
        return; // tgtd is being started anew, or its gate opened
    pms_at_step_enter(at, STEP_ADDRESS, NULL, 0);
    pms_at_state_set(at, PMS_AT_HELD, 0);
}

static void down(struct pms_at *at, pms_at_cb cb, void *arg)
{
    at->goal = GOAL_DOWN;
    pms_at_left_kill(at);
    if (cb) {
        struct waiter *w = calloc(1, sizeof(*w));

        PMS_CHECK_MSG(w, "out of memory");
        w->cb = cb;
        w->arg = arg;
        pms_list_add_tail(&at->waiters, &w->link);
    }
    if (pms_at_stopping(at))
        return;
    at->stop_err = 0;
    if (at->step == STEP_IDLE) {
        uv_timer_start(&at->timer, on_waiters, 0, 0);
        return;
    }
    if (!at->portal) {
        pms_at_step_enter(at, STEP_STOP_ADDRESS, NULL, 0);
        pms_at_state_set(at, PMS_AT_STOPPING, 0);
        on_address_off(at, 0);
        return;
    }
    pms_at_step_enter(at, STEP_STOP_ADDRESS, on_address_off_late, ADDRESS_OFF_MS);
    if (!at->addr_falling)
        pms_portal_down(at->portal, on_address_off, at);
    pms_at_state_set(at, PMS_AT_STOPPING, 0);
}

void pms_at_leave(struct pms_at *at, pms_at_cb cb, void *arg)
{
    at->leaving = at->goal == GOAL_SERVE && at->step >= STEP_IMPORT && at->step <= STEP_SERVING;
    if (at->leaving)
        pms_session_expect(at->server, 0); // it holds all answers before the address goes: see the drawing
    down(at, cb, arg);
}

void pms_at_deactivate(struct pms_at *at, pms_at_cb cb, void *arg)
{
    at->leaving = false;
    down(at, cb, arg);
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

void pms_at_login_done(struct pms_at *at, uint64_t login_id, int err, uint16_t tsih)
{
    pms_session_login_done(at->server, login_id, err, tsih);
}

void pms_at_session_expire(struct pms_at *at, uint16_t tsih)
{
    pms_session_expire(at->server, tsih);
}

void pms_at_write_cache_set(struct pms_at *at, bool on)
{
    if (at->write_cache == on)
        return;
    at->write_cache = on;
    pms_session_write_cache_set(at->server, on);
}
