// SPDX-License-Identifier: GPL-2.0-or-later
// Framing over one stream socket: at most one recvmsg and one sendmsg in flight.
#include "datapath/io/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"

#define BATCH_FRAMES    64u
#define BATCH_BYTES     (256u << 10) /* a heartbeat waits for about so much, at most one frame more */
#define QUEUE_BYTES_MAX (512u << 20)
#define NOTSENT_BYTES   (256 << 10) /* what may lie unsent in the kernel */
#define STALL_NS        1000000000u
#define USER_TIMEOUT_MS 2000u

/* A frame on its way out. */
struct out {
    struct pms_list item;
    struct pms_iobuf *buf;
    uint32_t off, len; /* payload */
    bool urgent;
    uint8_t header[PMS_FRAME_HEADER_BYTES];
};

struct pms_link {
    struct pms_link_env *env;
    int fd;
    unsigned version; /* of the frames */
    const struct pms_link_ops *ops;
    void *user;
    bool closed; /* by the owner: only requests in flight keep it */
    bool failed; /* on_failed was or will be called */
    int failure; /* to be reported by flush_all, 0: nothing */
    struct pms_list dirty_item, starved_item;

    /* receiving */
    struct pms_uring_op recv_op;
    bool recv_busy;
    struct msghdr recv_msg;
    struct iovec recv_iov[2];
    uint8_t header[PMS_FRAME_HEADER_BYTES];
    uint32_t header_have;
    struct pms_frame frame; /* decoded, its payload is coming */
    bool in_payload;
    struct pms_iobuf *buf;
    uint32_t payload_have;

    /* sending */
    struct pms_uring_op send_op;
    bool send_busy;
    struct msghdr send_msg;
    struct iovec send_iov[2 * BATCH_FRAMES];
    struct pms_list urgent, bulk; /* of struct out */
    struct pms_list batch;        /* in the sendmsg in flight, or its first one was sent in part */
    uint32_t batch_sent;          /* bytes of the first one of batch that left already */
    uint64_t queued_bytes;
    bool progress;        /* a send completed since the last tick */
    uint64_t stall_since; /* ns, 0: not stalled */
};

static void start_recv(struct pms_link *l);
static void on_recv(struct pms_uring_op *op, int res);
static void on_send(struct pms_uring_op *op, int res);

/* It is in no list any more. */
static void out_free(struct pms_link *l, struct out *o)
{
    l->queued_bytes -= sizeof o->header + o->len;
    pms_iobuf_put(o->buf);
    free(o);
}

static void queues_drop(struct pms_link *l, struct pms_list *head)
{
    struct pms_list *it;

    while ((it = pms_list_pop(head)) != NULL)
        out_free(l, pms_list_entry(it, struct out, item));
}

void pms_link_env_init(struct pms_link_env *env, struct pms_uring *uring, struct pms_pool *pool,
                       uint64_t cluster)
{
    *env = (struct pms_link_env){.uring = uring, .pool = pool, .cluster = cluster};
    pms_list_init(&env->dirty);
    pms_list_init(&env->starved);
}

/* Best effort: a socketpair knows none of these. */
static void socket_tune(int fd)
{
    int on = 1, notsent = NOTSENT_BYTES, idle_s = 5, probes = 2;
    unsigned timeout_ms = USER_TIMEOUT_MS;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &notsent, sizeof notsent);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

struct pms_link *pms_link_create(struct pms_link_env *env, int fd, unsigned version,
                                 const struct pms_link_ops *ops, void *user)
{
    struct pms_link *l = calloc(1, sizeof *l);

    if (l == NULL) {
        close(fd);
        return NULL;
    }
    l->env = env;
    l->fd = fd;
    l->version = version;
    l->ops = ops;
    l->user = user;
    l->recv_op.done = on_recv;
    l->send_op.done = on_send;
    pms_list_init(&l->dirty_item);
    pms_list_init(&l->starved_item);
    pms_list_init(&l->urgent);
    pms_list_init(&l->bulk);
    pms_list_init(&l->batch);
    socket_tune(fd);
    start_recv(l);
    return l;
}

static void free_if_idle(struct pms_link *l)
{
    if (!l->closed || l->recv_busy || l->send_busy)
        return;
    queues_drop(l, &l->batch);
    pms_iobuf_put(l->buf);
    close(l->fd);
    l->env->closing--;
    free(l);
}

/* Lets go of everything that the kernel does not hold; shutdown() makes it let go of the rest. */
static void kill_stream(struct pms_link *l)
{
    shutdown(l->fd, SHUT_RDWR);
    queues_drop(l, &l->urgent);
    queues_drop(l, &l->bulk);
    pms_list_del(&l->dirty_item);
    pms_list_del(&l->starved_item);
}

void pms_link_close(struct pms_link *l)
{
    PMS_CHECK(!l->closed);
    l->closed = true;
    l->env->closing++;
    kill_stream(l);
    free_if_idle(l);
}

/* From the top of the loop only: on_failed may close the link, so the caller must not touch it afterwards. */
static void fail_now(struct pms_link *l, int err)
{
    if (l->failed || l->closed)
        return;
    l->failed = true;
    kill_stream(l);
    l->ops->on_failed(l, l->user, err);
}

