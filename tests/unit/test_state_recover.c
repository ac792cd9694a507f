// SPDX-License-Identifier: GPL-2.0-or-later
// After a permanent loss: the cluster without its lost nodes, an array from its stale copy, and every refusal.
#include "tests/unit/state_fixture.h"

#define GONE(list) "{'op': 'cluster_recover', 'lost': [" list "]}"

static void test_recover_when_in_sync_slots_are_left_then_arrays_go_on_without_the_lost(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;
    struct pms_node_info node;

    f_array(f, "v0", 1, 3); // a b c, primary a
    f_ok(f, GONE("'" NODE_A "', '" NODE_C "'"));
    assert_int_equal(f_u64(f, "lost"), 0);
    info = f_info(f, "v0");
    assert_int_equal(info.in_sync, 1u << 1);
    assert_int_equal(info.primary, 1);
    assert_true(info.epoch > (1u << 20)); // beyond all that only the lost ones knew
    assert_int_equal(info.slots[0].node_id, 0);
    assert_int_equal(info.slots[2].node_id, 0);
    assert_int_equal(pms_state_node_get_by_name(f->st, "a", &node), PMS_ENOTFOUND);
    assert_int_equal(pms_state_node_get_by_name(f->st, "b", &node), 0);
}

static void test_recover_when_no_good_copy_is_left_then_the_array_waits_for_a_decision(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info, after;

    f_array(f, "v0", 1, 3);
    f_transition(f, "v0", "takeover", 1, 0, "02"); // b is stale
    f_ok(f, GONE("'" NODE_A "', '" NODE_C "'"));
    assert_int_equal(f_u64(f, "lost"), 1);
    info = f_info(f, "v0");
    assert_int_equal(info.in_sync, (1u << 0) | (1u << 2)); // nobody invents a good copy
    assert_int_equal(info.epoch, 2);

    // Nobody else may end this by the usual ways.
    f_transition(f, "v0", "takeover", 2, 0, "0");
    assert_false(pms_json_bool(f->result, "ok", true));
    f_ok(f, "{'op': 'array_recover', 'array': 'v0', 'epoch': 2, 'slot': 1, 'incarnation': "
            "'00000000000000ee', 'floor': 7}");
    after = f_info(f, "v0");
    assert_int_equal(after.epoch, 8); // above what the brick has seen
    assert_int_equal(after.in_sync, 1u << 1);
    assert_int_equal(after.primary, 1);
    assert_int_equal(after.slots[1].incarnation, 0xee);
    assert_int_equal(after.slots[0].node_id, 0);
}

static void test_recover_when_a_new_array_cannot_be_finished_then_it_is_removed(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;

    f_array_creating(f, "v0", 1, 2); // on a and b
    f_array_creating(f, "v1", 2, 3); // on c, too
    f_ok(f, GONE("'" NODE_W "'"));
    assert_int_equal(f_info(f, "v0").phase, PMS_ARRAY_CREATING); // it is whole
    f_ok(f, GONE("'" NODE_A "', '" NODE_B "'"));
    assert_int_equal(pms_state_array_get_by_name(f->st, "v0", &info), PMS_ENOTFOUND);
    info = f_info(f, "v1");
    assert_int_equal(info.phase, PMS_ARRAY_DELETING);
    assert_int_equal(info.slots[0].node_id, 0);
    assert_int_not_equal(info.slots[2].node_id, 0);
}

static void test_recover_when_asked_for_nonsense_then_refused(void **state)
{
    struct fixture *f = *state;

    f_refused(f, PMS_EUSAGE, "lost", "{'op': 'cluster_recover'}");
    f_refused(f, PMS_EUSAGE, "lost", GONE(""));
    f_refused(f, PMS_EUSAGE, "ids", GONE("'a'"));
    f_refused(f, PMS_EUSAGE, "twice", GONE("'" NODE_A "', '" NODE_A "'"));
    f_refused(f, PMS_ENOTFOUND, "no node", GONE("'00000000000000ff'"));
    f_refused(f, PMS_EREFUSED, "every node", GONE("'" NODE_A "', '" NODE_B "', '" NODE_C "', '" NODE_W "'"));
}

#define TAKE(epoch, slot, lost)                                                                              \
    "{'op': 'array_recover', 'array': 'v0', 'epoch': " #epoch ", 'slot': " #slot                             \
    ", 'incarnation': '00000000000000ee', 'floor': 1, 'lost': [" lost "]}"

static void test_array_recover_when_a_good_copy_is_there_then_refused_unless_named(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info info;

    f_array(f, "v0", 1, 3);
    f_transition(f, "v0", "takeover", 1, 0, "02");
    f_refused(f, PMS_EREFUSED, "--give-up a", TAKE(2, 1, "'" NODE_B "'"));
    f_refused(f, PMS_EREFUSED, "--give-up c", TAKE(2, 1, "'" NODE_A "'"));
    f_refused(f, PMS_ESTALE, "epoch 2", TAKE(1, 1, "'" NODE_A "', '" NODE_C "'"));
    f_refused(f, PMS_EREFUSED, "in sync", TAKE(2, 2, "'" NODE_A "'"));
    assert_int_equal(f_info(f, "v0").epoch, 2);
    f_ok(f, TAKE(2, 1, "'" NODE_A "', '" NODE_C "'"));
    info = f_info(f, "v0");
    assert_int_equal(info.in_sync, 1u << 1);
    assert_int_equal(info.epoch, 3);
    assert_int_not_equal(info.slots[0].node_id, 0); // they may come back, as stale ones
}

static void test_array_recover_when_done_then_no_session_is_left(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v0", 1, 2);
    f_ok(f, "{'op': 'session_login', 'array': 'v0', 'initiator': 'iqn.x:h', 'isid': '00023d000001', "
            "'params': {}, 'peer': '10.0.9.1:1024', 'node': '" NODE_A "'}");
    assert_int_equal(json_array_size(pms_state_sessions_json(f->st, "v0")), 1);
    f_transition(f, "v0", "eject", 1, 0, "0");
    f_ok(f, TAKE(2, 1, "'" NODE_A "'"));
    assert_int_equal(json_array_size(pms_state_sessions_json(f->st, "v0")), 0);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_recover_when_in_sync_slots_are_left_then_arrays_go_on_without_the_lost),
        TEST(test_recover_when_no_good_copy_is_left_then_the_array_waits_for_a_decision),
        TEST(test_recover_when_a_new_array_cannot_be_finished_then_it_is_removed),
        TEST(test_recover_when_asked_for_nonsense_then_refused),
        TEST(test_array_recover_when_a_good_copy_is_there_then_refused_unless_named),
        TEST(test_array_recover_when_done_then_no_session_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
