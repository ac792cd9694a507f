// SPDX-License-Identifier: GPL-2.0-or-later
// bench/meter: percentiles come out within the width of a bucket; processes are accounted for, or missed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "bench/meter.h"

static void test_histogram_when_empty_then_zero(void **state)
{
    static struct bench_histogram h;

    (void)state;
    assert_int_equal(bench_histogram_percentile(&h, 50), 0);
}

/* Of 1 .. 100 times each scale the percentile p is p times the scale, and at most 1/32 above. */
static void test_percentile_when_any_scale_then_within_a_bucket(void **state)
{
    (void)state;
    for (uint64_t scale = 1; scale < 1ull << 40; scale = scale * 3 + 1) {
        static struct bench_histogram h;

        memset(&h, 0, sizeof h);
        for (uint64_t i = 100; i > 0; i--)
            bench_histogram_add(&h, i * scale);
        assert_int_equal(h.count, 100);
        for (unsigned p = 1; p <= 100; p++) {
            uint64_t got = bench_histogram_percentile(&h, p);

            assert_true(got >= p * scale);
            assert_true(got <= p * scale + p * scale / 32);
        }
    }
}

static void test_pids_when_not_a_list_then_refused(void **state)
{
    static const char *const bad[] = {"x", "1,x", "1;2", "-3", "0", "1,,2", ","};
    struct bench_procs p;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(bench_procs_parse(&p, bad[i]), -EINVAL);
    assert_int_equal(bench_procs_parse(&p, ""), 0);
    assert_int_equal(p.n, 0);
    assert_int_equal(bench_procs_parse(&p, "12,345"), 0);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.pid[1], 345);
}

static void test_procs_when_one_works_then_its_time_and_memory_are_seen(void **state)
{
    struct bench_procs p = {.n = 1, .pid = {getpid()}};
    uint64_t before, after, kib, kib_more;
    const size_t bytes = 64 << 20;
    volatile uint64_t x = 0;
    volatile uint8_t *memory;

    (void)state;
    assert_int_equal(bench_procs_peak_reset(&p), 0);
    assert_int_equal(bench_procs_peak(&p, &kib), 0);
    assert_true(kib > 0);
    assert_int_equal(bench_procs_cpu(&p, &before), 0);
    do {
        for (int i = 0; i < 1000000; i++)
            x = x + (uint64_t)i;
        assert_int_equal(bench_procs_cpu(&p, &after), 0);
    } while (after < before + 20000000);
    memory = malloc(bytes);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
    assert_int_equal(bench_procs_peak(&p, &kib_more), 0);
    assert_true(kib_more >= kib + bytes / 1024 / 2);
    free((void *)memory);
}

static void test_procs_when_one_is_gone_then_error(void **state)
{
    struct bench_procs p = {.n = 1};
    uint64_t v;
    pid_t child = fork();

    (void)state;
    if (child == 0)
        _exit(0);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    p.pid[0] = child;
    assert_true(bench_procs_cpu(&p, &v) < 0);
    assert_true(bench_procs_peak(&p, &v) < 0);
    assert_true(bench_procs_peak_reset(&p) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram_when_empty_then_zero),
        cmocka_unit_test(test_percentile_when_any_scale_then_within_a_bucket),
        cmocka_unit_test(test_pids_when_not_a_list_then_refused),
        cmocka_unit_test(test_procs_when_one_works_then_its_time_and_memory_are_seen),
        cmocka_unit_test(test_procs_when_one_is_gone_then_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
