// SPDX-License-Identifier: GPL-2.0-or-later
// The state machine itself: create, apply (one dispatch table), snapshot.
//
// A command goes well: parse, look up (client, seq), check the level, run the op's handler, remember the
// result. What can go wrong, each time with an error result and nothing else changed: it is no JSON object;
// client or seq is missing; it is a repetition (then the first result is given again); the op is unknown or
// too new; the handler refuses.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/version.h"

#include <string.h>

enum { STATE_FORMAT = 1 };

static const struct pms_op ops[] = {
    {"cluster_init", pms_on_cluster_init, 1, true},
    {"cluster_upgrade", pms_on_cluster_upgrade, 1, false},
    {"node_level", pms_on_node_level, 1, false},
    {"token_add", pms_on_token_add, 1, false},
    {"token_use", pms_on_token_use, 1, false},
    {"token_revoke", pms_on_token_revoke, 1, false},
    {"node_join", pms_on_node_join, 1, false},
    {"node_addr", pms_on_node_addr, 1, false},
    {"node_leave", pms_on_node_leave, 1, false},
    {"cluster_recover", pms_on_cluster_recover, 1, false},
    {"settings_set", pms_on_settings_set, 1, false},
    {"array_create", pms_on_array_create, 1, false},
    {"array_slot_zeroed", pms_on_array_slot_zeroed, 1, false},
    {"array_commit", pms_on_array_commit, 1, false},
    {"array_transition", pms_on_array_transition, 1, false},
    {"array_recover", pms_on_array_recover, 1, false},
    {"array_replace", pms_on_array_replace, 1, false},
    {"array_set", pms_on_array_set, 1, false},
    {"array_delete", pms_on_array_delete, 1, false},
    {"array_slot_removed", pms_on_array_slot_removed, 1, false},
    {"array_forget", pms_on_array_forget, 1, false},
    {"session_login", pms_on_session_login, 1, false},
    {"session_closed", pms_on_session_closed, 1, false},
    {"session_expire", pms_on_session_expire, 1, false},
};

static void sections_bind(struct pms_state *st)
{
#define BIND(name) st->name = json_object_get(st->root, #name);
    PMS_STATE_SECTIONS(BIND)
#undef BIND
}

struct pms_state *pms_state_create(void)
{
    struct pms_state *st = calloc(1, sizeof(*st));

    PMS_CHECK_MSG(st != NULL, "out of memory");
    st->root = pms_must(json_object());
    PMS_MUST(pms_json_set_u64(st->root, "format", STATE_FORMAT));
    PMS_MUST(pms_json_set_u64(st->root, "index", 0));
#define ADD(name) PMS_MUST(json_object_set_new(st->root, #name, json_object()));
    PMS_STATE_SECTIONS(ADD)
#undef ADD
    sections_bind(st);
    return st;
}

void pms_state_destroy(struct pms_state *st)
{
    if (st == NULL)
        return;
    json_decref(st->root);
    free(st);
}

uint64_t pms_state_index(const struct pms_state *st)
{
    uint64_t index = 0;

    PMS_CHECK(pms_json_u64(st->root, "index", &index) == 0);
    return index;
}

// ---- Apply ----

static const struct pms_op *op_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    for (size_t i = 0; name != NULL && i < pms_ops_next_n; i++)
        if (strcmp(pms_ops_next[i].name, name) == 0)
            return &pms_ops_next[i];
    return NULL;
}

unsigned pms_state_op_level(const char *op)
{
    const struct pms_op *found = op_find(op);

    return found != NULL ? found->level : 0;
}

static int dispatch(struct pms_apply *a)
{
    const char *name = pms_json_str(a->cmd, "op", NULL);
    unsigned known = pms_state_feature_level(a->st);
    const struct pms_op *op = op_find(name);
    uint64_t level = 1;

    if (json_object_get(a->cmd, "feature_level") != NULL &&
        pms_json_u64(a->cmd, "feature_level", &level) != 0)
        return pms_refuse(a, PMS_EPROTO, "\"feature_level\" must be a whole number");
    if (level > known)
        return pms_refuse(a, PMS_EVERSION, "the cluster is at feature level %u: upgrade every node first",
                          known);
    // An op of a newer level does not exist yet, also where it is known: every build gives the same result.
    if (op == NULL || op->level > known)
        return pms_refuse(a, PMS_EPROTO, "unknown op %.63s at feature level %u",
                          name != NULL ? name : "(none)", known);
    if (!op->without_cluster && !pms_state_has_cluster(a->st))
        return pms_refuse(a, PMS_EREFUSED, "there is no cluster yet: run pmsctl cluster init or join");
    return op->handler(a);
}

