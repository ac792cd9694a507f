// SPDX-License-Identifier: GPL-2.0-or-later
// The write cache of the array state machine by hand: what is acknowledged when, and what a lost boot means (R6).
#include "tests/unit/dp_fixture.h"

static void cache_set(struct world *w, bool on)
{
    w->conf.write_cache = on;
    w->conf.cache_used |= on;
    for (int s = 0; s < SLOTS; s++)
        if (w->dp[s] != NULL)
            pms_dp_conf(w->dp[s], w->now, &w->conf, true);
}

/* Both serve with the cache on, and the first region is marked as dirty and the bricks as volatile. */
static void set_up_cached(struct world *w)
{
    set_up(w);
    join(w, 0);
    join(w, 1);
    run(w, 600);
    cache_set(w, true);
    write_fill(w, 0, 0, 512, 1);
    run(w, 1500); /* the primary flushes by itself */
    assert_true(status(w, 0).volatile_data);
    assert_true(status(w, 1).volatile_data);
}

static void lose_power(struct world *w, uint8_t slot)
{
    cut_off(w, slot);
    w->boots[slot]++;
}

static void flush(struct world *w, int slot)
{
    struct pms_iobuf none = {0};

    io(w, slot, PMS_DP_FLUSH, 0, &none);
}

static int flushes(const struct world *w)
{
    return (int)(w->flushes[0] + w->flushes[1]);
}

static void test_write_when_the_cache_is_on_then_no_flush_precedes_its_answer(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    int before = flushes(&w);
    for (int i = 0; i < 20; i++)
        write_fill(&w, 0, (uint64_t)i % 8 * 512, 512, i);
    assert_int_equal(flushes(&w), before);
    flush(&w, 0);
    assert_int_equal(flushes(&w), before + 2); /* one of each brick */
    flush(&w, 0);                              /* nothing is volatile: nothing to do */
    assert_int_equal(flushes(&w), before + 2);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_write_when_fua_then_stable_before_its_answer(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct pms_dp_op op = {.type = PMS_DP_WRITE, .length = 512, .buf = b, .fua = true};
    struct world w;

    (void)state;
    set_up_cached(&w);
    int before = flushes(&w);
    uint32_t completed = w.completed;
    pms_dp_submit(w.dp[0], w.now, &op);
    run(&w, 50);
    assert_int_equal(w.completed, completed + 1);
    assert_true(flushes(&w) >= before + 2);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_read_when_fua_then_what_it_returns_is_stable(void **state)
{
    struct pms_iobuf *b = pms_iobuf_create(512);
    struct pms_dp_op op = {.type = PMS_DP_READ, .length = 512, .buf = b, .fua = true};
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 9);
    int before = flushes(&w);
    uint32_t completed = w.completed;
    pms_dp_submit(w.dp[0], w.now, &op);
    run(&w, 50);
    assert_int_equal(w.completed, completed + 1);
    assert_int_equal(flushes(&w), before + 2);
    assert_int_equal(b->data[0], 9);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_cache_when_left_alone_then_flushed_and_the_marks_go(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 2);
    int before = flushes(&w);
    run(&w, 1100);
    assert_int_equal(flushes(&w), before + 2);
    run(&w, 7000);
    assert_false(status(&w, 0).volatile_data);
    assert_false(status(&w, 1).volatile_data);
    lose_power(&w, 1); /* what is not marked is clean after it */
    join(&w, 1);
    run(&w, 200);
    assert_false(status(&w, 1).unclean);
    assert_int_equal(w.conf.in_sync, 3);
    tear_down(&w);
}

static void test_cache_when_switched_off_then_writes_are_stable_again(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 2);
    cache_set(&w, false);
    int before = flushes(&w);
    write_fill(&w, 0, 512, 512, 3);
    assert_true(flushes(&w) >= before + 2);
    tear_down(&w);
}

