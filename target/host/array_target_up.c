// SPDX-License-Identifier: GPL-2.0-or-later
// The array target's way up, step by step; the drawing is in array_target.c.
#include "target/host/array_target_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#define LISTENER_RETRY_MS 20
#define LISTENER_RETRIES  100
#define PLUGIN_ANSWER_MS  5000 // for import, portal, serve
#define ADOPT_MS          2000 // for the hello of a tgtd that was left
#define MAY_SERVE_MS      20   // between two questions
#define ADDRESS_FAILED_MS 2000
#define ADDRESS_RETRY_MS  500

static void address_raise(struct pms_at *at);

// ---- Up, step by step ----

static void on_plugin_silent(uv_timer_t *t)
{
    pms_at_fail(t->data, -ETIMEDOUT);
}

void pms_at_on_address_time(uv_timer_t *t)
{
    address_raise(t->data);
}

static void serving(struct pms_at *at)
{
    at->steady_since_ns = pms_clock_boot_ns();
    pms_at_step_enter(at, STEP_SERVING, NULL, 0);
    pms_at_state_set(at, PMS_AT_SERVING, 0);
}

static void gate_open(struct pms_at *at)
{
    int err = pms_session_serve(at->server, true);

    if (err)
        pms_at_fail(at, err);
    else
        pms_at_step_enter(at, STEP_SERVE, on_plugin_silent, PLUGIN_ANSWER_MS);
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
        pms_at_step_enter(at, STEP_ADDRESS, pms_at_on_address_time, ADDRESS_FAILED_MS);
        pms_at_state_set(at, PMS_AT_STARTING, err);
        return;
    }
    if (at->open)
        serving(at);
    else
        gate_open(at);
}

static void on_address_lost(void *arg, int err)
{
    struct pms_at *at = arg;

    (void)err;
    at->addr_up = false;
    // Not at once again: if this node was stopped for long, another owns the array, and the news is under
    // way.
    if (at->step == STEP_SERVING) {
        pms_at_step_enter(at, STEP_ADDRESS, pms_at_on_address_time, ADDRESS_RETRY_MS);
        pms_at_state_set(at, PMS_AT_STARTING, -EADDRNOTAVAIL);
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
        pms_at_step_enter(at, STEP_ADDRESS, pms_at_on_address_time, MAY_SERVE_MS);
        return;
    }
    pms_at_step_enter(at, STEP_ADDRESS, NULL, 0);
    err = address_up(at);
    if (err)
        on_address_up(at, err);
}

static void on_serve_done(void *arg, bool on)
{
    struct pms_at *at = arg;

    if (at->step != STEP_SERVE || !on)
        return;
    at->open = true;
    if (at->addr_up) {
        serving(at);
        return;
    }
    pms_at_step_enter(at, STEP_ADDRESS, pms_at_on_address_time, ADDRESS_RETRY_MS); // lost or held meanwhile
}

static void on_portal_done(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_PORTAL)
        return;
    if (err) {
        pms_at_fail(at, err);
        return;
    }
    pms_at_step_enter(at, STEP_ADDRESS, NULL, 0);
    address_raise(at);
}

static void on_import_done(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_IMPORT)
        return;
    if (!err)
        err = pms_session_portal(at->server, &at->portal_conf.addr);
    if (err)
        pms_at_fail(at, err);
    else
        pms_at_step_enter(at, STEP_PORTAL, on_plugin_silent, PLUGIN_ANSWER_MS);
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

void pms_at_serve_begin(struct pms_at *at)
{
    int err;

    pms_tgtd_tenure(at->tgtd, at->tenure); // before it can have answered anybody
    err = import(at);
    if (err) {
        pms_at_fail(at, err);
        return;
    }
    pms_at_step_enter(at, STEP_IMPORT, on_plugin_silent, PLUGIN_ANSWER_MS);
    if (at->state == PMS_AT_STANDBY)
        pms_at_state_set(at, PMS_AT_STARTING, 0);
}

