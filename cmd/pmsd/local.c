// SPDX-License-Identifier: GPL-2.0-or-later
// One array's brick and its place in the data loop.
//
//          wanted: a slot here, phase creating        phase ready                  no slot any more, or
//          deleting
//   NONE ---------------------> CREATING -----> MADE -----------> OPENING -> OPEN --------------> CLOSING
//                                  |              ^ (slot_zeroed is proposed)                        |
//                                  +- failed: NONE, again later                                      v
//                                                                     GONE <-------- DELETING <---- MADE
//   (slot_removed is proposed while the state still has the slot)
//
// A slot that is given a new place on the same node goes the whole way: closed, removed, made anew.
//
// Configurations go to the data loop in the order in which they were applied, each one, with live = false
// until everything that was committed at start has been applied.
#include "cmd/pmsd/local.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/quit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS   2000000000ull
#define PROPOSE_MS 5000

// The answer to a proposal finds the array by its id: it may be gone by then.
struct ref {
    struct pms_app *app;
    uint64_t array;
};

void *pms_local_ref(struct pms_local *a)
{
    struct ref *r = calloc(1, sizeof(*r));

    PMS_CHECK_MSG(r != NULL, "out of memory");
    *r = (struct ref){a->app, a->info.id};
    return r;
}

struct pms_local *pms_local_of(void *ref)
{
    struct ref *r = ref;
    struct pms_local *a = pms_local_find(r->app, r->array);

    free(r);
    return a;
}

bool pms_local_is_primary(const struct pms_local *a)
{
    return a->in_state && a->info.phase == PMS_ARRAY_READY && a->slot >= 0 && a->info.primary == a->slot;
}

bool pms_local_is_serving(const struct pms_local *a)
{
    return pms_local_is_primary(a) && a->brick == PMS_BRICK_OPEN && a->dp_known && a->dp.serving &&
           a->dp.epoch == a->info.epoch;
}

bool pms_local_is_needed(const struct pms_local *a)
{
    unsigned self = a->slot >= 0 ? 1u << a->slot : 0;

    return a->in_state && a->info.phase == PMS_ARRAY_READY && a->brick == PMS_BRICK_OPEN &&
           (a->info.in_sync & self) != 0 && a->info.in_sync != self;
}

// ---- To the data loop ----

static void conf_make(const struct pms_array_info *info, struct pms_dp_conf *conf)
{
    memset(conf, 0, sizeof(*conf));
    conf->epoch = info->epoch;
    conf->primary = (uint8_t)info->primary;
    conf->n_slots = (uint8_t)info->n_slots;
    conf->in_sync = (uint8_t)info->in_sync;
    conf->write_cache = info->write_cache;
    conf->cache_used = info->cache_used;
    for (unsigned i = 0; i < info->n_slots; i++) {
        conf->node[i] = info->slots[i].node_id;
        if (info->slots[i].in_sync)
            conf->incarnation[i] = info->slots[i].incarnation;
    }
}

// Kept by the data loop while the array is being opened; before that there is nothing to tell.
void pms_local_conf_send(struct pms_local *a)
{
    struct pms_dp_conf conf;

    if ((a->brick != PMS_BRICK_OPEN && a->brick != PMS_BRICK_OPENING) || a->info.phase != PMS_ARRAY_READY ||
        a->slot < 0)
        return;
    conf_make(&a->info, &conf);
    pms_loop_conf(a->app->data, a->info.id, &conf, a->app->caught_up);
}

// Tells what the brick may have lost: another boot of this host, or an I/O error since it was made.
static uint64_t boot_id(const char *fault_path)
{
    uint64_t boot = pms_id_host_boot(), salt;
    void *data = NULL;
    size_t len = 0;

    if (pms_file_read(fault_path, sizeof(salt), &data, &len) == 0 && len == sizeof(salt)) {
        memcpy(&salt, data, sizeof(salt));
        boot = (boot ^ salt) != 0 ? boot ^ salt : salt;
    }
    free(data);
    return boot;
}

