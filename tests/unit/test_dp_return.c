// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine by hand: dead peers are not waited for, and those that come back do no harm.
#include "tests/unit/dp_fixture.h"

static void both_up(struct world *w)
{
    set_up(w);
    join(w, 0);
    join(w, 1);
    run(w, 600);
    assert_true(status(w, 0).serving);
}

/* What the disk was asked is lost with its node. */
static void drop_disk(struct world *w, int slot)
{
    for (int i = 0; i < w->n_held[slot]; i++)
        pms_iobuf_put(w->held[slot][i].buf);
    w->n_held[slot] = 0;
    w->hold_disk[slot] = false;
}

/* The oldest request only. */
static void release_one(struct world *w, int slot)
{
    struct pms_dp_action a = w->held[slot][0];

    memmove(w->held[slot], w->held[slot] + 1, (size_t)--w->n_held[slot] * sizeof a);
    on_disk(w, slot, &a);
    settle_queue(w);
}

static void test_takeover_when_the_peer_is_silently_dead_then_nothing_waits_for_it(void **state)
{
    uint32_t limit = pms_dp_timing_default.promise + pms_dp_timing_default.ask_wait + 100;
    struct world w;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 0, 512, 1);
    die(&w, 0); /* no link goes down: nobody said so */
    run(&w, limit);
    assert_int_equal(w.conf.primary, 1);
    assert_int_equal(w.conf.in_sync, 2);
    assert_true(status(&w, 1).serving);
    write_fill(&w, 1, 0, 512, 2);
    expect_fill(&w, 1, 0, 512, 2);
    tear_down(&w);
}

/* Slot 1 has missed writes to all regions and is being brought up to date; one of them is done. */
static void half_rebuilt(struct world *w)
{
    both_up(w);
    cut_off(w, 1);
    run(w, 1200);
    assert_int_equal(w->conf.in_sync, 1);
    for (uint64_t r = 0; r < SIZE / REGION; r++)
        write_fill(w, 0, r * REGION, REGION, 7);
    w->hold_disk[0] = true; /* reads of the source */
    join(w, 1);
    run(w, 100);
    assert_true(w->n_held[0] > 0);
    uint32_t before = w->writes_on_wire;

    release_one(w, 0);
    run(w, 50);
    assert_true(w->writes_on_wire > before);
    assert_int_equal(w->conf.in_sync, 1);
}

static void test_rebuild_when_interrupted_and_all_crash_then_never_chosen_as_good(void **state)
{
    struct world w;

    (void)state;
    half_rebuilt(&w);
    cut_off(&w, 0);
    drop_disk(&w, 0);
    cut_off(&w, 1);
    join(&w, 1); /* it is back alone */
    run(&w, 20000);
    assert_false(status(&w, 1).serving);
    assert_int_equal(w.conf.in_sync, 1);
    join(&w, 0);
    run(&w, 5000);
    assert_int_equal(w.conf.primary, 0);
    assert_int_equal(w.conf.in_sync, 3);
    expect_fill(&w, 0, 0, SIZE, 7);
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_rebuild_when_rebooted_again_and_again_then_recovers_unattended(void **state)
{
    struct world w;

    (void)state;
    half_rebuilt(&w);
    cut_off(&w, 1); /* the second reboot */
    run(&w, 200);
    join(&w, 1);
    run(&w, 100);
    cut_off(&w, 1); /* the third */
    join(&w, 1);
    release_disk(&w, 0);
    run(&w, 5000);
    assert_int_equal(w.conf.in_sync, 3);
    expect_equal_bricks(&w);
    expect_fill(&w, 0, 0, SIZE, 7);
    tear_down(&w);
}

/* What a deposed primary that was stopped sends when it goes on. */
static void test_deposed_when_it_goes_on_then_its_writes_are_refused(void **state)
{
    struct pms_frame f = {
        .type = PMS_FRAME_WRITE, .from_slot = 0, .to_slot = 1, .cluster = 7, .array = 2, .arg2 = 501};
    struct pms_dp_action a;
    struct world w;
    bool refused = false;

    (void)state;
    both_up(&w);
    write_fill(&w, 0, 0, 512, 1);
    f.epoch = w.conf.epoch;
    f.seq = 100000;
    f.length = f.payload_len = 512;
    cut_off(&w, 0);
    run(&w, 600);
    assert_int_equal(w.conf.primary, 1);
    write_fill(&w, 1, 0, 512, 2);

    struct pms_iobuf *b = pms_iobuf_create(512);
    memset(b->data, 3, 512);
    f.payload_sum = pms_frame_sum(b->data, 512);
    assert_int_equal(pms_dp_frame(w.dp[1], w.now, 100, 9, &f, b), 0);
    while (pms_dp_action_next(w.dp[1], &a)) {
        assert_int_not_equal(a.type, PMS_DP_ACT_DISK);
        if (a.type == PMS_DP_ACT_SEND && a.send.frame.type == PMS_FRAME_WRITE_ACK) {
            assert_int_equal(a.send.frame.status, PMS_FRAME_STALE);
            refused = true;
        }
        pms_iobuf_put(a.buf);
    }
    assert_true(refused);
    pms_iobuf_put(b);
    expect_fill(&w, 1, 0, 512, 2);
    tear_down(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takeover_when_the_peer_is_silently_dead_then_nothing_waits_for_it),
        cmocka_unit_test(test_rebuild_when_interrupted_and_all_crash_then_never_chosen_as_good),
        cmocka_unit_test(test_rebuild_when_rebooted_again_and_again_then_recovers_unattended),
        cmocka_unit_test(test_deposed_when_it_goes_on_then_its_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
