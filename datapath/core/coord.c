// SPDX-License-Identifier: GPL-2.0-or-later
// The coordinator: clients' commands in order, mirrored to all in-sync slots (I1, I5, R1).
/*
 * Happy path of a write: no older overlapping operation -> region settled -> to the own brick and every other
 * slot at once -> all that must have it (in-sync, being admitted, being resynced and sent) acknowledged it,
 * and the lease holds -> COMPLETE. A read waits likewise, reads the own brick, and is answered only under the
 * lease (I3). A lapse holds answers; a refused or lost frame is sent again in the next epoch or on the next
 * link; stepping down drops all.
 *
 * With the write cache on a write without FUA is flagged volatile for the in-sync slots, which then answer before
 * it is stable. A flush goes to every slot that a write would go to, and is answered when all of them flushed;
 * the primary flushes by itself, so that little is volatile and not for long. When too much is, a write is not
 * flagged: whoever writes faster than the disks waits for them.
 *
 * Zeroing is a write in everything but what travels: a ZERO names its range and carries no payload.
 */
#include <errno.h>
#include <stdlib.h>

#include "datapath/core/dp_internal.h"

static bool serving(const struct pms_dp *dp)
{
    return dp_is_primary(dp) && dp->epoch_active;
}

static struct cop *cop_new(struct pms_dp *dp, enum cop_kind kind, uint64_t offset, uint32_t length)
{
    struct cop *c = calloc(1, sizeof *c);

    PMS_CHECK(c != NULL);
    c->kind = kind;
    c->offset = offset;
    c->length = length;
    pms_list_add_tail(&dp->cops, &c->link);
    dp->cops_queued++;
    return c;
}

static void cop_free(struct pms_dp *dp, struct cop *c)
{
    if (c->state == COP_QUEUED)
        dp->cops_queued--;
    else
        dp->cops_active--;
    if (c->kind == COP_FLUSH && c->op == NULL)
        dp->own_flush = false;
    dp_dreq_forget(dp, c);
    pms_list_del(&c->link);
    free(c);
    dp->recheck_start = true;
}

static void complete(struct pms_dp *dp, struct pms_dp_op *op, int status)
{
    struct pms_dp_action *a;

    if (op == NULL)
        return; /* the primary's own */
    a = dp_act(dp, PMS_DP_ACT_COMPLETE);
    a->op.op = op;
    a->op.status = status;
}

static bool conflict(enum cop_kind a, enum cop_kind b)
{
    if (a == COP_FLUSH || b == COP_FLUSH)
        return false;
    if (a == COP_COPY || b == COP_COPY)
        return (a == COP_WRITE || b == COP_WRITE) && !PMS_MUTANT(COPY_UNLOCKED);
    if ((a == COP_READ || b == COP_READ) && PMS_MUTANT(READ_INFLIGHT))
        return false;
    if (a == COP_WRITE && b == COP_WRITE && PMS_MUTANT(OVERLAP_ALLOWED))
        return false;
    return a == COP_WRITE || b == COP_WRITE;
}

static bool is_zero(const struct cop *c)
{
    return c->op != NULL && c->op->type == PMS_DP_ZERO;
}

static bool must_wait(const struct pms_dp *dp, const struct cop *c)
{
    if (!serving(dp))
        return true;
    if (c->kind == COP_FLUSH)
        return false;
    if (c->op != NULL && dp_repair_unsettled(dp, c->offset, c->length))
        return true;
    for (const struct pms_list *p = c->link.prev; p != &dp->cops; p = p->prev) {
        const struct cop *e = pms_list_entry(p, struct cop, link);

        if (PMS_MUTANT(ZERO_UNORDERED) && (is_zero(e) || is_zero(c)))
            continue;
        if (conflict(e->kind, c->kind) && overlap(e->offset, e->length, c->offset, c->length))
            return true;
    }
    return false;
}

static void touch(struct pms_dp *dp, const struct cop *c)
{
    uint32_t first = (uint32_t)(c->offset / dp->init.region_bytes);
    uint32_t last = (uint32_t)((c->offset + c->length - 1) / dp->init.region_bytes);

    for (uint32_t r = first; r <= last; r++) {
        bit_set(dp->seen, r);
        dp->last_use[r] = (uint32_t)(dp->now / MS(256));
    }
}

