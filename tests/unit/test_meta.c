// SPDX-License-Identifier: GPL-2.0-or-later
// A brick's metadata: identity, the choice between copies, torn pages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/version.h"
#include "base/wire.h"
#include "datapath/core/dp.h"
#include "datapath/core/meta.h"

static const uint8_t cluster[16] = {1, 2, 3};

static struct pms_dp_init init_of(uint64_t size)
{
    struct pms_dp_init init = {.cluster = 1,
                               .array = 2,
                               .self_node = 3,
                               .self_slot = 1,
                               .size_bytes = size,
                               .region_bytes = 1u << 20,
                               .boot_id = 1,
                               .fresh_incarnation = 78};

    init.timing = pms_dp_timing_default;
    return init;
}

static uint8_t *area_of(const struct pms_dp_init *init, bool all_dirty)
{
    uint8_t *area = malloc(PMS_BRICK_DATA_OFFSET);

    assert_non_null(area);
    assert_int_equal(pms_dp_brick_format(area, cluster, init, 77, all_dirty), 0);
    return area;
}

static uint32_t dirty(const struct pms_dp_init *init, const uint8_t *area)
{
    struct pms_dp *dp;
    struct pms_dp_status s;

    assert_int_equal(pms_dp_create(init, cluster, area, 1000, &dp), 0);
    pms_dp_status_get(dp, 1000, &s);
    assert_true(s.incarnation == 77);
    pms_dp_destroy(dp);
    return s.dirty_regions;
}

static void test_brick_when_formatted_then_opens_with_its_dirty_map(void **state)
{
    struct pms_dp_init init =
        init_of((uint64_t)70000 << 20); /* three bitmap pages, the last one partly used */
    uint8_t *area = area_of(&init, false);

    (void)state;
    assert_int_equal(dirty(&init, area), 0);
    free(area);
    area = area_of(&init, true);
    assert_int_equal(dirty(&init, area), 70000);
    free(area);
}

static void test_brick_when_a_bitmap_page_is_lost_then_its_regions_are_dirty(void **state)
{
    struct pms_dp_init init = init_of((uint64_t)40000 << 20);
    uint8_t *area = area_of(&init, false);

    (void)state;
    area[pms_meta_page_offset(1, 2) + 100] ^= 1;
    assert_int_equal(dirty(&init, area), 40000 - PMS_META_PAGE_BITS);
    free(area);
}

static void test_brick_when_it_belongs_elsewhere_then_refused(void **state)
{
    struct pms_dp_init init = init_of(1u << 30), other;
    uint8_t *area = area_of(&init, false);
    const uint8_t stranger[16] = {9};
    struct pms_dp *dp = NULL;

    (void)state;
    assert_int_equal(pms_dp_create(&init, stranger, area, 0, &dp), PMS_EIDENTITY);
    other = init;
    other.array = 5;
    assert_int_equal(pms_dp_create(&other, cluster, area, 0, &dp), PMS_EIDENTITY);
    other = init;
    other.self_slot = 0;
    assert_int_equal(pms_dp_create(&other, cluster, area, 0, &dp), PMS_EIDENTITY);
    other = init;
    other.size_bytes *= 2;
    assert_int_equal(pms_dp_create(&other, cluster, area, 0, &dp), PMS_EIDENTITY);
    memset(area, 0, 2 * PMS_META_PAGE_BYTES);
    assert_int_equal(pms_dp_create(&init, cluster, area, 0, &dp), PMS_ECORRUPT);
    assert_null(dp);
    free(area);
}

static void test_super_when_the_newer_copy_is_torn_then_the_older_counts(void **state)
{
    uint8_t *area = calloc(1, 2 * PMS_META_PAGE_BYTES);
    struct pms_meta m = {.version = pms_brick_versions.max, .array = 2, .floor = 5, .generation = 8}, got;

    (void)state;
    assert_non_null(area);
    pms_meta_super_encode(&m, area + pms_meta_super_offset(8));
    m.floor = 6;
    m.generation = 9;
    pms_meta_super_encode(&m, area + pms_meta_super_offset(9));
    assert_int_equal(pms_meta_super_load(area, &got), 0);
    assert_int_equal(got.floor, 6);
    memset(area + pms_meta_super_offset(9) + 64, 0xee, 512);
    assert_int_equal(pms_meta_super_load(area, &got), 0);
    assert_int_equal(got.floor, 5);
    free(area);
}

