// SPDX-License-Identifier: GPL-2.0-or-later
// Commands after a permanent loss: the cluster goes on without nodes (cluster_recover), an array goes on from a
// stale copy (array_recover). Both give something up, so both say exactly what, and are never proposed unasked.
//
// An array whose in-sync slots are all on given-up nodes is "lost": its in-sync set stays as it was, as nothing
// here may invent a good copy. array_recover or array_delete ends that.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

#include <string.h>

// Epochs that only the lost nodes knew of lie below this step: each takes at least a round of the datapath.
#define EPOCH_STEP (1ull << 20)

bool pms_array_is_lost(const struct pms_state *st, const struct pms_array_info *array)
{
    struct pms_node_info node;

    for (unsigned i = 0; i < array->n_slots; i++)
        if (array->slots[i].in_sync && pms_state_node_get(st, array->slots[i].node_id, &node) == 0)
            return false;
    return array->in_sync != 0;
}

// A list of node ids, each nonzero and once; no list where it is optional is an empty one.
static int ids_field(struct pms_apply *a, bool optional, uint64_t ids[PMS_NODES_MAX], unsigned *n)
{
    const json_t *list, *item;
    size_t i;
    int rv;

    *n = 0;
    if (optional && json_object_get(a->cmd, "lost") == NULL)
        return 0;
    rv = pms_field_list(a, a->cmd, "lost", PMS_NODES_MAX, &list);
    if (rv != 0)
        return rv;
    json_array_foreach (list, i, item) {
        uint64_t id = 0;

        if (!json_is_string(item) || pms_id_parse(json_string_value(item), &id) != 0 || id == 0)
            return pms_refuse(a, PMS_EUSAGE, "\"lost\" must be a list of ids");
        for (unsigned j = 0; j < *n; j++)
            if (ids[j] == id)
                return pms_refuse(a, PMS_EUSAGE, "\"lost\" names %016llx twice", (unsigned long long)id);
        ids[(*n)++] = id;
    }
    return 0;
}

