// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about the cluster and its nodes: init, join, address, leave.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

#include <string.h>

// ---- Records ----

void pms_node_put(struct pms_state *st, const struct pms_node_info *n)
{
    json_t *node = pms_must(json_object());

    PMS_MUST(pms_json_set_id(node, "id", n->id));
    PMS_MUST(pms_json_set_str(node, "addr", n->addr));
    PMS_MUST(pms_json_set_str(node, "role", n->witness ? "witness" : "data"));
    PMS_MUST(pms_json_set_str(node, "state", "joined"));
    PMS_MUST(pms_json_set_u64(node, "feature_level", n->feature_level));
    PMS_MUST(json_object_set_new(st->nodes, n->name, node));
}

// id, name, addr and feature level of obj, checked for themselves.
static int node_fields(struct pms_apply *a, const json_t *obj, struct pms_node_info *n)
{
    const char *name;
    int rv = pms_field_id(a, obj, "id", &n->id);

    if (rv == 0)
        rv = pms_field_name(a, obj, "name", &name);
    if (rv == 0)
        rv = pms_field_addr(a, obj, "addr", n->addr);
    if (rv == 0)
        rv = pms_field_level(a, obj, "supports", &n->feature_level);
    if (rv == 0)
        strcpy(n->name, name);
    return rv;
}

// True if both texts "ip:port" have this ip (portals have it without a port).
static bool addr_has_ip(const char *addr, const char *ip)
{
    const char *colon = strrchr(addr, ':');
    size_t n = (size_t)(colon - addr);

    if (addr[0] == '[') {
        addr++;
        n -= 2;
    }
    return strlen(ip) == n && memcmp(addr, ip, n) == 0;
}

// The address must be no other node's and no portal's: a portal moves between nodes.
static int addr_free(struct pms_apply *a, const char *addr, uint64_t own_id, const char *replaced)
{
    struct pms_array_info array;
    struct pms_node_info node;

    for (size_t c = 0; pms_state_node_next(a->st, &c, &node);)
        if (node.id != own_id && strcmp(node.addr, addr) == 0 &&
            (replaced == NULL || strcmp(node.name, replaced) != 0))
            return pms_refuse(a, PMS_EEXISTS,
                              "%s is the address of node %s: choose another, or, if that node is gone for "
                              "good, run pmsctl cluster leave --node %s first",
                              addr, node.name, node.name);
    for (size_t c = 0; pms_state_array_next(a->st, &c, &array);)
        if (addr_has_ip(addr, array.portal_addr))
            return pms_refuse(a, PMS_EEXISTS,
                              "%s is the portal of array %s, which moves between nodes: choose another", addr,
                              array.name);
    return 0;
}

bool pms_portal_is_node_addr(const struct pms_state *st, const char *ip, struct pms_node_info *node)
{
    for (size_t c = 0; pms_state_node_next(st, &c, node);)
        if (addr_has_ip(node->addr, ip))
            return true;
    return false;
}

// ---- Commands ----

int pms_on_cluster_init(struct pms_apply *a)
{
    struct pms_node_info node = {0};
    const char *id = pms_json_str(a->cmd, "id", "");
    const char *name;
    const json_t *obj;
    char text[PMS_UUID_TEXT_SIZE];
    struct pms_uuid uuid;
    int rv;

    if (pms_state_has_cluster(a->st))
        return pms_refuse(a, PMS_EEXISTS, "this is already cluster %s", pms_state_cluster_name(a->st));
    if (pms_uuid_parse(id, &uuid) != 0)
        return pms_refuse(a, PMS_EUSAGE, "\"id\" must be 32 hex digits");
    rv = pms_field_name(a, a->cmd, "name", &name);
    if (rv == 0)
        rv = pms_field_object(a, a->cmd, "node", &obj);
    if (rv == 0)
        rv = node_fields(a, obj, &node);
    if (rv != 0)
        return rv;

    PMS_MUST(pms_json_set_str(a->st->cluster, "id", pms_uuid_format(&uuid, text)));
    PMS_MUST(pms_json_set_str(a->st->cluster, "name", name));
    PMS_MUST(pms_json_set_u64(a->st->cluster, "feature_level", node.feature_level));
    pms_node_put(a->st, &node);
    return 0;
}

// What may stand in the way of a node with this name or id. *replaced: the name's old id to be dropped, or 0.
// Returns 1 if the node has joined already, just so.
static int join_conflict(struct pms_apply *a, const struct pms_node_info *n, uint64_t *replaced)
{
    struct pms_node_info have;
    struct pms_array_info array;

    *replaced = 0;
    if (pms_state_node_get(a->st, n->id, &have) == 0) {
        if (strcmp(have.name, n->name) != 0)
            return pms_refuse(a, PMS_EEXISTS, "this node has joined already, as %s", have.name);
        if (have.witness != n->witness)
            return pms_refuse(a, PMS_EEXISTS, "node %s has joined already, as a %s node", have.name,
                              have.witness ? "witness" : "data");
        return 1;
    }
    // A former node's slots may still bear its id.
    for (size_t c = 0; n->witness && pms_state_array_next(a->st, &c, &array);)
        if (pms_array_slot_of(&array, n->id) >= 0)
            return pms_refuse(a, PMS_EREFUSED, "array %s has a slot on this node: a witness stores no data",
                              array.name);
    if (pms_state_node_get_by_name(a->st, n->name, &have) != 0) {
        if (json_object_size(a->st->nodes) >= PMS_NODES_MAX)
            return pms_refuse(a, PMS_EFULL, "a cluster has at most %d nodes", PMS_NODES_MAX);
        return 0;
    }
    for (size_t c = 0; pms_state_array_next(a->st, &c, &array);) {
        int slot = pms_array_slot_of(&array, have.id);

        if (slot >= 0 && array.slots[slot].in_sync)
            return pms_refuse(a, PMS_EEXISTS,
                              "there is a node %s already, and array %s counts on its copy: join under "
                              "another name, or run pmsctl cluster leave --node %s first",
                              n->name, array.name, n->name);
    }
    *replaced = have.id;
    return 0;
}