static void send_write(struct pms_dp *dp, const struct cop *c, uint8_t slots)
{
    if (slots & BIT(dp->self))
        dp_replica_write_local(dp, c);
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        if (s == dp->self || !(slots & dp->link_up & BIT(s)))
            continue;
        struct pms_frame f = dp_frame(dp, dp_write_frame(c), s);

        f.seq = c->seq;
        f.offset = c->offset;
        f.length = c->length;
        f.payload_len = c->op->buf != NULL ? c->length : 0;
        f.arg2 = dp_incarnation(dp, s);
        if (c->is_volatile && (dp->conf.in_sync & BIT(s)))
            f.flags = PMS_FRAME_F_VOLATILE;
        dp_send(dp, s, &f, c->op->buf, 0);
    }
}

static void send_flush(struct pms_dp *dp, const struct cop *c, uint8_t slots)
{
    if (slots & BIT(dp->self))
        dp_replica_flush_local(dp, c);
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        if (s == dp->self || !(slots & dp->link_up & BIT(s)))
            continue;
        struct pms_frame f = dp_frame(dp, PMS_FRAME_FLUSH, s);

        f.seq = c->seq;
        f.arg2 = dp_incarnation(dp, s);
        dp_send(dp, s, &f, NULL, 0);
    }
}

static uint64_t volatile_bytes(const struct pms_dp *dp)
{
    return dp->volatile_total - dp->stable_total;
}

static void start_write(struct pms_dp *dp, struct cop *c)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp_repair_wants_write(dp, s, c->offset, c->length))
            c->sent |= BIT(s);
    c->is_volatile &= volatile_bytes(dp) < dp->init.volatile_bytes;
    touch(dp, c);
    send_write(dp, c, c->sent | dp->conf.in_sync | dp->admitting | BIT(dp->self));
}

static void start_flush(struct pms_dp *dp, struct cop *c)
{
    uint8_t all = (uint8_t)((1u << dp->conf.n_slots) - 1);

    if ((volatile_bytes(dp) == 0 && c->op != NULL) || PMS_MUTANT(FLUSH_NOTHING)) {
        c->acked = 0xff; /* all that was acknowledged is stable (I1) */
        dp->recheck_done = true;
        return;
    }
    c->covers = dp->volatile_total;
    c->covers_all = dp->role == PMS_DP_SERVING && dp->conf.in_sync == all;
    c->sent = dp_repair_active(dp);
    send_flush(dp, c, c->sent | dp->conf.in_sync | dp->admitting | BIT(dp->self));
}

static void start(struct pms_dp *dp, struct cop *c)
{
    c->state = COP_ACTIVE;
    c->started = dp->now;
    c->seq = ++dp->seq;
    dp->cops_queued--;
    dp->cops_active++;
    switch (c->kind) {
    case COP_WRITE:
        start_write(dp, c);
        break;
    case COP_READ:
        c->probe = dp_primary_probe(dp);
        c->flushes = c->op->fua && volatile_bytes(dp) > 0;
        if (c->flushes)
            send_flush(dp, c, dp->conf.in_sync | dp->admitting | BIT(dp->self));
        dp_disk(dp, PMS_DP_DISK_READ, dp_dreq_new(dp, DREQ_COP, c), PMS_BRICK_DATA_OFFSET + c->offset,
                c->length, pms_iobuf_ref(c->op->buf), 0);
        break;
    case COP_FLUSH:
        start_flush(dp, c);
        break;
    case COP_COPY:
        dp_repair_locked(dp, c->job);
        break;
    }
}

