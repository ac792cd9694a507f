// SPDX-License-Identifier: GPL-2.0-or-later
// One run: build a cluster from the seed, let things go wrong, stop that, see everything heal and agree.
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAL_MS_MAX    20000
#define EVENTS_MAX     1500000
#define ANSWERS_NEEDED 6 // of each client after the faults

void sim_violation(struct sim *sim, const char *fmt, ...)
{
    va_list ap;

    if (sim->failed)
        return;
    sim->failed = true;
    va_start(ap, fmt);
    vsnprintf(sim->verdict, sizeof sim->verdict, fmt, ap);
    va_end(ap);
    story(sim, "VIOLATION: %s", sim->verdict);
}

// ---- Building. ----

static void draw_topology(struct sim *sim)
{
    // Data nodes, slots, witness. The usual cluster is two and a witness; three copies can go wrong in more
    // ways.
    static const struct {
        uint8_t data, slots, witness;
    } kinds[] = {{2, 2, 1}, {2, 2, 1}, {2, 2, 1}, {2, 2, 1}, {3, 3, 0},
                 {3, 3, 0}, {3, 2, 0}, {3, 3, 1}, {2, 2, 0}};
    struct world *w = &sim->world;
    unsigned k = (unsigned)world_below(w, sizeof kinds / sizeof kinds[0]);
    unsigned first = (unsigned)world_below(w, kinds[k].data);

    sim->n_nodes = kinds[k].data + kinds[k].witness;
    sim->n_slots = kinds[k].slots;
    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *n = &sim->nodes[i];
        unsigned slot = (i + first) % kinds[k].data; // slot numbers and node numbers differ

        n->index = (int)i;
        n->witness = i >= kinds[k].data;
        n->slot = !n->witness && slot < sim->n_slots ? (int)slot : -1;
        snprintf(n->name, sizeof n->name, n->witness ? "w" : "n%u", i + 1);
        n->id = world_random(w) | 1;
        node_init(sim, n);
    }
}

// From a source of its own, so that the other seeds' stories stay what they were.
static void draw_cache(struct sim *sim)
{
    struct world own;
    struct plan *p = &sim->plan;

    world_init(&own, sim->seed ^ 0x77726974655f6361ull);
    p->write_cache = world_chance(&own, 1, 4);
    p->flush_ms = (unsigned)world_skewed(&own, 20, 1500);
    p->volatile_bytes = world_chance(&own, 1, 2) ? 1u << 30 : 512 * (1 + (uint32_t)world_below(&own, 64));
    p->fua_percent = world_chance(&own, 1, 2) ? 0 : (unsigned)world_below(&own, 50);
}

static void draw_zero(struct sim *sim)
{
    struct world own;

    world_init(&own, sim->seed ^ 0x7a65726f7a65726full);
    sim->plan.zero_percent = world_chance(&own, 1, 4) ? 5 + (unsigned)world_below(&own, 50) : 0;
}

