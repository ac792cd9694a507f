// SPDX-License-Identifier: GPL-2.0-or-later
// What goes wrong, and when: drawn from the seed, more in some runs, less in others.
#include "tests/sim/faults.h"

#include "tests/sim/sim.h"

static uint64_t outage(struct sim *sim)
{
    struct world *w = &sim->world;

    if (world_below(w, 100) < sim->faults.long_outages)
        return world_range(w, 800, 4500) * SIM_MS;
    return world_skewed(w, 10, 900) * SIM_MS;
}

// Any node; often the primary.
static struct node *victim(struct sim *sim)
{
    struct world *w = &sim->world;

    if (world_below(w, 100) < sim->faults.to_primary)
        return node_of_slot(sim, sim->raft.conf.primary);
    return &sim->nodes[world_below(w, sim->n_nodes)];
}

static void kill_for_a_while(struct sim *sim, struct node *n, bool power)
{
    if (!n->up)
        return;
    node_crash(sim, n, power);
    node_restart_later(sim, n, outage(sim));
}

static void blackout(struct sim *sim)
{
    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *n = &sim->nodes[i];

        node_crash(sim, n, true);
        node_restart_later(sim, n, outage(sim));
    }
}

// ---- Cuts: argument = from, to. ----

static void on_cut_end(struct sim *sim, uint64_t arg)
{
    if (!sim->faults.active)
        return;
    story(sim, "%s reaches %s again", sim->nodes[arg >> 8].name, sim->nodes[arg & 0xff].name);
    net_heal(sim, (int)(arg >> 8), (int)(arg & 0xff));
}

static void cut(struct sim *sim, const struct node *from, const struct node *to, uint64_t for_ns)
{
    if (from == to)
        return;
    story(sim, "%s does not reach %s for %llu ms", from->name, to->name,
          (unsigned long long)(for_ns / SIM_MS));
    net_cut(sim, from->index, to->index);
    world_call(&sim->world, for_ns, on_cut_end, (uint64_t)from->index << 8 | (uint64_t)to->index);
}

static void cut_all(struct sim *sim, const struct node *n, bool out, bool in)
{
    uint64_t for_ns = outage(sim);

    for (unsigned i = 0; i < sim->n_nodes; i++) {
        if (out)
            cut(sim, n, &sim->nodes[i], for_ns);
        if (in)
            cut(sim, &sim->nodes[i], n, for_ns);
    }
}

static void cut_pair(struct sim *sim, const struct node *n, bool both)
{
    const struct node *peer = &sim->nodes[world_below(&sim->world, sim->n_nodes)];
    uint64_t for_ns = outage(sim);

    cut(sim, n, peer, for_ns);
    if (both)
        cut(sim, peer, n, for_ns);
}

// ---- Slowness. ----

static void on_disk_well(struct sim *sim, uint64_t index)
{
    sim->nodes[index].disk.slow = 1;
}

static void slow_disk(struct sim *sim, struct node *n)
{
    n->disk.slow = 5 + (unsigned)world_below(&sim->world, 100);
    story(sim, "%s has a disk slower by %u", n->name, n->disk.slow);
    world_call(&sim->world, outage(sim), on_disk_well, (uint64_t)n->index);
}

static void stall_disk(struct sim *sim, struct node *n)
{
    uint64_t for_ns = outage(sim);

    if (world_chance(&sim->world, 1, 6))
        for_ns += 4500 * SIM_MS; // long enough to be ejected
    n->disk.stalled_until = sim->world.now + for_ns;
    story(sim, "%s has a disk that hangs for %llu ms", n->name, (unsigned long long)(for_ns / SIM_MS));
}

static void repair_disk(struct sim *sim, struct node *n)
{
    n->disk.flush_fails = false;
    if (n->slot < 0 || !(n->disk.broken || n->disk_failed))
        return;
    story(sim, "%s has a repaired disk", n->name);
    n->disk.broken = false;
    node_crash(sim, n, false);
    node_restart_later(sim, n, world_range(&sim->world, 5, 300) * SIM_MS);
}

