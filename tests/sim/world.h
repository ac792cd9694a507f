// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual time, the queue of what will happen, and the one source of chance: everything replays from a seed.
#ifndef PMS_TESTS_SIM_WORLD_H
#define PMS_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct sim;

#define SIM_US 1000ull
#define SIM_MS 1000000ull
#define SIM_S  1000000000ull

/* Something that will happen. The owner embeds it. An event with node >= 0 goes to that node's process: it
 * waits while the process is stopped, and is dropped if the process is not the one (life) it was meant for.
 */
struct sim_event {
    uint64_t at;  // ns of true time
    uint64_t seq; // order among equals
    int node;     // -1: the world's own
    uint32_t life;
    void (*run)(struct sim *sim, struct sim_event *ev); // owns ev from here on
    void (*drop)(struct sim_event *ev);                 // gives ev up without running it
    struct pms_list link;                               // for whoever holds the event outside of the queue
};

struct world {
    uint64_t now; // ns of true time
    uint64_t seq;
    uint64_t random[4];
    struct sim_event **heap;
    size_t n, cap;
    uint64_t steps;
    uint64_t digest; // of the order of all events: equal runs have equal digests
};

void world_init(struct world *w, uint64_t seed);
void world_deinit(struct world *w); // drops what is still queued
void world_add(struct world *w, struct sim_event *ev, uint64_t delay_ns);
void world_add_at(struct world *w, struct sim_event *ev, uint64_t at_ns);
// Takes the next event out and moves the time to it; NULL: none left.
struct sim_event *world_next(struct world *w);
// Runs fn(sim, arg) once after delay, whatever becomes of any node.
void world_call(struct world *w, uint64_t delay_ns, void (*fn)(struct sim *sim, uint64_t arg), uint64_t arg);

uint64_t world_random(struct world *w);
uint64_t world_below(struct world *w, uint64_t n);               // [0, n), n > 0
uint64_t world_range(struct world *w, uint64_t lo, uint64_t hi); // [lo, hi]
bool world_chance(struct world *w, unsigned part, unsigned of);  // true in part of `of` cases
// [lo, hi], small values far more often than large ones.
uint64_t world_skewed(struct world *w, uint64_t lo, uint64_t hi);

#endif
