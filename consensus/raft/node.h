// SPDX-License-Identifier: GPL-2.0-or-later
// This node's part in the Raft group: guarded libraft, its log in a folder, proposals from any node,
// barriers, linearizable reads, membership. Everything runs on the loop's thread. Every function here may be
// called from any callback here: work is queued and done from the loop, never inside libraft.
//
// Asynchronous calls: a nonzero return means that the callback never runs; zero, that it runs once, later.
#ifndef PMS_CONSENSUS_RAFT_NODE_H
#define PMS_CONSENSUS_RAFT_NODE_H

#include "base/limits.h"
#include "consensus/raft/net.h"
#include "consensus/raft/rpc.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define PMS_RAFT_COMMAND_MAX (1u << 20)  // bytes of one command
#define PMS_RAFT_WINDOW      64          // commands in flight at a time; more wait
#define PMS_RAFT_FREE_MIN    (64u << 20) // bytes free in the folder's file system, or we refuse to start

struct pms_raft;

enum pms_raft_role { PMS_RAFT_GONE, PMS_RAFT_SPARE, PMS_RAFT_STANDBY, PMS_RAFT_VOTER };

struct pms_raft_config {
    uint64_t id;         // this node; kept for ever with the folder, never used again for another one
    const char *dir;     // log and snapshots; made (0700) if missing; copied
    struct pms_net *net; // outlive struct pms_raft
    struct pms_rpc *rpc;
    unsigned election_ms;        // 0: PMS_RAFT_ELECTION_MS
    unsigned heartbeat_ms;       // 0: PMS_RAFT_HEARTBEAT_MS
    unsigned snapshot_threshold; // entries between snapshots, and kept behind one; 0: 1024
    void *data;                  // first argument of every callback below

    // The state machine. apply: the command is committed at index, the same on all nodes. *result is a heap
    // string for the proposer (any text without NUL), or left NULL. Called for replayed commands too. 0, or an
    // error: this node cannot go on from here, and stops (on_fatal); nothing more is applied.
    int (*apply)(void *data, const char *command, size_t len, uint64_t index, char **result);
    // *buf is heap memory (freed by us). 0 or -ENOMEM.
    int (*snapshot)(void *data, char **buf, size_t *len);
    // Replaces the whole state. 0, or PMS_ECORRUPT, PMS_EVERSION: then this node stops (on_fatal).
    int (*restore)(void *data, const char *buf, size_t len);

    // The known leader changed (0: none known). is_self comes true at the election already; proposals and
    // barriers wait by themselves for the leader's first own barrier (pms_raft_is_ready).
    void (*on_leader)(void *data, uint64_t leader, bool is_self);
    // This node is leader and its first barrier is applied, so all that was ever committed is applied here:
    // it may act as leader. May be NULL.
    void (*on_ready)(void *data);
    // Once after start: everything that was committed when we started is applied. Nothing applied before may
    // start anything. It never comes while there is no quorum.
    void (*on_caught_up)(void *data);
    // The log cannot be written, or state cannot be restored. The node has left the group; the process should
    // stop.
    void (*on_fatal)(void *data, const char *text);
};

// Refuses with -ENOSPC below PMS_RAFT_FREE_MIN; -EACCES, -EROFS ... if the folder is not usable; PMS_ECORRUPT
// if what lies there cannot be a log of ours. The reason is also logged. Nothing runs yet.
int pms_raft_open(uv_loop_t *loop, const struct pms_raft_config *config, struct pms_raft **raft);
// First start of a cluster's first node: this node is the only voter. PMS_EEXISTS if there is a log already.
int pms_raft_bootstrap(struct pms_raft *raft);
// Loads the log (restore and apply may be called inside) and takes part. A joining node starts with an empty
// folder and waits for a leader to add it. PMS_ECORRUPT: the folder is damaged; the node must come back under
// a new id.
int pms_raft_start(struct pms_raft *raft);
// Ends everything open (PMS_EUNKNOWN for what libraft already has, PMS_ESHUTDOWN for the rest), then cb and
// frees. Also after a failed start, and after on_fatal.
void pms_raft_close(struct pms_raft *raft, void (*cb)(void *data), void *data);

// status 0: applied at index, result is apply's text (borrowed, "" if none) also if another node is the
// leader. Else:
//   PMS_ENOQUORUM: no leader took it within timeout_ms; certainly not applied, and never will be
//   PMS_EUNKNOWN: it may be applied or not, now or later: read the state back after a barrier, or propose the
//   same
//                 {client, seq} again (the state machine knows duplicates). Never retried in here.
//   PMS_ESHUTDOWN, -EMSGSIZE (too long): not applied
typedef void (*pms_raft_propose_cb)(void *data, int status, uint64_t index, const char *result);
// command is copied. Waits for a leader, at whichever node, up to timeout_ms.
int pms_raft_propose(struct pms_raft *raft, const char *command, size_t len, unsigned timeout_ms,
                     pms_raft_propose_cb cb, void *data);

// Linearizable read, at any node: on status 0 everything that was committed before this call is applied here.
// PMS_ENOQUORUM after timeout_ms; PMS_ESHUTDOWN. Coalesced: many calls cost one barrier at the leader.
typedef void (*pms_raft_cb)(void *data, int status);
int pms_raft_read_barrier(struct pms_raft *raft, unsigned timeout_ms, pms_raft_cb cb, void *data);
// The same, but only where we are leader: PMS_ENOTLEADER at once elsewhere and as soon as we are not any
// more.
int pms_raft_barrier(struct pms_raft *raft, unsigned timeout_ms, pms_raft_cb cb, void *data);

// Brings a node to a role, at the leader only (PMS_ENOTLEADER). GONE removes it. Adding goes by way of SPARE;
// a new voter first catches up. One change at a time; each step checks what is so and is tried again until
// timeout_ms, so asking for what already is so succeeds. PMS_EFULL: PMS_VOTERS_MAX voters already.
// PMS_EREFUSED: the leader itself must be VOTER (transfer first). PMS_EUNKNOWN: timed out; look at
// pms_raft_status_get.
int pms_raft_member_set(struct pms_raft *raft, uint64_t id, enum pms_raft_role role, unsigned timeout_ms,
                        pms_raft_cb cb, void *data);

// Hands leadership to another voter (0: the best one). 0: the other leads, or we do not any more.
// PMS_ENOTLEADER, PMS_ENOTFOUND (no such voter), PMS_EBUSY (one is under way), -ETIMEDOUT.
int pms_raft_transfer(struct pms_raft *raft, uint64_t id, pms_raft_cb cb, void *data);

struct pms_raft_member {
    uint64_t id;
    enum pms_raft_role role;
    bool heard;     // at the leader: it answered within an election timeout
    uint64_t match; // at the leader: index up to which its log is known to be ours
};

struct pms_raft_status {
    uint64_t term;
    uint64_t leader; // 0: none known
    bool is_leader;
    bool is_ready;
    bool is_caught_up;
    uint64_t index_last;
    uint64_t index_commit;
    uint64_t index_applied;
    unsigned members_n; // latest configuration in the log, committed or not
    struct pms_raft_member members[2 * PMS_NODES_MAX];
};
void pms_raft_status_get(const struct pms_raft *raft, struct pms_raft_status *status);
// Leader, and the first barrier of this term is applied.
bool pms_raft_is_ready(const struct pms_raft *raft);
bool pms_raft_is_caught_up(const struct pms_raft *raft);
uint64_t pms_raft_leader(const struct pms_raft *raft);

#endif
