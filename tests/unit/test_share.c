// SPDX-License-Identifier: GPL-2.0-or-later
// What sessions may hold of tgtd's memory: bounded for each and in all, and nobody is shut out by another.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "target/plugin/share.h"

#define MIB   (1u << 20)
#define ARENA (64 * MIB)

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct pms_shares));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static uint32_t take_all(struct pms_shares *s, uint16_t who, uint32_t bytes)
{
    uint32_t n = 0;

    while (s->all.arena + bytes <= ARENA && pms_share_arena_may(s, who, bytes, ARENA)) {
        pms_share_arena_take(s, who, bytes);
        n++;
    }
    return n;
}

static void one_session_leaves_a_quarter_to_the_others(void **state)
{
    struct pms_shares *s = *state;

    assert_int_equal(take_all(s, 1, MIB), 48);
    assert_true(pms_share_arena_may(s, 2, MIB, ARENA));
    assert_int_equal(take_all(s, 2, MIB), 16);
    /* What becomes free goes to who has less than its share. */
    pms_share_arena_give(s, 1, 2 * MIB);
    assert_false(pms_share_arena_may(s, 1, MIB, ARENA));
    assert_true(pms_share_arena_may(s, 2, MIB, ARENA));
    assert_true(pms_share_arena_may(s, 3, 2 * MIB, ARENA));
}

static void who_holds_nothing_gets_even_the_longest_command(void **state)
{
    struct pms_shares *s = *state;

    for (uint16_t who = 1; who <= 40; who++) {
        assert_true(pms_share_arena_may(s, who, MIB, ARENA));
        pms_share_arena_take(s, who, MIB);
    }
    assert_true(pms_share_arena_may(s, 41, 4 * MIB, ARENA));
}

/* Whatever order: never more than the arena, and all is back at the end. */
static void what_is_given_back_is_counted(void **state)
{
    struct pms_shares *s = *state;
    uint32_t held[300] = {0};

    srand(7);
    for (int i = 0; i < 200000; i++) {
        uint16_t who = (uint16_t)(rand() % 300);
        uint32_t bytes = 4096u << rand() % 11;

        if (rand() % 2 && s->all.arena + bytes <= ARENA && pms_share_arena_may(s, who, bytes, ARENA)) {
            pms_share_arena_take(s, who, bytes);
            held[who] += bytes;
        } else if (held[who] > 0) {
            pms_share_arena_give(s, who, held[who]);
            held[who] = 0;
        }
        assert_true(s->all.arena <= ARENA);
    }
    for (uint16_t who = 0; who < 300; who++) {
        pms_share_arena_give(s, who, held[who]);
        assert_int_equal(s->of[who].arena, 0);
    }
    assert_int_equal(s->all.arena, 0);
    assert_int_equal(s->users, 0);
}

static void a_session_that_ignores_its_window_is_refused_then_closed(void **state)
{
    struct pms_shares *s = *state;

    for (uint32_t i = 0; i < PMS_SHARE_TASKS_FULL; i++)
        assert_int_equal(pms_share_task_begin(s, 1), PMS_SHARE_OK);
    for (uint32_t i = PMS_SHARE_TASKS_FULL; i < PMS_SHARE_TASKS_MAX; i++)
        assert_int_equal(pms_share_task_begin(s, 1), PMS_SHARE_FULL);
    assert_int_equal(pms_share_task_begin(s, 1), PMS_SHARE_CLOSE);
    assert_int_equal(s->all.tasks, PMS_SHARE_TASKS_MAX); /* the closed one is not counted */
    assert_int_equal(pms_share_task_begin(s, 2), PMS_SHARE_OK);
    for (uint32_t i = 0; i < PMS_SHARE_TASKS_MAX; i++)
        pms_share_task_end(s, 1);
    assert_int_equal(pms_share_task_begin(s, 1), PMS_SHARE_OK);
}

static void in_all_tasks_are_bounded_and_full_windows_fit(void **state)
{
    struct pms_shares *s = *state;
    uint32_t n = 0;

    for (uint16_t who = 0; who < 256; who++)
        for (int i = 0; i < 128; i++)
            assert_int_equal(pms_share_task_begin(s, who), PMS_SHARE_OK);
    assert_int_equal(pms_share_task_begin(s, 256),
                     PMS_SHARE_BUSY); /* it has nothing else here: SAM-5 5.3.1 */
    assert_int_equal(pms_share_task_begin(s, 1), PMS_SHARE_FULL);
    for (uint16_t who = 0; who < 1000; who++)
        for (int i = 0; i < 100; i++)
            n += pms_share_task_begin(s, who) != PMS_SHARE_CLOSE;
    assert_int_equal(s->all.tasks, PMS_SHARE_ALL_TASKS_MAX);
    assert_int_equal(n, PMS_SHARE_ALL_TASKS_MAX - 256 * 128 - 2);
}

static void control_bytes_are_bounded(void **state)
{
    struct pms_shares *s = *state;

    for (int i = 0; i < 4; i++)
        assert_true(pms_share_control_take(s, 1, MIB / 4));
    assert_false(pms_share_control_take(s, 1, 16));
    for (uint16_t who = 2; who < 17; who++)
        assert_true(pms_share_control_take(s, who, MIB));
    assert_false(pms_share_control_take(s, 17, 16));
    pms_share_control_give(s, 1, MIB / 4);
    assert_true(pms_share_control_take(s, 17, 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_session_leaves_a_quarter_to_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(who_holds_nothing_gets_even_the_longest_command, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_given_back_is_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_that_ignores_its_window_is_refused_then_closed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(in_all_tasks_are_bounded_and_full_windows_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(control_bytes_are_bounded, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
