// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about an array's life: create, commit, replace a slot, delete. Its transitions are in
// state_transition.c.
//
//     array_create          array_slot_zeroed ...      array_commit
//   ----------------> creating ------------------> creating -----------> ready (epoch 1, all in sync, primary
//   0)
//                        |                                                |
//                        +----------------- array_delete -----------------+----> deleting ---
//                        array_slot_removed ...,
//                                                                                         or array_forget
//                                                                                         ---> gone
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

// ---- Records ----

static void slot_fill(json_t *slot, uint64_t node_id, const char *brick)
{
    bool place = brick != NULL && brick[0] != '\0';

    PMS_MUST(json_object_set_new(slot, "node", pms_json_id_new(node_id)));
    PMS_MUST(json_object_set_new(slot, "brick", place ? pms_must(json_string(brick)) : json_null()));
    PMS_MUST(json_object_set_new(slot, "zeroed", json_false()));
    PMS_MUST(json_object_set_new(slot, "incarnation", json_null()));
}

void pms_array_set_slot(json_t *json, unsigned slot, uint64_t node_id, const char *brick)
{
    slot_fill(json_array_get(json_object_get(json, "slots"), slot), node_id, brick);
}

void pms_array_set_layout(json_t *json, const struct pms_array_info *info)
{
    json_t *set = pms_must(json_array());

    for (unsigned i = 0; i < info->n_slots; i++) {
        json_t *slot = json_array_get(json_object_get(json, "slots"), i), *entry;

        if ((info->in_sync & (1u << i)) == 0)
            continue;
        entry = pms_must(json_object());
        PMS_MUST(pms_json_set_u64(entry, "slot", i));
        PMS_MUST(pms_json_set_id(entry, "incarnation", info->slots[i].incarnation));
        PMS_MUST(json_array_append_new(set, entry));
        // A slot that is admitted holds all of the array's contents.
        PMS_MUST(pms_json_set_id(slot, "incarnation", info->slots[i].incarnation));
        PMS_MUST(pms_json_set_bool(slot, "zeroed", true));
    }
    PMS_MUST(json_object_set_new(json, "in_sync", set));
    PMS_MUST(pms_json_set_u64(json, "epoch", info->epoch));
    PMS_MUST(json_object_set_new(json, "primary",
                                 info->primary >= 0 ? pms_must(json_integer(info->primary)) : json_null()));
    PMS_MUST(pms_json_set_u64(json, "primary_since", info->primary_since));
}

bool pms_array_forget_if_vacant(struct pms_state *st, const char *name)
{
    struct pms_array_info info;

    PMS_CHECK(pms_state_array_get_by_name(st, name, &info) == 0);
    for (unsigned i = 0; i < info.n_slots; i++)
        if (info.slots[i].node_id != 0)
            return false;
    // info.name, because name may belong to the record that goes.
    PMS_MUST(json_object_del(st->arrays, info.name));
    PMS_MUST(json_object_del(st->sessions, info.name));
    return true;
}

// ---- Create ----

// One wanted slot, from obj's "node" and "brick", on a data node that has none of the array's other slots.
static int slot_fields(struct pms_apply *a, const json_t *obj, const struct pms_array_info *array,
                       unsigned slot, struct pms_slot_info *out)
{
    const json_t *brick = json_object_get(obj, "brick");
    struct pms_array_info other;
    struct pms_node_info node;
    int rv = pms_field_node(a, obj, "node", &node), taken;

    if (rv != 0)
        return rv;
    if (node.witness)
        return pms_refuse(a, PMS_EREFUSED, "node %s is a witness: it stores no data", node.name);
    taken = pms_array_slot_of(array, node.id);
    if (taken >= 0 && taken != (int)slot)
        return pms_refuse(a, PMS_EREFUSED, "two slots of one array on node %s: losing it would lose both",
                          node.name);
    memset(out, 0, sizeof(*out));
    out->node_id = node.id;
    if (brick == NULL || json_is_null(brick))
        return 0;
    if (!json_is_string(brick) || !pms_brick_path_valid(json_string_value(brick)))
        return pms_refuse(a, PMS_EUSAGE, "\"brick\" must be an absolute path of at most %d bytes, or null",
                          PMS_BRICK_PATH_MAX);
    strcpy(out->brick, json_string_value(brick));
    for (size_t c = 0; pms_state_array_next(a->st, &c, &other);) {
        int i = pms_array_slot_of(&other, node.id);

        if (i >= 0 && strcmp(other.slots[i].brick, out->brick) == 0 && other.id != array->id)
            return pms_refuse(a, PMS_EEXISTS, "%s on node %s is a brick of array %s already", out->brick,
                              node.name, other.name);
    }
    return 0;
}

