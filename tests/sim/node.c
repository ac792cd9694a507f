// SPDX-License-Identifier: GPL-2.0-or-later
// One host: clock, brick, applied cluster state, and the process that drives the dp as pmsd does.
#include "tests/sim/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/sim/sim.h"

#define STOP_MAX (2500 * SIM_MS)

void node_init(struct sim *sim, struct node *n)
{
    struct world *w = &sim->world;

    pms_list_init(&n->parked);
    pms_list_init(&n->attempts);
    n->barrier = SIZE_MAX;
    n->clock_offset = world_below(w, 1000 * SIM_S);
    n->clock_ppm = (int64_t)world_range(w, 0, 10000) - 5000;
}

void node_deinit(struct node *n)
{
    struct pms_list *l;

    while ((l = pms_list_pop(&n->parked)) != NULL) {
        struct sim_event *ev = pms_list_entry(l, struct sim_event, link);

        ev->drop(ev);
    }
    if (n->dp != NULL)
        pms_dp_destroy(n->dp);
    pms_state_destroy(n->state);
    disk_deinit(&n->disk);
}

uint64_t node_clock(const struct sim *sim, const struct node *n)
{
    uint64_t t = sim->world.now;

    return n->clock_offset + t + (uint64_t)((int64_t)(t / 1000) * n->clock_ppm / 1000);
}

struct node *node_by_id(struct sim *sim, uint64_t id)
{
    for (unsigned i = 0; i < sim->n_nodes; i++)
        if (sim->nodes[i].id == id)
            return &sim->nodes[i];
    return NULL;
}

struct node *node_of_slot(struct sim *sim, int slot)
{
    for (unsigned i = 0; i < sim->n_nodes; i++)
        if (sim->nodes[i].slot == slot)
            return &sim->nodes[i];
    return NULL;
}

void node_deliver(struct sim *sim, struct sim_event *ev)
{
    struct node *n;

    if (ev->node < 0) {
        ev->run(sim, ev);
        return;
    }
    n = &sim->nodes[ev->node];
    if (!n->up || n->life != ev->life) {
        ev->drop(ev);
    } else if (n->paused) {
        pms_list_add_tail(&n->parked, &ev->link);
    } else {
        ev->run(sim, ev);
    }
}

void node_incarnation_set(struct node *n, uint64_t incarnation)
{
    n->incarnation = incarnation;
    if (node_brick_was(n, incarnation))
        return;
    PMS_CHECK(n->n_lineage < SIM_LINEAGE);
    n->lineage[n->n_lineage++] = incarnation;
}

bool node_brick_was(const struct node *n, uint64_t incarnation)
{
    for (unsigned i = 0; i < n->n_lineage; i++)
        if (n->lineage[i] == incarnation)
            return true;
    return false;
}

bool node_is_primary(const struct node *n)
{
    const struct pms_dp_conf *c = n->up && n->dp != NULL ? pms_dp_conf_get(n->dp) : NULL;

    return c != NULL && c->epoch > 0 && c->primary == n->slot;
}

// ---- The driver: what pmsd's data loop does. ----

static void note_status(struct sim *sim, struct node *n)
{
    static const char *const roles[] = {"replica", "candidate", "settling", "serving", "drained"};
    struct pms_dp_status s;

    if (!sim->verbose)
        return;
    pms_dp_status_get(n->dp, node_clock(sim, n), &s);
    if (s.role == n->status.role && s.epoch == n->status.epoch && s.serving == n->status.serving &&
        s.leased == n->status.leased && s.resyncing == n->status.resyncing)
        return;
    n->status = s;
    story(sim, "%s is %s of e%llu, floor %llu%s%s%s", n->name, roles[s.role], (unsigned long long)s.epoch,
          (unsigned long long)s.floor, s.serving ? ", serving" : "", s.leased ? ", leased" : "",
          s.resyncing != 0 ? ", resyncing" : "");
}

