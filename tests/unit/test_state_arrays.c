// SPDX-License-Identifier: GPL-2.0-or-later
// An array's life but for its transitions: create, commit, replace a slot, delete, forget.
#include "tests/unit/state_fixture.h"

#define SLOTS_AB "[{'node': '" NODE_A "', 'brick': null}, {'node': '" NODE_B "', 'brick': null}]"

// The fields of a right array_create; a test leaves all but one as they are.
struct spec {
    const char *id, *name, *level, *size, *slots, *portal, *iqn, *serial, *more;
};

static const struct spec right = {
    .id = "'00000000000000a1'",
    .name = "'v'",
    .level = "'raid1'",
    .size = "1048576",
    .slots = SLOTS_AB,
    .portal = "{'addr': '10.0.1.1', 'prefix': 24, 'port': 3260}",
    .iqn = "'iqn.2026-11.io.pms:00112233:v'",
    .serial = "'S1'",
    .more = "",
};

static const char *text_of(const struct spec *s, char buf[4096])
{
    snprintf(buf, 4096,
             "'op': 'array_create', 'id': %s, 'name': %s, 'level': %s, 'size_bytes': %s, 'slots': %s, "
             "'portal': %s, "
             "'iqn': %s, 'serial': %s%s}",
             s->id, s->name, s->level, s->size, s->slots, s->portal, s->iqn, s->serial, s->more);
    return buf;
}

static void create_refused(struct fixture *f, int err, const char *word, struct spec s)
{
    char buf[4096];

    f_refused(f, err, word, "%s", text_of(&s, buf));
}

static void create_ok(struct fixture *f, struct spec s)
{
    char buf[4096];

    f_ok(f, "%s", text_of(&s, buf));
}

#define WITH(field, value)                                                                                   \
    ({                                                                                                       \
        struct spec with_ = right;                                                                           \
        with_.field = (value);                                                                               \
        with_;                                                                                               \
    })

static void test_array_create_when_right_then_it_is_being_created(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;

    create_ok(f, WITH(portal, "{'addr': 'fd00:0::5', 'prefix': 64, 'port': 3261}"));
    a = f_info(f, "v");
    assert_int_equal(a.id, 0xa1);
    assert_string_equal(a.name, "v");
    assert_int_equal(a.level, PMS_ARRAY_RAID1);
    assert_int_equal(a.size_bytes, 1 << 20);
    assert_int_equal(a.region_bytes, PMS_REGION_BYTES);
    assert_false(a.write_cache);
    assert_int_equal(a.phase, PMS_ARRAY_CREATING);
    assert_int_equal(a.epoch, 0);
    assert_int_equal(a.primary, -1);
    assert_int_equal(a.n_slots, 2);
    assert_int_equal(a.slots[0].node_id, 0xa);
    assert_int_equal(a.slots[1].node_id, 0xb);
    assert_string_equal(a.slots[1].brick, "");
    assert_int_equal(a.in_sync, 0);
    assert_string_equal(a.portal_addr, "fd00::5");
    assert_int_equal(a.portal_prefix, 64);
    assert_int_equal(a.portal_port, 3261);
    assert_string_equal(a.iqn, "iqn.2026-11.io.pms:00112233:v");
    assert_string_equal(a.serial, "S1");
    assert_int_equal(pms_array_slot_of(&a, 0xb), 1);
    assert_int_equal(pms_array_slot_of(&a, 0xc), -1);
    assert_int_equal(pms_array_slot_of(&a, 0), -1);
    assert_int_equal(json_array_size(pms_state_sessions_json(f->st, "v")), 0);
}

