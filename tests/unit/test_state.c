// SPDX-License-Identifier: GPL-2.0-or-later
// The state machine as a whole: dispatch, snapshots, random histories on two copies at once, garbage.
#include "tests/unit/state_fixture.h"

// ---- A seeded stream of commands, most of them sensible ----

struct rng {
    uint64_t s;
};

static uint32_t rnd(struct rng *r, uint32_t n)
{
    // xorshift64*
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return (uint32_t)((r->s * 0x2545f4914f6cdd1dull) >> 33) % n;
}

static const char *const op_names[] = {
    "token_add",        "token_use",      "token_revoke",   "node_join",          "node_addr",
    "node_leave",       "settings_set",   "array_create",   "array_commit",       "array_slot_zeroed",
    "array_transition", "array_replace",  "array_delete",   "array_slot_removed", "array_forget",
    "session_login",    "session_closed", "session_expire", "cluster_recover",    "array_recover",
};

enum { OPS = sizeof(op_names) / sizeof(op_names[0]) };

static int gen_node(struct rng *r, const char *op, char *p, size_t n)
{
    unsigned node = 0xa + rnd(r, 8);

    if (strcmp(op, "node_join") == 0)
        return snprintf(
            p, n,
            "'id': '%016x', 'name': 'n%x', 'addr': '10.0.0.%u:7470', 'role': '%s', 'token': 't%u', "
            "'now_s': %u",
            node + 0x100 * rnd(r, 2), node, node, rnd(r, 4) == 0 ? "witness" : "data", rnd(r, 20),
            rnd(r, 90));
    if (strcmp(op, "node_addr") == 0)
        return snprintf(p, n, "'id': '%016x', 'addr': '10.0.0.%u:74%u'", node, 0xa + rnd(r, 8),
                        70 + rnd(r, 3));
    return snprintf(p, n, "'name': 'n%x'", node);
}

static int gen_token(struct rng *r, const char *op, char *p, size_t n)
{
    if (strcmp(op, "token_add") == 0)
        return snprintf(p, n, "'id': 't%u', 'secret': 's', 'expires_s': 80, 'by': 'a', 'now_s': %u",
                        rnd(r, 20), rnd(r, 90));
    if (strcmp(op, "token_use") == 0)
        return snprintf(p, n, "'id': 't%u', 'node': '%016x', 'now_s': %u", rnd(r, 20), 0xa + rnd(r, 8),
                        rnd(r, 90));
    return snprintf(p, n, "'id': 't%u'", rnd(r, 20));
}

static int gen_session(struct rng *r, const struct pms_state *st, const struct pms_array_info *a,
                       const char *op, char *p, size_t n)
{
    const json_t *known = json_array_get(pms_state_sessions_json(st, a->name), rnd(r, 3));
    uint64_t tsih = 1 + rnd(r, 12), since = 1 + rnd(r, 400);
    unsigned node = a->primary >= 0 ? (unsigned)a->slots[a->primary].node_id : 0xa;

    if (strcmp(op, "session_login") == 0)
        return snprintf(
            p, n,
            "'initiator': 'iqn.x:%u', 'isid': '00023d%06x', 'params': {'a': %u}, 'peer': '10.9.0.1:%u', "
            "'node': '%016x'",
            rnd(r, 4), rnd(r, 4), rnd(r, 9), 1 + rnd(r, 9), node);
    pms_json_u64(known, "tsih", &tsih);
    pms_json_u64(known, "disconnected", &since);
    if (strcmp(op, "session_closed") == 0)
        return snprintf(p, n, "'tsih': %u, 'reason': '%s'", (unsigned)tsih,
                        rnd(r, 3) == 0 ? "logout" : "lost");
    return snprintf(p, n, "'tsih': %u, 'if_disconnected_index': %u", (unsigned)tsih, (unsigned)since);
}

