// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: struct pms_raft, shared by node.c (life, state machine, events), propose.c, barrier.c
// and member.c.
//
// Everything is done from work(), which runs from the loop (never inside libraft): callbacks of libraft only
// note what happened and call pms_raft_schedule(), apart from ending requests, whose callbacks may call
// anything in node.h.
#ifndef PMS_CONSENSUS_RAFT_NODE_INTERNAL_H
#define PMS_CONSENSUS_RAFT_NODE_INTERNAL_H

#include "base/list.h"
#include "consensus/raft/guard.h"
#include "consensus/raft/node.h"
#include <raft.h>
#include <raft/uv.h>

#define PMS_RAFT_TICK_MS  20 // grain of timeouts and retries
#define PMS_RAFT_RETRY_MS 50 // between attempts to reach a leader
#define PMS_RAFT_SERVICE  "raft"

struct pms_raft_read_call;
struct pms_raft_barrier_call;
struct pms_raft_change_call;

struct pms_raft {
    uv_loop_t *loop;
    struct pms_raft_config config;
    char *dir;
    char address[PMS_ID_TEXT_SIZE];

    struct raft raft;
    struct raft_io io;
    struct raft_fsm fsm;
    struct raft_uv_transport transport;
    struct pms_guard *guard;

    uv_idle_t idle;
    uv_timer_t tick;
    unsigned handles;
    bool started;
    bool raft_closed;
    bool closing; // asked for
    bool closed;  // carried out
    void (*close_cb)(void *data);
    void *close_data;

    bool failed; // libraft is left alone from here on
    bool failed_told;
    char failure[512];

    // What was last told or done.
    uint64_t leader_told;
    uint64_t leader_last; // the last one that there was
    bool self_told;
    raft_term barrier_term; // the term whose first own barrier was issued
    raft_term ready_term;   // ... and applied; ready while it is the current one and we lead
    raft_term ready_told_term;
    bool caught_up;
    bool caught_up_asked;

    // propose.c
    struct pms_list waiting;   // struct proposal: not given to anyone yet
    struct pms_list applying;  // with libraft here
    struct pms_list forwarded; // with the leader
    unsigned applying_n;
    unsigned forwarded_n;
    char *result; // of the command applied last

    // barrier.c
    struct pms_list barriers_next;              // struct waiter: for the next barrier
    struct pms_list barriers_now;               // for the one under way
    struct pms_raft_barrier_call *barrier_call; // NULL: none is under way
    struct pms_list reads_next;                 // linearizable reads: to be asked for
    struct pms_list reads_now;                  // the leader is being asked
    struct pms_list reads_apply;                // waiting to have applied the leader's answer
    struct pms_raft_read_call *read_call;
    uint64_t read_retry_at;

    // member.c
    struct pms_list changes; // struct change, the first is being worked on
    struct pms_raft_change_call *change_call;
    struct pms_list transfers; // struct transfer, finished ones too: libraft may still send from them
    uint64_t change_retry_at;
    uint64_t heard_at[2 * PMS_NODES_MAX]; // by position in the configuration
};

// Has work() run soon. May be called from anywhere.
void pms_raft_schedule(struct pms_raft *r);
// Now, as uv_now.
uint64_t pms_raft_now(const struct pms_raft *r);
bool pms_raft_leads(const struct pms_raft *r);
// libraft's code (positive) or libuv's (negative) as ours.
int pms_raft_err(int rv);

// A command or snapshot as it lies in the log (raft_malloc'ed). 0 or -ENOMEM.
int pms_raft_payload_wrap(const void *data, size_t len, struct raft_buffer *buf);
// The bytes in it (borrowed). 0 or PMS_ECORRUPT.
int pms_raft_payload_unwrap(const struct raft_buffer *buf, const char **data, size_t *len);

// propose.c. `local`: fails with PMS_ENOTLEADER rather than being forwarded.
int pms_raft_propose_local(struct pms_raft *r, const char *command, size_t len, unsigned timeout_ms,
                           pms_raft_propose_cb cb, void *data);
void pms_raft_proposals_work(struct pms_raft *r);
void pms_raft_proposals_close(struct pms_raft *r);

// barrier.c
void pms_raft_barriers_work(struct pms_raft *r);
void pms_raft_barriers_close(struct pms_raft *r);

// member.c
enum pms_raft_role pms_raft_role_of(int role); // libraft's
void pms_raft_members_work(struct pms_raft *r);
void pms_raft_members_close(struct pms_raft *r);
// After libraft is closed.
void pms_raft_members_free(struct pms_raft *r);

// node_rpc.c: what other nodes ask of this one.
void pms_raft_on_request(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body);

#endif
