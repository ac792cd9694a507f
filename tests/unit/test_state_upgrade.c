// SPDX-License-Identifier: GPL-2.0-or-later
// The feature level: what nodes support, when it rises, and that builds of different levels agree on every
// result below the newer one's. Run with this build and, as test_state_next, with the next version.
#include "tests/unit/state_fixture.h"

#include "base/version.h"
#include "consensus/core/policy.h"

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->st = pms_state_create();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    pms_state_destroy(f->st);
    json_decref(f->result);
    free(f);
    return 0;
}

static unsigned supports(const struct fixture *f, const char *name)
{
    struct pms_node_info node;

    assert_int_equal(pms_state_node_get_by_name(f->st, name, &node), 0);
    return node.feature_level;
}

static void test_level_when_nobody_says_more_then_one(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pms_state_feature_level(f->st), 1);
    f_cluster(f);
    assert_int_equal(pms_state_feature_level(f->st), 1);
    assert_int_equal(supports(f, "a"), 1);
    assert_int_equal(supports(f, "w"), 1);
}

static void test_level_when_the_first_node_supports_more_then_the_cluster_begins_there(void **state)
{
    struct fixture *f = *state;

    f_ok(f, "{'op': 'cluster_init', 'id': '00112233445566778899aabbccddeeff', 'name': 'store', "
            "'node': {'id': '" NODE_A "', 'name': 'a', 'addr': '10.0.0.1:7470', 'supports': 3}}");
    assert_int_equal(pms_state_feature_level(f->st), 3);
    assert_int_equal(supports(f, "a"), 3);
}

static void test_upgrade_when_a_node_supports_less_then_refused_and_named(void **state)
{
    struct fixture *f = *state;

    f_cluster(f);
    f_refused(f, PMS_EREFUSED, "node a supports feature level 1, not 2 (and 3 more nodes)",
              "{'op': 'cluster_upgrade', 'level': 2}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': 2}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_C "', 'supports': 3}");
    f_refused(f, PMS_EREFUSED, "node b supports feature level 1, not 2 (and 1 more node)",
              "{'op': 'cluster_upgrade', 'level': 2}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_B "', 'supports': 2}");
    f_refused(f, PMS_EREFUSED,
              "node w supports feature level 1, not 2:", "{'op': 'cluster_upgrade', 'level': 2}");
    assert_int_equal(pms_state_feature_level(f->st), 1);
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_W "', 'supports': 2}");
    f_refused(f, PMS_EREFUSED, "node a supports feature level 2, not 3 (and 2 more nodes)",
              "{'op': 'cluster_upgrade', 'level': 3}");
    f_ok(f, "{'op': 'cluster_upgrade', 'level': 2}");
    assert_int_equal(f_u64(f, "from"), 1);
    assert_int_equal(f_u64(f, "to"), 2);
    assert_int_equal(pms_state_feature_level(f->st), 2);
}

static void upgraded(struct fixture *f)
{
    static const char *const ids[] = {NODE_A, NODE_B, NODE_C, NODE_W};

    f_cluster(f);
    for (size_t i = 0; i < 4; i++)
        f_ok(f, "{'op': 'node_level', 'id': '%s', 'supports': 2}", ids[i]);
    f_ok(f, "{'op': 'cluster_upgrade', 'level': 2}");
}

static void test_upgrade_when_done_then_never_undone(void **state)
{
    struct fixture *f = *state;

    upgraded(f);
    f_refused(f, PMS_EREFUSED, "never goes down", "{'op': 'cluster_upgrade', 'level': 1}");
    f_refused(f, PMS_EREFUSED, "never goes down", "{'op': 'cluster_upgrade'}");
    f_ok(f, "{'op': 'cluster_upgrade', 'level': 2}");
    assert_int_equal(f_u64(f, "from"), 2);
    f_refused(f, PMS_EVERSION, "node b supports only 1",
              "{'op': 'node_level', 'id': '" NODE_B "', 'supports': 1}");
    assert_int_equal(supports(f, "b"), 2);
}

static void test_node_when_downgraded_before_the_upgrade_then_counts_again(void **state)
{
    struct fixture *f = *state;

    f_init_cluster(f);
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': 2}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': 1}");
    f_refused(f, PMS_EREFUSED, "node a supports", "{'op': 'cluster_upgrade', 'level': 2}");
}

static void test_join_when_node_supports_less_than_the_cluster_then_refused(void **state)
{
    struct fixture *f = *state;

    upgraded(f);
    f_ok(f, "{'op': 'token_add', 'id': 't', 'secret': 's', 'expires_s': 100, 'by': 'a'}");
    f_refused(
        f, PMS_EVERSION, "the cluster is at feature level 2, and node d supports only 1",
        "{'op': 'node_join', 'id': '00000000000000dd', 'name': 'd', 'addr': '10.0.0.4:7470', 'role': 'data', "
        "'token': 't', 'now_s': 9}");
    f_ok(
        f,
        "{'op': 'node_join', 'id': '00000000000000dd', 'name': 'd', 'addr': '10.0.0.4:7470', 'role': 'data', "
        "'token': 't', 'now_s': 9, 'supports': 3}"); // the refusal left the token as it was
    assert_int_equal(supports(f, "d"), 3);
    f_ok(f, "{'op': 'node_addr', 'id': '00000000000000dd', 'addr': '10.0.0.5:7470'}");
    assert_int_equal(supports(f, "d"), 3);
}