static void draw_plan(struct sim *sim)
{
    struct world *w = &sim->world;
    struct plan *p = &sim->plan;
    unsigned regions = 4 + (unsigned)world_skewed(w, 0, 12);

    p->net_us = (unsigned)world_skewed(w, 30, 1500);
    p->net_stalls = world_chance(w, 1, 3) ? (unsigned)world_below(w, 60) : 0;
    p->garbles = world_chance(w, 1, 4) ? (unsigned)world_below(w, 30) : 0;
    p->disk_us = (unsigned)world_skewed(w, 30, 1500);
    p->flush_us = (unsigned)world_skewed(w, 50, 4000);
    if (world_chance(w, 1, 5)) // a disk that takes its time makes what is not yet stable matter
        p->flush_us = (unsigned)world_range(w, 5000, 40000);
    p->disk_tail = world_chance(w, 1, 2) ? (unsigned)world_below(w, 15) : 0;
    p->disk_stuck = world_chance(w, 1, 3) ? 1 + (unsigned)world_below(w, 20) : 0;
    p->apply_lag_us = (unsigned)world_skewed(w, 2000, 150000);
    p->raft_commit_us = (unsigned)world_skewed(w, 2000, 40000);
    p->raft_losses = world_chance(w, 1, 3) ? (unsigned)world_below(w, 200) : 0;
    p->think_us = (unsigned)world_skewed(w, 8000, 60000);
    p->write_percent = 30 + (unsigned)world_below(w, 40);
    p->sectors_max = world_chance(w, 1, 3) ? 32 : 1 + (unsigned)world_below(w, 4);
    p->abandons = world_chance(w, 1, 3) ? 0 : (unsigned)world_below(w, 101);
    p->move_ms = (unsigned)world_skewed(w, 100, 5000);
    p->clear_idle_ms =
        world_chance(w, 1, 3) ? pms_dp_timing_default.clear_idle : (unsigned)world_range(w, 50, 1500);
    // Few regions dirty at a time: only then is it seen that a dirty mark is missing.
    if (world_chance(w, 1, 3)) {
        regions = 16 + (unsigned)world_below(w, 17);
        p->clear_idle_ms = (unsigned)world_range(w, 20, 400);
        p->move_ms = (unsigned)world_range(w, 30, 400);
        p->think_us = (unsigned)world_range(w, 10000, 60000);
        p->abandons = 50 + (unsigned)world_below(w, 51);
        p->sectors_max = 1 + (unsigned)world_below(w, 3);
    }
    p->classic = world_chance(w, 1, 2);
    p->eject_slow_ms = pms_dp_timing_default.eject_slow;
    p->aside_again_ms = pms_dp_timing_default.aside_again;
    if (!p->classic) {
        p->eject_slow_ms = (unsigned)world_range(w, 300, 4000);
        p->aside_again_ms = (unsigned)world_range(w, 500, 5000);
        p->readmit_max_ms = world_chance(w, 1, 2) ? 0 : (unsigned)world_range(w, 100, 3000);
        p->wrong_doubts = world_chance(w, 1, 2) ? 0 : (unsigned)world_below(w, 60);
    }
    p->clocks_stop = world_chance(w, 1, 4);
    p->probe_reads = p->clocks_stop || world_chance(w, 1, 6);
    p->duration_ms = (unsigned)world_range(w, 3000, 15000);
    draw_cache(sim);
    draw_zero(sim);
    sim->region_bytes = 8192;
    sim->size_bytes = (uint64_t)regions * sim->region_bytes;
    sim->sectors = (uint32_t)(sim->size_bytes / PMS_SECTOR_BYTES);
    PMS_CHECK(sim->sectors <= SIM_SECTORS);
}

void sim_format_brick(struct sim *sim, struct node *n, uint64_t incarnation, bool all_dirty)
{
    static const uint8_t zeros[DISK_PAGE];
    uint8_t *area = calloc(1, PMS_BRICK_DATA_OFFSET);
    struct pms_dp_init init;

    PMS_CHECK(area != NULL);
    raft_dp_init(sim, n, &init);
    PMS_CHECK(pms_dp_brick_format(area, sim->cluster_uuid, &init, incarnation, all_dirty) == 0);
    for (uint32_t at = 0; at < PMS_BRICK_DATA_OFFSET; at += DISK_PAGE)
        if (memcmp(area + at, zeros, DISK_PAGE) != 0)
            disk_fill(&n->disk, at, area + at, DISK_PAGE);
    n->n_lineage = 0;
    node_incarnation_set(n, incarnation);
    free(area);
}

// An empty brick for each slot, as pmsd makes it before it reports the slot as zeroed.
static void format_bricks(struct sim *sim)
{
    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *n = &sim->nodes[i];

        if (n->slot < 0)
            continue;
        disk_init(&n->disk, n, PMS_BRICK_DATA_OFFSET + sim->size_bytes);
        sim_format_brick(sim, n, sim->incarnation[n->slot], false);
    }
}

