// SPDX-License-Identifier: GPL-2.0-or-later
// The ring side of an array: commands of the plugin into the core, answers back, payloads where they lie in
// the arena.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "datapath/io/loop_internal.h"

#define POLL_BATCH  64
#define POLL_ROUNDS 4 /* then the loop looks after its links and disks first */

/* SAM-5 status and SPC-4 sense of an error. */
#define SAM_GOOD            0x00
#define SAM_CHECK_CONDITION 0x02

struct pms_aring {
    struct pms_list item; /* in array->old_rings once detached */
    struct pms_array *array;
    struct pms_ring *ring;
    struct pms_uring_op bell; /* poll of the submission bell */
    bool bell_busy, hot;      /* hot: look without waiting for the bell */
    bool detached, fenced, broken;
    unsigned inflight; /* commands taken whose buffer somebody holds */
    struct pms_list ops;
};

/*
 * taken -> (dp) -> COMPLETE or DROP -> last reference of the buffer gone -> answered (COMPLETE, still
 * attached) -> freed
 */
struct ring_op {
    struct pms_list item; /* in aring->ops until COMPLETE, DROP or abandon */
    struct pms_aring *ring;
    struct pms_dp_op op;
    struct pms_iobuf buf;
    uint64_t tag;
    bool answer;
    int status;
};

static void broken_tell(struct pms_aring *r, int err)
{
    if (r->broken)
        return;
    r->broken = true;
    pms_log(PMS_LOG_ERROR, "ring of array %s is broken: %s", pms_log_hexid(r->array->id), pms_err_text(err));
    pms_array_emit(r->array, PMS_LOOP_EV_RING_BROKEN, err);
}

/* ---- answers ---- */

static void answer(struct ring_op *o)
{
    struct pms_aring *r = o->ring;
    uint8_t status = SAM_CHECK_CONDITION, key = 0, asc = 0, ascq = 0;
    int rc;

    switch (o->status) {
    case 0:
        status = SAM_GOOD;
        break;
    case -ERANGE:
        key = 0x05; /* ILLEGAL REQUEST, LBA OUT OF RANGE */
        asc = 0x21;
        break;
    case -EIO:
        key = 0x03; /* MEDIUM ERROR, UNRECOVERED READ ERROR or WRITE ERROR */
        asc = o->op.type == PMS_DP_READ ? 0x11 : 0x0c;
        break;
    default:
        key = 0x04; /* HARDWARE ERROR, INTERNAL TARGET FAILURE */
        asc = 0x44;
        break;
    }
    rc = pms_ring_complete(r->ring, o->tag, status, key, asc, ascq);
    if (rc != 0)
        broken_tell(r, rc);
}

static void op_end(struct ring_op *o)
{
    struct pms_aring *r = o->ring;

    if (o->answer && !r->detached && !r->broken)
        answer(o);
    PMS_CHECK(r->inflight > 0);
    r->inflight--;
    free(o);
}

static void on_release(struct pms_iobuf *b)
{
    op_end(b->owner);
}

static void op_finish(struct ring_op *o, bool answer_it, int status)
{
    pms_list_del(&o->item);
    o->answer = answer_it;
    o->status = status;
    if (o->op.buf != NULL)
        pms_iobuf_put(&o->buf);
    else
        op_end(o);
}

void pms_aring_complete(struct pms_dp_op *op, int status)
{
    op_finish(op->user, true, status);
}

static void ring_fence(struct pms_aring *r)
{
    if (r->fenced || r->detached)
        return;
    r->fenced = true;
    pms_array_emit(r->array, PMS_LOOP_EV_FENCE, 0);
}

void pms_aring_drop(struct pms_dp_op *op)
{
    struct ring_op *o = op->user;

    ring_fence(o->ring);
    op_finish(o, false, 0);
}

void pms_aring_fence(struct pms_array *a)
{
    if (a->ring != NULL)
        ring_fence(a->ring);
}

static void ring_abandon(struct pms_aring *r)
{
    struct pms_list *it;

    while ((it = pms_list_pop(&r->ops)) != NULL)
        op_finish(pms_list_entry(it, struct ring_op, item), false, 0);
}

void pms_aring_abandon(struct pms_array *a)
{
    if (a->ring != NULL)
        ring_abandon(a->ring);
    pms_list_for_each (it, &a->old_rings)
        ring_abandon(pms_list_entry(it, struct pms_aring, item));
}

/* ---- commands ---- */

static void submit(struct pms_aring *r, const struct pms_ring_cmd *cmd)
{
    static const enum pms_dp_op_type types[] = {[PMS_RING_READ] = PMS_DP_READ,
                                                [PMS_RING_WRITE] = PMS_DP_WRITE,
                                                [PMS_RING_FLUSH] = PMS_DP_FLUSH,
                                                [PMS_RING_ZERO] = PMS_DP_ZERO};
    struct pms_array *a = r->array;
    struct ring_op *o = calloc(1, sizeof *o);

    PMS_CHECK_MSG(o != NULL, "out of memory");
    o->ring = r;
    o->tag = cmd->tag;
    o->op.user = o;
    o->op.offset = cmd->offset;
    o->op.length = cmd->length;
    o->op.fua = (cmd->flags & PMS_RING_FUA) != 0;
    o->op.type = types[cmd->op]; /* pms_ring_poll has checked it */
    if (o->op.type == PMS_DP_READ || o->op.type == PMS_DP_WRITE) {
        o->buf.data = pms_ring_data(r->ring, cmd->arena_off, cmd->length);
        PMS_CHECK(o->buf.data != NULL); /* pms_ring_poll has checked the range */
        o->buf.len = cmd->length;
        o->buf.refs = 1;
        o->buf.release = on_release;
        o->buf.owner = o;
        o->op.buf = &o->buf;
    }
    r->inflight++;
    a->ring_ops++;
    pms_list_add_tail(&r->ops, &o->item);
    pms_dp_submit(a->dp, pms_clock_boot_ns(), &o->op);
    pms_array_run(a);
}

