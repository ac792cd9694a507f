// SPDX-License-Identifier: GPL-2.0-or-later
// What the files of the data loop share: the loop, an array on it, a ring of an array. Private to
// datapath/io.
#ifndef PMS_DATAPATH_IO_LOOP_INTERNAL_H
#define PMS_DATAPATH_IO_LOOP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/watchdog.h"
#include "datapath/io/brick.h"
#include "datapath/io/disk.h"
#include "datapath/io/loop.h"
#include "datapath/io/peer.h"
#include "datapath/io/queue.h"

#define PMS_LOOP_PEERS_MAX 64u /* nodes shown by pms_loop_link_get */

/* ---- messages to the data loop ---- */

enum pms_msg_type {
    PMS_MSG_ARRAY_OPEN,
    PMS_MSG_ARRAY_CLOSE,
    PMS_MSG_BRICK_CREATE,
    PMS_MSG_BRICK_DELETE,
    PMS_MSG_CONF,
    PMS_MSG_HANDOVER,
    PMS_MSG_LEAVE,
    PMS_MSG_DOUBT,
    PMS_MSG_LINK_DIALLED,
    PMS_MSG_LINK_ACCEPTED,
    PMS_MSG_RING_ATTACH,
    PMS_MSG_RING_DETACH,
    PMS_MSG_JOB_DONE, /* embedded in a pms_job */
    PMS_MSG_STOP,
};

struct pms_msg {
    struct pms_list item;
    enum pms_msg_type type;
    uint64_t array, node;
    int fd[3];
    unsigned version;             /* of a link */
    struct pms_loop_brick *brick; /* heap, the receiver's */
    struct pms_dp_conf conf;
    uint64_t incarnation;
    bool flag;    /* live, all_dirty */
    uint8_t slot; /* DOUBT: a mask of them */
};

/* ---- brick work on threads of its own ---- */

enum pms_job_type { PMS_JOB_OPEN, PMS_JOB_CREATE, PMS_JOB_DELETE };

/* Owned by the loop; the worker owns the fields from `status` on until JOB_DONE arrives. */
struct pms_job {
    struct pms_list item; /* in loop->jobs */
    struct pms_msg msg;
    struct pms_loop *loop;
    pthread_t thread;
    enum pms_job_type type;
    struct pms_loop_brick *brick;
    uint64_t incarnation; /* in: to create with; out: of the brick that is there */
    bool all_dirty;
    atomic_bool cancel;
    int status;
    struct pms_brick file; /* OPEN; area is freed already */
    struct pms_dp *dp;     /* OPEN */
    uint64_t progress_ns;
};

/* Takes brick over. NULL: no thread could be started (-errno in *err), brick is freed. */
struct pms_job *pms_job_start(struct pms_loop *loop, enum pms_job_type type, struct pms_loop_brick *brick,
                              uint64_t incarnation, bool all_dirty, int *err);
/* After JOB_DONE: joins, frees. What it opened is the caller's. */
void pms_job_end(struct pms_job *job);

/* ---- an array ---- */

enum pms_array_state { PMS_ARRAY_OPENING, PMS_ARRAY_OPEN, PMS_ARRAY_CLOSING, PMS_ARRAY_DEAD };

/*
 *   OPENING --job done--> OPEN --close--> CLOSING --disk idle--> DEAD --rings idle--> freed, EV_ARRAY_CLOSED
 *      `------job failed, or closed meanwhile---------------------^
 * Frames, conf and ticks reach the dp only while OPEN.
 */
struct pms_array {
    struct pms_list item; /* in loop->arrays; the list changes under loop->snap_lock */
    struct pms_loop *loop;
    uint64_t id, size_bytes;
    enum pms_array_state state;
    bool close_told;     /* a close was asked for: EV_ARRAY_CLOSED is owed */
    int open_status;     /* opening failed: EV_ARRAY_OPEN is owed, when the array is out of the list */
    struct pms_job *job; /* OPENING */
    struct pms_dp *dp;   /* OPEN, CLOSING */
    int fd;
    bool direct;
    struct pms_disk disk;
    char fault_path[PMS_LOOP_PATH_MAX + 1];
    bool brick_error_told;
    bool primary;          /* as the dp said last: only then commands are taken from the ring */
    bool conf_known, live; /* the last conf, also before the dp exists */
    struct pms_dp_conf conf;
    uint64_t up[PMS_SLOTS_MAX]; /* nodes of which the dp was told that their link is up; 0: free */

