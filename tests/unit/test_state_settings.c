// SPDX-License-Identifier: GPL-2.0-or-later
// Settings: ranges, what must hold between them, all or none.
#include "tests/unit/state_fixture.h"

static void test_setting_when_never_set_then_the_default(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pms_state_setting(f->st, PMS_SET_HEARTBEAT_MS), PMS_HEARTBEAT_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_PROMISE_MS), PMS_PROMISE_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_LEASE_MS), PMS_LEASE_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_RAFT_ELECTION_MS), PMS_RAFT_ELECTION_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_RAFT_HEARTBEAT_MS), PMS_RAFT_HEARTBEAT_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_EJECT_DEAD_MS), PMS_EJECT_DEAD_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_EJECT_SLOW_MS), PMS_EJECT_SLOW_MS);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_ADDR_LIFETIME_S), PMS_ADDR_LIFETIME_S);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_ORPHAN_S), PMS_ORPHAN_S);
}

static void test_setting_when_each_is_set_to_its_default_then_taken(void **state)
{
    struct fixture *f = *state;

    for (int s = 0; s < PMS_SETTINGS; s++)
        f_ok(f, "{'op': 'settings_set', 'key': '%s', 'value': %llu}", pms_setting_name(s),
             (unsigned long long)pms_state_setting(f->st, s));
}

static void test_setting_when_set_and_unset_then_the_default_returns(void **state)
{
    struct fixture *f = *state;

    f_ok(f, "{'op': 'settings_set', 'key': 'orphan_s', 'value': 600}");
    assert_int_equal(pms_state_setting(f->st, PMS_SET_ORPHAN_S), 600);
    f_ok(f, "{'op': 'settings_set', 'key': 'orphan_s', 'value': null}");
    assert_int_equal(pms_state_setting(f->st, PMS_SET_ORPHAN_S), PMS_ORPHAN_S);
    assert_int_equal(json_object_size(json_object_get(pms_state_tree(f->st), "settings")), 0);
}

static void test_setting_when_wrong_then_refused(void **state)
{
    static const struct {
        int err;
        const char *word, *tail;
    } cases[] = {
        {PMS_EUSAGE, "no setting", "'key': 'speed', 'value': 1"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': 9"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': 86401"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': -1"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': 60.0"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': '60'"},
        {PMS_EUSAGE, "orphan_s", "'key': 'orphan_s', 'value': true"},
        {PMS_EUSAGE, "key", "'key': 'orphan_s'"},
        {PMS_EUSAGE, "key", "'value': 60"},
        {PMS_EUSAGE, "values", "'values': {}"},
        {PMS_EUSAGE, "values", "'values': [1]"},
        {PMS_EUSAGE, "values", "'key': 'orphan_s', 'value': 60, 'values': {'orphan_s': 61}"},
        {PMS_EUSAGE, "no setting", "'values': {'orphan_s': 60, 'speed': 1}"},
        {PMS_EREFUSED, "nine tenths", "'key': 'lease_ms', 'value': 300"},
        {PMS_EREFUSED, "nine tenths", "'key': 'lease_ms', 'value': 271"},
        {PMS_EREFUSED, "nine tenths", "'key': 'promise_ms', 'value': 277"},
        {PMS_EREFUSED, "four times", "'key': 'heartbeat_ms', 'value': 63"},
        {PMS_EREFUSED, "three times", "'key': 'raft_heartbeat_ms', 'value': 67"},
        {PMS_EREFUSED, "eject_dead_ms", "'key': 'eject_dead_ms', 'value': 300"},
        {PMS_EREFUSED, "eject_slow_ms", "'key': 'eject_slow_ms', 'value': 1000"},
        {PMS_EREFUSED, "nine tenths", "'values': {'orphan_s': 60, 'lease_ms': 290}"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        f_refused(f, cases[i].err, cases[i].word, "{'op': 'settings_set', %s}", cases[i].tail);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_ORPHAN_S), PMS_ORPHAN_S);
    f_ok(f, "{'op': 'settings_set', 'key': 'lease_ms', 'value': 270}"); // the last that fits
}

static void test_settings_when_they_fit_only_together_then_set_together(void **state)
{
    struct fixture *f = *state;

    f_refused(f, PMS_EREFUSED, NULL, "{'op': 'settings_set', 'key': 'promise_ms', 'value': 100}");
    f_ok(f, "{'op': 'settings_set', 'values': {'promise_ms': 100, 'lease_ms': 80, 'heartbeat_ms': 10}}");
    assert_int_equal(pms_state_setting(f->st, PMS_SET_PROMISE_MS), 100);
    assert_int_equal(pms_state_setting(f->st, PMS_SET_LEASE_MS), 80);
    // Now one of them alone cannot go back.
    f_refused(f, PMS_EREFUSED, NULL, "{'op': 'settings_set', 'key': 'lease_ms', 'value': null}");
    f_ok(f, "{'op': 'settings_set', 'values': {'promise_ms': null, 'lease_ms': null, 'heartbeat_ms': null}}");
}

// A node that did not start since may rely on promises of the former length (R4).
static void test_setting_when_promise_shrinks_then_the_longest_is_kept(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pms_state_promise_ms_longest(f->st), PMS_PROMISE_MS);
    f_ok(f, "{'op': 'settings_set', 'values': {'promise_ms': 900, 'lease_ms': 800}}");
    assert_int_equal(pms_state_promise_ms_longest(f->st), 900);
    f_ok(f, "{'op': 'settings_set', 'values': {'promise_ms': null, 'lease_ms': null}}");
    assert_int_equal(pms_state_setting(f->st, PMS_SET_PROMISE_MS), PMS_PROMISE_MS);
    assert_int_equal(pms_state_promise_ms_longest(f->st), 900);
    f_refused(f, PMS_EUSAGE, "no setting",
              "{'op': 'settings_set', 'key': 'promise_ms_longest', 'value': 300}");
}

