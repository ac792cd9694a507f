// SPDX-License-Identifier: GPL-2.0-or-later
// One RAID1 array on one node: replica, lease, coordinator, takeover, settling and resync in one pure state
// machine.
#ifndef PMS_DATAPATH_CORE_DP_H
#define PMS_DATAPATH_CORE_DP_H

/*
 * Event in, list of actions out. Every pms_dp_<event>() call may append actions; the driver takes them with
 * pms_dp_action_next() until it returns false and carries them out IN ORDER before it delivers the next
 * event. Nothing here does I/O or reads a clock: `now` is the node's CLOCK_BOOTTIME in ns and never goes
 * back. The same object code runs in pmsd and in the simulator. Not thread-safe: one thread owns a dp.
 *
 * What the driver owes:
 *  - Disk: a READ, WRITE or ZERO is reported by pms_dp_disk_done when it is done. ZERO is a write of zeros without a
 *    buffer. Disk writes may be reordered and may be lost or torn until a FLUSH that was issued after their completion
 *    has completed. Offsets are absolute in the brick.
 *  - Brick: before it reads the metadata for pms_dp_create it locks the brick (no I/O of an earlier life is in flight
 *    any more) and flushes it, so that everything read later, metadata and data, is stable.
 *  - Links: each node dials each other node; requests go out on the own link and answers come back on it. A
 * link is FIFO from its link_up to its link_down (only HB and HB_ACK may overtake others); what was sent may
 * be lost only if link_down follows. A frame of an older link of the same peer is never delivered after a
 * newer link of that peer was accepted. An answer (SEND with conn != 0) goes to the accepted connection
 * `conn` that the request came from, or is dropped if that is gone.
 *  - Raft: PROPOSE is best effort and may have an unknown outcome; the only news about it is a pms_dp_conf with a
 *    higher epoch. The dp proposes again by itself as long as it wants the transition.
 *  - Time: pms_dp_tick at least every 10 ms.
 *  - Payload: an action that carries an iobuf gives its reference to the driver, which puts it when done.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "datapath/core/frame.h"
#include "datapath/core/iobuf.h"

struct pms_dp;

struct pms_dp_timing { /* all in ms */
    uint32_t heartbeat, promise, lease, eject_dead, eject_slow;
    uint32_t quiet; /* R4: the longest promise that this node may have given before it started; 0: promise */
    uint32_t ask_wait;    /* how long a candidate waits for vetoes and promises of those that do not answer */
    uint32_t aside_again; /* for its links a primary steps aside in vain, or hands over, once in this */
    uint32_t readmit_max; /* a slot that falls out again and again is taken back after so long at most */
    uint32_t clear_idle;  /* a region unwritten for this long is cleared from the dirty maps */
    uint32_t flush;       /* write cache on: what is acknowledged becomes stable within about this */
};
extern const struct pms_dp_timing pms_dp_timing_default;

/* What Raft says of the array; the driver makes it from the applied cluster state. */
struct pms_dp_conf {
    uint64_t epoch;
    uint8_t primary; /* slot */
    uint8_t n_slots;
    uint8_t in_sync;                     /* mask of slots */
    uint64_t incarnation[PMS_SLOTS_MAX]; /* of in-sync slots */
    uint64_t node[PMS_SLOTS_MAX];        /* node id of each slot */
    bool write_cache; /* writes are acknowledged when every in-sync slot holds them, stable or not (WCE=1);
                         may change within an epoch */
    bool cache_used;  /* it is on, or was on at some time */
};

struct pms_dp_init {
    uint64_t cluster, array, self_node;
    uint8_t self_slot;
    uint64_t size_bytes;   /* of the array */
    uint32_t region_bytes; /* power of two, multiple of 8192 (a region has 16 chunks of at least 512 bytes) */
    uint64_t boot_id;      /* nonzero; the same as long as what was written to the brick cannot have been lost
                         unflushed: of this boot of the host, and fresh after an I/O error of the brick */
    uint64_t fresh_incarnation; /* random, nonzero: what the brick becomes if it may have lost data (R6) */
    uint32_t volatile_bytes;    /* write cache on: at most so much is acknowledged and not yet flushed */
    bool probe_reads; /* a read waits for heartbeats sent after it arrived, instead of for the lease: this
                         host's clock may stop unnoticed, as a paused virtual machine's does (I3) */
    struct pms_dp_timing timing;
    uint32_t
        brick_version; /* what a superblock is written as, of pms_brick_versions; 0: the oldest. One that was
                               written by a newer one keeps that */
};