static void test_array_create_when_a_field_is_wrong_then_refused(void **state)
{
    static const char *const long_name =
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"; // 64
    struct fixture *f = *state;

    create_refused(f, PMS_EUSAGE, "id", WITH(id, "'0000000000000000'"));
    create_refused(f, PMS_EUSAGE, "id", WITH(id, "161"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "''"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "'V'"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "'v_1'"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "'.v'"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "'00000000000000aa'"));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, long_name));
    create_refused(f, PMS_EUSAGE, "name", WITH(name, "null"));
    create_refused(f, PMS_EUSAGE, "level", WITH(level, "'raid0'"));
    create_refused(f, PMS_EUSAGE, "level", WITH(level, "1"));
    create_refused(f, PMS_EREFUSED, "not supported by this version", WITH(level, "'raid5'"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "0"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "-1048576"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "1048575"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "1572864"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "1048576.0"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "'1G'"));
    create_refused(f, PMS_EUSAGE, "size", WITH(size, "1125899907891200")); // 1 PiB + 1 MiB
    create_refused(f, PMS_EUSAGE, "iqn", WITH(iqn, "'v'"));
    create_refused(f, PMS_EUSAGE, "iqn", WITH(iqn, "'iqn.2026-11.io.PMS:v'"));
    create_refused(f, PMS_EUSAGE, "serial", WITH(serial, "''"));
    create_refused(f, PMS_EUSAGE, "serial", WITH(serial, "'S-1'"));
    create_refused(f, PMS_EUSAGE, "write_cache", WITH(more, ", 'write_cache': 0"));
    create_refused(f, PMS_EUSAGE, "portal", WITH(portal, "'10.0.1.1/24'"));
    create_refused(f, PMS_EUSAGE, "addr", WITH(portal, "{'addr': '10.0.1', 'prefix': 24, 'port': 3260}"));
    create_refused(f, PMS_EUSAGE, "addr", WITH(portal, "{'addr': 7, 'prefix': 24, 'port': 3260}"));
    create_refused(f, PMS_EUSAGE, "prefix", WITH(portal, "{'addr': '10.0.1.1', 'prefix': 33, 'port': 3260}"));
    create_refused(f, PMS_EUSAGE, "prefix", WITH(portal, "{'addr': '10.0.1.1', 'prefix': 0, 'port': 3260}"));
    create_refused(f, PMS_EUSAGE, "prefix", WITH(portal, "{'addr': 'fd00::1', 'prefix': 129, 'port': 3260}"));
    create_refused(f, PMS_EUSAGE, "port", WITH(portal, "{'addr': '10.0.1.1', 'prefix': 24, 'port': 65536}"));
    create_refused(f, PMS_EUSAGE, "port", WITH(portal, "{'addr': '10.0.1.1', 'prefix': 24}"));
    create_refused(f, PMS_EEXISTS, "node b",
                   WITH(portal, "{'addr': '10.0.0.2', 'prefix': 24, 'port': 3260}"));
    create_ok(f, WITH(more, ", 'write_cache': false"));
}

static void test_array_create_when_slots_are_wrong_then_refused(void **state)
{
    struct fixture *f = *state;

    create_refused(f, PMS_EUSAGE, "slots", WITH(slots, "[]"));
    create_refused(f, PMS_EUSAGE, "slots", WITH(slots, "{}"));
    create_refused(f, PMS_EUSAGE, "list", WITH(slots, "[1, 2, 3, 4, 5, 6, 7, 8, 9]"));
    create_refused(f, PMS_EUSAGE, "node", WITH(slots, "[1]"));
    create_refused(f, PMS_EUSAGE, "node", WITH(slots, "[{'brick': null}]"));
    create_refused(f, PMS_ENOTFOUND, "no node", WITH(slots, "[{'node': '00000000000000ee'}]"));
    create_refused(f, PMS_EREFUSED, "witness",
                   WITH(slots, "[{'node': '" NODE_A "'}, {'node': '" NODE_W "'}]"));
    create_refused(f, PMS_EREFUSED, "two slots",
                   WITH(slots, "[{'node': '" NODE_A "'}, {'node': '" NODE_A "'}]"));
    create_refused(f, PMS_EUSAGE, "brick", WITH(slots, "[{'node': '" NODE_A "', 'brick': 'dev/x'}]"));
    create_refused(f, PMS_EUSAGE, "brick", WITH(slots, "[{'node': '" NODE_A "', 'brick': '/dev/\\nx'}]"));
    create_refused(f, PMS_EUSAGE, "brick", WITH(slots, "[{'node': '" NODE_A "', 'brick': 7}]"));
    create_ok(
        f, WITH(slots, "[{'node': '" NODE_A "', 'brick': '/dev/x'}]")); // one copy is allowed, if asked for
}

