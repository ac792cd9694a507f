// SPDX-License-Identifier: GPL-2.0-or-later
// Every invariant of the state's tree: what a snapshot must satisfy to be taken, and what tests hold every
// state to.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

#include <stdarg.h>
#include <string.h>

struct report {
    char *why;
    size_t len;
};

__attribute__((format(printf, 2, 3))) static bool broken(const struct report *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->why, r->len, fmt, ap);
    va_end(ap);
    return false;
}

static bool is_id_text(const char *s)
{
    uint64_t id = 0;
    char text[PMS_ID_TEXT_SIZE];

    return s != NULL && pms_id_parse(s, &id) == 0 && id != 0 && strcmp(pms_id_format(id, text), s) == 0;
}

static bool root_ok(const struct pms_state *st, const struct report *r)
{
    uint64_t index = 0;
    size_t members = 2; // format, index

    if (!json_is_object(st->root) || pms_json_u64(st->root, "index", &index) != 0)
        return broken(r, "no index");
#define CHECK_SECTION(name)                                                                                  \
    if (!json_is_object(st->name))                                                                           \
        return broken(r, "no section " #name);                                                               \
    members++;
    PMS_STATE_SECTIONS(CHECK_SECTION)
#undef CHECK_SECTION
    if (json_object_size(st->root) != members)
        return broken(r, "unknown section");
    return true;
}

static bool cluster_ok(const struct pms_state *st, const struct report *r)
{
    const char *id = pms_json_str(st->cluster, "id", "");
    char text[PMS_UUID_TEXT_SIZE];
    struct pms_uuid uuid;
    uint64_t level = 0;

    if (json_object_size(st->cluster) == 0) {
        if (json_object_size(st->nodes) + json_object_size(st->arrays) + json_object_size(st->tokens) +
                json_object_size(st->settings) >
            0)
            return broken(r, "contents without a cluster");
        return true;
    }
    if (json_object_size(st->cluster) != 3 || pms_uuid_parse(id, &uuid) != 0 ||
        strcmp(pms_uuid_format(&uuid, text), id) != 0 ||
        !pms_name_valid(pms_json_str(st->cluster, "name", "")) ||
        pms_json_u64(st->cluster, "feature_level", &level) != 0 || level == 0 || level > PMS_LEVEL_LIMIT)
        return broken(r, "cluster's identity");
    if (json_object_size(st->nodes) == 0)
        return broken(r, "a cluster without nodes");
    return true;
}

static bool nodes_ok(const struct pms_state *st, const struct report *r)
{
    struct pms_node_info nodes[PMS_NODES_MAX];
    size_t n = 0;
    const char *name;
    json_t *node;

    if (json_object_size(st->nodes) > PMS_NODES_MAX)
        return broken(r, "too many nodes");
    json_object_foreach (st->nodes, name, node) {
        if (json_object_size(node) != 5 || !pms_node_info_parse(name, node, &nodes[n]))
            return broken(r, "node %.63s", name);
        if (nodes[n].feature_level < pms_state_feature_level(st))
            return broken(r, "node %.63s supports less than the cluster's feature level", name);
        for (size_t i = 0; i < n; i++)
            if (nodes[i].id == nodes[n].id || strcmp(nodes[i].addr, nodes[n].addr) == 0)
                return broken(r, "node %.63s: id or address twice", name);
        n++;
    }
    return true;
}

static bool array_slots_ok(const struct pms_state *st, const struct pms_array_info *a, const struct report *r)
{
    struct pms_node_info node;

    for (unsigned i = 0; i < a->n_slots; i++) {
        const struct pms_slot_info *s = &a->slots[i];
        bool joined = s->node_id != 0 && pms_state_node_get(st, s->node_id, &node) == 0;

        if (s->node_id != 0 && pms_array_slot_of(a, s->node_id) != (int)i)
            return broken(r, "array %s: two slots on one node", a->name);
        if (joined && node.witness)
            return broken(r, "array %s: slot %u on a witness", a->name, i);
        if (s->in_sync && (!s->zeroed || (!joined && (s->node_id == 0 || !pms_array_is_lost(st, a)))))
            return broken(r, "array %s: slot %u in sync without a node or contents", a->name, i);
        if (s->zeroed && s->incarnation == 0)
            return broken(r, "array %s: slot %u without an incarnation", a->name, i);
        if (s->node_id == 0 && a->phase == PMS_ARRAY_CREATING)
            return broken(r, "array %s: slot %u vacant at creation", a->name, i);
    }
    return true;
}

static bool arrays_distinct(const struct pms_array_info *a, const struct pms_array_info *b)
{
    if (a->id == b->id || strcmp(a->iqn, b->iqn) == 0 || strcmp(a->serial, b->serial) == 0 ||
        strcmp(a->portal_addr, b->portal_addr) == 0)
        return false;
    for (unsigned i = 0; i < a->n_slots; i++) {
        int other = pms_array_slot_of(b, a->slots[i].node_id);

        if (a->slots[i].brick[0] != '\0' && other >= 0 &&
            strcmp(a->slots[i].brick, b->slots[other].brick) == 0)
            return false;
    }
    return true;
}

// Records of before there was primary_since are still read.
static size_t array_members(const json_t *json)
{
    return PMS_ARRAY_MEMBERS - (json_object_get(json, "primary_since") == NULL ? 1 : 0);
}

static bool arrays_ok(const struct pms_state *st, const struct report *r)
{
    struct pms_array_info a, b;
    struct pms_node_info node;
    const char *name, *other_name;
    json_t *json, *other;
    uint64_t tsih;

    if (json_object_size(st->arrays) > PMS_STATE_ARRAYS_MAX)
        return broken(r, "too many arrays");
    json_object_foreach (st->arrays, name, json) {
        if (json_object_size(json) != array_members(json) || !pms_array_info_parse(name, json, &a) ||
            pms_json_u64(json, "tsih_last", &tsih) != 0 || tsih > UINT16_MAX)
            return broken(r, "array %.63s", name);
        if (!array_slots_ok(st, &a, r))
            return false;
        if (pms_portal_is_node_addr(st, a.portal_addr, &node))
            return broken(r, "array %s: portal is node %s", a.name, node.name);
    }
    json_object_foreach (st->arrays, name, json) {
        PMS_CHECK(pms_array_info_parse(name, json, &a));
        json_object_foreach (st->arrays, other_name, other) {
            PMS_CHECK(pms_array_info_parse(other_name, other, &b));
            if (strcmp(name, other_name) != 0 && !arrays_distinct(&a, &b))
                return broken(r, "arrays %s and %s share what each must have alone", name, other_name);
        }
    }
    return true;
}

static bool session_ok(const json_t *s)
{
    uint64_t tsih = 0, login = 0, disconnected = 0;
    const char *peer = pms_json_str(s, "peer", "");
    char canonical[PMS_ADDR_TEXT_MAX + 1];

    return json_object_size(s) == 9 && pms_text_printable(pms_json_str(s, "initiator", NULL), PMS_IQN_MAX) &&
           pms_isid_valid(pms_json_str(s, "isid", "")) && pms_json_u64(s, "tsih", &tsih) == 0 && tsih > 0 &&
           tsih <= UINT16_MAX && pms_params_valid(json_object_get(s, "params")) &&
           pms_addr_canonical(peer, canonical) && strcmp(peer, canonical) == 0 &&
           is_id_text(pms_json_str(s, "node", NULL)) && json_is_boolean(json_object_get(s, "connected")) &&
           pms_json_u64(s, "login", &login) == 0 && login > 0 &&
           pms_json_u64(s, "disconnected", &disconnected) == 0 &&
           pms_json_bool(s, "connected", false) == (disconnected == 0);
}

static bool sessions_ok(const struct pms_state *st, const struct report *r)
{
    const char *name;
    json_t *list, *s, *t;
    size_t i, j;

    if (json_object_size(st->sessions) != json_object_size(st->arrays))
        return broken(r, "sessions of an unknown array");
    json_object_foreach (st->sessions, name, list) {
        if (json_object_get(st->arrays, name) == NULL)
            return broken(r, "sessions of the unknown array %.63s", name);
        if (!json_is_array(list) || json_array_size(list) > PMS_SESSIONS_MAX)
            return broken(r, "sessions of array %.63s", name);
        json_array_foreach (list, i, s) {
            if (!session_ok(s))
                return broken(r, "session %zu of array %.63s", i, name);
            for (j = 0; j < i; j++) {
                t = json_array_get(list, j);
                if (json_equal(json_object_get(s, "tsih"), json_object_get(t, "tsih")) ||
                    (json_equal(json_object_get(s, "isid"), json_object_get(t, "isid")) &&
                     json_equal(json_object_get(s, "initiator"), json_object_get(t, "initiator"))))
                    return broken(r, "array %.63s: a session twice", name);
            }
        }
    }
    return true;
}

static bool tokens_ok(const struct pms_state *st, const struct report *r)
{
    const char *id;
    json_t *t;

    if (json_object_size(st->tokens) > PMS_STATE_TOKENS_MAX)
        return broken(r, "too many tokens");
    json_object_foreach (st->tokens, id, t) {
        const json_t *used_by = json_object_get(t, "used_by");
        uint64_t expires_s = 0, added = 0;

        if (!pms_text_in(id, PMS_TOKEN_ID_MAX, "", false) || json_object_size(t) != 5 ||
            !pms_text_printable(pms_json_str(t, "secret", NULL), PMS_TOKEN_SECRET_MAX) ||
            !pms_text_printable(pms_json_str(t, "by", NULL), PMS_NAME_MAX) ||
            pms_json_u64(t, "expires_s", &expires_s) != 0 || pms_json_u64(t, "added", &added) != 0 ||
            (!json_is_null(used_by) && !is_id_text(json_string_value(used_by))))
            return broken(r, "token %.32s", id);
    }
    return true;
}

static bool dedup_ok(const struct pms_state *st, const struct report *r)
{
    const char *client, *seq;
    json_t *record, *results, *result;

    if (json_object_size(st->dedup) > PMS_STATE_CLIENTS_MAX)
        return broken(r, "too many clients");
    json_object_foreach (st->dedup, client, record) {
        uint64_t index = 0, top = 0;

        results = json_object_get(record, "results");
        if (!is_id_text(client) || json_object_size(record) != 3 ||
            pms_json_u64(record, "index", &index) != 0 || index > pms_state_index(st) ||
            pms_json_u64(record, "top", &top) != 0 || !json_is_object(results) ||
            json_object_size(results) > PMS_STATE_WINDOW)
            return broken(r, "memory of client %.16s", client);
        json_object_foreach (results, seq, result) {
            char *end;
            unsigned long long n = strtoull(seq, &end, 10);

            if (seq[0] < '0' || seq[0] > '9' || *end != '\0' || n > top || n + PMS_STATE_WINDOW <= top ||
                !json_is_boolean(json_object_get(result, "ok")))
                return broken(r, "memory of client %.16s, command %.20s", client, seq);
        }
    }
    return true;
}

int pms_state_check(const struct pms_state *st, char *why, size_t why_len)
{
    const struct report r = {why, why_len};
    const char *setting;

    if (why_len > 0)
        why[0] = '\0';
    if (!root_ok(st, &r) || !cluster_ok(st, &r) || !nodes_ok(st, &r) || !arrays_ok(st, &r) ||
        !sessions_ok(st, &r) || !tokens_ok(st, &r) || !dedup_ok(st, &r))
        return PMS_ECORRUPT;
    setting = pms_settings_invalid(st->settings);
    if (setting != NULL) {
        broken(&r, "settings: %s", setting);
        return PMS_ECORRUPT;
    }
    return 0;
}
