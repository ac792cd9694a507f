// SPDX-License-Identifier: GPL-2.0-or-later
// The verdict in words: each kind, the worst first, and the next action.
#include "consensus/core/policy.h"
#include "tests/unit/state_fixture.h"

// Arrays v and u of the tests.
#define ID_V 0xa0001
#define ID_U 0xa0002

static struct pms_policy_view view_of(const char *alive)
{
    struct pms_policy_view v = {.quorum = true};

    for (const char *p = alive; *p != '\0'; p++)
        v.alive[v.n_alive++] = (uint64_t)(*p - 'a') + 0xa;
    return v;
}

// The kind and whole texts.
static void says(const struct fixture *f, const struct pms_policy_view *view, enum pms_verdict_kind kind,
                 const char *text, const char *next)
{
    struct pms_verdict v;

    pms_policy_verdict(f->st, view, &v);
    assert_string_equal(v.text, text);
    assert_string_equal(v.next, next);
    assert_int_equal(v.kind, kind);
}

static void test_verdict_when_there_is_no_cluster_then_says_how_to_make_one(void **state)
{
    struct pms_policy_view v = view_of("");

    says(*state, &v, PMS_VERDICT_NO_CLUSTER, "no cluster: this node belongs to none yet",
         "run pmsctl cluster init, or pmsctl cluster join");
}

static void test_verdict_when_the_layout_protects_nothing_then_says_so_however_healthy(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view one = view_of("a"), two = view_of("ab"), three = view_of("abf");

    f_init_cluster(f);
    says(f, &one, PMS_VERDICT_HEALTHY,
         "healthy: 1 of 1 nodes up, no array yet; a single node protects nothing",
         "join a second data node and a witness (pmsctl cluster join)");
    f_join(f, NODE_B, "b", "10.0.0.2:7470", "data");
    says(f, &two, PMS_VERDICT_HEALTHY,
         "healthy: 2 of 2 nodes up, no array yet; losing either of the two nodes stops I/O",
         "join a witness (pmsctl cluster join ... --witness)");
    f_array(f, "v", 1, 2);
    says(
        f, &two, PMS_VERDICT_HEALTHY,
        "healthy: 2 of 2 nodes up, 1 array with all copies in sync; losing either of the two nodes stops I/O",
        "join a witness (pmsctl cluster join ... --witness)");
    f_join(f, NODE_W, "w", "10.0.0.9:7470", "witness");
    says(f, &three, PMS_VERDICT_HEALTHY, "healthy: 3 of 3 nodes up, 1 array with all copies in sync", "");
}

static void test_verdict_when_there_is_no_quorum_then_that_before_all_else(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view lone = view_of("b"), all = view_of("abcf");

    lone.quorum = all.quorum = false;
    says(f, &all, PMS_VERDICT_NO_QUORUM,
         "no quorum: 4 of 4 nodes reach each other; nothing can be changed, and nobody new can log in",
         "an election should end this in a moment; if not, look at the network and the nodes' logs");
    f_array(f, "v", 1, 2);
    says(f, &lone, PMS_VERDICT_NO_QUORUM,
         "no quorum: 1 of 4 nodes reach each other; nothing can be changed, and nobody new can log in; "
         "nothing is known of array v: its primary a does not answer",
         "start node a again, or mend the network (if it is gone for ever: pmsctl recover); 3 of 4 nodes are "
         "needed");
}

static void test_verdict_when_there_is_no_quorum_then_arrays_are_as_their_primaries_say(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_array reports[] = {{.array_id = ID_V}, {.array_id = ID_U, .waiting = true}};
    struct pms_policy_view v = view_of("ab");
    struct pms_array_info a;

    f_array(f, "v", 1, 2);
    f_array(f, "u", 2, 3);
    f_transition(f, "v", "eject", 1, 0, "0"); // a set of one needs nobody
    v.quorum = false;
    v.arrays = reports;
    v.n_arrays = 2;
    says(f, &v, PMS_VERDICT_NO_QUORUM,
         "no quorum: 2 of 4 nodes reach each other; nothing can be changed, and nobody new can log in; array "
         "v is still served; I/O of array u waits",
         "start node c again, or mend the network (if it is gone for ever: pmsctl recover); 3 of 4 nodes are "
         "needed");
    a = f_info(f, "v");
    assert_int_equal(pms_policy_array_health(&a, &v), PMS_DEGRADED);
    a = f_info(f, "u");
    assert_int_equal(pms_policy_array_health(&a, &v), PMS_WAITING);
    reports[1].waiting = false;
    says(f, &v, PMS_VERDICT_NO_QUORUM,
         "no quorum: 2 of 4 nodes reach each other; nothing can be changed, and nobody new can log in; array "
         "u (and 1 more) is still served",
         "start node c again, or mend the network (if it is gone for ever: pmsctl recover); 3 of 4 nodes are "
         "needed");
    v.n_arrays = 0;
    assert_int_equal(pms_policy_array_health(&a, &v), PMS_UNKNOWN);
}