/* ---- receiving ---- */

static void start_recv(struct pms_link *l)
{
    struct io_uring_sqe *sqe;
    int n = 0;

    if (l->in_payload)
        l->recv_iov[n++] =
            (struct iovec){l->buf->data + l->payload_have, l->frame.payload_len - l->payload_have};
    l->recv_iov[n++] = (struct iovec){l->header + l->header_have, sizeof l->header - l->header_have};
    l->recv_msg = (struct msghdr){.msg_iov = l->recv_iov, .msg_iovlen = (size_t)n};
    sqe = pms_uring_sqe(l->env->uring);
    io_uring_prep_recvmsg(sqe, l->fd, &l->recv_msg, 0);
    pms_uring_start(l->env->uring, sqe, &l->recv_op);
    l->recv_busy = true;
}

/* The frame in l->frame is whole. False: the link is failed or closed. */
static bool deliver(struct pms_link *l)
{
    struct pms_iobuf *buf = l->buf;
    struct pms_frame f = l->frame;

    l->buf = NULL;
    l->in_payload = false;
    if (pms_frame_sum(buf != NULL ? buf->data : NULL, f.payload_len) != f.payload_sum) {
        l->env->stats.checksum_errors++;
        pms_iobuf_put(buf);
        fail_now(l, PMS_ECORRUPT);
        return false;
    }
    l->env->stats.frames_received++;
    /* The callback may close the link, and then the last put in free_if_idle waits for recv_busy. */
    l->recv_busy = true;
    l->ops->on_frame(l, l->user, &f, buf);
    l->recv_busy = false;
    pms_iobuf_put(buf);
    if (l->closed)
        free_if_idle(l);
    else if (!l->failed)
        return true;
    return false;
}

/* The payload of l->frame may come. False: no room now. */
static bool payload_begin(struct pms_link *l)
{
    l->buf = pms_pool_get(l->env->pool, l->frame.payload_len);
    if (l->buf == NULL) {
        pms_list_add_tail(&l->env->starved, &l->starved_item);
        return false;
    }
    l->in_payload = true;
    l->payload_have = 0;
    return true;
}

/* The header is whole. False: receiving must not go on (failed, closed or starved). */
static bool header_take(struct pms_link *l)
{
    int rc = pms_frame_decode(l->header, l->version, &l->frame);

    l->header_have = 0;
    if (rc == 0 && l->frame.cluster != l->env->cluster)
        rc = PMS_EIDENTITY;
    if (rc != 0) {
        if (rc != PMS_EIDENTITY)
            l->env->stats.checksum_errors++;
        fail_now(l, rc);
        return false;
    }
    return l->frame.payload_len > 0 ? payload_begin(l) : deliver(l);
}

static void on_recv(struct pms_uring_op *op, int res)
{
    struct pms_link *l = pms_list_entry(op, struct pms_link, recv_op);
    uint32_t n = res > 0 ? (uint32_t)res : 0;

    l->recv_busy = false;
    if (l->closed) {
        free_if_idle(l);
        return;
    }
    if (l->failed)
        return;
    if (res <= 0 && res != -EINTR && res != -EAGAIN) {
        fail_now(l, res == 0 ? -ECONNRESET : res);
        return;
    }
    l->env->stats.bytes_received += n;
    if (l->in_payload) {
        uint32_t part = l->frame.payload_len - l->payload_have;

        if (part > n)
            part = n;
        l->payload_have += part;
        n -= part;
        l->header_have += n; /* of the next frame: deliver() does not look at it */
        if (l->payload_have == l->frame.payload_len && !deliver(l))
            return;
    } else {
        l->header_have += n;
    }
    if (l->header_have == sizeof l->header && !header_take(l))
        return;
    start_recv(l);
}

/* ---- sending ---- */

static void mark_dirty(struct pms_link *l)
{
    if (pms_list_empty(&l->dirty_item))
        pms_list_add_tail(&l->env->dirty, &l->dirty_item);
}

void pms_link_send(struct pms_link *l, const struct pms_frame *f, struct pms_iobuf *buf, uint32_t off)
{
    struct out *o;

    PMS_CHECK(f->payload_len == 0 ||
              (buf != NULL && f->payload_len <= buf->len && off <= buf->len - f->payload_len));
    if (l->failed || l->closed || l->failure != 0) {
        pms_iobuf_put(buf);
        return;
    }
    o = malloc(sizeof *o);
    if (o == NULL || l->queued_bytes > QUEUE_BYTES_MAX) {
        free(o);
        pms_iobuf_put(buf);
        l->failure = -ENOBUFS;
        mark_dirty(l);
        return;
    }
    *o = (struct out){.buf = buf, .off = off, .len = f->payload_len};
    o->urgent = f->type == PMS_FRAME_HB || f->type == PMS_FRAME_HB_ACK;
    pms_frame_encode(f, l->version, o->header);
    l->queued_bytes += sizeof o->header + o->len;
    pms_list_add_tail(o->urgent ? &l->urgent : &l->bulk, &o->item);
    mark_dirty(l);
}