/* A client's command. The driver owns the struct and may reuse it after COMPLETE or DROP names it. */
enum pms_dp_op_type { PMS_DP_READ, PMS_DP_WRITE, PMS_DP_FLUSH, PMS_DP_ZERO };
struct pms_dp_op {
    enum pms_dp_op_type type;
    uint64_t offset; /* bytes, multiple of 512 */
    uint32_t
        length; /* bytes, multiple of 512, at most PMS_IO_BYTES_MAX (ZERO: PMS_ZERO_BYTES_MAX); 0 for FLUSH */
    struct pms_iobuf
        *buf; /* READ, WRITE: length bytes; the dp takes its own references while it needs them */
    bool
        fua; /* WRITE, ZERO: stable before it is answered, also with the write cache on; READ: what it returns is */
    void *user; /* the driver's */
    void *priv; /* the dp's */
};

enum pms_dp_action_type {
    PMS_DP_ACT_SEND =
        1, /* frame (+ buf, frame.payload_len bytes from buf_off) to node; conn 0: own link, else answer */
    PMS_DP_ACT_DISK,     /* disk request `tag` */
    PMS_DP_ACT_COMPLETE, /* op is done: status 0, or a negative error (-EIO, -ERANGE) */
    PMS_DP_ACT_DROP,     /* op will never be answered: this node stopped serving; the target must be fenced */
    PMS_DP_ACT_PROPOSE,  /* transition to Raft */
    PMS_DP_ACT_LINK_RESET, /* close the own link to node and dial again */
    PMS_DP_ACT_STATUS,     /* role, serving, leased or resync changed: look at pms_dp_status_get */
};

enum pms_dp_disk_type { PMS_DP_DISK_READ, PMS_DP_DISK_WRITE, PMS_DP_DISK_FLUSH, PMS_DP_DISK_ZERO };
enum pms_dp_transition { PMS_DP_TAKEOVER, PMS_DP_REFRESH, PMS_DP_EJECT, PMS_DP_ADMIT, PMS_DP_HANDOVER };

struct pms_dp_action {
    enum pms_dp_action_type type;
    struct pms_iobuf *buf; /* SEND, DISK: a reference that the driver now owns; may be NULL */
    uint32_t buf_off;      /* SEND, DISK: where the bytes start in buf */
    union {
        struct {
            uint64_t node, conn;
            struct pms_frame frame; /* payload_sum is set already */
        } send;
        struct {
            enum pms_dp_disk_type type;
            uint64_t tag;
            uint64_t offset; /* bytes from the start of the brick */
            uint32_t length;
        } disk;
        struct {
            struct pms_dp_op *op;
            int status;
        } op; /* COMPLETE, DROP */
        struct {
            enum pms_dp_transition kind;
            uint64_t epoch; /* expected: the compare-and-set */
            uint8_t primary, in_sync;
            uint64_t incarnation[PMS_SLOTS_MAX];
        } propose;
        uint64_t node; /* LINK_RESET */
    };
};

/* What this node found wrong with itself. */
enum pms_dp_ail {
    PMS_DP_AIL_NONE,
    PMS_DP_AIL_DISK,  /* a request of its own disk is unanswered for eject_slow */
    PMS_DP_AIL_LINKS, /* primary, and others hear each other better than they hear it */
};

enum pms_dp_role { PMS_DP_REPLICA, PMS_DP_CANDIDATE, PMS_DP_SETTLING, PMS_DP_SERVING, PMS_DP_DRAINED };

struct pms_dp_status {
    enum pms_dp_role role;
    uint64_t epoch, floor, served, incarnation;
    bool
        serving; /* primary of the applied epoch and allowed to execute commands (settled regions at least) */
    bool leased; /* all promises that a read needs are held now */
    enum pms_dp_ail ailing;
    bool brick_failed;  /* an I/O error of the own brick; it takes part no more */
    bool unclean;       /* the own brick may have lost acknowledged data, and is not in sync */
    bool lossy;         /* this tenure began with an unclean takeover: acknowledged data may be gone (R6) */
    bool volatile_data; /* the own brick is marked as holding acknowledged data that may not be stable */
    uint8_t resyncing;  /* mask of slots being resynced by this primary */
    uint64_t resync_done, resync_total; /* bytes of the regions to look at, over all slots being resynced */
    uint64_t resync_sent; /* bytes of payload that differed and travelled (settling too), since create */
    uint32_t falls[PMS_SLOTS_MAX]; /* primary: how often the slot fell out, one soon after the other */
    uint32_t
        back_ms[PMS_SLOTS_MAX]; /* primary: a stale slot is not taken back before; 0: nothing is waited for */
    uint64_t settle_left;       /* regions still to be settled */
    uint32_t dirty_regions;     /* marked in the own durable map */
    uint32_t ops_held, ops_active;
    uint64_t writes, reads, flushes_disk, takeovers; /* counters since create */
};

/* ---- a brick's metadata: [0, PMS_BRICK_DATA_OFFSET) of the brick (datapath/core/meta.h has the pages) ----
 */