static void test_level_when_nonsense_then_refused(void **state)
{
    static const char *const levels[] = {"0",  "-1", "1001", "'2'", "null", "1e3", "18446744073709551616",
                                         "[2]"};
    struct fixture *f = *state;

    f_init_cluster(f);
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        const json_t *r = f_apply(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': %s}", levels[i]);

        assert_false(pms_json_bool(r, "ok", true));
        r = f_apply(f, "{'op': 'cluster_upgrade', 'level': %s}", levels[i]);
        assert_false(pms_json_bool(r, "ok", true));
    }
    f_refused(f, PMS_ENOTFOUND, NULL, "{'op': 'node_level', 'id': '" NODE_B "', 'supports': 2}");
    assert_int_equal(supports(f, "a"), 1);
}

static void test_policy_when_nodes_are_mixed_then_tells_who_is_behind(void **state)
{
    struct fixture *f = *state;
    struct pms_upgrade up;

    f_cluster(f);
    pms_policy_upgrade(f->st, &up);
    assert_true(up.level == 1 && up.newest == 1 && up.possible == 1 && up.n_behind == 0);
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': 3}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_B "', 'supports': 2}");
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_C "', 'supports': 3}");
    pms_policy_upgrade(f->st, &up);
    assert_true(up.level == 1 && up.newest == 3 && up.possible == 1 && up.n_behind == 2);
    assert_int_equal(up.behind[0], 0xb);
    assert_int_equal(up.behind[1], 0xf);
    f_ok(f, "{'op': 'node_level', 'id': '" NODE_W "', 'supports': 2}");
    pms_policy_upgrade(f->st, &up);
    assert_true(up.newest == 3 && up.possible == 2 && up.n_behind == 2);
}

static void test_snapshot_when_its_level_is_beyond_this_build_then_version_error(void **state)
{
    struct fixture *f = *state;
    struct pms_state *st = NULL;
    char *text;
    size_t len;

    upgraded(f);
    text = pms_state_encode(f->st, &len);
    if (pms_feature_level_max < 2) {
        assert_int_equal(pms_state_decode(text, len, &st), PMS_EVERSION);
        assert_null(st);
    } else {
        assert_int_equal(pms_state_decode(text, len, &st), 0);
        pms_state_destroy(st);
    }
    free(text);
}

// What a command gives below its level is remembered in the state, so it must be the same text in every build.
static void test_op_when_newer_than_the_cluster_then_unknown_in_every_build(void **state)
{
    struct fixture *f = *state;

    f_cluster(f);
    f_refused(f, PMS_EPROTO, NULL, "{'op': 'probe'}");
    assert_string_equal(pms_json_str(f->result, "text", ""), "unknown op probe at feature level 1");
    f_refused(f, PMS_EVERSION, NULL, "{'op': 'probe', 'feature_level': 2}");
    assert_string_equal(pms_json_str(f->result, "text", ""),
                        "the cluster is at feature level 1: upgrade every node first");
}

static void test_op_when_the_cluster_is_at_its_level_then_known_to_the_next_version(void **state)
{
    struct fixture *f = *state;

    upgraded(f);
    if (pms_feature_level_max < 2) {
        assert_int_equal(pms_state_op_level("probe"), 0);
        f_refused(f, PMS_EPROTO, "unknown op probe at feature level 2", "{'op': 'probe'}");
    } else {
        assert_int_equal(pms_state_op_level("probe"), 2);
        f_ok(f, "{'op': 'probe', 'feature_level': 2}");
    }
    assert_int_equal(pms_state_op_level("array_create"), 1);
    assert_int_equal(pms_state_op_level("none"), 0);
}

// The same bytes from every build: this is what each of them must remember.
static void test_results_when_remembered_then_the_same_in_every_build(void **state)
{
    struct fixture *f = *state;
    char *text;

    f_init_cluster(f);
    f_apply(f, "{'op': 'probe'}");
    f_apply(f, "{'op': 'probe', 'feature_level': 2}");
    f_apply(f, "{'op': 'node_level', 'id': '" NODE_A "', 'supports': 2}");
    text = pms_json_dump_compact(json_object_get(pms_state_tree(f->st), "dedup"));
    assert_string_equal(
        text,
        "{\"" CLIENT "\":{\"index\":4,\"results\":{\"1\":{\"ok\":true},"
        "\"2\":{\"error\":\"PMS_EPROTO\",\"ok\":false,\"text\":\"unknown op probe at feature level 1\"},"
        "\"3\":{\"error\":\"PMS_EVERSION\",\"ok\":false,\"text\":\"the cluster is at feature level 1: "
        "upgrade "
        "every node first\"},\"4\":{\"ok\":true}},\"top\":4}}");
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_level_when_nobody_says_more_then_one),
        TEST(test_level_when_the_first_node_supports_more_then_the_cluster_begins_there),
        TEST(test_upgrade_when_a_node_supports_less_then_refused_and_named),
        TEST(test_upgrade_when_done_then_never_undone),
        TEST(test_node_when_downgraded_before_the_upgrade_then_counts_again),
        TEST(test_join_when_node_supports_less_than_the_cluster_then_refused),
        TEST(test_level_when_nonsense_then_refused),
        TEST(test_policy_when_nodes_are_mixed_then_tells_who_is_behind),
        TEST(test_snapshot_when_its_level_is_beyond_this_build_then_version_error),
        TEST(test_op_when_newer_than_the_cluster_then_unknown_in_every_build),
        TEST(test_op_when_the_cluster_is_at_its_level_then_known_to_the_next_version),
        TEST(test_results_when_remembered_then_the_same_in_every_build),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
