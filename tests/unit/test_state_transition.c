// SPDX-License-Identifier: GPL-2.0-or-later
// Every transition of an array, legal and illegal, and the compare-and-set on its epoch.
#include "tests/unit/state_fixture.h"

struct step {
    const char *kind;
    unsigned primary;
    const char *set;
    const char *wrong; // NULL: legal; else a piece of the refusal
};

// Runs each step on an array of its own: slots 0, 1, 2; in sync those of now; primary first of them unless
// given.
static void table_run(struct fixture *f, const char *now, const struct step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct pms_array_info info, was;
        uint64_t epoch = 1;
        char name[32];

        snprintf(name, sizeof(name), "v%zu", i);
        f_array(f, name, (unsigned)i + 1, 3);
        if (strcmp(now, "012") != 0) {
            f_transition(f, name, "takeover", epoch++, 0, now);
            assert_true(pms_json_bool(f->result, "ok", false));
        }
        was = f_info(f, name);
        f_transition(f, name, steps[i].kind, epoch, steps[i].primary, steps[i].set);
        info = f_info(f, name);
        if (steps[i].wrong == NULL) {
            uint32_t mask = 0;

            if (!pms_json_bool(f->result, "ok", false))
                fail_msg("step %zu refused: %s", i, pms_json_str(f->result, "text", ""));
            for (const char *p = steps[i].set; *p != '\0'; p++)
                if (*p < 'a')
                    mask |= 1u << (*p - '0');
            assert_int_equal(f_u64(f, "epoch"), epoch + 1);
            assert_int_equal(info.epoch, epoch + 1);
            assert_int_equal(info.primary, steps[i].primary);
            assert_int_equal(info.primary_since, info.primary == was.primary ? was.primary_since : epoch + 1);
            assert_int_equal(info.in_sync, mask);
        } else {
            if (pms_json_bool(f->result, "ok", true))
                fail_msg("step %zu (%s to %s) was not refused", i, steps[i].kind, steps[i].set);
            if (strstr(pms_json_str(f->result, "text", ""), steps[i].wrong) == NULL)
                fail_msg("step %zu: \"%s\" says nothing of \"%s\"", i, pms_json_str(f->result, "text", ""),
                         steps[i].wrong);
            assert_int_equal(info.epoch, epoch);
        }
    }
}

static void test_transition_when_all_in_sync_then_only_the_tables_are_made(void **state)
{
    static const struct step steps[] = {
        {"takeover", 1, "12", NULL},
        {"takeover", 1, "1", NULL},
        {"takeover", 2, "012", NULL}, // the old primary stepped down and stays
        {"takeover", 0, "012", NULL}, // R2: a restarted primary, also alone
        {"takeover", 0, "0", NULL},
        {"takeover", 1, "02", "primary must be in"},
        {"takeover", 1, "1x2", "incarnation"},
        {"takeover", 1, "1x", "incarnation"},
        {"takeover", 1, "0x1x2x", "incarnation"}, // no write cache, so nothing is unclean
        {"takeover", 1, "112", "twice"},
        {"takeover", 1, "3", "slot"},
        {"takeover", 3, "1", "primary"},
        {"refresh", 0, "012", NULL},
        {"refresh", 0, "210", NULL}, // the order of entries means nothing
        {"refresh", 1, "012", "keeps the primary"},
        {"refresh", 0, "01", "keeps the in-sync set"},
        {"refresh", 0, "012x", "keeps the in-sync set"},
        {"eject", 0, "01", NULL},
        {"eject", 0, "02", NULL},
        {"eject", 0, "12", "primary must be in"},
        {"eject", 1, "12", "keeps the primary"},
        {"eject", 0, "0", "exactly one"},
        {"eject", 0, "012", "exactly one"},
        {"eject", 0, "01x", "incarnation"},
        {"admit", 0, "012", "exactly one"},
        {"handover", 1, "012", NULL},
        {"handover", 2, "012", NULL},
        {"handover", 0, "012", "changes the primary"},
        {"handover", 1, "12", "keeps the in-sync set"},
        {"handover", 1, "01x2", "keeps the in-sync set"},
        {"create", 0, "012", "no transition"},
        {"", 0, "012", "no transition"},
    };

    table_run(*state, "012", steps, sizeof(steps) / sizeof(steps[0]));
}

