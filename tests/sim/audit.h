// SPDX-License-Identifier: GPL-2.0-or-later
// What must hold at every moment: acknowledged data is stable on every in-sync slot, and answers' epochs
// never go back.
#ifndef PMS_TESTS_SIM_AUDIT_H
#define PMS_TESTS_SIM_AUDIT_H

#include "tests/sim/limits.h"
#include "tests/sim/world.h"

struct sim;
struct node;
struct attempt;

struct audit {
    struct attempt *acked[SIM_SECTORS]; // the last acknowledged write of each sector
    uint64_t epoch;                     // of the last answer
    int node;                           // that gave it, and in which of its lives
    uint32_t life;
    uint64_t answers;
};

void audit_answer(struct sim *sim, struct node *n, struct attempt *a);
// The log has a new epoch: all that are in sync now must have what was acknowledged (I8).
void audit_transition(struct sim *sim);
// All bricks of the array are equal, and stable.
void audit_equal(struct sim *sim);

#endif