/* Makes the metadata of a new brick into area (PMS_BRICK_DATA_OFFSET bytes, which the driver writes and
 * flushes). all_dirty: nothing is known of the contents (a replaced disk); false only for a brick that is all
 * zero and belongs to an array that is being created. incarnation: random, nonzero. */
int pms_dp_brick_format(uint8_t *area, const uint8_t cluster_uuid[16], const struct pms_dp_init *init,
                        uint64_t incarnation, bool all_dirty);

/* Creates the dp from the metadata area read from the brick (PMS_BRICK_DATA_OFFSET bytes, not kept).
 * 0; PMS_ECORRUPT: no valid superblock; PMS_EVERSION; PMS_EIDENTITY: another cluster's, array's, slot's or
 * size's brick. now: boot of this dp; R4's quiet period counts from it. */
int pms_dp_create(const struct pms_dp_init *init, const uint8_t cluster_uuid[16], const uint8_t *area,
                  uint64_t now, struct pms_dp **out);
/* Frees; outstanding ops are forgotten, no action follows. Outstanding disk requests must have been reported
 * or be known never to be reported; their buffers are the driver's. */
void pms_dp_destroy(struct pms_dp *dp);

/* ---- events ---- */
void pms_dp_tick(struct pms_dp *dp, uint64_t now);
/* A cluster state was applied. live: false while the log is being replayed before the first barrier after
 * start (a change seen then never starts a primary). Called for each applied epoch in order when they are
 * known one by one; epochs may be skipped (snapshot). Calls with an epoch already known may turn `live` on
 * and change the write cache; nothing else. */
void pms_dp_conf(struct pms_dp *dp, uint64_t now, const struct pms_dp_conf *conf, bool live);
/* The own link to node is up / down. */
void pms_dp_link_up(struct pms_dp *dp, uint64_t now, uint64_t node);
void pms_dp_link_down(struct pms_dp *dp, uint64_t now, uint64_t node);
/* A frame came. conn: 0 for an answer on the own link; else the accepted connection (any nonzero id) to
 * answer on. buf: payload (frame.payload_len bytes at its start; its checksum was verified by the driver) or
 * NULL; the dp takes its own reference. A frame that does not fit (identity, sizes, unknown sender) is
 * ignored: returns PMS_EPROTO or PMS_EIDENTITY and the driver should drop the link; 0 otherwise. */
int pms_dp_frame(struct pms_dp *dp, uint64_t now, uint64_t node, uint64_t conn, const struct pms_frame *f,
                 struct pms_iobuf *buf);
/* Disk request tag is done: 0 or -errno (short transfers are the driver's to finish). */
void pms_dp_disk_done(struct pms_dp *dp, uint64_t now, uint64_t tag, int status);
/* A client's command. Held (not refused) while the node does not serve but may again; a range beyond the size
 * completes with -ERANGE. Overlapping commands execute in the order of submission. */
void pms_dp_submit(struct pms_dp *dp, uint64_t now, struct pms_dp_op *op);
/* The operator wants slot to become primary. 0 or PMS_EREFUSED (not serving, slot not in sync, resync being
 * admitted ...). Its end is seen in pms_dp_conf; after `give_up_ms` without one the primary refreshes and
 * goes on. */
int pms_dp_handover(struct pms_dp *dp, uint64_t now, uint8_t slot);
/* The node will stop. From now on it hands over what it serves and asks to be ejected, and stands for nothing
 * any more; it goes on acknowledging meanwhile. Done, as far as it can be, when the applied configuration names
 * this slot not at all or as the only one in sync, and the status says that no data is volatile. Cannot be taken
 * back. */
void pms_dp_leave(struct pms_dp *dp, uint64_t now);
/* The driver compared this node's links with what others see. slots: those that third nodes hear well, whereas they
 * hear this node badly: it must not blame them. Say it again at least each second while it is so, and 0 when not. */
void pms_dp_doubt(struct pms_dp *dp, uint64_t now, uint8_t slots);

/* ---- out ---- */
bool pms_dp_action_next(struct pms_dp *dp, struct pms_dp_action *out);
void pms_dp_status_get(const struct pms_dp *dp, uint64_t now, struct pms_dp_status *out);
/* The configuration applied last (epoch 0: none yet). */
const struct pms_dp_conf *pms_dp_conf_get(const struct pms_dp *dp);
/* Checks internal invariants (always-on PMS_CHECKs); the simulator calls it after each event. */
void pms_dp_check(const struct pms_dp *dp);

