// SPDX-License-Identifier: GPL-2.0-or-later
// One array as this node takes part in it: its brick, its place in the data loop, its iSCSI target.
//
// The agreed state says what is wanted, the data loop and the target's host say what is; local.c closes the
// gap for brick and data loop, serve.c for the target, session.c for the sessions.
#ifndef PMS_CMD_PMSD_LOCAL_H
#define PMS_CMD_PMSD_LOCAL_H

#include "consensus/core/state.h"
#include "cmd/pmsd/app.h"
#include "datapath/io/loop.h"
#include "target/host/array_target.h"

enum pms_brick_step {
    PMS_BRICK_NONE,     // nothing is known to be there
    PMS_BRICK_CREATING, // being made and verified zero
    PMS_BRICK_MADE,     // there, not open
    PMS_BRICK_OPENING,
    PMS_BRICK_OPEN, // the data loop runs it
    PMS_BRICK_CLOSING,
    PMS_BRICK_DELETING,
    PMS_BRICK_GONE, // removed
};

// A session without connection, seen from here: since when (for its expiry).
struct pms_orphan {
    uint16_t tsih;
    uint64_t disconnected; // log index, as in the state
    uint64_t since_ns;
    bool seen;
};

// The data loop has begun to hand over (0) or refused to; whether it comes about is seen in the applied
// state.
typedef void (*pms_handover_cb)(void *data, int status);

struct pms_local {
    struct pms_list link;
    struct pms_app *app;
    struct pms_array_info info; // as last applied; stays when the array is gone from the state
    bool in_state;
    int slot;                              // ours, -1: none (any more)
    char path[PMS_LOOP_PATH_MAX + 1];      // of our brick
    bool replaced;                         // the slot got a new place here: what is at path goes first
    char path_next[PMS_LOOP_PATH_MAX + 1]; // then

    enum pms_brick_step brick;
    int brick_err; // why the last step failed, 0: it did not
    uint64_t incarnation;
    uint64_t progress_done, progress_total;
    uint64_t retry_ns;            // no new attempt before
    bool zeroed_out, removed_out; // that proposal is under way

    struct pms_dp_status dp; // role, serving ...: what the data loop told last
    bool dp_known;
    uint64_t resync_since_ns, resync_first_done; // for the estimate
    uint64_t carrier_lost_ns, carrier_next_ns;   // carrier.c's: since when, 0: not; no handover before
    unsigned carrier_again_s;
    uint8_t doubt;                               // slots that this node must not blame (links.c)
    uint64_t proposals_out[PMS_DP_HANDOVER + 1]; // by kind: epoch + 1 of the proposal under way, 0: none

    pms_handover_cb handover_cb; // asked for and not answered yet; NULL: none
    void *handover_data;

    struct pms_at *at;
    bool at_wanted;  // activated, and not deactivated since
    bool at_held;    // the address is off for want of a lease
    bool at_standby; // a tgtd is kept ready
    uint64_t tenure; // in which it was activated: the state's primary_since
    bool at_stopping;
    bool at_release_wanted; // the target waits for its ring's end
    bool ring_in_loop;      // attached, or being attached
    bool fenced;            // no activation until the ring is gone
    uint64_t unleased_ns;   // since when, 0: leased
    enum pms_at_state at_state;
    int at_err;
    uint64_t takeovers, holds; // of the address, for want of a lease

    uint64_t up_ns, up_index; // when the target came up last, and the state's index then
    bool swept;               // sessions that did not come back since are orphans by now
    struct pms_orphan orphans[PMS_SESSIONS_MAX];
    unsigned n_orphans;
};

// Brings the list of arrays in line with the state; after each applied command and after a snapshot.
void pms_locals_sync(struct pms_app *app);
// From the tick: retries, lease watch, expiry.
void pms_locals_tick(struct pms_app *app);
// Closes everything without touching bricks; true once nothing is open any more (call again after each
// event).
bool pms_locals_shutdown(struct pms_app *app);
// Nothing of any array is left here: no brick, no target.
bool pms_locals_none(const struct pms_app *app);
// All configurations again, now live (pms_raft's caught-up).
void pms_locals_live(struct pms_app *app);

struct pms_local *pms_local_find(struct pms_app *app, uint64_t id);
struct pms_local *pms_local_find_by_name(struct pms_app *app, const char *name);

// Tells the data loop the applied configuration, if the array is open there.
void pms_local_conf_send(struct pms_local *a);

// What is, moves towards what is wanted: one step where one is due. Called after every event of the array.
void pms_local_step(struct pms_local *a);

// One event of the data loop (data.c).
void pms_local_on_event(struct pms_local *a, const struct pms_loop_event *ev);

// True if this node is the array's primary in the applied state.
bool pms_local_is_primary(const struct pms_local *a);
// Serving: primary of the applied epoch, as the data loop sees it too.
bool pms_local_is_serving(const struct pms_local *a);

// It serves, or others wait for its acknowledgements: it is in sync, as one of several.
bool pms_local_is_needed(const struct pms_local *a);

// For callbacks that may come after the array has gone: a heap reference, and what it still refers to (NULL:
// nothing); each reference is used once.
void *pms_local_ref(struct pms_local *a);
struct pms_local *pms_local_of(void *ref);

// What is wrong with a brick, for a person.
const char *pms_local_brick_text(int err);

// Carries out EV_PROPOSE (transition.c).
void pms_local_propose(struct pms_local *a, const struct pms_loop_event *ev);

// Asks the data loop to hand over to slot. 0: cb runs once, later. PMS_EBUSY: one is being asked for already.
int pms_local_handover(struct pms_local *a, uint8_t slot, pms_handover_cb cb, void *data);

// ---- serve.c ----

// Starts or stops the target as the state and the data loop want it.
void pms_local_serve(struct pms_local *a);
// The target must go (array closed, node stopping); true once it is down and closed.
bool pms_local_unserve(struct pms_local *a);
void pms_local_serve_event(struct pms_local *a, const struct pms_loop_event *ev);
void pms_local_lease_watch(struct pms_local *a, uint64_t now_ns);

// ---- session.c ----

unsigned pms_local_sessions_get(void *arg, struct pms_session_rec *recs, unsigned max);
void pms_local_on_login(void *arg, uint64_t login_id, const struct pms_session_rec *rec,
                        uint16_t requested_tsih, bool known);
void pms_local_on_closed(void *arg, const struct pms_session_rec *rec, enum pms_session_end how);
void pms_local_sessions_tick(struct pms_local *a, uint64_t now_ns);
// A session_expire (or an eviction) was applied.
void pms_local_session_gone(struct pms_local *a, uint16_t tsih);

#endif
