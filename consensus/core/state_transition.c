// SPDX-License-Identifier: GPL-2.0-or-later
// The transitions of a served array: takeover, refresh, eject, admit, handover (design, section 4).
//
// Each is a compare-and-set on the epoch and raises it by one. Here only what can be seen in the state is
// checked; what must have happened on the nodes first (promises, lapse, flush, drain) is the proposer's duty.
//
//   kind      primary              in-sync set
//   takeover  any slot of the new  a subset of the current one, its entries unchanged
//   refresh   unchanged            unchanged
//   eject     unchanged            the current one minus exactly one, never the primary
//   admit     unchanged            the current one plus exactly one
//   handover  another in-sync one  unchanged
//
// Always: RAID1 keeps at least 1, RAID5 n-1; the primary is in the set; nothing is in it twice, nothing
// vacant.
//
// R6, the unclean takeover: with a write cache (or one that was on a moment ago), every in-sync slot may have lost
// power at once. Then all of them, and no fewer, go on under new incarnations, and the sessions are forgotten: who
// comes back is told by UNIT ATTENTION 29h that cached data may be gone. Where there never was a write cache nothing
// acknowledged is ever volatile, so a slot with another incarnation is not the one that was in sync, and there is no
// such takeover.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

struct proposal {
    unsigned primary;
    uint32_t in_sync; // mask
    uint64_t incarnation[PMS_SLOTS_MAX];
};

// NULL, or what is wrong.
typedef const char *check_fn(const struct pms_array_info *now, const struct proposal *p);

// The slots of mask whose incarnation is the one they are in sync with.
static uint32_t same_incarnation(const struct pms_array_info *now, const struct proposal *p, uint32_t mask)
{
    uint32_t same = 0;

    for (unsigned i = 0; i < now->n_slots; i++)
        if ((mask & (1u << i)) != 0 && now->slots[i].incarnation == p->incarnation[i])
            same |= 1u << i;
    return same;
}

static const char *check_takeover(const struct pms_array_info *now, const struct proposal *p)
{
    uint32_t same = same_incarnation(now, p, p->in_sync);

    if ((p->in_sync & ~now->in_sync) != 0)
        return "a takeover adds no slot to the in-sync set";
    if (same == p->in_sync)
        return NULL;
    if (!now->cache_used)
        return "a slot's incarnation is not the in-sync one";
    if (same != 0 || p->in_sync != now->in_sync)
        return "an unclean takeover needs every in-sync slot, and each of them unclean";
    return NULL;
}

static const char *check_refresh(const struct pms_array_info *now, const struct proposal *p)
{
    if ((int)p->primary != now->primary)
        return "a refresh keeps the primary";
    if (p->in_sync != now->in_sync || same_incarnation(now, p, p->in_sync) != p->in_sync)
        return "a refresh keeps the in-sync set";
    return NULL;
}

static const char *check_eject(const struct pms_array_info *now, const struct proposal *p)
{
    if ((int)p->primary != now->primary)
        return "an eject keeps the primary";
    if ((p->in_sync & ~now->in_sync) != 0 || __builtin_popcount(now->in_sync & ~p->in_sync) != 1)
        return "an eject takes exactly one slot out of the in-sync set";
    if (same_incarnation(now, p, p->in_sync) != p->in_sync)
        return "a slot's incarnation is not the in-sync one";
    return NULL;
}

static const char *check_admit(const struct pms_array_info *now, const struct proposal *p)
{
    if ((int)p->primary != now->primary)
        return "an admit keeps the primary";
    if ((now->in_sync & ~p->in_sync) != 0 || __builtin_popcount(p->in_sync & ~now->in_sync) != 1)
        return "an admit adds exactly one slot to the in-sync set";
    if (same_incarnation(now, p, now->in_sync) != now->in_sync)
        return "a slot's incarnation is not the in-sync one";
    return NULL;
}

static const char *check_handover(const struct pms_array_info *now, const struct proposal *p)
{
    if ((int)p->primary == now->primary)
        return "a handover changes the primary";
    if (p->in_sync != now->in_sync || same_incarnation(now, p, p->in_sync) != p->in_sync)
        return "a handover keeps the in-sync set";
    return NULL;
}

static const struct {
    const char *name;
    check_fn *check;
} kinds[] = {
    {"takeover", check_takeover}, {"refresh", check_refresh},   {"eject", check_eject},
    {"admit", check_admit},       {"handover", check_handover},
};

static check_fn *kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].check;
    return NULL;
}

int pms_refuse_stale(struct pms_apply *a, const struct pms_array_info *now)
{
    const json_t *json = json_object_get(a->st->arrays, now->name);
    int rv = pms_refuse(a, PMS_ESTALE, "array %s is at epoch %llu: read it again", now->name,
                        (unsigned long long)now->epoch);

    PMS_MUST(pms_json_set_u64(a->result, "epoch", now->epoch));
    PMS_MUST(json_object_set_new(a->result, "primary",
                                 pms_must(json_deep_copy(json_object_get(json, "primary")))));
    PMS_MUST(json_object_set_new(a->result, "in_sync",
                                 pms_must(json_deep_copy(json_object_get(json, "in_sync")))));
    return rv;
}