static void brick_describe(const struct pms_local *a, struct pms_loop_brick *b)
{
    struct pms_state *st = a->app->state;
    char id[PMS_ID_TEXT_SIZE];

    memset(b, 0, sizeof(*b));
    snprintf(b->path, sizeof(b->path), "%s", a->path);
    b->init.array = a->info.id;
    b->init.self_slot = (uint8_t)a->slot;
    b->init.size_bytes = a->info.size_bytes;
    b->init.region_bytes = a->info.region_bytes;
    b->init.brick_version = pms_brick_version_at(pms_state_feature_level(st));
    snprintf(b->fault_path, sizeof(b->fault_path), "%s/faults/%s", a->app->opt.state_dir,
             pms_id_format(a->info.id, id));
    b->init.boot_id = boot_id(b->fault_path);
    b->init.probe_reads = a->app->probe_reads;
    b->init.timing = pms_dp_timing_default;
    b->init.timing.heartbeat = (uint32_t)pms_state_setting(st, PMS_SET_HEARTBEAT_MS);
    b->init.timing.promise = (uint32_t)pms_state_setting(st, PMS_SET_PROMISE_MS);
    b->init.timing.quiet = (uint32_t)pms_state_promise_ms_longest(st);
    b->init.timing.lease = (uint32_t)pms_state_setting(st, PMS_SET_LEASE_MS);
    b->init.timing.eject_dead = (uint32_t)pms_state_setting(st, PMS_SET_EJECT_DEAD_MS);
    b->init.timing.eject_slow = (uint32_t)pms_state_setting(st, PMS_SET_EJECT_SLOW_MS);
}

const char *pms_local_brick_text(int err)
{
    switch (err) {
    case PMS_EREFUSED:
        return "it holds data that is no brick: wipe it if nobody needs it, or name another place";
    case PMS_EBUSY:
        return "another process still uses it";
    case PMS_EIDENTITY:
        return "it holds a brick of another cluster or array, or one that this node kept from before it left "
               "the cluster: if nobody needs that data, remove the file (wipe the device), and it goes on";
    case PMS_EVERSION:
        return "its version is not one that this pmsd reads (pmsd --version): a newer pms wrote it; install "
               "that on "
               "this node";
    case -ENOSPC:
    case -EDQUOT:
        return "no space left on its file system: make room there (a copy in use goes on when its node's "
               "pmsd is "
               "started anew), or give it another place";
    case -EIO:
        return "its disk has failed: give the copy another place (pmsctl array replace)";
    case -ENOENT:
        return "it is missing: is its file system mounted?";
    default:
        return pms_err_text(err);
    }
}

static void brick_failed(struct pms_local *a, enum pms_brick_step back_to, int err, const char *what)
{
    if (a->brick_err != err)
        pms_log(PMS_LOG_ERROR, "array %s: brick %s could not be %s: %s", a->info.name, a->path, what,
                pms_local_brick_text(err));
    a->brick = back_to;
    a->brick_err = err;
    a->retry_ns = pms_clock_boot_ns() + RETRY_NS;
}

static void brick_create(struct pms_local *a)
{
    struct pms_loop_brick b;
    int rv;

    brick_describe(a, &b);
    a->progress_done = a->progress_total = 0;
    // While the array is created all bricks are zero, so that none differs; later a new one must be filled.
    rv = pms_loop_brick_create(a->app->data, &b, pms_id_random(), a->info.phase != PMS_ARRAY_CREATING);
    if (rv == 0)
        a->brick = PMS_BRICK_CREATING;
    else
        brick_failed(a, PMS_BRICK_NONE, rv, "created");
}

static void brick_open(struct pms_local *a)
{
    struct pms_loop_brick b;
    int rv;

    brick_describe(a, &b);
    rv = pms_loop_array_open(a->app->data, &b);
    if (rv != 0) {
        brick_failed(a, PMS_BRICK_MADE, rv, "opened");
        return;
    }
    a->brick = PMS_BRICK_OPENING;
    a->dp_known = false;
    pms_local_conf_send(a);
}

static void brick_delete(struct pms_local *a)
{
    struct pms_loop_brick b;
    int rv;

    brick_describe(a, &b);
    rv = pms_loop_brick_delete(a->app->data, &b);
    if (rv == 0)
        a->brick = PMS_BRICK_DELETING;
    else
        brick_failed(a, PMS_BRICK_MADE, rv, "removed");
}

