// SPDX-License-Identifier: GPL-2.0-or-later
// What the files of the array state machine share; private to datapath/core.
#ifndef PMS_DATAPATH_CORE_DP_INTERNAL_H
#define PMS_DATAPATH_CORE_DP_INTERNAL_H

#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "datapath/core/dp.h"
#include "datapath/core/meta.h"

#define BIT(n)            ((uint8_t)(1u << (n)))
#define MS(x)             ((uint64_t)(x)*1000000u)
#define CHUNKS_PER_REGION 16
#define NO_SLOT           0xff

/* ---- disk requests ---- */
enum dreq_kind { DREQ_FREE, DREQ_META, DREQ_FLUSH, DREQ_ROP, DREQ_COP, DREQ_JOB };
struct dreq {
    enum dreq_kind kind;
    uint32_t generation; /* a tag is generation << 32 | index: a late report of a reused place is caught */
    uint64_t started;
    void *ptr; /* NULL: nobody waits any more */
};

/* ---- brick.c: metadata, dirty marks, flushes ---- */
struct brick {
    struct pms_meta mem, disk, inflight; /* wanted, durable, on its way */
    uint32_t regions, pages;
    uint8_t *bits_mem, *bits_disk, *bits_inflight;
    uint64_t *page_gen;
    bool *page_inflight, *page_urgent;
    bool commit_busy;    /* pages are being written or wait for their flush */
    uint32_t writes_out; /* page writes not reported yet */
    bool need_flush;     /* all page writes are done: the next flush makes them durable */
    bool flush_covers_meta;
    bool lazy_due; /* clears may be written too */
    bool flush_busy;
    uint64_t flush_no; /* of the flush issued last */
    bool failed;
    bool unclean;        /* this run began with an incarnation that may have lost acknowledged data */
    bool flush_wanted;   /* by nobody else than the brick itself */
    bool volatile_since; /* a volatile write was acknowledged after the flush issued last */
    uint64_t last_volatile;
};

/* ---- replica.c: work on the own brick for any primary, the own one too ---- */
enum rop_kind { ROP_WRITE, ROP_SUMS, ROP_FLUSH }; /* ROP_WRITE: ZERO too */
enum rop_state { ROP_WAIT, ROP_DISK, ROP_WRITTEN };
struct rop {
    struct pms_list link; /* replica.rops, arrival order */
    enum rop_kind kind;
    enum rop_state state;
    uint64_t node, conn; /* to answer; node == self: the own coordinator */
    struct pms_frame f;  /* the request */
    struct pms_iobuf *buf;
    uint32_t buf_off;
    uint64_t flush_no; /* ROP_WRITTEN: the flush that covers it, 0 = not issued yet */
};

struct parked { /* a frame whose epoch is not durable as floor yet */
    struct pms_list link;
    uint64_t node, conn;
    struct pms_frame f;
    struct pms_iobuf *buf;
};

struct fence { /* PROMISE or MAP being answered once the floor is durable and older local I/O is over (R5) */
    struct pms_list link;
    uint64_t node, conn;
    struct pms_frame f;
};

struct replica {
    struct pms_list rops, parked, fences;
    uint32_t rops_waiting;
    uint64_t promise_until; /* own clock, ns: the latest deadline ever promised (R10) */
    uint8_t promise_to;     /* slot */
    uint64_t quiet_until;   /* R4 */
    uint64_t last_hb;
};

/* ---- coord.c: the primary's operations, in order of submission ---- */
enum cop_kind { COP_READ, COP_WRITE, COP_FLUSH, COP_COPY }; /* COP_WRITE: ZERO too */
enum cop_state { COP_QUEUED, COP_ACTIVE };
struct cop {
    struct pms_list link; /* coord.cops */
    enum cop_kind kind;
    enum cop_state state;
    uint64_t offset;
    uint32_t length;
    uint64_t seq;
    uint64_t started; /* when it became active, ns */
    uint8_t acked;    /* COP_WRITE, COP_FLUSH: slots that are done with it */
    uint8_t sent;     /* the same: slots in resync that it went to as well, and that it waits for */
    bool is_volatile; /* COP_WRITE: in-sync slots may answer before it is stable */
    bool flushes;     /* COP_READ with FUA: it flushes as well */
    bool covers_all;  /* COP_FLUSH: began with all slots in sync and settled */
    uint64_t covers;  /* COP_FLUSH: volatile_total when it began */
    bool read_done;
    uint64_t probe;       /* COP_READ: the heartbeats that must be answered before it may be */
    struct pms_dp_op *op; /* the client's; NULL for COP_COPY and for the primary's own COP_FLUSH */
    struct job *job;
};