static int slots_fields(struct pms_apply *a, struct pms_array_info *info)
{
    const json_t *slots = json_object_get(a->cmd, "slots"), *obj;
    size_t i;
    int rv = pms_field_list(a, a->cmd, "slots", PMS_SLOTS_MAX, &slots);

    if (rv != 0)
        return rv;
    json_array_foreach (slots, i, obj) {
        rv = slot_fields(a, obj, info, (unsigned)i, &info->slots[i]);
        if (rv != 0)
            return rv;
        info->n_slots = (unsigned)i + 1;
    }
    return 0;
}

static int target_fields(struct pms_apply *a, struct pms_array_info *info)
{
    const char *iqn = pms_json_str(a->cmd, "iqn", NULL), *serial = pms_json_str(a->cmd, "serial", NULL);
    unsigned prefix_max = 0;
    const json_t *portal;
    uint64_t prefix = 0, port = 0;
    int rv = pms_field_object(a, a->cmd, "portal", &portal);

    if (rv != 0)
        return rv;
    if (!pms_ip_canonical(pms_json_str(portal, "addr", NULL), &prefix_max, info->portal_addr))
        return pms_refuse(a, PMS_EUSAGE, "the portal's \"addr\" must be a numeric address");
    rv = pms_field_u64(a, portal, "prefix", 1, prefix_max, &prefix);
    if (rv == 0)
        rv = pms_field_u64(a, portal, "port", 1, UINT16_MAX, &port);
    if (rv != 0)
        return rv;
    info->portal_prefix = (unsigned)prefix;
    info->portal_port = (uint16_t)port;
    if (!pms_iqn_valid(iqn))
        return pms_refuse(a, PMS_EUSAGE, "\"iqn\" must be an iqn. name in lower case of at most %d bytes",
                          PMS_IQN_MAX);
    if (!pms_text_in(serial, PMS_SERIAL_MAX, "", true))
        return pms_refuse(a, PMS_EUSAGE, "\"serial\" must be 1 to %d letters or digits", PMS_SERIAL_MAX);
    strcpy(info->iqn, iqn);
    strcpy(info->serial, serial);
    return 0;
}

static int level_and_size_fields(struct pms_apply *a, struct pms_array_info *info)
{
    const char *name = pms_json_str(a->cmd, "name", NULL), *level = pms_json_str(a->cmd, "level", "");
    int rv = pms_field_id(a, a->cmd, "id", &info->id);

    if (rv != 0)
        return rv;
    if (!pms_array_name_valid(name))
        return pms_refuse(a, PMS_EUSAGE,
                          "an array's name is 1 to %d lower-case letters, digits, '.' and '-', begins with a "
                          "letter or digit and does not look like an id",
                          PMS_NAME_MAX);
    strcpy(info->name, name);
    if (strcmp(level, "raid5") == 0)
        return pms_refuse(a, PMS_EREFUSED, "raid5 is not supported by this version: use raid1");
    if (strcmp(level, "raid1") != 0)
        return pms_refuse(a, PMS_EUSAGE, "\"level\" must be raid1");
    info->level = PMS_ARRAY_RAID1;
    if (pms_json_u64(a->cmd, "size_bytes", &info->size_bytes) != 0 || info->size_bytes == 0 ||
        info->size_bytes % PMS_ARRAY_BYTES_MIN != 0 || info->size_bytes > PMS_ARRAY_BYTES_MAX)
        return pms_refuse(a, PMS_EUSAGE,
                          "an array's size is a multiple of 1 MiB, more than 0, at most 1 PiB");
    rv = pms_field_bool(a, a->cmd, "write_cache", false, &info->write_cache);
    info->cache_used = info->write_cache;
    return rv;
}

