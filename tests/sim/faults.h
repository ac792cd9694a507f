// SPDX-License-Identifier: GPL-2.0-or-later
// What goes wrong, and when: drawn from the seed, more in some runs, less in others.
#ifndef PMS_TESTS_SIM_FAULTS_H
#define PMS_TESTS_SIM_FAULTS_H

#include "tests/sim/world.h"

struct sim;
struct node;

enum fault_kind {
    FAULT_KILL,     // a process
    FAULT_STOP,     // a process, by its operator: it leaves first
    FAULT_POWER,    // one host
    FAULT_BLACKOUT, // all hosts at once
    FAULT_PAUSE,    // SIGSTOP
    FAULT_ISOLATE,  // one host from all others
    FAULT_CUT,      // two hosts from each other
    FAULT_ONE_WAY,  // one direction between two hosts
    FAULT_DEAF,     // a host sends, but hears nobody; or the reverse
    FAULT_SLOW_DISK,
    FAULT_STALLED_DISK,
    FAULT_STUCK_WRITE,  // one write hangs, all else goes on
    FAULT_FAILED_FLUSH, // one flush fails, and what it should have made stable is lost
    FAULT_BROKEN_DISK,  // every request fails, until somebody repairs it and restarts the process
    FAULT_NEW_DISK,     // a stale slot gets a blank disk
    FAULT_SLOW_LINK,
    FAULT_HANDOVER, // an operator's wish
    FAULT_REFRESH,  // refreshes that nobody needs
    FAULT_SPLIT,    // the primary reaches only some copies, and then it is hit itself
    FAULT_CACHE, // the write cache is switched (only in runs with one); the last, as it draws nothing in the others
    FAULT_KINDS
};

struct faults {
    bool active;
    unsigned weight[FAULT_KINDS];
    unsigned weights;      // their sum
    uint64_t gap_ms;       // mean time between two faults
    unsigned to_primary;   // percent that hit the primary
    unsigned long_outages; // percent
    unsigned ambush;       // in 1,000 critical moments somebody concerned is hit at once
    unsigned count;
};

void faults_init(struct sim *sim);
// Critical moments: n sent a frame to peer; n proposed a transition; the log has a new epoch, proposed by n.
void faults_on_frame(struct sim *sim, struct node *n, struct node *peer, uint8_t type);
void faults_on_proposal(struct sim *sim, struct node *n);
void faults_on_transition(struct sim *sim, struct node *n);
// False if a brick that is named as in sync was replaced: to lose what the others hold as volatile would be a second
// loss.
bool faults_power_may_fail(const struct sim *sim, const struct node *n);
void faults_stop(struct sim *sim); // ends all: cuts heal, disks are fast, stopped and dead nodes run

#endif
