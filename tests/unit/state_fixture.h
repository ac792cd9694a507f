// SPDX-License-Identifier: GPL-2.0-or-later
// For the tests of the cluster state: applies commands written shortly, and holds every step to what is
// always true.
//
// Commands are JSON with ' for ", without client and seq: f_ok(f, "{'op': 'array_commit', 'array': '%s'}",
// "a").
#ifndef PMS_TESTS_UNIT_STATE_FIXTURE_H
#define PMS_TESTS_UNIT_STATE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "consensus/core/state.h"

// The nodes of f_cluster: three that store data, one witness.
#define NODE_A "000000000000000a"
#define NODE_B "000000000000000b"
#define NODE_C "000000000000000c"
#define NODE_W "000000000000000f"

#define CLIENT "00000000c11e0001"

struct fixture {
    struct pms_state *st;
    uint64_t seq;
    json_t *result; // of the last command; freed by the next one
};

// The state without what every command changes: the index and the memory of commands. Free it.
static inline char *f_core(const struct pms_state *st)
{
    json_t *copy = json_copy((json_t *)pms_state_tree(st));
    char *text;

    json_object_del(copy, "index");
    json_object_del(copy, "dedup");
    text = pms_json_dump_compact(copy);
    json_decref(copy);
    return text;
}

static inline void f_check(const struct fixture *f)
{
    char why[256];

    if (pms_state_check(f->st, why, sizeof(why)) != 0)
        fail_msg("invariant: %s", why);
}

// Applies a whole command as it is. A refusal must have changed nothing.
static inline const json_t *f_apply_raw(struct fixture *f, const char *cmd, size_t len)
{
    char *before = f_core(f->st), *after, *text;

    text = pms_state_apply(f->st, cmd, len, pms_state_index(f->st) + 1);
    assert_non_null(text);
    json_decref(f->result);
    f->result = json_loads(text, 0, NULL);
    assert_true(json_is_boolean(json_object_get(f->result, "ok")));
    after = f_core(f->st);
    if (!pms_json_bool(f->result, "ok", false)) {
        assert_string_equal(before, after);
        assert_int_not_equal(strlen(pms_json_str(f->result, "text", "")), 0);
    }
    f_check(f);
    free(text);
    free(before);
    free(after);
    return f->result;
}