// Nodes take them over one by one.
static void test_setting_when_raft_timings_leap_then_refused_until_done_in_steps(void **state)
{
    struct fixture *f = *state;

    f_refused(f, PMS_EREFUSED, "raise that first",
              "{'op': 'settings_set', 'values': {'raft_heartbeat_ms': 200, 'raft_election_ms': 1000}}");
    f_ok(f, "{'op': 'settings_set', 'key': 'raft_election_ms', 'value': 1000}");
    f_ok(f, "{'op': 'settings_set', 'key': 'raft_heartbeat_ms', 'value': 200}");
    f_refused(f, PMS_EREFUSED, "lower that first",
              "{'op': 'settings_set', 'values': {'raft_heartbeat_ms': null, 'raft_election_ms': null}}");
    f_ok(f, "{'op': 'settings_set', 'key': 'raft_heartbeat_ms', 'value': null}");
    f_ok(f, "{'op': 'settings_set', 'key': 'raft_election_ms', 'value': null}");
}

static void test_setting_when_looked_at_then_ranges_and_whether_it_was_set(void **state)
{
    struct fixture *f = *state;
    struct pms_setting_info info;

    f_ok(f, "{'op': 'settings_set', 'key': 'addr_lifetime_s', 'value': 20}");
    pms_state_setting_get(f->st, PMS_SET_ADDR_LIFETIME_S, &info);
    assert_string_equal(info.name, "addr_lifetime_s");
    assert_int_equal(info.value, 20);
    assert_int_equal(info.def, PMS_ADDR_LIFETIME_S);
    assert_int_equal(info.min, 2);
    assert_true(info.is_set);
    pms_state_setting_get(f->st, PMS_SET_ORPHAN_S, &info);
    assert_false(info.is_set);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_setting_when_never_set_then_the_default),
        T(test_setting_when_each_is_set_to_its_default_then_taken),
        T(test_setting_when_set_and_unset_then_the_default_returns),
        T(test_setting_when_wrong_then_refused),
        T(test_settings_when_they_fit_only_together_then_set_together),
        T(test_setting_when_promise_shrinks_then_the_longest_is_kept),
        T(test_setting_when_raft_timings_leap_then_refused_until_done_in_steps),
        T(test_setting_when_looked_at_then_ranges_and_whether_it_was_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
