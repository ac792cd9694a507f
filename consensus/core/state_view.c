// SPDX-License-Identifier: GPL-2.0-or-later
// Reading the state: borrowed JSON, typed copies of records, iteration.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

#include <string.h>

// ---- Records as plain values ----

static bool copy_text(char *out, size_t size, const char *s)
{
    if (s == NULL || strlen(s) >= size)
        return false;
    strcpy(out, s);
    return true;
}

// An id or null: null is 0. False for anything else, also for a zero id.
static bool id_or_null(const json_t *obj, const char *key, uint64_t *id)
{
    if (json_is_null(json_object_get(obj, key))) {
        *id = 0;
        return true;
    }
    return pms_json_id(obj, key, id) == 0 && *id != 0;
}

static bool slots_parse(const json_t *json, struct pms_array_info *out)
{
    const json_t *slots = json_object_get(json, "slots");
    const json_t *slot;
    size_t i;

    if (!json_is_array(slots) || json_array_size(slots) == 0 || json_array_size(slots) > PMS_SLOTS_MAX)
        return false;
    out->n_slots = (unsigned)json_array_size(slots);
    json_array_foreach (slots, i, slot) {
        struct pms_slot_info *s = &out->slots[i];
        const json_t *brick = json_object_get(slot, "brick");

        if (!id_or_null(slot, "node", &s->node_id) || !id_or_null(slot, "incarnation", &s->incarnation))
            return false;
        if (!json_is_null(brick)) {
            if (!copy_text(s->brick, sizeof(s->brick), json_string_value(brick)) ||
                !pms_brick_path_valid(s->brick))
                return false;
        }
        if (!json_is_boolean(json_object_get(slot, "zeroed")))
            return false;
        s->zeroed = pms_json_bool(slot, "zeroed", false);
        if (s->node_id == 0 && (s->incarnation != 0 || s->zeroed || s->brick[0] != '\0'))
            return false;
    }
    return true;
}

static bool in_sync_parse(const json_t *json, struct pms_array_info *out)
{
    const json_t *set = json_object_get(json, "in_sync");
    const json_t *entry;
    size_t i;

    if (!json_is_array(set) || json_array_size(set) > out->n_slots)
        return false;
    json_array_foreach (set, i, entry) {
        uint64_t slot = 0, incarnation = 0;

        if (pms_json_u64(entry, "slot", &slot) != 0 || slot >= out->n_slots ||
            pms_json_id(entry, "incarnation", &incarnation) != 0)
            return false;
        // Sorted by slot, and of the incarnation that the slot was admitted with.
        if ((out->in_sync >> slot) != 0 || incarnation == 0 || incarnation != out->slots[slot].incarnation)
            return false;
        out->in_sync |= 1u << slot;
        out->slots[slot].in_sync = true;
    }
    return true;
}

static bool phase_parse(const char *text, enum pms_array_phase *phase)
{
    static const char *const names[] = {"creating", "ready", "deleting"};

    for (unsigned i = 0; text != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *phase = (enum pms_array_phase)i;
            return true;
        }
    }
    return false;
}

static bool level_parse(const char *text, enum pms_array_level *level)
{
    if (text == NULL)
        return false;
    if (strcmp(text, "raid1") == 0)
        *level = PMS_ARRAY_RAID1;
    else if (strcmp(text, "raid5") == 0)
        *level = PMS_ARRAY_RAID5;
    else
        return false;
    return true;
}

static bool target_parse(const json_t *json, struct pms_array_info *out)
{
    const json_t *portal = json_object_get(json, "portal"), *target = json_object_get(json, "target");
    uint64_t prefix = 0, port = 0;
    unsigned prefix_max;
    char canonical[46];

    if (!copy_text(out->portal_addr, sizeof(out->portal_addr), pms_json_str(portal, "addr", NULL)) ||
        !pms_ip_canonical(out->portal_addr, &prefix_max, canonical) ||
        strcmp(canonical, out->portal_addr) != 0)
        return false;
    if (pms_json_u64(portal, "prefix", &prefix) != 0 || prefix == 0 || prefix > prefix_max ||
        pms_json_u64(portal, "port", &port) != 0 || port == 0 || port > UINT16_MAX)
        return false;
    out->portal_prefix = (unsigned)prefix;
    out->portal_port = (uint16_t)port;
    return copy_text(out->iqn, sizeof(out->iqn), pms_json_str(target, "iqn", NULL)) &&
           copy_text(out->serial, sizeof(out->serial), pms_json_str(target, "serial", NULL)) &&
           pms_iqn_valid(out->iqn) && pms_text_in(out->serial, PMS_SERIAL_MAX, "", true);
}

