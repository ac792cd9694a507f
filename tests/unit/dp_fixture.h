// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine by hand, for stories one can read: two slots, a Raft of one line, disks and links that work
// at once.
#ifndef PMS_TESTS_UNIT_DP_FIXTURE_H
#define PMS_TESTS_UNIT_DP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "datapath/core/dp.h"

#define REGION    8192u
#define SIZE      (8u * REGION)
#define BRICK     (PMS_BRICK_DATA_OFFSET + SIZE)
#define SLOTS     2
#define MS(x)     ((uint64_t)(x)*1000000u)
#define QUEUE_MAX 4096

struct msg {
    int from, to;
    bool answer;
    struct pms_frame f;
    struct pms_iobuf *buf;
};

struct world {
    uint64_t now;
    struct pms_dp *dp[SLOTS];
    uint8_t *disk[SLOTS];
    bool fail_disk[SLOTS];
    bool hold_disk[SLOTS]; /* requests are kept in held instead */
    struct pms_dp_action held[SLOTS][64];
    int n_held[SLOTS];
    uint32_t data_writes[SLOTS], meta_writes[SLOTS], flushes[SLOTS]; /* asked of the disk */
    int answers[PMS_FRAME_TYPE_END];                                 /* frames sent, by type */
    uint64_t boots[SLOTS];                                           /* of the host, minus 1 */
    struct pms_dp_conf conf;
    struct msg queue[QUEUE_MAX];
    int n;
    int proposals;
    uint32_t writes_on_wire; /* WRITE frames */
    uint32_t completed, dropped;
    int last_status;
};

static const uint8_t cluster[16] = {7};

static inline struct pms_dp_init init_of(uint8_t slot)
{
    struct pms_dp_init init = {.cluster = 7,
                               .array = 2,
                               .self_node = 100 + slot,
                               .self_slot = slot,
                               .size_bytes = SIZE,
                               .region_bytes = REGION,
                               .boot_id = 1,
                               .fresh_incarnation = 900,
                               .volatile_bytes = PMS_VOLATILE_BYTES};

    init.timing = pms_dp_timing_default;
    return init;
}

static inline void boot(struct world *w, uint8_t slot)
{
    struct pms_dp_init init = init_of(slot);

    init.boot_id += w->boots[slot];
    init.fresh_incarnation += 10 * w->boots[slot] + slot;
    assert_int_equal(pms_dp_create(&init, cluster, w->disk[slot], w->now, &w->dp[slot]), 0);
}

static inline void set_up(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->now = MS(1000);
    w->conf.epoch = 1;
    w->conf.n_slots = SLOTS;
    w->conf.in_sync = (1u << SLOTS) - 1;
    for (uint8_t s = 0; s < SLOTS; s++) {
        struct pms_dp_init init = init_of(s);

        w->conf.node[s] = init.self_node;
        w->conf.incarnation[s] = 500 + s;
        w->disk[s] = calloc(1, BRICK);
        PMS_CHECK(w->disk[s] != NULL);
        assert_int_equal(pms_dp_brick_format(w->disk[s], cluster, &init, 500 + s, false), 0);
    }
}

static inline void die(struct world *w, int slot)
{
    pms_dp_destroy(w->dp[slot]);
    w->dp[slot] = NULL;
    for (int i = 0; i < w->n; i++)
        if (w->queue[i].from == slot || w->queue[i].to == slot)
            w->queue[i].to = -1;
}

static inline void tear_down(struct world *w)
{
    for (int s = 0; s < SLOTS; s++) {
        if (w->dp[s] != NULL)
            die(w, s);
        free(w->disk[s]);
    }
    for (int i = 0; i < w->n; i++)
        pms_iobuf_put(w->queue[i].buf);
}

static inline void on_disk(struct world *w, int slot, const struct pms_dp_action *a)
{
    if (a->disk.type == PMS_DP_DISK_WRITE)
        memcpy(w->disk[slot] + a->disk.offset, a->buf->data + a->buf_off, a->disk.length);
    else if (a->disk.type == PMS_DP_DISK_READ)
        memcpy(a->buf->data + a->buf_off, w->disk[slot] + a->disk.offset, a->disk.length);
    else if (a->disk.type == PMS_DP_DISK_ZERO)
        memset(w->disk[slot] + a->disk.offset, 0, a->disk.length);
    pms_iobuf_put(a->buf);
    pms_dp_disk_done(w->dp[slot], w->now, a->disk.tag, w->fail_disk[slot] ? -5 : 0);
}

static inline void count_disk(struct world *w, int slot, const struct pms_dp_action *a)
{
    if (a->disk.type == PMS_DP_DISK_FLUSH)
        w->flushes[slot]++;
    else if (a->disk.type == PMS_DP_DISK_WRITE && a->disk.offset < PMS_BRICK_DATA_OFFSET)
        w->meta_writes[slot]++;
    else if (a->disk.type == PMS_DP_DISK_WRITE)
        w->data_writes[slot]++;
}

/* The disk goes on: what it was asked meanwhile is done, in order. */
static inline void release_disk(struct world *w, int slot)
{
    w->hold_disk[slot] = false;
    for (int i = 0; i < w->n_held[slot]; i++)
        on_disk(w, slot, &w->held[slot][i]);
    w->n_held[slot] = 0;
}

