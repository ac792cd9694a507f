// SPDX-License-Identifier: GPL-2.0-or-later
// The replica: what this node does with its own brick for whoever is primary (itself included), and what it
// promises.
/*
 * Happy path of a write: gate (epoch == floor, floor durable) -> its regions marked dirty durably -> no older
 * overlapping write at work -> disk -> flush (grouped) -> WRITE_ACK. A frame of a lower epoch is answered
 * STALE; one of a higher epoch first raises the floor durably and waits parked (R10). A promise, or a map for
 * resync, fences: floor durable, older writes not yet started cancelled, started ones over (R5). A failed
 * brick answers IO_ERROR to everything.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "datapath/core/dp_internal.h"

#define PROMISED_BACKOFF_MS 500
#define ASKED_BACKOFF_MS    100

static const uint8_t ack_of[PMS_FRAME_TYPE_END] = {
    [PMS_FRAME_HB] = PMS_FRAME_HB_ACK,       [PMS_FRAME_WRITE] = PMS_FRAME_WRITE_ACK,
    [PMS_FRAME_ASK] = PMS_FRAME_ASK_ACK,     [PMS_FRAME_PROMISE] = PMS_FRAME_PROMISE_ACK,
    [PMS_FRAME_MAP] = PMS_FRAME_MAP_ACK,     [PMS_FRAME_SUMS] = PMS_FRAME_SUMS_ACK,
    [PMS_FRAME_FLUSH] = PMS_FRAME_FLUSH_ACK, [PMS_FRAME_ZERO] = PMS_FRAME_WRITE_ACK,
};

void dp_replica_init(struct pms_dp *dp, uint64_t now)
{
    struct replica *r = &dp->rep;
    const struct pms_dp_timing *t = &dp->init.timing;
    uint32_t quiet = t->quiet > t->promise ? t->quiet : t->promise;

    pms_list_init(&r->rops);
    pms_list_init(&r->parked);
    pms_list_init(&r->fences);
    r->promise_to = NO_SLOT;
    r->quiet_until = now + MS(quiet) + MS(quiet) / 10;
    if (PMS_MUTANT(NO_PROMISE_WAIT))
        r->quiet_until = now;
}

static void rop_free(struct pms_dp *dp, struct rop *r)
{
    if (r->state == ROP_WAIT)
        dp->rep.rops_waiting--;
    dp_dreq_forget(dp, r);
    pms_list_del(&r->link);
    pms_iobuf_put(r->buf);
    free(r);
}

static void fence_free(struct fence *f)
{
    pms_list_del(&f->link);
    free(f);
}

static void parked_free(struct parked *p)
{
    pms_list_del(&p->link);
    pms_iobuf_put(p->buf);
    free(p);
}

void dp_replica_free(struct pms_dp *dp)
{
    pms_list_for_each_safe (p, &dp->rep.rops)
        rop_free(dp, pms_list_entry(p, struct rop, link));
    pms_list_for_each_safe (p, &dp->rep.fences)
        fence_free(pms_list_entry(p, struct fence, link));
    pms_list_for_each_safe (p, &dp->rep.parked)
        parked_free(pms_list_entry(p, struct parked, link));
}

/* Answers a rop, to the peer or to the own coordinator, and frees it. */
static void rop_finish(struct pms_dp *dp, struct rop *r, uint8_t status, struct pms_iobuf *payload)
{
    struct pms_frame f = r->f;
    uint64_t node = r->node, conn = r->conn;

    rop_free(dp, r);
    if (node != dp->init.self_node)
        dp_answer(dp, node, conn, &f, ack_of[f.type], status, payload);
    else if (status == PMS_FRAME_OK)
        dp_coord_ack(dp, dp->self, f.seq);
}

static void rops_cancel_below(struct pms_dp *dp, uint64_t epoch)
{
    pms_list_for_each_safe (p, &dp->rep.rops) {
        struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->state == ROP_WAIT && r->f.epoch < epoch)
            rop_finish(dp, r, PMS_FRAME_STALE, NULL);
    }
}

