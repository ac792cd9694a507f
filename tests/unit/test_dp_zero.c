// SPDX-License-Identifier: GPL-2.0-or-later
// Zeroing by hand: an ordered write on every slot whose zeros do not travel.
#include <errno.h>

#include "tests/unit/dp_fixture.h"

static void set_up_both(struct world *w)
{
    set_up(w);
    join(w, 0);
    join(w, 1);
    run(w, 600);
}

static void submit_zero(struct world *w, struct pms_dp_op *op, uint64_t offset, uint32_t len)
{
    *op = (struct pms_dp_op){.type = PMS_DP_ZERO, .offset = offset, .length = len};
    pms_dp_submit(w->dp[0], w->now, op);
}

static void zero(struct world *w, uint64_t offset, uint32_t len)
{
    struct pms_dp_op op;
    uint32_t before = w->completed;

    submit_zero(w, &op, offset, len);
    for (int i = 0; i < 200 && w->completed == before; i++)
        run(w, 5);
    assert_int_equal(w->completed, before + 1);
    assert_int_equal(w->last_status, 0);
}

static void expect_equal_data(const struct world *w)
{
    assert_memory_equal(w->disk[0] + PMS_BRICK_DATA_OFFSET, w->disk[1] + PMS_BRICK_DATA_OFFSET, SIZE);
}

/* Of one brick's held requests: those that write data or zeros. */
static int held_data(const struct world *w, int slot)
{
    int n = 0;

    for (int i = 0; i < w->n_held[slot]; i++)
        n += w->held[slot][i].disk.type != PMS_DP_DISK_FLUSH &&
             w->held[slot][i].disk.offset >= PMS_BRICK_DATA_OFFSET;
    return n;
}

static void test_zero_when_over_several_regions_then_zeros_on_all_and_nothing_travels(void **state)
{
    struct world w;

    (void)state;
    set_up_both(&w);
    write_fill(&w, 0, 0, 4 * REGION, 7);
    uint32_t wire = w.writes_on_wire;
    zero(&w, 512, 3 * REGION);
    assert_int_equal(w.writes_on_wire, wire);
    assert_int_equal(w.answers[PMS_FRAME_ZERO], 1);
    expect_fill(&w, 0, 0, 512, 7);
    expect_fill(&w, 0, 512, 3 * REGION, 0);
    expect_fill(&w, 0, 512 + 3 * REGION, REGION - 512, 7);
    expect_equal_data(&w);
    tear_down(&w);
}

static void test_zero_when_it_begins_then_all_its_regions_are_marked_durably(void **state)
{
    struct pms_dp_op op;
    struct world w;

    (void)state;
    set_up_both(&w);
    assert_int_equal(status(&w, 1).dirty_regions, 0);
    for (int s = 0; s < SLOTS; s++)
        w.hold_disk[s] = true;
    submit_zero(&w, &op, REGION, 3 * REGION);
    settle_queue(&w);
    for (int s = 0; s < SLOTS; s++) {
        assert_true(w.n_held[s] > 0);
        assert_int_equal(held_data(&w, s), 0); /* the mark goes first (I7) */
    }
    uint32_t before = w.completed;
    for (int s = 0; s < SLOTS; s++)
        release_disk(&w, s);
    run(&w, 50);
    assert_int_equal(w.completed, before + 1);
    for (int s = 0; s < SLOTS; s++)
        assert_int_equal(status(&w, s).dirty_regions, 3);
    tear_down(&w);
}

/* I5: what overlaps is executed in the order of submission, on every slot. */
static void test_zero_when_it_overlaps_a_write_then_ordered_after_it(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct pms_dp_op ops[3] = {{.type = PMS_DP_WRITE, .offset = 512, .length = 512, .buf = b}};
    struct world w;

    (void)state;
    memset(b->data, 9, 512);
    set_up_both(&w);
    write_fill(&w, 0, 0, 4096, 1); /* marks the region */
    w.hold_disk[0] = w.hold_disk[1] = true;
    pms_dp_submit(w.dp[0], w.now, &ops[0]);
    submit_zero(&w, &ops[1], 0, 4096);
    submit_zero(&w, &ops[2], REGION - 512, 512); /* beside them: waits for nothing */
    settle_queue(&w);
    for (int s = 0; s < SLOTS; s++)
        assert_int_equal(held_data(&w, s), 2);
    for (int s = 0; s < SLOTS; s++)
        release_disk(&w, s);
    run(&w, 50);
    expect_fill(&w, 0, 0, 4096, 0);
    expect_equal_data(&w);
    pms_iobuf_put(b);
    tear_down(&w);
}

