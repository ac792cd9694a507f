// SPDX-License-Identifier: GPL-2.0-or-later
// iSCSI sessions: a TSIH that stays, orphans, and a bounded number.
#include "tests/unit/state_fixture.h"

static int setup_array(void **state)
{
    f_setup_cluster(state);
    f_array(*state, "v", 1, 2);
    return 0;
}

static const json_t *login(struct fixture *f, unsigned initiator, unsigned isid, const char *node)
{
    return f_apply(
        f,
        "{'op': 'session_login', 'array': 'v', 'initiator': 'iqn.x:h%u', 'isid': '00023d%06x', "
        "'params': {'MaxRecvDataSegmentLength': 8192, 'ImmediateData': true, 'InitiatorAlias': 'h'}, "
        "'peer': '10.0.9.%u:1024', 'node': '%s'}",
        initiator, isid, initiator % 200 + 1, node);
}

static unsigned login_ok(struct fixture *f, unsigned initiator, unsigned isid, const char *node)
{
    login(f, initiator, isid, node);
    if (!pms_json_bool(f->result, "ok", false))
        fail_msg("login refused: %s", pms_json_str(f->result, "text", "?"));
    return (unsigned)f_u64(f, "tsih");
}

static const json_t *session(const struct fixture *f, unsigned tsih)
{
    const json_t *list = pms_state_sessions_json(f->st, "v"), *s;
    uint64_t have;
    size_t i;

    json_array_foreach (list, i, s) {
        assert_int_equal(pms_json_u64(s, "tsih", &have), 0);
        if (have == tsih)
            return s;
    }
    return NULL;
}

static size_t session_count(const struct fixture *f)
{
    return json_array_size(pms_state_sessions_json(f->st, "v"));
}

static void test_session_login_when_the_same_port_returns_then_the_same_tsih(void **state)
{
    struct fixture *f = *state;
    unsigned first = login_ok(f, 1, 1, NODE_A), other, third;
    uint64_t login_index = f_u64(f, "login");

    assert_int_not_equal(first, 0);
    assert_true(pms_json_bool(f->result, "new", false));
    assert_int_equal(login_index, pms_state_index(f->st));
    other = login_ok(f, 1, 2, NODE_A); // another ISID is another port
    third = login_ok(f, 2, 1, NODE_A); // so is another initiator
    assert_int_not_equal(other, first);
    assert_int_not_equal(third, first);
    assert_int_not_equal(third, other);
    assert_int_equal(login_ok(f, 1, 1, NODE_A), first);
    assert_false(pms_json_bool(f->result, "new", true));
    assert_true(f_u64(f, "login") > login_index);
    assert_int_equal(session_count(f), 3);
    // What is kept of it.
    assert_string_equal(pms_json_str(session(f, first), "peer", ""), "10.0.9.2:1024");
    assert_string_equal(pms_json_str(session(f, first), "node", ""), NODE_A);
    assert_true(pms_json_bool(session(f, first), "connected", false));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(session(f, first), "params"),
                                                        "MaxRecvDataSegmentLength")),
                     8192);
}

static void test_session_login_when_another_node_took_over_then_the_same_tsih_there(void **state)
{
    struct fixture *f = *state;
    unsigned tsih = login_ok(f, 1, 1, NODE_A);

    assert_true(pms_json_bool(f_transition(f, "v", "takeover", 1, 1, "1"), "ok", false));
    // The old primary's connection is gone with it.
    assert_false(pms_json_bool(session(f, tsih), "connected", true));
    login(f, 1, 1, NODE_A);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_ESTALE");
    assert_int_equal(login_ok(f, 1, 1, NODE_B), tsih);
    assert_string_equal(pms_json_str(session(f, tsih), "node", ""), NODE_B);
    assert_true(pms_json_bool(session(f, tsih), "connected", false));
}

static void test_session_when_the_primary_stays_or_hands_over_then_it_stays_connected(void **state)
{
    struct fixture *f = *state;
    unsigned tsih = login_ok(f, 1, 1, NODE_A);

    assert_true(pms_json_bool(f_transition(f, "v", "takeover", 1, 0, "01"), "ok", false));
    assert_true(pms_json_bool(session(f, tsih), "connected", false));
    assert_true(pms_json_bool(f_transition(f, "v", "handover", 2, 1, "01"), "ok", false));
    assert_true(pms_json_bool(session(f, tsih), "connected", false));
}