void dp_replica_cancel_local(struct pms_dp *dp)
{
    pms_list_for_each_safe (p, &dp->rep.rops) {
        struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->state == ROP_WAIT && r->node == dp->init.self_node)
            rop_free(dp, r);
    }
}

void dp_fence(struct pms_dp *dp, uint64_t epoch)
{
    if (dp->brick.mem.floor < epoch)
        dp->brick.mem.floor = epoch;
    if (!PMS_MUTANT(EPOCH_UNCHECKED))
        rops_cancel_below(dp, dp->brick.mem.floor);
}

bool dp_fence_done(const struct pms_dp *dp, uint64_t epoch)
{
    if (dp->brick.disk.floor < epoch && !PMS_MUTANT(FLOOR_VOLATILE))
        return false;
    if (dp->brick.disk.incarnation != dp->brick.mem.incarnation)
        return false; /* what it became must be known also after the next crash */
    if (PMS_MUTANT(NO_DRAIN))
        return true;
    pms_list_for_each (p, &dp->rep.rops) {
        const struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->kind == ROP_WRITE && r->state != ROP_WAIT && r->f.epoch < epoch)
            return false; /* also one that only waits for its flush: what is compared and found equal must be
                             stable */
    }
    return true;
}

bool dp_replica_promised(const struct pms_dp *dp, uint8_t to)
{
    if (PMS_MUTANT(NO_PROMISE_WAIT))
        return false;
    return dp->now < dp->rep.promise_until && dp->rep.promise_to != to;
}

static struct pms_iobuf *dirty_map(struct pms_dp *dp)
{
    struct pms_iobuf *b = pms_iobuf_create(dp_bits_bytes(dp));

    memcpy(b->data, dp->brick.bits_mem, dp_bits_bytes(dp));
    return b;
}

/* ---- the frames ---- */
/* Meant for another incarnation of this slot. */
static bool is_foreign(const struct pms_dp *dp, const struct pms_frame *f)
{
    return f->arg2 != dp->brick.mem.incarnation && !PMS_MUTANT(INCARNATION_IGNORED);
}

static void on_hb(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f)
{
    struct replica *r = &dp->rep;
    uint64_t until = dp->now + MS(f->length);

    if (is_foreign(dp, f)) {
        dp_answer(dp, node, conn, f, PMS_FRAME_HB_ACK, PMS_FRAME_INCARNATION, NULL);
        return;
    }
    if (dp->role == PMS_DP_CANDIDATE)
        dp_cand_abort(dp, 0);
    if (until > r->promise_until)
        r->promise_until = until;
    r->promise_to = f->from_slot;
    r->last_hb = dp->now;
    dp_answer(dp, node, conn, f, PMS_FRAME_HB_ACK, PMS_FRAME_OK, NULL);
}

static struct rop *rop_new(struct pms_dp *dp, enum rop_kind kind, uint64_t node, uint64_t conn,
                           const struct pms_frame *f, struct pms_iobuf *buf)
{
    struct rop *r = calloc(1, sizeof *r);

    PMS_CHECK(r != NULL);
    r->kind = kind;
    r->node = node;
    r->conn = conn;
    r->f = *f;
    r->buf = buf != NULL ? pms_iobuf_ref(buf) : NULL;
    pms_list_add_tail(&dp->rep.rops, &r->link);
    if (kind == ROP_FLUSH)
        r->state = ROP_WRITTEN; /* like a write that only waits for the next flush */
    else
        dp->rep.rops_waiting++;
    if (kind == ROP_WRITE)
        dp_brick_mark(dp, f->offset, f->length);
    if (kind == ROP_WRITE && (f->flags & PMS_FRAME_F_VOLATILE))
        dp_brick_volatile_mark(dp);
    return r;
}

