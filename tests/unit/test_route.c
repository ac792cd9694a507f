// SPDX-License-Identifier: GPL-2.0-or-later
// The API's dispatch table: what fits, what does not.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cmd/pmsd/route.c"

static const struct pms_route table[] = {
    {"GET", "/v1/arrays", NULL, true},
    {"GET", "/v1/arrays/*", NULL, true},
    {"DELETE", "/v1/arrays/*", NULL, true},
    {"POST", "/v1/arrays/*/handover", NULL, true},
};

static char arg[16];
static bool known;

static const struct pms_route *find(const char *method, const char *path)
{
    return pms_route_match(table, 4, method, path, arg, sizeof(arg), &known);
}

static void test_route_when_path_fits_then_arg_is_the_element(void **state)
{
    (void)state;
    assert_ptr_equal(find("GET", "/v1/arrays"), &table[0]);
    assert_string_equal(arg, "");
    assert_ptr_equal(find("GET", "/v1/arrays/vol0"), &table[1]);
    assert_string_equal(arg, "vol0");
    assert_ptr_equal(find("POST", "/v1/arrays/vol0/handover"), &table[3]);
    assert_string_equal(arg, "vol0");
}

static void test_route_when_only_the_method_differs_then_the_path_is_known(void **state)
{
    (void)state;
    assert_null(find("PUT", "/v1/arrays/vol0"));
    assert_true(known);
    assert_null(find("GET", "/v1/other"));
    assert_false(known);
}

static void test_route_when_element_is_empty_or_too_long_then_none(void **state)
{
    (void)state;
    assert_null(find("GET", "/v1/arrays/"));
    assert_null(find("GET", "/v1/arrays/vol0/"));
    assert_null(find("GET", "/v1/arrays/0123456789abcdef"));
    assert_non_null(find("GET", "/v1/arrays/0123456789abcde"));
    assert_null(find("POST", "/v1/arrays/vol0/handover/x"));
    assert_null(find("POST", "/v1/arrays/vol0/hand"));
    assert_null(find("GET", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_when_path_fits_then_arg_is_the_element),
        cmocka_unit_test(test_route_when_only_the_method_differs_then_the_path_is_known),
        cmocka_unit_test(test_route_when_element_is_empty_or_too_long_then_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
