// SPDX-License-Identifier: GPL-2.0-or-later
// Where to place copies, where to move primaries, and who may leave. Verdicts in words are in
// policy_verdict.c.
#include "consensus/core/policy.h"
#include "consensus/core/policy_internal.h"
#include "consensus/core/state_internal.h"
#include "base/err.h"

#include <stdarg.h>
#include <string.h>

__attribute__((format(printf, 4, 5))) static int refuse(char *why, size_t why_len, int err, const char *fmt,
                                                        ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, why_len, fmt, ap);
    va_end(ap);
    return err;
}

bool pms_view_alive(const struct pms_policy_view *view, uint64_t node_id)
{
    for (unsigned i = 0; i < view->n_alive; i++)
        if (view->alive[i] == node_id)
            return true;
    return false;
}

// ---- Load ----

struct load {
    struct pms_node_info node;
    uint64_t bytes;     // of all its slots
    unsigned primaries; // arrays it serves
    bool alive;
};

// The data nodes in the order of their names; returns their number.
static unsigned loads_collect(const struct pms_state *st, const struct pms_policy_view *view,
                              struct load loads[PMS_NODES_MAX])
{
    struct pms_array_info array;
    struct pms_node_info node;
    unsigned n = 0;

    for (size_t c = 0; pms_state_node_next(st, &c, &node);)
        if (!node.witness)
            loads[n++] = (struct load){.node = node, .alive = pms_view_alive(view, node.id)};
    for (size_t c = 0; pms_state_array_next(st, &c, &array);) {
        for (unsigned i = 0; i < n; i++) {
            int slot = pms_array_slot_of(&array, loads[i].node.id);

            if (slot < 0)
                continue;
            loads[i].bytes += array.size_bytes;
            // An array being created will be served from slot 0.
            if (array.phase == PMS_ARRAY_CREATING ? slot == 0 : slot == array.primary)
                loads[i].primaries++;
        }
    }
    return n;
}

int pms_policy_place(const struct pms_state *st, const struct pms_policy_view *view, unsigned copies,
                     uint64_t out[PMS_SLOTS_MAX], char *why, size_t why_len)
{
    struct load loads[PMS_NODES_MAX];
    unsigned n = loads_collect(st, view, loads), alive = 0, first = 0;
    unsigned chosen[PMS_SLOTS_MAX];

    if (copies == 0 || copies > PMS_SLOTS_MAX)
        return refuse(why, why_len, PMS_EUSAGE, "an array has 1 to %d copies", PMS_SLOTS_MAX);
    if (copies > n)
        return refuse(
            why, why_len, PMS_EREFUSED,
            "%u copies need %u data nodes, and the cluster has %u: join more, or ask for fewer copies",
            copies, copies, n);
    for (unsigned i = 0; i < n; i++)
        alive += loads[i].alive ? 1 : 0;
    if (copies > alive)
        return refuse(why, why_len, PMS_EREFUSED,
                      "%u copies need %u data nodes, and %u of %u answer: bring the others back first",
                      copies, copies, alive, n);
    for (unsigned k = 0; k < copies; k++) {
        struct load *best = NULL;

        for (unsigned i = 0; i < n; i++)
            if (loads[i].alive && (best == NULL || loads[i].bytes < best->bytes))
                best = &loads[i];
        chosen[k] = (unsigned)(best - loads);
        best->alive = false; // taken
    }
    for (unsigned k = 1; k < copies; k++)
        if (loads[chosen[k]].primaries < loads[chosen[first]].primaries)
            first = k;
    out[0] = loads[chosen[first]].node.id;
    for (unsigned k = 0, at = 1; k < copies; k++)
        if (k != first)
            out[at++] = loads[chosen[k]].node.id;
    return 0;
}

// ---- Handover ----

int pms_policy_handover_target(const struct pms_state *st, const struct pms_policy_view *view,
                               uint64_t array_id, uint64_t avoid_id, char *why, size_t why_len)
{
    struct load loads[PMS_NODES_MAX];
    unsigned n = loads_collect(st, view, loads), fewest = 0;
    struct pms_array_info array;
    int target = -1;

    if (pms_state_array_get(st, array_id, &array) != 0 || array.phase != PMS_ARRAY_READY) {
        refuse(why, why_len, 0, "the array does not serve");
        return -1;
    }
    for (unsigned slot = 0; slot < array.n_slots; slot++) {
        if (!array.slots[slot].in_sync || (int)slot == array.primary || array.slots[slot].node_id == avoid_id)
            continue;
        for (unsigned i = 0; i < n; i++) {
            if (loads[i].node.id != array.slots[slot].node_id || !loads[i].alive)
                continue;
            if (target < 0 || loads[i].primaries < fewest) {
                target = (int)slot;
                fewest = loads[i].primaries;
            }
        }
    }
    if (target < 0)
        refuse(
            why, why_len, 0,
            "no other copy of array %s is in sync on a node that answers: wait until one is, and try again",
            array.name);
    return target;
}

// ---- Leave ----

// With the node gone, the others that answer must still be a majority.
static int leave_keeps_quorum(const struct pms_state *st, const struct pms_policy_view *view,
                              const struct pms_node_info *leaving, char *why, size_t why_len)
{
    unsigned rest = 0, alive = 0;
    struct pms_node_info node;

    for (size_t c = 0; pms_state_node_next(st, &c, &node);) {
        if (node.id == leaving->id)
            continue;
        rest++;
        alive += pms_view_alive(view, node.id) ? 1 : 0;
    }
    if (alive * 2 > rest)
        return 0;
    return refuse(why, why_len, PMS_EREFUSED,
                  "without %s only %u of the other %u nodes answer, which is no quorum: bring one back first",
                  leaving->name, alive, rest);
}

int pms_policy_leave_next(const struct pms_state *st, const struct pms_policy_view *view, const char *name,
                          struct pms_leave_step *step, char *why, size_t why_len)
{
    struct pms_leave_step first = {.to_slot = -1};
    struct pms_array_info array;
    struct pms_node_info node;
    int rv;

    if (pms_state_node_get_by_name(st, name, &node) != 0)
        return refuse(why, why_len, PMS_ENOTFOUND, "there is no node %.63s", name);
    rv = pms_leave_check(st, &node, true, why, why_len);
    if (rv == 0)
        rv = leave_keeps_quorum(st, view, &node, why, why_len);
    if (rv != 0)
        return rv;
    for (size_t c = 0; pms_state_array_next(st, &c, &array);) {
        int to;

        if (array.primary < 0 || array.slots[array.primary].node_id != node.id)
            continue;
        to = pms_policy_handover_target(st, view, array.id, node.id, why, why_len);
        if (to < 0)
            return PMS_EREFUSED;
        if (first.to_slot < 0)
            first = (struct pms_leave_step){.array_id = array.id, .to_slot = to};
    }
    if (first.to_slot < 0)
        return 0;
    *step = first;
    return 1;
}

// ---- Upgrade ----

void pms_policy_upgrade(const struct pms_state *st, struct pms_upgrade *out)
{
    struct pms_node_info node;

    *out = (struct pms_upgrade){.level = pms_state_feature_level(st)};
    out->possible = out->newest = out->level;
    for (size_t c = 0; pms_state_node_next(st, &c, &node);)
        if (node.feature_level > out->newest)
            out->newest = node.feature_level;
    out->possible = out->newest;
    for (size_t c = 0; pms_state_node_next(st, &c, &node);) {
        if (node.feature_level < out->possible)
            out->possible = node.feature_level;
        if (node.feature_level < out->newest)
            out->behind[out->n_behind++] = node.id;
    }
}
