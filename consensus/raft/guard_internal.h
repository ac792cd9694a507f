// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: struct pms_guard, shared by guard.c (life, disk) and guard_messages.c (network,
// time).
//
// Pieces of knowledge that do the work:
//   - verified: how far our log is known to be the current leader's (follower). Raised when libraft accepted
//   entries
//     or a heartbeat of this term, and never below what is committed: every leader has that (Raft 5.4).
//     Nothing beyond it is acknowledged.
//   - stored_term: the term of our last durable entry (leader). Until it is the current term,
//   acknowledgements of
//     followers are held, so libraft cannot commit an older term's entry by counting copies (Raft 5.4.2).
//   - conf (guard_conf.h): the last committed configuration, which libraft looks for in the log only.
//   - appends, installing: writes under way; meanwhile no election starts here.
#ifndef PMS_CONSENSUS_RAFT_GUARD_INTERNAL_H
#define PMS_CONSENSUS_RAFT_GUARD_INTERNAL_H

#include "base/list.h"
#include "consensus/raft/guard.h"
#include "consensus/raft/guard_conf.h"
#include <stddef.h>

// The newest success answer of one follower, held by a leader that has nothing of its own term on disk yet.
struct pms_guard_ack {
    raft_id id;
    char *address;
    struct raft_append_entries_result result;
};

// A message that libraft believes to be on its way, after a fatal error.
struct pms_guard_send_held {
    struct pms_list list;
    struct raft_io_send *req;
};

struct pms_guard {
    struct raft_io io;     // what libraft sees; io.data belongs to libraft, io.impl is this guard
    struct raft_io *inner; // inner->data is this guard
    struct raft *raft;
    struct pms_guard_config config;
    struct pms_guard_stats stats;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_io_close_cb close_cb;

    unsigned appends; // in flight
    bool installing;  // a snapshot that replaces the log is in flight
    raft_term stored_term;

    raft_term verified_term; // the term of the leader that verified is about
    raft_index verified;
    raft_term
        candidate_term; // the same pair as libraft's acceptance of the message now in hand would set it; or 0
    raft_index candidate;

    struct pms_conf_track conf;

    struct pms_guard_ack *acks;
    size_t acks_n;

    raft_time heard_at; // last sign of life from a leader of the current term

    bool failed; // fell silent
    bool closing;
    struct pms_list held_appends;
    struct pms_list held_puts;
    struct pms_list held_sends; // struct pms_guard_send_held
};

// guard.c
void pms_guard_fail(struct pms_guard *g, const char *what, int status);
void pms_guard_step_done(struct pms_guard *g);
// What raft_io->load() gave.
void pms_guard_loaded_free(struct raft_snapshot **snapshot, struct raft_entry *entries[], size_t *n_entries);

// guard_messages.c
void pms_guard_on_tick(struct raft_io *inner);
void pms_guard_on_recv(struct raft_io *inner, struct raft_message *m);
int pms_guard_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb cb);
// The leader of term is known to have our log up to index.
void pms_guard_verified_raise(struct pms_guard *g, raft_term term, raft_index index);
// libraft accepted the entries or the heartbeat now in hand, if any is.
void pms_guard_candidate_accept(struct pms_guard *g);
// Hands the held answers to libraft if they may count now, and forgets them if they no longer can.
void pms_guard_acks_release(struct pms_guard *g);
void pms_guard_acks_drop(struct pms_guard *g);

#endif
