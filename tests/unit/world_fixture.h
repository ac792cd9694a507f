// SPDX-License-Identifier: GPL-2.0-or-later
// A small cluster in one process for tests of the data loop: loops with bricks, a control that plays Raft and
// dials, a ring client.
#ifndef PMS_TESTS_UNIT_WORLD_FIXTURE_H
#define PMS_TESTS_UNIT_WORLD_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "datapath/io/loop.h"

#define ARRAY     0xa77a7ull
#define SIZE      (16u << 20)
#define NODES_MAX 3
#define NODE(i)   (0x100ull + (uint64_t)(i))
#define DEPTH     16

struct world {
    char dir[64];
    unsigned n;
    struct pms_uuid cluster;
    struct pms_loop *loop[NODES_MAX];
    struct pms_loop_brick brick[NODES_MAX];
    struct pms_dp_conf conf;                /* the applied cluster state */
    struct pms_dp_status status[NODES_MAX]; /* as told by EV_STATUS */
    struct pms_loop_event last[NODES_MAX];  /* the last event that is none of the frequent ones */
    unsigned count[NODES_MAX][32];          /* events by type */
};

struct client {
    struct pms_ring *ring;
    int node;       /* where it is attached */
    uint8_t *model; /* SIZE bytes: what must be read; blocks under write are not read meanwhile */
    struct command {
        bool busy, write;
        uint64_t offset, tag;
        uint32_t length;
        uint8_t *buf;
        uint8_t *want; /* WRITE: what model becomes */
    } slot[DEPTH];
    uint64_t seed, writes, reads;
};

static inline void world_pair(int fd[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(l, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&addr, &len), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd[0], (struct sockaddr *)&addr, sizeof addr), 0);
    fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd[1] >= 0);
    close(l);
}

static inline void world_dial(struct world *w, unsigned from, uint64_t node)
{
    unsigned to = (unsigned)(node - NODE(0));
    int fd[2];

    assert_true(to < w->n);
    if (w->loop[to] == NULL) {
        pms_loop_link_dialled(w->loop[from], node, -ECONNREFUSED, 0);
        return;
    }
    world_pair(fd);
    pms_loop_link_accepted(w->loop[to], NODE(from), fd[1], 1);
    pms_loop_link_dialled(w->loop[from], node, fd[0], 1);
}

/* Compare-and-set on the epoch, applied everywhere at once. */
static inline void world_propose(struct world *w, const struct pms_loop_event *ev)
{
    if (ev->propose.epoch != w->conf.epoch)
        return;
    assert_true(ev->propose.in_sync != 0);
    w->conf.epoch++;
    w->conf.primary = ev->propose.primary;
    w->conf.in_sync = ev->propose.in_sync;
    memcpy(w->conf.incarnation, ev->propose.incarnation, sizeof w->conf.incarnation);
    for (unsigned i = 0; i < w->n; i++) {
        if (w->loop[i] != NULL)
            pms_loop_conf(w->loop[i], ARRAY, &w->conf, true);
    }
}

static inline void world_events(struct world *w, unsigned i)
{
    struct pms_loop_event ev;

    while (w->loop[i] != NULL && pms_loop_event_next(w->loop[i], &ev)) {
        w->count[i][ev.type]++;
        switch (ev.type) {
        case PMS_LOOP_EV_LINK_WANT:
            world_dial(w, i, ev.node);
            break;
        case PMS_LOOP_EV_PROPOSE:
            world_propose(w, &ev);
            break;
        case PMS_LOOP_EV_STATUS:
            w->status[i] = ev.dp;
            break;
        case PMS_LOOP_EV_LINK_UP:
        case PMS_LOOP_EV_LINK_LOST:
            break;
        default:
            w->last[i] = ev;
            break;
        }
    }
}

