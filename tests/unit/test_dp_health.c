// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine by hand: nodes that leave, and hardware that is not well.
#include "tests/unit/dp_fixture.h"

static void both_up(struct world *w)
{
    set_up(w);
    join(w, 0);
    join(w, 1);
    run(w, 600);
    assert_true(status(w, 0).serving);
}

static void test_replica_when_it_leaves_then_ejected_at_once_and_nothing_is_resynced(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 0, 8192, 1);
    pms_dp_leave(w.dp[1], w.now);
    settle_queue(&w);
    assert_int_equal(w.conf.in_sync, 1); /* no time has passed */
    assert_int_equal(w.conf.primary, 0);

    uint32_t before = w.writes_on_wire;
    run(&w, 2000);
    assert_int_equal(w.conf.in_sync, 1); /* it is not taken back while it only waits for its end */
    cut_off(&w, 1);
    run(&w, 100);
    join(&w, 1);
    run(&w, 1000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.writes_on_wire, before);
    assert_int_equal(status(&w, 0).resync_sent, 0);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_replica_when_it_was_away_after_leaving_then_only_what_changed_travels(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 0, 4 * REGION, 1);
    pms_dp_leave(w.dp[1], w.now);
    run(&w, 10);
    cut_off(&w, 1);
    write_fill(&w, 0, REGION, 512, 2);
    join(&w, 1);
    run(&w, 1000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(status(&w, 0).resync_sent, 512);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_primary_when_it_leaves_then_handed_over_and_ejected_without_a_wait(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 0, 512, 1);
    pms_dp_leave(w.dp[0], w.now);
    settle_queue(&w);
    assert_int_equal(w.conf.primary, 1);
    run(&w, 10);
    assert_int_equal(w.conf.in_sync, 2);
    assert_true(status(&w, 1).serving);
    assert_int_equal(w.dropped, 0);
    expect_fill(&w, 1, 0, 512, 1);
    run(&w, 2000);
    assert_int_equal(w.conf.primary, 1); /* the leaving one stands for nothing */
    tear_down(&w);
}

static void test_last_when_it_leaves_then_nothing_is_asked_for(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    cut_off(&w, 1);
    run(&w, 1500);
    assert_int_equal(w.conf.in_sync, 1);

    int before = w.proposals;
    pms_dp_leave(w.dp[0], w.now);
    run(&w, 500);
    assert_int_equal(w.proposals, before);
    assert_true(status(&w, 0).serving); /* until it is stopped */
    tear_down(&w);
}

static void test_last_when_it_leaves_with_volatile_data_then_soon_nothing_is_volatile(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    w.conf.write_cache = w.conf.cache_used = true;
    for (int s = 0; s < SLOTS; s++)
        pms_dp_conf(w.dp[s], w.now, &w.conf, true);
    pms_dp_leave(w.dp[1], w.now);
    run(&w, 10);
    cut_off(&w, 1);
    write_fill(&w, 0, 0, 512, 1);
    assert_true(status(&w, 0).volatile_data);
    run(&w, 300);
    assert_true(status(&w, 0).volatile_data);
    pms_dp_leave(w.dp[0], w.now);
    run(&w, 50);
    assert_false(status(&w, 0).volatile_data);
    cut_off(&w, 0);
    w.boots[0]++; /* a planned reboot of the host */
    join(&w, 0);
    run(&w, 1500);
    assert_false(status(&w, 0).unclean);
    assert_true(status(&w, 0).serving);
    expect_fill(&w, 0, 0, 512, 1);
    tear_down(&w);
}

static void test_goodbye_when_of_another_incarnation_then_ignored(void **state)
{
    struct pms_frame f = {.type = PMS_FRAME_GOODBYE, .from_slot = 1, .cluster = 7, .array = 2, .arg2 = 999};
    struct world w;

    (void)state;
    both_up(&w);
    assert_int_equal(pms_dp_frame(w.dp[0], w.now, 101, 9, &f, NULL), 0);
    run(&w, 500);
    assert_int_equal(w.conf.in_sync, 3);
    tear_down(&w);
}

static struct pms_iobuf *begin_write(struct world *w, int slot, struct pms_dp_op *op, uint64_t offset,
                                     int fill)
{
    struct pms_iobuf *b = pms_iobuf_create(512);

    memset(b->data, fill, 512);
    *op = (struct pms_dp_op){.type = PMS_DP_WRITE, .offset = offset, .length = 512, .buf = b};
    pms_dp_submit(w->dp[slot], w->now, op);
    settle_queue(w);
    return b;
}

static void doubt(struct world *w, uint32_t ms, uint8_t slots)
{
    for (uint32_t i = 0; i < ms; i += 100) {
        pms_dp_doubt(w->dp[0], w->now, slots);
        run(w, 100);
    }
}

