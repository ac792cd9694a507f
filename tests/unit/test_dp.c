// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine by hand: stories one can read; the simulator does the rest.
#include "tests/unit/dp_fixture.h"

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

/* R4: whoever starts may have promised more, in its former life, than it would now (settings). */
static void test_candidate_when_promises_were_longer_once_then_quiet_for_as_long(void **state)
{
    struct pms_dp_init init = init_of(1);
    struct world w;

    (void)state;
    set_up(&w);
    init.timing.quiet = 2000;
    assert_int_equal(pms_dp_create(&init, cluster, w.disk[1], w.now, &w.dp[1]), 0);
    pms_dp_conf(w.dp[1], w.now, &w.conf, true); /* slot 0 is primary, and dead */
    run(&w, 2100);
    assert_int_equal(w.conf.primary, 0);
    run(&w, 1500); /* and BOOT_GRACE_MS */
    assert_int_equal(w.conf.primary, 1);
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
        cmocka_unit_test(test_candidate_when_promises_were_longer_once_then_quiet_for_as_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