static int gen_transition(struct rng *r, const struct pms_array_info *a, char *p, size_t n)
{
    static const char *const kinds[] = {"takeover", "refresh", "eject", "admit", "handover"};
    const char *kind = kinds[rnd(r, 5)];
    unsigned primary = a->primary >= 0 ? (unsigned)a->primary : 0;
    uint32_t set = a->in_sync;
    int at;

    if (strcmp(kind, "eject") == 0 || strcmp(kind, "takeover") == 0)
        set &= ~(1u << rnd(r, a->n_slots));
    if (strcmp(kind, "admit") == 0)
        set |= 1u << rnd(r, a->n_slots);
    if (strcmp(kind, "takeover") == 0 || strcmp(kind, "handover") == 0)
        primary = rnd(r, a->n_slots);
    at = snprintf(p, n, "'kind': '%s', 'epoch': %llu, 'primary': %u, 'in_sync': [", kind,
                  (unsigned long long)(a->epoch + (rnd(r, 10) == 0)), primary);
    for (unsigned i = 0, told = 0; i < a->n_slots; i++) {
        uint64_t incarnation = a->slots[i].incarnation;

        if ((set & (1u << i)) == 0)
            continue;
        if (!a->slots[i].in_sync)
            incarnation = 1 + rnd(r, 1000);
        at += snprintf(p + at, n - (size_t)at, "%s{'slot': %u, 'incarnation': '%016llx'}", told++ ? ", " : "",
                       i, (unsigned long long)incarnation);
    }
    return at + snprintf(p + at, n - (size_t)at, "]");
}

static int gen_array(struct rng *r, const struct pms_state *st, const char *op, char *p, size_t n)
{
    struct pms_array_info a = {.n_slots = 2, .primary = -1};
    unsigned number = rnd(r, 3), first = 0xa + rnd(r, 4), second = 0xa + (first - 0xa + 1 + rnd(r, 3)) % 4;
    char name[8];
    int at;

    snprintf(name, sizeof(name), "v%u", number);
    if (strcmp(op, "array_create") == 0)
        return snprintf(
            p, n,
            "'id': '%016x', 'name': '%s', 'level': 'raid1', 'size_bytes': %u, 'slots': [{'node': '%016x', "
            "'brick': %s}, {'node': '%016x', 'brick': null}], 'portal': {'addr': '10.1.0.%u', 'prefix': "
            "24, 'port': 3260}, 'iqn': 'iqn.x:%s', 'serial': 's%u'",
            0x100 + number, name, rnd(r, 5) << 20, first, rnd(r, 2) ? "null" : "'/dev/x'", second, number,
            name, number);
    pms_state_array_get_by_name(st, name, &a);
    at = snprintf(p, n, "'array': '%s', ", name);
    p += at;
    n -= (size_t)at;
    if (strncmp(op, "session_", 8) == 0)
        return at + gen_session(r, st, &a, op, p, n);
    if (strcmp(op, "array_transition") == 0)
        return at + gen_transition(r, &a, p, n);
    if (strcmp(op, "array_replace") == 0)
        return at + snprintf(p, n, "'slot': %u, 'node': '%016x', 'brick': null", rnd(r, 2), first);
    if (strcmp(op, "array_recover") == 0)
        return at +
               snprintf(p, n,
                        "'slot': %u, 'epoch': %llu, 'incarnation': '%016x', 'floor': %u, 'lost': ['%016x', "
                        "'%016x']",
                        rnd(r, 2), (unsigned long long)a.epoch + (rnd(r, 8) == 0), 1 + rnd(r, 50), rnd(r, 50),
                        first, second);
    return at + snprintf(p, n, "'slot': %u, 'incarnation': '%016x', 'force': %s", rnd(r, 2), 1 + rnd(r, 50),
                         rnd(r, 3) == 0 ? "true" : "false");
}

// Writes one command with " for ' and returns its length.
static size_t gen(struct rng *r, const struct pms_state *st, unsigned op, char *p, size_t n)
{
    // What ends things is rarer, so that arrays live a while.
    bool rare = strstr(op_names[op], "delete") != NULL || strncmp(op_names[op], "node_", 5) == 0 ||
                strcmp(op_names[op], "cluster_recover") == 0;
    const char *name = rare && rnd(r, 8) != 0 ? "array_transition" : op_names[op];
    uint64_t seq = pms_state_index(st) + 100 - (rnd(r, 8) == 0 ? rnd(r, 80) : 0); // some are sent again
    int at = snprintf(p, n, "{'op': '%s', 'client': '%016x', 'seq': %llu, ", name, 1 + rnd(r, 3),
                      (unsigned long long)seq);

    if (strncmp(name, "node_", 5) == 0)
        at += gen_node(r, name, p + at, n - (size_t)at);
    else if (strncmp(name, "token_", 6) == 0)
        at += gen_token(r, name, p + at, n - (size_t)at);
    else if (strcmp(name, "cluster_recover") == 0)
        at += snprintf(p + at, n - (size_t)at, "'lost': ['%016x']", 0xa + rnd(r, 4));
    else if (strcmp(name, "settings_set") == 0)
        at += snprintf(p + at, n - (size_t)at, "'key': '%s', 'value': %u",
                       pms_setting_name(rnd(r, PMS_SETTINGS)), rnd(r, 2000));
    else
        at += gen_array(r, st, name, p + at, n - (size_t)at);
    at += snprintf(p + at, n - (size_t)at, "}");
    assert_in_range(at, 0, n - 1);
    for (int i = 0; i < at; i++)
        if (p[i] == '\'')
            p[i] = '"';
    return (size_t)at;
}