static void test_verdict_when_a_node_cannot_talk_then_upgrade_and_not_repair(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view v = view_of("acf");

    f_array(f, "v", 1, 2);
    v.strange[v.n_strange++] = 0xb;
    says(f, &v, PMS_VERDICT_DEGRADED,
         "degraded: array v has 1 of 2 copies: node b runs a version of pms that cannot talk to this node's",
         "upgrade pms as the warning says: node b resyncs by itself then");
    v.quorum = false;
    says(f, &v, PMS_VERDICT_NO_QUORUM,
         "no quorum: 3 of 4 nodes reach each other; nothing can be changed, and nobody new can log in; "
         "nothing is known of array v: its primary a does not answer",
         "upgrade pms: node b runs a version of pms that cannot talk to this node's; 3 of 4 nodes are "
         "needed");
}

static void test_verdict_when_a_brick_is_unusable_then_names_it_and_what_to_do(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_brick bricks[] = {{ID_U, 0xb, "it is missing", "/x/u"},
                                        {ID_V, 0xb, "it is missing", "/x/v"}};
    struct pms_policy_array report = {.array_id = ID_V, .waiting = true};
    struct pms_policy_view v = view_of("abcf");

    f_array(f, "v", 1, 2);
    f_transition(f, "v", "eject", 1, 0, "0");
    v.bricks = bricks;
    v.n_bricks = 2;
    says(f, &v, PMS_VERDICT_DEGRADED,
         "degraded: array v has 1 of 2 copies: node b cannot use its brick /x/v: it is missing",
         "put the right file or disk of array v back in its place on node b, or give the copy a new one: "
         "pmsctl array replace v --node b [--brick PATH]");
    f_ok(f, "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_B "', 'brick': null}");
    says(f, &v, PMS_VERDICT_DEGRADED,
         "degraded: array v has 1 of 2 copies: node b cannot use its brick /x/v: it is missing",
         "clear that place, or name another: pmsctl array replace v --node b --brick PATH");
    v.n_bricks = 1; // of another array
    says(f, &v, PMS_VERDICT_DEGRADED, "degraded: array v has 1 of 2 copies: node b is up, and resyncs next",
         "");
    bricks[1].node_id = 0xa; // the last good copy: there is nothing to fill a new one from
    v.n_bricks = 2;
    v.arrays = &report;
    v.n_arrays = 1;
    says(f, &v, PMS_VERDICT_WAITING,
         "waiting: I/O of array v waits: node a cannot use its brick /x/v: it is missing",
         "put the right file or disk of array v back in its place on node a");
}

static void test_verdict_when_two_data_nodes_lost_quorum_then_names_the_missing_witness(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view v = view_of("a");

    f_init_cluster(f);
    f_join(f, NODE_B, "b", "10.0.0.2:7470", "data");
    v.quorum = false;
    says(f, &v, PMS_VERDICT_NO_QUORUM,
         "no quorum: 1 of 2 nodes reach each other; nothing can be changed, and nobody new can log in",
         "start node b again, or mend the network (if it is gone for ever: pmsctl recover); 2 of 2 nodes are "
         "needed; a witness would have kept it "
         "going");
}

static void test_verdict_when_the_primary_is_down_then_waiting_and_who_is_needed(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view v = view_of("bcf"), lone = view_of("cf");

    f_array(f, "v", 1, 2);
    says(f, &v, PMS_VERDICT_WAITING,
         "waiting: I/O of array v waits: its primary a does not answer, another node is taking over", "");
    says(f, &lone, PMS_VERDICT_WAITING, "waiting: I/O of array v waits: its primary a does not answer",
         "bring back node a or b: no other node has a good copy of array v");
    f_transition(f, "v", "eject", 1, 0, "0");
    says(f, &v, PMS_VERDICT_WAITING, "waiting: I/O of array v waits: its primary a does not answer",
         "bring back node a: no other node has a good copy of array v");
}

static void test_verdict_when_arrays_fare_unlike_then_the_worst_is_told(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_array reports[] = {
        {.array_id = ID_U, .resyncing = true, .percent = 42, .eta_s = 30},
        {.array_id = ID_V, .waiting = true},
    };
    struct pms_policy_view v = view_of("abcf");

    f_array(f, "v", 1, 2);
    f_array(f, "u", 2, 3);
    f_transition(f, "u", "eject", 1, 0, "01");
    v.arrays = reports;
    v.n_arrays = 2;
    says(f, &v, PMS_VERDICT_WAITING, "waiting: I/O of array v waits", "");
    reports[1].waiting = false;
    says(f, &v, PMS_VERDICT_RESYNCING, "resyncing: array u is at 42 %, about 30 s left", "");
    f_transition(f, "v", "eject", 1, 0, "0");
    says(f, &v, PMS_VERDICT_DEGRADED, "degraded: array v has 1 of 2 copies: node b is up, and resyncs next",
         "");
    v.n_arrays = 0;
    says(f, &v, PMS_VERDICT_DEGRADED,
         "degraded: array u has 2 of 3 copies (and 1 more): node c is up, and resyncs next", "");
}

static void test_verdict_when_a_copy_is_missing_then_says_why_and_what_to_do(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view no_b = view_of("acf"), all = view_of("abcf");

    f_array(f, "v", 1, 2);
    // In sync still, but it does not answer.
    says(f, &no_b, PMS_VERDICT_DEGRADED, "degraded: array v has 1 of 2 copies: node b is down",
         "bring node b back: it resyncs by itself");
    f_transition(f, "v", "eject", 1, 0, "0");
    says(f, &no_b, PMS_VERDICT_DEGRADED, "degraded: array v has 1 of 2 copies: node b is down",
         "bring node b back: it resyncs by itself");
    f_ok(f, "{'op': 'node_leave', 'name': 'b'}");
    says(f, &all, PMS_VERDICT_DEGRADED,
         "degraded: array v has 1 of 2 copies: slot 1 is on no node of the cluster",
         "give slot 1 of array v a place on another data node");
}

static void test_verdict_when_only_a_node_is_down_then_degraded(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_view no_w = view_of("abc"), no_c = view_of("abf");

    f_array(f, "v", 1, 2);
    says(f, &no_w, PMS_VERDICT_DEGRADED, "degraded: witness w is down",
         "bring it back, or run pmsctl cluster leave --node w if it is gone for good");
    says(f, &no_c, PMS_VERDICT_DEGRADED, "degraded: node c is down",
         "bring it back, or run pmsctl cluster leave --node c if it is gone for good");
}

static void test_health_when_asked_of_one_array_then_each_of_them(void **state)
{
    struct fixture *f = *state;
    struct pms_policy_array report = {.array_id = ID_V, .resyncing = true};
    struct pms_policy_view all = view_of("abcf"), none = view_of("");
    struct pms_array_info a;

    f_array_creating(f, "v", 1, 2);
    a = f_info(f, "v");
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_CREATING);
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 0, 'incarnation': '0000000000000001'}");
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 1, 'incarnation': '0000000000000002'}");
    f_ok(f, "{'op': 'array_commit', 'array': 'v'}");
    a = f_info(f, "v");
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_HEALTHY);
    assert_int_equal(pms_policy_array_health(&a, &none), PMS_WAITING);
    f_transition(f, "v", "eject", 1, 0, "0");
    a = f_info(f, "v");
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_DEGRADED);
    all.arrays = &report;
    all.n_arrays = 1;
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_RESYNCING);
    all.quorum = false;
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_RESYNCING); // the primary says so
    report.waiting = true;
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_WAITING);
    all.n_arrays = 0;
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_UNKNOWN);
    f_ok(f, "{'op': 'array_delete', 'array': 'v'}");
    a = f_info(f, "v");
    assert_int_equal(pms_policy_array_health(&a, &all), PMS_DELETING);
    assert_string_equal(pms_health_name(PMS_DEGRADED), "degraded");
    assert_string_equal(pms_health_name(PMS_DELETING), "deleting");
    assert_string_equal(pms_health_name(PMS_UNKNOWN), "unknown");
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, f_setup, f_teardown)
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        E(test_verdict_when_there_is_no_cluster_then_says_how_to_make_one),
        E(test_verdict_when_the_layout_protects_nothing_then_says_so_however_healthy),
        T(test_verdict_when_there_is_no_quorum_then_that_before_all_else),
        T(test_verdict_when_there_is_no_quorum_then_arrays_are_as_their_primaries_say),
        T(test_verdict_when_a_node_cannot_talk_then_upgrade_and_not_repair),
        T(test_verdict_when_a_brick_is_unusable_then_names_it_and_what_to_do),
        E(test_verdict_when_two_data_nodes_lost_quorum_then_names_the_missing_witness),
        T(test_verdict_when_the_primary_is_down_then_waiting_and_who_is_needed),
        T(test_verdict_when_arrays_fare_unlike_then_the_worst_is_told),
        T(test_verdict_when_a_copy_is_missing_then_says_why_and_what_to_do),
        T(test_verdict_when_only_a_node_is_down_then_degraded),
        T(test_health_when_asked_of_one_array_then_each_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