/* The same for a peer, who may mean another incarnation of this slot. */
static void rop_take(struct pms_dp *dp, enum rop_kind kind, uint64_t node, uint64_t conn,
                     const struct pms_frame *f, struct pms_iobuf *buf)
{
    if (is_foreign(dp, f))
        dp_answer(dp, node, conn, f, ack_of[f->type], PMS_FRAME_INCARNATION, NULL);
    else
        rop_new(dp, kind, node, conn, f, buf);
}

static void on_clear(struct pms_dp *dp, const struct pms_frame *f, const struct pms_iobuf *buf)
{
    if (is_foreign(dp, f))
        return; /* meant for the brick that was here before: this one's marks say what it lacks */
    for (uint32_t i = 0; i + 4 <= f->payload_len; i += 4) {
        uint32_t region;
        bool busy = false;

        memcpy(&region, buf->data + i, 4);
        if (region >= dp->brick.regions)
            continue;
        pms_list_for_each (p, &dp->rep.rops) {
            const struct rop *r = pms_list_entry(p, struct rop, link);

            busy |= r->kind == ROP_WRITE &&
                    overlap(r->f.offset, r->f.length, (uint64_t)region * dp->init.region_bytes,
                            dp->init.region_bytes);
        }
        if (!busy || PMS_MUTANT(CLEAR_BUSY))
            dp_brick_unmark(dp, region);
    }
}

static void fence_new(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f)
{
    struct fence *n = calloc(1, sizeof *n);

    PMS_CHECK(n != NULL);
    n->node = node;
    n->conn = conn;
    n->f = *f;
    pms_list_add_tail(&dp->rep.fences, &n->link);
    dp_fence(dp, f->epoch);
}

/* A frame of a committed epoch that passed the gate. */
static void on_gated(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f,
                     struct pms_iobuf *buf)
{
    switch (f->type) {
    case PMS_FRAME_HB:
        on_hb(dp, node, conn, f);
        break;
    case PMS_FRAME_WRITE:
    case PMS_FRAME_ZERO:
        rop_take(dp, ROP_WRITE, node, conn, f, buf);
        break;
    case PMS_FRAME_SUMS:
        rop_take(dp, ROP_SUMS, node, conn, f, NULL);
        break;
    case PMS_FRAME_FLUSH:
        rop_take(dp, ROP_FLUSH, node, conn, f, NULL);
        break;
    case PMS_FRAME_CLEAR:
        on_clear(dp, f, buf);
        break;
    case PMS_FRAME_MAP:
        fence_new(dp, node, conn, f);
        break;
    default:
        PMS_CHECK_MSG(false, "frame type %u", f->type);
    }
}

/* May this node help, or be asked about, a takeover into f->epoch by f->from_slot? */
static uint8_t promise_verdict(struct pms_dp *dp, const struct pms_frame *f)
{
    if (dp->brick.mem.floor > f->epoch)
        return PMS_FRAME_STALE;
    if (dp->conf.epoch >= f->epoch)
        return PMS_FRAME_STALE;
    if (is_foreign(dp, f))
        return f->arg2 == dp->brick.mem.ancestor ? PMS_FRAME_UNCLEAN : PMS_FRAME_INCARNATION;
    /* One that has drained, or whose disk does not let it begin its epoch, is no living primary. */
    if (dp_is_primary(dp) && dp->conf.epoch + 1 == f->epoch && dp->role != PMS_DP_DRAINED &&
        !(dp->starting && dp->now >= dp->starting_since + MS(dp->init.timing.promise)))
        return PMS_FRAME_VETO;
    if (dp_replica_promised(dp, f->from_slot))
        return PMS_FRAME_VETO;
    if (dp->now < dp->rep.quiet_until && f->from_slot != dp->conf.primary)
        return PMS_FRAME_NOT_READY;
    return PMS_FRAME_OK;
}

