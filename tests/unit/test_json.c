// SPDX-License-Identifier: GPL-2.0-or-later
// base/json: untrusted members are read by type, ids travel as text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"

static void test_json_when_member_has_type_then_read(void **state)
{
    json_t *obj = json_loads("{\"s\":\"x\",\"n\":7,\"t\":true,\"id\":\"00000000000000ff\"}", 0, NULL);
    uint64_t v = 0;

    (void)state;
    assert_string_equal(pms_json_str(obj, "s", "def"), "x");
    assert_true(pms_json_bool(obj, "t", false));
    assert_int_equal(pms_json_u64(obj, "n", &v), 0);
    assert_int_equal(v, 7);
    assert_int_equal(pms_json_id(obj, "id", &v), 0);
    assert_int_equal(v, 255);
    json_decref(obj);
}

static void test_json_when_missing_or_other_type_then_default_or_error(void **state)
{
    json_t *obj = json_loads("{\"s\":1,\"n\":-7,\"f\":1.0,\"t\":\"true\",\"id\":\"ff\"}", 0, NULL);
    uint64_t v = 5;

    (void)state;
    assert_string_equal(pms_json_str(obj, "s", "def"), "def");
    assert_null(pms_json_str(NULL, "s", NULL));
    assert_false(pms_json_bool(obj, "t", false));
    assert_int_equal(pms_json_u64(obj, "n", &v), -EINVAL);
    assert_int_equal(pms_json_u64(obj, "f", &v), -EINVAL);
    assert_int_equal(pms_json_u64(obj, "none", &v), PMS_ENOTFOUND);
    assert_int_equal(pms_json_u64(json_object_get(obj, "n"), "n", &v), PMS_ENOTFOUND);
    assert_int_equal(pms_json_id(obj, "id", &v), -EINVAL);
    assert_int_equal(pms_json_id(obj, "s", &v), -EINVAL);
    assert_int_equal(v, 5);
    json_decref(obj);
}

static void test_json_when_built_then_sorted_and_compact(void **state)
{
    json_t *obj = json_object();
    char *text;

    (void)state;
    assert_int_equal(pms_json_set_str(obj, "z", "\xc3\xa9"), 0);
    assert_int_equal(pms_json_set_id(obj, "id", 0xabc), 0);
    assert_int_equal(pms_json_set_u64(obj, "n", 3), 0);
    assert_int_equal(pms_json_set_bool(obj, "b", false), 0);
    text = pms_json_dump_compact(obj);
    assert_string_equal(text, "{\"b\":false,\"id\":\"0000000000000abc\",\"n\":3,\"z\":\"\xc3\xa9\"}");
    free(text);
    json_decref(obj);
}

static void test_json_set_when_impossible_then_error(void **state)
{
    json_t *obj = json_object();
    json_t *array = json_array();

    (void)state;
    assert_int_equal(pms_json_set_str(obj, "s", "\xff\xff"), -EINVAL);
    assert_int_equal(pms_json_set_u64(obj, "n", UINT64_MAX), -EINVAL);
    assert_int_equal(pms_json_set_u64(array, "n", 1), -EINVAL);
    assert_int_equal(json_object_size(obj), 0);
    json_decref(obj);
    json_decref(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_when_member_has_type_then_read),
        cmocka_unit_test(test_json_when_missing_or_other_type_then_default_or_error),
        cmocka_unit_test(test_json_when_built_then_sorted_and_compact),
        cmocka_unit_test(test_json_set_when_impossible_then_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
