// SPDX-License-Identifier: GPL-2.0-or-later
// The data loop: one io_uring thread that drives all arrays of a node; what the control loop says to it and
// hears.
#ifndef PMS_DATAPATH_IO_LOOP_H
#define PMS_DATAPATH_IO_LOOP_H

/*
 * The control loop calls the functions below (from any thread, they never block) and each one becomes a
 * message that the data loop executes in order. What the data loop has to say comes back as events:
 * pms_loop_event_fd() becomes readable, then pms_loop_event_next() until it returns false (it clears the
 * descriptor).
 *
 *   control:  pms_loop_array_open -> EV_ARRAY_OPEN -> pms_loop_conf per applied state -> EV_PROPOSE,
 * EV_STATUS ... links:    EV_LINK_WANT(node) -> dial, authenticate -> pms_loop_link_dialled(node, fd or
 * error) listener: authenticated data channel of node -> pms_loop_link_accepted(node, fd) plugin:   HELLO ->
 * pms_loop_ring_attach -> EV_RING_ATTACHED -> SERVE;  tgtd gone -> pms_loop_ring_detach
 *
 * One connection per direction and peer node carries the frames of all arrays: requests on the one that this
 * node dialled, answers come back on it. The control loop dials because it does the handshake; after it the
 * stream belongs to the data loop alone: neither side may have read or written one byte beyond the handshake.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "datapath/core/dp.h"
#include "datapath/io/ring.h"

#define PMS_LOOP_PATH_MAX 1023 /* bytes without NUL */

struct pms_loop; /* opaque */

struct pms_loop_config {
    struct pms_uuid cluster_uuid; /* all frames carry its first 8 bytes */
    uint64_t self_node;
    uint64_t buffer_bytes_max; /* memory for received payloads, 0: 256 MiB; beyond it the loop reads no more
                                  from links */
    uint32_t lock_wait_ms;     /* how long opening a brick waits for the I/O of an old holder, 0: 10 s */
};

/* Starts the thread. 0 or -errno (-ENOSYS, -EPERM: io_uring is not available). */
int pms_loop_start(const struct pms_loop_config *config, struct pms_loop **out);
/* Closes all arrays, links and rings, ends the thread and frees. Commands without an answer stay in their
 * rings. Events not taken are lost. Waits for disk requests in flight at most some seconds. Not from the
 * loop's own thread. NULL is allowed. */
void pms_loop_stop(struct pms_loop *loop);

/* ---- arrays ---- */

/* Where an array's brick on this node is, and what it must be. init.cluster and init.self_node are filled in
 * by the loop; init.boot_id and init.fresh_incarnation are drawn if they are 0; a zero init.timing is replaced by
 * pms_dp_timing_default, and a zero init.volatile_bytes by PMS_VOLATILE_BYTES. */
struct pms_loop_brick {
    char path[PMS_LOOP_PATH_MAX + 1]; /* file or block device */
    /* Written (8 random bytes) at the first I/O error of the brick, before anybody learns of it; "": nowhere. Whoever
     * opens the brick again mixes them into init.boot_id: what was written and not flushed may be gone. */
    char fault_path[PMS_LOOP_PATH_MAX + 1];
    struct pms_dp_init init;
};

/*
 * Makes a brick on a worker thread: preallocates (file) or zeroes (device) PMS_BRICK_DATA_OFFSET +
 * size_bytes, verifies that it reads as zero, writes the metadata, makes all of it durable. EV_BRICK_CREATED
 * tells the end: status 0; PMS_EREFUSED: the path holds foreign data; PMS_EEXISTS: a brick of this cluster,
 * array and slot is there already (its incarnation is told, and it may be opened); PMS_EIDENTITY: a brick of
 * another one; -ENOSPC ... A file that this call made is removed again on error. incarnation: random,
 * nonzero. all_dirty: as pms_dp_brick_format.
 */
int pms_loop_brick_create(struct pms_loop *loop, const struct pms_loop_brick *brick, uint64_t incarnation,
                          bool all_dirty);
/* Removes a brick: a file is unlinked, a device's metadata is wiped. Only if it is the named array's; close
 * the array before. EV_BRICK_DELETED: 0 (also if nothing was there), PMS_EIDENTITY, PMS_EREFUSED, PMS_EBUSY
 * (still open), -errno. */
int pms_loop_brick_delete(struct pms_loop *loop, const struct pms_loop_brick *brick);

/* Opens the brick (on a worker thread, waiting for its lock) and creates the array's state machine.
 * EV_ARRAY_OPEN tells the end: 0, PMS_EBUSY (lock), PMS_EIDENTITY, PMS_ECORRUPT, PMS_EREFUSED (foreign data),
 * PMS_EEXISTS (array is open), -errno. Confs given meanwhile are kept: the newest is applied right after the
 * opening. */
int pms_loop_array_open(struct pms_loop *loop, const struct pms_loop_brick *brick);
/* Lets disk requests in flight finish, then closes; ring and commands are dropped unanswered.
 * EV_ARRAY_CLOSED. */
int pms_loop_array_close(struct pms_loop *loop, uint64_t array);
/* As pms_dp_conf. Also tells which peer nodes are wanted: all nodes in slots of open arrays. */
int pms_loop_conf(struct pms_loop *loop, uint64_t array, const struct pms_dp_conf *conf, bool live);
/* As pms_dp_handover; EV_HANDOVER has its result. */
int pms_loop_handover(struct pms_loop *loop, uint64_t array, uint8_t slot);
/* As pms_dp_leave; no event. */
int pms_loop_leave(struct pms_loop *loop, uint64_t array);
/* As pms_dp_doubt; no event. */
int pms_loop_doubt(struct pms_loop *loop, uint64_t array, uint8_t slots);