// ---- Proposals about the brick ----

static void on_brick_told(void *data, int err, const char *text, const json_t *result)
{
    struct pms_local *a = pms_local_of(data);

    (void)result;
    if (a == NULL)
        return;
    // Once it was agreed, the applied state says so; that may come a moment later.
    if (err == 0)
        return;
    a->zeroed_out = a->removed_out = false;
    if (err == PMS_EREFUSED || err == PMS_ENOTFOUND)
        return; // overtaken by another command
    pms_log(PMS_LOG_WARN, "array %s: %s", a->info.name, text);
    a->retry_ns = pms_clock_boot_ns() + RETRY_NS;
}

static void brick_propose(struct pms_local *a, const char *op, uint64_t incarnation)
{
    json_t *cmd = pms_command_new(op);

    pms_json_set_id(cmd, "array", a->info.id);
    pms_json_set_u64(cmd, "slot", (uint64_t)a->slot);
    if (incarnation != 0)
        pms_json_set_id(cmd, "incarnation", incarnation);
    pms_command_propose(a->app, cmd, PROPOSE_MS, 0, on_brick_told, pms_local_ref(a));
}

// ---- The steps ----

static bool wants_brick(const struct pms_local *a)
{
    return a->in_state && a->slot >= 0 && !a->replaced && a->info.phase != PMS_ARRAY_DELETING &&
           a->app->phase == PMS_APP_MEMBER;
}

static void step_towards_open(struct pms_local *a)
{
    const struct pms_slot_info *slot = &a->info.slots[a->slot];

    switch (a->brick) {
    case PMS_BRICK_NONE:
    case PMS_BRICK_GONE:
        // Only what is certainly committed makes or opens anything.
        if (!a->app->caught_up)
            break;
        if (slot->zeroed)
            a->brick = PMS_BRICK_MADE;
        else
            brick_create(a);
        if (a->brick != PMS_BRICK_MADE)
            break;
        // fall through
    case PMS_BRICK_MADE:
        if (a->info.phase == PMS_ARRAY_READY) {
            brick_open(a);
        } else if (!slot->zeroed && !a->zeroed_out && a->incarnation != 0) {
            a->zeroed_out = true;
            brick_propose(a, "array_slot_zeroed", a->incarnation);
        }
        break;
    default:
        break;
    }
}

static void step_towards_gone(struct pms_local *a)
{
    bool deleting = a->app->phase == PMS_APP_MEMBER && a->app->caught_up;

    switch (a->brick) {
    case PMS_BRICK_OPEN:
        if (!pms_local_unserve(a) || pms_quit_waits(a->app, a))
            break;
        if (pms_loop_array_close(a->app->data, a->info.id) == 0)
            a->brick = PMS_BRICK_CLOSING;
        break;
    case PMS_BRICK_NONE:
    case PMS_BRICK_MADE:
        if (deleting)
            brick_delete(a);
        break;
    case PMS_BRICK_GONE:
        if (a->replaced) {
            a->replaced = false;
            a->incarnation = 0;
            strcpy(a->path, a->path_next);
            a->brick = PMS_BRICK_NONE;
            pms_app_kick(a->app);
        } else if (deleting && a->in_state && a->slot >= 0 && !a->removed_out) {
            a->removed_out = true;
            brick_propose(a, "array_slot_removed", 0);
        }
        break;
    default:
        break;
    }
}

void pms_local_step(struct pms_local *a)
{
    bool may_try = pms_clock_boot_ns() >= a->retry_ns; // after a failure: not at once again

    if (wants_brick(a)) {
        if (may_try)
            step_towards_open(a);
        pms_local_serve(a);
    } else if (may_try || a->brick == PMS_BRICK_OPEN) {
        step_towards_gone(a);
    }
}

// ---- From the data loop ----