static void test_primary_when_its_disk_hangs_then_steps_aside_and_the_old_write_never_wins(void **state)
{
    struct pms_dp_op op;
    struct world w;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 512, 512, 9); /* the region's mark is there: what hangs is the write itself */
    w.hold_disk[0] = true;
    struct pms_iobuf *b = begin_write(&w, 0, &op, 0, 1);
    run(&w, 4500);
    assert_true(status(&w, 0).serving);
    assert_int_equal(w.dropped, 0);
    run(&w, 1200);
    assert_int_equal(w.dropped, 1);
    assert_int_equal(status(&w, 0).ailing, PMS_DP_AIL_DISK);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 2);
    write_fill(&w, 1, 0, 512, 2);
    run(&w, 8000);
    assert_int_equal(w.conf.in_sync, 2); /* not taken back while its old write may still land */
    release_disk(&w, 0);                 /* now it does */
    assert_int_equal(w.disk[0][PMS_BRICK_DATA_OFFSET], 1);
    run(&w, 5000);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(status(&w, 0).ailing, PMS_DP_AIL_NONE);
    expect_fill(&w, 1, 0, 512, 2);
    expect_equal_bricks(&w);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_primary_when_its_disk_hangs_and_nobody_else_answers_then_waits(void **state)
{
    struct pms_dp_op op;
    struct world w;

    (void)state;
    both_up(&w);
    cut_off(&w, 1);
    run(&w, 1500);
    w.hold_disk[0] = true;
    struct pms_iobuf *b = begin_write(&w, 0, &op, 0, 1);
    run(&w, 10000);
    assert_int_equal(w.dropped, 0);
    release_disk(&w, 0);
    run(&w, 100);
    assert_int_equal(w.completed, 1);
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_primary_when_its_links_are_the_sick_ones_then_steps_aside_and_ejects_nobody(void **state)
{
    struct pms_dp_op op;
    struct world w;

    (void)state;
    both_up(&w);
    w.hold_disk[1] = true; /* as if a bad link held up what slot 1 is sent */
    struct pms_iobuf *b = begin_write(&w, 0, &op, 0, 1);
    doubt(&w, 4900, 0);
    doubt(&w, 200, 2);
    assert_int_equal(w.dropped, 1);
    assert_int_equal(w.conf.in_sync, 3);
    release_disk(&w, 1);
    run(&w, 1000);
    assert_int_equal(w.conf.primary, 1);
    assert_true(status(&w, 1).serving);
    assert_int_equal(w.conf.in_sync, 3); /* it had stepped down, and promised */
    pms_iobuf_put(b);
    tear_down(&w);
}

static void test_primary_when_wrongly_doubted_then_serves_again_and_ejects_the_next_time(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    cut_off(&w, 1);
    doubt(&w, 1200, 2);
    assert_false(status(&w, 0).serving);
    doubt(&w, 2500, 2);
    assert_false(status(&w, 0).serving);
    doubt(&w, 1000, 2);
    assert_true(status(&w, 0).serving);
    assert_int_equal(w.conf.in_sync, 1);
    join(&w, 1);
    run(&w, 2000);
    assert_int_equal(w.conf.in_sync, 3);
    cut_off(&w, 1);
    doubt(&w, 1200, 2);
    assert_true(status(&w, 0).serving);
    assert_int_equal(w.conf.in_sync, 1);
    tear_down(&w);
}

static void test_primary_when_doubted_for_long_then_hands_over(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    doubt(&w, 4900, 2);
    assert_int_equal(w.conf.primary, 0);
    assert_int_equal(status(&w, 0).ailing, PMS_DP_AIL_LINKS);
    doubt(&w, 300, 2);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 3);
    assert_int_equal(w.dropped, 0);
    tear_down(&w);
}

static void fall(struct world *w)
{
    cut_off(w, 1);
    run(w, 1200);
    assert_int_equal(w->conf.in_sync, 1);
    join(w, 1);
}

static void test_slot_when_it_falls_again_and_again_then_taken_back_later_each_time(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    fall(&w);
    run(&w, 500);
    assert_int_equal(w.conf.in_sync, 3); /* at once */
    for (uint32_t n = 2, wait = 1000; n <= 9; n++, wait = wait < 30000 ? wait * 2 : 60000) {
        fall(&w);
        assert_int_equal(status(&w, 0).falls[1], n);
        assert_in_range(status(&w, 0).back_ms[1], wait - 10, wait);
        run(&w, wait - 100);
        assert_int_equal(w.conf.in_sync, 1);
        run(&w, 600);
        assert_int_equal(w.conf.in_sync, 3);
    }
    run(&w, 601000);
    fall(&w); /* that was long ago */
    run(&w, 500);
    assert_int_equal(w.conf.in_sync, 3);
    tear_down(&w);
}

static void test_slot_when_it_left_each_time_then_taken_back_at_once(void **state)
{
    struct world w;

    (void)state;
    both_up(&w);
    for (int i = 0; i < 5; i++) {
        pms_dp_leave(w.dp[1], w.now);
        run(&w, 10);
        cut_off(&w, 1);
        run(&w, 100);
        join(&w, 1);
        run(&w, 500);
        assert_int_equal(w.conf.in_sync, 3);
    }
    tear_down(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_when_it_falls_again_and_again_then_taken_back_later_each_time),
        cmocka_unit_test(test_slot_when_it_left_each_time_then_taken_back_at_once),
        cmocka_unit_test(test_primary_when_its_disk_hangs_then_steps_aside_and_the_old_write_never_wins),
        cmocka_unit_test(test_primary_when_its_disk_hangs_and_nobody_else_answers_then_waits),
        cmocka_unit_test(test_primary_when_its_links_are_the_sick_ones_then_steps_aside_and_ejects_nobody),
        cmocka_unit_test(test_primary_when_wrongly_doubted_then_serves_again_and_ejects_the_next_time),
        cmocka_unit_test(test_primary_when_doubted_for_long_then_hands_over),
        cmocka_unit_test(test_replica_when_it_leaves_then_ejected_at_once_and_nothing_is_resynced),
        cmocka_unit_test(test_replica_when_it_was_away_after_leaving_then_only_what_changed_travels),
        cmocka_unit_test(test_primary_when_it_leaves_then_handed_over_and_ejected_without_a_wait),
        cmocka_unit_test(test_last_when_it_leaves_then_nothing_is_asked_for),
        cmocka_unit_test(test_last_when_it_leaves_with_volatile_data_then_soon_nothing_is_volatile),
        cmocka_unit_test(test_goodbye_when_of_another_incarnation_then_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
