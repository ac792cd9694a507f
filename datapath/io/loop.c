// SPDX-License-Identifier: GPL-2.0-or-later
// The data loop's thread: waits, delivers completions and messages, polls rings, ticks, sends what piled up.
#include "datapath/io/loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "base/wire.h"
#include "datapath/io/loop_internal.h"

#define MS                   1000000ull /* in ns */
#define TICK_NS              (5 * MS)
#define PEERS_TICK_NS        (10 * MS)
#define SNAP_NS              (25 * MS)
#define TURN_MAX_NS          (1000 * MS)
#define NICE                 (-10)
#define STOP_WAIT_NS         (5000 * MS)
#define BUFFER_BYTES_DEFAULT (256ull << 20)

struct event_item {
    struct pms_list item;
    struct pms_loop_event ev;
};

/* ---- events ---- */

void pms_loop_emit(struct pms_loop *loop, const struct pms_loop_event *ev)
{
    struct event_item *e = malloc(sizeof *e);

    PMS_CHECK_MSG(e != NULL, "out of memory");
    e->ev = *ev;
    pms_queue_push(&loop->out, &e->item);
}

int pms_loop_event_fd(const struct pms_loop *loop)
{
    return loop->out.fd;
}

bool pms_loop_event_next(struct pms_loop *loop, struct pms_loop_event *out)
{
    struct pms_list *it = pms_queue_pop(&loop->out);

    if (it == NULL) {
        pms_queue_clear(&loop->out); /* then once more: something may have come in between */
        it = pms_queue_pop(&loop->out);
    }
    if (it == NULL)
        return false;

    struct event_item *e = pms_list_entry(it, struct event_item, item);

    *out = e->ev;
    free(e);
    return true;
}

/* ---- peers ---- */

static int on_peer_frame(void *user, uint64_t node, uint64_t conn, const struct pms_frame *f,
                         struct pms_iobuf *buf)
{
    struct pms_loop *loop = user;
    struct pms_array *a = pms_array_find(loop, f->array);

    if (a != NULL && pms_array_ready(a))
        return pms_array_frame(a, node, conn, f, buf);
    if (conn != 0) /* not open here, yet or any more */
        pms_peers_lost_mark(&loop->peers, node, f->array);
    return 0;
}

static void peer_event(struct pms_loop *loop, enum pms_loop_event_type type, uint64_t node, int status)
{
    struct pms_loop_event ev = {.type = type, .node = node, .status = status};

    pms_loop_emit(loop, &ev);
}

static void arrays_link(struct pms_loop *loop, uint64_t node, bool up)
{
    pms_list_for_each (it, &loop->arrays)
        pms_array_link(pms_list_entry(it, struct pms_array, item), node, up);
}

static void on_peer_up(void *user, uint64_t node)
{
    peer_event(user, PMS_LOOP_EV_LINK_UP, node, 0);
    arrays_link(user, node, true);
}

static void on_peer_down(void *user, uint64_t node, int status)
{
    peer_event(user, PMS_LOOP_EV_LINK_LOST, node, status);
    arrays_link(user, node, false);
}

static void on_peer_want(void *user, uint64_t node)
{
    peer_event(user, PMS_LOOP_EV_LINK_WANT, node, 0);
}

static const struct pms_peer_ops peer_ops = {on_peer_frame, on_peer_up, on_peer_down, on_peer_want};

void pms_loop_peers_update(struct pms_loop *loop)
{
    uint64_t nodes[PMS_LOOP_PEERS_MAX];
    unsigned n = 0;

    pms_list_for_each (it, &loop->arrays) {
        struct pms_array *a = pms_list_entry(it, struct pms_array, item);

        for (unsigned i = 0; a->conf_known && i < a->conf.n_slots; i++) {
            unsigned k = 0;

            while (k < n && nodes[k] != a->conf.node[i])
                k++;
            if (k == n && n < PMS_LOOP_PEERS_MAX && a->conf.node[i] != 0 &&
                a->conf.node[i] != loop->config.self_node)
                nodes[n++] = a->conf.node[i];
        }
    }
    pms_peers_want(&loop->peers, nodes, n);
}