static void test_transition_when_degraded_then_only_the_tables_are_made(void **state)
{
    static const struct step steps[] = {
        {"admit", 0, "012", NULL},
        {"admit", 0, "012x", NULL}, // a slot may come back under a new incarnation
        {"admit", 0, "01", "exactly one"},
        {"admit", 1, "012", "keeps the primary"},
        {"admit", 2, "012", "keeps the primary"},
        {"admit", 0, "01x2", "incarnation"},
        {"admit", 0, "02", "exactly one"},
        {"takeover", 2, "2", "adds no slot"}, // a stale slot never takes over
        {"takeover", 2, "12", "adds no slot"},
        {"takeover", 1, "12", "adds no slot"},
        {"takeover", 1, "1", NULL},
        {"takeover", 1, "01", NULL},
        {"eject", 0, "0", NULL},
        {"eject", 0, "02", "exactly one"},
        {"eject", 0, "012", "exactly one"},
        {"refresh", 0, "01", NULL},
        {"refresh", 0, "012", "keeps the in-sync set"},
        {"handover", 1, "01", NULL},
        {"handover", 2, "01", "primary must be in"},
        {"handover", 2, "012", "keeps the in-sync set"},
    };

    table_run(*state, "01", steps, sizeof(steps) / sizeof(steps[0]));
}

static void test_transition_when_one_copy_is_left_then_it_is_never_ejected(void **state)
{
    static const struct step steps[] = {
        {"eject", 0, "", "list"},
        {"eject", 0, "0", "exactly one"},
        {"eject", 1, "1", "keeps the primary"},
        {"takeover", 0, "", "list"},
        {"takeover", 1, "1", "adds no slot"},
        {"takeover", 0, "0", NULL},
        {"admit", 0, "01", NULL},
        {"admit", 0, "02", NULL},
        {"admit", 0, "012", "exactly one"},
        {"handover", 1, "0", "primary must be in"},
        {"handover", 1, "01", "keeps the in-sync set"},
    };

    table_run(*state, "0", steps, sizeof(steps) / sizeof(steps[0]));
}

static void test_transition_when_the_epoch_differs_then_it_is_stale_and_shows_the_present(void **state)
{
    static const char *const kinds[] = {"takeover", "refresh", "eject", "admit", "handover"};
    static const uint64_t epochs[] = {0, 1, 3, 1000000};
    struct fixture *f = *state;

    f_array(f, "v", 1, 3);
    f_transition(f, "v", "takeover", 1, 1, "12");
    assert_true(pms_json_bool(f->result, "ok", false));
    for (size_t k = 0; k < 5; k++) {
        for (size_t e = 0; e < 4; e++) {
            f_transition(f, "v", kinds[k], epochs[e], 1, "12");
            assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_ESTALE");
            assert_int_equal(f_u64(f, "epoch"), 2);
            assert_int_equal(f_u64(f, "primary"), 1);
            assert_int_equal(json_array_size(json_object_get(f->result, "in_sync")), 2);
        }
    }
}

static void test_transition_when_of_two_racing_ones_then_one_wins(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 3);
    assert_true(pms_json_bool(f_transition(f, "v", "takeover", 1, 1, "12"), "ok", false));
    assert_string_equal(pms_json_str(f_transition(f, "v", "takeover", 1, 2, "12"), "error", ""),
                        "PMS_ESTALE");
    assert_string_equal(pms_json_str(f_transition(f, "v", "eject", 1, 0, "01"), "error", ""), "PMS_ESTALE");
    assert_int_equal(f_info(f, "v").primary, 1);
}

static void not_ready(struct fixture *f, const char *array, const char *kind, uint64_t epoch, const char *set,
                      const char *word)
{
    f_transition(f, array, kind, epoch, 0, set);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EREFUSED");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), word));
}

static void test_transition_when_not_ready_then_refused(void **state)
{
    struct fixture *f = *state;

    f_array_creating(f, "v", 1, 2);
    not_ready(f, "v", "refresh", 0, "01", "being created");
    not_ready(f, "v", "takeover", 0, "0", "being created");
    f_array(f, "u", 2, 2);
    f_ok(f, "{'op': 'array_delete', 'array': 'u'}");
    not_ready(f, "u", "takeover", 2, "0", "being deleted");
    not_ready(f, "u", "refresh", 2, "01", "being deleted");
    f_refused(f, PMS_ENOTFOUND, "no array", "{'op': 'array_transition', 'array': 'x', 'kind': 'refresh'}");
}

static void test_transition_when_garbled_then_refused(void **state)
{
    static const char *const tails[] = {
        "'epoch': -1, 'primary': 0, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': '1', 'primary': 0, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': 1.0, 'primary': 0, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': 1, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': 1, 'primary': null, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': 1, 'primary': -1, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000001'}]",
        "'epoch': 1, 'primary': 0, 'in_sync': 1",
        "'epoch': 1, 'primary': 0, 'in_sync': {}",
        "'epoch': 1, 'primary': 0",
        "'epoch': 1, 'primary': 0, 'in_sync': [0]",
        "'epoch': 1, 'primary': 0, 'in_sync': [null]",
        "'epoch': 1, 'primary': 0, 'in_sync': [{'slot': 0}]",
        "'epoch': 1, 'primary': 0, 'in_sync': [{'incarnation': '0000000000000001'}]",
        "'epoch': 1, 'primary': 0, 'in_sync': [{'slot': 0, 'incarnation': '0000000000000000'}]",
        "'epoch': 1, 'primary': 0, 'in_sync': [{'slot': 0, 'incarnation': 1}]",
        "'epoch': 1, 'primary': 0, 'in_sync': [{'slot': 4294967296, 'incarnation': '0000000000000001'}]",
    };
    struct fixture *f = *state;

    f_array(f, "v", 1, 2);
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        f_refused(f, PMS_EUSAGE, NULL, "{'op': 'array_transition', 'array': 'v', 'kind': 'takeover', %s}",
                  tails[i]);
    assert_int_equal(f_info(f, "v").epoch, 1);
}