/* R1: a read waits for the zeroing that it overlaps. */
static void test_read_when_it_overlaps_a_zeroing_then_waits_and_sees_zeros(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct pms_dp_op ops[2];
    struct world w;

    (void)state;
    set_up_both(&w);
    write_fill(&w, 0, 0, 4096, 5);
    w.hold_disk[1] = true;
    submit_zero(&w, &ops[0], 0, 4096);
    ops[1] = (struct pms_dp_op){.type = PMS_DP_READ, .offset = 1024, .length = 512, .buf = b};
    memset(b->data, 1, 512);
    pms_dp_submit(w.dp[0], w.now, &ops[1]);
    uint32_t before = w.completed;
    run(&w, 50);
    assert_int_equal(w.completed, before); /* the other slot does not have the zeros yet */
    release_disk(&w, 1);
    run(&w, 50);
    assert_int_equal(w.completed, before + 2);
    for (int i = 0; i < 512; i++)
        assert_int_equal(b->data[i], 0);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_zero_when_the_primary_dies_then_the_next_makes_both_equal(void **state)
{
    struct pms_dp_op op;
    struct world w;

    (void)state;
    set_up_both(&w);
    write_fill(&w, 0, 0, 2 * REGION, 3);
    w.hold_disk[1] = true;
    submit_zero(&w, &op, 0, 2 * REGION);
    settle_queue(&w); /* the own brick has zeros, the other one does not */
    assert_int_equal(w.disk[0][PMS_BRICK_DATA_OFFSET], 0);
    assert_int_equal(w.disk[1][PMS_BRICK_DATA_OFFSET], 3);
    cut_off(&w, 0);
    w.n_held[1] = 0; /* it never lands */
    cut_off(&w, 1);
    w.hold_disk[1] = false;
    w.conf.primary = 1;
    join(&w, 0);
    join(&w, 1);
    run(&w, 4000);
    assert_int_equal(w.conf.primary, 1);
    expect_fill(&w, 1, 0, 2 * REGION, 3); /* it was never answered: either is right, if only both agree */
    expect_equal_data(&w);
    tear_down(&w);
}

static void test_zero_when_a_slot_was_away_then_its_resync_brings_the_zeros(void **state)
{
    struct world w;

    (void)state;
    set_up_both(&w);
    write_fill(&w, 0, 0, 3 * REGION, 6);
    cut_off(&w, 1);
    run(&w, 3000);
    assert_int_equal(w.conf.in_sync, 1);
    zero(&w, 0, 2 * REGION);
    join(&w, 1);
    run(&w, 6000);
    assert_int_equal(w.conf.in_sync, 3);
    expect_fill(&w, 0, 0, 2 * REGION, 0);
    expect_equal_data(&w);
    tear_down(&w);
}

static void test_zero_when_the_cache_is_on_then_only_fua_is_flushed(void **state)
{
    struct pms_dp_op op = {.type = PMS_DP_ZERO, .length = 4096, .fua = true};
    struct world w;

    (void)state;
    set_up_both(&w);
    w.conf.write_cache = w.conf.cache_used = true;
    for (int s = 0; s < SLOTS; s++)
        pms_dp_conf(w.dp[s], w.now, &w.conf, true);
    write_fill(&w, 0, 0, 4096, 1);
    run(&w, 1500);
    uint32_t before = w.flushes[0] + w.flushes[1], completed = w.completed;
    zero(&w, 0, 4096);
    assert_int_equal(w.flushes[0] + w.flushes[1], before);
    pms_dp_submit(w.dp[0], w.now, &op);
    run(&w, 50);
    assert_int_equal(w.completed, completed + 2);
    assert_true(w.flushes[0] + w.flushes[1] >= before + 2);
    tear_down(&w);
}

static void test_zero_when_its_disk_request_fails_then_the_slot_is_ejected(void **state)
{
    struct world w;

    (void)state;
    set_up_both(&w);
    write_fill(&w, 0, 0, 512, 1);
    w.fail_disk[1] = true;
    zero(&w, 0, 512);
    assert_int_equal(w.conf.in_sync, 1);
    assert_true(status(&w, 1).brick_failed);
    tear_down(&w);
}

static void refuse(struct world *w, uint64_t offset, uint32_t len, struct pms_iobuf *buf, int want)
{
    struct pms_dp_op op = {.type = PMS_DP_ZERO, .offset = offset, .length = len, .buf = buf};
    uint32_t before = w->completed;

    pms_dp_submit(w->dp[0], w->now, &op);
    settle_queue(w);
    assert_int_equal(w->completed, before + 1);
    assert_int_equal(w->last_status, want);
}

static void test_zero_when_it_is_no_range_then_refused(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct world w;

    (void)state;
    set_up_both(&w);
    refuse(&w, 0, 0, NULL, -EINVAL);
    refuse(&w, 1, 512, NULL, -EINVAL);
    refuse(&w, 0, 511, NULL, -EINVAL);
    refuse(&w, 0, PMS_ZERO_BYTES_MAX + 512, NULL, -EINVAL);
    refuse(&w, 0, 512, b, -EINVAL);
    refuse(&w, SIZE - 512, 1024, NULL, -ERANGE);
    pms_iobuf_put(b);
    tear_down(&w);
}

static int frame_give(struct world *w, uint64_t offset, uint32_t len, struct pms_iobuf *buf)
{
    struct pms_frame f = {.type = PMS_FRAME_ZERO,
                          .to_slot = 1,
                          .cluster = init_of(0).cluster,
                          .array = 2,
                          .epoch = w->conf.epoch,
                          .seq = 1u << 20,
                          .offset = offset,
                          .length = len,
                          .payload_len = buf != NULL ? buf->len : 0,
                          .arg2 = w->conf.incarnation[1]};

    return pms_dp_frame(w->dp[1], w->now, 100, 9, &f, buf);
}

static void test_zero_when_the_frame_is_nonsense_then_the_link_is_refused(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct world w;

    (void)state;
    set_up_both(&w);
    assert_int_equal(frame_give(&w, 0, 512, b), PMS_EPROTO);
    assert_int_equal(frame_give(&w, 0, 0, NULL), PMS_EPROTO);
    assert_int_equal(frame_give(&w, 0, PMS_ZERO_BYTES_MAX + 512, NULL), PMS_EPROTO);
    assert_int_equal(frame_give(&w, SIZE, 512, NULL), PMS_EPROTO);
    assert_int_equal(frame_give(&w, 1, 512, NULL), PMS_EPROTO);
    settle_queue(&w);
    pms_iobuf_put(b);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_when_over_several_regions_then_zeros_on_all_and_nothing_travels),
        cmocka_unit_test(test_zero_when_it_begins_then_all_its_regions_are_marked_durably),
        cmocka_unit_test(test_zero_when_it_overlaps_a_write_then_ordered_after_it),
        cmocka_unit_test(test_read_when_it_overlaps_a_zeroing_then_waits_and_sees_zeros),
        cmocka_unit_test(test_zero_when_the_primary_dies_then_the_next_makes_both_equal),
        cmocka_unit_test(test_zero_when_a_slot_was_away_then_its_resync_brings_the_zeros),
        cmocka_unit_test(test_zero_when_the_cache_is_on_then_only_fua_is_flushed),
        cmocka_unit_test(test_zero_when_its_disk_request_fails_then_the_slot_is_ejected),
        cmocka_unit_test(test_zero_when_it_is_no_range_then_refused),
        cmocka_unit_test(test_zero_when_the_frame_is_nonsense_then_the_link_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
