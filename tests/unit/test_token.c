// SPDX-License-Identifier: GPL-2.0-or-later
// Join tokens: what is one and what is not.
#include "consensus/raft/token.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_token_when_formatted_and_parsed_then_the_same(void **state)
{
    struct pms_token a, b;
    char text[PMS_TOKEN_TEXT_SIZE];

    (void)state;
    pms_token_random(&a);
    pms_token_format(&a, text);
    assert_int_equal(strlen(text), PMS_TOKEN_TEXT_SIZE - 1);
    assert_int_equal(pms_token_parse(text, &b), 0);
    assert_string_equal(a.id, b.id);
    assert_string_equal(a.secret, b.secret);
}

static void test_token_when_malformed_then_refused_and_unchanged(void **state)
{
    static const char *const bad[] = {
        "",
        "pms1-",
        "pms1-0123456",
        "pms1-01234567",
        "pms1-01234567-",
        "pms1-01234567-0123456789abcdef0123456789abcde",
        "pms1-01234567-0123456789abcdef0123456789abcdef0",
        "pms1-01234567-0123456789abcdef0123456789abcdeg",
        "pms2-01234567-0123456789abcdef0123456789abcdef",
        "pms1-01234567 0123456789abcdef0123456789abcdef",
        " pms1-01234567-0123456789abcdef0123456789abcdef",
    };
    struct pms_token t = {.id = "same"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pms_token_parse(bad[i], &t), -EINVAL);
        assert_string_equal(t.id, "same");
    }
}

static void test_token_when_upper_case_then_lowered(void **state)
{
    struct pms_token t;

    (void)state;
    assert_int_equal(pms_token_parse("pms1-ABCDEF01-0123456789ABCDEF0123456789ABCDEF", &t), 0);
    assert_string_equal(t.id, "abcdef01");
    assert_string_equal(t.secret, "0123456789abcdef0123456789abcdef");
}

static void test_psk_when_secrets_differ_then_differs(void **state)
{
    uint8_t a[PMS_TOKEN_PSK_BYTES], b[PMS_TOKEN_PSK_BYTES], c[PMS_TOKEN_PSK_BYTES];

    (void)state;
    pms_token_psk("0123456789abcdef0123456789abcdef", a);
    pms_token_psk("0123456789abcdef0123456789abcdee", b);
    pms_token_psk("0123456789abcdef0123456789abcdef", c);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_equal(a, c, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_when_formatted_and_parsed_then_the_same),
        cmocka_unit_test(test_token_when_malformed_then_refused_and_unchanged),
        cmocka_unit_test(test_token_when_upper_case_then_lowered),
        cmocka_unit_test(test_psk_when_secrets_differ_then_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