/* ---- repair.c: settling (after takeover) and resync (of stale slots) ---- */
enum sess_kind { SESS_NONE, SESS_MAP_WAIT, SESS_RESYNC, SESS_SETTLE };
struct sess {
    enum sess_kind kind;
    uint8_t *need; /* regions still to be made equal */
    uint32_t left, total, cursor, jobs;
    uint64_t map_seq, incarnation, started, retry_at;
    uint64_t sent_bytes;
    uint64_t flush_seq; /* RESYNC: of the flush that ends it; 0: not sent yet */
    bool flushed;
};
struct job {              /* one region for one slot */
    struct pms_list link; /* repair.jobs */
    uint8_t slot;
    uint32_t region;
    bool settle, running, have_data, have_sums;
    struct cop *lock; /* resync: orders the copy against writes (I5) */
    uint64_t seq, started;
    uint64_t offset;
    uint32_t length;
    struct pms_iobuf *data;
    uint8_t sums[CHUNKS_PER_REGION][16];
    uint64_t writes[CHUNKS_PER_REGION]; /* seqs of copies not acknowledged yet; 0 = free */
    uint32_t writes_out;
};

/* ---- takeover.c ---- */
enum cand_phase { CAND_ASK, CAND_FENCE, CAND_PROMISE, CAND_PROPOSE };
struct cand {
    enum cand_phase phase;
    uint64_t epoch; /* the epoch wanted: applied + 1 */
    uint64_t seq;
    uint64_t phase_started;
    uint8_t asked, ok, refused, promised;
    uint8_t *bits; /* union of the dirty maps of those that promised, and the own */
    uint64_t backoff_until;
    uint64_t not_ready_since;
    bool unclean;                    /* R6: all in-sync slots must be, and promise */
    uint64_t becomes[PMS_SLOTS_MAX]; /* the incarnations of those that promise */
};

/* ---- aside.c ---- */
struct aside {
    bool hangs;    /* the own disk */
    bool stepped;  /* aside, and nobody has taken over yet */
    uint8_t doubt; /* slots, as the driver said last */
    uint64_t doubt_at, doubt_since, again_at;
};

/* ---- flap.c ---- */
struct flap {
    uint32_t falls;    /* out of the set, one soon after the other */
    uint64_t in_since; /* when it was admitted last */
    uint64_t back_at;  /* when it fell out, or its link came up: what its delay counts from */
};

struct proposal {
    enum pms_dp_transition kind;
    uint64_t epoch, at;
    uint8_t primary, in_sync;
};

struct pms_dp {
    struct pms_dp_init init;
    uint8_t self;
    uint32_t chunk_bytes;
    uint64_t now;
    struct pms_dp_conf conf;
    bool live;
    enum pms_dp_role role;
    struct dreq *dreqs;
    uint32_t dreqs_n;
    struct pms_dp_action *acts; /* queue: [acts_head, acts_tail) of acts_cap */
    uint32_t acts_head, acts_tail, acts_cap;
    uint8_t link_up;                      /* mask of slots whose own link is up */
    uint64_t up_nodes[4 * PMS_SLOTS_MAX]; /* nodes whose own link is up, known as slots or not; 0 = free */
    uint64_t boot;
    uint64_t seq;

    struct brick brick;
    struct replica rep;
    struct cand cand;
    struct proposal prop;
    struct aside aside;
    struct flap flap[PMS_SLOTS_MAX];

    /* leave.c */
    bool leaving;
    uint64_t next_goodbye;

    /* primary only */
    bool starting; /* floor and served are being made durable for conf.epoch */
    uint64_t starting_since;
    bool epoch_active; /* frames of conf.epoch may be sent (R2, R8) */
    uint8_t admitting; /* slots of an admit whose outcome is unknown (R3) */
    uint64_t admit_since;
    bool draining;
    uint8_t handover_to;
    uint64_t handover_since;
    uint64_t gone_until[PMS_SLOTS_MAX]; /* the slot said goodbye: not taken back before */
    uint8_t eject_now;                  /* slots that answered with an error that will not pass */
    uint64_t higher_floor;              /* highest floor seen above conf.epoch: refresh (R8) */
    uint64_t tenure_since, tenure_epoch;
    uint64_t lease_until[PMS_SLOTS_MAX], last_ack[PMS_SLOTS_MAX];
    uint64_t hb_sent;                 /* sequence of the last heartbeats */
    uint64_t hb_acked[PMS_SLOTS_MAX]; /* the highest one that the slot answered with OK */
    bool probe_wanted;                /* a read waits for heartbeats that are not sent yet */
    uint64_t next_hb, next_clear;
    /* write cache: bytes acknowledged as volatile in this tenure, those known to be stable by now, and when
     * the oldest of the others was answered */
    uint64_t volatile_total, stable_total, volatile_since;
    bool own_flush;         /* the primary's own is queued or under way */
    bool flush_wanted;      /* by what waits for it to clear regions */
    uint32_t flushed_clock; /* when the last flush began that covered all slots, as last_use; 0: none did */
    bool lossy;
    uint64_t last_tick, smooth_since; /* a pause of this node is not held against the others */
    struct pms_list cops;
    uint32_t cops_queued, cops_active;
    bool recheck_done, recheck_start; /* look at all cops again */
    struct sess sess[PMS_SLOTS_MAX];
    struct pms_list jobs;
    uint8_t *seen;      /* regions that may be marked dirty on any slot */
    uint32_t *last_use; /* per region: when written last, in units of 256 ms, for clearing */
    uint64_t counters_writes, counters_reads, counters_flushes, counters_takeovers;
    uint64_t resync_sent;
    struct pms_dp_status told;
};