static void do_action(struct sim *sim, struct node *n, const struct pms_dp_action *a)
{
    static const char *const disk_names[] = {"read", "write", "flush"};
    const struct node *peer;

    switch (a->type) {
    case PMS_DP_ACT_SEND:
        net_send(sim, n, a);
        break;
    case PMS_DP_ACT_DISK:
        story(sim, "%s disk %s %llu+%u (#%llu)", n->name, disk_names[a->disk.type],
              (unsigned long long)a->disk.offset, a->disk.length, (unsigned long long)a->disk.tag);
        disk_submit(sim, &n->disk, a);
        break;
    case PMS_DP_ACT_COMPLETE:
        client_complete(sim, n, a->op.op, a->op.status);
        break;
    case PMS_DP_ACT_DROP:
        client_dropped(sim, n, a->op.op);
        break;
    case PMS_DP_ACT_PROPOSE:
        raft_propose(sim, n, a);
        break;
    case PMS_DP_ACT_LINK_RESET:
        peer = node_by_id(sim, a->node);
        story(sim, "%s resets its link to %s", n->name, peer != NULL ? peer->name : "?");
        net_reset(sim, n, a->node);
        break;
    case PMS_DP_ACT_STATUS:
        note_status(sim, n);
        break;
    default:
        sim_violation(sim, "%s: unknown action %d", n->name, (int)a->type);
    }
}

static void act(struct sim *sim, struct node *n)
{
    struct pms_dp_action a;
    unsigned count = 0;

    while (n->dp != NULL && pms_dp_action_next(n->dp, &a)) {
        do_action(sim, n, &a);
        if (++count > 20000) {
            sim_violation(sim, "%s: endless actions after one event", n->name);
            return;
        }
    }
    if (n->dp != NULL)
        pms_dp_check(n->dp);
}

void node_conf(struct sim *sim, struct node *n, const struct pms_dp_conf *conf, bool live)
{
    if (n->dp == NULL)
        return;
    pms_dp_conf(n->dp, node_clock(sim, n), conf, live);
    act(sim, n);
    note_status(sim, n);
}

void node_link_up(struct sim *sim, struct node *n, struct node *peer)
{
    story(sim, "%s: own link to %s is up", n->name, peer->name);
    pms_dp_link_up(n->dp, node_clock(sim, n), peer->id);
    act(sim, n);
}

void node_link_down(struct sim *sim, struct node *n, struct node *peer)
{
    pms_dp_link_down(n->dp, node_clock(sim, n), peer->id);
    act(sim, n);
}

int node_frame(struct sim *sim, struct node *n, struct node *from, uint64_t conn, const struct pms_frame *f,
               struct pms_iobuf *buf)
{
    int rc = pms_dp_frame(n->dp, node_clock(sim, n), from->id, conn, f, buf);

    act(sim, n);
    return rc;
}

void node_disk_done(struct sim *sim, struct node *n, uint64_t tag, int status)
{
    if (n->dp == NULL)
        return;
    story(sim, "%s disk done #%llu%s", n->name, (unsigned long long)tag, status != 0 ? ", failed" : "");
    n->disk_failed |= status != 0;
    pms_dp_disk_done(n->dp, node_clock(sim, n), tag, status);
    act(sim, n);
}

void node_submit(struct sim *sim, struct node *n, struct pms_dp_op *op)
{
    pms_dp_submit(n->dp, node_clock(sim, n), op);
    act(sim, n);
}

int node_handover(struct sim *sim, struct node *n, int slot)
{
    int rc = pms_dp_handover(n->dp, node_clock(sim, n), (uint8_t)slot);

    act(sim, n);
    return rc;
}

static void drop_tick(struct sim_event *ev)
{
    free(ev);
}