// Nodes na, nb and nc, named as the generator names them.
static int setup_random(void **state)
{
    struct fixture *f;

    f_setup(state);
    f = *state;
    f_ok(f, "{'op': 'cluster_init', 'id': '00112233445566778899aabbccddeeff', 'name': 'store', "
            "'node': {'id': '" NODE_A "', 'name': 'na', 'addr': '10.0.0.10:7470'}}");
    f_join(f, NODE_B, "nb", "10.0.0.11:7470", "data");
    f_join(f, NODE_C, "nc", "10.0.0.12:7470", "data");
    return 0;
}

static char *encode(const struct pms_state *st)
{
    size_t len;
    char *text = pms_state_encode(st, &len);

    assert_int_equal(len, strlen(text));
    return text;
}

static struct pms_state *decode(const char *text)
{
    struct pms_state *st = NULL;

    assert_int_equal(pms_state_decode(text, strlen(text), &st), 0);
    return st;
}

// ---- Dispatch ----

static void test_op_when_unknown_or_too_new_then_refused(void **state)
{
    struct fixture *f = *state;

    f_refused(f, PMS_EPROTO, "unknown op", "{'op': 'array_grow'}");
    f_refused(f, PMS_EPROTO, "unknown op", "{'op': 7}");
    f_refused(f, PMS_EPROTO, "unknown op", "{'op': ''}");
    f_refused(f, PMS_EPROTO, "unknown op", "{'id': 'x'}");
    f_refused(f, PMS_EVERSION, "level 1", "{'op': 'token_revoke', 'id': 'x', 'feature_level': 2}");
    f_refused(f, PMS_EVERSION, "level 1", "{'op': 'array_grow', 'feature_level': 2}");
    f_refused(f, PMS_EPROTO, "feature_level", "{'op': 'token_revoke', 'id': 'x', 'feature_level': 'new'}");
    f_refused(f, PMS_ENOTFOUND, "no token", "{'op': 'token_revoke', 'id': 'x', 'feature_level': 1}");
    f_refused(f, PMS_ENOTFOUND, "no token", "{'op': 'token_revoke', 'id': 'x', 'feature_level': 0}");
}

static void test_command_when_padded_then_taken(void **state)
{
    static const char text[] =
        "{\"client\": \"0000000000000005\", \"seq\": 1, \"op\": \"token_add\", \"id\": \"t\", "
        "\"secret\": \"s\", \"expires_s\": 9, \"by\": \"a\"} \0\0\0  \0";
    struct fixture *f = *state;

    assert_true(pms_json_bool(f_apply_raw(f, text, sizeof(text) - 1), "ok", false));
    assert_non_null(pms_state_token_json(f->st, "t"));
}

static void test_command_when_no_object_or_too_long_then_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "   ",
                                        "[]",
                                        "1",
                                        "null",
                                        "{",
                                        "{}",
                                        "{} x",
                                        "{\"op\"}",
                                        "\xff\xfe",
                                        "{\"op\": \"token_revoke\", \"op\": \"token_add\"}"};
    char *deep = malloc(100000), *big;
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        f_apply_raw(f, texts[i], strlen(texts[i]));
        assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EPROTO");
    }
    memset(deep, '[', 100000);
    f_apply_raw(f, deep, 100000);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EPROTO");
    f_apply_raw(f, deep, 60000);
    assert_string_equal(pms_json_str(f->result, "error", ""), "PMS_EPROTO");
    big = malloc(PMS_STATE_COMMAND_BYTES_MAX + 100);
    snprintf(big, PMS_STATE_COMMAND_BYTES_MAX + 100, "{\"client\": \"%s\", \"seq\": 9999, \"op\": \"%*s\"}",
             CLIENT, PMS_STATE_COMMAND_BYTES_MAX, "x");
    f_apply_raw(f, big, strlen(big));
    assert_non_null(strstr(pms_json_str(f->result, "text", ""), "at most"));
    free(big);
    free(deep);
}

