// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated cluster as a whole, and one run of it.
#ifndef PMS_TESTS_SIM_SIM_H
#define PMS_TESTS_SIM_SIM_H

#include "base/check.h"
#include "tests/sim/audit.h"
#include "tests/sim/check.h"
#include "tests/sim/client.h"
#include "tests/sim/disk.h"
#include "tests/sim/faults.h"
#include "tests/sim/limits.h"
#include "tests/sim/net.h"
#include "tests/sim/node.h"
#include "tests/sim/raft_model.h"
#include "tests/sim/story.h"
#include "tests/sim/world.h"

/* The character of a run, drawn from its seed. */
struct plan {
    unsigned net_us, net_stalls, garbles;  // mean delay; stalls in 10,000 and garbled in 20,000 messages
    unsigned disk_us, flush_us, disk_tail; // mean latencies; outliers in 1,000 requests
    unsigned apply_lag_us, raft_commit_us; // at most
    unsigned raft_losses;                  // in 1,000 proposals
    unsigned disk_stuck;                   // requests that take very long, in 10,000
    unsigned think_us, write_percent, sectors_max;
    unsigned abandons; // percent of unanswered writes that are never sent again: their initiator died
    unsigned move_ms;  // mean time until the hot spots move
    unsigned clear_idle_ms, eject_slow_ms, aside_again_ms, readmit_max_ms;
    unsigned wrong_doubts; // percent of the verdicts about links that are drawn
    bool classic;          // nodes are killed, cut and stopped; disks and links are no worse than slow
    bool write_cache;
    unsigned flush_ms, volatile_bytes, fua_percent;
    unsigned zero_percent; // of the writes
    bool probe_reads;
    bool clocks_stop;     // while a node is stopped, as in a paused virtual machine
    unsigned duration_ms; // of the time with faults
};

struct sim {
    uint64_t seed;
    bool verbose;
    struct world world;
    struct plan plan;

    uint8_t cluster_uuid[16];
    uint64_t array_id;
    uint64_t incarnation[SIM_SLOTS];
    uint64_t size_bytes;
    uint32_t region_bytes, sectors;
    unsigned n_nodes, n_slots;
    struct node nodes[SIM_NODES];

    struct net net;
    struct raft raft;
    struct clients clients;
    struct faults faults;
    struct audit audit;

    int survivor; // slot with the only brick left; -1: not that far yet
    bool failed;
    char verdict[600]; // of the first violation
};

/* Runs one seed from beginning to end; true: nothing was violated, else verdict tells what was. */
bool sim_run(struct sim *sim, uint64_t seed, bool verbose);
// Writes a new brick's metadata. all_dirty: nothing is known of its data.
void sim_format_brick(struct sim *sim, struct node *n, uint64_t incarnation, bool all_dirty);
// Notes the first violation; the run ends after the current event.
__attribute__((format(printf, 2, 3))) void sim_violation(struct sim *sim, const char *fmt, ...);

#endif