static void on_tick(struct sim *sim, struct sim_event *ev)
{
    struct node *n = &sim->nodes[ev->node];

    if (n->dp == NULL) {
        free(ev);
        return;
    }
    if (sim->world.now >= n->doubt_at) {
        uint8_t doubt = net_doubt(sim, n);

        n->doubt_at = sim->world.now + 200 * SIM_MS;
        if (sim->faults.active && world_below(&sim->world, 100) < sim->plan.wrong_doubts)
            doubt = (uint8_t)world_below(&sim->world, 1u << sim->n_slots) & (uint8_t) ~(1u << n->slot);
        pms_dp_doubt(n->dp, node_clock(sim, n), doubt);
    } else {
        pms_dp_tick(n->dp, node_clock(sim, n));
    }
    act(sim, n);
    note_status(sim, n);
    world_add(&sim->world, ev, 5 * SIM_MS + world_below(&sim->world, 5 * SIM_MS));
}

// ---- Life and death of the process. ----

// The brick's metadata in one piece; the buffer is kept and its touched pages are cleared for the next use.
static const uint8_t *load_area(const struct disk *d)
{
    static uint8_t area[PMS_BRICK_DATA_OFFSET];
    static bool touched[PMS_BRICK_DATA_OFFSET / DISK_PAGE];

    for (size_t i = 0; i < PMS_BRICK_DATA_OFFSET / DISK_PAGE; i++) {
        if (d->now[i] != NULL)
            memcpy(area + i * DISK_PAGE, d->now[i], DISK_PAGE);
        else if (touched[i])
            memset(area + i * DISK_PAGE, 0, DISK_PAGE);
        touched[i] = d->now[i] != NULL;
    }
    return area;
}

static void start_dp(struct sim *sim, struct node *n)
{
    struct pms_dp_init init;
    struct sim_event *tick;
    int rc;

    disk_sync(&n->disk);
    raft_dp_init(sim, n, &init);
    init.fresh_incarnation = world_random(&sim->world) | 1;
    init.boot_id = (uint64_t)(n->index + 1) << 32 | (n->boots + 1);
    rc = pms_dp_create(&init, sim->cluster_uuid, load_area(&n->disk), node_clock(sim, n), &n->dp);
    if (rc != 0) {
        n->dp = NULL;
        sim_violation(sim, "%s does not start from its own brick: %s", n->name, pms_err_name(rc));
        return;
    }
    pms_dp_status_get(n->dp, node_clock(sim, n), &n->status);
    if (n->status.incarnation != n->incarnation)
        story(sim, "%s is unclean", n->name);
    node_incarnation_set(n, n->status.incarnation);
    n->power_lost = false;
    n->status = (struct pms_dp_status){.epoch = UINT64_MAX};
    net_node_up(sim, n);
    tick = calloc(1, sizeof *tick);
    PMS_CHECK(tick != NULL);
    *tick = (struct sim_event){.node = n->index, .life = n->life, .run = on_tick, .drop = drop_tick};
    world_add(&sim->world, tick, world_below(&sim->world, 10 * SIM_MS));
}

void node_start(struct sim *sim, struct node *n)
{
    if (n->up)
        return;
    n->up = true;
    n->paused = false;
    n->disk_failed = false;
    n->life++;
    story(sim, "%s starts%s", n->name, n->slot >= 0 && n->brick_lost ? " without its brick" : "");
    if (n->slot >= 0 && !n->brick_lost)
        start_dp(sim, n);
    raft_node_up(sim, n);
}

static void on_restart(struct sim *sim, uint64_t index)
{
    struct node *n = &sim->nodes[index];

    // The old process's I/O still holds the brick's lock; a broken disk cannot be opened.
    if (!n->up && n->slot >= 0 && (disk_busy(&n->disk) || n->disk.broken)) {
        world_call(&sim->world, 3 * SIM_MS, on_restart, index);
        return;
    }
    node_start(sim, n);
}

void node_restart_later(struct sim *sim, struct node *n, uint64_t delay_ns)
{
    world_call(&sim->world, delay_ns, on_restart, (uint64_t)n->index);
}