static void on_bell(struct pms_uring_op *op, int res)
{
    struct pms_aring *r = pms_list_entry(op, struct pms_aring, bell);

    r->bell_busy = false;
    if (r->detached)
        return;
    if (res > 0)
        pms_ring_sq_clear(r->ring);
    r->hot = true;
}

static void bell_wait(struct pms_aring *r)
{
    struct io_uring_sqe *sqe;

    if (r->bell_busy)
        return;
    sqe = pms_uring_sqe(&r->array->loop->uring);
    io_uring_prep_poll_add(sqe, pms_ring_sq_fd(r->ring), POLLIN);
    pms_uring_start(&r->array->loop->uring, sqe, &r->bell);
    r->bell_busy = true;
}

/* Commands are taken only while this node is primary. One that waited inside a replica could be executed
 * after its target was fenced and others have written: nobody could call it back. In the ring it waits as
 * well. */
bool pms_aring_poll(struct pms_array *a)
{
    struct pms_aring *r = a->ring;
    struct pms_ring_cmd cmds[POLL_BATCH];

    if (a->state != PMS_ARRAY_OPEN || r == NULL || !r->hot || !a->primary || r->fenced || r->broken)
        return false;
    for (int round = 0; round < POLL_ROUNDS && !r->fenced && !r->broken; round++) {
        int n = pms_ring_poll(r->ring, cmds, POLL_BATCH);

        if (n < 0) {
            broken_tell(r, n);
            break;
        }
        /* Fenced by one of them: the rest stays taken and unanswered, for the next that attaches the ring. */
        for (int i = 0; i < n && !r->fenced; i++)
            submit(r, &cmds[i]);
        if (n == 0 && !pms_ring_arm(r->ring)) {
            r->hot = false;
            bell_wait(r);
            return false;
        }
    }
    return !r->fenced && !r->broken;
}

void pms_aring_kick(struct pms_array *a)
{
    if (a->ring != NULL)
        pms_ring_kick(a->ring->ring);
}

/* ---- attach and detach ---- */

static void fds_close(const int fd[3])
{
    for (int i = 0; i < 3; i++) {
        if (fd[i] >= 0)
            close(fd[i]);
    }
}

/* Takes the descriptors over. */
static int attach_now(struct pms_array *a, const int fd[3])
{
    struct pms_aring *r = calloc(1, sizeof *r);
    int rc = r != NULL ? pms_ring_attach(fd[0], fd[1], fd[2], a->size_bytes, &r->ring) : -ENOMEM;

    if (rc != 0) {
        fds_close(fd);
        free(r);
        return rc;
    }
    if (pms_ring_array_id(r->ring) != a->id) {
        pms_ring_detach(r->ring);
        free(r);
        return PMS_EIDENTITY;
    }
    r->array = a;
    r->bell.done = on_bell;
    r->hot = true;
    pms_list_init(&r->ops);
    pms_list_init(&r->item);
    a->ring = r;
    return 0;
}

void pms_aring_attach(struct pms_array *a, const int fd[3])
{
    int status = 0;

    if (a->state != PMS_ARRAY_OPEN)
        status = PMS_ENOTFOUND;
    else if (a->ring != NULL || a->attach_pending)
        status = PMS_EEXISTS;
    if (status != 0) {
        fds_close(fd);
        pms_array_emit(a, PMS_LOOP_EV_RING_ATTACHED, status);
        return;
    }
    for (int i = 0; i < 3; i++)
        a->attach_fd[i] = fd[i];
    a->attach_pending = true; /* pms_aring_settle goes on at the end of this turn */
}

void pms_aring_detach(struct pms_array *a)
{
    struct pms_aring *r = a->ring;

    if (a->attach_pending) {
        a->attach_pending = false;
        fds_close(a->attach_fd);
        pms_array_emit(a, PMS_LOOP_EV_RING_ATTACHED, -ECANCELED);
        pms_array_emit(a, PMS_LOOP_EV_RING_DETACHED, 0);
    }
    if (r == NULL)
        return;
    pms_ring_kick(r->ring); /* what is answered already shall be seen */
    r->detached = true;
    a->ring = NULL;
    pms_list_add_tail(&a->old_rings, &r->item);
    if (r->bell_busy)
        pms_uring_cancel(&a->loop->uring, &r->bell);
}

void pms_aring_settle(struct pms_array *a)
{
    pms_list_for_each_safe (it, &a->old_rings) {
        struct pms_aring *r = pms_list_entry(it, struct pms_aring, item);

        if (r->inflight > 0 || r->bell_busy)
            continue;
        pms_list_del(&r->item);
        pms_ring_detach(r->ring);
        free(r);
        pms_array_emit(a, PMS_LOOP_EV_RING_DETACHED, 0);
    }
    if (a->attach_pending && a->state == PMS_ARRAY_OPEN && pms_list_empty(&a->old_rings)) {
        a->attach_pending = false;
        pms_array_emit(a, PMS_LOOP_EV_RING_ATTACHED, attach_now(a, a->attach_fd));
    }
}

bool pms_aring_idle(const struct pms_array *a)
{
    return a->ring == NULL && pms_list_empty(&a->old_rings);
}

void pms_aring_snap(const struct pms_array *a, struct pms_loop_array_stats *out)
{
    if (a->ring == NULL)
        return;
    out->ring_attached = true;
    pms_ring_stats_get(a->ring->ring, &out->ring);
}