#ifdef PMS_MUTANTS
/* Planted bugs, for the simulator only. 0 = none. Names by pms_mutant_name(1..PMS_MUTANT_END-1). */
enum pms_mutant {
    PMS_MUTANT_NONE,
    PMS_MUTANT_EPOCH_UNCHECKED, /* a replica obeys frames of any epoch */
    PMS_MUTANT_ACK_EARLY,       /* a write is acknowledged when the own brick has it */
    PMS_MUTANT_NO_PROMISE_WAIT, /* promises although its timed promise lives; candidate does not wait for its
                                   own lapse */
    PMS_MUTANT_NO_SETTLE,       /* serves at once after takeover */
    PMS_MUTANT_ADMIT_EARLY,     /* admits a slot before its resync ended */
    PMS_MUTANT_UNFLUSHED_ACK,   /* replica acknowledges before the flush */
    PMS_MUTANT_FLOOR_VOLATILE,  /* promise answered before the floor is durable */
    PMS_MUTANT_READ_INFLIGHT,   /* a read does not wait for an overlapping write (R1) */
    PMS_MUTANT_CLOCK_STOP_IGNORED,   /* reads under the lease although the clock may stop */
    PMS_MUTANT_LEASE_IGNORED,        /* reads without lease */
    PMS_MUTANT_DIRTY_FORGOTTEN,      /* data written before its region is marked durably */
    PMS_MUTANT_OWN_MAP,              /* resync copies only the source's map */
    PMS_MUTANT_CLEAR_EARLY,          /* clears dirty regions although a slot is stale */
    PMS_MUTANT_ADMIT_NO_UNION,       /* while an admit is unknown the new slot is not waited for (R3) */
    PMS_MUTANT_SAME_EPOCH,           /* a restarted primary serves its old epoch again (R2) */
    PMS_MUTANT_NO_DRAIN,             /* promise returned while local writes are in flight (R5) */
    PMS_MUTANT_KEEP_ALL,             /* takeover keeps slots that did not promise */
    PMS_MUTANT_INCARNATION_IGNORED,  /* a brick obeys what was meant for the one before it (R6) */
    PMS_MUTANT_COPY_UNLOCKED,        /* a resync copy is not ordered against writes */
    PMS_MUTANT_INTERRUPTED_ADMITTED, /* a resync that its link interrupted counts as done */
    PMS_MUTANT_OVERLAP_ALLOWED,      /* overlapping writes are in flight at once, in any order (I5) */
    PMS_MUTANT_FLUSH_RETRIED,        /* a failed flush is tried again as if nothing had happened (I6) */
    PMS_MUTANT_EJECT_LEAVES_NONE,    /* the primary ejects itself along with the other */
    PMS_MUTANT_HANDOVER_UNDRAINED,   /* hands over with writes in flight */
    PMS_MUTANT_LEASE_FROM_ACK, /* the lease counts from when the answer came, not from when it was asked for */
    PMS_MUTANT_HELD_KEPT,      /* what a deposed primary held is executed when it serves again */
    PMS_MUTANT_RESYNC_MISSES,  /* writes to regions that are done do not go to the slot in resync */
    PMS_MUTANT_CLEAR_BUSY,     /* a mark is taken off while its region is written */
    PMS_MUTANT_EJECT_ASSUMED,  /* a write does not wait for a slot that is about to be ejected */
    PMS_MUTANT_SETTLE_OWN_MAP,    /* takeover settles only what the new primary itself has marked */
    PMS_MUTANT_RESEND_FORGOTTEN,  /* a write is not sent again in the next epoch */
    PMS_MUTANT_FLUSH_LOCAL,       /* a flush is answered when the own brick is flushed */
    PMS_MUTANT_FLUSH_NOTHING,     /* a flush is answered at once although the write cache is on */
    PMS_MUTANT_FUA_IGNORED,       /* FUA is acknowledged as volatile */
    PMS_MUTANT_VOLATILE_UNMARKED, /* a volatile write is acknowledged before the brick's mark is durable */
    PMS_MUTANT_UNCLEAN_IGNORED,   /* a brick that may have lost data goes on as if it had not */
    PMS_MUTANT_UNCLEAN_ALONE,     /* an unclean node takes over although others were not asked or are clean */
    PMS_MUTANT_CLEAR_UNFLUSHED,   /* regions are cleared without a flush after their last write */
    PMS_MUTANT_ADMIT_UNFLUSHED,   /* a resync does not end with a flush */
    PMS_MUTANT_ANY_ANCESTOR,   /* a blank brick takes itself for an unclean descendant of the in-sync one */
    PMS_MUTANT_ZERO_UNORDERED, /* zeroing overtakes, and is overtaken by, what it overlaps (I5) */
    PMS_MUTANT_END
};
extern int pms_mutant;
const char *pms_mutant_name(int m);
#define PMS_MUTANT(x) (pms_mutant == PMS_MUTANT_##x)
#else
#define PMS_MUTANT(x) 0
#endif

#endif
