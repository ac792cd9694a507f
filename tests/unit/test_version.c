// SPDX-License-Identifier: GPL-2.0-or-later
// Ranges of versions, and what a feature level lets be written.
#include "base/version.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_versions_when_compared_then_the_highest_common_or_none(void **state)
{
    (void)state;
    // Against a plain search.
    for (unsigned a = 1; a <= 6; a++)
        for (unsigned b = a; b <= 6; b++)
            for (unsigned c = 1; c <= 6; c++)
                for (unsigned d = c; d <= 6; d++) {
                    const struct pms_versions x = {(uint8_t)a, (uint8_t)b}, y = {(uint8_t)c, (uint8_t)d};
                    unsigned best = 0;

                    for (unsigned v = 1; v <= 6; v++)
                        if (pms_versions_has(x, v) && pms_versions_has(y, v))
                            best = v;
                    assert_int_equal(pms_versions_common(x, y), best);
                    assert_int_equal(pms_versions_common(y, x), best);
                }
}

static void test_versions_when_empty_or_zero_then_invalid(void **state)
{
    (void)state;
    assert_false(pms_versions_valid((struct pms_versions){0, 0}));
    assert_false(pms_versions_valid((struct pms_versions){0, 5}));
    assert_false(pms_versions_valid((struct pms_versions){3, 2}));
    assert_true(pms_versions_valid((struct pms_versions){1, 1}));
    assert_true(pms_versions_valid((struct pms_versions){1, 255}));
}

static void test_versions_when_formatted_then_words(void **state)
{
    char text[PMS_VERSIONS_TEXT_SIZE];

    (void)state;
    assert_string_equal(pms_versions_format((struct pms_versions){3, 3}, text), "3");
    assert_string_equal(pms_versions_format((struct pms_versions){1, 255}, text), "1 to 255");
}

static void test_versions_of_this_build_when_looked_at_then_sound(void **state)
{
    (void)state;
    assert_true(pms_versions_valid(pms_node_versions));
    assert_true(pms_versions_valid(pms_ring_versions));
    assert_true(pms_versions_valid(pms_brick_versions));
    assert_true(pms_feature_level_max >= 1);
    // Whatever level a cluster may have with this build in it: it can read what it writes.
    for (unsigned level = 1; level <= pms_feature_level_max; level++) {
        assert_true(pms_versions_has(pms_brick_versions, pms_brick_version_at(level)));
        assert_true(level == 1 || pms_brick_version_at(level) >= pms_brick_version_at(level - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_when_compared_then_the_highest_common_or_none),
        cmocka_unit_test(test_versions_when_empty_or_zero_then_invalid),
        cmocka_unit_test(test_versions_when_formatted_then_words),
        cmocka_unit_test(test_versions_of_this_build_when_looked_at_then_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
