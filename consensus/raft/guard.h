// SPDX-License-Identifier: GPL-2.0-or-later
// A decorator over libraft's raft_io table that makes Debian's libraft 0.15.0 safe to use. It sits between
// struct raft and the real I/O (raft_uv, or the simulator's), and nothing in pms uses libraft without it.
//
// What it cures, by filtering what passes through the table (the numbers are commits of cowsql/raft, the
// maintained fork):
//   - a heartbeat's answer acknowledges entries never matched against this leader (66ed6afd, 446f8d21)
//   - a follower commits a tail that this leader never sent (000eacf2)
//   - a leader commits an old term's entry by counting copies, the Raft paper's figure 8 (524f735)
//   - AppendEntries older than the compacted log crashes the process
//   - elections begin while entries or a snapshot are still being written (634cb11, 4fbd3c0)
//   - a lone voter that restarts leads again in the same term, so entries it lost and entries it writes anew
//   look the
//     same to a standby that has them: it starts in a new term
//   - an uncommitted configuration is taken for a committed one at restart and in snapshots, and rolling it
//   back crashes
//     once the committed one is no longer in the log (fixed later by cowsql's configuration_last_snapshot)
//   - a leader that is the only voter sends entries that it may itself lose
//   - a node that is no voter yet does not vote, so two nodes of which one was just promoted may never elect
//   a leader
//   - a node votes twice in a term if it was to hand leadership to the second candidate
//   - a refused pre-vote does not tell the refuser's term, so a candidate with the longest log may stay
//   behind for ever
//   - a failed write crashes or confuses the library (0cac59c, a5cef60, 857e17e): here it is a clean stop
// What it cannot cure: a leader needs a barrier of its own term before it serves (29bb302); node.c does that.
#ifndef PMS_CONSENSUS_RAFT_GUARD_H
#define PMS_CONSENSUS_RAFT_GUARD_H

#include <raft.h>
#include <stdbool.h>

struct pms_guard;

struct pms_guard_config {
    // False passes everything through unchanged: only for tests that show the guard to be needed.
    bool enabled;
    void *data;
    // After every event that may have changed the state of struct raft (tick, message, finished write). Runs
    // inside libraft: it must not call raft_* functions that change anything. May be NULL.
    void (*on_step)(void *data);
    // A write of term, vote, entries or snapshot failed (`what` names it, raft_status is libraft's code).
    // From here on the guard is silent: no tick, message or completion reaches libraft again, nothing is
    // sent. The process is expected to say so and stop. Called once, inside libraft. May be NULL.
    void (*on_fatal)(void *data, const char *what, int raft_status);
};

// How often each filter had something to do.
struct pms_guard_stats {
    unsigned long commits_clamped;
    unsigned long acks_clamped;
    unsigned long acks_held;
    unsigned long stale_dropped;
    unsigned long ticks_skipped;
    unsigned long timeouts_dropped;
    unsigned long votes_refused;
};

// inner is the real I/O, already set up (it must not be used by anyone else; its `data` field is taken);
// raft is the instance that raft_init() will be called on with pms_guard_io(). Both outlive the guard.
// 0 or -ENOMEM.
int pms_guard_create(struct raft_io *inner, struct raft *raft, const struct pms_guard_config *config,
                     struct pms_guard **guard);
// Only after raft_close()'s callback.
void pms_guard_destroy(struct pms_guard *guard);

// What to give to raft_init(). Belongs to the guard.
struct raft_io *pms_guard_io(struct pms_guard *guard);

// Falls silent as after a failed write, without on_fatal: for an instance found to be of no use any more.
void pms_guard_silence(struct pms_guard *guard);

void pms_guard_stats_get(const struct pms_guard *guard, struct pms_guard_stats *stats);

#endif