static void on_promise(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f)
{
    uint8_t v = promise_verdict(dp, f);

    if (v != PMS_FRAME_OK) {
        dp_answer(dp, node, conn, f, PMS_FRAME_PROMISE_ACK, v, NULL);
        return;
    }
    if (dp_is_primary(dp))
        dp_stepdown(dp);
    dp_cand_abort(dp, PROMISED_BACKOFF_MS); /* the other one gets its chance */
    fence_new(dp, node, conn, f);
}

static int check_sizes(const struct pms_dp *dp, const struct pms_frame *f, const struct pms_iobuf *buf)
{
    if ((f->payload_len > 0) != (buf != NULL) || (buf != NULL && buf->len < f->payload_len))
        return PMS_EPROTO;
    switch (f->type) {
    case PMS_FRAME_HB:
        return f->payload_len == 0 && f->length <= 60000 ? 0 : PMS_EPROTO;
    case PMS_FRAME_CLEAR:
        return f->payload_len % 4 == 0 ? 0 : PMS_EPROTO;
    case PMS_FRAME_WRITE:
        if (f->length != f->payload_len)
            return PMS_EPROTO;
        break;
    case PMS_FRAME_ZERO:
        if (f->payload_len != 0 || f->length > PMS_ZERO_BYTES_MAX)
            return PMS_EPROTO;
        break;
    case PMS_FRAME_SUMS:
        if (f->payload_len != 0 || f->length > dp->init.region_bytes || f->arg != dp->chunk_bytes)
            return PMS_EPROTO;
        break;
    default:
        return f->payload_len == 0 ? 0 : PMS_EPROTO;
    }
    if (f->length == 0 || f->length % 512 != 0 || f->offset % 512 != 0 || f->offset > dp->init.size_bytes ||
        f->length > dp->init.size_bytes - f->offset)
        return PMS_EPROTO;
    return 0;
}

int dp_replica_frame(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f,
                     struct pms_iobuf *buf)
{
    struct brick *b = &dp->brick;
    int err = check_sizes(dp, f, buf);

    if (err != 0)
        return err;
    if (f->type == PMS_FRAME_GOODBYE) {
        dp_leave_goodbye(dp, f);
        return 0;
    }
    if (b->failed || (dp->aside.hangs && (f->type == PMS_FRAME_ASK || f->type == PMS_FRAME_PROMISE ||
                                          f->type == PMS_FRAME_MAP))) {
        if (ack_of[f->type] != 0)
            dp_answer(dp, node, conn, f, ack_of[f->type], PMS_FRAME_IO_ERROR, NULL);
        return 0;
    }
    if (f->type == PMS_FRAME_ASK) {
        uint8_t v = promise_verdict(dp, f);

        bool yields = f->arg == 0 || !dp_self_in_sync(dp); /* not a clean one to an unclean one */

        if ((v == PMS_FRAME_OK || v == PMS_FRAME_UNCLEAN) && dp->role == PMS_DP_REPLICA && yields)
            dp_cand_abort(dp, ASKED_BACKOFF_MS);
        dp_answer(dp, node, conn, f, PMS_FRAME_ASK_ACK, v, NULL);
        return 0;
    }
    if (f->type == PMS_FRAME_PROMISE) {
        on_promise(dp, node, conn, f);
        return 0;
    }
    if (f->epoch < b->mem.floor && !PMS_MUTANT(EPOCH_UNCHECKED)) {
        if (ack_of[f->type] != 0)
            dp_answer(dp, node, conn, f, ack_of[f->type], PMS_FRAME_STALE, NULL);
        return 0;
    }
    if (f->epoch > b->mem.floor) {
        if (dp_is_primary(dp) && !PMS_MUTANT(EPOCH_UNCHECKED))
            dp_stepdown(dp);
        if (dp->role == PMS_DP_CANDIDATE)
            dp_cand_abort(dp, 0);
        dp_fence(dp, f->epoch);
    }
    if (b->disk.floor < f->epoch || !pms_list_empty(&dp->rep.parked)) {
        struct parked *p = calloc(1, sizeof *p);

        PMS_CHECK(p != NULL);
        p->node = node;
        p->conn = conn;
        p->f = *f;
        p->buf = buf != NULL ? pms_iobuf_ref(buf) : NULL;
        pms_list_add_tail(&dp->rep.parked, &p->link);
        return 0;
    }
    on_gated(dp, node, conn, f, buf);
    return 0;
}

