// SPDX-License-Identifier: GPL-2.0-or-later
// One array's iSCSI target on this node: up while this node serves the array, down at once when it may not
// any more.
//
// Ready: on the other nodes whose copy is in sync a tgtd is set up and waits (standby), so that a takeover need
// not start one. Up: the takeover is applied AND the data loop says that it serves that epoch (design, section 6). Down,
// address first: another primary is applied; commands were dropped (fence); or no lease for LEASE_LOST_NS,
// since this node may have been deposed without knowing it, and two nodes must never hold the address for
// long. A short loss of the lease, or a refresh, only lets commands wait.
//
// A tgtd that an earlier pmsd of this node left may be gone on with if nobody else was primary in between (the
// state's primary_since tells): its commands are as if they came now. Else it is ended: what it holds is old, and
// must not land after what others have written.
#include "cmd/pmsd/left.h"
#include "cmd/pmsd/local.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>

#define LEASE_LOST_NS 500000000ull
#define RETRY_NS      2000000000ull

// ---- What the target's host asks for ----

static void ring_attach(void *arg, const struct pms_session_fds *fds)
{
    struct pms_local *a = arg;
    int rv = pms_loop_ring_attach(a->app->data, a->info.id, fds->memfd, fds->sq_efd, fds->cq_efd);

    if (rv == 0)
        a->ring_in_loop = true;
    else
        pms_at_ring_attached(a->at, rv);
}

static void ring_release(void *arg)
{
    struct pms_local *a = arg;

    a->at_release_wanted = true;
    if (a->ring_in_loop)
        pms_loop_ring_detach(a->app->data, a->info.id);
    else
        pms_app_kick(a->app); // answered from the step, not from in here
}

static void ring_released_if_asked(struct pms_local *a)
{
    if (!a->at_release_wanted || a->ring_in_loop || a->at == NULL)
        return;
    a->at_release_wanted = false;
    pms_at_ring_released(a->at);
}

static void on_state(void *arg, enum pms_at_state state, int err)
{
    struct pms_local *a = arg;

    if (state != a->at_state || err != a->at_err)
        pms_log(err == 0 ? PMS_LOG_INFO : PMS_LOG_WARN, "array %s: target %s%s%s", a->info.name,
                pms_at_state_name(state), err != 0 ? ": " : "", err != 0 ? pms_err_text(err) : "");
    if (state == PMS_AT_SERVING && a->at_state != PMS_AT_SERVING && a->at_state != PMS_AT_HELD) {
        a->up_ns = pms_clock_boot_ns();
        a->up_index = pms_state_index(a->app->state);
        a->swept = false;
    }
    a->at_state = state;
    a->at_err = err;
    pms_app_kick(a->app);
}

static bool may_serve(void *arg)
{
    const struct pms_local *a = arg;

    return pms_local_is_serving(a) && a->dp.leased;
}

static const struct pms_at_cbs callbacks = {
    .may_serve = may_serve,
    .ring_attach = ring_attach,
    .ring_release = ring_release,
    .sessions_get = pms_local_sessions_get,
    .login = pms_local_on_login,
    .closed = pms_local_on_closed,
    .state = on_state,
};

// ---- Up and down ----

static void target_open(struct pms_local *a)
{
    const struct pms_array_info *info = &a->info;
    struct pms_at_conf conf = {.array_id = info->id,
                               .name = info->name,
                               .iqn = info->iqn,
                               .serial = info->serial,
                               .size_bytes = info->size_bytes,
                               .write_cache = info->write_cache,
                               .portal = {.prefix_len = info->portal_prefix}};
    int rv = pms_addr_parse(info->portal_addr, info->portal_port, &conf.portal.addr);

    memcpy(conf.cluster_uuid, a->app->node.cluster.b, sizeof(conf.cluster_uuid));
    if (rv == 0)
        rv = pms_at_open(a->app->loop, a->app->guard, &a->app->tgtd_paths, &conf, &callbacks, a, &a->at);
    if (rv != 0) {
        a->at = NULL;
        if (rv != a->at_err)
            pms_log(PMS_LOG_WARN, "array %s: the portal %s cannot be opened: %s", info->name,
                    info->portal_addr, pms_err_text(rv));
        a->at_err = rv;
        a->retry_ns = pms_clock_boot_ns() + RETRY_NS;
        return;
    }
    a->at_err = 0;
    a->at_state = PMS_AT_DOWN;
}

static void on_down(void *arg, int err)
{
    struct pms_local *a = arg;

    a->at_stopping = false;
    if (err != 0)
        pms_log(PMS_LOG_WARN, "array %s: target did not stop cleanly: %s", a->info.name, pms_err_text(err));
    pms_app_kick(a->app);
}

static void target_stop(struct pms_local *a, const char *why)
{
    pms_log(PMS_LOG_INFO, "array %s: target goes down: %s", a->info.name, why);
    a->at_wanted = a->at_held = a->at_standby = false;
    a->at_stopping = true;
}