/* ---- messages ---- */

static void msg_array_open(struct pms_loop *loop, struct pms_msg *m)
{
    struct pms_loop_event ev = {.type = PMS_LOOP_EV_ARRAY_OPEN, .array = m->array, .status = PMS_EEXISTS};
    struct pms_loop_brick *brick = m->brick;

    m->brick = NULL;
    if (loop->stopping || pms_array_find(loop, m->array) != NULL) {
        ev.status = loop->stopping ? PMS_ESHUTDOWN : PMS_EEXISTS;
        free(brick);
        pms_loop_emit(loop, &ev);
        return;
    }
    pms_array_create(loop, brick);
}

static void msg_brick(struct pms_loop *loop, struct pms_msg *m, enum pms_job_type type,
                      enum pms_loop_event_type answer)
{
    struct pms_loop_event ev = {.type = answer, .array = m->array, .status = PMS_ESHUTDOWN};
    struct pms_loop_brick *brick = m->brick;

    m->brick = NULL;
    if (loop->stopping) {
        free(brick);
        pms_loop_emit(loop, &ev);
    } else if (pms_job_start(loop, type, brick, m->incarnation, m->flag, &ev.status) == NULL) {
        pms_loop_emit(loop, &ev);
    }
}

static void msg_job_done(struct pms_loop *loop, struct pms_job *job)
{
    struct pms_loop_event ev = {
        .array = job->brick->init.array, .status = job->status, .incarnation = job->incarnation};

    if (job->type == PMS_JOB_OPEN) {
        struct pms_array *a = pms_array_find(loop, job->brick->init.array);

        PMS_CHECK(a != NULL);
        pms_array_opened(a, job);
    } else {
        ev.type = job->type == PMS_JOB_CREATE ? PMS_LOOP_EV_BRICK_CREATED : PMS_LOOP_EV_BRICK_DELETED;
        pms_loop_emit(loop, &ev);
    }
    pms_job_end(job);
}

static void fd_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void msg_ring(struct pms_loop *loop, struct pms_msg *m)
{
    struct pms_array *a = pms_array_find(loop, m->array);
    struct pms_loop_event ev = {.array = m->array, .status = PMS_ENOTFOUND};

    ev.type = m->type == PMS_MSG_RING_ATTACH ? PMS_LOOP_EV_RING_ATTACHED : PMS_LOOP_EV_RING_DETACHED;
    if (a != NULL && m->type == PMS_MSG_RING_ATTACH) {
        pms_aring_attach(a, m->fd);
        m->fd[0] = m->fd[1] = m->fd[2] = -1;
    } else if (a != NULL && (a->ring != NULL || a->attach_pending)) {
        pms_aring_detach(a);
    } else {
        pms_loop_emit(loop, &ev);
    }
}

static void msg_array(struct pms_loop *loop, struct pms_msg *m)
{
    struct pms_array *a = pms_array_find(loop, m->array);
    struct pms_loop_event ev = {.array = m->array, .status = PMS_ENOTFOUND, .slot = m->slot};

    if (m->type == PMS_MSG_ARRAY_CLOSE) {
        ev.type = PMS_LOOP_EV_ARRAY_CLOSED;
        if (a != NULL)
            pms_array_close(a);
        else
            pms_loop_emit(loop, &ev);
    } else if (m->type == PMS_MSG_HANDOVER) {
        ev.type = PMS_LOOP_EV_HANDOVER;
        if (a != NULL)
            pms_array_handover(a, m->slot);
        else
            pms_loop_emit(loop, &ev);
    } else if (a != NULL && m->type == PMS_MSG_LEAVE) {
        pms_array_leave(a);
    } else if (a != NULL && m->type == PMS_MSG_DOUBT) {
        pms_array_doubt(a, m->slot);
    } else if (a != NULL) {
        pms_array_conf(a, &m->conf, m->flag);
    }
}

