// SPDX-License-Identifier: GPL-2.0-or-later
// The simulator's judge on histories made up by hand: it must accept the good ones and refuse the bad ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/check.c"

#define W(v, s, e)                                                                                           \
    {                                                                                                        \
        .sector = 7, .write = true, .answered = true, .value = (v), .start = (s), .end = (e)                 \
    }
#define LOST(v, s, e)                                                                                        \
    {                                                                                                        \
        .sector = 7, .write = true, .answered = false, .value = (v), .start = (s), .end = (e)                \
    }
#define R(v, s, e)                                                                                           \
    {                                                                                                        \
        .sector = 7, .write = false, .answered = true, .value = (v), .start = (s), .end = (e)                \
    }
#define Z(v, s, e) /* a write of zeros */                                                                    \
    {                                                                                                        \
        .sector = 7, .write = true, .zeros = true, .answered = true, .value = (v), .start = (s), .end = (e)  \
    }
#define R0(i, s, e) /* a read that saw zeros, and whether they may be the initial ones */                    \
    {                                                                                                        \
        .sector = 7, .zeros = true, .initial = (i), .answered = true, .start = (s), .end = (e)               \
    }
#define JUDGE(...)                                                                                           \
    judge((struct check_op[]){__VA_ARGS__},                                                                  \
          sizeof((struct check_op[]){__VA_ARGS__}) / sizeof(struct check_op))

static char why[256];

static bool judge(struct check_op *ops, size_t n)
{
    return check_history(ops, n, why, sizeof why);
}

static void test_history_when_sequential_then_accepted(void **state)
{
    (void)state;
    assert_true(JUDGE(R(0, 1, 2), W(1, 3, 4), R(1, 5, 6), W(2, 7, 8), R(2, 9, 10), R(2, 11, 12)));
    assert_true(check_history(NULL, 0, why, sizeof why));
}

static void test_history_when_concurrent_then_either_value_accepted(void **state)
{
    (void)state;
    assert_true(JUDGE(W(1, 1, 10), R(0, 2, 3)));
    assert_true(JUDGE(W(1, 1, 10), R(1, 2, 3)));
    assert_true(JUDGE(W(1, 1, 10), W(2, 1, 10), R(1, 11, 12)));
    assert_true(JUDGE(W(1, 1, 10), W(2, 1, 10), R(2, 11, 12)));
    assert_true(JUDGE(W(1, 1, 10), W(2, 1, 10), R(1, 2, 3), R(2, 4, 5)));
    assert_true(JUDGE(W(1, 1, 10), R(1, 2, 3), R(0, 2, 4)));
}

static void test_history_when_value_unknown_then_refused(void **state)
{
    (void)state;
    assert_false(JUDGE(W(1, 1, 2), R(9, 3, 4)));
    assert_false(JUDGE(R(1, 1, 2), W(1, 3, 4)));
    assert_false(JUDGE(W(1, 1, 2), W(1, 3, 4)));
}

static void test_history_when_read_is_stale_then_refused(void **state)
{
    (void)state;
    assert_false(JUDGE(W(1, 1, 2), R(0, 3, 4)));
    assert_false(JUDGE(W(1, 1, 2), W(2, 3, 4), R(1, 5, 6)));
    assert_false(JUDGE(W(1, 1, 2), W(2, 3, 4), W(3, 5, 6), R(2, 7, 8)));
}

static void test_history_when_reads_go_back_then_refused(void **state)
{
    (void)state;
    assert_false(JUDGE(W(1, 1, 20), R(1, 2, 3), R(0, 4, 5)));
    assert_false(JUDGE(W(1, 1, 20), W(2, 1, 20), R(1, 2, 3), R(2, 4, 5), R(1, 6, 7)));
    assert_false(JUDGE(W(1, 1, 20), W(2, 1, 20), R(1, 2, 3), R(2, 4, 5), R(1, 21, 22)));
}