static void test_replica_when_it_lost_power_then_thrown_out_and_filled(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 4);
    memset(w.disk[1] + PMS_BRICK_DATA_OFFSET, 1, 512); /* what it held in memory is gone */
    lose_power(&w, 1);
    join(&w, 1);
    run(&w, 3000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.conf.incarnation[1], 911);
    assert_false(status(&w, 1).unclean);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_unclean_when_a_clean_one_lives_then_never_takes_over(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 5);
    uint64_t epoch = w.conf.epoch;
    cut_off(&w, 1); /* killed: it has lost nothing */
    lose_power(&w, 0);
    join(&w, 0);
    run(&w, 3000);
    assert_true(status(&w, 0).unclean);
    assert_int_equal(w.conf.epoch, epoch); /* it waits */
    join(&w, 1);
    run(&w, 3000);
    assert_int_equal(w.conf.primary, 1);
    assert_true(status(&w, 1).serving);
    assert_false(status(&w, 1).lossy);
    expect_fill(&w, 1, 0, 512, 5);
    tear_down(&w);
}

static void test_all_when_unclean_then_one_takes_over_with_new_incarnations(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 6);
    memset(w.disk[1] + PMS_BRICK_DATA_OFFSET, 1, 512);
    uint64_t epoch = w.conf.epoch;
    lose_power(&w, 0);
    lose_power(&w, 1);
    join(&w, 1);
    run(&w, 3000);
    assert_int_equal(w.conf.epoch, epoch); /* not without the other */
    join(&w, 0);
    run(&w, 4000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.conf.incarnation[0], 910);
    assert_int_equal(w.conf.incarnation[1], 911);
    assert_true(status(&w, w.conf.primary).serving);
    assert_true(status(&w, w.conf.primary).lossy);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_blank_brick_when_the_other_is_unclean_then_neither_takes_over(void **state)
{
    struct pms_dp_init init = init_of(1);
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 6);
    uint64_t epoch = w.conf.epoch;
    lose_power(&w, 0);
    cut_off(&w, 1);
    memset(w.disk[1], 0, BRICK); /* another disk: the last good copy is gone */
    assert_int_equal(pms_dp_brick_format(w.disk[1], cluster, &init, 777, true), 0);
    join(&w, 1);
    join(&w, 0);
    run(&w, 4000);
    assert_int_equal(w.conf.epoch, epoch);
    assert_false(status(&w, 0).serving || status(&w, 1).serving);
    tear_down(&w);
}

static void test_resync_when_a_cache_was_used_then_ends_with_a_flush(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    cut_off(&w, 1);
    write_fill(&w, 0, 0, 512, 6); /* waits for the eject */
    run(&w, 3000);
    assert_int_equal(w.conf.in_sync, 1);
    int flushes = w.answers[PMS_FRAME_FLUSH];
    join(&w, 1);
    for (int i = 0; i < 1000 && w.conf.in_sync != 3; i++)
        run(&w, 5);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.answers[PMS_FRAME_FLUSH], flushes + 1);
    tear_down(&w);
}

static void test_clear_when_the_cache_is_on_then_only_after_a_flush_of_all(void **state)
{
    struct world w;

    (void)state;
    set_up_cached(&w);
    write_fill(&w, 0, 0, 512, 7);
    assert_true(status(&w, 1).dirty_regions > 0);
    w.hold_disk[1] = true; /* its flush does not end */
    run(&w, 4000);
    assert_true(status(&w, 0).dirty_regions > 0);
    release_disk(&w, 1);
    run(&w, 12000);
    assert_int_equal(status(&w, 0).dirty_regions, 0);
    assert_int_equal(status(&w, 1).dirty_regions, 0);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_when_the_cache_is_on_then_no_flush_precedes_its_answer),
        cmocka_unit_test(test_write_when_fua_then_stable_before_its_answer),
        cmocka_unit_test(test_read_when_fua_then_what_it_returns_is_stable),
        cmocka_unit_test(test_cache_when_left_alone_then_flushed_and_the_marks_go),
        cmocka_unit_test(test_cache_when_switched_off_then_writes_are_stable_again),
        cmocka_unit_test(test_replica_when_it_lost_power_then_thrown_out_and_filled),
        cmocka_unit_test(test_unclean_when_a_clean_one_lives_then_never_takes_over),
        cmocka_unit_test(test_all_when_unclean_then_one_takes_over_with_new_incarnations),
        cmocka_unit_test(test_blank_brick_when_the_other_is_unclean_then_neither_takes_over),
        cmocka_unit_test(test_resync_when_a_cache_was_used_then_ends_with_a_flush),
        cmocka_unit_test(test_clear_when_the_cache_is_on_then_only_after_a_flush_of_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