static void test_index_when_applied_then_it_is_the_last_one_even_after_garbage(void **state)
{
    struct fixture *f = *state;
    uint64_t index = pms_state_index(f->st);

    free(pms_state_apply(f->st, "x", 1, index + 7));
    assert_int_equal(pms_state_index(f->st), index + 7);
}

// ---- Snapshots ----

static void test_snapshot_when_empty_then_restored(void **state)
{
    struct fixture *f = *state;
    char *text = encode(f->st), *again;
    struct pms_state *st = decode(text);

    again = encode(st);
    assert_string_equal(text, again);
    assert_false(pms_state_has_cluster(st));
    pms_state_destroy(st);
    free(text);
    free(again);
}

static void test_snapshot_when_newer_or_damaged_then_refused(void **state)
{
    static const struct {
        const char *from, *to;
        int err;
    } cases[] = {
        {"\"format\":1", "\"format\":2", PMS_EVERSION},
        {"\"feature_level\":1", "\"feature_level\":2", PMS_EVERSION},
        {"\"format\":1", "\"format\":\"1\"", PMS_ECORRUPT},
        {"\"feature_level\":1", "\"feature_level\":0", PMS_ECORRUPT},
        {"\"dedup\"", "\"dudep\"", PMS_ECORRUPT},
        {"\"primary\":0", "\"primary\":2", PMS_ECORRUPT},
        {"\"primary\":0", "\"primary\":null", PMS_ECORRUPT},
        {"\"primary\":0", "\"primary\":1", 0}, // another history, but a possible one
        {"\"epoch\":1", "\"epoch\":0", PMS_ECORRUPT},
        {"\"slot\":1", "\"slot\":0", PMS_ECORRUPT},
        {"\"slot\":1", "\"slot\":7", PMS_ECORRUPT},
        {"\"phase\":\"ready\"", "\"phase\":\"creating\"", PMS_ECORRUPT},
        {"\"phase\":\"ready\"", "\"phase\":\"deleting\"", PMS_ECORRUPT},
        {"\"phase\":\"ready\"", "\"phase\":\"rusty\"", PMS_ECORRUPT},
        {"\"level\":\"raid1\"", "\"level\":\"raid7\"", PMS_ECORRUPT},
        {"\"size_bytes\":1048576", "\"size_bytes\":1048577", PMS_ECORRUPT},
        {"\"role\":\"data\"", "\"role\":\"witness\"", PMS_ECORRUPT}, // of node a, which holds a slot
        {"\"node\":\"000000000000000b\"", "\"node\":\"000000000000000a\"", PMS_ECORRUPT},
        {"\"node\":\"000000000000000b\"", "\"node\":\"00000000000000bb\"", PMS_ECORRUPT},
        {"\"incarnation\":\"0000000000000002\"", "\"incarnation\":\"0000000000000005\"", PMS_ECORRUPT},
        {"\"addr\":\"10.0.0.2:7470\"", "\"addr\":\"10.0.0.1:7470\"", PMS_ECORRUPT},
        {"\"addr\":\"10.0.0.2:7470\"", "\"addr\":\"10.0.1.1:7470\"", PMS_ECORRUPT}, // the array's portal
        {"\"settings\":{}", "\"settings\":{\"lease_ms\":9999}", PMS_ECORRUPT},
        {"\"sessions\":{\"v\":[]}", "\"sessions\":{}", PMS_ECORRUPT},
        {"\"sessions\":{\"v\":[]}", "\"sessions\":{\"u\":[]}", PMS_ECORRUPT},
        {"\"tsih_last\":0", "\"tsih_last\":65536", PMS_ECORRUPT},
        {"\"tsih_last\":0", "\"tsih_last\":0.0", PMS_ECORRUPT},
        {"\"secret\":\"s\"", "\"secret\":5", PMS_ECORRUPT},
    };
    struct fixture *f = *state;
    char *text, *copy;
    size_t size;

    f_array(f, "v", 1, 2);
    text = encode(f->st);
    size = strlen(text) + 100;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pms_state *st = NULL;
        char *at = strstr(text, cases[i].from);
        int rv;

        if (at == NULL)
            fail_msg("case %zu: no %s in %s", i, cases[i].from, text);
        copy = malloc(size);
        if (copy == NULL)
            abort();
        snprintf(copy, size, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        rv = pms_state_decode(copy, strlen(copy), &st);
        if (rv != cases[i].err)
            fail_msg("case %zu: %s for %s gives %s", i, cases[i].to, cases[i].from, pms_err_name(rv));
        assert_int_equal(rv == 0, st != NULL);
        pms_state_destroy(st);
        free(copy);
    }
    free(text);
}

