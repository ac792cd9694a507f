// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine by hand: two slots, a Raft of one line, disks and links that work at once. Stories
// one can read; the simulator does the rest.
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
    int answers[PMS_FRAME_TYPE_END]; /* frames sent, by type */
    struct pms_dp_conf conf;
    struct msg queue[QUEUE_MAX];
    int n;
    int proposals;
    uint32_t writes_on_wire; /* WRITE frames */
    uint32_t completed, dropped;
    int last_status;
};

static const uint8_t cluster[16] = {7};

static struct pms_dp_init init_of(uint8_t slot)
{
    struct pms_dp_init init = {.cluster = 7,
                               .array = 2,
                               .self_node = 100 + slot,
                               .self_slot = slot,
                               .size_bytes = SIZE,
                               .region_bytes = REGION};

    init.timing = pms_dp_timing_default;
    return init;
}

static void boot(struct world *w, uint8_t slot)
{
    struct pms_dp_init init = init_of(slot);

    assert_int_equal(pms_dp_create(&init, cluster, w->disk[slot], w->now, &w->dp[slot]), 0);
}

static void set_up(struct world *w)
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

static void die(struct world *w, int slot)
{
    pms_dp_destroy(w->dp[slot]);
    w->dp[slot] = NULL;
    for (int i = 0; i < w->n; i++)
        if (w->queue[i].from == slot || w->queue[i].to == slot)
            w->queue[i].to = -1;
}

static void tear_down(struct world *w)
{
    for (int s = 0; s < SLOTS; s++) {
        if (w->dp[s] != NULL)
            die(w, s);
        free(w->disk[s]);
    }
    for (int i = 0; i < w->n; i++)
        pms_iobuf_put(w->queue[i].buf);
}

static void on_disk(struct world *w, int slot, const struct pms_dp_action *a)
{
    if (a->disk.type == PMS_DP_DISK_WRITE)
        memcpy(w->disk[slot] + a->disk.offset, a->buf->data + a->buf_off, a->disk.length);
    else if (a->disk.type == PMS_DP_DISK_READ)
        memcpy(a->buf->data + a->buf_off, w->disk[slot] + a->disk.offset, a->disk.length);
    pms_iobuf_put(a->buf);
    pms_dp_disk_done(w->dp[slot], w->now, a->disk.tag, w->fail_disk[slot] ? -5 : 0);
}

/* The disk goes on: what it was asked meanwhile is done, in order. */
static void release_disk(struct world *w, int slot)
{
    w->hold_disk[slot] = false;
    for (int i = 0; i < w->n_held[slot]; i++)
        on_disk(w, slot, &w->held[slot][i]);
    w->n_held[slot] = 0;
}

static void on_propose(struct world *w, const struct pms_dp_action *a)
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
static struct pms_iobuf *arrived(struct pms_dp_action *a)
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