static void msg_link(struct pms_loop *loop, struct pms_msg *m)
{
    int fd = m->fd[0];

    if (loop->stopping)
        return;
    m->fd[0] = -1;
    if (m->type == PMS_MSG_LINK_DIALLED)
        pms_peers_dialled(&loop->peers, m->node, fd, m->version);
    else
        pms_peers_accepted(&loop->peers, m->node, fd, m->version);
}

static void msg_take(struct pms_loop *loop, struct pms_msg *m)
{
    switch (m->type) {
    case PMS_MSG_JOB_DONE:
        msg_job_done(loop, pms_list_entry(m, struct pms_job, msg));
        return; /* m was part of it */
    case PMS_MSG_ARRAY_OPEN:
        msg_array_open(loop, m);
        break;
    case PMS_MSG_BRICK_CREATE:
        msg_brick(loop, m, PMS_JOB_CREATE, PMS_LOOP_EV_BRICK_CREATED);
        break;
    case PMS_MSG_BRICK_DELETE:
        msg_brick(loop, m, PMS_JOB_DELETE, PMS_LOOP_EV_BRICK_DELETED);
        break;
    case PMS_MSG_ARRAY_CLOSE:
    case PMS_MSG_HANDOVER:
    case PMS_MSG_LEAVE:
    case PMS_MSG_DOUBT:
    case PMS_MSG_CONF:
        msg_array(loop, m);
        break;
    case PMS_MSG_LINK_DIALLED:
    case PMS_MSG_LINK_ACCEPTED:
        msg_link(loop, m);
        break;
    case PMS_MSG_RING_ATTACH:
    case PMS_MSG_RING_DETACH:
        msg_ring(loop, m);
        break;
    case PMS_MSG_STOP:
        loop->stopping = true;
        break;
    }
    for (int i = 0; i < 3; i++)
        fd_drop(&m->fd[i]);
    free(m);
}

static void on_in(struct pms_uring_op *op, int res)
{
    struct pms_loop *loop = pms_list_entry(op, struct pms_loop, in_op);

    (void)res;
    loop->in_busy = false;
}

static void messages_take(struct pms_loop *loop)
{
    struct pms_list *it;
    struct io_uring_sqe *sqe;

    if (loop->in_busy)
        return;
    pms_queue_clear(&loop->in);
    while ((it = pms_queue_pop(&loop->in)) != NULL)
        msg_take(loop, pms_list_entry(it, struct pms_msg, item));
    sqe = pms_uring_sqe(&loop->uring);
    io_uring_prep_poll_add(sqe, loop->in.fd, POLLIN);
    pms_uring_start(&loop->uring, sqe, &loop->in_op);
    loop->in_busy = true;
}

/* ---- turns ---- */

static void snap(struct pms_loop *loop, uint64_t now)
{
    struct pms_loop_stats *s = &loop->snap;

    pthread_mutex_lock(&loop->snap_lock);
    s->turns = loop->turns;
    s->turn_ns_max = loop->turn_max_ns;
    s->frames_sent = loop->links.stats.frames_sent;
    s->frames_received = loop->links.stats.frames_received;
    s->bytes_sent = loop->links.stats.bytes_sent;
    s->bytes_received = loop->links.stats.bytes_received;
    s->checksum_errors = loop->links.stats.checksum_errors;
    s->links_dropped = loop->peers.dropped;
    s->buffer_bytes = loop->pool.used_bytes;
    s->buffer_bytes_max = loop->pool.used_bytes_max;
    loop->snap_peers_n = pms_peers_states(&loop->peers, loop->snap_peers, PMS_LOOP_PEERS_MAX);
    pms_list_for_each (it, &loop->arrays)
        pms_array_snap(pms_list_entry(it, struct pms_array, item), now);
    pthread_mutex_unlock(&loop->snap_lock);
}

static void timers(struct pms_loop *loop, uint64_t now)
{
    if (now >= loop->tick_ns) {
        loop->tick_ns = now + TICK_NS;
        pms_list_for_each (it, &loop->arrays)
            pms_array_tick(pms_list_entry(it, struct pms_array, item), now);
    }
    if (now >= loop->peers_tick_ns) {
        loop->peers_tick_ns = now + PEERS_TICK_NS;
        pms_peers_tick(&loop->peers, now);
    }
    if (now >= loop->snap_ns) {
        loop->snap_ns = now + SNAP_NS;
        snap(loop, now);
    }
}