// The command as an object with client and seq, or NULL and a refusal.
static json_t *command_parse(struct pms_apply *a, const char *buf, size_t len, char client[PMS_ID_TEXT_SIZE],
                             uint64_t *seq)
{
    json_t *cmd = NULL;
    uint64_t id = 0;

    while (len > 0 && (buf[len - 1] == '\0' || buf[len - 1] == ' '))
        len--;
    if (len > PMS_STATE_COMMAND_BYTES_MAX) {
        pms_refuse(a, PMS_EPROTO, "a command is at most %d bytes", PMS_STATE_COMMAND_BYTES_MAX);
        return NULL;
    }
    cmd = json_loadb(buf, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(cmd))
        pms_refuse(a, PMS_EPROTO, "a command is a JSON object");
    else if (pms_json_id(cmd, "client", &id) != 0 || id == 0)
        pms_refuse(a, PMS_EPROTO, "\"client\" must be 16 hex digits, not all zero");
    else if (pms_json_u64(cmd, "seq", seq) != 0)
        pms_refuse(a, PMS_EPROTO, "\"seq\" must be a whole number");
    else {
        pms_id_format(id, client);
        return cmd;
    }
    json_decref(cmd);
    return NULL;
}

char *pms_state_apply(struct pms_state *st, const char *buf, size_t len, uint64_t index)
{
    struct pms_apply a = {.st = st, .index = index, .result = pms_must(json_object())};
    char client[PMS_ID_TEXT_SIZE], *text;
    json_t *cmd = NULL, *before;
    bool forgotten = false;
    uint64_t seq = 0;

    PMS_CHECK_MSG(index > pms_state_index(st) && index <= INT64_MAX, "log index %llu after %llu",
                  (unsigned long long)index, (unsigned long long)pms_state_index(st));
    PMS_MUST(pms_json_set_u64(st->root, "index", index));
    cmd = command_parse(&a, buf, len, client, &seq);
    if (cmd == NULL)
        goto out;
    a.cmd = cmd;
    before = pms_dedup_find(st, client, seq, &forgotten);
    if (before != NULL) {
        json_decref(a.result);
        a.result = json_incref(before);
        goto out;
    }
    if (forgotten) {
        pms_refuse(&a, PMS_EUNKNOWN,
                   "command %llu is older than what is remembered of its sender: read the state back",
                   (unsigned long long)seq);
        goto out;
    }
    if (dispatch(&a) == 0)
        PMS_MUST(pms_json_set_bool(a.result, "ok", true));
    pms_dedup_store(st, client, seq, index, a.result);
out:
    json_decref(cmd);
    text = pms_json_dump_compact(a.result);
    PMS_CHECK_MSG(text != NULL, "out of memory");
    json_decref(a.result);
    return text;
}

// ---- Snapshot ----

char *pms_state_encode(const struct pms_state *st, size_t *len)
{
    char *text = pms_json_dump_compact(st->root);

    PMS_CHECK_MSG(text != NULL, "out of memory");
    *len = strlen(text);
    return text;
}

int pms_state_decode(const char *buf, size_t len, struct pms_state **out)
{
    struct pms_state st = {0};
    uint64_t format = 0, level = 0;
    char why[256];
    int rv = PMS_ECORRUPT;

    while (len > 0 && buf[len - 1] == '\0')
        len--;
    st.root = json_loadb(buf, len, JSON_REJECT_DUPLICATES, NULL);
    if (pms_json_u64(st.root, "format", &format) != 0)
        goto out;
    if (format != STATE_FORMAT) {
        rv = PMS_EVERSION;
        goto out;
    }
    sections_bind(&st);
    if (pms_json_u64(st.cluster, "feature_level", &level) == 0 && level > pms_feature_level_max) {
        rv = PMS_EVERSION;
        goto out;
    }
    rv = pms_state_check(&st, why, sizeof(why));
    if (rv != 0)
        goto out;
    *out = calloc(1, sizeof(**out));
    PMS_CHECK_MSG(*out != NULL, "out of memory");
    **out = st;
    return 0;
out:
    json_decref(st.root);
    return rv;
}