/* ---- links ---- */

/* The answer to EV_LINK_WANT: an authenticated, connected stream socket to node (taken over, closed by the
 * loop) whose frames are of this version (pms_frame_encode), or a negative error: the loop backs off (20 ms doubling to 320 ms) and wants it again. Give up a
 * dial after about 1 s. */
int pms_loop_link_dialled(struct pms_loop *loop, uint64_t node, int fd_or_error, unsigned version);
/* An authenticated data connection that node dialled to us: replaces an older one of that node. fd is taken
 * over. */
int pms_loop_link_accepted(struct pms_loop *loop, uint64_t node, int fd, unsigned version);

/* ---- rings ---- */

/* The three descriptors are taken over, also on failure. The array must be open; a standby may attach early:
 * commands are taken only while this node is primary and wait in the ring until then. Attaching waits until
 * no command of an earlier ring of this array is in flight (old I/O never lands after new). EV_RING_ATTACHED:
 * 0, PMS_ENOTFOUND (no such array open), PMS_EEXISTS (another ring is attached), errors of pms_ring_attach.
 */
int pms_loop_ring_attach(struct pms_loop *loop, uint64_t array, int memfd, int efd_sq, int efd_cq);
/* The plugin is gone (or fenced): no more commands are taken, nothing more is answered. Call it for every
 * attach, also after EV_RING_BROKEN. Commands already taken run to their end inside. EV_RING_DETACHED when
 * the descriptors are closed. */
int pms_loop_ring_detach(struct pms_loop *loop, uint64_t array);

/* ---- events ---- */

enum pms_loop_event_type {
    PMS_LOOP_EV_ARRAY_OPEN = 1, /* array, status, incarnation */
    PMS_LOOP_EV_ARRAY_CLOSED,   /* array */
    PMS_LOOP_EV_BRICK_CREATED,  /* array, status, incarnation (of the brick that is there) */
    PMS_LOOP_EV_BRICK_PROGRESS, /* array, done, total: bytes zeroed or verified; about once a second, devices
                                   only */
    PMS_LOOP_EV_BRICK_DELETED,  /* array, status */
    PMS_LOOP_EV_PROPOSE,        /* array, propose: to Raft, best effort, answer by pms_loop_conf only */
    PMS_LOOP_EV_STATUS,         /* array, dp: something of it changed */
    PMS_LOOP_EV_FENCE, /* array: this node stopped serving (commands may have been dropped): kill the target,
                          then pms_loop_ring_detach; once a ring */
    PMS_LOOP_EV_HANDOVER,      /* array, status, slot */
    PMS_LOOP_EV_BRICK_ERROR,   /* array, status: first I/O error of its brick */
    PMS_LOOP_EV_RING_ATTACHED, /* array, status */
    PMS_LOOP_EV_RING_DETACHED, /* array */
    PMS_LOOP_EV_RING_BROKEN,   /* array, status: the plugin broke the rules; fence it */
    PMS_LOOP_EV_LINK_WANT,     /* node: dial it once and answer with pms_loop_link_dialled */
    PMS_LOOP_EV_LINK_UP,       /* node: the own link is in use */
    PMS_LOOP_EV_LINK_LOST,     /* node, status; EV_LINK_WANT follows by itself */
};

struct pms_loop_event {
    enum pms_loop_event_type type;
    int status; /* 0 or a negative error */
    uint64_t array, node, incarnation;
    uint8_t slot;
    union {
        struct {
            enum pms_dp_transition kind;
            uint64_t epoch; /* expected: the compare-and-set */
            uint8_t primary, in_sync;
            uint64_t incarnation[PMS_SLOTS_MAX];
        } propose;
        struct pms_dp_status dp;
        struct {
            uint64_t done, total;
        } progress;
    };
};

/* Readable while events wait: for uv_poll. The loop's; do not read or close it. */
int pms_loop_event_fd(const struct pms_loop *loop);
/* Takes the next event; false (and the descriptor is cleared) if there is none. One thread only. */
bool pms_loop_event_next(struct pms_loop *loop, struct pms_loop_event *out);

/* ---- to look at (any thread, at any time; at most 50 ms old) ---- */

struct pms_loop_array_stats {
    struct pms_dp_status dp;
    struct pms_dp_conf conf; /* applied last; epoch 0: none */
    bool ring_attached;
    struct pms_ring_stats ring; /* of the attached ring, else 0 */
    uint64_t ring_ops;          /* commands taken from rings */
    uint64_t disk_reads, disk_writes, disk_flushes, disk_read_bytes, disk_written_bytes, disk_errors;
    bool direct; /* brick is open with O_DIRECT */
};

struct pms_loop_stats {
    uint64_t turns;       /* of the loop */
    uint64_t turn_ns_max; /* longest turn in the last second, without waiting */
    uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
    uint64_t checksum_errors;                /* payloads or headers that were garbled */
    uint64_t links_dropped;                  /* closed by us for a fault of the peer or network */
    uint64_t buffer_bytes, buffer_bytes_max; /* received payloads in memory now, and at most */
};

/* 0 or PMS_ENOTFOUND (array is not open). */
int pms_loop_array_stats_get(struct pms_loop *loop, uint64_t array, struct pms_loop_array_stats *out);
void pms_loop_stats_get(struct pms_loop *loop, struct pms_loop_stats *out);
/* Is the own link to node up, and is a connection of node accepted? */
void pms_loop_link_get(struct pms_loop *loop, uint64_t node, bool *own, bool *accepted);

#endif