static void test_array_create_when_it_shares_with_another_then_refused(void **state)
{
    struct fixture *f = *state;
    struct spec other = {
        .id = "'00000000000000a2'",
        .name = "'u'",
        .level = "'raid1'",
        .size = "1048576",
        .slots = "[{'node': '" NODE_A "', 'brick': '/dev/y'}]",
        .portal = "{'addr': '10.0.1.2', 'prefix': 24, 'port': 3260}",
        .iqn = "'iqn.2026-11.io.pms:00112233:u'",
        .serial = "'S2'",
        .more = "",
    };
    struct spec s;

    create_ok(f, WITH(slots, "[{'node': '" NODE_A "', 'brick': '/dev/x'}]"));
    s = other, s.name = right.name;
    create_refused(f, PMS_EEXISTS, "array v already", s);
    s = other, s.id = right.id;
    create_refused(f, PMS_EEXISTS, "id", s);
    s = other, s.iqn = right.iqn;
    create_refused(f, PMS_EEXISTS, "iqn", s);
    s = other, s.serial = right.serial;
    create_refused(f, PMS_EEXISTS, "serial", s);
    s = other, s.portal = "{'addr': '10.0.1.1', 'prefix': 16, 'port': 3261}";
    create_refused(f, PMS_EEXISTS, "portal of array v", s);
    s = other, s.slots = "[{'node': '" NODE_A "', 'brick': '/dev/x'}]";
    create_refused(f, PMS_EEXISTS, "brick of array v", s);
    s.slots = "[{'node': '" NODE_B "', 'brick': '/dev/x'}]"; // the same path on another node is another disk
    create_ok(f, s);
}

static void test_array_when_looked_up_then_by_id_name_and_in_order(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;
    char id[17];
    size_t c = 0;

    f_array(f, "b2", 1, 2);
    f_array(f, "a1", 2, 2);
    f_array(f, "b10", 3, 2);
    assert_int_equal(pms_state_array_get(f->st, 0xa0002, &a), 0);
    assert_string_equal(a.name, "a1");
    assert_int_equal(pms_state_array_get(f->st, 0xa0009, &a), PMS_ENOTFOUND);
    assert_non_null(pms_state_array_json(f->st, 0xa0001));
    assert_null(pms_state_array_json(f->st, 0xa0009));
    assert_ptr_equal(pms_state_array_json(f->st, 0xa0001), pms_state_array_json_by_name(f->st, "b2"));
    assert_null(pms_state_array_json_by_name(f->st, "zz"));
    assert_null(pms_state_sessions_json(f->st, "zz"));
    assert_true(pms_state_array_next(f->st, &c, &a));
    assert_string_equal(a.name, "a1");
    assert_true(pms_state_array_next(f->st, &c, &a));
    assert_string_equal(a.name, "b10");
    assert_true(pms_state_array_next(f->st, &c, &a));
    assert_string_equal(a.name, "b2");
    assert_false(pms_state_array_next(f->st, &c, &a));
    // Commands take either.
    f_ok(f, "{'op': 'array_delete', 'array': '%s'}", f_array_id(3, id));
    assert_int_equal(f_info(f, "b10").phase, PMS_ARRAY_DELETING);
}

static void test_array_commit_when_every_slot_is_zeroed_then_ready_and_not_before(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;

    f_array_creating(f, "v", 1, 3);
    f_refused(f, PMS_EREFUSED, "zeroed", "{'op': 'array_commit', 'array': 'v'}");
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 0, 'incarnation': '0000000000000011'}");
    assert_false(pms_json_bool(f->result, "all", true));
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 2, 'incarnation': '0000000000000033'}");
    f_refused(f, PMS_EREFUSED, "zeroed", "{'op': 'array_commit', 'array': 'v'}");
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 1, 'incarnation': '0000000000000021'}");
    assert_true(pms_json_bool(f->result, "all", false));
    // A brick made anew meanwhile has a new incarnation.
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 1, 'incarnation': '0000000000000022'}");
    f_ok(f, "{'op': 'array_commit', 'array': 'v'}");
    assert_int_equal(f_u64(f, "epoch"), 1);
    a = f_info(f, "v");
    assert_int_equal(a.phase, PMS_ARRAY_READY);
    assert_int_equal(a.epoch, 1);
    assert_int_equal(a.primary, 0);
    assert_int_equal(a.in_sync, 7);
    assert_true(a.slots[1].in_sync && a.slots[1].zeroed);
    assert_int_equal(a.slots[1].incarnation, 0x22);
    f_refused(f, PMS_ESTALE, "epoch 1", "{'op': 'array_commit', 'array': 'v'}");
    f_refused(f, PMS_EREFUSED, "not being created",
              "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 0, 'incarnation': '0000000000000011'}");
}

static void test_array_commit_when_a_node_was_wiped_meanwhile_then_refused(void **state)
{
    struct fixture *f = *state;

    f_array_creating(f, "v", 1, 2);
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 0, 'incarnation': '0000000000000011'}");
    f_ok(f, "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 1, 'incarnation': '0000000000000012'}");
    f_ok(f, "{'op': 'token_add', 'id': 't', 'secret': 's', 'expires_s': 100, 'by': 'a'}");
    f_ok(
        f,
        "{'op': 'node_join', 'id': '00000000000000bb', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'data', "
        "'token': 't', 'now_s': 1}");
    f_refused(f, PMS_EREFUSED, "no node", "{'op': 'array_commit', 'array': 'v'}");
}