static void test_history_when_write_unanswered_then_optional(void **state)
{
    (void)state;
    assert_true(JUDGE(LOST(1, 1, CHECK_NEVER), R(0, 2, 3)));
    assert_true(JUDGE(LOST(1, 1, CHECK_NEVER), R(0, 2, 3), R(1, 4, 5), R(1, 6, 7)));
    assert_true(JUDGE(W(2, 2, 3), LOST(1, 1, CHECK_NEVER), R(2, 5, 6), R(1, 7, 8)));
    assert_false(JUDGE(LOST(1, 1, CHECK_NEVER), R(1, 2, 3), R(0, 4, 5)));
}

static void test_history_when_old_attempt_lands_after_its_retry_then_refused(void **state)
{
    (void)state;
    // Attempt 1 was given up; its retry, value 2, was acknowledged at 10.
    assert_true(JUDGE(LOST(1, 1, 10), W(2, 5, 10), R(2, 11, 12)));
    assert_false(JUDGE(LOST(1, 1, 10), W(2, 5, 10), R(2, 11, 12), R(1, 13, 14)));
    assert_false(JUDGE(LOST(1, 1, 10), W(2, 5, 10), W(3, 11, 12), R(1, 13, 14)));
}

static void test_history_when_acknowledged_write_vanishes_then_refused(void **state)
{
    (void)state;
    assert_false(JUDGE(W(1, 1, 2), W(2, 3, 4), R(2, 5, 6), R(1, 7, 8)));
    assert_false(JUDGE(W(1, 1, 2), R(1, 3, 4), R(0, 5, 6)));
}

static void test_history_when_zone_of_write_within_another_then_refused(void **state)
{
    (void)state;
    // 1 is seen before and after the whole of 2, which nobody saw.
    assert_false(JUDGE(W(1, 1, 2), W(2, 5, 6), R(1, 3, 4), R(1, 7, 8)));
    assert_true(JUDGE(W(1, 1, 2), W(2, 5, 9), R(1, 3, 4), R(1, 7, 8)));
}

static void test_history_when_times_equal_then_concurrent(void **state)
{
    (void)state;
    assert_true(JUDGE(W(1, 1, 5), R(0, 5, 6)));
    assert_true(JUDGE(W(1, 1, 5), W(2, 5, 9), R(1, 9, 10)));
}

static void test_history_when_sectors_differ_then_judged_apart(void **state)
{
    struct check_op ops[] = {W(1, 1, 2), R(0, 3, 4)};

    (void)state;
    ops[1].sector = 8;
    assert_true(judge(ops, 2));
    ops[0].sector = ops[1].sector = 9;
    assert_false(judge(ops, 2));
}

/* All orders of a short history, tried one by one, must agree with the judge. */
static bool order_exists(const struct check_op *ops, size_t n, unsigned done, uint64_t value)
{
    if (done == (1u << n) - 1)
        return true;
    for (size_t i = 0; i < n; i++) {
        bool first = (done >> i & 1) == 0;

        for (size_t k = 0; first && k < n; k++)
            first = k == i || (done >> k & 1) != 0 || ops[k].end >= ops[i].start;
        if (!first)
            continue;
        if (ops[i].write) {
            if (order_exists(ops, n, done | 1u << i, ops[i].zeros ? 0 : ops[i].value))
                return true;
            if (!ops[i].answered && order_exists(ops, n, done | 1u << i, value))
                return true;
        } else if (ops[i].value == value && order_exists(ops, n, done | 1u << i, value)) {
            return true;
        }
    }
    return false;
}

static void test_history_when_random_then_agrees_with_trying_all_orders(void **state)
{
    uint64_t x = 88172645463325252ull;
    unsigned good = 0, bad = 0;

    (void)state;
    for (int round = 0; round < 30000; round++) {
        struct check_op ops[6];
        bool expected;

        for (int i = 0; i < 6; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            ops[i] = (struct check_op){.sector = 1, .write = i < 3, .answered = i >= 3 || x % 3 != 0};
            ops[i].value = i < 3 ? (uint64_t)i + 1 : (x >> 8) % 4;
            ops[i].start = 1 + (x >> 16) % 12;
            ops[i].end = ops[i].start + (x >> 24) % 6;
        }
        expected = order_exists(ops, 6, 0, 0);
        if (judge(ops, 6) != expected)
            fail_msg("round %d: the judge says %d, trying all orders says %d (%s)", round, !expected,
                     expected, why);
        good += expected;
        bad += !expected;
    }
    assert_true(good > 1000);
    assert_true(bad > 1000);
}

