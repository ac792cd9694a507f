// SPDX-License-Identifier: GPL-2.0-or-later
// The verifying client's judge: true histories pass, and made-up bad ones are caught for what they are.
#include "tests/tools/lib/judge.h"
#include "tests/tools/lib/vlog.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define CLIENT 77u
#define BASE   1000u
#define N      8u

// A made-up disk of N sectors beside the judge.
struct world {
    struct pms_judge *j;
    uint8_t disk[N * PMS_STAMP_BYTES];
    uint64_t floor[N];
};

static struct world world_make(bool zeroed)
{
    struct world w = {0};
    assert_int_equal(pms_judge_create(&w.j, CLIENT, BASE, N, zeroed), 0);
    return w;
}

static void begin(struct world *w, unsigned at, unsigned n, uint64_t gen)
{
    assert_int_equal(pms_judge_write_begin(w->j, BASE + at, n, gen), 0);
}

static void land(struct world *w, unsigned at, unsigned n, uint64_t gen)
{
    pms_stamp_fill(w->disk + at * PMS_STAMP_BYTES, CLIENT, BASE + at, n, gen);
}

static void ack(struct world *w, unsigned at, unsigned n, uint64_t gen)
{
    assert_int_equal(pms_judge_write_ack(w->j, BASE + at, n, gen), 0);
}

static void write_whole(struct world *w, unsigned at, unsigned n, uint64_t gen)
{
    begin(w, at, n, gen);
    land(w, at, n, gen);
    ack(w, at, n, gen);
}

static uint32_t read_all(struct world *w, bool final)
{
    assert_int_equal(pms_judge_read_begin(w->j, BASE, N, w->floor), 0);
    return pms_judge_read_end(w->j, BASE, N, w->floor, w->disk, final, NULL);
}

static void expect(struct world *w, uint64_t lost, uint64_t stale, uint64_t garbage)
{
    struct pms_judge_counts c = pms_judge_counts(w->j);
    assert_int_equal(c.lost, lost);
    assert_int_equal(c.stale, stale);
    assert_int_equal(c.garbage, garbage);
    pms_judge_destroy(w->j);
}

static void test_judge_when_writes_are_read_back_then_clean(void **state)
{
    (void)state;
    struct world w = world_make(true);
    assert_int_equal(read_all(&w, false), 0);
    write_whole(&w, 0, 4, 1);
    write_whole(&w, 2, 6, 2);
    assert_int_equal(read_all(&w, false), 0);
    assert_int_equal(read_all(&w, true), 0);
    expect(&w, 0, 0, 0);
}

static void test_judge_when_write_in_flight_then_old_and_new_are_allowed(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    begin(&w, 0, 4, 2);
    assert_int_equal(read_all(&w, false), 0); // old
    land(&w, 0, 2, 2);
    assert_int_equal(read_all(&w, false), 0); // half new
    land(&w, 0, 4, 2);
    assert_int_equal(read_all(&w, false), 0); // new
    land(&w, 0, 4, 2);                        // sent again, executed twice
    ack(&w, 0, 4, 2);
    assert_int_equal(read_all(&w, true), 0);
    expect(&w, 0, 0, 0);
}

static void test_judge_when_read_began_before_the_ack_then_old_is_allowed(void **state)
{
    (void)state;
    struct world w = world_make(true);
    uint8_t old[sizeof w.disk];
    write_whole(&w, 0, N, 1);
    memcpy(old, w.disk, sizeof old);
    assert_int_equal(pms_judge_read_begin(w.j, BASE, N, w.floor), 0);
    write_whole(&w, 0, N, 2);
    assert_int_equal(pms_judge_read_end(w.j, BASE, N, w.floor, old, false, NULL), 0);
    expect(&w, 0, 0, 0);
}

static void test_judge_when_acknowledged_write_is_gone_at_the_end_then_lost(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    begin(&w, 3, 2, 2);
    ack(&w, 3, 2, 2); // acknowledged, never landed
    assert_int_equal(read_all(&w, true), 2);
    expect(&w, 2, 0, 0);
}

static void test_judge_when_first_write_is_gone_at_the_end_then_lost(void **state)
{
    (void)state;
    struct world w = world_make(true);
    begin(&w, 0, 1, 1);
    ack(&w, 0, 1, 1); // the sector still reads zero
    assert_int_equal(read_all(&w, true), 1);
    expect(&w, 1, 0, 0);

    w = world_make(false); // the same with unknown first content
    begin(&w, 0, 1, 1);
    ack(&w, 0, 1, 1);
    assert_int_equal(read_all(&w, true), 1);
    expect(&w, 1, 0, 0);
}

