// SPDX-License-Identifier: GPL-2.0-or-later
// Who is the sick one: what third nodes hear of both sides.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cmd/pmsd/links_verdict.c"

static bool one(int mine, int self, int peer)
{
    return pms_links_verdict(&mine, &self, &peer, 1);
}

static void test_witness_when_it_hears_only_the_other_well_then_this_node_is_the_sick_one(void **state)
{
    (void)state;
    assert_true(one(20, 100, 100)); // we hear it badly
    assert_true(one(100, 20, 100)); // it hears us badly
    assert_true(one(0, 0, PMS_LINKS_WELL));
}

static void test_witness_when_it_hears_both_alike_then_nobody_is_doubted(void **state)
{
    (void)state;
    assert_false(one(100, 100, 100)); // the link between the two is bad
    assert_false(one(100, 100, 0));   // the other one is
    assert_false(one(20, 20, 20));    // the witness is
    assert_false(one(PMS_LINKS_BAD, PMS_LINKS_BAD, 100));
    assert_false(one(20, 20, PMS_LINKS_WELL - 1));
}

static void test_witness_when_nothing_is_known_of_it_then_it_has_no_say(void **state)
{
    (void)state;
    assert_false(one(-1, 0, 100));
    assert_false(one(0, -1, -1));
    assert_true(one(0, -1, 100));
    assert_false(pms_links_verdict(NULL, NULL, NULL, 0));
}

static void test_third_nodes_when_they_differ_then_most_of_those_with_news_decide(void **state)
{
    static const int mine[] = {20, 100, 20, -1}, self[] = {20, 100, 20, 20}, peer[] = {100, 100, 100, 100};

    (void)state;
    assert_true(pms_links_verdict(mine, self, peer, 4));
    assert_false(pms_links_verdict(mine, self, peer, 2));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_witness_when_it_hears_only_the_other_well_then_this_node_is_the_sick_one),
        cmocka_unit_test(test_witness_when_it_hears_both_alike_then_nobody_is_doubted),
        cmocka_unit_test(test_witness_when_nothing_is_known_of_it_then_it_has_no_say),
        cmocka_unit_test(test_third_nodes_when_they_differ_then_most_of_those_with_news_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
