// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about the cluster and its nodes: init, join, address, leave.
#include "tests/unit/state_fixture.h"

#define TOKEN(id) "{'op': 'token_add', 'id': '" id "', 'secret': 's', 'expires_s': 100, 'by': 'a'}"

static void test_state_when_there_is_no_cluster_then_only_init_is_taken(void **state)
{
    static const char *const ops[] = {
        "token_add",        "token_use",      "token_revoke",   "node_join",          "node_addr",
        "node_leave",       "settings_set",   "array_create",   "array_slot_zeroed",  "array_commit",
        "array_transition", "array_replace",  "array_delete",   "array_slot_removed", "array_forget",
        "session_login",    "session_closed", "session_expire",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        f_refused(f, PMS_EREFUSED, "no cluster", "{'op': '%s'}", ops[i]);
    assert_false(pms_state_has_cluster(f->st));
    assert_null(pms_state_cluster_id(f->st));
    assert_null(pms_state_cluster_name(f->st));
    f_init_cluster(f);
    assert_true(pms_state_has_cluster(f->st));
    assert_string_equal(pms_state_cluster_id(f->st), "00112233445566778899aabbccddeeff");
    assert_string_equal(pms_state_cluster_name(f->st), "store");
    assert_int_equal(pms_state_feature_level(f->st), 1);
}

static void test_cluster_init_when_wrong_then_refused(void **state)
{
    static const char *const tails[] = {
        "'id': '0011', 'name': 'x', 'node': {'id': '" NODE_A "', 'name': 'a', 'addr': '10.0.0.1:1'}",
        "'id': 7, 'name': 'x', 'node': {'id': '" NODE_A "', 'name': 'a', 'addr': '10.0.0.1:1'}",
        "'id': '00112233445566778899aabbccddeeff', 'name': '', 'node': {'id': '" NODE_A
        "', 'name': 'a', 'addr': '10.0.0.1:1'}",
        "'id': '00112233445566778899aabbccddeeff', 'name': 'a b', 'node': {'id': '" NODE_A
        "', 'name': 'a', 'addr': '10.0.0.1:1'}",
        "'id': '00112233445566778899aabbccddeeff', 'name': 'x'",
        "'id': '00112233445566778899aabbccddeeff', 'name': 'x', 'node': []",
        "'id': '00112233445566778899aabbccddeeff', 'name': 'x', 'node': {'id': '0', 'name': 'a', 'addr': "
        "'10.0.0.1:1'}",
        "'id': '00112233445566778899aabbccddeeff', 'name': 'x', 'node': {'id': '" NODE_A "', 'name': 'a'}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        f_refused(f, PMS_EUSAGE, NULL, "{'op': 'cluster_init', %s}", tails[i]);
    f_init_cluster(f);
    f_refused(f, PMS_EEXISTS, "store",
              "{'op': 'cluster_init', 'id': '00112233445566778899aabbccddeeff', 'name': 'x', 'node': {'id': "
              "'" NODE_A "', 'name': 'a', 'addr': '10.0.0.1:1'}}");
}

static void test_node_join_when_right_then_the_node_is_there(void **state)
{
    struct fixture *f = *state;
    struct pms_node_info n;
    size_t c = 0;

    assert_int_equal(pms_state_node_get(f->st, 0xb, &n), 0);
    assert_string_equal(n.name, "b");
    assert_string_equal(n.addr, "10.0.0.2:7470");
    assert_false(n.witness);
    assert_int_equal(pms_state_node_get_by_name(f->st, "w", &n), 0);
    assert_int_equal(n.id, 0xf);
    assert_true(n.witness);
    assert_int_equal(pms_state_node_get(f->st, 0x77, &n), PMS_ENOTFOUND);
    assert_int_equal(pms_state_node_get_by_name(f->st, "z", &n), PMS_ENOTFOUND);
    for (const char *p = "abcw"; *p != '\0'; p++) {
        assert_true(pms_state_node_next(f->st, &c, &n));
        assert_int_equal(n.name[0], *p);
    }
    assert_false(pms_state_node_next(f->st, &c, &n));
    // An address is kept in one spelling.
    f_join(f, "00000000000000d1", "d", "[fd00:0:0::1]:7470", "data");
    assert_int_equal(pms_state_node_get_by_name(f->st, "d", &n), 0);
    assert_string_equal(n.addr, "[fd00::1]:7470");
}

static void test_node_join_when_fields_are_wrong_then_refused(void **state)
{
    static const struct {
        int err;
        const char *tail;
    } cases[] = {
        {PMS_EUSAGE, "'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '0000000000000000', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': 'd', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': '', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': '-d', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd/e', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE,
         "'id': '000000000000000d', 'name': '00000000000000aa', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:0', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd', 'addr': 'host:1', 'role': 'data'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'both'"},
        {PMS_EUSAGE, "'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:1'"},
        {PMS_EEXISTS, "'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.2:7470', 'role': 'data'"},
        {PMS_EEXISTS, "'id': '000000000000000b', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data'"},
        {PMS_EEXISTS, "'id': '000000000000000b', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'witness'"},
    };
    struct fixture *f = *state;

    f_ok(f, TOKEN("t"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        f_refused(f, cases[i].err, NULL, "{'op': 'node_join', %s, 'token': 't', 'now_s': 1}", cases[i].tail);
    f_refused(
        f, PMS_EUSAGE, "token",
        "{'op': 'node_join', 'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data', "
        "'now_s': 1}");
    f_refused(
        f, PMS_EUSAGE, "now_s",
        "{'op': 'node_join', 'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data', "
        "'token': 't'}");
    // None of it has used the token.
    f_ok(f,
         "{'op': 'node_join', 'id': '000000000000000d', 'name': 'd', 'addr': '10.0.0.4:1', 'role': 'data', "
         "'token': 't', 'now_s': 1}");
}

static void test_node_join_when_sent_again_by_the_same_node_then_it_is_ok(void **state)
{
    struct fixture *f = *state;

    f_ok(f, "{'op': 'node_join', 'id': '" NODE_B "', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'data', "
            "'token': 't" NODE_B "', 'now_s': 1000}");
    assert_true(pms_json_bool(f->result, "already", false));
}

static void test_node_join_when_the_cluster_is_full_then_refused(void **state)
{
    struct fixture *f = *state;

    f_join(f, "0000000000000101", "n5", "10.0.0.11:1", "data");
    f_join(f, "0000000000000102", "n6", "10.0.0.12:1", "data");
    f_join(f, "0000000000000103", "n7", "10.0.0.13:1", "data");
    f_join(f, "0000000000000104", "n8", "10.0.0.14:1", "data");
    f_ok(f, TOKEN("t"));
    f_refused(
        f, PMS_EFULL, "8 nodes",
        "{'op': 'node_join', 'id': '0000000000000105', 'name': 'n9', 'addr': '10.0.0.15:1', 'role': 'data', "
        "'token': 't', 'now_s': 1}");
    // A wiped one of them may still come back under its name.
    f_ok(f,
         "{'op': 'node_join', 'id': '0000000000000105', 'name': 'n8', 'addr': '10.0.0.14:1', 'role': 'data', "
         "'token': 't', 'now_s': 1}");
    assert_string_equal(pms_json_str(f->result, "replaced", ""), "0000000000000104");
}

static void
test_node_join_when_a_wiped_node_returns_then_its_name_is_free_only_without_in_sync_slots(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;
    struct pms_node_info n;

    f_array(f, "v", 1, 2);
    f_ok(f, TOKEN("t"));
    f_refused(
        f, PMS_EEXISTS, "counts on its copy",
        "{'op': 'node_join', 'id': '00000000000000bb', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'data', "
        "'token': 't', 'now_s': 1}");
    f_transition(f, "v", "eject", 1, 0, "0");
    f_ok(
        f,
        "{'op': 'node_join', 'id': '00000000000000bb', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'data', "
        "'token': 't', 'now_s': 1}");
    assert_string_equal(pms_json_str(f->result, "replaced", ""), NODE_B);
    assert_int_equal(pms_state_node_get(f->st, 0xb, &n), PMS_ENOTFOUND);
    f_ok(f, TOKEN("t2"));
    f_refused(f, PMS_EREFUSED, "slot on this node",
              "{'op': 'node_join', 'id': '" NODE_B
              "', 'name': 'd', 'addr': '10.0.0.4:7470', 'role': 'witness', "
              "'token': 't2', 'now_s': 1}");
    // Its slot is still the old id's, and cannot be admitted: only a replace gives it to the new one.
    info = f_info(f, "v");
    assert_int_equal(info.slots[1].node_id, 0xb);
    assert_false(pms_json_bool(f_transition(f, "v", "admit", 2, 0, "01"), "ok", true));
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "replace"));
    f_ok(f, "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '00000000000000bb', 'brick': null}");
    info = f_info(f, "v");
    assert_int_equal(info.slots[1].node_id, 0xbb);
    assert_int_equal(info.slots[1].incarnation, 0);
    assert_int_equal(info.epoch, 3);
    assert_true(pms_json_bool(f_transition(f, "v", "admit", 3, 0, "01z"), "ok", false));
}

static void test_node_addr_when_changed_then_unique_and_no_portal(void **state)
{
    struct fixture *f = *state;
    struct pms_node_info n;

    f_array(f, "v", 7, 2);
    f_ok(f, "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': '10.0.0.22:7470'}");
    assert_int_equal(pms_state_node_get(f->st, 0xb, &n), 0);
    assert_string_equal(n.addr, "10.0.0.22:7470");
    f_ok(f, "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': '10.0.0.22:7470'}");
    f_ok(f,
         "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': '10.0.0.1:7471'}"); // another port is another node
    f_refused(f, PMS_EEXISTS, "node a", "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': '10.0.0.1:7470'}");
    f_refused(f, PMS_EEXISTS, "portal", "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': '10.0.1.7:7470'}");
    f_refused(f, PMS_ENOTFOUND, "no node",
              "{'op': 'node_addr', 'id': '00000000000000ee', 'addr': '10.0.0.5:7470'}");
    f_refused(f, PMS_EUSAGE, "addr", "{'op': 'node_addr', 'id': '" NODE_B "', 'addr': 5}");
}

static void test_node_leave_when_it_matters_to_an_array_then_refused_with_the_reason(void **state)
{
    struct fixture *f = *state;

    f_refused(f, PMS_ENOTFOUND, "no node z", "{'op': 'node_leave', 'name': 'z'}");
    f_refused(f, PMS_ENOTFOUND, NULL, "{'op': 'node_leave'}");
    f_array_creating(f, "v", 1, 2);
    f_refused(f, PMS_EBUSY, "being created", "{'op': 'node_leave', 'name': 'b'}");
    for (unsigned i = 0; i < 2; i++)
        f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': %u, 'incarnation': '%016x'}", i, i + 1);
    f_ok(f, "{'op': 'array_commit', 'array': 'v'}");
    f_refused(f, PMS_EREFUSED, "handover", "{'op': 'node_leave', 'name': 'a'}");
    f_transition(f, "v", "eject", 1, 0, "0");
    f_refused(f, PMS_EREFUSED, "last good copy", "{'op': 'node_leave', 'name': 'a'}");
}

static void test_node_leave_when_other_copies_stay_then_its_slot_is_vacant_and_the_epoch_higher(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;
    struct pms_node_info n;

    f_array(f, "u", 1, 2);
    f_array(f, "v", 2, 3);
    f_transition(f, "v", "eject", 1, 0, "02"); // b is stale in v, in sync in u
    f_ok(f, "{'op': 'node_leave', 'name': 'b'}");
    assert_int_equal(f_u64(f, "arrays"), 2);
    assert_int_equal(pms_state_node_get(f->st, 0xb, &n), PMS_ENOTFOUND);
    info = f_info(f, "u");
    assert_int_equal(info.n_slots, 2);
    assert_int_equal(info.slots[1].node_id, 0);
    assert_int_equal(info.in_sync, 1);
    assert_int_equal(info.primary, 0);
    assert_int_equal(info.epoch, 2);
    info = f_info(f, "v");
    assert_int_equal(info.in_sync, 5);
    assert_int_equal(info.slots[1].node_id, 0);
    assert_int_equal(info.epoch, 3);
    // A vacant slot is admitted by nobody, and can be filled.
    assert_false(pms_json_bool(f_transition(f, "u", "admit", 2, 0, "01"), "ok", true));
    f_ok(f, "{'op': 'array_replace', 'array': 'u', 'slot': 1, 'node': '" NODE_C "', 'brick': '/dev/x'}");
    info = f_info(f, "u");
    assert_int_equal(info.slots[1].node_id, 0xc);
    assert_string_equal(info.slots[1].brick, "/dev/x");
    assert_true(pms_json_bool(f_transition(f, "u", "admit", 3, 0, "01z"), "ok", false));
    assert_int_equal(f_info(f, "u").in_sync, 3);
}

static void test_node_leave_when_it_is_the_only_node_then_refused(void **state)
{
    struct fixture *f = *state;

    f_init_cluster(f);
    f_refused(f, PMS_EREFUSED, "only node", "{'op': 'node_leave', 'name': 'a'}");
}

static void test_node_leave_when_deleting_arrays_wait_for_it_then_they_are_forgotten(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;

    // Neighbours by name, so that a skipped one shows.
    f_array(f, "s", 1, 2);
    f_array(f, "t", 2, 2);
    f_array(f, "u", 3, 2);
    f_array(f, "v", 4, 2);
    for (const char *p = "stu"; *p != '\0'; p++) {
        f_ok(f, "{'op': 'array_delete', 'array': '%c'}", *p);
        f_ok(f, "{'op': 'array_slot_removed', 'array': '%c', 'slot': 0}", *p);
    }
    f_ok(f, "{'op': 'node_leave', 'name': 'b'}");
    assert_int_equal(f_u64(f, "arrays"), 4);
    assert_int_equal(pms_state_array_get_by_name(f->st, "s", &info), PMS_ENOTFOUND);
    assert_int_equal(pms_state_array_get_by_name(f->st, "t", &info), PMS_ENOTFOUND);
    assert_int_equal(pms_state_array_get_by_name(f->st, "u", &info), PMS_ENOTFOUND);
    info = f_info(f, "v");
    assert_int_equal(info.in_sync, 1);
    assert_int_equal(info.slots[1].node_id, 0);
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, f_setup, f_teardown)
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        E(test_state_when_there_is_no_cluster_then_only_init_is_taken),
        E(test_cluster_init_when_wrong_then_refused),
        T(test_node_join_when_right_then_the_node_is_there),
        T(test_node_join_when_fields_are_wrong_then_refused),
        T(test_node_join_when_sent_again_by_the_same_node_then_it_is_ok),
        T(test_node_join_when_the_cluster_is_full_then_refused),
        T(test_node_join_when_a_wiped_node_returns_then_its_name_is_free_only_without_in_sync_slots),
        T(test_node_addr_when_changed_then_unique_and_no_portal),
        T(test_node_leave_when_it_matters_to_an_array_then_refused_with_the_reason),
        T(test_node_leave_when_other_copies_stay_then_its_slot_is_vacant_and_the_epoch_higher),
        E(test_node_leave_when_it_is_the_only_node_then_refused),
        T(test_node_leave_when_deleting_arrays_wait_for_it_then_they_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