/* Returns whether there is more to do at once. */
static bool turn_end(struct pms_loop *loop)
{
    bool more = false;

    pms_list_for_each (it, &loop->arrays)
        more |= pms_aring_poll(pms_list_entry(it, struct pms_array, item));
    pms_peers_flush(&loop->peers);
    pms_list_for_each_safe (it, &loop->arrays) {
        struct pms_array *a = pms_list_entry(it, struct pms_array, item);

        pms_aring_kick(a);
        pms_array_settle(a);
    }
    return more;
}

static void turn_measure(struct pms_loop *loop, uint64_t since)
{
    uint64_t now = pms_clock_boot_ns();

    loop->turns++;
    if (now - loop->turn_max_since_ns > TURN_MAX_NS) {
        loop->turn_max_since_ns = now;
        loop->turn_max_ns = 0;
    }
    if (now - since > loop->turn_max_ns)
        loop->turn_max_ns = now - since;
}

/* One turn; false: the ring is broken. */
static bool turn(struct pms_loop *loop, bool *more)
{
    uint64_t now = pms_clock_boot_ns();
    uint64_t wait = *more || now >= loop->tick_ns ? 0 : loop->tick_ns - now;
    int rc = pms_uring_wait(&loop->uring, wait);

    if (rc != 0) {
        pms_log(PMS_LOG_ERROR, "io_uring: %s", pms_err_text(rc));
        return false;
    }
    now = pms_clock_boot_ns();
    pms_pulse_beat(&loop->pulse, "completed requests");
    pms_uring_complete(&loop->uring);
    pms_pulse_doing(&loop->pulse, "messages");
    messages_take(loop);
    pms_pulse_doing(&loop->pulse, "timers");
    timers(loop, pms_clock_boot_ns());
    pms_pulse_doing(&loop->pulse, "rings and links");
    *more = turn_end(loop);
    pms_pulse_doing(&loop->pulse, "handing requests to the kernel");
    turn_measure(loop, now);
    return true;
}

/* True if everything ended in time: only then may memory be freed that the kernel may still write to. */
static bool wind_down(struct pms_loop *loop)
{
    uint64_t until = pms_clock_boot_ns() + STOP_WAIT_NS;
    bool more = false;

    pms_peers_close(&loop->peers);
    pms_list_for_each (it, &loop->jobs)
        atomic_store(&pms_list_entry(it, struct pms_job, item)->cancel, true);
    pms_list_for_each (it, &loop->arrays)
        pms_array_close(pms_list_entry(it, struct pms_array, item));
    while (!pms_list_empty(&loop->arrays) || !pms_list_empty(&loop->jobs) || loop->links.closing > 0) {
        if (!turn(loop, &more) || pms_clock_boot_ns() > until)
            return false;
    }
    /* Only the wait for messages is left; those that came too late are answered or dropped. */
    pms_uring_cancel(&loop->uring, &loop->in_op);
    while (loop->uring.inflight > 0) {
        if (pms_uring_wait(&loop->uring, TICK_NS) != 0 || pms_clock_boot_ns() > until)
            return false;
        pms_uring_complete(&loop->uring);
    }
    return true;
}

static void started_tell(struct pms_loop *loop, int status)
{
    pthread_mutex_lock(&loop->start_lock);
    loop->started = true;
    loop->start_status = status;
    pthread_cond_signal(&loop->start_cond);
    pthread_mutex_unlock(&loop->start_lock);
}