static bool act(struct world *w, int slot)
{
    struct pms_dp_action a;

    if (w->dp[slot] == NULL || !pms_dp_action_next(w->dp[slot], &a))
        return false;
    switch (a.type) {
    case PMS_DP_ACT_DISK:
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

static void settle_queue(struct world *w)
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

static void run(struct world *w, uint32_t ms)
{
    for (uint32_t i = 0; i < ms; i += 5) {
        w->now += MS(5);
        for (int s = 0; s < SLOTS; s++)
            if (w->dp[s] != NULL)
                pms_dp_tick(w->dp[s], w->now);
        settle_queue(w);
    }
}

static void join(struct world *w, uint8_t slot)
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

static void cut_off(struct world *w, uint8_t slot)
{
    die(w, slot);
    for (uint8_t s = 0; s < SLOTS; s++)
        if (w->dp[s] != NULL)
            pms_dp_link_down(w->dp[s], w->now, 100 + slot);
    settle_queue(w);
}

static struct pms_dp_status status(struct world *w, int slot)
{
    struct pms_dp_status s;

    pms_dp_status_get(w->dp[slot], w->now, &s);
    return s;
}

static void io(struct world *w, int slot, enum pms_dp_op_type type, uint64_t offset, struct pms_iobuf *buf)
{
    struct pms_dp_op op = {.type = type, .offset = offset, .length = buf->len, .buf = buf};
    uint32_t before = w->completed;

    pms_dp_submit(w->dp[slot], w->now, &op);
    for (int i = 0; i < 200 && w->completed == before; i++)
        run(w, 5);
    assert_int_equal(w->completed, before + 1);
    assert_int_equal(w->last_status, 0);
}

static void write_fill(struct world *w, int slot, uint64_t offset, uint32_t len, int fill)
{
    struct pms_iobuf *b = pms_iobuf_create(len);

    memset(b->data, fill, len);
    io(w, slot, PMS_DP_WRITE, offset, b);
    pms_iobuf_put(b);
}

static void expect_fill(struct world *w, int slot, uint64_t offset, uint32_t len, int fill)
{
    struct pms_iobuf *b = pms_iobuf_create(len);

    io(w, slot, PMS_DP_READ, offset, b);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(b->data[i], fill);
    pms_iobuf_put(b);
}

static void expect_equal_bricks(struct world *w)
{
    assert_memory_equal(w->disk[0] + PMS_BRICK_DATA_OFFSET, w->disk[1] + PMS_BRICK_DATA_OFFSET, SIZE);
}

static void test_array_when_created_then_first_slot_serves_and_mirrors(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    assert_true(status(&w, 0).serving);
    assert_true(status(&w, 0).leased);
    assert_int_equal(w.conf.in_sync, 3);
    write_fill(&w, 0, 4096, 8192, 0xab);
    expect_fill(&w, 0, 4096, 8192, 0xab);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_primary_when_it_dies_then_the_other_takes_over_and_it_resyncs(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    write_fill(&w, 0, 0, 512, 1);
    cut_off(&w, 0);
    run(&w, 600);
    assert_true(status(&w, 1).serving);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 2);
    expect_fill(&w, 1, 0, 512, 1);
    write_fill(&w, 1, 512, 1024, 2);
    write_fill(&w, 1, 5 * REGION, 512, 3);

    uint32_t before = w.writes_on_wire;
    join(&w, 0);
    run(&w, 2000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.writes_on_wire - before, 2); /* only the two runs that differed travelled */
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_handover_when_asked_then_the_other_serves_and_none_leaves(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    write_fill(&w, 0, 0, 512, 1);
    assert_int_equal(pms_dp_handover(w.dp[0], w.now, 0), PMS_EREFUSED);
    assert_int_equal(pms_dp_handover(w.dp[1], w.now, 0), PMS_EREFUSED);
    assert_int_equal(pms_dp_handover(w.dp[0], w.now, 1), 0);
    run(&w, 100);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 3);
    assert_true(status(&w, 1).serving);
    assert_false(status(&w, 0).serving);
    expect_fill(&w, 1, 0, 512, 1);
    tear_down(&w);
}

static void test_replica_when_it_stays_away_then_ejected_and_writes_go_on(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    cut_off(&w, 1);
    write_fill(&w, 0, 0, 512, 1); /* waits for the eject */
    assert_int_equal(w.conf.in_sync, 1);
    assert_int_equal(w.conf.primary, 0);
    tear_down(&w);
}

static void test_brick_when_its_disk_fails_then_the_slot_is_ejected(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    w.fail_disk[1] = true;
    write_fill(&w, 0, 0, 512, 1);
    assert_int_equal(w.conf.in_sync, 1);
    assert_true(status(&w, 1).brick_failed);
    tear_down(&w);
}

static void test_primary_when_its_own_disk_fails_then_the_other_takes_over(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    write_fill(&w, 0, 0, 512, 1);
    w.fail_disk[0] = true;

    struct pms_iobuf *b = pms_iobuf_create(512);
    struct pms_dp_op op = {.type = PMS_DP_WRITE, .offset = 512, .length = 512, .buf = b};

    memset(b->data, 2, 512);
    pms_dp_submit(w.dp[0], w.now, &op);
    run(&w, 1000);
    assert_int_equal(w.dropped, 1);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 2);
    expect_fill(&w, 1, 0, 512, 1);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_all_when_restarted_then_the_primary_takes_over_from_itself_with_both(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 600);
    write_fill(&w, 0, 0, 512, 1);
    uint64_t epoch = w.conf.epoch;
    die(&w, 0);
    die(&w, 1);
    settle_queue(&w);
    join(&w, 0);
    join(&w, 1);
    run(&w, 500);
    assert_true(w.conf.epoch > epoch);
    assert_int_equal(w.conf.primary, 0);
    assert_int_equal(w.conf.in_sync, 3);
    expect_fill(&w, 0, 0, 512, 1);
    tear_down(&w);
}

static void test_op_when_out_of_range_then_refused_at_once(void **state)
{
    struct world w;
    struct pms_iobuf *b = pms_iobuf_create(1024);
    struct pms_dp_op op = {.type = PMS_DP_READ, .offset = SIZE - 512, .length = 1024, .buf = b};

    (void)state;
    set_up(&w);
    join(&w, 0);
    pms_dp_submit(w.dp[0], w.now, &op);
    settle_queue(&w);
    assert_int_equal(w.completed, 1);
    assert_int_equal(w.last_status, -34);
    pms_iobuf_put(b);
    tear_down(&w);
}

/* A frame as slot 0's candidate or primary would send it, straight to slot 1. */
static void tell(struct world *w, uint8_t type, uint64_t epoch, uint64_t seq, struct pms_iobuf *buf)
{
    struct pms_frame f = {.type = type,
                          .from_slot = 0,
                          .to_slot = 1,
                          .cluster = 7,
                          .array = 2,
                          .epoch = epoch,
                          .seq = seq,
                          .arg2 = 501};

    if (buf != NULL) {
        f.length = f.payload_len = buf->len;
        f.payload_sum = pms_frame_sum(buf->data, buf->len);
    }
    assert_int_equal(pms_dp_frame(w->dp[1], w->now, 100, 9, &f, buf), 0);
    settle_queue(w);
}

static void test_promise_when_its_floor_is_not_durable_then_not_answered(void **state)
{
    struct world w;

    (void)state;
    set_up(&w);
    join(&w, 1);
    run(&w, 400); /* the quiet after its start is over (R4) */
    w.hold_disk[1] = true;
    tell(&w, PMS_FRAME_PROMISE, 2, 1, NULL);
    assert_int_equal(w.answers[PMS_FRAME_PROMISE_ACK], 0);
    release_disk(&w, 1);
    settle_queue(&w);
    assert_int_equal(w.answers[PMS_FRAME_PROMISE_ACK], 1);
    tear_down(&w);
}

static void test_promise_when_an_older_write_is_at_work_then_waits_for_it_and_its_flush(void **state)
{
    struct world w;
    struct pms_iobuf *b = pms_iobuf_create(512);

    (void)state;
    memset(b->data, 1, 512);
    set_up(&w);
    join(&w, 1);
    tell(&w, PMS_FRAME_WRITE, 1, 1, b); /* marks the region, so that the next one goes straight to the disk */
    assert_int_equal(w.answers[PMS_FRAME_WRITE_ACK], 1);
    run(&w, 400);
    w.hold_disk[1] = true;
    tell(&w, PMS_FRAME_WRITE, 1, 2, b);
    assert_int_equal(w.n_held[1], 1);

    struct pms_dp_action write = w.held[1][0];
    w.n_held[1] = 0;
    w.hold_disk[1] = false;
    tell(&w, PMS_FRAME_PROMISE, 2, 3, NULL);
    assert_int_equal(w.answers[PMS_FRAME_PROMISE_ACK], 0);
    w.hold_disk[1] = true; /* its flush */
    on_disk(&w, 1, &write);
    settle_queue(&w);
    assert_int_equal(w.answers[PMS_FRAME_PROMISE_ACK], 0);
    release_disk(&w, 1);
    settle_queue(&w);
    assert_int_equal(w.answers[PMS_FRAME_WRITE_ACK], 2);
    assert_int_equal(w.answers[PMS_FRAME_PROMISE_ACK], 1);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_clear_when_meant_for_another_incarnation_then_the_marks_stay(void **state)
{
    struct world w;
    struct pms_iobuf *b = pms_iobuf_create(512), *list = pms_iobuf_create(4);
    struct pms_frame f = {.type = PMS_FRAME_CLEAR,
                          .to_slot = 1,
                          .cluster = 7,
                          .array = 2,
                          .epoch = 1,
                          .payload_len = 4,
                          .arg2 = 999};

    (void)state;
    memset(b->data, 1, 512);
    memset(list->data, 0, 4);
    set_up(&w);
    join(&w, 1);
    tell(&w, PMS_FRAME_WRITE, 1, 1, b);
    assert_int_equal(status(&w, 1).dirty_regions, 1);
    assert_int_equal(pms_dp_frame(w.dp[1], w.now, 100, 9, &f, list), 0);
    assert_int_equal(status(&w, 1).dirty_regions, 1);
    f.arg2 = 501;
    assert_int_equal(pms_dp_frame(w.dp[1], w.now, 100, 9, &f, list), 0);
    assert_int_equal(status(&w, 1).dirty_regions, 0);
    pms_iobuf_put(b);
    pms_iobuf_put(list);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array_when_created_then_first_slot_serves_and_mirrors),
        cmocka_unit_test(test_primary_when_it_dies_then_the_other_takes_over_and_it_resyncs),
        cmocka_unit_test(test_handover_when_asked_then_the_other_serves_and_none_leaves),
        cmocka_unit_test(test_replica_when_it_stays_away_then_ejected_and_writes_go_on),
        cmocka_unit_test(test_brick_when_its_disk_fails_then_the_slot_is_ejected),
        cmocka_unit_test(test_primary_when_its_own_disk_fails_then_the_other_takes_over),
        cmocka_unit_test(test_all_when_restarted_then_the_primary_takes_over_from_itself_with_both),
        cmocka_unit_test(test_op_when_out_of_range_then_refused_at_once),
        cmocka_unit_test(test_clear_when_meant_for_another_incarnation_then_the_marks_stay),
        cmocka_unit_test(test_promise_when_its_floor_is_not_durable_then_not_answered),
        cmocka_unit_test(test_promise_when_an_older_write_is_at_work_then_waits_for_it_and_its_flush),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