static void test_history_when_zeros_are_read_then_some_zeroing_must_explain_them(void **state)
{
    (void)state;
    assert_true(JUDGE(R0(true, 1, 2)));
    assert_false(JUDGE(R0(false, 1, 2)));
    assert_true(JUDGE(W(1, 1, 2), Z(2, 3, 4), R0(true, 5, 6)));
    assert_true(JUDGE(W(1, 1, 2), Z(2, 3, 9), R0(true, 5, 6), R(1, 5, 6)));
    assert_true(JUDGE(Z(1, 1, 2), R0(true, 3, 4), W(2, 5, 6), R(2, 7, 8), Z(3, 9, 10), R0(true, 11, 12)));
    assert_false(JUDGE(W(1, 1, 2), R0(true, 3, 4)));                          /* no zeroing */
    assert_false(JUDGE(W(1, 1, 2), R0(true, 3, 4), Z(2, 5, 6)));              /* not yet */
    assert_false(JUDGE(Z(1, 1, 2), W(2, 3, 4), R0(true, 5, 6)));              /* replaced */
    assert_false(JUDGE(Z(1, 1, 2), W(2, 3, 20), R(2, 4, 5), R0(true, 6, 7))); /* replaced, as was seen */
    assert_false(JUDGE(W(1, 1, 2), Z(2, 3, 4), R(1, 5, 6)));                  /* zeros that were lost */
}

/* With zeros the judge may accept too much, but never refuse what an order explains. */
static void test_history_when_random_with_zeros_then_no_good_one_is_refused(void **state)
{
    uint64_t x = 88172645463325252ull;
    unsigned good = 0, bad = 0, caught = 0;

    (void)state;
    for (int round = 0; round < 30000; round++) {
        struct check_op ops[6];
        bool expected, accepted;

        for (int i = 0; i < 6; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            ops[i] = (struct check_op){.sector = 1, .write = i < 3, .answered = i >= 3 || x % 3 != 0};
            ops[i].value = i < 3 ? (uint64_t)i + 1 : (x >> 8) % 4;
            ops[i].zeros = i < 3 ? (x >> 32) % 2 == 0 : ops[i].value == 0;
            ops[i].initial = i >= 3 && ops[i].zeros;
            ops[i].start = 1 + (x >> 16) % 12;
            ops[i].end = ops[i].start + (x >> 24) % 6;
        }
        expected = order_exists(ops, 6, 0, 0);
        accepted = judge(ops, 6);
        if (expected && !accepted)
            fail_msg("round %d: an order explains it, yet it is refused (%s)", round, why);
        good += expected;
        bad += !expected;
        caught += !accepted;
    }
    assert_true(good > 1000);
    assert_true(bad > 1000);
    assert_true(caught > bad / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history_when_sequential_then_accepted),
        cmocka_unit_test(test_history_when_concurrent_then_either_value_accepted),
        cmocka_unit_test(test_history_when_value_unknown_then_refused),
        cmocka_unit_test(test_history_when_read_is_stale_then_refused),
        cmocka_unit_test(test_history_when_reads_go_back_then_refused),
        cmocka_unit_test(test_history_when_write_unanswered_then_optional),
        cmocka_unit_test(test_history_when_old_attempt_lands_after_its_retry_then_refused),
        cmocka_unit_test(test_history_when_acknowledged_write_vanishes_then_refused),
        cmocka_unit_test(test_history_when_zone_of_write_within_another_then_refused),
        cmocka_unit_test(test_history_when_times_equal_then_concurrent),
        cmocka_unit_test(test_history_when_sectors_differ_then_judged_apart),
        cmocka_unit_test(test_history_when_random_then_agrees_with_trying_all_orders),
        cmocka_unit_test(test_history_when_zeros_are_read_then_some_zeroing_must_explain_them),
        cmocka_unit_test(test_history_when_random_with_zeros_then_no_good_one_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