static void test_judge_when_read_misses_acknowledged_write_then_stale(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    begin(&w, 0, 1, 2);
    ack(&w, 0, 1, 2);
    assert_int_equal(read_all(&w, false), 1);
    expect(&w, 0, 1, 0);
}

static void test_judge_when_seen_write_disappears_then_stale(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    begin(&w, 0, 1, 2);
    land(&w, 0, 1, 2);
    assert_int_equal(read_all(&w, false), 0); // new seen, not acknowledged
    land(&w, 0, 1, 1);
    assert_int_equal(read_all(&w, false), 1); // and back
    expect(&w, 0, 1, 0);
}

static void test_judge_when_old_write_lands_late_then_caught(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    write_whole(&w, 0, 1, 2);
    land(&w, 0, 1, 1); // the first, executed a second time after the second's acknowledgement
    assert_int_equal(read_all(&w, false), 1);
    assert_int_equal(read_all(&w, true), 1);
    expect(&w, 1, 1, 0);
}

static void test_judge_when_content_is_not_ours_then_garbage(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    memset(w.disk, 0x5a, 16);                                             // torn
    pms_stamp_fill(w.disk + 1 * PMS_STAMP_BYTES, CLIENT, BASE + 2, 1, 1); // misplaced
    pms_stamp_fill(w.disk + 2 * PMS_STAMP_BYTES, CLIENT, BASE + 2, 1, 9); // never begun
    memset(w.disk + 4 * PMS_STAMP_BYTES - 1, 0xff, 1);                    // last byte flipped
    memset(w.disk + 4 * PMS_STAMP_BYTES, 0, PMS_STAMP_BYTES / 2);         // half zero
    assert_int_equal(read_all(&w, true), 5);
    expect(&w, 0, 0, 5);
}

static void test_judge_when_unwritten_sector_changes_then_garbage(void **state)
{
    (void)state;
    struct world w = world_make(false);
    memset(w.disk, 0x11, sizeof w.disk);
    assert_int_equal(read_all(&w, false), 0); // learnt
    w.disk[7 * PMS_STAMP_BYTES + 5] ^= 1;
    assert_int_equal(read_all(&w, false), 1);
    expect(&w, 0, 0, 1);

    w = world_make(true);
    w.disk[0] = 1;
    assert_int_equal(read_all(&w, false), 1);
    expect(&w, 0, 0, 1);
}

static void test_judge_when_outcome_is_unknown_then_both_are_allowed_and_seen_binds(void **state)
{
    (void)state;
    struct world w = world_make(true);
    write_whole(&w, 0, N, 1);
    begin(&w, 0, 1, 2);
    assert_int_equal(pms_judge_write_unknown(w.j, BASE, 1, 2), 0);
    assert_int_equal(read_all(&w, true), 0); // old
    land(&w, 0, 1, 2);
    assert_int_equal(read_all(&w, true), 0); // new
    land(&w, 0, 1, 1);
    assert_int_equal(read_all(&w, true), 1); // new was seen
    expect(&w, 0, 1, 0);
}

static void test_judge_when_writes_overlap_or_leave_the_span_then_refused_unchanged(void **state)
{
    (void)state;
    struct world w = world_make(true);
    begin(&w, 2, 2, 5);
    assert_int_equal(pms_judge_write_begin(w.j, BASE + 3, 2, 6), -EBUSY);
    assert_int_equal(pms_judge_write_begin(w.j, BASE + N - 1, 2, 6), -EINVAL);
    assert_int_equal(pms_judge_write_begin(w.j, BASE - 1, 2, 6), -EINVAL);
    assert_int_equal(pms_judge_write_ack(w.j, BASE + 2, 3, 5), -EINVAL);
    ack(&w, 2, 2, 5);
    assert_int_equal(pms_judge_write_begin(w.j, BASE + 2, 2, 5), -EINVAL); // not newer
    assert_false(pms_judge_written(w.j, BASE + 4));
    pms_judge_destroy(w.j);
}

struct logged {
    char path[64];
    struct pms_vlog *log;
};

