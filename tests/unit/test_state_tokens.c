// SPDX-License-Identifier: GPL-2.0-or-later
// Join tokens: one use, an end, and room that is bounded.
#include "tests/unit/state_fixture.h"

#define NODE_D "000000000000000d"
#define NODE_E "000000000000000e"

static void add(struct fixture *f, const char *id, unsigned expires_s)
{
    f_ok(f, "{'op': 'token_add', 'id': '%s', 'secret': 'psst', 'expires_s': %u, 'by': 'a'}", id, expires_s);
}

static void join(struct fixture *f, const char *id, const char *token, unsigned now_s)
{
    f_apply(f,
            "{'op': 'node_join', 'id': '%s', 'name': 'n%s', 'addr': '10.0.5.%c:7470', 'role': 'data', "
            "'token': '%s', "
            "'now_s': %u}",
            id, id + 12, id[15] == 'd' ? '1' : '2', token, now_s);
}

static void test_token_when_used_then_no_second_node_gets_in(void **state)
{
    struct fixture *f = *state;

    add(f, "t1", 100);
    join(f, NODE_D, "t1", 99);
    assert_true(pms_json_bool(f->result, "ok", false));
    join(f, NODE_E, "t1", 99);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EAUTH");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "n000d"));
    f_refused(f, PMS_EAUTH, "has been used",
              "{'op': 'token_use', 'id': 't1', 'node': '" NODE_E "', 'now_s': 1}");
}

static void test_token_when_expired_or_unknown_then_nobody_gets_in(void **state)
{
    struct fixture *f = *state;

    add(f, "t1", 100);
    join(f, NODE_D, "t1", 100);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EAUTH");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "expired"));
    join(f, NODE_D, "t2", 1);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EAUTH");
    f_refused(f, PMS_EAUTH, "expired", "{'op': 'token_use', 'id': 't1', 'node': '" NODE_E "', 'now_s': 100}");
    f_refused(f, PMS_EAUTH, "not known", "{'op': 'token_use', 'id': 't9', 'node': '" NODE_E "', 'now_s': 1}");
}

static void test_token_when_used_before_the_join_then_only_that_node_may_join(void **state)
{
    struct fixture *f = *state;

    add(f, "t1", 100);
    f_ok(f, "{'op': 'token_use', 'id': 't1', 'node': '" NODE_D "', 'now_s': 50}");
    assert_false(pms_json_bool(f->result, "already", true));
    f_ok(f, "{'op': 'token_use', 'id': 't1', 'node': '" NODE_D "', 'now_s': 500}");
    assert_true(pms_json_bool(f->result, "already", false));
    join(f, NODE_E, "t1", 51);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EAUTH");
    join(f, NODE_D, "t1", 500); // it was in time when it used the token
    assert_true(pms_json_bool(f->result, "ok", false));
}

static void test_token_when_revoked_then_unknown(void **state)
{
    struct fixture *f = *state;

    add(f, "t1", 100);
    assert_string_equal(pms_json_str(pms_state_token_json(f->st, "t1"), "secret", ""), "psst");
    f_ok(f, "{'op': 'token_revoke', 'id': 't1'}");
    assert_null(pms_state_token_json(f->st, "t1"));
    f_refused(f, PMS_ENOTFOUND, "no token t1", "{'op': 'token_revoke', 'id': 't1'}");
    f_refused(f, PMS_ENOTFOUND, NULL, "{'op': 'token_revoke'}");
    join(f, NODE_D, "t1", 1);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EAUTH");
}

static void test_token_add_when_wrong_then_refused(void **state)
{
    static const char *const tails[] = {
        "'secret': 's', 'expires_s': 9, 'by': 'a'",
        "'id': '', 'secret': 's', 'expires_s': 9, 'by': 'a'",
        "'id': 'A', 'secret': 's', 'expires_s': 9, 'by': 'a'",
        "'id': 'abcdefghabcdefghabcdefghabcdefgh1', 'secret': 's', 'expires_s': 9, 'by': 'a'",
        "'id': 'x', 'expires_s': 9, 'by': 'a'",
        "'id': 'x', 'secret': '', 'expires_s': 9, 'by': 'a'",
        "'id': 'x', 'secret': 's\\n', 'expires_s': 9, 'by': 'a'",
        "'id': 'x', 'secret': 's', 'expires_s': 0, 'by': 'a'",
        "'id': 'x', 'secret': 's', 'expires_s': 'soon', 'by': 'a'",
        "'id': 'x', 'secret': 's', 'expires_s': 9",
        "'id': 'x', 'secret': 's', 'expires_s': 9, 'by': 'a', 'now_s': -1",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        f_refused(f, PMS_EUSAGE, NULL, "{'op': 'token_add', %s}", tails[i]);
    add(f, "x", 9);
    f_refused(f, PMS_EEXISTS, "token x",
              "{'op': 'token_add', 'id': 'x', 'secret': 's', 'expires_s': 9, 'by': 'a'}");
}

static void test_token_add_when_there_is_no_room_then_used_and_expired_ones_go_first(void **state)
{
    struct fixture *f = *state;
    char id[8];

    f_init_cluster(f);
    for (unsigned i = 0; i < PMS_STATE_TOKENS_MAX; i++) {
        snprintf(id, sizeof(id), "t%u", i);
        add(f, id, i == 5 ? 10 : 1000);
    }
    f_refused(f, PMS_EFULL, "revoke",
              "{'op': 'token_add', 'id': 'x1', 'secret': 's', 'expires_s': 9, 'by': 'a'}");
    f_ok(f, "{'op': 'token_use', 'id': 't7', 'node': '" NODE_D "', 'now_s': 5}");
    f_ok(f, "{'op': 'token_add', 'id': 'x1', 'secret': 's', 'expires_s': 900, 'by': 'a', 'now_s': 11}");
    assert_null(pms_state_token_json(f->st, "t7"));
    assert_non_null(pms_state_token_json(f->st, "t5"));
    f_ok(f, "{'op': 'token_add', 'id': 'x2', 'secret': 's', 'expires_s': 900, 'by': 'a', 'now_s': 11}");
    assert_null(pms_state_token_json(f->st, "t5"));
    f_refused(f, PMS_EFULL, NULL,
              "{'op': 'token_add', 'id': 'x3', 'secret': 's', 'expires_s': 900, 'by': 'a', 'now_s': 11}");
}

static void test_token_when_shown_to_people_then_without_its_secret(void **state)
{
    struct fixture *f = *state;
    json_t *shown;
    char *text;

    add(f, "t1", 100);
    shown = pms_state_public(f->st);
    text = pms_json_dump_compact(shown);
    assert_null(strstr(text, "psst"));
    assert_non_null(strstr(text, "\"t1\""));
    assert_null(json_object_get(shown, "dedup"));
    assert_non_null(json_object_get(json_object_get(shown, "settings"), "promise_ms"));
    assert_non_null(json_object_get(pms_state_tree(f->st), "dedup"));
    free(text);
    json_decref(shown);
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, f_setup, f_teardown)
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_token_when_used_then_no_second_node_gets_in),
        T(test_token_when_expired_or_unknown_then_nobody_gets_in),
        T(test_token_when_used_before_the_join_then_only_that_node_may_join),
        T(test_token_when_revoked_then_unknown),
        T(test_token_add_when_wrong_then_refused),
        E(test_token_add_when_there_is_no_room_then_used_and_expired_ones_go_first),
        T(test_token_when_shown_to_people_then_without_its_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