// That includes the LUN, so the plugin has said hello.
void pms_at_on_tgtd_ready(void *arg, int err)
{
    struct pms_at *at = arg;

    if (at->step != STEP_TGTD)
        return;
    if (!err && at->ring != RING_ATTACHED)
        err = PMS_EPROTO;
    if (err) {
        pms_at_fail(at, err);
    } else if (at->goal == GOAL_SERVE) {
        pms_at_serve_begin(at);
    } else {
        at->steady_since_ns = pms_clock_boot_ns();
        pms_at_step_enter(at, STEP_STANDBY, NULL, 0);
        pms_at_state_set(at, PMS_AT_STANDBY, 0);
    }
}

static void on_tgtd_exit(void *arg, int status)
{
    (void)status; // logged by tgtd.c
    pms_at_fail(arg, -EPIPE);
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

static void on_plugin_lost(void *arg, int err)
{
    pms_at_fail(arg, err ? err : -ECONNRESET);
}

static int tgtd_adopt(struct pms_at *at, const struct pms_tgtd_conf *conf)
{
    int err = pms_tgtd_adopt(at->loop, at->guard, conf, &at->left, on_tgtd_exit, at, &at->tgtd);

    at->left.pid = 0; // its listener has become the portal's, the rest tgtd's
    if (err) {
        pms_log(PMS_LOG_WARN, "array %s: the tgtd that an earlier pmsd left cannot be used: %s", at->name,
                pms_err_text(err));
        return err;
    }
    pms_log(PMS_LOG_INFO, "array %s: going on with the tgtd (pid %d) that an earlier pmsd left", at->name,
            (int)pms_tgtd_pid(at->tgtd));
    return 0;
}

static void tgtd_start(struct pms_at *at)
{
    struct pms_tgtd_conf conf = {.array_id = at->array_id,
                                 .name = at->name,
                                 .iqn = at->iqn,
                                 .listen_fd = pms_portal_listen_fd(at->portal),
                                 .plugin_sock = at->plugin_sock,
                                 .deaf_ms = at->deaf_ms};
    int err = 0;

    at->open = false;
    at->adopted = at->left.pid != 0 && tgtd_adopt(at, &conf) == 0;
    if (!at->adopted)
        err = pms_tgtd_start(at->loop, at->guard, at->paths, &conf, pms_at_on_tgtd_ready, on_tgtd_exit, at,
                             &at->tgtd);
    if (err) {
        at->failures++;
        pms_at_step_enter(at, STEP_DRAIN, pms_at_on_start_time, PAUSE_MS_MAX);
        pms_at_state_set(at, at->state, err);
        return;
    }
    at->starts += !at->adopted;
    pms_session_expect(at->server, pms_tgtd_pid(at->tgtd));
    pms_at_step_enter(at, STEP_TGTD, at->adopted ? on_plugin_silent : NULL, ADOPT_MS);
}

static int portal_open(struct pms_at *at)
{
    int fd = at->left.pid != 0 ? at->left.listen_fd : -1;
    int err;

    at->left.listen_fd = -1;
    if (at->portal && fd >= 0)
        close(fd);
    if (at->portal)
        return 0;
    err = pms_portal_open(at->loop, at->guard, &at->portal_conf, fd, on_address_lost, at, &at->portal);
    if (!err || fd < 0)
        return err;
    pms_at_left_kill(at); // of no use without its listener
    return -EADDRINUSE;   // until it has ended
}

static void listener_open(struct pms_at *at)
{
    int err = portal_open(at);

    if (err) {
        bool soon = err == -EADDRINUSE && ++at->failures < LISTENER_RETRIES;

        // A killed tgtd or guard of an earlier pmsd holds the address for a moment yet: no news.
        pms_at_step_enter(at, STEP_LISTENER, pms_at_on_start_time, soon ? LISTENER_RETRY_MS : PAUSE_MS_MAX);
        if (!soon)
            pms_at_state_set(at, PMS_AT_STARTING, err);
        return;
    }
    if (at->step == STEP_LISTENER)
        at->failures = 0;
    tgtd_start(at);
}

void pms_at_on_start_time(uv_timer_t *t)
{
    listener_open(t->data);
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

const struct pms_session_cbs pms_at_session_cbs = {.on_hello = on_hello,
                                                   .on_login = on_login,
                                                   .on_closed = on_closed,
                                                   .on_import_done = on_import_done,
                                                   .on_portal_done = on_portal_done,
                                                   .on_serve_done = on_serve_done,
                                                   .on_lost = on_plugin_lost};
