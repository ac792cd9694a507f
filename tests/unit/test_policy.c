// SPDX-License-Identifier: GPL-2.0-or-later
// Where copies are placed, where primaries move, who may leave.
#include "consensus/core/policy.h"
#include "tests/unit/state_fixture.h"

static char why[400];

// Nodes by their ids' last digit: "abcf" are a, b, c and the witness.
static struct pms_policy_view view_of(const char *alive)
{
    struct pms_policy_view v = {.quorum = true};

    for (const char *p = alive; *p != '\0'; p++)
        v.alive[v.n_alive++] = (uint64_t)(*p - 'a') + 0xa;
    return v;
}

static void place_gives(struct fixture *f, const char *alive, unsigned copies, const char *nodes)
{
    struct pms_policy_view v = view_of(alive);
    uint64_t out[PMS_SLOTS_MAX] = {0};
    int rv = pms_policy_place(f->st, &v, copies, out, why, sizeof(why));

    if (rv != 0)
        fail_msg("place refused: %s", why);
    for (unsigned i = 0; i < copies; i++)
        assert_int_equal(out[i], nodes[i] - 'a' + 0xa);
}

static void test_place_when_all_are_equal_then_by_name_and_never_the_witness(void **state)
{
    struct fixture *f = *state;

    place_gives(f, "abcf", 1, "a");
    place_gives(f, "abcf", 2, "ab");
    place_gives(f, "abcf", 3, "abc");
    place_gives(f, "bcf", 2, "bc");
}

static void test_place_when_loaded_then_the_emptiest_nodes_and_the_least_busy_first(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 2); // on a (primary) and b
    place_gives(f, "abcf", 1, "c");
    place_gives(f, "abcf", 2, "ca"); // c and a are taken for their load, c has no primary
    place_gives(f, "abcf", 3, "cab");
    place_gives(f, "abf", 2, "ba"); // equally full, but a has the primary
    f_array_creating(f, "u", 2, 3); // on a, b, c; will be a's
    place_gives(f, "abcf", 3, "cab");
    f_transition(f, "v", "takeover", 1, 1, "01");
    place_gives(f, "abf", 2, "ab"); // one primary each now
}

static void test_place_when_impossible_then_says_why(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view all = view_of("abcf"), two = view_of("abf");
    uint64_t out[PMS_SLOTS_MAX];

    assert_int_equal(pms_policy_place(f->st, &all, 0, out, why, sizeof(why)), PMS_EUSAGE);
    assert_int_equal(pms_policy_place(f->st, &all, 9, out, why, sizeof(why)), PMS_EUSAGE);
    assert_int_equal(pms_policy_place(f->st, &all, 4, out, why, sizeof(why)), PMS_EREFUSED);
    assert_non_null(strstr(why, "the cluster has 3"));
    assert_int_equal(pms_policy_place(f->st, &two, 3, out, why, sizeof(why)), PMS_EREFUSED);
    assert_non_null(strstr(why, "2 of 3 answer"));
}

static void test_handover_target_when_there_are_several_then_the_least_busy_that_answers(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view all = view_of("abcf"), no_c = view_of("abf"), no_bc = view_of("af");
    const uint64_t id = 0xa0001;

    f_array(f, "v", 1, 3);
    assert_int_equal(pms_policy_handover_target(f->st, &all, id, 0, why, sizeof(why)), 1);
    assert_int_equal(pms_policy_handover_target(f->st, &all, id, 0xb, why, sizeof(why)), 2);
    f_array(f, "u", 2, 2);
    f_transition(f, "u", "takeover", 1, 1, "01"); // now b serves one
    assert_int_equal(pms_policy_handover_target(f->st, &all, id, 0, why, sizeof(why)), 2);
    assert_int_equal(pms_policy_handover_target(f->st, &no_c, id, 0, why, sizeof(why)), 1);
    assert_int_equal(pms_policy_handover_target(f->st, &no_bc, id, 0, why, sizeof(why)), -1);
    assert_non_null(strstr(why, "array v"));
    f_transition(f, "v", "eject", 1, 0, "01"); // c is stale: never it
    assert_int_equal(pms_policy_handover_target(f->st, &all, id, 0xb, why, sizeof(why)), -1);
    assert_int_equal(pms_policy_handover_target(f->st, &all, 0x999, 0, why, sizeof(why)), -1);
    f_array_creating(f, "w", 3, 2);
    assert_int_equal(pms_policy_handover_target(f->st, &all, 0xa0003, 0, why, sizeof(why)), -1);
}