/* Waits up to ms for events of any loop (and for extra_fd, if not -1), and handles them. */
static inline void world_run(struct world *w, int ms, int extra_fd)
{
    struct pollfd p[NODES_MAX + 1];
    nfds_t n = 0;

    for (unsigned i = 0; i < w->n; i++) {
        if (w->loop[i] != NULL)
            p[n++] = (struct pollfd){.fd = pms_loop_event_fd(w->loop[i]), .events = POLLIN};
    }
    if (extra_fd >= 0)
        p[n++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    poll(p, n, ms);
    for (unsigned i = 0; i < w->n; i++)
        world_events(w, i);
}

#define WORLD_UNTIL(w, cond)                                                                                 \
    do {                                                                                                     \
        uint64_t until_ = pms_clock_boot_ns() + 20000000000ull;                                              \
        while (!(cond)) {                                                                                    \
            world_run(w, 5, -1);                                                                             \
            if (pms_clock_boot_ns() > until_)                                                                \
                fail_msg("not within 20 s: %s", #cond);                                                      \
        }                                                                                                    \
    } while (0)

/* Waits for the next event of this type at node i and returns its status. */
static inline int world_expect(struct world *w, unsigned i, enum pms_loop_event_type type)
{
    unsigned before = w->count[i][type];

    WORLD_UNTIL(w, w->count[i][type] > before);
    return w->last[i].status;
}

static inline void world_loop_start(struct world *w, unsigned i)
{
    struct pms_loop_config config = {.cluster_uuid = w->cluster, .self_node = NODE(i)};

    assert_int_equal(pms_loop_start(&config, &w->loop[i]), 0);
}

/* Opens the array at node i and tells it the current state. */
static inline void world_open(struct world *w, unsigned i)
{
    pms_loop_array_open(w->loop[i], &w->brick[i]);
    assert_int_equal(world_expect(w, i, PMS_LOOP_EV_ARRAY_OPEN), 0);
    pms_loop_conf(w->loop[i], ARRAY, &w->conf, true);
}

static inline void world_stop(struct world *w, unsigned i)
{
    pms_loop_stop(w->loop[i]);
    w->loop[i] = NULL;
    memset(&w->status[i], 0, sizeof w->status[i]);
}

/* n loops with new bricks, in sync, at epoch 1. Nothing is opened yet. */
static inline struct world *world_create(unsigned n)
{
    struct world *w = calloc(1, sizeof *w);

    w->n = n;
    strcpy(w->dir, "/var/tmp/test_loop.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    pms_uuid_random(&w->cluster);
    w->conf = (struct pms_dp_conf){.epoch = 1, .n_slots = (uint8_t)n, .in_sync = (uint8_t)((1u << n) - 1)};
    for (unsigned i = 0; i < n; i++) {
        struct pms_loop_brick *b = &w->brick[i];

        snprintf(b->path, sizeof b->path, "%s/brick%u", w->dir, i);
        b->init = (struct pms_dp_init){.array = ARRAY, .self_slot = (uint8_t)i, .size_bytes = SIZE};
        b->init.region_bytes = PMS_REGION_BYTES;
        w->conf.node[i] = NODE(i);
        w->conf.incarnation[i] = pms_id_random();
        world_loop_start(w, i);
        pms_loop_brick_create(w->loop[i], b, w->conf.incarnation[i], false);
        assert_int_equal(world_expect(w, i, PMS_LOOP_EV_BRICK_CREATED), 0);
    }
    return w;
}

static inline void world_destroy(struct world *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        world_stop(w, i);
        unlink(w->brick[i].path);
    }
    assert_int_equal(rmdir(w->dir), 0);
    free(w);
}

/* The node that serves, or -1. */
static inline int world_primary(const struct world *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        if (w->loop[i] != NULL && w->status[i].serving && w->status[i].leased)
            return (int)i;
    }
    return -1;
}

static inline void world_settled(struct world *w)
{
    WORLD_UNTIL(w, world_primary(w) >= 0 && w->conf.in_sync == (1u << w->n) - 1 &&
                       w->status[world_primary(w)].resyncing == 0);
}

/* ---- a client of the ring ---- */

static inline uint64_t client_random(struct client *c)
{
    c->seed ^= c->seed << 13;
    c->seed ^= c->seed >> 7;
    c->seed ^= c->seed << 17;
    return c->seed;
}

static inline void client_attach(struct world *w, struct client *c, int node)
{
    int fd[3];

    pms_ring_fds(c->ring, &fd[0], &fd[1], &fd[2]);
    for (int i = 0; i < 3; i++)
        fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
    pms_loop_ring_attach(w->loop[node], ARRAY, fd[0], fd[1], fd[2]);
    assert_int_equal(world_expect(w, (unsigned)node, PMS_LOOP_EV_RING_ATTACHED), 0);
    c->node = node;
}

static inline void client_submit(struct client *c, struct command *s)
{
    enum pms_ring_op op = s->write ? PMS_RING_WRITE : PMS_RING_READ;
    uint64_t at;

    assert_true(pms_ring_buf_offset(c->ring, s->buf, &at));
    assert_int_equal(
        pms_ring_submit(c->ring, op, 0, s->offset, s->length, at, (uint64_t)(s - c->slot), &s->tag), 0);
}

/* A new target, perhaps at another node: what was not answered is sent again, as an initiator would. */
static inline void client_move(struct world *w, struct client *c, int node)
{
    if (c->ring != NULL)
        pms_ring_destroy(c->ring);
    assert_int_equal(pms_ring_create(ARRAY, 256, 32u << 20, &c->ring), 0);
    client_attach(w, c, node);
    for (unsigned i = 0; i < DEPTH; i++) {
        struct command *s = &c->slot[i];

        if (!s->busy)
            continue;
        s->buf = pms_ring_buf_alloc(c->ring, s->length);
        assert_non_null(s->buf);
        if (s->write)
            memcpy(s->buf, s->want, s->length);
        client_submit(c, s);
    }
    pms_ring_submit_kick(c->ring);
}

static inline struct client *client_create(struct world *w, int node)
{
    struct client *c = calloc(1, sizeof *c);

    c->model = calloc(1, SIZE);
    c->seed = 0x9e3779b97f4a7c15ull;
    client_move(w, c, node);
    return c;
}

static inline void client_destroy(struct client *c)
{
    for (unsigned i = 0; i < DEPTH; i++)
        free(c->slot[i].want);
    pms_ring_destroy(c->ring);
    free(c->model);
    free(c);
}

static inline bool client_overlaps(const struct client *c, uint64_t offset, uint32_t length)
{
    for (unsigned i = 0; i < DEPTH; i++) {
        const struct command *s = &c->slot[i];

        if (s->busy && offset < s->offset + s->length && s->offset < offset + length)
            return true;
    }
    return false;
}

/* Fills the free slots with random reads and writes that do not overlap what is under way. */
static inline void client_fill(struct client *c)
{
    static const uint32_t lengths[] = {512, 4096, 4096, 8192, 65536, 262144, 1u << 20};

    for (unsigned i = 0; i < DEPTH; i++) {
        struct command *s = &c->slot[i];
        uint32_t length = lengths[client_random(c) % (sizeof lengths / sizeof *lengths)];
        uint64_t offset = client_random(c) % ((SIZE - length) / 512 + 1) * 512;

        if (s->busy || client_overlaps(c, offset, length))
            continue;
        *s = (struct command){.busy = true, .offset = offset, .length = length};
        s->write = client_random(c) % 3 != 0;
        s->buf = pms_ring_buf_alloc(c->ring, length);
        assert_non_null(s->buf);
        if (s->write) {
            s->want = malloc(length);
            for (uint32_t k = 0; k < length; k += 8) {
                uint64_t v = client_random(c);

                memcpy(s->want + k, &v, 8);
            }
            memcpy(s->buf, s->want, length);
        }
        client_submit(c, s);
    }
    pms_ring_submit_kick(c->ring);
}

static inline void client_answer(struct client *c, const struct pms_ring_cpl *cpl)
{
    struct command *s = &c->slot[cpl->cookie];

    assert_true(s->busy);
    assert_int_equal(cpl->tag, s->tag);
    assert_int_equal(cpl->status, 0);
    if (s->write)
        memcpy(c->model + s->offset, s->want, s->length);
    else if (memcmp(c->model + s->offset, s->buf, s->length) != 0)
        fail_msg("read of %u at %llu is not what was written", s->length, (unsigned long long)s->offset);
    c->writes += s->write;
    c->reads += !s->write;
    pms_ring_buf_free(c->ring, s->buf);
    free(s->want);
    s->want = NULL;
    s->busy = false;
}

static inline void client_reap(struct client *c)
{
    struct pms_ring_cpl cpl[DEPTH];
    int n;

    while ((n = pms_ring_reap(c->ring, cpl, DEPTH)) > 0 || pms_ring_reap_arm(c->ring)) {
        for (int i = 0; i < n; i++)
            client_answer(c, &cpl[i]);
    }
    assert_int_equal(n, 0);
}

static inline unsigned client_busy(const struct client *c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < DEPTH; i++)
        n += c->slot[i].busy;
    return n;
}