static void test_snapshot_when_cut_anywhere_then_refused(void **state)
{
    struct fixture *f = *state;
    struct pms_state *st = NULL;
    char *text;
    size_t len;

    f_array(f, "v", 1, 2);
    text = encode(f->st);
    len = strlen(text);
    for (size_t n = 0; n < len; n++)
        assert_int_equal(pms_state_decode(text, n, &st), PMS_ECORRUPT);
    assert_null(st);
    free(text);
}

// ---- Random histories ----

// Two copies see the same commands; one of them is replaced by its own restored snapshot now and then. They
// must stay the same, byte for byte, whatever the order in which their objects were filled.
static void history_run(struct fixture *f, uint64_t seed, unsigned steps, unsigned ok_count[OPS])
{
    struct rng r = {seed * 0x9e3779b97f4a7c15ull + 1};
    char *text = encode(f->st), *other_text, cmd[4096];
    struct pms_state *other = decode(text);

    free(text);
    for (unsigned i = 0; i < steps; i++) {
        unsigned op = rnd(&r, OPS);
        size_t len = gen(&r, f->st, op, cmd, sizeof(cmd));
        char *mine, *theirs;

        f_apply_raw(f, cmd, len);
        if (pms_json_bool(f->result, "ok", false))
            for (unsigned k = 0; k < OPS; k++)
                if (strncmp(cmd + 8, op_names[k], strlen(op_names[k])) == 0)
                    ok_count[k]++;
        mine = pms_json_dump_compact(f->result);
        theirs = pms_state_apply(other, cmd, len, pms_state_index(f->st));
        if (strcmp(mine, theirs) != 0)
            fail_msg("seed %llu step %u: %s: %s is not %s", (unsigned long long)seed, i, cmd, mine, theirs);
        free(mine);
        free(theirs);
        text = encode(f->st);
        other_text = encode(other);
        if (strcmp(text, other_text) != 0)
            fail_msg("seed %llu step %u: %s: states differ", (unsigned long long)seed, i, cmd);
        if (i % 20 == 19) {
            pms_state_destroy(other);
            other = decode(text);
        }
        free(text);
        free(other_text);
    }
    pms_state_destroy(other);
}

static void test_history_when_random_then_both_copies_agree_and_every_op_has_worked(void **state)
{
    unsigned ok_count[OPS] = {0};

    for (uint64_t seed = 1; seed <= 10; seed++) {
        void *fresh = NULL;

        setup_random(&fresh);
        history_run(fresh, seed, 600, ok_count);
        f_teardown(&fresh);
    }
    for (unsigned k = 0; k < OPS; k++)
        if (ok_count[k] == 0)
            fail_msg("%s never worked: the histories test nothing of it", op_names[k]);
    (void)state;
}

// ---- Garbage ----

// Changes one to three bytes, or cuts, or doubles a piece.
static size_t mutate(struct rng *r, char *text, size_t len, size_t cap)
{
    size_t at = rnd(r, (uint32_t)len), n = 1 + rnd(r, 8);

    switch (rnd(r, 5)) {
    case 0:
        text[at] = (char)rnd(r, 256);
        return len;
    case 1:
        text[at] = "{}[]\",:0123456789-.eE\\ntf"[rnd(r, 25)];
        return len;
    case 2: // cut a piece out
        if (at + n > len)
            n = len - at;
        memmove(text + at, text + at + n, len - at - n);
        return len - n;
    case 3: // double a piece
        if (at + n > len || len + n > cap)
            return len;
        memmove(text + at + n, text + at, len - at);
        return len + n;
    default:
        return at;
    }
}

static void test_command_when_mutated_then_no_harm(void **state)
{
    struct fixture *f = *state;
    struct rng r = {42};
    char cmd[8192];

    for (unsigned i = 0; i < 6000; i++) {
        size_t len = gen(&r, f->st, rnd(&r, OPS), cmd, sizeof(cmd));

        for (unsigned k = 1 + rnd(&r, 3); k > 0 && len > 0; k--)
            len = mutate(&r, cmd, len, sizeof(cmd));
        f_apply_raw(f, cmd, len); // holds it to the invariants, and a refusal to no change
    }
}