    struct pms_aring *ring;    /* attached, or NULL */
    struct pms_list old_rings; /* detached, commands still inside */
    bool attach_pending;
    int attach_fd[3];
    uint64_t ring_ops;

    bool snap_valid; /* under loop->snap_lock, as snap */
    struct pms_loop_array_stats snap;
};

struct pms_array *pms_array_create(struct pms_loop *loop, struct pms_loop_brick *brick);
struct pms_array *pms_array_find(struct pms_loop *loop, uint64_t id);
void pms_array_opened(struct pms_array *a, struct pms_job *job);
void pms_array_close(struct pms_array *a);
void pms_array_conf(struct pms_array *a, const struct pms_dp_conf *conf, bool live);
void pms_array_handover(struct pms_array *a, uint8_t slot);
void pms_array_leave(struct pms_array *a);
void pms_array_doubt(struct pms_array *a, uint8_t slots);
void pms_array_link(struct pms_array *a, uint64_t node, bool up);
bool pms_array_ready(const struct pms_array *a);
int pms_array_frame(struct pms_array *a, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf);
void pms_array_tick(struct pms_array *a, uint64_t now);
/* Carries out what the dp wants; after each event that it was given. */
void pms_array_run(struct pms_array *a);
/* End of turn: pending attach, closing. May free a. */
void pms_array_settle(struct pms_array *a);
/* Call with loop->snap_lock held. */
void pms_array_snap(struct pms_array *a, uint64_t now);
void pms_array_emit(struct pms_array *a, enum pms_loop_event_type type, int status);

/* ---- a ring of an array ---- */

struct pms_aring;

void pms_aring_attach(struct pms_array *a, const int fd[3]);
void pms_aring_detach(struct pms_array *a);
/* Continues an attach that waited for older rings, and frees rings without commands. */
void pms_aring_settle(struct pms_array *a);
/* Takes commands; true if there may be more at once. */
bool pms_aring_poll(struct pms_array *a);
void pms_aring_kick(struct pms_array *a);
/* This node stopped serving: takes no more commands from the attached ring and asks for the end of its
 * target. */
void pms_aring_fence(struct pms_array *a);
/* COMPLETE and DROP of the dp. */
void pms_aring_complete(struct pms_dp_op *op, int status);
void pms_aring_drop(struct pms_dp_op *op);
/* The dp is gone: its commands end unanswered. */
void pms_aring_abandon(struct pms_array *a);
bool pms_aring_idle(const struct pms_array *a);
void pms_aring_snap(const struct pms_array *a, struct pms_loop_array_stats *out);

/* ---- the loop ---- */

struct pms_loop {
    struct pms_loop_config config;
    uint64_t cluster; /* first 8 bytes of the uuid */
    pthread_t thread;
    struct pms_queue in;  /* of pms_msg */
    struct pms_queue out; /* of events */

    /* the data thread's */
    struct pms_uring uring;
    struct pms_pool pool;
    struct pms_link_env links;
    struct pms_peers peers;
    struct pms_list arrays, jobs;
    struct pms_uring_op in_op; /* waits for in.fd */
    bool in_busy, stopping;
    struct pms_pulse pulse;
    uint64_t tick_ns, peers_tick_ns, snap_ns, turn_max_ns, turn_max_since_ns, turns;

    /* start: the thread says whether it runs */
    pthread_mutex_t start_lock;
    pthread_cond_t start_cond;
    bool started;
    int start_status;

    pthread_mutex_t snap_lock;
    struct pms_loop_stats snap;
    struct pms_peer_state snap_peers[PMS_LOOP_PEERS_MAX];
    unsigned snap_peers_n;
};

/* Any thread. */
void pms_loop_emit(struct pms_loop *loop, const struct pms_loop_event *ev);
/* Union of the nodes of all open arrays. */
void pms_loop_peers_update(struct pms_loop *loop);

#endif