/* Returns loop if all its memory may be freed, else NULL. */
static void *loop_main(void *arg)
{
    struct pms_loop *loop = arg;
    int rc = pms_uring_init(&loop->uring);
    bool more = false, clean;

    if (rc != 0) {
        started_tell(loop, rc);
        return loop;
    }
    pms_pool_init(&loop->pool, loop->config.buffer_bytes_max);
    pms_link_env_init(&loop->links, &loop->uring, &loop->pool, loop->cluster);
    pms_peers_init(&loop->peers, &loop->links, &peer_ops, loop);
    loop->in_op.done = on_in;
    started_tell(loop, 0);
    /* Leases hang on heartbeats that leave in time: before other threads, where that is allowed. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_setname_np(pthread_self(), "pms-data");
    pms_pulse_begin(&loop->pulse, "data", PMS_WATCHDOG_DATA_MS);
    while (!loop->stopping)
        PMS_CHECK_MSG(turn(loop, &more), "the data loop cannot go on");
    pms_pulse_doing(&loop->pulse, "stopping");
    clean = wind_down(loop);
    pms_pulse_end(&loop->pulse);
    if (!clean) {
        pms_log(PMS_LOG_ERROR, "data loop: requests are still in flight, left behind");
        return NULL;
    }
    pms_pool_deinit(&loop->pool);
    pms_uring_deinit(&loop->uring);
    return loop;
}

/* ---- start and stop ---- */

static void queues_drop(struct pms_loop *loop)
{
    struct pms_loop_event ev;
    struct pms_list *it;

    while ((it = pms_queue_pop(&loop->in)) != NULL) {
        struct pms_msg *m = pms_list_entry(it, struct pms_msg, item);

        for (int i = 0; i < 3; i++)
            fd_drop(&m->fd[i]);
        free(m->brick);
        free(m);
    }
    while (pms_loop_event_next(loop, &ev))
        ;
}

static void loop_free(struct pms_loop *loop)
{
    queues_drop(loop);
    pms_queue_deinit(&loop->in);
    pms_queue_deinit(&loop->out);
    pthread_mutex_destroy(&loop->start_lock);
    pthread_cond_destroy(&loop->start_cond);
    pthread_mutex_destroy(&loop->snap_lock);
    free(loop);
}

static int thread_start(struct pms_loop *loop)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* signals are the control loop's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = -pthread_create(&loop->thread, NULL, loop_main, loop);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&loop->start_lock);
    while (!loop->started)
        pthread_cond_wait(&loop->start_cond, &loop->start_lock);
    rc = loop->start_status;
    pthread_mutex_unlock(&loop->start_lock);
    if (rc != 0)
        pthread_join(loop->thread, NULL);
    return rc;
}

int pms_loop_start(const struct pms_loop_config *config, struct pms_loop **out)
{
    struct pms_loop *loop = calloc(1, sizeof *loop);
    int rc;

    if (loop == NULL)
        return -ENOMEM;
    loop->config = *config;
    if (loop->config.buffer_bytes_max == 0)
        loop->config.buffer_bytes_max = BUFFER_BYTES_DEFAULT;
    loop->cluster = pms_get_u64(config->cluster_uuid.b);
    pms_list_init(&loop->arrays);
    pms_list_init(&loop->jobs);
    rc = pms_queue_init(&loop->in);
    if (rc != 0) {
        free(loop);
        return rc;
    }
    rc = pms_queue_init(&loop->out);
    if (rc != 0) {
        pms_queue_deinit(&loop->in);
        free(loop);
        return rc;
    }
    pthread_mutex_init(&loop->start_lock, NULL);
    pthread_cond_init(&loop->start_cond, NULL);
    pthread_mutex_init(&loop->snap_lock, NULL);
    rc = thread_start(loop);
    if (rc != 0) {
        loop_free(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

static struct pms_msg *msg_new(enum pms_msg_type type)
{
    struct pms_msg *m = calloc(1, sizeof *m);

    if (m != NULL) {
        m->type = type;
        m->fd[0] = m->fd[1] = m->fd[2] = -1;
    }
    return m;
}

void pms_loop_stop(struct pms_loop *loop)
{
    struct pms_msg *m;
    void *clean;

    if (loop == NULL)
        return;
    m = msg_new(PMS_MSG_STOP);
    PMS_CHECK_MSG(m != NULL, "out of memory");
    pms_queue_push(&loop->in, &m->item);
    pthread_join(loop->thread, &clean);
    if (clean != NULL)
        loop_free(loop);
}