// What must be unlike in all arrays.
static int array_unique(struct pms_apply *a, const struct pms_array_info *info)
{
    struct pms_array_info other;
    struct pms_node_info node;

    for (size_t c = 0; pms_state_array_next(a->st, &c, &other);) {
        const char *what = NULL;

        if (strcmp(other.name, info->name) == 0)
            return pms_refuse(a, PMS_EEXISTS, "there is an array %s already%s", info->name,
                              other.phase == PMS_ARRAY_DELETING ? ", still being deleted" : "");
        if (strcmp(other.portal_addr, info->portal_addr) == 0)
            return pms_refuse(a, PMS_EEXISTS,
                              "%s is the portal of array %s: each array needs its own address",
                              info->portal_addr, other.name);
        if (other.id == info->id)
            what = "id";
        else if (strcmp(other.iqn, info->iqn) == 0)
            what = "iqn";
        else if (strcmp(other.serial, info->serial) == 0)
            what = "serial";
        if (what != NULL)
            return pms_refuse(a, PMS_EEXISTS, "array %s has this %s already", other.name, what);
    }
    if (pms_portal_is_node_addr(a->st, info->portal_addr, &node))
        return pms_refuse(a, PMS_EEXISTS,
                          "%s is the address of node %s: a portal moves between nodes, so it needs an "
                          "address of its own",
                          info->portal_addr, node.name);
    if (json_object_size(a->st->arrays) >= PMS_STATE_ARRAYS_MAX)
        return pms_refuse(a, PMS_EFULL, "a cluster has at most %d arrays", PMS_STATE_ARRAYS_MAX);
    return 0;
}

static void array_put(struct pms_apply *a, const struct pms_array_info *info)
{
    json_t *json = pms_must(json_object()), *slots = pms_must(json_array());
    json_t *portal = pms_must(json_object()), *target = pms_must(json_object());

    for (unsigned i = 0; i < info->n_slots; i++) {
        json_t *slot = pms_must(json_object());

        slot_fill(slot, info->slots[i].node_id, info->slots[i].brick);
        PMS_MUST(json_array_append_new(slots, slot));
    }
    PMS_MUST(pms_json_set_str(portal, "addr", info->portal_addr));
    PMS_MUST(pms_json_set_u64(portal, "prefix", info->portal_prefix));
    PMS_MUST(pms_json_set_u64(portal, "port", info->portal_port));
    PMS_MUST(pms_json_set_str(target, "iqn", info->iqn));
    PMS_MUST(pms_json_set_str(target, "serial", info->serial));
    PMS_MUST(pms_json_set_id(json, "id", info->id));
    PMS_MUST(pms_json_set_str(json, "name", info->name));
    PMS_MUST(pms_json_set_str(json, "level", "raid1"));
    PMS_MUST(pms_json_set_u64(json, "size_bytes", info->size_bytes));
    PMS_MUST(pms_json_set_u64(json, "region_bytes", PMS_REGION_BYTES));
    PMS_MUST(pms_json_set_bool(json, "write_cache", info->write_cache));
    PMS_MUST(pms_json_set_bool(json, "cache_used", info->cache_used));
    PMS_MUST(pms_json_set_str(json, "phase", "creating"));
    PMS_MUST(pms_json_set_u64(json, "tsih_last", 0));
    PMS_MUST(json_object_set_new(json, "slots", slots));
    PMS_MUST(json_object_set_new(json, "portal", portal));
    PMS_MUST(json_object_set_new(json, "target", target));
    pms_array_set_layout(json, info); // epoch 0, no primary, nothing in sync
    PMS_MUST(json_object_set_new(a->st->arrays, info->name, json));
    PMS_MUST(json_object_set_new(a->st->sessions, info->name, json_array()));
}