static struct out *out_next(struct pms_link *l)
{
    struct pms_list *head = pms_list_empty(&l->urgent) ? &l->bulk : &l->urgent;

    return pms_list_empty(head) ? NULL : pms_list_entry(head->next, struct out, item);
}

/* Appends the frame's bytes after the first `skip` to the vector. Returns their number. */
static uint64_t iov_add(struct pms_link *l, int *n, const struct out *o, uint32_t skip)
{
    uint32_t head = sizeof o->header;
    uint64_t bytes = 0;

    if (skip < head) {
        l->send_iov[(*n)++] = (struct iovec){(void *)(o->header + skip), head - skip};
        bytes = head - skip;
        skip = head;
    }
    if (o->len > skip - head) {
        l->send_iov[(*n)++] = (struct iovec){o->buf->data + o->off + (skip - head), o->len - (skip - head)};
        bytes += o->len - (skip - head);
    }
    return bytes;
}

/* At most one frame is in batch here: the one that was sent in part. */
static void start_send(struct pms_link *l)
{
    struct io_uring_sqe *sqe;
    uint64_t bytes = 0;
    unsigned frames = 0;
    struct out *o;
    int n = 0;

    if (l->send_busy)
        return;
    if (!pms_list_empty(&l->batch)) {
        bytes = iov_add(l, &n, pms_list_entry(l->batch.next, struct out, item), l->batch_sent);
        frames = 1;
    }
    while (frames < BATCH_FRAMES && bytes < BATCH_BYTES && (o = out_next(l)) != NULL) {
        pms_list_del(&o->item);
        pms_list_add_tail(&l->batch, &o->item);
        bytes += iov_add(l, &n, o, 0);
        frames++;
    }
    if (n == 0)
        return;
    l->send_msg = (struct msghdr){.msg_iov = l->send_iov, .msg_iovlen = (size_t)n};
    sqe = pms_uring_sqe(l->env->uring);
    io_uring_prep_sendmsg(sqe, l->fd, &l->send_msg, MSG_NOSIGNAL);
    pms_uring_start(l->env->uring, sqe, &l->send_op);
    l->send_busy = true;
}

/* Gives back what did not leave, so that heartbeats may overtake it; keeps the frame sent in part. */
static void batch_return(struct pms_link *l)
{
    struct pms_list *first = l->batch.next;

    while (l->batch.prev != &l->batch && !(l->batch.prev == first && l->batch_sent > 0)) {
        struct out *o = pms_list_entry(l->batch.prev, struct out, item);

        pms_list_del(&o->item);
        pms_list_add_head(o->urgent ? &l->urgent : &l->bulk, &o->item);
    }
}

static void batch_advance(struct pms_link *l, uint32_t n)
{
    while (n > 0) {
        struct pms_list *it = pms_list_pop(&l->batch);

        PMS_CHECK(it != NULL);

        struct out *o = pms_list_entry(it, struct out, item);
        uint32_t left = (uint32_t)sizeof o->header + o->len - l->batch_sent;

        if (n < left) {
            l->batch_sent += n;
            pms_list_add_head(&l->batch, it);
            return;
        }
        n -= left;
        l->batch_sent = 0;
        l->env->stats.frames_sent++;
        out_free(l, o);
    }
}

static void on_send(struct pms_uring_op *op, int res)
{
    struct pms_link *l = pms_list_entry(op, struct pms_link, send_op);

    l->send_busy = false;
    l->progress = true;
    if (l->closed) {
        free_if_idle(l);
        return;
    }
    if (l->failed) {
        queues_drop(l, &l->batch);
        return;
    }
    if (res < 0 && res != -EINTR && res != -EAGAIN) {
        queues_drop(l, &l->batch);
        fail_now(l, res);
        return;
    }
    if (res > 0) {
        l->env->stats.bytes_sent += (uint32_t)res;
        batch_advance(l, (uint32_t)res);
    }
    batch_return(l);
    if (!pms_list_empty(&l->batch) || out_next(l) != NULL)
        mark_dirty(l);
}

void pms_link_flush_all(struct pms_link_env *env)
{
    struct pms_list *it;

    while ((it = pms_list_pop(&env->dirty)) != NULL) {
        struct pms_link *l = pms_list_entry(it, struct pms_link, dirty_item);

        if (l->failure != 0)
            fail_now(l, l->failure);
        else if (!l->failed && !l->closed)
            start_send(l);
    }
    while (env->pool->released && (it = pms_list_pop(&env->starved)) != NULL) {
        struct pms_link *l = pms_list_entry(it, struct pms_link, starved_item);

        if (!payload_begin(l)) /* waits again, at the tail */
            break;
        start_recv(l);
    }
    env->pool->released = false;
}

void pms_link_tick(struct pms_link *l, uint64_t now)
{
    if (!l->send_busy || l->progress || l->stall_since == 0)
        l->stall_since = l->send_busy ? now : 0;
    l->progress = false;
    if (l->stall_since != 0 && now - l->stall_since > STALL_NS)
        fail_now(l, -ETIMEDOUT);
}