/* dp.c */
struct pms_dp_action *dp_act(struct pms_dp *dp, enum pms_dp_action_type type);
uint64_t dp_dreq_new(struct pms_dp *dp, enum dreq_kind kind, void *ptr);
void dp_dreq_forget(struct pms_dp *dp, const void *ptr);
void dp_disk(struct pms_dp *dp, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset, uint32_t length,
             struct pms_iobuf *buf, uint32_t buf_off);
/* A request frame with the usual identity; the caller fills the rest and sends it. */
struct pms_frame dp_frame(struct pms_dp *dp, uint8_t type, uint8_t to);
void dp_send(struct pms_dp *dp, uint8_t to, struct pms_frame *f, struct pms_iobuf *buf, uint32_t buf_off);
void dp_answer(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *req, uint8_t type,
               uint8_t status, struct pms_iobuf *payload);
void dp_propose(struct pms_dp *dp, enum pms_dp_transition kind, uint8_t primary, uint8_t in_sync,
                const uint64_t *incarnation);
bool dp_is_primary(const struct pms_dp *dp);
bool dp_self_in_sync(const struct pms_dp *dp);
bool dp_self_unclean(const struct pms_dp *dp);
uint64_t dp_incarnation(const struct pms_dp *dp,
                        uint8_t slot); /* that the primary believes the slot to have */
void dp_stepdown(struct pms_dp *dp);
static inline bool bit_get(const uint8_t *b, uint32_t i)
{
    return (b[i / 8] >> (i % 8)) & 1;
}
static inline void bit_set(uint8_t *b, uint32_t i)
{
    b[i / 8] |= (uint8_t)(1u << (i % 8));
}
static inline void bit_clear(uint8_t *b, uint32_t i)
{
    b[i / 8] &= (uint8_t) ~(1u << (i % 8));
}
static inline bool overlap(uint64_t a, uint32_t alen, uint64_t b, uint32_t blen)
{
    return a < b + blen && b < a + alen;
}

static inline uint8_t dp_write_frame(const struct cop *c)
{
    return c->op->type == PMS_DP_ZERO ? PMS_FRAME_ZERO : PMS_FRAME_WRITE;
}

/* brick.c */
int dp_brick_load(struct pms_dp *dp, const uint8_t cluster_uuid[16], const uint8_t *area);
void dp_brick_free(struct pms_dp *dp);
void dp_brick_mark(struct pms_dp *dp, uint64_t offset, uint32_t length);
bool dp_brick_marked(const struct pms_dp *dp, uint64_t offset, uint32_t length);
void dp_brick_unmark(struct pms_dp *dp, uint32_t region);
void dp_brick_volatile_mark(struct pms_dp *dp);
bool dp_brick_volatile_marked(const struct pms_dp *dp);
void dp_brick_tick(struct pms_dp *dp);
bool dp_brick_pump(struct pms_dp *dp);
void dp_brick_written(struct pms_dp *dp);
void dp_brick_flushed(struct pms_dp *dp);
void dp_brick_fail(struct pms_dp *dp);
uint32_t dp_bits_bytes(const struct pms_dp *dp);
uint32_t dp_bits_count(const struct pms_dp *dp, const uint8_t *bits);

/* replica.c */
void dp_replica_init(struct pms_dp *dp, uint64_t now);
void dp_replica_free(struct pms_dp *dp);
int dp_replica_frame(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f,
                     struct pms_iobuf *buf);
void dp_replica_write_local(struct pms_dp *dp, const struct cop *c);
void dp_replica_flush_local(struct pms_dp *dp, const struct cop *c);
void dp_replica_io_done(struct pms_dp *dp, struct rop *r);
void dp_replica_flushed(struct pms_dp *dp);
void dp_replica_fail(struct pms_dp *dp);
void dp_replica_cancel_local(struct pms_dp *dp);
bool dp_replica_pump(struct pms_dp *dp);
bool dp_replica_promised(const struct pms_dp *dp,
                         uint8_t to); /* a living promise to someone else than `to` */
