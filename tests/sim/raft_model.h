// SPDX-License-Identifier: GPL-2.0-or-later
// Raft as its users see it: one linearizable log, late and unknown outcomes, replay after a restart.
#ifndef PMS_TESTS_SIM_RAFT_MODEL_H
#define PMS_TESTS_SIM_RAFT_MODEL_H

#include "consensus/core/state.h"
#include "datapath/core/dp.h"
#include "tests/sim/world.h"

struct sim;
struct node;

struct raft_entry {
    char *command;
    char *snapshot; // of the state after it
    size_t snapshot_len;
};

struct raft {
    struct raft_entry *log; // committed
    size_t n, cap;
    size_t n_setup;          // entries from before time begins
    struct pms_state *state; // after all of them: what is true
    struct pms_dp_conf conf; // of the array, likewise
    int leader;              // -1: none
    uint64_t elect_at;
    unsigned proposals, changed; // transitions proposed, committed with success
    unsigned under_way;          // proposals that may still be committed
};

void raft_init(struct sim *sim); // founds the cluster and creates the array
void raft_deinit(struct sim *sim);
void raft_dp_init(const struct sim *sim, const struct node *n, struct pms_dp_init *out);
void raft_node_up(struct sim *sim, struct node *n);
void raft_node_down(struct sim *sim, struct node *n);
// The dp's PROPOSE.
void raft_propose(struct sim *sim, struct node *n, const struct pms_dp_action *a);
// A refresh that nobody asked for, as of the configuration that n applied last.
// As an operator would set it.
void raft_propose_cache(struct sim *sim, struct node *n, bool on);
void raft_propose_refresh(struct sim *sim, struct node *n);
bool raft_has_quorum(const struct sim *sim, int node); // node reaches a majority, itself included
// All running nodes have applied the whole log: their states must be equal, byte for byte.
void raft_check_equal(struct sim *sim);

#endif
