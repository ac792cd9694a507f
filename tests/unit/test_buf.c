// SPDX-License-Identifier: GPL-2.0-or-later
// base/buf: growth, consuming, printing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <cmocka.h>

#include "base/buf.h"

static void test_buf_when_appended_and_consumed_then_bytes_in_order(void **state)
{
    struct pms_buf b = {0};
    uint32_t next = 0, v;

    (void)state;
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(pms_buf_append(&b, &i, sizeof(i)), 0);
        if (i % 3 == 0) {
            v = *(uint32_t *)(void *)b.data;
            assert_int_equal(v, next++);
            pms_buf_consume(&b, sizeof(v));
        }
    }
    assert_int_equal(b.len, (5000 - next) * sizeof(v));
    assert_int_equal(*(uint32_t *)(void *)b.data, next);
    pms_buf_deinit(&b);
    assert_int_equal(b.len, 0);
    assert_null(b.data);
}

static void test_buf_when_too_much_asked_then_enomem_and_unchanged(void **state)
{
    struct pms_buf b;

    (void)state;
    pms_buf_init(&b);
    assert_int_equal(pms_buf_append(&b, "abc", 3), 0);
    assert_int_equal(pms_buf_reserve(&b, SIZE_MAX), -ENOMEM);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "abc", 3);
    pms_buf_deinit(&b);
}

static void test_buf_printf_then_text_with_nul(void **state)
{
    struct pms_buf b = {0};

    (void)state;
    assert_int_equal(pms_buf_printf(&b, "%s", ""), 0);
    assert_int_equal(b.len, 0);
    assert_int_equal(pms_buf_printf(&b, "%d-", 12), 0);
    assert_int_equal(pms_buf_printf(&b, "%0300d", 1), 0);
    assert_int_equal(b.len, 303);
    assert_int_equal(b.data[b.len], 0);
    assert_memory_equal(b.data, "12-000", 6);
    pms_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_when_appended_and_consumed_then_bytes_in_order),
        cmocka_unit_test(test_buf_when_too_much_asked_then_enomem_and_unchanged),
        cmocka_unit_test(test_buf_printf_then_text_with_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