static inline void on_propose(struct world *w, const struct pms_dp_action *a)
{
    w->proposals++;
    if (a->propose.epoch != w->conf.epoch)
        return;
    w->conf.epoch++;
    w->conf.primary = a->propose.primary;
    w->conf.in_sync = a->propose.in_sync;
    memcpy(w->conf.incarnation, a->propose.incarnation, sizeof w->conf.incarnation);
    for (int s = 0; s < SLOTS; s++)
        if (w->dp[s] != NULL)
            pms_dp_conf(w->dp[s], w->now, &w->conf, true);
}

/* What arrives is a buffer of its own with the payload at its start. */
static inline struct pms_iobuf *arrived(struct pms_dp_action *a)
{
    struct pms_iobuf *b = NULL;

    if (a->send.frame.payload_len > 0) {
        b = pms_iobuf_create(a->send.frame.payload_len);
        memcpy(b->data, a->buf->data + a->buf_off, b->len);
        assert_true(pms_frame_sum(b->data, b->len) == a->send.frame.payload_sum);
    }
    pms_iobuf_put(a->buf);
    return b;
}

static inline bool act(struct world *w, int slot)
{
    struct pms_dp_action a;

    if (w->dp[slot] == NULL || !pms_dp_action_next(w->dp[slot], &a))
        return false;
    switch (a.type) {
    case PMS_DP_ACT_DISK:
        count_disk(w, slot, &a);
        if (w->hold_disk[slot])
            w->held[slot][w->n_held[slot]++] = a;
        else
            on_disk(w, slot, &a);
        break;
    case PMS_DP_ACT_SEND:
        PMS_CHECK(w->n < QUEUE_MAX);
        w->answers[a.send.frame.type]++;
        w->writes_on_wire += a.send.frame.type == PMS_FRAME_WRITE;
        w->queue[w->n++] =
            (struct msg){slot, (int)(a.send.node - 100), a.send.conn != 0, a.send.frame, arrived(&a)};
        break;
    case PMS_DP_ACT_PROPOSE:
        on_propose(w, &a);
        break;
    case PMS_DP_ACT_COMPLETE:
        w->completed++;
        w->last_status = a.op.status;
        break;
    case PMS_DP_ACT_DROP:
        w->dropped++;
        break;
    default:
        break;
    }
    return true;
}

static inline void settle_queue(struct world *w)
{
    bool any = true;

    while (any) {
        any = false;
        for (int s = 0; s < SLOTS; s++)
            while (act(w, s))
                any = true;
        if (w->n > 0) {
            struct msg m = w->queue[0];

            memmove(w->queue, w->queue + 1, (size_t)--w->n * sizeof m);
            if (m.to >= 0 && w->dp[m.to] != NULL)
                assert_int_equal(pms_dp_frame(w->dp[m.to], w->now, 100 + (uint64_t)m.from, m.answer ? 0 : 9,
                                              &m.f, m.f.payload_len ? m.buf : NULL),
                                 0);
            pms_iobuf_put(m.buf);
            any = true;
        }
        for (int s = 0; s < SLOTS; s++)
            if (w->dp[s] != NULL)
                pms_dp_check(w->dp[s]);
    }
}

static inline void run(struct world *w, uint32_t ms)
{
    for (uint32_t i = 0; i < ms; i += 5) {
        w->now += MS(5);
        for (int s = 0; s < SLOTS; s++)
            if (w->dp[s] != NULL)
                pms_dp_tick(w->dp[s], w->now);
        settle_queue(w);
    }
}

static inline void join(struct world *w, uint8_t slot)
{
    boot(w, slot);
    for (uint8_t s = 0; s < SLOTS; s++) {
        if (s == slot || w->dp[s] == NULL)
            continue;
        pms_dp_link_up(w->dp[slot], w->now, 100 + s);
        pms_dp_link_up(w->dp[s], w->now, 100 + slot);
    }
    pms_dp_conf(w->dp[slot], w->now, &w->conf, true);
    settle_queue(w);
}

static inline void cut_off(struct world *w, uint8_t slot)
{
    die(w, slot);
    for (uint8_t s = 0; s < SLOTS; s++)
        if (w->dp[s] != NULL)
            pms_dp_link_down(w->dp[s], w->now, 100 + slot);
    settle_queue(w);
}

static inline struct pms_dp_status status(struct world *w, int slot)
{
    struct pms_dp_status s;

    pms_dp_status_get(w->dp[slot], w->now, &s);
    return s;
}

static inline void io(struct world *w, int slot, enum pms_dp_op_type type, uint64_t offset,
                      struct pms_iobuf *buf)
{
    struct pms_dp_op op = {.type = type, .offset = offset, .length = buf->len, .buf = buf};
    uint32_t before = w->completed;

    pms_dp_submit(w->dp[slot], w->now, &op);
    for (int i = 0; i < 200 && w->completed == before; i++)
        run(w, 5);
    assert_int_equal(w->completed, before + 1);
    assert_int_equal(w->last_status, 0);
}

static inline void write_fill(struct world *w, int slot, uint64_t offset, uint32_t len, int fill)
{
    struct pms_iobuf *b = pms_iobuf_create(len);

    memset(b->data, fill, len);
    io(w, slot, PMS_DP_WRITE, offset, b);
    pms_iobuf_put(b);
}

static inline void expect_fill(struct world *w, int slot, uint64_t offset, uint32_t len, int fill)
{
    struct pms_iobuf *b = pms_iobuf_create(len);

    io(w, slot, PMS_DP_READ, offset, b);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(b->data[i], fill);
    pms_iobuf_put(b);
}

static inline void expect_equal_bricks(struct world *w)
{
    assert_memory_equal(w->disk[0] + PMS_BRICK_DATA_OFFSET, w->disk[1] + PMS_BRICK_DATA_OFFSET, SIZE);
}

#endif