static void target_down(struct pms_local *a, const char *why)
{
    if (!a->at_wanted && !a->at_standby)
        return;
    target_stop(a, why);
    pms_at_deactivate(a->at, on_down, a);
}

// Nobody could go on for us: what initiators are connected to waits for the next pmsd of this node.
static void target_leave(struct pms_local *a)
{
    target_stop(a, "it is left for the next pmsd");
    pms_at_leave(a->at, on_down, a);
}

static void target_up(struct pms_local *a)
{
    struct pms_guard_child left;
    bool found = pms_left_take(a->app, a->info.id, a->info.primary_since, &left);

    a->at_wanted = true;
    a->at_standby = false;
    a->tenure = a->info.primary_since;
    pms_log(PMS_LOG_INFO, "array %s: target goes up, epoch %llu", a->info.name,
            (unsigned long long)a->info.epoch);
    pms_at_activate(a->at, a->tenure, found ? &left : NULL);
}

// Could take over at once.
static bool may_stand_by(const struct pms_local *a)
{
    return a->app->caught_up && a->in_state && a->info.phase == PMS_ARRAY_READY && a->slot >= 0 &&
           a->info.slots[a->slot].in_sync && !pms_local_is_primary(a);
}

static void standby_step(struct pms_local *a)
{
    if (a->at_stopping || a->at_standby == may_stand_by(a))
        return;
    if (a->at_standby) {
        target_down(a, "this copy is not in sync");
    } else {
        a->at_standby = true;
        pms_at_standby(a->at);
    }
}

static bool lease_lost(const struct pms_local *a)
{
    return a->unleased_ns != 0 && pms_clock_boot_ns() - a->unleased_ns > LEASE_LOST_NS;
}

static void hold_if_unleased(struct pms_local *a)
{
    if (a->at_held == lease_lost(a))
        return;
    a->at_held = !a->at_held;
    a->holds += a->at_held ? 1 : 0;
    pms_log(PMS_LOG_INFO, "array %s: %s", a->info.name,
            a->at_held ? "no lease: the portal address goes off until there is one" : "leased again");
    pms_at_address_hold(a->at, a->at_held);
}

void pms_local_serve(struct pms_local *a)
{
    ring_released_if_asked(a);
    if (a->app->caught_up && !pms_local_is_primary(a))
        pms_left_drop(a->app, a->info.id);
    if (a->brick != PMS_BRICK_OPEN)
        return;
    if (a->at == NULL && pms_clock_boot_ns() >= a->retry_ns)
        target_open(a);
    if (a->at == NULL)
        return;
    pms_at_write_cache_set(a->at, a->info.write_cache);
    if (a->at_wanted && !pms_local_is_primary(a))
        target_down(a, "another node is primary");
    else if (a->at_wanted && a->tenure != a->info.primary_since)
        target_down(a, "another node was primary meanwhile");
    else if (a->fenced)
        target_down(a, "commands were dropped");
    else if (!pms_local_is_primary(a))
        standby_step(a);
    else if (!a->at_wanted && !a->at_stopping && pms_local_is_serving(a) && a->dp.leased)
        target_up(a);
    else if (a->at_wanted)
        hold_if_unleased(a);
}

bool pms_local_unserve(struct pms_local *a)
{
    bool last = pms_local_is_primary(a) && a->info.in_sync == 1u << a->slot;

    ring_released_if_asked(a);
    if (a->at == NULL)
        return true;
    if (a->at_wanted && a->app->quit_stage != 0 && last) {
        target_leave(a);
    } else {
        target_down(a, "the array is closed here");
    }
    if (a->at_stopping)
        return false;
    pms_at_close(a->at);
    a->at = NULL;
    return true;
}

void pms_local_lease_watch(struct pms_local *a, uint64_t now_ns)
{
    if (!a->at_wanted || !a->dp_known || a->dp.leased)
        a->unleased_ns = 0;
    else if (a->unleased_ns == 0)
        a->unleased_ns = now_ns;
}

// ---- From the data loop ----

void pms_local_serve_event(struct pms_local *a, const struct pms_loop_event *ev)
{
    switch (ev->type) {
    case PMS_LOOP_EV_RING_ATTACHED:
        if (ev->status != 0)
            a->ring_in_loop = false;
        if (a->at != NULL)
            pms_at_ring_attached(a->at, ev->status);
        break;
    case PMS_LOOP_EV_RING_DETACHED:
        a->ring_in_loop = false;
        a->fenced = false;
        ring_released_if_asked(a);
        break;
    case PMS_LOOP_EV_RING_BROKEN:
        pms_log(PMS_LOG_ERROR, "array %s: the target broke the rules of its ring and is ended: %s",
                a->info.name, pms_err_text(ev->status));
        a->fenced = true;
        break;
    case PMS_LOOP_EV_FENCE:
        a->fenced = a->ring_in_loop;
        break;
    default:
        break;
    }
}