static void on_repair(struct sim *sim, uint64_t index)
{
    repair_disk(sim, &sim->nodes[index]);
}

static void break_disk(struct sim *sim, struct node *n)
{
    if (n->slot < 0 || n->disk.broken || !faults_power_may_fail(sim, n))
        return;
    story(sim, "%s has a disk that fails", n->name);
    n->disk.broken = true;
    world_call(&sim->world, outage(sim), on_repair, (uint64_t)n->index);
}

static void stick_write(struct sim *sim, struct node *n)
{
    n->disk.write_sticks = world_range(&sim->world, 200, 6000) * SIM_MS;
    story(sim, "%s has a disk whose next write hangs for %llu ms", n->name,
          (unsigned long long)(n->disk.write_sticks / SIM_MS));
}

static void fail_flush(struct sim *sim, struct node *n)
{
    if (n->slot < 0 || n->disk.broken || !faults_power_may_fail(sim, n))
        return;
    story(sim, "%s has a disk whose next flush fails", n->name);
    n->disk.flush_fails = true;
    world_call(&sim->world, outage(sim), on_repair, (uint64_t)n->index);
}

// Another in-sync slot than n's has the brick that the in-sync set means, and no proposal under way could make
// n's the only one: to lose that one too would be a second loss.
static bool has_another_copy(const struct sim *sim, const struct node *n)
{
    const struct pms_dp_conf *c = &sim->raft.conf;

    if (sim->raft.under_way > 0)
        return false;
    for (int i = 0; i < SIM_NODES; i++) {
        const struct node *o = &sim->nodes[i];

        if (o != n && o->slot >= 0 && !(sim->plan.write_cache && o->power_lost) &&
            (c->in_sync >> o->slot & 1) != 0 && !o->disk.broken && o->incarnation == c->incarnation[o->slot])
            return true;
    }
    return false;
}

bool faults_power_may_fail(const struct sim *sim, const struct node *n)
{
    const struct pms_dp_conf *c = &sim->raft.conf;

    for (unsigned i = 0; i < sim->n_nodes && sim->plan.write_cache; i++) {
        const struct node *o = &sim->nodes[i];

        if (o != n && o->slot >= 0 && (c->in_sync >> o->slot & 1) != 0 &&
            !node_brick_was(o, c->incarnation[o->slot]))
            return false;
    }
    return true;
}

static void replace_disk(struct sim *sim, struct node *n)
{
    if (n->slot < 0 || ((sim->raft.conf.in_sync >> n->slot & 1) != 0 && !has_another_copy(sim, n)))
        return;
    if (sim->plan.write_cache && sim->raft.under_way > 0)
        return; // it may be in sync soon, and the others may have lost what was volatile
    story(sim, "%s gets a blank disk", n->name);
    node_crash(sim, n, true);
    disk_replace(&n->disk);
    sim_format_brick(sim, n, world_random(&sim->world) | 1, true);
    node_restart_later(sim, n, outage(sim));
}

static void on_link_well(struct sim *sim, uint64_t arg)
{
    sim->net.slow[arg >> 8][arg & 0xff] = 1;
}

static void slow_link(struct sim *sim, const struct node *n)
{
    unsigned peer = (unsigned)world_below(&sim->world, sim->n_nodes);

    sim->net.slow[n->index][peer] = 5 + (unsigned)world_skewed(&sim->world, 0, 1500);
    story(sim, "%s > %s is slower by %u", n->name, sim->nodes[peer].name, sim->net.slow[n->index][peer]);
    world_call(&sim->world, outage(sim), on_link_well, (uint64_t)n->index << 8 | peer);
}

// ---- A split: copies differ, and then the primary is lost. ----