static void build(struct sim *sim)
{
    struct world *w = &sim->world;

    for (int i = 0; i < 16; i++)
        sim->cluster_uuid[i] = (uint8_t)world_random(w);
    sim->array_id = world_random(w) | 1;
    for (int s = 0; s < SIM_SLOTS; s++)
        sim->incarnation[s] = world_random(w) | 1;
    draw_topology(sim);
    draw_plan(sim);
    net_init(sim);
    raft_init(sim);
    format_bricks(sim);
    faults_init(sim);
    story(sim, "seed %llu: %u nodes, %u slots, %u regions of %u bytes, faults every %llu ms for %u ms",
          (unsigned long long)sim->seed, sim->n_nodes, sim->n_slots,
          (unsigned)(sim->size_bytes / sim->region_bytes), sim->region_bytes,
          (unsigned long long)sim->faults.gap_ms, sim->plan.duration_ms);
    for (unsigned i = 0; i < sim->n_nodes; i++)
        node_start(sim, &sim->nodes[i]);
    client_init(sim);
}

// ---- Running. ----

static void run_until(struct sim *sim, uint64_t t)
{
    struct sim_event *ev;

    while (!sim->failed && sim->world.n > 0 && sim->world.heap[0]->at <= t) {
        ev = world_next(&sim->world);
        node_deliver(sim, ev);
        if (sim->world.steps > EVENTS_MAX)
            sim_violation(sim, "more than %d events: something spins", EVENTS_MAX);
    }
    if (!sim->failed)
        sim->world.now = t;
}

// Returns NULL, or what is still missing after limit_ms.
typedef const char *condition(struct sim *sim);

static bool run_until_true(struct sim *sim, condition *missing, unsigned limit_ms, const char *what)
{
    uint64_t end = sim->world.now + limit_ms * SIM_MS;
    const char *why = missing(sim);

    while (why != NULL && !sim->failed && sim->world.now < end) {
        run_until(sim, sim->world.now + 20 * SIM_MS);
        why = missing(sim);
    }
    if (why != NULL)
        sim_violation(sim, "%s: %u ms later: %s", what, limit_ms, why);
    return !sim->failed;
}

// Copies that were lost one after the other may have left a set without the survivor: then it was not the
// last good one.
static bool last_copy_is_lost(const struct sim *sim)
{
    return sim->survivor >= 0 && (sim->raft.conf.in_sync >> sim->survivor & 1) == 0;
}

static const char *missing_service(struct sim *sim)
{
    struct node *n = node_of_slot(sim, sim->raft.conf.primary);
    struct pms_dp_status s;

    if (last_copy_is_lost(sim))
        return NULL;
    if (!node_is_primary(n) || pms_dp_conf_get(n->dp)->epoch != sim->raft.conf.epoch)
        return "the primary has not applied the last epoch";
    pms_dp_status_get(n->dp, node_clock(sim, n), &s);
    if (!s.serving)
        return "the primary does not serve";
    if (!s.leased)
        return "the primary has no lease";
    if (s.settle_left > 0)
        return "regions are not settled";
    for (unsigned i = 0; i < sim->clients.n; i++)
        if (sim->clients.c[i].answered < ANSWERS_NEEDED)
            return "a client gets no answers";
    return NULL;
}

static const char *missing_redundancy(struct sim *sim)
{
    for (unsigned i = 0; i < sim->n_nodes; i++)
        if (!sim->nodes[i].up || sim->nodes[i].applied != sim->raft.n)
            return "a node has not caught up with the log";
    if (sim->raft.conf.in_sync != (1u << sim->n_slots) - 1)
        return "a slot is not in sync";
    return NULL;
}

// The primary flushes by itself, and the marks that tell what a power loss would mean go.
static const char *missing_stability(struct sim *sim)
{
    struct pms_dp_status s;

    for (unsigned i = 0; i < sim->n_nodes; i++) {
        if (sim->nodes[i].dp == NULL)
            continue;
        pms_dp_status_get(sim->nodes[i].dp, node_clock(sim, &sim->nodes[i]), &s);
        if (s.volatile_data)
            return "a brick still holds what is not stable";
    }
    return NULL;
}

static const char *missing_health(struct sim *sim)
{
    const char *why = missing_redundancy(sim);

    return why != NULL ? why : missing_service(sim);
}

static const char *missing_quiet(struct sim *sim)
{
    if (last_copy_is_lost(sim))
        return NULL;
    if (client_open(sim) > 0)
        return "a client's command is not answered";
    for (unsigned i = 0; i < sim->n_nodes; i++)
        if (!pms_list_empty(&sim->nodes[i].attempts))
            return "a node holds a command for ever";
    return NULL;
}

