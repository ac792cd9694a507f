// SPDX-License-Identifier: GPL-2.0-or-later
// Commands sent again: the first result, no second effect, and a memory that is bounded.
#include "tests/unit/state_fixture.h"

// token_add with its own client and seq; the id tells whether it ran.
static const json_t *add_token(struct fixture *f, unsigned client, uint64_t seq, const char *id)
{
    char text[256];
    int n = snprintf(
        text, sizeof(text),
        "{\"client\": \"%016x\", \"seq\": %llu, \"op\": \"token_add\", \"id\": \"%s\", \"secret\": \"s\", "
        "\"expires_s\": 9, \"by\": \"a\"}",
        client, (unsigned long long)seq, id);

    return f_apply_raw(f, text, (size_t)n);
}

static const char *error_of(const json_t *result)
{
    return pms_json_str(result, "error", "none");
}

static void test_command_when_sent_again_then_the_first_result_and_no_effect(void **state)
{
    struct fixture *f = *state;
    char *before, *after;

    assert_true(pms_json_bool(add_token(f, 5, 1, "t1"), "ok", false));
    before = f_core(f->st);
    // Without a memory this would be refused: the token exists.
    assert_true(pms_json_bool(add_token(f, 5, 1, "t1"), "ok", false));
    // It is (client, seq) that counts, not what the command says.
    assert_true(pms_json_bool(add_token(f, 5, 1, "t2"), "ok", false));
    assert_null(pms_state_token_json(f->st, "t2"));
    after = f_core(f->st);
    assert_string_equal(after, before);
    free(before);
    free(after);
    assert_string_equal(error_of(add_token(f, 6, 1, "t1")), "PMS_EEXISTS"); // another client
    assert_string_equal(error_of(add_token(f, 5, 2, "t1")), "PMS_EEXISTS"); // another seq
}

static void test_command_when_a_refused_one_is_sent_again_then_still_refused(void **state)
{
    struct fixture *f = *state;

    add_token(f, 5, 1, "t1");
    assert_string_equal(error_of(add_token(f, 5, 2, "t1")), "PMS_EEXISTS");
    f_ok(f, "{'op': 'token_revoke', 'id': 't1'}");
    // It would run now; but its sender was told, or may have been, that it did not.
    assert_string_equal(error_of(add_token(f, 5, 2, "t1")), "PMS_EEXISTS");
    assert_null(pms_state_token_json(f->st, "t1"));
}

static void test_command_when_pipelined_ones_arrive_out_of_order_then_each_runs_once(void **state)
{
    struct fixture *f = *state;
    char id[8];

    for (unsigned i = 0; i < PMS_STATE_WINDOW - 10; i++) {
        uint64_t seq = 1000 + (i * 37) % (PMS_STATE_WINDOW - 10);

        snprintf(id, sizeof(id), "t%u", (unsigned)seq);
        assert_true(pms_json_bool(add_token(f, 5, seq, id), "ok", false));
        assert_true(pms_json_bool(add_token(f, 5, seq, id), "ok", false));
    }
}

static void test_command_when_older_than_the_window_then_unknown(void **state)
{
    struct fixture *f = *state;

    add_token(f, 5, 1, "t1");
    add_token(f, 5, 64, "t64");
    assert_true(pms_json_bool(add_token(f, 5, 1, "t1"), "ok", false)); // 64 seqs: 1..64
    add_token(f, 5, 65, "t65");
    assert_string_equal(error_of(add_token(f, 5, 1, "t1")), "PMS_EUNKNOWN");
    assert_string_equal(error_of(add_token(f, 5, 0, "t0")), "PMS_EUNKNOWN");
    assert_true(pms_json_bool(add_token(f, 5, 2, "t2"), "ok", false)); // in the window, never seen: it runs
    add_token(f, 5, (uint64_t)INT64_MAX, "tmax");
    assert_string_equal(error_of(add_token(f, 5, 65, "t65")), "PMS_EUNKNOWN");
    assert_true(pms_json_bool(add_token(f, 5, (uint64_t)INT64_MAX, "tmax"), "ok", false));
}

static void test_client_when_there_are_too_many_then_the_least_recent_is_forgotten(void **state)
{
    struct fixture *f = *state;
    const json_t *dedup;

    // f's own client has one of the places.
    for (unsigned c = 1; c < PMS_STATE_CLIENTS_MAX; c++)
        add_token(f, c, 1, "same");
    dedup = json_object_get(pms_state_tree(f->st), "dedup");
    assert_int_equal(json_object_size(dedup), PMS_STATE_CLIENTS_MAX);
    f_ok(f, "{'op': 'token_revoke', 'id': 'same'}"); // f's client is heard again, 1 is now the oldest
    add_token(f, 1, 2, "x");                         // and now 2
    add_token(f, 1000, 1, "y");
    assert_int_equal(json_object_size(dedup), PMS_STATE_CLIENTS_MAX);
    assert_null(json_object_get(dedup, "0000000000000002"));
    assert_non_null(json_object_get(dedup, "0000000000000001"));
    assert_non_null(json_object_get(dedup, "0000000000000003"));
    assert_non_null(json_object_get(dedup, CLIENT));
    assert_true(pms_json_bool(add_token(f, 1, 1, "again"), "ok", false)); // remembered
    assert_null(pms_state_token_json(f->st, "again"));
    assert_true(pms_json_bool(add_token(f, 2, 1, "again"), "ok", false)); // forgotten: runs
    assert_non_null(pms_state_token_json(f->st, "again"));
}

static void test_memory_when_a_snapshot_is_restored_then_it_is_still_there(void **state)
{
    struct fixture *f = *state;
    struct pms_state *restored;
    size_t len;
    char *text;

    add_token(f, 5, 1, "t1");
    text = pms_state_encode(f->st, &len);
    assert_int_equal(pms_state_decode(text, len, &restored), 0);
    free(text);
    pms_state_destroy(f->st);
    f->st = restored;
    assert_true(pms_json_bool(add_token(f, 5, 1, "t1"), "ok", false));
}

static void test_command_when_client_or_seq_is_missing_then_refused(void **state)
{
    static const char *const commands[] = {
        "{\"op\": \"token_revoke\", \"id\": \"x\"}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"0000000000000005\"}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"seq\": 1}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"0000000000000000\", \"seq\": 1}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"5\", \"seq\": 1}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": 5, \"seq\": 1}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"0000000000000005\", \"seq\": -1}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"0000000000000005\", \"seq\": 1.0}",
        "{\"op\": \"token_revoke\", \"id\": \"x\", \"client\": \"0000000000000005\", \"seq\": 1e3}",
        "{\"op\": \"x\", \"client\": \"0000000000000005\", \"seq\": 9223372036854775808}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        assert_string_equal(error_of(f_apply_raw(f, commands[i], strlen(commands[i]))), "PMS_EPROTO");
    assert_null(json_object_get(json_object_get(pms_state_tree(f->st), "dedup"), "0000000000000005"));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_command_when_sent_again_then_the_first_result_and_no_effect),
        T(test_command_when_a_refused_one_is_sent_again_then_still_refused),
        T(test_command_when_pipelined_ones_arrive_out_of_order_then_each_runs_once),
        T(test_command_when_older_than_the_window_then_unknown),
        T(test_client_when_there_are_too_many_then_the_least_recent_is_forgotten),
        T(test_memory_when_a_snapshot_is_restored_then_it_is_still_there),
        T(test_command_when_client_or_seq_is_missing_then_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