int pms_on_node_join(struct pms_apply *a)
{
    const char *role = pms_json_str(a->cmd, "role", ""), *token;
    struct pms_node_info node = {0};
    uint64_t now_s = 0, replaced = 0;
    int rv = node_fields(a, a->cmd, &node);

    if (rv == 0)
        rv = pms_field_text(a, a->cmd, "token", PMS_TOKEN_ID_MAX, &token);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "now_s", 0, INT64_MAX, &now_s);
    if (rv != 0)
        return rv;
    node.witness = strcmp(role, "witness") == 0;
    if (!node.witness && strcmp(role, "data") != 0)
        return pms_refuse(a, PMS_EUSAGE, "\"role\" must be data or witness");
    rv = pms_level_suffices(a, node.name, node.feature_level);
    if (rv != 0)
        return rv;
    rv = join_conflict(a, &node, &replaced);
    if (rv < 0)
        return rv;
    if (rv == 1) {
        PMS_MUST(pms_json_set_bool(a->result, "already", true));
        return 0;
    }
    rv = addr_free(a, node.addr, node.id, replaced != 0 ? node.name : NULL);
    if (rv == 0)
        rv = pms_token_admits(a, token, node.id, now_s);
    if (rv != 0)
        return rv;

    pms_token_spend(a, token, node.id);
    pms_node_put(a->st, &node);
    if (replaced != 0)
        PMS_MUST(json_object_set_new(a->result, "replaced", pms_json_id_new(replaced)));
    return 0;
}

int pms_on_node_addr(struct pms_apply *a)
{
    char addr[PMS_ADDR_TEXT_MAX + 1];
    struct pms_node_info node;
    int rv = pms_field_node(a, a->cmd, "id", &node);

    if (rv == 0)
        rv = pms_field_addr(a, a->cmd, "addr", addr);
    if (rv == 0)
        rv = addr_free(a, addr, node.id, NULL);
    if (rv != 0)
        return rv;
    strcpy(node.addr, addr);
    pms_node_put(a->st, &node);
    return 0;
}

// ---- Leave ----

int pms_leave_check(const struct pms_state *st, const struct pms_node_info *node, bool primaries_moved,
                    char *why, size_t why_len)
{
    struct pms_array_info array;

    if (json_object_size(st->nodes) == 1) {
        snprintf(why, why_len, "%s is the only node: there is nothing to leave", node->name);
        return PMS_EREFUSED;
    }
    for (size_t c = 0; pms_state_array_next(st, &c, &array);) {
        int slot = pms_array_slot_of(&array, node->id);

        if (slot < 0 || array.phase == PMS_ARRAY_DELETING)
            continue;
        if (array.phase == PMS_ARRAY_CREATING) {
            snprintf(
                why, why_len,
                "array %s is being created on %s: wait until it can serve, or run pmsctl array delete %s",
                array.name, node->name, array.name);
            return PMS_EBUSY;
        }
        if (array.slots[slot].in_sync &&
            (unsigned)__builtin_popcount(array.in_sync) <= pms_array_copies_min(&array)) {
            snprintf(why, why_len,
                     "%s holds the last good copy of array %s: wait until another copy is in sync, or delete "
                     "the array",
                     node->name, array.name);
            return PMS_EREFUSED;
        }
        if (array.primary == slot && !primaries_moved) {
            snprintf(why, why_len, "%s is the primary of array %s: run pmsctl array handover %s first",
                     node->name, array.name, array.name);
            return PMS_EREFUSED;
        }
    }
    return 0;
}

int pms_on_node_leave(struct pms_apply *a)
{
    const char *name = pms_json_str(a->cmd, "name", "");
    struct pms_node_info node;
    struct pms_array_info array;
    uint64_t touched = 0;
    char why[400];
    int rv;

    if (pms_state_node_get_by_name(a->st, name, &node) != 0)
        return pms_refuse(a, PMS_ENOTFOUND, "there is no node %.63s", name);
    rv = pms_leave_check(a->st, &node, false, why, sizeof(why));
    if (rv != 0)
        return pms_refuse(a, rv, "%s", why);

    for (size_t c = 0; pms_state_array_next(a->st, &c, &array);) {
        int slot = pms_array_slot_of(&array, node.id);
        json_t *json = json_object_get(a->st->arrays, array.name);

        if (slot < 0)
            continue;
        touched++;
        array.in_sync &= ~(1u << slot);
        array.epoch++;
        pms_array_set_slot(json, (unsigned)slot, 0, NULL);
        pms_array_set_layout(json, &array);
        // The cursor is a place in the sorted names: one name less moves the rest up.
        if (array.phase == PMS_ARRAY_DELETING && pms_array_forget_if_vacant(a->st, array.name))
            c--;
    }
    PMS_MUST(json_object_del(a->st->nodes, node.name));
    PMS_MUST(pms_json_set_u64(a->result, "arrays", touched));
    return 0;
}