static bool is_among(uint64_t id, const uint64_t *ids, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

// ---- The cluster ----

// The slots of the array on lost nodes; also the first in-sync slot that is not (-1: none).
static uint32_t slots_lost(const struct pms_array_info *info, const uint64_t *lost, unsigned n, int *left)
{
    uint32_t mask = 0;

    *left = -1;
    for (unsigned i = 0; i < info->n_slots; i++) {
        if (is_among(info->slots[i].node_id, lost, n))
            mask |= 1u << i;
        else if (info->slots[i].in_sync && *left < 0)
            *left = (int)i;
    }
    return mask;
}

// An array that is lost keeps all its slots as they are; true then.
static bool array_go_on(struct pms_apply *a, struct pms_array_info *info, const uint64_t *lost, unsigned n)
{
    json_t *json = json_object_get(a->st->arrays, info->name);
    int left;
    uint32_t gone = slots_lost(info, lost, n, &left);

    if (info->phase == PMS_ARRAY_READY && left < 0)
        return true;
    if (info->phase == PMS_ARRAY_CREATING && gone == 0)
        return false;
    info->epoch += EPOCH_STEP;
    if (info->phase == PMS_ARRAY_CREATING) // it can never be made whole
        PMS_MUST(pms_json_set_str(json, "phase", "deleting"));
    for (unsigned i = 0; i < info->n_slots; i++)
        if ((gone & (1u << i)) != 0)
            pms_array_set_slot(json, i, 0, NULL);
    info->in_sync &= ~gone;
    if (info->primary >= 0 && (gone & (1u << info->primary)) != 0) {
        info->primary = left;
        pms_sessions_orphan_all(a->st, info->name, a->index);
    }
    if (info->primary >= 0)
        info->primary_since = info->epoch; // also of the same node: what it left is from before
    pms_array_set_layout(json, info);
    return false;
}

int pms_on_cluster_recover(struct pms_apply *a)
{
    uint64_t lost[PMS_NODES_MAX], lost_arrays = 0;
    struct pms_array_info info;
    struct pms_node_info node;
    unsigned n;
    int rv = ids_field(a, false, lost, &n);

    if (rv != 0)
        return rv;
    for (unsigned i = 0; i < n; i++)
        if (pms_state_node_get(a->st, lost[i], &node) != 0)
            return pms_refuse(a, PMS_ENOTFOUND, "there is no node with the id %016llx",
                              (unsigned long long)lost[i]);
    if (n >= json_object_size(a->st->nodes))
        return pms_refuse(a, PMS_EREFUSED, "not every node can be given up");

    for (size_t c = 0; pms_state_array_next(a->st, &c, &info);) {
        if (array_go_on(a, &info, lost, n))
            lost_arrays++;
        // The cursor is a place in the sorted names: one name less moves the rest up.
        else if (info.phase != PMS_ARRAY_READY && pms_array_forget_if_vacant(a->st, info.name))
            c--;
    }
    for (unsigned i = 0; i < n; i++) {
        PMS_CHECK(pms_state_node_get(a->st, lost[i], &node) == 0);
        PMS_MUST(json_object_del(a->st->nodes, node.name));
    }
    PMS_MUST(pms_json_set_u64(a->result, "lost", lost_arrays));
    return 0;
}

// ---- An array ----

// The in-sync slots must really be given up: each is on no node, or on one that is named.
static int in_sync_given_up(struct pms_apply *a, const struct pms_array_info *info, const uint64_t *lost,
                            unsigned n)
{
    struct pms_node_info node;

    for (unsigned i = 0; i < info->n_slots; i++) {
        if (!info->slots[i].in_sync || pms_state_node_get(a->st, info->slots[i].node_id, &node) != 0 ||
            is_among(node.id, lost, n))
            continue;
        return pms_refuse(a, PMS_EREFUSED,
                          "node %s has a good copy of array %s: bring it back, or give that copy up by name "
                          "(--give-up %s)",
                          node.name, info->name, node.name);
    }
    return 0;
}

static void array_restart(struct pms_apply *a, json_t *json, struct pms_array_info *info, unsigned slot)
{
    struct pms_node_info node;

    for (unsigned i = 0; i < info->n_slots; i++)
        if (pms_state_node_get(a->st, info->slots[i].node_id, &node) != 0)
            pms_array_set_slot(json, i, 0, NULL);
    info->in_sync = 1u << slot;
    info->primary = (int)slot;
    info->primary_since = info->epoch;
    pms_array_set_layout(json, info);
    // What initiators believe about this disk is not so any more: each logs in as a new nexus, and is told.
    PMS_MUST(json_array_clear(json_object_get(a->st->sessions, info->name)));
}

int pms_on_array_recover(struct pms_apply *a)
{
    uint64_t lost[PMS_NODES_MAX], epoch = 0, incarnation = 0, floor = 0;
    struct pms_array_info info;
    struct pms_node_info node;
    unsigned slot = 0, n;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_slot(a, &info, &slot);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "epoch", 0, INT64_MAX - 1, &epoch);
    if (rv == 0)
        rv = pms_field_id(a, a->cmd, "incarnation", &incarnation);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "floor", 0, INT64_MAX - 1, &floor);
    if (rv == 0)
        rv = ids_field(a, true, lost, &n);
    if (rv != 0)
        return rv;
    rv = pms_array_expect(a, &info, epoch);
    if (rv != 0)
        return rv;
    if (info.slots[slot].in_sync)
        return pms_refuse(a, PMS_EREFUSED, "slot %u of array %s is in sync: there is nothing to recover",
                          slot, info.name);
    if (pms_state_node_get(a->st, info.slots[slot].node_id, &node) != 0)
        return pms_refuse(a, PMS_EREFUSED, "slot %u of array %s is on no node of the cluster", slot,
                          info.name);
    rv = in_sync_given_up(a, &info, lost, n);
    if (rv != 0)
        return rv;

    info.epoch = (floor > info.epoch ? floor : info.epoch) + 1;
    info.slots[slot].incarnation = incarnation;
    array_restart(a, json, &info, slot);
    PMS_MUST(pms_json_set_u64(a->result, "epoch", info.epoch));
    return 0;
}
