// SPDX-License-Identifier: GPL-2.0-or-later
// What a write costs the disk: with its region marked no page of metadata and no flush of its own; a first write to a
// region pays for the mark once.
#include "tests/unit/dp_fixture.h"

#define REGIONS (SIZE / REGION)
#define QD_MAX  32

struct counts {
    uint32_t data, meta, flushes;
};

static struct counts counts_of(const struct world *w, int slot)
{
    return (struct counts){w->data_writes[slot], w->meta_writes[slot], w->flushes[slot]};
}

static struct counts since(const struct world *w, int slot, struct counts before)
{
    struct counts c = counts_of(w, slot);

    return (struct counts){c.data - before.data, c.meta - before.meta, c.flushes - before.flushes};
}

static void start(struct world *w)
{
    set_up(w);
    join(w, 0);
    join(w, 1);
    run(w, 600);
    assert_true(status(w, 0).serving);
}

static void mark_all(struct world *w)
{
    for (uint32_t r = 0; r < REGIONS; r++)
        write_fill(w, 0, (uint64_t)r * REGION, 512, 1);
}

/* Submits n writes of a sector each at once, and lets the disks of both work when all that could be asked of them was
 * asked: as many times as it takes. The sectors are distinct, `from` and on, spread over the regions. */
static void write_many(struct world *w, uint32_t from, uint32_t n)
{
    static struct pms_dp_op ops[QD_MAX];
    struct pms_iobuf *b = pms_iobuf_create(512);
    uint32_t before = w->completed;

    memset(b->data, (int)from, 512);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = from + i, at = k % REGIONS * REGION + k / REGIONS % (REGION / 512) * 512;

        ops[i] = (struct pms_dp_op){.type = PMS_DP_WRITE, .offset = at, .length = 512, .buf = b};
        pms_dp_submit(w->dp[0], w->now, &ops[i]);
    }
    while (w->completed < before + n) {
        w->hold_disk[0] = w->hold_disk[1] = true;
        settle_queue(w);
        assert_true(w->completed == before + n || w->n_held[0] + w->n_held[1] > 0);
        release_disk(w, 0);
        release_disk(w, 1);
    }
    settle_queue(w);
    assert_int_equal(w->completed, before + n);
    assert_int_equal(w->last_status, 0);
    pms_iobuf_put(b);
}

static void test_write_when_its_region_is_unmarked_then_the_mark_is_paid_once(void **state)
{
    struct world w;
    struct counts before[SLOTS];

    (void)state;
    start(&w);
    for (int s = 0; s < SLOTS; s++)
        before[s] = counts_of(&w, s);
    write_fill(&w, 0, 0, 512, 1);
    for (int s = 0; s < SLOTS; s++) {
        struct counts c = since(&w, s, before[s]);

        assert_int_equal(c.data, 1);
        assert_int_equal(c.meta, 1);
        assert_int_equal(c.flushes, 2); /* the mark's, the data's */
        before[s] = counts_of(&w, s);
    }
    write_fill(&w, 0, 512, 512, 2);
    for (int s = 0; s < SLOTS; s++) {
        struct counts c = since(&w, s, before[s]);

        assert_int_equal(c.data, 1);
        assert_int_equal(c.meta, 0);
        assert_int_equal(c.flushes, 1);
    }
    tear_down(&w);
}

/* Longer than it takes to clear a region that nobody writes to: these are written to. */
static void test_load_when_regions_are_marked_then_no_metadata_and_a_flush_a_write(void **state)
{
    struct world w;
    struct counts before[SLOTS];
    uint32_t rng = 1, n = 2 * pms_dp_timing_default.clear_idle / 5;

    (void)state;
    start(&w);
    mark_all(&w);
    for (int s = 0; s < SLOTS; s++)
        before[s] = counts_of(&w, s);
    for (uint32_t i = 0; i < n; i++) {
        rng = rng * 1103515245u + 12345u;
        write_fill(&w, 0, (rng >> 8) % (SIZE / 512) * 512, 512, (int)i & 0xff);
    }
    for (int s = 0; s < SLOTS; s++) {
        struct counts c = since(&w, s, before[s]);

        assert_int_equal(c.data, n);
        assert_int_equal(c.meta, 0);
        assert_int_equal(c.flushes, n);
        assert_int_equal(status(&w, s).dirty_regions, REGIONS);
    }
    expect_equal_bricks(&w);
    tear_down(&w);
}

static void test_load_when_many_are_in_flight_then_they_share_flushes(void **state)
{
    struct world w;
    struct counts before[SLOTS];
    uint32_t rounds = 50;

    (void)state;
    start(&w);
    mark_all(&w);
    for (uint32_t qd = 1; qd <= QD_MAX; qd *= 2) {
        for (int s = 0; s < SLOTS; s++)
            before[s] = counts_of(&w, s);
        for (uint32_t i = 0; i < rounds; i++)
            write_many(&w, i * 7, qd);
        for (int s = 0; s < SLOTS; s++) {
            struct counts c = since(&w, s, before[s]);

            assert_int_equal(c.data, rounds * qd);
            assert_int_equal(c.meta, 0);
            /* Whoever comes while one is under way shares the next. */
            assert_in_range(c.flushes, rounds, rounds * (qd < 2 ? qd : 2));
        }
    }
    tear_down(&w);
}

static void test_load_when_regions_are_unmarked_then_their_marks_share_a_commit(void **state)
{
    struct world w;
    struct counts before[SLOTS];

    (void)state;
    start(&w);
    for (int s = 0; s < SLOTS; s++)
        before[s] = counts_of(&w, s);
    write_many(&w, 0, QD_MAX);
    for (int s = 0; s < SLOTS; s++) {
        struct counts c = since(&w, s, before[s]);

        assert_int_equal(c.data, QD_MAX);
        assert_in_range(c.meta, 1, 2);    /* the first one's, then all others' */
        assert_in_range(c.flushes, 2, 6); /* two commits, and after each the data, in two flushes at most */
        assert_int_equal(status(&w, s).dirty_regions, REGIONS);
    }
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_when_its_region_is_unmarked_then_the_mark_is_paid_once),
        cmocka_unit_test(test_load_when_regions_are_marked_then_no_metadata_and_a_flush_a_write),
        cmocka_unit_test(test_load_when_many_are_in_flight_then_they_share_flushes),
        cmocka_unit_test(test_load_when_regions_are_unmarked_then_their_marks_share_a_commit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