static void on_split_hit(struct sim *sim, uint64_t index)
{
    struct world *w = &sim->world;
    struct node *n = &sim->nodes[index];

    if (!sim->faults.active || !n->up)
        return;
    switch (world_below(w, 4)) {
    case 0:
        node_pause(sim, n, world_range(w, 300, 900) * SIM_MS);
        break;
    case 1:
        cut_all(sim, n, true, true);
        break;
    default:
        node_crash(sim, n, world_chance(w, 1, 2));
        node_restart_later(sim, n, world_skewed(w, 2, 900) * SIM_MS);
        break;
    }
}

static void on_split_cut(struct sim *sim, uint64_t arg)
{
    uint64_t for_ns = world_range(&sim->world, 200, 900) * SIM_MS;
    const struct node *a = &sim->nodes[arg >> 8], *b = &sim->nodes[arg & 0xff];

    if (!sim->faults.active)
        return;
    cut(sim, a, b, for_ns);
    cut(sim, b, a, for_ns);
}

static void split(struct sim *sim)
{
    struct world *w = &sim->world;
    struct node *p = node_of_slot(sim, sim->raft.conf.primary);
    unsigned far = (p->slot + 1 + (unsigned)world_below(w, sim->n_slots - 1)) % sim->n_slots;
    const struct node *y = node_of_slot(sim, (int)far);
    uint64_t for_ns = world_range(w, 10, 150) * SIM_MS;

    cut(sim, p, y, for_ns);
    if (world_chance(w, 1, 2))
        cut(sim, y, p, for_ns);
    world_call(w, world_range(w, 1, for_ns), on_split_hit, (uint64_t)p->index);
    for (unsigned s = 0; s < sim->n_slots; s++)
        if (s != far && (int)s != p->slot && world_chance(w, 1, 2))
            world_call(w, world_range(w, 50, 350) * SIM_MS, on_split_cut,
                       (uint64_t)y->index << 8 | (uint64_t)node_of_slot(sim, (int)s)->index);
}

// ---- Operators. ----

static void wish_handover(struct sim *sim)
{
    struct node *n = node_of_slot(sim, sim->raft.conf.primary);
    int slot = (int)world_below(&sim->world, sim->n_slots);
    int rc;

    if (n->paused || !node_is_primary(n) || slot == n->slot)
        return;
    rc = node_handover(sim, n, slot);
    story(sim, "an operator wants slot %d to be primary: %s", slot, rc == 0 ? "agreed" : "refused");
}

static void on_storm(struct sim *sim, uint64_t left)
{
    struct node *n = node_of_slot(sim, sim->raft.conf.primary);

    if (!sim->faults.active)
        return;
    if (!n->paused && node_is_primary(n))
        raft_propose_refresh(sim, n);
    if (left > 0)
        world_call(&sim->world, world_skewed(&sim->world, SIM_MS, 60 * SIM_MS), on_storm, left - 1);
}

static void switch_cache(struct sim *sim)
{
    struct node *n = &sim->nodes[world_below(&sim->world, sim->n_nodes)];

    if (sim->plan.write_cache && n->up)
        raft_propose_cache(sim, n, world_chance(&sim->world, 2, 3));
}

static void inflict(struct sim *sim, enum fault_kind kind)
{
    struct world *w = &sim->world;
    struct node *n = victim(sim);

    sim->faults.count++;
    switch (kind) {
    case FAULT_KILL:
        kill_for_a_while(sim, n, false);
        break;
    case FAULT_STOP:
        node_stop(sim, n, outage(sim));
        break;
    case FAULT_POWER:
        kill_for_a_while(sim, n, true);
        break;
    case FAULT_BLACKOUT:
        blackout(sim);
        break;
    case FAULT_PAUSE:
        node_pause(sim, n, outage(sim));
        break;
    case FAULT_ISOLATE:
        cut_all(sim, n, true, true);
        break;
    case FAULT_CUT:
        cut_pair(sim, n, true);
        break;
    case FAULT_ONE_WAY:
        cut_pair(sim, n, false);
        break;
    case FAULT_DEAF:
        cut_all(sim, n, world_chance(w, 1, 2), world_chance(w, 1, 2));
        break;
    case FAULT_SLOW_DISK:
        slow_disk(sim, n);
        break;
    case FAULT_STALLED_DISK:
        stall_disk(sim, n);
        break;
    case FAULT_STUCK_WRITE:
        stick_write(sim, n);
        break;
    case FAULT_FAILED_FLUSH:
        fail_flush(sim, n);
        break;
    case FAULT_BROKEN_DISK:
        break_disk(sim, n);
        break;
    case FAULT_NEW_DISK:
        replace_disk(sim, n);
        break;
    case FAULT_SLOW_LINK:
        slow_link(sim, n);
        break;
    case FAULT_HANDOVER:
        wish_handover(sim);
        break;
    case FAULT_REFRESH:
        on_storm(sim, world_below(w, 6));
        break;
    case FAULT_SPLIT:
        split(sim);
        break;
    case FAULT_CACHE:
        switch_cache(sim);
        break;
    case FAULT_KINDS:
        break;
    }
}

