// SPDX-License-Identifier: GPL-2.0-or-later
// Frame headers: what goes in comes out, and no damaged byte is accepted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "datapath/core/frame.h"

static struct pms_frame sample(void)
{
    struct pms_frame f;

    memset(&f, 0, sizeof f);
    f.type = PMS_FRAME_WRITE_ACK;
    f.status = PMS_FRAME_STALE;
    f.from_slot = 1;
    f.to_slot = 2;
    f.cluster = 0x1122334455667788u;
    f.array = 0x99aabbccddeeff00u;
    f.epoch = 7;
    f.seq = 8;
    f.completed = 9;
    f.floor = 10;
    f.offset = 1u << 20;
    f.length = 4096;
    f.payload_len = 512;
    f.arg = 11;
    f.arg2 = 12;
    f.payload_sum = 13;
    return f;
}

static void test_frame_when_encoded_then_decodes_to_the_same(void **state)
{
    struct pms_frame f = sample(), g;
    uint8_t buf[PMS_FRAME_HEADER_BYTES];

    (void)state;
    memset(&g, 0, sizeof g);
    pms_frame_encode(&f, 1, buf);
    assert_int_equal(pms_frame_decode(buf, 1, &g), 0);
    assert_int_equal(g.type, f.type);
    assert_int_equal(g.status, f.status);
    assert_int_equal(g.from_slot, f.from_slot);
    assert_int_equal(g.to_slot, f.to_slot);
    assert_true(g.cluster == f.cluster && g.array == f.array && g.epoch == f.epoch && g.seq == f.seq);
    assert_true(g.completed == f.completed && g.floor == f.floor && g.offset == f.offset);
    assert_true(g.length == f.length && g.payload_len == f.payload_len && g.arg == f.arg);
    assert_true(g.arg2 == f.arg2 && g.payload_sum == f.payload_sum);
}

static void test_frame_when_any_bit_is_flipped_then_refused(void **state)
{
    struct pms_frame f = sample(), g;
    uint8_t buf[PMS_FRAME_HEADER_BYTES];

    (void)state;
    for (int bit = 0; bit < PMS_FRAME_HEADER_BYTES * 8; bit++) {
        pms_frame_encode(&f, 1, buf);
        buf[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        memset(&g, 0x5a, sizeof g);
        int err = pms_frame_decode(buf, 1, &g);

        assert_true(err == PMS_EPROTO || err == PMS_EVERSION);
        assert_int_equal(g.type, 0x5a);
    }
}

static void test_frame_when_of_another_version_than_agreed_then_refused(void **state)
{
    struct pms_frame f = sample(), g;
    uint8_t buf[PMS_FRAME_HEADER_BYTES];

    (void)state;
    pms_frame_encode(&f, 2, buf);
    assert_int_equal(pms_frame_decode(buf, 1, &g), PMS_EVERSION);
    assert_int_equal(pms_frame_decode(buf, 2, &g), 0);
    pms_frame_encode(&f, 1, buf);
    assert_int_equal(pms_frame_decode(buf, 2, &g), PMS_EVERSION);
}

static void test_frame_when_fields_are_out_of_range_then_refused(void **state)
{
    struct pms_frame f = sample(), g;
    uint8_t buf[PMS_FRAME_HEADER_BYTES];

    (void)state;
    f.payload_len = PMS_FRAME_PAYLOAD_MAX + 1;
    pms_frame_encode(&f, 1, buf);
    assert_int_equal(pms_frame_decode(buf, 1, &g), PMS_EPROTO);
    f = sample();
    f.type = PMS_FRAME_TYPE_END;
    pms_frame_encode(&f, 1, buf);
    assert_int_equal(pms_frame_decode(buf, 1, &g), PMS_EPROTO);
    f = sample();
    f.status = PMS_FRAME_STATUS_END;
    pms_frame_encode(&f, 1, buf);
    assert_int_equal(pms_frame_decode(buf, 1, &g), PMS_EPROTO);
}

static void test_frame_name_when_any_type_then_is_known(void **state)
{
    (void)state;
    for (uint8_t t = 1; t < PMS_FRAME_TYPE_END; t++)
        assert_string_not_equal(pms_frame_name(t), "?");
    assert_string_equal(pms_frame_name(0), "?");
    assert_string_equal(pms_frame_name(255), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_when_encoded_then_decodes_to_the_same),
        cmocka_unit_test(test_frame_when_any_bit_is_flipped_then_refused),
        cmocka_unit_test(test_frame_when_of_another_version_than_agreed_then_refused),
        cmocka_unit_test(test_frame_when_fields_are_out_of_range_then_refused),
        cmocka_unit_test(test_frame_name_when_any_type_then_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
