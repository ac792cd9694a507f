// SPDX-License-Identifier: GPL-2.0-or-later
// Judgements over the agreed state, and no more than judgements: verdicts in words, where to place, whom to
// move.
//
// Pure functions of the state and of what one node sees now (a view). They decide nothing: the control loop
// proposes what follows from them as commands, and those are checked again when applied. Two nodes may see
// differently; that is harmless.
#ifndef PMS_CONSENSUS_CORE_POLICY_H
#define PMS_CONSENSUS_CORE_POLICY_H

#include "consensus/core/state.h"

// What the primary of an array reports of it.
struct pms_policy_array {
    uint64_t array_id;
    bool waiting;   // its I/O is held
    bool resyncing; // a slot is being filled
    unsigned percent;
    uint64_t eta_s; // 0: not known
};

// A brick that its node cannot use.
struct pms_policy_brick {
    uint64_t array_id;
    uint64_t node_id;
    const char *error; // why, for a person
    const char *path;
};

// What the caller's node sees now.
struct pms_policy_view {
    bool quorum;                   // the Raft group has a leader that this node hears
    uint64_t alive[PMS_NODES_MAX]; // ids of nodes that answer, the own one included
    unsigned n_alive;
    uint64_t
        strange[PMS_NODES_MAX]; // of those that do not answer: they run a version that cannot talk to ours
    unsigned n_strange;
    const struct pms_policy_array *arrays; // those there are reports of, in any order
    size_t n_arrays;
    const struct pms_policy_brick *bricks; // those that are known to be unusable, in any order
    size_t n_bricks;
};

enum pms_health {
    PMS_HEALTHY,
    PMS_RESYNCING,
    PMS_DEGRADED,
    PMS_WAITING,
    PMS_CREATING,
    PMS_DELETING,
    PMS_UNKNOWN, // no quorum, and its primary reports nothing: others may serve it
};

// "healthy", "resyncing", ... Static storage.
const char *pms_health_name(enum pms_health health);

// One array's state as an operator sees it. An in-sync slot on a node that does not answer counts as missing.
// Without quorum it is what the primary reports: a set that needs nobody else goes on.
enum pms_health pms_policy_array_health(const struct pms_array_info *array,
                                        const struct pms_policy_view *view);

enum pms_verdict_kind {
    PMS_VERDICT_HEALTHY,
    PMS_VERDICT_RESYNCING,
    PMS_VERDICT_DEGRADED,
    PMS_VERDICT_WAITING,
    PMS_VERDICT_NO_QUORUM,
    PMS_VERDICT_NO_CLUSTER,
};

#define PMS_VERDICT_SIZE 1024 // a path and two reasons fit

struct pms_verdict {
    enum pms_verdict_kind kind;
    char text[PMS_VERDICT_SIZE]; // "degraded: array vol0 has 1 of 2 copies: node b is down"
    char next[PMS_VERDICT_SIZE]; // what the operator should do; "" if nothing is due
};

// The first line of `cluster status`: the worst thing there is, and the next action.
void pms_policy_verdict(const struct pms_state *st, const struct pms_policy_view *view,
                        struct pms_verdict *out);

// Data nodes for the copies of a new array: those with the least data, that with the fewest primaries first
// (slot 0 is the first primary). 0 and node ids in out, or PMS_EUSAGE (copies out of range), PMS_EREFUSED
// with why.
int pms_policy_place(const struct pms_state *st, const struct pms_policy_view *view, unsigned copies,
                     uint64_t out[PMS_SLOTS_MAX], char *why, size_t why_len);

// The slot to which an array's primary should move: in sync, on an answering node other than avoid_id (0:
// none), the one with the fewest primaries. -1: there is none, with why.
int pms_policy_handover_target(const struct pms_state *st, const struct pms_policy_view *view,
                               uint64_t array_id, uint64_t avoid_id, char *why, size_t why_len);

struct pms_leave_step {
    uint64_t array_id;
    int to_slot;
};

// The next step of a node's leaving: 1: hand *step over first and ask again; 0: propose node_leave now;
// PMS_ENOTFOUND, PMS_EREFUSED, PMS_EBUSY with why. All that could stop a later step is looked at before the
// first one.
int pms_policy_leave_next(const struct pms_state *st, const struct pms_policy_view *view, const char *name,
                          struct pms_leave_step *step, char *why, size_t why_len);

struct pms_upgrade {
    unsigned level;    // the cluster's feature level
    unsigned possible; // what every node supports: cluster_upgrade may go so far
    unsigned newest;   // what at least one node supports
    unsigned n_behind; // nodes that support less than the newest
    uint64_t behind[PMS_NODES_MAX];
};

// How far the nodes are with the newer pms. All levels are 1 if there is no cluster.
void pms_policy_upgrade(const struct pms_state *st, struct pms_upgrade *out);

#endif