static int leave_next(struct fixture *f, const char *alive, const char *name, struct pms_leave_step *step)
{
    struct pms_policy_view v = view_of(alive);

    why[0] = '\0';
    return pms_policy_leave_next(f->st, &v, name, step, why, sizeof(why));
}

static void test_leave_when_it_is_primary_then_hands_each_over_and_then_goes(void **state)
{
    struct fixture *f = *state;
    struct pms_leave_step step;

    f_array(f, "u", 1, 2);
    f_array(f, "v", 2, 3);
    assert_int_equal(leave_next(f, "abcf", "a", &step), 1);
    assert_int_equal(step.array_id, 0xa0001);
    assert_int_equal(step.to_slot, 1);
    f_transition(f, "u", "handover", 1, 1, "01");
    assert_int_equal(leave_next(f, "abcf", "a", &step), 1);
    assert_int_equal(step.array_id, 0xa0002);
    assert_int_equal(step.to_slot, 2); // b is busier now
    f_transition(f, "v", "handover", 1, 2, "012");
    assert_int_equal(leave_next(f, "abcf", "a", &step), 0);
    f_ok(f, "{'op': 'node_leave', 'name': 'a'}");
    assert_int_equal(f_info(f, "u").in_sync, 2);
    assert_int_equal(f_info(f, "v").in_sync, 6);
}

static void test_leave_when_a_later_step_would_fail_then_the_first_is_not_taken(void **state)
{
    struct fixture *f = *state;
    struct pms_leave_step step;

    f_array(f, "u", 1, 2);
    f_array(f, "v", 2, 2);
    f_transition(f, "v", "eject", 1, 0, "0");
    assert_int_equal(leave_next(f, "abcf", "a", &step), PMS_EREFUSED);
    assert_non_null(strstr(why, "last good copy of array v"));
    assert_int_equal(leave_next(f, "abcf", "b", &step), 0);
    assert_int_equal(leave_next(f, "abcf", "z", &step), PMS_ENOTFOUND);
}

static void test_leave_when_no_copy_answers_or_no_quorum_would_stay_then_refused(void **state)
{
    struct fixture *f = *state;
    struct pms_leave_step step;

    f_array(f, "v", 1, 2);
    assert_int_equal(leave_next(f, "acf", "a", &step), PMS_EREFUSED);
    assert_non_null(strstr(why, "no other copy"));
    assert_int_equal(leave_next(f, "ab", "b", &step), PMS_EREFUSED); // a alone of a, c, w
    assert_non_null(strstr(why, "no quorum"));
    assert_int_equal(leave_next(f, "abf", "c", &step), 0); // one that is down may be removed
    assert_int_equal(leave_next(f, "abcf", "w", &step), 0);
    f_ok(f, "{'op': 'node_leave', 'name': 'c'}");
    assert_int_equal(leave_next(f, "af", "w", &step), PMS_EREFUSED); // half of a, b is no majority
    assert_int_equal(leave_next(f, "abf", "w", &step), 0);
    f_array_creating(f, "u", 2, 2);
    assert_int_equal(leave_next(f, "abf", "b", &step), PMS_EBUSY);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_place_when_all_are_equal_then_by_name_and_never_the_witness),
        T(test_place_when_loaded_then_the_emptiest_nodes_and_the_least_busy_first),
        T(test_place_when_impossible_then_says_why),
        T(test_handover_target_when_there_are_several_then_the_least_busy_that_answers),
        T(test_leave_when_it_is_primary_then_hands_each_over_and_then_goes),
        T(test_leave_when_a_later_step_would_fail_then_the_first_is_not_taken),
        T(test_leave_when_no_copy_answers_or_no_quorum_would_stay_then_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