static const char *missing_final_read(struct sim *sim)
{
    return client_final_done(sim) || last_copy_is_lost(sim) ? NULL : "not all sectors can be read";
}

static void forget_answers(struct sim *sim)
{
    for (unsigned i = 0; i < sim->clients.n; i++)
        sim->clients.c[i].answered = 0;
}

static bool read_everything(struct sim *sim, const char *what)
{
    client_stop(sim);
    if (!run_until_true(sim, missing_quiet, HEAL_MS_MAX, what))
        return false;
    client_final_read(sim);
    return run_until_true(sim, missing_final_read, HEAL_MS_MAX, what);
}

static void heal(struct sim *sim)
{
    story(sim, "---- faults stop ----");
    faults_stop(sim);
    forget_answers(sim);
    if (!run_until_true(sim, missing_health, HEAL_MS_MAX, "faults stopped") ||
        !read_everything(sim, "all is well again"))
        return;
    // A request that a disk sat on may have cost a slot its place once more.
    run_until(sim, sim->world.now + 300 * SIM_MS);
    if (!run_until_true(sim, missing_stability, HEAL_MS_MAX, "all is quiet"))
        return;
    if (!run_until_true(sim, missing_redundancy, HEAL_MS_MAX, "all is quiet"))
        return;
    audit_equal(sim);
    raft_check_equal(sim);
}

// All copies but one are lost; with a majority the last one must serve all that was acknowledged (I9).
static void lose_all_but_one(struct sim *sim)
{
    struct world *w = &sim->world;
    int survivor = (int)world_below(w, sim->n_slots);

    story(sim, "---- all copies but that of %s are lost ----", node_of_slot(sim, survivor)->name);
    client_resume(sim);
    run_until(sim, w->now + world_range(w, 0, 400) * SIM_MS);
    for (unsigned i = 0; i < sim->n_nodes && !sim->failed; i++) {
        struct node *n = &sim->nodes[i];

        if (n->slot < 0 || n->slot == survivor)
            continue;
        node_crash(sim, n, world_chance(w, 1, 2));
        n->brick_lost = true;
        node_restart_later(sim, n, world_range(w, 10, 800) * SIM_MS);
        run_until(sim, w->now + world_below(w, 60) * SIM_MS);
    }
    if (sim->failed)
        return;
    sim->survivor = survivor;
    forget_answers(sim);
    if (run_until_true(sim, missing_service, HEAL_MS_MAX, "one copy is left"))
        read_everything(sim, "one copy is left");
}

static void destroy(struct sim *sim)
{
    world_deinit(&sim->world);
    for (unsigned i = 0; i < sim->n_nodes; i++)
        node_deinit(&sim->nodes[i]);
    net_deinit(sim);
    raft_deinit(sim);
    client_deinit(sim);
    audit_deinit(sim);
}

bool sim_run(struct sim *sim, uint64_t seed, bool verbose)
{
    *sim = (struct sim){.seed = seed, .verbose = verbose, .survivor = -1};
    world_init(&sim->world, seed);
    build(sim);
    run_until(sim, sim->world.now + sim->plan.duration_ms * SIM_MS);
    if (!sim->failed)
        heal(sim);
    if (!sim->failed && world_chance(&sim->world, 1, 2))
        lose_all_but_one(sim);
    if (!sim->failed)
        client_judge(sim);
    story(sim,
          "seed %llu: %s; %llu writes, %llu zeroings, %llu reads, %llu flushes, %llu resent; %u faults, %u "
          "transitions of "
          "%u proposed; "
          "%u unclean takeovers; %llu frames, %llu events, digest %016llx",
          (unsigned long long)seed, sim->failed ? sim->verdict : "all is well",
          (unsigned long long)sim->clients.writes, (unsigned long long)sim->clients.zeroings,
          (unsigned long long)sim->clients.reads, (unsigned long long)sim->clients.flushes,
          (unsigned long long)sim->clients.retries, sim->faults.count, sim->raft.changed, sim->raft.proposals,
          sim->audit.n_resets, (unsigned long long)sim->net.frames, (unsigned long long)sim->world.steps,
          (unsigned long long)sim->world.digest);
    destroy(sim);
    return !sim->failed;
}
