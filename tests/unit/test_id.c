// SPDX-License-Identifier: GPL-2.0-or-later
// base/id: text and back; garbage refused and the result left alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/id.h"

static void test_id_when_formatted_then_most_significant_first(void **state)
{
    char text[PMS_ID_TEXT_SIZE];
    uint64_t id = 0;

    (void)state;
    assert_string_equal(pms_id_format(0x0123456789abcdef, text), "0123456789abcdef");
    assert_int_equal(pms_id_parse("0123456789ABCdef", &id), 0);
    assert_true(id == 0x0123456789abcdef);
    assert_string_equal(pms_id_format(7, text), "0000000000000007");
}

static void test_id_when_garbage_then_refused_and_unchanged(void **state)
{
    static const char *const bad[] = {
        "",
        "1",
        "0123456789abcde",
        "0123456789abcdef0",
        "0123456789abcdeg",
        "0x23456789abcdef",
        " 123456789abcdef",
    };
    uint64_t id = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(pms_id_parse(bad[i], &id), -EINVAL);
        assert_true(id == 5);
    }
}

static void test_uuid_when_formatted_then_parses_back(void **state)
{
    static const char want[] = "00112233445566778899aabbccddeeff";
    char text[PMS_UUID_TEXT_SIZE];
    struct pms_uuid uuid;

    (void)state;
    assert_int_equal(pms_uuid_parse(want, &uuid), 0);
    assert_int_equal(uuid.b[1], 0x11);
    assert_int_equal(uuid.b[15], 0xff);
    assert_string_equal(pms_uuid_format(&uuid, text), want);
    assert_int_equal(pms_uuid_parse("00112233-4455-6677-8899-aabbccddeeff", &uuid), -EINVAL);
}

static void test_random_then_nonzero_and_different(void **state)
{
    struct pms_uuid a, b;
    uint64_t x = pms_id_random();

    (void)state;
    assert_true(x != 0);
    assert_true(x != pms_id_random());
    pms_uuid_random(&a);
    pms_uuid_random(&b);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_id_when_formatted_then_most_significant_first),
        cmocka_unit_test(test_id_when_garbage_then_refused_and_unchanged),
        cmocka_unit_test(test_uuid_when_formatted_then_parses_back),
        cmocka_unit_test(test_random_then_nonzero_and_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
