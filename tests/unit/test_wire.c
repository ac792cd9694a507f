// SPDX-License-Identifier: GPL-2.0-or-later
// base/wire: the byte order is fixed, bounds hold, errors stick.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/wire.h"

static void test_wire_when_written_then_little_endian(void **state)
{
    static const uint8_t want[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 'a', 'b', 0, 0};
    uint8_t buf[sizeof(want)];
    struct pms_wr w;

    (void)state;
    memset(buf, 0xff, sizeof(buf));
    pms_wr_init(&w, buf, sizeof(buf));
    pms_wr_u8(&w, 1);
    pms_wr_u16(&w, 0x0203);
    pms_wr_u32(&w, 0x04050607);
    pms_wr_u64(&w, 0x08090a0b0c0d0e0f);
    pms_wr_bytes(&w, "ab", 2);
    pms_wr_zero(&w, 2);
    assert_int_equal(w.err, 0);
    assert_int_equal(pms_wr_left(&w), 0);
    assert_memory_equal(buf, want, sizeof(want));
}

static void test_wire_when_read_then_same_values(void **state)
{
    uint8_t buf[64], bytes[3];
    struct pms_wr w = pms_wr_over(buf, sizeof(buf));
    struct pms_rd r;

    (void)state;
    pms_wr_u8(&w, 0xfe);
    pms_wr_u16(&w, 0xfedc);
    pms_wr_u32(&w, 0xfedcba98);
    pms_wr_u64(&w, 0xfedcba9876543210);
    pms_wr_bytes(&w, "xyz", 3);
    r = pms_rd_over(buf, (size_t)(w.p - buf));
    assert_int_equal(pms_rd_u8(&r), 0xfe);
    assert_int_equal(pms_rd_u16(&r), 0xfedc);
    assert_int_equal(pms_rd_u32(&r), 0xfedcba98);
    assert_true(pms_rd_u64(&r) == 0xfedcba9876543210);
    pms_rd_bytes(&r, bytes, 3);
    assert_memory_equal(bytes, "xyz", 3);
    assert_int_equal(r.err, 0);
    assert_int_equal(pms_rd_left(&r), 0);
}

static void test_wire_when_too_long_then_nothing_written_and_error_sticks(void **state)
{
    uint8_t buf[4] = {9, 9, 9, 9};
    struct pms_wr w = pms_wr_over(buf, 3);

    (void)state;
    pms_wr_u32(&w, 0);
    assert_int_equal(w.err, -EMSGSIZE);
    pms_wr_u8(&w, 1);
    assert_int_equal(w.err, -EMSGSIZE);
    assert_memory_equal(buf, "\x09\x09\x09\x09", 4);
}

static void test_wire_when_too_short_then_zeros_and_error_sticks(void **state)
{
    const uint8_t buf[3] = {1, 2, 3};
    uint8_t out[2] = {7, 7};
    struct pms_rd r = pms_rd_over(buf, 3);

    (void)state;
    assert_int_equal(pms_rd_u32(&r), 0);
    assert_int_equal(r.err, -EMSGSIZE);
    assert_int_equal(pms_rd_u8(&r), 0);
    pms_rd_bytes(&r, out, 2);
    assert_memory_equal(out, "\0\0", 2);
    assert_int_equal(r.err, -EMSGSIZE);
}

static void test_wire_take_then_borrowed_bytes_or_null(void **state)
{
    const uint8_t buf[4] = {1, 2, 3, 4};
    struct pms_rd r;

    (void)state;
    pms_rd_init(&r, buf, 4);
    pms_rd_skip(&r, 1);
    assert_ptr_equal(pms_rd_take(&r, 2), buf + 1);
    assert_null(pms_rd_take(&r, SIZE_MAX));
    assert_int_equal(r.err, -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_when_written_then_little_endian),
        cmocka_unit_test(test_wire_when_read_then_same_values),
        cmocka_unit_test(test_wire_when_too_long_then_nothing_written_and_error_sticks),
        cmocka_unit_test(test_wire_when_too_short_then_zeros_and_error_sticks),
        cmocka_unit_test(test_wire_take_then_borrowed_bytes_or_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