// Copy 0 of generation 8, then copy 1 of generation 9, of these versions.
static int load_versions(uint32_t first, uint32_t second, struct pms_meta *got)
{
    uint8_t *area = calloc(1, 2 * PMS_META_PAGE_BYTES);
    struct pms_meta m = {.version = first, .array = 2, .floor = 5, .generation = 8};
    int rc;

    assert_non_null(area);
    pms_meta_super_encode(&m, area + pms_meta_super_offset(8));
    m.version = second;
    m.floor = 6;
    m.generation = 9;
    pms_meta_super_encode(&m, area + pms_meta_super_offset(9));
    rc = pms_meta_super_load(area, got);
    free(area);
    return rc;
}

// What a newer pms wrote last may not be overlooked for the sake of what was so before.
static void test_super_when_a_copy_is_newer_than_this_build_then_refused(void **state)
{
    uint32_t max = pms_brick_versions.max;
    struct pms_meta got;

    (void)state;
    assert_int_equal(load_versions(max, max, &got), 0);
    assert_int_equal(got.version, max);
    assert_int_equal(load_versions(max, max + 1, &got), PMS_EVERSION);
    assert_int_equal(load_versions(max + 1, max, &got), PMS_EVERSION);
    assert_int_equal(load_versions(max + 1, max + 1, &got), PMS_EVERSION);
    assert_int_equal(load_versions(max, 0xffffffff, &got), PMS_EVERSION);
}

static void test_super_when_a_copy_is_older_than_this_build_then_the_other_counts(void **state)
{
    uint32_t min = pms_brick_versions.min;
    struct pms_meta got;

    (void)state;
    assert_int_equal(load_versions(min - 1, min - 1, &got), PMS_EVERSION);
    assert_int_equal(load_versions(min - 1, min, &got), 0);
    assert_int_equal(got.floor, 6);
}

// The superblock that the dp writes, of this version; 0: it writes none.
static uint32_t version_written(const struct pms_dp_init *init, const uint8_t *area)
{
    struct pms_dp_action act;
    struct pms_dp *dp;
    uint32_t version = 0;

    assert_int_equal(pms_dp_create(init, cluster, area, 0, &dp), 0);
    pms_dp_tick(dp, 10000000);
    while (pms_dp_action_next(dp, &act)) {
        if (act.type == PMS_DP_ACT_DISK && act.disk.type == PMS_DP_DISK_WRITE &&
            act.disk.offset < 2 * PMS_META_PAGE_BYTES) {
            version = pms_get_u32(act.buf->data + act.buf_off + 4);
            // What was there stays as it is until this one is stable.
            assert_int_equal(act.disk.offset, pms_meta_super_offset(3));
        }
        pms_iobuf_put(act.buf);
    }
    pms_dp_destroy(dp);
    return version;
}

static void test_brick_when_opened_for_a_newer_version_then_rewritten(void **state)
{
    struct pms_dp_init init = init_of(64u << 20);
    uint8_t *area = area_of(&init, false);

    (void)state;
    assert_int_equal(pms_get_u32(area + 4), pms_brick_versions.min);
    assert_int_equal(version_written(&init, area), 0);
    init.brick_version = pms_brick_versions.min;
    assert_int_equal(version_written(&init, area), 0);
    init.brick_version++; // of the feature level: whether this build could read it is not asked here
    assert_int_equal(version_written(&init, area), pms_brick_versions.min + 1);
    free(area);
}

static void test_format_when_the_map_does_not_fit_then_refused(void **state)
{
    struct pms_dp_init init = init_of((uint64_t)32 << 40);
    uint8_t *area = malloc(PMS_BRICK_DATA_OFFSET);

    (void)state;
    assert_int_equal(pms_dp_brick_format(area, cluster, &init, 77, false), PMS_EREFUSED);
    free(area);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brick_when_formatted_then_opens_with_its_dirty_map),
        cmocka_unit_test(test_brick_when_a_bitmap_page_is_lost_then_its_regions_are_dirty),
        cmocka_unit_test(test_brick_when_it_belongs_elsewhere_then_refused),
        cmocka_unit_test(test_super_when_the_newer_copy_is_torn_then_the_older_counts),
        cmocka_unit_test(test_super_when_a_copy_is_newer_than_this_build_then_refused),
        cmocka_unit_test(test_super_when_a_copy_is_older_than_this_build_then_the_other_counts),
        cmocka_unit_test(test_brick_when_opened_for_a_newer_version_then_rewritten),
        cmocka_unit_test(test_format_when_the_map_does_not_fit_then_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