static bool done(const struct pms_dp *dp, const struct cop *c)
{
    if (c->state != COP_ACTIVE || c->kind == COP_COPY)
        return false;
    if (c->kind == COP_READ && !(c->read_done && dp_primary_probed(dp, c->probe)))
        return false;
    if (c->kind == COP_READ && !c->flushes)
        return true;
    uint8_t must = dp_primary_must(dp) | (c->sent & dp_repair_active(dp));

    if (PMS_MUTANT(ACK_EARLY) || (c->kind == COP_FLUSH && PMS_MUTANT(FLUSH_LOCAL)))
        must = BIT(dp->self);
    return (c->acked & must) == must && dp_primary_leased(dp);
}

static void write_over(struct pms_dp *dp, const struct cop *c)
{
    dp->counters_writes++;
    if (!dp->conf.cache_used)
        return;
    touch(dp, c); /* a flush covers what was over when it began */
    if (!c->is_volatile)
        return;
    if (dp->volatile_since == 0)
        dp->volatile_since = dp->now;
    dp->volatile_total += c->length;
}

static void flush_over(struct pms_dp *dp, const struct cop *c)
{
    uint8_t all = (uint8_t)((1u << dp->conf.n_slots) - 1);

    if (c->covers > dp->stable_total)
        dp->stable_total = c->covers;
    dp->volatile_since = volatile_bytes(dp) > 0 ? c->started : 0;
    if (c->covers_all && dp->conf.in_sync == all && dp->role == PMS_DP_SERVING)
        dp->flushed_clock = (uint32_t)(c->started / MS(256));
}

static void finish(struct pms_dp *dp, struct cop *c)
{
    if (c->kind == COP_WRITE)
        write_over(dp, c);
    else if (c->kind == COP_FLUSH)
        flush_over(dp, c);
    else if (c->kind == COP_READ)
        dp->counters_reads++;
    complete(dp, c->op, 0);
    cop_free(dp, c);
}

static bool is_well_formed(const struct pms_dp_op *op)
{
    if (op->offset % 512 != 0 || op->length % 512 != 0 || op->length == 0)
        return false;
    if (op->type == PMS_DP_ZERO)
        return op->buf == NULL && op->length <= PMS_ZERO_BYTES_MAX;
    return op->length <= PMS_IO_BYTES_MAX && op->buf != NULL && op->buf->len >= op->length;
}

void dp_coord_submit(struct pms_dp *dp, struct pms_dp_op *op)
{
    static const enum cop_kind kinds[] = {[PMS_DP_READ] = COP_READ,
                                          [PMS_DP_WRITE] = COP_WRITE,
                                          [PMS_DP_FLUSH] = COP_FLUSH,
                                          [PMS_DP_ZERO] = COP_WRITE};

    if (op->type != PMS_DP_FLUSH && !is_well_formed(op)) {
        complete(dp, op, -EINVAL);
        return;
    }
    if (op->type != PMS_DP_FLUSH &&
        (op->offset > dp->init.size_bytes || op->length > dp->init.size_bytes - op->offset)) {
        complete(dp, op, -ERANGE);
        return;
    }
    struct cop *c = cop_new(dp, kinds[op->type], op->offset, op->length);
    c->op = op;
    c->is_volatile = c->kind == COP_WRITE && dp->conf.write_cache && (!op->fua || PMS_MUTANT(FUA_IGNORED));
    op->priv = c;
    dp->recheck_start = true;
}

struct cop *dp_coord_lock(struct pms_dp *dp, struct job *j)
{
    struct cop *c = cop_new(dp, COP_COPY, j->offset, j->length);

    c->job = j;
    dp->recheck_start = true;
    return c;
}

void dp_coord_unlock(struct pms_dp *dp, struct cop *c)
{
    cop_free(dp, c);
}

void dp_coord_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq)
{
    pms_list_for_each (p, &dp->cops) {
        struct cop *c = pms_list_entry(p, struct cop, link);

        if ((c->kind == COP_READ && !c->flushes) || c->kind == COP_COPY || c->state != COP_ACTIVE ||
            c->seq != seq)
            continue;
        c->acked |= BIT(slot);
        if (done(dp, c))
            finish(dp, c);
        return;
    }
}