void dp_replica_write_local(struct pms_dp *dp, const struct cop *c)
{
    struct pms_frame f = dp_frame(dp, dp_write_frame(c), dp->self);

    if (dp->brick.failed || f.epoch < dp->brick.mem.floor)
        return; /* the coordinator learns of it by stepping down or by its own refresh */
    f.seq = c->seq;
    f.offset = c->offset;
    f.length = c->length;
    if (c->is_volatile)
        f.flags = PMS_FRAME_F_VOLATILE;
    rop_new(dp, ROP_WRITE, dp->init.self_node, 0, &f, c->op->buf);
}

void dp_replica_flush_local(struct pms_dp *dp, const struct cop *c)
{
    struct pms_frame f = dp_frame(dp, PMS_FRAME_FLUSH, dp->self);

    if (dp->brick.failed || f.epoch < dp->brick.mem.floor)
        return;
    f.seq = c->seq;
    rop_new(dp, ROP_FLUSH, dp->init.self_node, 0, &f, NULL);
}

/* ---- the brick's answers ---- */
static void sums_answer(struct pms_dp *dp, struct rop *r)
{
    uint32_t chunk = dp->chunk_bytes, n = (r->f.length + chunk - 1) / chunk;
    struct pms_iobuf *out = pms_iobuf_create(n * 16);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = r->f.length - i * chunk < chunk ? r->f.length - i * chunk : chunk;
        XXH128_canonical_t c;

        XXH128_canonicalFromHash(&c, XXH3_128bits(r->buf->data + i * chunk, len));
        memcpy(out->data + i * 16, &c, 16);
    }
    rop_finish(dp, r, PMS_FRAME_OK, out);
}

void dp_replica_io_done(struct pms_dp *dp, struct rop *r)
{
    if (r->kind == ROP_SUMS) {
        sums_answer(dp, r);
    } else if (PMS_MUTANT(UNFLUSHED_ACK)) {
        rop_finish(dp, r, PMS_FRAME_OK, NULL);
    } else if (r->f.flags & PMS_FRAME_F_VOLATILE) {
        dp->brick.volatile_since = true;
        dp->brick.last_volatile = dp->now;
        rop_finish(dp, r, PMS_FRAME_OK, NULL);
    } else {
        r->state = ROP_WRITTEN;
    }
}

void dp_replica_flushed(struct pms_dp *dp)
{
    pms_list_for_each_safe (p, &dp->rep.rops) {
        struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->state == ROP_WRITTEN && r->flush_no != 0 && r->flush_no <= dp->brick.flush_no)
            rop_finish(dp, r, PMS_FRAME_OK, NULL);
    }
}

void dp_replica_fail(struct pms_dp *dp)
{
    pms_list_for_each_safe (p, &dp->rep.rops)
        rop_finish(dp, pms_list_entry(p, struct rop, link), PMS_FRAME_IO_ERROR, NULL);
    pms_list_for_each_safe (p, &dp->rep.parked) {
        struct parked *k = pms_list_entry(p, struct parked, link);

        if (ack_of[k->f.type] != 0)
            dp_answer(dp, k->node, k->conn, &k->f, ack_of[k->f.type], PMS_FRAME_IO_ERROR, NULL);
        parked_free(k);
    }
    pms_list_for_each_safe (p, &dp->rep.fences) {
        struct fence *k = pms_list_entry(p, struct fence, link);

        dp_answer(dp, k->node, k->conn, &k->f, ack_of[k->f.type], PMS_FRAME_IO_ERROR, NULL);
        fence_free(k);
    }
}

