// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated world's course: thirty seconds of faults and proposals, then peace, in which everything must
// heal, agree, and still hold every command that was ever acknowledged.
#include "base/check.h"
#include "tests/raft/sim.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULTS_MS 30000
#define HEAL_MS   6000
#define SETTLE_MS 3000

// How often what happens, drawn from the seed: one in so many ms.
struct weather {
    unsigned crash;
    unsigned cut;
    unsigned pause;
    unsigned change;
    uint64_t heal_at; // of cuts
};

unsigned sim_random(struct sim *sim, unsigned n)
{
    uint64_t x = sim->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    sim->random = x;
    return (unsigned)(((x * 2685821657736338717ull) >> 33) % n);
}

void sim_story(const struct sim *sim, const char *fmt, ...)
{
    va_list ap;

    if (!sim->verbose)
        return;
    printf("[%6llu] ", (unsigned long long)sim->now);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

void sim_fail(const struct sim *sim, const char *fmt, ...)
{
    va_list ap;

    printf("seed %llu at %llu ms: ", (unsigned long long)sim->seed, (unsigned long long)sim->now);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    _exit(1);
}

void sim_check_applied(const struct sim_node *node, uint64_t position, uint64_t command)
{
    struct sim *sim = node->sim;

    if (position >= SIM_COMMANDS)
        sim_fail(sim, "node %u applied more than was proposed", node->number + 1);
    if (position >= sim->truth_n) {
        PMS_CHECK(position == sim->truth_n);
        sim->truth[sim->truth_n++] = command;
    } else if (sim->truth[position] != command) {
        sim_fail(sim, "node %u applied command %llu at position %llu, where others applied %llu (%s)",
                 node->number + 1, (unsigned long long)command, (unsigned long long)position,
                 (unsigned long long)sim->truth[position],
                 sim->acked[sim->truth[position]] ? "acknowledged" : "not acknowledged");
    }
}

// ---- proposals

struct proposal {
    struct raft_apply apply;
    struct sim *sim;
    uint64_t command;
};

static void on_applied(struct raft_apply *req, int status, void *result)
{
    struct proposal *p = req->data;
    struct sim *sim = p->sim;

    (void)result;
    if (status == 0) {
        bool found = false;

        for (uint64_t i = sim->truth_n; i-- > 0 && !found;)
            found = sim->truth[i] == p->command;
        if (!found)
            sim_fail(sim, "command %llu was acknowledged, but nobody applied it",
                     (unsigned long long)p->command);
        sim->acked[p->command] = true;
        sim->acked_n++;
    }
    free(p);
}

static void propose(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_random(sim, SIM_NODES)];
    struct raft_buffer buf = {.len = 16};
    struct proposal *p;

    if (!sim_node_leads(node))
        return;
    if (sim->command_next >= SIM_COMMANDS - 100)
        return;
    p = calloc(1, sizeof *p);
    buf.base = raft_calloc(1, buf.len);
    PMS_CHECK(p != NULL && buf.base != NULL);
    p->sim = sim;
    p->command = sim->command_next++;
    p->apply.data = p;
    memcpy(buf.base, &p->command, sizeof p->command);
    if (raft_apply(node->raft, &p->apply, &buf, 1, on_applied) != 0) {
        raft_free(buf.base);
        free(p);
    }
}

// ---- faults

static void isolate(struct sim *sim, const struct sim_node *node, bool on)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        if (i == node->number)
            continue;
        sim->net.cut[i][node->number] = on;
        sim->net.cut[node->number][i] = on;
    }
}

static void ambushes_step(struct sim *sim)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (node->isolate_at != 0 && node->isolate_at <= sim->now) {
            isolate(sim, node, true);
            node->isolate_at = 0;
        }
        if (node->isolate_until != 0 && node->isolate_until <= sim->now) {
            isolate(sim, node, false);
            node->isolate_until = 0;
        }
        if (node->isolated_crash_at != 0 && node->isolated_crash_at <= sim->now) {
            node->isolated_crash_at = 0;
            if (node->up) {
                sim_node_crash(node);
                node->up_at = sim->now + 20 + sim_random(sim, 600);
            }
        }
    }
}

static void restarts_step(struct sim *sim)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (node->up || node->up_at > sim->now)
            continue;
        if (node->up_at == 0)
            node->up_at = sim->now + 50;
        else
            sim_node_boot(node, false);
    }
}