void dp_coord_read_done(struct pms_dp *dp, struct cop *c, int status)
{
    if (status != 0 && (dp->conf.in_sync & (uint8_t)~BIT(dp->self)) != 0) {
        dp_brick_fail(dp); /* others hold the data: leave it to them */
        return;
    }
    if (status != 0) {
        complete(dp, c->op, -EIO);
        cop_free(dp, c);
        return;
    }
    c->read_done = true;
    if (done(dp, c))
        finish(dp, c);
}

void dp_coord_resend(struct pms_dp *dp, uint8_t slots)
{
    if (!serving(dp) || PMS_MUTANT(RESEND_FORGOTTEN))
        return;
    pms_list_for_each (p, &dp->cops) {
        const struct cop *c = pms_list_entry(p, struct cop, link);
        uint8_t want = dp->conf.in_sync | dp->admitting | (c->sent & dp_repair_active(dp));

        if (c->kind == COP_WRITE && c->state == COP_ACTIVE)
            send_write(dp, c, want & slots & (uint8_t)~c->acked);
        else if ((c->kind == COP_FLUSH || c->flushes) && c->state == COP_ACTIVE)
            send_flush(dp, c, want & slots & (uint8_t)~c->acked);
    }
}

void dp_coord_drop_all(struct pms_dp *dp)
{
    pms_list_for_each_safe (p, &dp->cops) {
        struct cop *c = pms_list_entry(p, struct cop, link);

        PMS_CHECK(c->kind != COP_COPY); /* jobs end before */
        if (c->op != NULL)
            dp_act(dp, PMS_DP_ACT_DROP)->op.op = c->op;
        cop_free(dp, c);
    }
}

uint64_t dp_coord_oldest(const struct pms_dp *dp, uint8_t slot)
{
    uint64_t oldest = 0;

    pms_list_for_each (p, &dp->cops) {
        const struct cop *c = pms_list_entry(p, struct cop, link);

        if ((c->kind == COP_WRITE || c->kind == COP_FLUSH || c->flushes) && c->state == COP_ACTIVE &&
            !(c->acked & BIT(slot)) && (oldest == 0 || c->started < oldest))
            oldest = c->started;
    }
    return oldest;
}

/* The primary's own flush, when something has been volatile for long enough, or much is, or a region waits to be
 * cleared. */
void dp_coord_flush(struct pms_dp *dp)
{
    bool due = dp->volatile_since != 0 && dp->now >= dp->volatile_since + MS(dp->init.timing.flush);

    due |= volatile_bytes(dp) >= dp->init.volatile_bytes || (dp->leaving && volatile_bytes(dp) > 0);
    if (dp->own_flush || !serving(dp) || dp->draining || dp->role == PMS_DP_DRAINED ||
        !(due || dp->flush_wanted))
        return;
    dp->own_flush = true;
    dp->flush_wanted = false;
    cop_new(dp, COP_FLUSH, 0, 0);
    dp->recheck_start = true;
}

bool dp_coord_region_busy(const struct pms_dp *dp, uint32_t region)
{
    uint64_t at = (uint64_t)region * dp->init.region_bytes;

    pms_list_for_each (p, &dp->cops) {
        const struct cop *c = pms_list_entry(p, struct cop, link);

        if (c->kind == COP_WRITE && c->state == COP_ACTIVE &&
            overlap(c->offset, c->length, at, dp->init.region_bytes))
            return true;
    }
    return false;
}

bool dp_coord_pump(struct pms_dp *dp)
{
    bool any = false;

    if (dp->recheck_done) {
        dp->recheck_done = false;
        pms_list_for_each_safe (p, &dp->cops) {
            struct cop *c = pms_list_entry(p, struct cop, link);

            if (done(dp, c)) {
                finish(dp, c);
                any = true;
            }
        }
    }
    if (!dp->recheck_start)
        return any;
    dp->recheck_start = false;
    if (dp->cops_queued == 0 || dp->draining || dp->role == PMS_DP_DRAINED)
        return any;
    pms_list_for_each_safe (p, &dp->cops) {
        struct cop *c = pms_list_entry(p, struct cop, link);

        if (c->state == COP_QUEUED && !must_wait(dp, c)) {
            start(dp, c);
            any = true;
        }
    }
    return any;
}