__attribute__((format(printf, 2, 0))) static inline const json_t *f_vapply(struct fixture *f, const char *fmt,
                                                                           va_list ap)
{
    static char text[65536];
    int n =
        snprintf(text, sizeof(text), "{'client': '%s', 'seq': %llu, ", CLIENT, (unsigned long long)++f->seq);

    n += vsnprintf(text + n, sizeof(text) - (size_t)n, fmt[0] == '{' ? fmt + 1 : fmt, ap);
    assert_in_range(n, 0, sizeof(text) - 1);
    for (char *p = text; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    return f_apply_raw(f, text, (size_t)n);
}

__attribute__((format(printf, 2, 3))) static inline const json_t *f_apply(struct fixture *f, const char *fmt,
                                                                          ...)
{
    va_list ap;

    va_start(ap, fmt);
    f_vapply(f, fmt, ap);
    va_end(ap);
    return f->result;
}

__attribute__((format(printf, 2, 3))) static inline const json_t *f_ok(struct fixture *f, const char *fmt,
                                                                       ...)
{
    va_list ap;

    va_start(ap, fmt);
    f_vapply(f, fmt, ap);
    va_end(ap);
    if (!pms_json_bool(f->result, "ok", false))
        fail_msg("refused: %s: %s", fmt, pms_json_str(f->result, "text", "?"));
    return f->result;
}

// The command must be refused with err, and, unless word is NULL, with word in the text.
__attribute__((format(printf, 4, 5))) static inline void f_refused(struct fixture *f, int err,
                                                                   const char *word, const char *fmt, ...)
{
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    f_vapply(f, fmt, ap);
    va_end(ap);
    text = pms_json_str(f->result, "text", "");
    if (pms_json_bool(f->result, "ok", true))
        fail_msg("not refused: %s", fmt);
    if (strcmp(pms_json_str(f->result, "error", ""), pms_err_name(err)) != 0)
        fail_msg("%s: %s (%s), not %s", fmt, pms_json_str(f->result, "error", ""), text, pms_err_name(err));
    if (word != NULL && strstr(text, word) == NULL)
        fail_msg("%s: the text \"%s\" says nothing of \"%s\"", fmt, text, word);
}

static inline uint64_t f_u64(const struct fixture *f, const char *key)
{
    uint64_t v = 0;

    assert_int_equal(pms_json_u64(f->result, key, &v), 0);
    return v;
}

static inline void f_join(struct fixture *f, const char *id, const char *name, const char *addr,
                          const char *role)
{
    f_ok(f, "{'op': 'token_add', 'id': 't%s', 'secret': 's', 'expires_s': 100, 'by': 'a'}", id);
    f_ok(f,
         "{'op': 'node_join', 'id': '%s', 'name': '%s', 'addr': '%s', 'role': '%s', 'token': 't%s', 'now_s': "
         "9}",
         id, name, addr, role, id);
}

static inline void f_init_cluster(struct fixture *f)
{
    f_ok(f, "{'op': 'cluster_init', 'id': '00112233445566778899aabbccddeeff', 'name': 'store', "
            "'node': {'id': '" NODE_A "', 'name': 'a', 'addr': '10.0.0.1:7470'}}");
}

// Nodes a, b, c and the witness w.
static inline void f_cluster(struct fixture *f)
{
    f_init_cluster(f);
    f_join(f, NODE_B, "b", "10.0.0.2:7470", "data");
    f_join(f, NODE_C, "c", "10.0.0.3:7470", "data");
    f_join(f, NODE_W, "w", "10.0.0.9:7470", "witness");
}

// The id of array number n, as text.
static inline const char *f_array_id(unsigned n, char buf[17])
{
    snprintf(buf, 17, "%016x", 0xa0000 + n);
    return buf;
}

// An array on nodes a, b (and c if copies is 3), in phase creating.
static inline void f_array_creating(struct fixture *f, const char *name, unsigned n, unsigned copies)
{
    char id[17];

    f_ok(f,
         "{'op': 'array_create', 'id': '%s', 'name': '%s', 'level': 'raid1', 'size_bytes': 1048576, "
         "'slots': [{'node': '" NODE_A "', 'brick': null}, {'node': '" NODE_B "', 'brick': null}%s], "
         "'portal': {'addr': '10.0.1.%u', 'prefix': 24, 'port': 3260}, "
         "'iqn': 'iqn.2026-11.io.pms:00112233:%s', 'serial': 'S%u'}",
         f_array_id(n, id), name, copies == 3 ? ", {'node': '" NODE_C "', 'brick': null}" : "", n, name, n);
}

// The same in phase ready, epoch 1; slot i has incarnation i + 1.
static inline void f_array(struct fixture *f, const char *name, unsigned n, unsigned copies)
{
    f_array_creating(f, name, n, copies);
    for (unsigned i = 0; i < copies; i++)
        f_ok(f, "{'op': 'array_slot_zeroed', 'array': '%s', 'slot': %u, 'incarnation': '%016x'}", name, i,
             i + 1);
    f_ok(f, "{'op': 'array_commit', 'array': '%s'}", name);
}

// in_sync of a transition: "012" is slots 0, 1, 2 with incarnations 1, 2, 3; a letter after a digit ("1x")
// gives the slot another incarnation.
static inline const char *f_set(const char *spec, char buf[512])
{
    int n = snprintf(buf, 512, "[");

    for (const char *p = spec; *p != '\0'; p++) {
        unsigned slot = (unsigned)(*p - '0'), incarnation = slot + 1;

        if (p[1] >= 'a') {
            incarnation += 0x100u * (unsigned)p[1];
            p++;
        }
        n += snprintf(buf + n, 512 - (size_t)n, "%s{'slot': %u, 'incarnation': '%016x'}", n > 1 ? ", " : "",
                      slot, incarnation);
    }
    snprintf(buf + n, 512 - (size_t)n, "]");
    return buf;
}

static inline const json_t *f_transition(struct fixture *f, const char *array, const char *kind,
                                         uint64_t epoch, unsigned primary, const char *set)
{
    char buf[512];

    return f_apply(f,
                   "{'op': 'array_transition', 'array': '%s', 'kind': '%s', 'epoch': %llu, 'primary': %u, "
                   "'in_sync': %s}",
                   array, kind, (unsigned long long)epoch, primary, f_set(set, buf));
}

static inline struct pms_array_info f_info(const struct fixture *f, const char *name)
{
    struct pms_array_info info;

    assert_int_equal(pms_state_array_get_by_name(f->st, name, &info), 0);
    return info;
}

// cmocka's setup and teardown: an empty state.
static inline int f_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->st = pms_state_create();
    *state = f;
    return 0;
}

static inline int f_setup_cluster(void **state)
{
    f_setup(state);
    f_cluster(*state);
    return 0;
}

static inline int f_teardown(void **state)
{
    struct fixture *f = *state;

    json_decref(f->result);
    pms_state_destroy(f->st);
    free(f);
    return 0;
}

#endif
