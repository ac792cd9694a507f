// SPDX-License-Identifier: GPL-2.0-or-later
// The arrays that this node takes part in: the list is kept in line with the agreed state, each array with
// its record.
#include "base/check.h"
#include "base/err.h"
#include "cmd/pmsd/left.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/quit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pms_local *pms_local_find(struct pms_app *app, uint64_t id)
{
    pms_list_for_each (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        if (a->info.id == id)
            return a;
    }
    return NULL;
}

struct pms_local *pms_local_find_by_name(struct pms_app *app, const char *name)
{
    pms_list_for_each (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        if (a->in_state && strcmp(a->info.name, name) == 0)
            return a;
    }
    return NULL;
}

static struct pms_local *array_add(struct pms_app *app, const struct pms_array_info *info)
{
    struct pms_local *a = calloc(1, sizeof(*a));

    PMS_CHECK_MSG(a != NULL, "out of memory");
    a->app = app;
    a->info.id = info->id;
    a->slot = -1;
    pms_list_add_tail(&app->arrays, &a->link);
    return a;
}

static bool slot_same(const struct pms_slot_info *x, const struct pms_slot_info *y)
{
    return x->node_id == y->node_id && x->zeroed == y->zeroed && x->in_sync == y->in_sync &&
           x->incarnation == y->incarnation && strcmp(x->brick, y->brick) == 0;
}

// As far as it concerns brick, data loop and target; the rest never changes while an array lives.
static bool info_same(const struct pms_array_info *x, const struct pms_array_info *y)
{
    bool same = x->epoch == y->epoch && x->phase == y->phase && x->primary == y->primary &&
                x->n_slots == y->n_slots && x->write_cache == y->write_cache &&
                x->cache_used == y->cache_used;

    for (unsigned i = 0; same && i < x->n_slots; i++)
        same = slot_same(&x->slots[i], &y->slots[i]);
    return same;
}

// Our slot and its brick's path. lost: what we have of it belongs to a place that is no more.
static void place_take(struct pms_local *a, int slot, bool lost)
{
    const struct pms_slot_info *s = &a->info.slots[slot];
    char path[sizeof(a->path)];

    if (s->brick[0] != '\0')
        snprintf(path, sizeof(path), "%s", s->brick);
    else
        snprintf(path, sizeof(path), "%s/%s.brick", a->app->opt.brick_dir, a->info.name);
    if (a->slot >= 0 && a->brick != PMS_BRICK_NONE && a->brick != PMS_BRICK_GONE && (a->replaced || lost)) {
        a->replaced = true;
        strcpy(a->path_next, path);
    } else {
        strcpy(a->path, path);
    }
    a->slot = slot;
}

static void array_take(struct pms_local *a, const struct pms_array_info *info)
{
    int slot = pms_array_slot_of(info, a->app->node.id);
    int was = pms_array_slot_of(&a->info, a->app->node.id);
    bool changed = !info_same(&a->info, info), lost;

    // The slot's number and path are still needed for closing and removing when the slot itself is gone.
    a->in_state = slot >= 0;
    if (!changed)
        return;
    if (a->info.primary != info->primary && info->primary == slot && slot >= 0 && a->app->caught_up) {
        a->takeovers++;
        a->app->takeovers_seen++;
    }
    // A place that was taken away meanwhile, or was filled and is blank now.
    lost = slot >= 0 && (was < 0 || (a->info.slots[was].zeroed && !info->slots[slot].zeroed));
    a->info = *info;
    if (slot >= 0)
        place_take(a, slot, lost);
    pms_local_conf_send(a);
}

static void array_free(struct pms_local *a)
{
    if (a->handover_cb != NULL)
        a->handover_cb(a->handover_data, PMS_ESHUTDOWN);
    pms_list_del(&a->link);
    free(a);
}

// Nothing of it is left here.
static bool array_over(const struct pms_local *a)
{
    return !a->in_state && a->brick == PMS_BRICK_GONE && a->at == NULL;
}

bool pms_locals_none(const struct pms_app *app)
{
    pms_list_for_each (it, &app->arrays) {
        if (!array_over(pms_list_entry(it, struct pms_local, link)))
            return false;
    }
    return true;
}

static void arrays_sweep(struct pms_app *app)
{
    pms_list_for_each_safe (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        if (!array_over(a))
            continue;
        array_free(a);
    }
}

void pms_locals_sync(struct pms_app *app)
{
    struct pms_array_info info;

    if (app->data == NULL)
        return; // a witness
    pms_list_for_each (it, &app->arrays) {
        pms_list_entry(it, struct pms_local, link)->in_state = false;
    }
    for (size_t c = 0; pms_state_array_next(app->state, &c, &info);) {
        struct pms_local *a = pms_local_find(app, info.id);

        if (a == NULL && pms_array_slot_of(&info, app->node.id) < 0)
            continue;
        if (a == NULL)
            a = array_add(app, &info);
        array_take(a, &info);
    }
    pms_list_for_each_safe (it, &app->arrays) {
        pms_local_step(pms_list_entry(it, struct pms_local, link));
    }
    arrays_sweep(app);
}

void pms_locals_live(struct pms_app *app)
{
    pms_list_for_each (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        pms_local_conf_send(a);
        pms_local_step(a);
    }
}

void pms_locals_tick(struct pms_app *app)
{
    uint64_t now = pms_clock_boot_ns();

    pms_left_tick(app, now);
    pms_list_for_each (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        pms_local_lease_watch(a, now);
        pms_local_sessions_tick(a, now);
        pms_local_step(a);
    }
    arrays_sweep(app);
}

bool pms_locals_shutdown(struct pms_app *app)
{
    bool all = true;

    pms_list_for_each_safe (it, &app->arrays) {
        struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        if (!pms_local_unserve(a) || pms_quit_waits(app, a)) {
            all = false;
            continue;
        }
        array_free(a); // what is open in the data loop goes with it
    }
    return all;
}