// What the phase says of epoch, primary and in-sync set.
static bool phase_consistent(const struct pms_array_info *a)
{
    if ((a->primary_since > 0) != (a->primary >= 0) || a->primary_since > a->epoch)
        return false;
    if (a->phase == PMS_ARRAY_CREATING)
        return a->epoch == 0 && a->primary == -1 && a->in_sync == 0;
    if (a->phase == PMS_ARRAY_DELETING)
        return a->epoch > 0 && a->primary == -1 && a->in_sync == 0;
    return a->epoch > 0 && a->primary >= 0 && a->slots[a->primary].in_sync &&
           (unsigned)__builtin_popcount(a->in_sync) >= pms_array_copies_min(a);
}

bool pms_array_info_parse(const char *name, const json_t *json, struct pms_array_info *out)
{
    const json_t *primary = json_object_get(json, "primary");
    struct pms_array_info a = {.primary = -1};
    uint64_t region = 0;

    if (!pms_array_name_valid(name) || !copy_text(a.name, sizeof(a.name), name) ||
        strcmp(pms_json_str(json, "name", ""), name) != 0)
        return false;
    if (pms_json_id(json, "id", &a.id) != 0 || a.id == 0 ||
        !level_parse(pms_json_str(json, "level", NULL), &a.level) ||
        !phase_parse(pms_json_str(json, "phase", NULL), &a.phase) ||
        pms_json_u64(json, "size_bytes", &a.size_bytes) != 0 ||
        pms_json_u64(json, "region_bytes", &region) != 0 || pms_json_u64(json, "epoch", &a.epoch) != 0 ||
        !json_is_boolean(json_object_get(json, "write_cache")) ||
        !json_is_boolean(json_object_get(json, "cache_used")))
        return false;
    if (region == 0 || region > PMS_ARRAY_BYTES_MIN || (region & (region - 1)) != 0 || a.size_bytes == 0 ||
        a.size_bytes % PMS_ARRAY_BYTES_MIN != 0 || a.size_bytes > PMS_ARRAY_BYTES_MAX)
        return false;
    a.region_bytes = (uint32_t)region;
    a.write_cache = pms_json_bool(json, "write_cache", false);
    a.cache_used = pms_json_bool(json, "cache_used", false);
    if (a.write_cache && !a.cache_used)
        return false;
    if (!slots_parse(json, &a) || !in_sync_parse(json, &a) || !target_parse(json, &a))
        return false;
    if (json_is_integer(primary)) {
        if (json_integer_value(primary) < 0 || json_integer_value(primary) >= (json_int_t)a.n_slots)
            return false;
        a.primary = (int)json_integer_value(primary);
    } else if (!json_is_null(primary)) {
        return false;
    }
    // A record of before there was this field: since now, so that nothing older is trusted.
    a.primary_since = a.primary >= 0 ? a.epoch : 0;
    if (json_object_get(json, "primary_since") != NULL &&
        pms_json_u64(json, "primary_since", &a.primary_since) != 0)
        return false;
    if (!phase_consistent(&a))
        return false;
    *out = a;
    return true;
}

bool pms_node_info_parse(const char *name, const json_t *json, struct pms_node_info *out)
{
    const char *role = pms_json_str(json, "role", "");
    char canonical[PMS_ADDR_TEXT_MAX + 1];
    struct pms_node_info n = {0};
    uint64_t level = 0;

    if (!pms_name_valid(name) || !copy_text(n.name, sizeof(n.name), name) ||
        pms_json_id(json, "id", &n.id) != 0 || n.id == 0 ||
        !copy_text(n.addr, sizeof(n.addr), pms_json_str(json, "addr", NULL)) ||
        !pms_addr_canonical(n.addr, canonical) || strcmp(canonical, n.addr) != 0 ||
        strcmp(pms_json_str(json, "state", ""), "joined") != 0 ||
        pms_json_u64(json, "feature_level", &level) != 0 || level == 0 || level > PMS_LEVEL_LIMIT)
        return false;
    n.feature_level = (unsigned)level;
    n.witness = strcmp(role, "witness") == 0;
    if (!n.witness && strcmp(role, "data") != 0)
        return false;
    *out = n;
    return true;
}

unsigned pms_array_copies_min(const struct pms_array_info *info)
{
    return info->level == PMS_ARRAY_RAID5 ? info->n_slots - 1 : 1;
}

int pms_array_slot_of(const struct pms_array_info *array, uint64_t node_id)
{
    for (unsigned i = 0; node_id != 0 && i < array->n_slots; i++)
        if (array->slots[i].node_id == node_id)
            return (int)i;
    return -1;
}

// ---- Finding records ----