static struct logged log_make(void)
{
    struct logged l = {.path = "/tmp/test_judge.XXXXXX"};
    struct pms_vlog_head head = {.client = CLIENT, .lba = BASE, .sectors = N, .zeroed = true};
    int fd = mkstemp(l.path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(pms_vlog_create(&l.log, l.path, &head), 0);
    return l;
}

static void log_add(struct logged *l, enum pms_vlog_kind kind, unsigned at, unsigned n, uint64_t gen)
{
    assert_int_equal(pms_vlog_add(l->log, kind, BASE + at, n, gen), 0);
}

static struct world log_replay(struct logged *l, uint64_t writes_expected)
{
    struct world w = {0};
    struct pms_vlog_head head;
    uint64_t writes = 0;
    assert_int_equal(pms_vlog_replay(l->path, &head, &w.j, &writes), 0);
    assert_int_equal(head.client, CLIENT);
    assert_int_equal(writes, writes_expected);
    unlink(l->path);
    return w;
}

static void test_log_when_replayed_then_judge_knows_acknowledged_and_open_writes(void **state)
{
    (void)state;
    struct logged l = log_make();
    log_add(&l, PMS_VLOG_BEGIN, 0, 4, 1);
    log_add(&l, PMS_VLOG_ACK, 0, 4, 1);
    log_add(&l, PMS_VLOG_BEGIN, 0, 1, 2); // in flight when the client was killed
    log_add(&l, PMS_VLOG_BEGIN, 1, 1, 3); // seen by a read, in flight
    log_add(&l, PMS_VLOG_SEEN, 1, 1, 3);
    assert_int_equal(pms_vlog_flush(l.log), 0);
    FILE *f = fopen(l.path, "a");
    assert_non_null(f);
    fputs("torn", f); // half a record
    fclose(f);
    assert_int_equal(pms_vlog_close(l.log), 0);

    struct world w = log_replay(&l, 1);
    land(&w, 0, 4, 1);
    land(&w, 1, 1, 3);
    assert_int_equal(read_all(&w, true), 0);
    land(&w, 0, 1, 2);
    assert_int_equal(read_all(&w, true), 0);
    land(&w, 1, 1, 1); // back behind what was seen: stale; and an acknowledged sector empty: lost
    memset(w.disk + 2 * PMS_STAMP_BYTES, 0, PMS_STAMP_BYTES);
    assert_int_equal(read_all(&w, true), 2);
    expect(&w, 1, 1, 0);
}

static void test_log_when_damaged_then_refused(void **state)
{
    (void)state;
    struct logged l = log_make();
    struct pms_vlog_head head;
    struct pms_judge *j = NULL;
    log_add(&l, PMS_VLOG_BEGIN, 0, 4, 1);
    assert_int_equal(pms_vlog_close(l.log), 0);
    FILE *f = fopen(l.path, "r+");
    assert_non_null(f);
    fseek(f, 40, SEEK_SET);
    fputc(0x77, f);
    fclose(f);
    assert_true(pms_vlog_replay(l.path, &head, &j, NULL) < 0);
    assert_null(j);
    unlink(l.path);
    assert_true(pms_vlog_replay(l.path, &head, &j, NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge_when_writes_are_read_back_then_clean),
        cmocka_unit_test(test_judge_when_write_in_flight_then_old_and_new_are_allowed),
        cmocka_unit_test(test_judge_when_read_began_before_the_ack_then_old_is_allowed),
        cmocka_unit_test(test_judge_when_acknowledged_write_is_gone_at_the_end_then_lost),
        cmocka_unit_test(test_judge_when_first_write_is_gone_at_the_end_then_lost),
        cmocka_unit_test(test_judge_when_read_misses_acknowledged_write_then_stale),
        cmocka_unit_test(test_judge_when_seen_write_disappears_then_stale),
        cmocka_unit_test(test_judge_when_old_write_lands_late_then_caught),
        cmocka_unit_test(test_judge_when_content_is_not_ours_then_garbage),
        cmocka_unit_test(test_judge_when_unwritten_sector_changes_then_garbage),
        cmocka_unit_test(test_judge_when_outcome_is_unknown_then_both_are_allowed_and_seen_binds),
        cmocka_unit_test(test_judge_when_writes_overlap_or_leave_the_span_then_refused_unchanged),
        cmocka_unit_test(test_log_when_replayed_then_judge_knows_acknowledged_and_open_writes),
        cmocka_unit_test(test_log_when_damaged_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
