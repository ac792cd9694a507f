// SPDX-License-Identifier: GPL-2.0-or-later
// One host: clock, brick, applied cluster state, and the process that drives the dp as pmsd does.
#ifndef PMS_TESTS_SIM_NODE_H
#define PMS_TESTS_SIM_NODE_H

#include "consensus/core/state.h"
#include "datapath/core/dp.h"
#include "tests/sim/disk.h"
#include "tests/sim/limits.h"
#include "tests/sim/world.h"

struct sim;
struct attempt;

struct node {
    int index;
    int slot;          // -1: none
    uint64_t doubt_at; // true time of its next verdict about links
    char name[8];
    uint64_t id;
    bool witness;

    bool up;              // the process runs
    uint64_t stop_by;     // 0: it has not been asked to stop; else when it does at the latest
    uint64_t stopped_for; // how long it stays down then
    bool paused;          // SIGSTOP
    bool brick_lost;      // votes, but has no brick and no dp any more
    uint32_t life;
    struct pms_list parked; // events for a stopped process, in order
    uint64_t paused_until;
    uint64_t clock_stopped_at; // own clock, ns; 0: it runs

    uint64_t clock_offset; // ns
    int64_t clock_ppm;

    struct disk disk;
    uint64_t incarnation;          // of the brick that is there now
    uint64_t lineage[SIM_LINEAGE]; // all incarnations of that brick, since it was formatted
    unsigned n_lineage;
    uint32_t boots;   // of the host, and I/O errors
    bool power_lost;  // or an I/O error; the process does not know yet
    bool disk_failed; // during this life of the process
    struct pms_dp *dp;
    struct pms_dp_status status; // as last told in the story
    struct pms_list attempts;    // client commands given to this process

    // Raft: the applied state, volatile; a restart begins somewhere before it.
    struct pms_state *state;
    size_t applied; // entries
    size_t barrier; // entries to be applied before the process is live; SIZE_MAX: not known yet
    bool apply_due; // an apply event is queued
    uint64_t command_seq;
};

void node_init(struct sim *sim, struct node *n);
void node_deinit(struct node *n);
uint64_t node_clock(const struct sim *sim, const struct node *n);
struct node *node_by_id(struct sim *sim, uint64_t id); // NULL: none
struct node *node_of_slot(struct sim *sim, int slot);
// Runs the event at once, keeps it for a stopped process, or drops it if its process is gone.
void node_deliver(struct sim *sim, struct sim_event *ev);

void node_start(struct sim *sim, struct node *n);
void node_restart_later(struct sim *sim, struct node *n, uint64_t delay_ns);
void node_crash(struct sim *sim, struct node *n, bool power);
// SIGTERM: the process leaves its array to others, ends when that is done or takes too long, and starts again
// after_ns later.
void node_stop(struct sim *sim, struct node *n, uint64_t after_ns);
void node_pause(struct sim *sim, struct node *n, uint64_t for_ns);
void node_resume(struct sim *sim, struct node *n);

// Events of the dp; each is followed by its actions and its invariants.
void node_conf(struct sim *sim, struct node *n, const struct pms_dp_conf *conf, bool live);
void node_link_up(struct sim *sim, struct node *n, struct node *peer);
void node_link_down(struct sim *sim, struct node *n, struct node *peer);
int node_frame(struct sim *sim, struct node *n, struct node *from, uint64_t conn, const struct pms_frame *f,
               struct pms_iobuf *buf);
void node_disk_done(struct sim *sim, struct node *n, uint64_t tag, int status);
void node_submit(struct sim *sim, struct node *n, struct pms_dp_op *op);
int node_handover(struct sim *sim, struct node *n, int slot);
// Notes what the brick that is there now has become.
void node_incarnation_set(struct node *n, uint64_t incarnation);
bool node_brick_was(const struct node *n, uint64_t incarnation);
// The process is up, its dp is the primary of the configuration that it applied last.
bool node_is_primary(const struct node *n);

#endif