// No command makes a RAID5 array yet: it comes out of a snapshot.
static void level_and_cache_set(struct fixture *f, const char *name, const char *level, bool write_cache)
{
    json_t *copy = json_deep_copy(pms_state_tree(f->st));
    json_t *array = json_object_get(json_object_get(copy, "arrays"), name);
    char *text;

    json_object_set_new(array, "level", json_string(level));
    json_object_set_new(array, "write_cache", json_boolean(write_cache));
    json_object_set_new(array, "cache_used", json_boolean(write_cache));
    text = pms_json_dump_compact(copy);
    pms_state_destroy(f->st);
    f->st = NULL;
    assert_int_equal(pms_state_decode(text, strlen(text), &f->st), 0);
    free(text);
    json_decref(copy);
}

// A snapshot of before there was primary_since: as if the primary were new, so that nothing older is trusted.
static void test_state_when_snapshot_is_old_then_the_primary_counts_as_new(void **state)
{
    struct fixture *f = *state;
    json_t *copy;
    char *text;

    f_array(f, "v", 1, 2);
    f_transition(f, "v", "refresh", 1, 0, "01");
    assert_int_equal(f_info(f, "v").primary_since, 1);
    copy = json_deep_copy(pms_state_tree(f->st));
    json_object_del(json_object_get(json_object_get(copy, "arrays"), "v"), "primary_since");
    text = pms_json_dump_compact(copy);
    pms_state_destroy(f->st);
    f->st = NULL;
    assert_int_equal(pms_state_decode(text, strlen(text), &f->st), 0);
    free(text);
    json_decref(copy);
    assert_int_equal(f_info(f, "v").primary_since, 2);
    f_transition(f, "v", "refresh", 2, 0, "01");
    assert_int_equal(f_info(f, "v").primary_since, 2);
}

static void test_transition_when_raid5_then_never_fewer_than_all_but_one(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 3);
    level_and_cache_set(f, "v", "raid5", false);
    f_transition(f, "v", "takeover", 1, 1, "1");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "at least 2"));
    assert_true(pms_json_bool(f_transition(f, "v", "takeover", 1, 1, "12"), "ok", false));
    f_transition(f, "v", "eject", 2, 1, "1");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "at least 2"));
    assert_true(pms_json_bool(f_transition(f, "v", "admit", 2, 1, "012"), "ok", false));
}

static void test_takeover_when_unclean_then_all_slots_or_none(void **state)
{
    struct fixture *f = *state;

    f_array(f, "v", 1, 3);
    f_ok(f, "{'op': 'array_set', 'array': 'v', 'write_cache': true}");
    f_ok(f, "{'op': 'array_set', 'array': 'v', 'write_cache': false}"); // what was volatile may be so still
    assert_false(f_info(f, "v").write_cache);
    assert_true(f_info(f, "v").cache_used);
    assert_int_equal(f_info(f, "v").epoch, 1);
    f_transition(f, "v", "takeover", 1, 1, "1x");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "each of them unclean"));
    f_transition(f, "v", "takeover", 1, 1, "01x2x");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "each of them unclean"));
    f_transition(f, "v", "takeover", 1, 1, "1x2x");
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "each of them unclean"));
    assert_true(pms_json_bool(f_transition(f, "v", "takeover", 1, 1, "0x1x2x"), "ok", false));
    // From now on the new incarnations are the in-sync ones.
    assert_false(pms_json_bool(f_transition(f, "v", "refresh", 2, 1, "012"), "ok", true));
    assert_true(pms_json_bool(f_transition(f, "v", "refresh", 2, 1, "0x1x2x"), "ok", false));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_transition_when_all_in_sync_then_only_the_tables_are_made),
        T(test_transition_when_degraded_then_only_the_tables_are_made),
        T(test_transition_when_one_copy_is_left_then_it_is_never_ejected),
        T(test_transition_when_the_epoch_differs_then_it_is_stale_and_shows_the_present),
        T(test_transition_when_of_two_racing_ones_then_one_wins),
        T(test_transition_when_not_ready_then_refused),
        T(test_transition_when_garbled_then_refused),
        T(test_transition_when_raid5_then_never_fewer_than_all_but_one),
        T(test_state_when_snapshot_is_old_then_the_primary_counts_as_new),
        T(test_takeover_when_unclean_then_all_slots_or_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