// The key of the record with this id, NULL for none. Ids are unique, so the order of the walk does not
// matter.
static const char *key_by_id(const json_t *section, uint64_t id)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)section, key, value) {
        uint64_t have = 0;

        if (pms_json_id(value, "id", &have) == 0 && have == id)
            return key;
    }
    return NULL;
}

const char *pms_array_name_by_id(const struct pms_state *st, uint64_t id)
{
    return key_by_id(st->arrays, id);
}

const char *pms_node_label(const struct pms_state *st, uint64_t node_id, char buf[20])
{
    const char *name = key_by_id(st->nodes, node_id);

    return name != NULL ? name : pms_id_format(node_id, buf);
}

const json_t *pms_state_array_json_by_name(const struct pms_state *st, const char *name)
{
    return json_object_get(st->arrays, name);
}

const json_t *pms_state_array_json(const struct pms_state *st, uint64_t array_id)
{
    const char *name = key_by_id(st->arrays, array_id);

    return name != NULL ? json_object_get(st->arrays, name) : NULL;
}

const json_t *pms_state_sessions_json(const struct pms_state *st, const char *array_name)
{
    return json_object_get(st->sessions, array_name);
}

const json_t *pms_state_token_json(const struct pms_state *st, const char *token_id)
{
    return json_object_get(st->tokens, token_id);
}

int pms_state_array_get_by_name(const struct pms_state *st, const char *name, struct pms_array_info *out)
{
    const json_t *json = json_object_get(st->arrays, name);

    if (json == NULL)
        return PMS_ENOTFOUND;
    PMS_CHECK(pms_array_info_parse(name, json, out));
    return 0;
}

int pms_state_array_get(const struct pms_state *st, uint64_t array_id, struct pms_array_info *out)
{
    const char *name = key_by_id(st->arrays, array_id);

    return name != NULL ? pms_state_array_get_by_name(st, name, out) : PMS_ENOTFOUND;
}

int pms_state_node_get_by_name(const struct pms_state *st, const char *name, struct pms_node_info *out)
{
    const json_t *json = json_object_get(st->nodes, name);

    if (json == NULL)
        return PMS_ENOTFOUND;
    PMS_CHECK(pms_node_info_parse(name, json, out));
    return 0;
}

int pms_state_node_get(const struct pms_state *st, uint64_t node_id, struct pms_node_info *out)
{
    const char *name = key_by_id(st->nodes, node_id);

    return name != NULL ? pms_state_node_get_by_name(st, name, out) : PMS_ENOTFOUND;
}

// The key at the cursor's place in sorted order, NULL at the end.
static const char *key_next(const json_t *section, size_t *cursor)
{
    size_t n;
    const char **keys = pms_sorted_keys(section, &n);
    const char *key = *cursor < n ? keys[(*cursor)++] : NULL;

    free(keys);
    return key;
}

bool pms_state_array_next(const struct pms_state *st, size_t *cursor, struct pms_array_info *out)
{
    const char *name = key_next(st->arrays, cursor);

    return name != NULL && pms_state_array_get_by_name(st, name, out) == 0;
}

bool pms_state_node_next(const struct pms_state *st, size_t *cursor, struct pms_node_info *out)
{
    const char *name = key_next(st->nodes, cursor);

    return name != NULL && pms_state_node_get_by_name(st, name, out) == 0;
}

// ---- The cluster and the whole ----

const json_t *pms_state_tree(const struct pms_state *st)
{
    return st->root;
}

json_t *pms_state_public(const struct pms_state *st)
{
    json_t *copy = pms_must(json_deep_copy(st->root));
    json_t *settings = pms_must(json_object());
    const char *id;
    json_t *token;

    PMS_MUST(json_object_del(copy, "dedup"));
    json_object_foreach (json_object_get(copy, "tokens"), id, token) {
        PMS_MUST(json_object_del(token, "secret"));
    }
    for (int s = 0; s < PMS_SETTINGS; s++)
        PMS_MUST(pms_json_set_u64(settings, pms_setting_name(s), pms_state_setting(st, s)));
    PMS_MUST(json_object_set_new(copy, "settings", settings));
    return copy;
}

bool pms_state_has_cluster(const struct pms_state *st)
{
    return json_object_size(st->cluster) > 0;
}

const char *pms_state_cluster_id(const struct pms_state *st)
{
    return pms_json_str(st->cluster, "id", NULL);
}

const char *pms_state_cluster_name(const struct pms_state *st)
{
    return pms_json_str(st->cluster, "name", NULL);
}

unsigned pms_state_feature_level(const struct pms_state *st)
{
    uint64_t level = 1;

    pms_json_u64(st->cluster, "feature_level", &level);
    return (unsigned)level;
}