/* ---- progress ---- */
static bool blocked(struct pms_dp *dp, const struct rop *r)
{
    for (const struct pms_list *p = r->link.prev; p != &dp->rep.rops; p = p->prev) {
        const struct rop *e = pms_list_entry(p, struct rop, link);

        if (e->state == ROP_WRITTEN && r->kind == ROP_WRITE)
            continue; /* the disk keeps their order; a checksum waits until it is of stable data */
        if (e->kind == ROP_WRITE && r->kind == ROP_WRITE && PMS_MUTANT(OVERLAP_ALLOWED))
            continue;
        if (PMS_MUTANT(ZERO_UNORDERED) && (e->f.type == PMS_FRAME_ZERO || r->f.type == PMS_FRAME_ZERO))
            continue;
        if ((e->kind == ROP_WRITE || r->kind == ROP_WRITE) &&
            overlap(e->f.offset, e->f.length, r->f.offset, r->f.length))
            return true;
    }
    return false;
}

static enum pms_dp_disk_type disk_type(const struct rop *r)
{
    if (r->kind == ROP_SUMS)
        return PMS_DP_DISK_READ;
    return r->f.type == PMS_FRAME_ZERO ? PMS_DP_DISK_ZERO : PMS_DP_DISK_WRITE;
}

static bool rops_start(struct pms_dp *dp)
{
    bool any = false;

    if (dp->rep.rops_waiting == 0)
        return false;
    pms_list_for_each_safe (p, &dp->rep.rops) {
        struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->state != ROP_WAIT || blocked(dp, r) ||
            (r->kind == ROP_WRITE && !dp_brick_marked(dp, r->f.offset, r->f.length)) ||
            ((r->f.flags & PMS_FRAME_F_VOLATILE) && !dp_brick_volatile_marked(dp)))
            continue;
        if (r->kind == ROP_SUMS)
            r->buf = pms_iobuf_create(r->f.length);
        r->state = ROP_DISK;
        dp->rep.rops_waiting--;
        dp_disk(dp, disk_type(r), dp_dreq_new(dp, DREQ_ROP, r), PMS_BRICK_DATA_OFFSET + r->f.offset,
                r->f.length, r->buf != NULL ? pms_iobuf_ref(r->buf) : NULL, r->buf_off);
        any = true;
    }
    return any;
}

static bool fences_answer(struct pms_dp *dp)
{
    bool any = false;

    pms_list_for_each_safe (p, &dp->rep.fences) {
        struct fence *k = pms_list_entry(p, struct fence, link);
        uint8_t status = k->f.epoch < dp->brick.mem.floor ? PMS_FRAME_STALE : PMS_FRAME_OK;

        if (status == PMS_FRAME_OK && !dp_fence_done(dp, k->f.epoch))
            continue;
        dp_answer(dp, k->node, k->conn, &k->f, ack_of[k->f.type], status,
                  status == PMS_FRAME_OK ? dirty_map(dp) : NULL);
        fence_free(k);
        any = true;
    }
    return any;
}

static bool parked_deliver(struct pms_dp *dp)
{
    bool any = false;

    pms_list_for_each_safe (p, &dp->rep.parked) {
        struct parked *k = pms_list_entry(p, struct parked, link);

        if (k->f.epoch < dp->brick.mem.floor) {
            if (ack_of[k->f.type] != 0)
                dp_answer(dp, k->node, k->conn, &k->f, ack_of[k->f.type], PMS_FRAME_STALE, NULL);
        } else if (dp->brick.disk.floor < k->f.epoch) {
            break;
        } else {
            on_gated(dp, k->node, k->conn, &k->f, k->buf);
        }
        parked_free(k);
        any = true;
    }
    return any;
}

bool dp_replica_pump(struct pms_dp *dp)
{
    bool any = parked_deliver(dp);

    any |= fences_answer(dp);
    any |= rops_start(dp);
    return any;
}
