// SPDX-License-Identifier: GPL-2.0-or-later
// base/err: every code has a name and a text of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"

static void test_err_own_code_then_name_and_text(void **state)
{
    (void)state;
    assert_string_equal(pms_err_name(PMS_ENOQUORUM), "PMS_ENOQUORUM");
    assert_string_equal(pms_err_name(PMS_ESHUTDOWN), "PMS_ESHUTDOWN");
    assert_string_equal(pms_err_text(PMS_EUNKNOWN), "outcome unknown");
}

static void test_err_errno_then_libc_names(void **state)
{
    (void)state;
    assert_string_equal(pms_err_name(-EIO), "EIO");
    assert_string_equal(pms_err_text(-ENOENT), "No such file or directory");
    assert_string_equal(pms_err_name(0), "OK");
}

static void test_err_undefined_code_then_placeholder(void **state)
{
    (void)state;
    assert_string_equal(pms_err_name(-4095), "E?");
    assert_string_equal(pms_err_name(-9999), "E?");
    assert_string_equal(pms_err_name(7), "E?");
    assert_string_equal(pms_err_text(INT32_MIN), "unknown error");
}

static void test_err_list_then_unique_and_apart_from_errno(void **state)
{
#define CODE(name, code, text) code,
    static const int codes[] = {PMS_ERRORS(CODE)};
#undef CODE
    const size_t n = sizeof(codes) / sizeof(codes[0]);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_true(codes[i] < -4096);
        assert_int_equal(pms_err_from_name(pms_err_name(codes[i])), codes[i]);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(codes[i], codes[j]);
    }
    assert_int_equal(pms_err_from_name("PMS_ENEWER"), PMS_EUNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_own_code_then_name_and_text),
        cmocka_unit_test(test_err_errno_then_libc_names),
        cmocka_unit_test(test_err_undefined_code_then_placeholder),
        cmocka_unit_test(test_err_list_then_unique_and_apart_from_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