int pms_on_array_create(struct pms_apply *a)
{
    struct pms_array_info info = {.primary = -1};
    int rv = level_and_size_fields(a, &info);

    if (rv == 0)
        rv = target_fields(a, &info);
    if (rv == 0)
        rv = array_unique(a, &info);
    if (rv == 0)
        rv = slots_fields(a, &info);
    if (rv != 0)
        return rv;
    array_put(a, &info);
    return 0;
}

static bool all_zeroed(const struct pms_array_info *info)
{
    for (unsigned i = 0; i < info->n_slots; i++)
        if (!info->slots[i].zeroed)
            return false;
    return true;
}

int pms_on_array_slot_zeroed(struct pms_apply *a)
{
    struct pms_array_info info;
    uint64_t incarnation = 0;
    unsigned slot = 0;
    json_t *json, *record;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_slot(a, &info, &slot);
    if (rv == 0)
        rv = pms_field_id(a, a->cmd, "incarnation", &incarnation);
    if (rv != 0)
        return rv;
    if (info.phase != PMS_ARRAY_CREATING)
        return pms_refuse(a, PMS_EREFUSED, "array %s is not being created", info.name);
    record = json_array_get(json_object_get(json, "slots"), slot);
    PMS_MUST(pms_json_set_bool(record, "zeroed", true));
    PMS_MUST(pms_json_set_id(record, "incarnation", incarnation));
    info.slots[slot].zeroed = true;
    PMS_MUST(pms_json_set_bool(a->result, "all", all_zeroed(&info)));
    return 0;
}

int pms_on_array_commit(struct pms_apply *a)
{
    struct pms_array_info info;
    struct pms_node_info node;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv != 0)
        return rv;
    if (info.phase != PMS_ARRAY_CREATING)
        return pms_refuse_stale(a, &info);
    if (!all_zeroed(&info))
        return pms_refuse(a, PMS_EREFUSED, "not every brick of array %s is zeroed yet", info.name);
    // A node may have been wiped since it zeroed its brick, and be back under another id.
    for (unsigned i = 0; i < info.n_slots; i++)
        if (pms_state_node_get(a->st, info.slots[i].node_id, &node) != 0)
            return pms_refuse(a, PMS_EREFUSED,
                              "slot %u of array %s is on no node of the cluster: delete the array, and make "
                              "it anew",
                              i, info.name);

    info.epoch = 1;
    info.primary = 0;
    info.primary_since = 1;
    info.in_sync = (1u << info.n_slots) - 1;
    PMS_MUST(pms_json_set_str(json, "phase", "ready"));
    pms_array_set_layout(json, &info);
    PMS_MUST(pms_json_set_u64(a->result, "epoch", info.epoch));
    return 0;
}

// ---- Replace a slot ----

int pms_on_array_replace(struct pms_apply *a)
{
    struct pms_array_info info;
    struct pms_slot_info place = {0};
    unsigned slot = 0;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_slot(a, &info, &slot);
    if (rv != 0)
        return rv;
    if (info.phase != PMS_ARRAY_READY)
        return pms_refuse(a, PMS_EREFUSED, "array %s cannot serve: there is nothing to fill a new brick from",
                          info.name);
    if (info.slots[slot].in_sync)
        return pms_refuse(a, PMS_EREFUSED, "slot %u of array %s is in sync: only a stale one can be replaced",
                          slot, info.name);
    rv = slot_fields(a, a->cmd, &info, slot, &place);
    if (rv != 0)
        return rv;

    info.epoch++;
    pms_array_set_slot(json, slot, place.node_id, place.brick);
    pms_array_set_layout(json, &info);
    PMS_MUST(pms_json_set_u64(a->result, "epoch", info.epoch));
    return 0;
}