void dp_fence(struct pms_dp *dp, uint64_t epoch);
bool dp_fence_done(const struct pms_dp *dp, uint64_t epoch);

/* takeover.c */
void dp_cand_tick(struct pms_dp *dp);
void dp_cand_link_up(struct pms_dp *dp, uint8_t slot);
bool dp_cand_pump(struct pms_dp *dp);
void dp_cand_abort(struct pms_dp *dp, uint32_t backoff_ms);
void dp_cand_answer(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f, const struct pms_iobuf *buf);
bool dp_cand_matches(const struct pms_dp *dp, const struct pms_dp_conf *conf);

/* primary.c */
void dp_primary_start(struct pms_dp *dp, const uint8_t *settle_bits);
void dp_primary_begin_epoch(struct pms_dp *dp);
void dp_primary_same(struct pms_dp *dp);
void dp_primary_tick(struct pms_dp *dp);
bool dp_primary_pump(struct pms_dp *dp);
void dp_primary_stop(struct pms_dp *dp);
void dp_primary_hb_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f);
void dp_primary_refused(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f);
uint8_t dp_primary_must(const struct pms_dp *dp);
bool dp_primary_leased(const struct pms_dp *dp);
uint64_t dp_primary_probe(struct pms_dp *dp);
bool dp_primary_probed(const struct pms_dp *dp, uint64_t probe);

int dp_primary_handover(struct pms_dp *dp, uint8_t slot);

/* aside.c */
void dp_aside_tick(struct pms_dp *dp);
bool dp_aside_instead(struct pms_dp *dp,
                      uint8_t eject);   /* of ejecting these slots; true: it is no primary any more */
void dp_aside_epoch(struct pms_dp *dp); /* a newer one was applied */
enum pms_dp_ail dp_aside_ailing(const struct pms_dp *dp);

/* flap.c */
void dp_flap_epoch(struct pms_dp *dp, const struct pms_dp_conf *old); /* dp->conf follows old */
void dp_flap_link_up(struct pms_dp *dp, uint8_t slot);
uint32_t dp_flap_wait_ms(const struct pms_dp *dp, uint8_t slot); /* before the slot is taken back */

/* leave.c */
void dp_leave_tick(struct pms_dp *dp);
void dp_leave_goodbye(struct pms_dp *dp, const struct pms_frame *f);
bool dp_leave_is_gone(const struct pms_dp *dp, uint8_t slot);

/* coord.c */
void dp_coord_submit(struct pms_dp *dp, struct pms_dp_op *op);
struct cop *dp_coord_lock(struct pms_dp *dp, struct job *j);
void dp_coord_unlock(struct pms_dp *dp, struct cop *c);
void dp_coord_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq);
void dp_coord_read_done(struct pms_dp *dp, struct cop *c, int status);
void dp_coord_resend(struct pms_dp *dp, uint8_t slots);
void dp_coord_drop_all(struct pms_dp *dp);
bool dp_coord_pump(struct pms_dp *dp);
uint64_t dp_coord_oldest(const struct pms_dp *dp,
                         uint8_t slot); /* start of the oldest write unacknowledged by slot; 0 */
void dp_coord_flush(struct pms_dp *dp);
bool dp_coord_region_busy(const struct pms_dp *dp, uint32_t region);

/* repair.c */
void dp_repair_settle(struct pms_dp *dp, uint8_t slot, const uint8_t *bits);
void dp_repair_map(struct pms_dp *dp, uint8_t slot);
void dp_repair_map_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f,
                       const struct pms_iobuf *buf);
void dp_repair_sums_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f,
                        const struct pms_iobuf *buf);
bool dp_repair_flush_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq);
bool dp_repair_write_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq);
void dp_repair_read_done(struct pms_dp *dp, struct job *j);
void dp_repair_locked(struct pms_dp *dp, struct job *j);
void dp_repair_end(struct pms_dp *dp, uint8_t slot, uint32_t retry_ms);
void dp_repair_link_down(struct pms_dp *dp, uint8_t slot);
void dp_repair_refused(struct pms_dp *dp, uint8_t slot);
void dp_repair_stop(struct pms_dp *dp);
bool dp_repair_pump(struct pms_dp *dp);
bool dp_repair_unsettled(const struct pms_dp *dp, uint64_t offset, uint32_t length);
bool dp_repair_settling(const struct pms_dp *dp);
bool dp_repair_wants_write(const struct pms_dp *dp, uint8_t slot, uint64_t offset, uint32_t length);
bool dp_repair_caught_up(const struct pms_dp *dp, uint8_t slot);
uint64_t dp_repair_oldest(const struct pms_dp *dp, uint8_t slot);
uint8_t dp_repair_active(const struct pms_dp *dp); /* mask of slots being resynced */

#endif