void node_crash(struct sim *sim, struct node *n, bool power)
{
    struct pms_list *l;

    power = power && faults_power_may_fail(sim, n);
    if (n->up) {
        story(sim, "%s %s", n->name, power ? "loses power" : "is killed");
        n->up = false;
        n->paused = false;
        n->stop_by = 0;
        n->clock_stopped_at = 0;
        n->life++;
        while ((l = pms_list_pop(&n->parked)) != NULL) {
            struct sim_event *ev = pms_list_entry(l, struct sim_event, link);

            ev->drop(ev);
        }
        net_node_down(sim, n, power);
        client_node_down(sim, n);
        if (n->dp != NULL) {
            pms_dp_destroy(n->dp);
            n->dp = NULL;
        }
        raft_node_down(sim, n);
    }
    if (n->slot < 0)
        return;
    if (power) {
        disk_power_loss(sim, &n->disk);
        n->power_lost = true;
        n->boots++;
        n->clock_offset = world_below(&sim->world, SIM_S); // a rebooted host counts from zero
    } else {
        disk_abandon(sim, &n->disk);
    }
}

// Nobody needs it: it is no member of the set, or the only one.
static bool is_left(const struct node *n)
{
    const struct pms_dp_conf *c = n->dp != NULL ? pms_dp_conf_get(n->dp) : NULL;

    return c == NULL || c->epoch == 0 || (c->in_sync >> n->slot & 1) == 0 || c->in_sync == 1u << n->slot;
}

static void on_stop(struct sim *sim, uint64_t arg)
{
    struct node *n = &sim->nodes[arg & 0xff];

    if (!n->up || n->life != arg >> 8 || n->stop_by == 0)
        return;
    if (n->paused || (!is_left(n) && sim->world.now < n->stop_by)) {
        world_call(&sim->world, 10 * SIM_MS, on_stop, arg);
        return;
    }
    story(sim, "%s has left", n->name);
    node_crash(sim, n, false);
    node_restart_later(sim, n, n->stopped_for);
}

void node_stop(struct sim *sim, struct node *n, uint64_t after_ns)
{
    if (!n->up || n->paused || n->stop_by != 0)
        return;
    story(sim, "%s is asked to stop", n->name);
    n->stop_by = sim->world.now + STOP_MAX;
    n->stopped_for = after_ns;
    if (n->dp != NULL) {
        pms_dp_leave(n->dp, node_clock(sim, n));
        act(sim, n);
    }
    on_stop(sim, (uint64_t)n->life << 8 | (uint64_t)n->index);
}

static void on_pause_end(struct sim *sim, uint64_t index)
{
    struct node *n = &sim->nodes[index];

    if (n->paused && n->paused_until <= sim->world.now)
        node_resume(sim, n);
}

void node_pause(struct sim *sim, struct node *n, uint64_t for_ns)
{
    if (!n->up || n->paused)
        return;
    if (sim->plan.clocks_stop && world_chance(&sim->world, 2, 3))
        n->clock_stopped_at = node_clock(sim, n);
    story(sim, "%s is stopped for %llu ms%s", n->name, (unsigned long long)(for_ns / SIM_MS),
          n->clock_stopped_at != 0 ? " with its clock" : "");
    n->paused = true;
    n->paused_until = sim->world.now + for_ns;
    world_call(&sim->world, for_ns, on_pause_end, (uint64_t)n->index);
}

void node_resume(struct sim *sim, struct node *n)
{
    struct pms_list *l;

    if (!n->up || !n->paused)
        return;
    story(sim, "%s goes on", n->name);
    if (n->clock_stopped_at != 0)
        n->clock_offset -= node_clock(sim, n) - n->clock_stopped_at;
    n->clock_stopped_at = 0;
    n->paused = false;
    while ((l = pms_list_pop(&n->parked)) != NULL)
        node_deliver(sim, pms_list_entry(l, struct sim_event, link));
}