int pms_array_expect(struct pms_apply *a, const struct pms_array_info *now, uint64_t epoch)
{
    if (epoch != now->epoch)
        return pms_refuse_stale(a, now);
    if (now->phase != PMS_ARRAY_READY)
        return pms_refuse(a, PMS_EREFUSED, "array %s is %s", now->name,
                          now->phase == PMS_ARRAY_CREATING ? "still being created" : "being deleted");
    return 0;
}

static int in_sync_fields(struct pms_apply *a, const struct pms_array_info *now, struct proposal *p)
{
    const json_t *set, *entry;
    uint64_t slot = 0, incarnation = 0;
    size_t i;
    int rv = pms_field_list(a, a->cmd, "in_sync", now->n_slots, &set);

    if (rv != 0)
        return rv;
    json_array_foreach (set, i, entry) {
        rv = pms_field_u64(a, entry, "slot", 0, now->n_slots - 1, &slot);
        if (rv == 0)
            rv = pms_field_id(a, entry, "incarnation", &incarnation);
        if (rv != 0)
            return rv;
        if ((p->in_sync & (1u << slot)) != 0)
            return pms_refuse(a, PMS_EUSAGE, "slot %u is twice in \"in_sync\"", (unsigned)slot);
        p->in_sync |= 1u << slot;
        p->incarnation[slot] = incarnation;
    }
    return 0;
}

// What holds for every kind.
static int proposal_check(struct pms_apply *a, const struct pms_array_info *now, const struct proposal *p)
{
    unsigned copies_min = pms_array_copies_min(now);
    struct pms_node_info node;

    if ((p->in_sync & (1u << p->primary)) == 0)
        return pms_refuse(a, PMS_EREFUSED, "the primary must be in the in-sync set");
    if ((unsigned)__builtin_popcount(p->in_sync) < copies_min)
        return pms_refuse(a, PMS_EREFUSED, "array %s needs at least %u in-sync slots", now->name, copies_min);
    for (unsigned i = 0; i < now->n_slots; i++)
        if ((p->in_sync & (1u << i)) != 0 && pms_state_node_get(a->st, now->slots[i].node_id, &node) != 0)
            return pms_refuse(a, PMS_EREFUSED, "slot %u of array %s is on no node of the cluster: replace it",
                              i, now->name);
    return 0;
}

static void transition_make(struct pms_apply *a, json_t *json, struct pms_array_info *info,
                            const struct proposal *p, bool takeover)
{
    bool moved = info->primary != (int)p->primary;
    bool unclean = takeover && same_incarnation(info, p, p->in_sync) != p->in_sync;

    for (unsigned i = 0; i < info->n_slots; i++)
        if ((p->in_sync & (1u << i)) != 0)
            info->slots[i].incarnation = p->incarnation[i];
    info->in_sync = p->in_sync;
    info->primary = (int)p->primary;
    info->epoch++;
    if (moved || unclean) // a target that ran until now is from before
        info->primary_since = info->epoch;
    pms_array_set_layout(json, info);
    // A takeover leaves the old primary's connections behind; a handover may carry them over.
    if (unclean)
        pms_sessions_forget_all(a->st, info->name);
    else if (takeover && moved)
        pms_sessions_orphan_all(a->st, info->name, a->index);
}

int pms_on_array_transition(struct pms_apply *a)
{
    const char *kind = pms_json_str(a->cmd, "kind", ""), *wrong;
    check_fn *check = kind_find(kind);
    struct proposal p = {0};
    struct pms_array_info info;
    uint64_t epoch = 0, primary = 0;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv != 0)
        return rv;
    if (check == NULL)
        return pms_refuse(a, PMS_EUSAGE, "there is no transition %.32s", kind);
    rv = pms_field_u64(a, a->cmd, "epoch", 0, INT64_MAX - 1, &epoch);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "primary", 0, info.n_slots - 1, &primary);
    if (rv == 0)
        rv = in_sync_fields(a, &info, &p);
    if (rv != 0)
        return rv;
    rv = pms_array_expect(a, &info, epoch);
    if (rv != 0)
        return rv;
    p.primary = (unsigned)primary;
    rv = proposal_check(a, &info, &p);
    if (rv != 0)
        return rv;
    wrong = check(&info, &p);
    if (wrong != NULL)
        return pms_refuse(a, PMS_EREFUSED, "array %s: %s", info.name, wrong);

    transition_make(a, json, &info, &p, check == check_takeover);
    PMS_MUST(pms_json_set_u64(a->result, "epoch", info.epoch));
    return 0;
}