// A random value in the place of a random member, at any depth.
static void value_replace(struct rng *r, json_t *obj)
{
    static const char *const values[] = {
        "null",
        "true",
        "0",
        "-1",
        "9223372036854775807",
        "1.5",
        "\"\"",
        "\"x\"",
        "\"0000000000000001\"",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "{\"a\":1}",
        "\"\\u00e4\"",
        "\"/\"",
        "65536",
        "[0,0]",
    };
    json_t *value = json_loads(values[rnd(r, sizeof(values) / sizeof(values[0]))], JSON_DECODE_ANY, NULL);
    uint32_t n = (uint32_t)(json_is_object(obj) ? json_object_size(obj) : json_array_size(obj)), at;
    json_t *member;
    void *it = NULL;

    if (n == 0) {
        json_decref(value);
        return;
    }
    at = rnd(r, n);
    if (json_is_array(obj)) {
        member = json_array_get(obj, at);
    } else {
        for (it = json_object_iter(obj); at > 0; at--)
            it = json_object_iter_next(obj, it);
        member = json_object_iter_value(it);
    }
    if ((json_is_object(member) || json_is_array(member)) && rnd(r, 3) != 0) {
        value_replace(r, member);
        json_decref(value);
    } else if (json_is_array(obj)) {
        json_array_set_new(obj, at, value);
    } else {
        json_object_set_new(obj, json_object_iter_key(it), value);
    }
}

static void test_command_when_its_values_are_replaced_then_no_harm(void **state)
{
    struct fixture *f = *state;
    struct rng r = {43};
    char cmd[8192];

    for (unsigned i = 0; i < 4000; i++) {
        size_t len = gen(&r, f->st, rnd(&r, OPS), cmd, sizeof(cmd));
        json_t *json = json_loadb(cmd, len, 0, NULL);
        char *text;

        assert_non_null(json);
        for (unsigned k = 1 + rnd(&r, 2); k > 0; k--)
            value_replace(&r, json);
        text = pms_json_dump_compact(json);
        f_apply_raw(f, text, strlen(text));
        free(text);
        json_decref(json);
    }
}

static void test_snapshot_when_its_values_are_replaced_then_refused_or_whole(void **state)
{
    unsigned ok_count[OPS] = {0}, taken = 0;
    struct fixture *f = *state;
    struct rng r = {44};
    char *whole, cmd[8192], why[256];

    history_run(f, 3, 300, ok_count);
    whole = encode(f->st);
    for (unsigned i = 0; i < 3000; i++) {
        json_t *json = json_loads(whole, 0, NULL);
        struct pms_state *st = NULL;
        char *text;

        value_replace(&r, json);
        text = pms_json_dump_compact(json);
        if (pms_state_decode(text, strlen(text), &st) == 0) {
            taken++;
            // Whatever was taken can be worked with.
            for (unsigned k = 0; k < 5 && pms_state_index(st) < 1000000; k++) {
                size_t len = gen(&r, st, rnd(&r, OPS), cmd, sizeof(cmd));

                free(pms_state_apply(st, cmd, len, pms_state_index(st) + 1));
                if (pms_state_check(st, why, sizeof(why)) != 0)
                    fail_msg("%s breaks %s: %s", cmd, text, why);
            }
            pms_state_destroy(st);
        }
        free(text);
        json_decref(json);
    }
    assert_in_range(taken, 1, 2999);
    free(whole);
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, f_setup, f_teardown)
#define T(test) cmocka_unit_test_setup_teardown(test, f_setup_cluster, f_teardown)
#define R(test) cmocka_unit_test_setup_teardown(test, setup_random, f_teardown)
    const struct CMUnitTest tests[] = {
        T(test_op_when_unknown_or_too_new_then_refused),
        T(test_command_when_padded_then_taken),
        T(test_command_when_no_object_or_too_long_then_refused),
        T(test_index_when_applied_then_it_is_the_last_one_even_after_garbage),
        E(test_snapshot_when_empty_then_restored),
        T(test_snapshot_when_newer_or_damaged_then_refused),
        T(test_snapshot_when_cut_anywhere_then_refused),
        E(test_history_when_random_then_both_copies_agree_and_every_op_has_worked),
        R(test_command_when_mutated_then_no_harm),
        R(test_command_when_its_values_are_replaced_then_no_harm),
        R(test_snapshot_when_its_values_are_replaced_then_refused_or_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