static void on_created(struct pms_local *a, const struct pms_loop_event *ev)
{
    if (ev->status != 0 && ev->status != PMS_EEXISTS) {
        brick_failed(a, PMS_BRICK_NONE, ev->status, "created");
        return;
    }
    a->brick = PMS_BRICK_MADE;
    a->brick_err = 0;
    a->incarnation = ev->incarnation;
}

static void on_open(struct pms_local *a, const struct pms_loop_event *ev)
{
    if (ev->status != 0) {
        brick_failed(a, PMS_BRICK_MADE, ev->status, "opened");
        return;
    }
    a->brick = PMS_BRICK_OPEN;
    a->brick_err = 0;
    a->incarnation = ev->incarnation;
    pms_local_conf_send(a);
}

static void on_deleted(struct pms_local *a, const struct pms_loop_event *ev)
{
    // What is not ours stays where it is; it is not in the way of forgetting the array, nor is a broken disk
    // in the way of its replacement.
    bool foreign = ev->status == PMS_EIDENTITY || ev->status == PMS_EREFUSED || ev->status == PMS_ECORRUPT;

    if (ev->status == 0 || foreign || a->replaced) {
        if (ev->status != 0)
            pms_log(PMS_LOG_WARN, "array %s: %s is left alone: %s", a->info.name, a->path,
                    pms_err_text(ev->status));
        a->brick = PMS_BRICK_GONE;
        a->brick_err = 0;
    } else {
        brick_failed(a, PMS_BRICK_MADE, ev->status, "removed");
    }
}

static void on_status(struct pms_local *a, const struct pms_loop_event *ev)
{
    bool was = a->dp_known && a->dp.serving;

    if (ev->dp.resyncing != 0 && (!a->dp_known || a->dp.resyncing == 0)) {
        a->resync_since_ns = pms_clock_boot_ns();
        a->resync_first_done = ev->dp.resync_done;
    }
    a->dp = ev->dp;
    a->dp_known = true;
    if (was != a->dp.serving)
        pms_log(PMS_LOG_DEBUG, "array %s: %s at epoch %llu", a->info.name,
                a->dp.serving ? "serving" : "not serving", (unsigned long long)a->dp.epoch);
}

int pms_local_handover(struct pms_local *a, uint8_t slot, pms_handover_cb cb, void *data)
{
    int rv;

    if (a->handover_cb != NULL)
        return PMS_EBUSY;
    rv = pms_loop_handover(a->app->data, a->info.id, slot);
    if (rv != 0)
        return rv;
    a->handover_cb = cb;
    a->handover_data = data;
    return 0;
}

static void on_handover(struct pms_local *a, const struct pms_loop_event *ev)
{
    pms_handover_cb cb = a->handover_cb;

    a->handover_cb = NULL;
    if (cb != NULL)
        cb(a->handover_data, ev->status);
}

void pms_local_on_event(struct pms_local *a, const struct pms_loop_event *ev)
{
    switch (ev->type) {
    case PMS_LOOP_EV_BRICK_CREATED:
        on_created(a, ev);
        break;
    case PMS_LOOP_EV_BRICK_PROGRESS:
        a->progress_done = ev->progress.done;
        a->progress_total = ev->progress.total;
        break;
    case PMS_LOOP_EV_BRICK_DELETED:
        on_deleted(a, ev);
        break;
    case PMS_LOOP_EV_ARRAY_OPEN:
        on_open(a, ev);
        break;
    case PMS_LOOP_EV_ARRAY_CLOSED:
        a->brick = PMS_BRICK_MADE;
        a->dp_known = false;
        a->ring_in_loop = false;
        break;
    case PMS_LOOP_EV_STATUS:
        on_status(a, ev);
        break;
    case PMS_LOOP_EV_PROPOSE:
        pms_local_propose(a, ev);
        break;
    case PMS_LOOP_EV_HANDOVER:
        on_handover(a, ev);
        break;
    case PMS_LOOP_EV_BRICK_ERROR:
        a->brick_err = ev->status;
        pms_log(PMS_LOG_ERROR, "array %s: I/O error of brick %s: %s", a->info.name, a->path,
                pms_local_brick_text(ev->status));
        break;
    default:
        pms_local_serve_event(a, ev);
        break;
    }
    pms_local_step(a);
}