static void weather_step(struct sim *sim, struct weather *w)
{
    if (sim_random(sim, w->crash) == 0) {
        struct sim_node *node = &sim->nodes[sim_random(sim, SIM_NODES)];

        if (node->up) {
            sim_node_crash(node);
            node->up_at = sim->now + 20 + sim_random(sim, 1500);
        }
    }
    restarts_step(sim);
    if (sim_random(sim, w->cut) == 0) {
        unsigned a = sim_random(sim, SIM_NODES), b = sim_random(sim, SIM_NODES);
        bool both = sim_random(sim, 2) != 0;

        if (a != b) {
            sim->net.cut[a][b] = true;
            sim->net.cut[b][a] = sim->net.cut[b][a] || both;
        }
        w->heal_at = sim->now + 50 + sim_random(sim, 2000);
    }
    if (w->heal_at != 0 && sim->now >= w->heal_at) {
        memset(sim->net.cut, 0, sizeof sim->net.cut);
        w->heal_at = 0;
    }
    if (w->change != 0 && sim_random(sim, w->change) == 0)
        sim_members_change(sim);
    if (sim_random(sim, w->pause) == 0)
        sim->nodes[sim_random(sim, SIM_NODES)].paused_until = sim->now + 50 + sim_random(sim, 700);
}

// ---- the course

static void step(struct sim *sim)
{
    sim->now++;
    for (unsigned i = 0; i < SIM_NODES; i++)
        sim_node_step(&sim->nodes[i]);
    for (unsigned i = 0; i < SIM_NODES; i++)
        sim_node_sends_finish(&sim->nodes[i]);
    while (sim_net_step(sim))
        ;
}

static void make_peace(struct sim *sim)
{
    sim->ambush = false;
    sim->disks_fail = false;
    memset(sim->net.cut, 0, sizeof sim->net.cut);
    sim->net.loss_permille = 0;
    for (unsigned i = 0; i < SIM_NODES; i++) {
        struct sim_node *node = &sim->nodes[i];

        node->isolate_at = node->isolate_until = node->isolated_crash_at = node->paused_until = 0;
        if (!node->up)
            sim_node_boot(node, false);
    }
}

static void check_end(struct sim *sim)
{
    static bool present[SIM_COMMANDS];

    for (unsigned i = 0; i < SIM_NODES; i++)
        if (sim_members_has(sim, &sim->nodes[i]) && sim->nodes[i].applied_n != sim->truth_n)
            sim_fail(sim, "node %u did not catch up: %llu of %llu commands", i + 1,
                     (unsigned long long)sim->nodes[i].applied_n, (unsigned long long)sim->truth_n);
    for (uint64_t i = 0; i < sim->truth_n; i++)
        present[sim->truth[i]] = true;
    for (uint64_t c = 1; c < sim->command_next; c++)
        if (sim->acked[c] && !present[c])
            sim_fail(sim, "command %llu was acknowledged and is lost", (unsigned long long)c);
}

static void world_init(struct sim *sim, uint64_t seed, bool guarded, bool verbose)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->random = seed * 0x9E3779B97F4A7C15ull + 1;
    sim->guarded = guarded;
    sim->verbose = verbose;
    sim->ambush = true;
    sim->disks_fail = seed % 2 == 0;
    sim->command_next = 1;
    for (unsigned i = 0; i < 10; i++)
        sim_random(sim, 2);
    sim_net_init(&sim->net);
    sim->net.delay_ms_max = 1 + sim_random(sim, 15);
    sim->net.loss_permille = sim_random(sim, 3) != 0 ? 0 : sim_random(sim, 100);
    for (unsigned i = 0; i < SIM_NODES; i++)
        sim_node_init(sim, i);
    for (unsigned i = 0; i < SIM_NODES; i++)
        sim_node_boot(&sim->nodes[i], true);
}

void sim_run(struct sim *sim, uint64_t seed, bool guarded, bool verbose)
{
    struct weather w;
    uint64_t acked_before;

    world_init(sim, seed, guarded, verbose);
    w = (struct weather){.crash = 300 + sim_random(sim, 2000),
                         .cut = 300 + sim_random(sim, 2000),
                         .pause = 500 + sim_random(sim, 3000),
                         .change = sim_random(sim, 3) == 0 ? 0 : 200 + sim_random(sim, 2000)};
    while (sim->now < FAULTS_MS) {
        step(sim);
        if (sim_random(sim, 3) == 0)
            propose(sim);
        ambushes_step(sim);
        weather_step(sim, &w);
    }
    make_peace(sim);
    acked_before = sim->acked_n;
    for (unsigned i = 0; i < HEAL_MS; i++) {
        step(sim);
        if (sim_random(sim, 20) == 0)
            propose(sim);
        for (unsigned n = 0; n < SIM_NODES; n++)
            if (!sim->nodes[n].up)
                sim_node_boot(&sim->nodes[n], false);
    }
    if (sim->acked_n < acked_before + 20)
        sim_fail(sim, "the faults are over, but nothing gets committed");
    for (unsigned i = 0; i < SETTLE_MS; i++)
        step(sim);
    check_end(sim);
    sim_story(sim, "all well: %llu commands acknowledged, %llu applied", (unsigned long long)sim->acked_n,
              (unsigned long long)sim->truth_n);
}