static inline void client_turn(struct world *w, struct client *c)
{
    int fd[3];

    pms_ring_fds(c->ring, &fd[0], &fd[1], &fd[2]);
    world_run(w, 5, fd[2]);
    if (read(fd[2], &(uint64_t){0}, 8) < 0)
        assert_int_equal(errno, EAGAIN);
    client_reap(c);
}

/* Runs random commands until `writes` more were acknowledged; leaves some under way. */
static inline void client_work(struct world *w, struct client *c, uint64_t writes)
{
    uint64_t until = pms_clock_boot_ns() + 30000000000ull, goal = c->writes + writes;

    while (c->writes < goal) {
        client_fill(c);
        client_turn(w, c);
        if (pms_clock_boot_ns() > until)
            fail_msg("only %llu writes were answered", (unsigned long long)c->writes);
    }
}

static inline void client_drain(struct world *w, struct client *c)
{
    uint64_t until = pms_clock_boot_ns() + 30000000000ull;

    while (client_busy(c) > 0) {
        client_turn(w, c);
        if (pms_clock_boot_ns() > until)
            fail_msg("%u commands are not answered", client_busy(c));
    }
}

/* All bricks hold exactly the model. Call after the loops have stopped, or while nothing is written. */
static inline void world_compare(const struct world *w, const struct client *c)
{
    uint8_t *data = malloc(SIZE);

    for (unsigned i = 0; i < w->n; i++) {
        int fd = open(w->brick[i].path, O_RDONLY);

        assert_int_equal(pread(fd, data, SIZE, PMS_BRICK_DATA_OFFSET), SIZE);
        close(fd);
        for (uint32_t k = 0; k < SIZE; k++) {
            if (data[k] != c->model[k])
                fail_msg("brick %u differs at byte %u", i, k);
        }
    }
    free(data);
}

#endif