static void test_array_slot_zeroed_when_wrong_then_refused(void **state)
{
    struct fixture *f = *state;

    f_array_creating(f, "v", 1, 2);
    f_refused(f, PMS_EUSAGE, "slot",
              "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 2, 'incarnation': '%s'}", CLIENT);
    f_refused(f, PMS_EUSAGE, "slot", "{'op': 'array_slot_zeroed', 'array': 'v', 'incarnation': '%s'}",
              CLIENT);
    f_refused(f, PMS_EUSAGE, "incarnation", "{'op': 'array_slot_zeroed', 'array': 'v', 'slot': 1}");
    f_refused(f, PMS_EUSAGE, "array", "{'op': 'array_slot_zeroed', 'slot': 1, 'incarnation': '%s'}", CLIENT);
    f_refused(f, PMS_ENOTFOUND, "no array x",
              "{'op': 'array_slot_zeroed', 'array': 'x', 'slot': 1, 'incarnation': '%s'}", CLIENT);
    f_refused(f, PMS_ENOTFOUND, "no array",
              "{'op': 'array_slot_zeroed', 'array': '00000000000000ee', 'slot': 1, 'incarnation': '%s'}",
              CLIENT);
}

static void test_array_replace_when_wrong_then_refused(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 2);
    f_array_creating(f, "u", 2, 2);
    f_refused(f, PMS_EREFUSED, "in sync",
              "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_C "', 'brick': null}");
    f_refused(f, PMS_EREFUSED, "cannot serve",
              "{'op': 'array_replace', 'array': 'u', 'slot': 1, 'node': '" NODE_C "', 'brick': null}");
    f_transition(f, "v", "eject", 1, 0, "0");
    f_refused(f, PMS_EREFUSED, "witness",
              "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_W "', 'brick': null}");
    f_refused(f, PMS_EREFUSED, "two slots",
              "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_A "', 'brick': null}");
    f_refused(f, PMS_ENOTFOUND, "no node",
              "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '00000000000000ee', 'brick': null}");
    f_refused(f, PMS_EUSAGE, "brick",
              "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_C "', 'brick': 'x'}");
    f_refused(f, PMS_EUSAGE, "slot",
              "{'op': 'array_replace', 'array': 'v', 'slot': 9, 'node': '" NODE_C "'}");
    // The same node with a new disk in the same place.
    f_ok(f, "{'op': 'array_replace', 'array': 'v', 'slot': 1, 'node': '" NODE_B "', 'brick': null}");
    assert_int_equal(f_u64(f, "epoch"), 3);
    assert_int_equal(f_info(f, "v").slots[1].incarnation, 0);
    assert_false(f_info(f, "v").slots[1].zeroed);
    assert_true(pms_json_bool(f_transition(f, "v", "admit", 3, 0, "01y"), "ok", false));
    assert_true(f_info(f, "v").slots[1].zeroed);
}

static void test_array_delete_when_all_bricks_are_removed_then_gone_and_its_name_free(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;

    f_array(f, "v", 1, 2);
    f_refused(f, PMS_EREFUSED, "not being deleted", "{'op': 'array_slot_removed', 'array': 'v', 'slot': 0}");
    f_refused(f, PMS_EREFUSED, "not being deleted", "{'op': 'array_forget', 'array': 'v', 'force': true}");
    f_ok(f, "{'op': 'array_delete', 'array': 'v'}");
    assert_int_equal(f_u64(f, "epoch"), 2);
    a = f_info(f, "v");
    assert_int_equal(a.phase, PMS_ARRAY_DELETING);
    assert_int_equal(a.epoch, 2);
    assert_int_equal(a.primary, -1);
    assert_int_equal(a.in_sync, 0);
    assert_int_equal(a.slots[0].node_id, 0xa);
    f_refused(f, PMS_EREFUSED, "already", "{'op': 'array_delete', 'array': 'v'}");
    create_refused(f, PMS_EEXISTS, "still being deleted", right);
    f_ok(f, "{'op': 'array_slot_removed', 'array': 'v', 'slot': 1}");
    assert_false(pms_json_bool(f->result, "gone", true));
    f_ok(f, "{'op': 'array_slot_removed', 'array': 'v', 'slot': 1}");
    assert_false(pms_json_bool(f->result, "gone", true));
    f_ok(f, "{'op': 'array_slot_removed', 'array': 'v', 'slot': 0}");
    assert_true(pms_json_bool(f->result, "gone", false));
    assert_int_equal(pms_state_array_get_by_name(f->st, "v", &a), PMS_ENOTFOUND);
    assert_null(pms_state_sessions_json(f->st, "v"));
    create_ok(f, right);
}

static void test_array_forget_when_bricks_of_living_nodes_remain_then_only_by_force(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;

    f_array_creating(f, "v", 1, 2); // one that never got ready can be deleted too
    f_ok(f, "{'op': 'array_delete', 'array': 'v'}");
    f_refused(f, PMS_EBUSY, "node a", "{'op': 'array_forget', 'array': 'v'}");
    f_ok(f, "{'op': 'array_slot_removed', 'array': 'v', 'slot': 0}");
    f_refused(f, PMS_EBUSY, "node b", "{'op': 'array_forget', 'array': 'v', 'force': false}");
    f_refused(f, PMS_EUSAGE, "force", "{'op': 'array_forget', 'array': 'v', 'force': 1}");
    f_ok(f, "{'op': 'array_forget', 'array': 'v', 'force': true}");
    assert_int_equal(pms_state_array_get_by_name(f->st, "v", &a), PMS_ENOTFOUND);
}

static void test_array_forget_when_the_other_nodes_are_gone_then_without_force(void **state)
{
    struct fixture *f = *state;
    struct pms_array_info a;

    f_array_creating(f, "v", 1, 2);
    f_ok(f, "{'op': 'array_delete', 'array': 'v'}");
    f_ok(f, "{'op': 'array_slot_removed', 'array': 'v', 'slot': 0}");
    // b was wiped and comes back under a new id: the old one's brick is nobody's.
    f_ok(f, "{'op': 'token_add', 'id': 't', 'secret': 's', 'expires_s': 100, 'by': 'a'}");
    f_ok(
        f,
        "{'op': 'node_join', 'id': '00000000000000bb', 'name': 'b', 'addr': '10.0.0.2:7470', 'role': 'data', "
        "'token': 't', 'now_s': 1}");
    f_ok(f, "{'op': 'array_forget', 'array': 'v'}");
    assert_int_equal(pms_state_array_get_by_name(f->st, "v", &a), PMS_ENOTFOUND);
}

static void test_array_delete_when_an_initiator_is_connected_then_only_by_force(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 2);
    f_ok(f, "{'op': 'session_login', 'array': 'v', 'initiator': 'iqn.x:host', 'isid': '00023d000001', "
            "'params': {}, "
            "'peer': '10.0.9.1:999', 'node': '" NODE_A "'}");
    f_refused(f, PMS_EBUSY, "iqn.x:host", "{'op': 'array_delete', 'array': 'v'}");
    f_ok(f, "{'op': 'array_delete', 'array': 'v', 'force': true}");
    assert_int_equal(json_array_size(pms_state_sessions_json(f->st, "v")), 0);
    f_array(f, "u", 2, 2);
    f_ok(f, "{'op': 'session_login', 'array': 'u', 'initiator': 'iqn.x:host', 'isid': '00023d000001', "
            "'params': {}, "
            "'peer': '10.0.9.1:999', 'node': '" NODE_A "'}");
    f_ok(f, "{'op': 'session_closed', 'array': 'u', 'tsih': 1, 'reason': 'lost'}");
    f_ok(f, "{'op': 'array_delete', 'array': 'u'}");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_array_create_when_right_then_it_is_being_created),
        T(test_array_create_when_a_field_is_wrong_then_refused),
        T(test_array_create_when_slots_are_wrong_then_refused),
        T(test_array_create_when_it_shares_with_another_then_refused),
        T(test_array_when_looked_up_then_by_id_name_and_in_order),
        T(test_array_commit_when_every_slot_is_zeroed_then_ready_and_not_before),
        T(test_array_commit_when_a_node_was_wiped_meanwhile_then_refused),
        T(test_array_slot_zeroed_when_wrong_then_refused),
        T(test_array_replace_when_wrong_then_refused),
        T(test_array_delete_when_all_bricks_are_removed_then_gone_and_its_name_free),
        T(test_array_forget_when_bricks_of_living_nodes_remain_then_only_by_force),
        T(test_array_forget_when_the_other_nodes_are_gone_then_without_force),
        T(test_array_delete_when_an_initiator_is_connected_then_only_by_force),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