// ---- Properties ----

int pms_on_array_set(struct pms_apply *a)
{
    struct pms_array_info info;
    bool write_cache;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0 && json_object_get(a->cmd, "write_cache") == NULL)
        return pms_refuse(a, PMS_EUSAGE, "\"write_cache\" is missing: there is nothing else to set");
    if (rv == 0)
        rv = pms_field_bool(a, a->cmd, "write_cache", false, &write_cache);
    if (rv != 0)
        return rv;
    if (info.phase == PMS_ARRAY_DELETING)
        return pms_refuse(a, PMS_EREFUSED, "array %s is being deleted", info.name);
    PMS_MUST(pms_json_set_bool(json, "write_cache", write_cache));
    if (write_cache)
        PMS_MUST(pms_json_set_bool(json, "cache_used", true));
    return 0;
}

// ---- Delete ----

int pms_on_array_delete(struct pms_apply *a)
{
    struct pms_array_info info;
    const json_t *session;
    json_t *json, *sessions;
    bool force;
    size_t i;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_bool(a, a->cmd, "force", false, &force);
    if (rv != 0)
        return rv;
    if (info.phase == PMS_ARRAY_DELETING)
        return pms_refuse(a, PMS_EREFUSED, "array %s is being deleted already", info.name);
    sessions = json_object_get(a->st->sessions, info.name);
    json_array_foreach (sessions, i, session) {
        if (!force && pms_json_bool(session, "connected", false))
            return pms_refuse(a, PMS_EBUSY, "%.223s is logged in to array %s: log it out first, or force",
                              pms_json_str(session, "initiator", "?"), info.name);
    }

    info.epoch++;
    info.primary = -1;
    info.primary_since = 0;
    info.in_sync = 0;
    PMS_MUST(pms_json_set_str(json, "phase", "deleting"));
    pms_array_set_layout(json, &info);
    PMS_MUST(json_array_clear(sessions));
    PMS_MUST(pms_json_set_u64(a->result, "epoch", info.epoch));
    return 0;
}

int pms_on_array_slot_removed(struct pms_apply *a)
{
    struct pms_array_info info;
    unsigned slot = 0;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_slot(a, &info, &slot);
    if (rv != 0)
        return rv;
    if (info.phase != PMS_ARRAY_DELETING)
        return pms_refuse(a, PMS_EREFUSED, "array %s is not being deleted", info.name);
    pms_array_set_slot(json, slot, 0, NULL);
    PMS_MUST(pms_json_set_bool(a->result, "gone", pms_array_forget_if_vacant(a->st, info.name)));
    return 0;
}

int pms_on_array_forget(struct pms_apply *a)
{
    struct pms_array_info info;
    struct pms_node_info node;
    json_t *json;
    bool force;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_bool(a, a->cmd, "force", false, &force);
    if (rv != 0)
        return rv;
    if (info.phase != PMS_ARRAY_DELETING)
        return pms_refuse(a, PMS_EREFUSED, "array %s is not being deleted: run pmsctl array delete %s first",
                          info.name, info.name);
    for (unsigned i = 0; i < info.n_slots && !force; i++)
        if (pms_state_node_get(a->st, info.slots[i].node_id, &node) == 0)
            return pms_refuse(a, PMS_EBUSY,
                              "node %s has not removed its brick of array %s yet: wait for it, or force",
                              node.name, info.name);
    for (unsigned i = 0; i < info.n_slots; i++)
        pms_array_set_slot(json, i, 0, NULL);
    PMS_CHECK(pms_array_forget_if_vacant(a->st, info.name));
    return 0;
}