// ---- Ambushes. ----

// arg: node << 8 | dice for what happens to it.
static void on_ambush(struct sim *sim, uint64_t arg)
{
    struct node *n = &sim->nodes[arg >> 8];
    uint64_t dice = arg & 0xff;

    if (!sim->faults.active || !n->up)
        return;
    sim->faults.count++;
    if (dice < 200) {
        node_crash(sim, n, dice < 120);
        node_restart_later(sim, n, world_skewed(&sim->world, 2, 150) * SIM_MS);
    } else if (dice < 225) {
        node_pause(sim, n, world_range(&sim->world, 100, 900) * SIM_MS);
    } else {
        cut_all(sim, n, true, dice < 240);
    }
}

static void ambush(struct sim *sim, const struct node *n, uint64_t within_ns)
{
    world_call(&sim->world, world_skewed(&sim->world, 0, within_ns), on_ambush,
               (uint64_t)n->index << 8 | world_below(&sim->world, 256));
}

// The stopped ones come back just now.
static void on_wake(struct sim *sim, uint64_t unused)
{
    (void)unused;
    for (unsigned i = 0; i < sim->n_nodes && sim->faults.active; i++)
        node_resume(sim, &sim->nodes[i]);
}

void faults_on_frame(struct sim *sim, struct node *n, struct node *peer, uint8_t type)
{
    struct world *w = &sim->world;
    unsigned of;

    if (!sim->faults.active || sim->faults.ambush == 0)
        return;
    switch (type) {
    case PMS_FRAME_PROMISE:
    case PMS_FRAME_PROMISE_ACK:
    case PMS_FRAME_MAP_ACK:
        of = 1000;
        break;
    case PMS_FRAME_WRITE:
    case PMS_FRAME_ZERO:
    case PMS_FRAME_WRITE_ACK:
    case PMS_FRAME_CLEAR:
        of = 60000;
        break;
    default:
        return;
    }
    if (!world_chance(w, sim->faults.ambush, of))
        return;
    ambush(sim, world_chance(w, 1, 2) ? n : peer, 6 * SIM_MS);
    if (world_chance(w, 1, 2))
        world_call(w, world_skewed(w, 0, 30 * SIM_MS), on_wake, 0);
}

void faults_on_proposal(struct sim *sim, struct node *n)
{
    if (sim->faults.active && world_chance(&sim->world, sim->faults.ambush, 2000))
        ambush(sim, n, 20 * SIM_MS);
}

void faults_on_transition(struct sim *sim, struct node *n)
{
    struct world *w = &sim->world;

    // What a stopped primary had under way is answered just when others may have gone on without it.
    if (sim->faults.active && sim->plan.clocks_stop && world_chance(w, 1, 2))
        world_call(w, world_skewed(w, 0, 120 * SIM_MS), on_wake, 0);
    if (sim->faults.active && world_chance(w, sim->faults.ambush, 2000))
        ambush(sim, world_chance(w, 1, 2) ? n : &sim->nodes[world_below(w, sim->n_nodes)], 60 * SIM_MS);
}