static void test_session_login_when_wrong_then_refused(void **state)
{
#define L(initiator, isid, params, peer, node)                                                               \
    "'initiator': " initiator ", 'isid': " isid ", 'params': " params ", 'peer': " peer ", 'node': " node
    static const struct {
        int err;
        const char *word, *tail;
    } cases[] = {
        {PMS_EUSAGE, "initiator", L("''", "'00023d000001'", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "initiator", L("5", "'00023d000001'", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "isid", L("'i'", "'00023d00001'", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "isid", L("'i'", "'00023D000001'", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "isid", L("'i'", "'00023d0000010'", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "isid", L("'i'", "null", "{}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "params", L("'i'", "'00023d000001'", "[]", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "params", L("'i'", "'00023d000001'", "{'a': 1.5}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "params", L("'i'", "'00023d000001'", "{'a': {}}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "params", L("'i'", "'00023d000001'", "{'': 1}", "'10.0.9.1:1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "peer", L("'i'", "'00023d000001'", "{}", "'10.0.9.1'", "'" NODE_A "'")},
        {PMS_EUSAGE, "node", L("'i'", "'00023d000001'", "{}", "'10.0.9.1:1'", "'a'")},
        {PMS_ENOTFOUND, "no node", L("'i'", "'00023d000001'", "{}", "'10.0.9.1:1'", "'00000000000000ee'")},
        {PMS_ESTALE, "not the primary", L("'i'", "'00023d000001'", "{}", "'10.0.9.1:1'", "'" NODE_B "'")},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        f_refused(f, cases[i].err, cases[i].word, "{'op': 'session_login', 'array': 'v', %s}", cases[i].tail);
    f_array_creating(f, "u", 2, 2);
    f_refused(f, PMS_EREFUSED, "does not serve",
              "{'op': 'session_login', 'array': 'u', " L("'i'", "'00023d000001'", "{}", "'10.0.9.1:1'",
                                                         "'" NODE_A "'") "}");
    assert_int_equal(session_count(f), 0);
}

static void test_session_closed_when_lost_then_an_orphan_and_when_logged_out_then_gone(void **state)
{
    struct fixture *f = *state;
    unsigned a = login_ok(f, 1, 1, NODE_A), b = login_ok(f, 2, 1, NODE_A);
    uint64_t since;

    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'connection lost'}", a);
    since = f_u64(f, "disconnected");
    assert_int_equal(since, pms_state_index(f->st));
    assert_false(pms_json_bool(session(f, a), "connected", true));
    // Again: the orphan's age does not change.
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'connection lost'}", a);
    assert_int_equal(f_u64(f, "disconnected"), since);
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'logout'}", b);
    assert_null(session(f, b));
    f_refused(f, PMS_ENOTFOUND, "TSIH",
              "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'logout'}", b);
    f_refused(f, PMS_EUSAGE, "tsih", "{'op': 'session_closed', 'array': 'v', 'tsih': 0, 'reason': 'x'}");
    f_refused(f, PMS_EUSAGE, "tsih", "{'op': 'session_closed', 'array': 'v', 'tsih': 65536, 'reason': 'x'}");
    f_refused(f, PMS_EUSAGE, "reason", "{'op': 'session_closed', 'array': 'v', 'tsih': %u}", a);
    assert_int_equal(login_ok(f, 1, 1, NODE_A), a);
}

static void test_session_closed_when_of_an_earlier_login_then_stale(void **state)
{
    struct fixture *f = *state;
    unsigned tsih = login_ok(f, 1, 1, NODE_A);
    uint64_t first = f_u64(f, "login"), second;

    login_ok(f, 1, 1, NODE_A);
    second = f_u64(f, "login");
    f_refused(f, PMS_ESTALE, "logged in again",
              "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost', 'login': %llu}", tsih,
              (unsigned long long)first);
    f_refused(f, PMS_ESTALE, "logged in again",
              "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'logout', 'login': %llu}", tsih,
              (unsigned long long)first);
    f_refused(f, PMS_EUSAGE, "login",
              "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost', 'login': 'x'}", tsih);
    assert_true(pms_json_bool(session(f, tsih), "connected", false));
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost', 'login': %llu}", tsih,
         (unsigned long long)second);
    assert_false(pms_json_bool(session(f, tsih), "connected", true));
}

static void test_session_expire_when_it_logged_in_meanwhile_then_it_stays(void **state)
{
    struct fixture *f = *state;
    unsigned tsih = login_ok(f, 1, 1, NODE_A);
    uint64_t since, later;

    f_refused(f, PMS_ESTALE, NULL,
              "{'op': 'session_expire', 'array': 'v', 'tsih': %u, 'if_disconnected_index': 1}", tsih);
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost'}", tsih);
    since = f_u64(f, "disconnected");
    login_ok(f, 1, 1, NODE_A);
    f_refused(f, PMS_ESTALE, "logged in again",
              "{'op': 'session_expire', 'array': 'v', 'tsih': %u, 'if_disconnected_index': %llu}", tsih,
              (unsigned long long)since);
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost'}", tsih);
    later = f_u64(f, "disconnected");
    f_refused(f, PMS_ESTALE, NULL,
              "{'op': 'session_expire', 'array': 'v', 'tsih': %u, 'if_disconnected_index': %llu}", tsih,
              (unsigned long long)since);
    f_ok(f, "{'op': 'session_expire', 'array': 'v', 'tsih': %u, 'if_disconnected_index': %llu}", tsih,
         (unsigned long long)later);
    assert_int_equal(session_count(f), 0);
    f_refused(f, PMS_ENOTFOUND, "TSIH", "{'op': 'session_expire', 'array': 'v', 'tsih': %u}", tsih);
    tsih = login_ok(f, 1, 1, NODE_A);
    f_refused(f, PMS_EUSAGE, "if_disconnected_index", "{'op': 'session_expire', 'array': 'v', 'tsih': %u}",
              tsih);
}

static void test_session_login_when_full_then_the_oldest_orphan_gives_way(void **state)
{
    struct fixture *f = *state;
    unsigned tsih[PMS_SESSIONS_MAX];

    for (unsigned i = 0; i < PMS_SESSIONS_MAX; i++)
        tsih[i] = login_ok(f, i, 1, NODE_A);
    login(f, 999, 1, NODE_A);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EFULL");
    assert_int_equal(login_ok(f, 7, 1, NODE_A), tsih[7]); // one that is known needs no room
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost'}", tsih[9]);
    f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'lost'}", tsih[5]);
    login_ok(f, 999, 1, NODE_A);
    assert_int_equal(f_u64(f, "evicted"), tsih[9]);
    assert_null(session(f, tsih[9]));
    assert_non_null(session(f, tsih[5]));
    login_ok(f, 998, 1, NODE_A);
    assert_int_equal(f_u64(f, "evicted"), tsih[5]);
    login(f, 997, 1, NODE_A);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EFULL");
    assert_int_equal(session_count(f), PMS_SESSIONS_MAX);
}

static void test_session_tsih_when_counted_through_then_never_zero_nor_twice(void **state)
{
    struct fixture *f = *state;
    unsigned keep = login_ok(f, 0, 1, NODE_A), last = keep;

    // Dropped sessions with ever new ISIDs: as many as there are TSIHs and a few more would take long here,
    // so the counter starts near its end.
    json_object_set_new((json_t *)pms_state_array_json_by_name(f->st, "v"), "tsih_last", json_integer(65533));
    for (unsigned i = 0; i < 5; i++) {
        unsigned tsih = login_ok(f, 1, 100 + i, NODE_A);

        assert_in_range(tsih, 1, 65535);
        assert_int_not_equal(tsih, keep);
        assert_int_not_equal(tsih, last);
        last = tsih;
        f_ok(f, "{'op': 'session_closed', 'array': 'v', 'tsih': %u, 'reason': 'logout'}", tsih);
    }
    assert_int_equal(last, 4); // 65534, 65535, (1 is kept) 2, 3, 4
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup_array, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_session_login_when_the_same_port_returns_then_the_same_tsih),
        T(test_session_login_when_another_node_took_over_then_the_same_tsih_there),
        T(test_session_when_the_primary_stays_or_hands_over_then_it_stays_connected),
        T(test_session_login_when_wrong_then_refused),
        T(test_session_closed_when_lost_then_an_orphan_and_when_logged_out_then_gone),
        T(test_session_closed_when_of_an_earlier_login_then_stale),
        T(test_session_expire_when_it_logged_in_meanwhile_then_it_stays),
        T(test_session_login_when_full_then_the_oldest_orphan_gives_way),
        T(test_session_tsih_when_counted_through_then_never_zero_nor_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
