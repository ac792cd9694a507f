// SPDX-License-Identifier: GPL-2.0-or-later
// What must hold at every moment: acknowledged data is stable on every in-sync slot, and answers' epochs
// never go back.
#ifndef PMS_TESTS_SIM_AUDIT_H
#define PMS_TESTS_SIM_AUDIT_H

#include "datapath/core/dp.h"
#include "tests/sim/limits.h"
#include "tests/sim/world.h"

struct sim;
struct node;
struct attempt;

// An unclean takeover (R6): what the sectors held then, on each slot in sync. Which of these a sector begins with is
// open until somebody reads it: the new primary may be lost before it has settled them.
struct reset {
    uint64_t at;
    uint8_t slots; // mask
    uint64_t value[SIM_SLOTS][SIM_SECTORS];
    uint64_t seen[SIM_SECTORS]; // the one that it turned out to be
    bool is_seen[SIM_SECTORS];
};

struct audit {
    struct attempt *acked[SIM_SECTORS]; // the last write of each sector that was acknowledged as stable
    uint64_t epoch;                     // of the last answer
    int node;                           // that gave it, and in which of its lives
    uint32_t life;
    uint64_t answers;
    struct reset *resets;
    unsigned n_resets;
};

void audit_answer(struct sim *sim, struct node *n, struct attempt *a);
// The log has a new epoch: all that are in sync now must have what was acknowledged (I8).
void audit_transition(struct sim *sim, const struct pms_dp_conf *old);
void audit_deinit(struct sim *sim);
// For the history: a sector is another one after each unclean takeover, and begins with what it held then.
uint32_t audit_key(const struct sim *sim, uint32_t sector, uint64_t at);
uint64_t audit_seen(struct sim *sim, uint32_t sector, uint64_t at, uint64_t value);
// Zeros that were read there may be what the sector began with.
bool audit_zeros_initial(const struct sim *sim, uint32_t sector, uint64_t at);
// All bricks of the array are equal, and stable.
void audit_equal(struct sim *sim);

#endif