static void on_fault(struct sim *sim, uint64_t unused)
{
    struct faults *f = &sim->faults;
    unsigned dice, kind = 0;

    if (!f->active)
        return;
    dice = (unsigned)world_below(&sim->world, f->weights);
    while (dice >= f->weight[kind])
        dice -= f->weight[kind++];
    inflict(sim, (enum fault_kind)kind);
    world_call(&sim->world, world_skewed(&sim->world, 1, 4 * f->gap_ms) * SIM_MS, on_fault, unused);
}

void faults_init(struct sim *sim)
{
    static const unsigned usual[FAULT_KINDS] = {
        [FAULT_KILL] = 8,      [FAULT_POWER] = 8,        [FAULT_BLACKOUT] = 2,     [FAULT_PAUSE] = 6,
        [FAULT_ISOLATE] = 8,   [FAULT_CUT] = 6,          [FAULT_ONE_WAY] = 6,      [FAULT_DEAF] = 4,
        [FAULT_SLOW_DISK] = 4, [FAULT_STALLED_DISK] = 4, [FAULT_SLOW_LINK] = 5,    [FAULT_HANDOVER] = 8,
        [FAULT_REFRESH] = 3,   [FAULT_BROKEN_DISK] = 3,  [FAULT_NEW_DISK] = 4,     [FAULT_SPLIT] = 12,
        [FAULT_STOP] = 5,      [FAULT_STUCK_WRITE] = 5,  [FAULT_FAILED_FLUSH] = 3,
    };
    static const unsigned gaps_ms[] = {50, 80, 120, 200, 300, 500, 1000};
    struct faults *f = &sim->faults;
    struct world *w = &sim->world;
    unsigned taste = (unsigned)world_below(w, 3);

    f->active = true;
    f->gap_ms = gaps_ms[world_below(w, 7)];
    f->to_primary = (unsigned)world_below(w, 90);
    f->ambush = world_chance(w, 2, 3) ? (unsigned)world_skewed(w, 10, 700) : 0;
    f->long_outages = (unsigned)world_below(w, 40);
    for (int k = 0; k < FAULT_CACHE; k++) {
        f->weight[k] = usual[k];
        if (taste == 1 && world_chance(w, 1, 2))
            f->weight[k] = 0; // only some kinds
        else if (taste == 2 && world_chance(w, 1, 4))
            f->weight[k] *= 5; // some kinds far more often
        if (sim->plan.classic && (k == FAULT_STOP || k == FAULT_STUCK_WRITE || k == FAULT_FAILED_FLUSH))
            f->weight[k] = 0;
        f->weights += f->weight[k];
    }
    if (sim->plan.clocks_stop) { // what such runs are for
        f->weight[FAULT_PAUSE] += 20;
        f->weights += 20;
    }
    if (sim->plan.write_cache) {
        f->weight[FAULT_CACHE] = 2;
        f->weight[FAULT_BLACKOUT] += 8;
        f->weights += 10;
    }
    if (f->weights == 0) {
        f->weight[FAULT_KILL] = 1;
        f->weights = 1;
    }
    world_call(w, world_range(w, 50, 700) * SIM_MS, on_fault, 0);
}

void faults_stop(struct sim *sim)
{
    sim->faults.active = false;
    for (unsigned a = 0; a < sim->n_nodes; a++)
        for (unsigned b = 0; b < sim->n_nodes; b++) {
            while (sim->net.cuts[a][b] > 0)
                net_heal(sim, (int)a, (int)b);
            sim->net.slow[a][b] = 1;
        }
    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *n = &sim->nodes[i];

        n->disk.slow = 1;
        n->disk.write_sticks = 0;
        if (n->disk.stalled_until > sim->world.now)
            n->disk.stalled_until = sim->world.now;
        node_resume(sim, n);
        repair_disk(sim, n);
        node_restart_later(sim, n, world_below(&sim->world, 50 * SIM_MS));
    }
}
