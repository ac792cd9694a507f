// SPDX-License-Identifier: GPL-2.0-or-later
// What this node itself knows of its arrays, as JSON.
#include "cmd/pmsd/report.h"
#include "base/err.h"
#include "base/json.h"
#include "base/util.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/carrier.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/membership.h"
#include "cmd/version.h"

#include <errno.h>

static const char *step_name(enum pms_brick_step step)
{
    static const char *const names[] = {"none", "creating", "made",     "opening",
                                        "open", "closing",  "deleting", "gone"};

    return names[step];
}

// How far the resync is, and how long it will still take at the pace it had so far.
static void resync_put(json_t *obj, const struct pms_local *a, const struct pms_dp_status *dp)
{
    uint64_t now = pms_clock_boot_ns(), done, elapsed_ms;

    pms_json_set_bool(obj, "resyncing", dp->resyncing != 0);
    pms_json_set_u64(obj, "resync_sent", dp->resync_sent);
    if (dp->resyncing == 0)
        return;
    pms_json_set_u64(obj, "resync_slots", dp->resyncing);
    pms_json_set_u64(obj, "resync_done", dp->resync_done);
    pms_json_set_u64(obj, "resync_total", dp->resync_total);
    pms_json_set_u64(obj, "percent", dp->resync_total > 0 ? dp->resync_done * 100 / dp->resync_total : 0);
    if (dp->resync_done <= a->resync_first_done)
        return;
    done = dp->resync_done - a->resync_first_done;
    elapsed_ms = (now - a->resync_since_ns) / 1000000;
    pms_json_set_u64(obj, "eta_s",
                     (uint64_t)((double)(dp->resync_total - dp->resync_done) / (double)done *
                                (double)elapsed_ms / 1000.0) +
                         1);
}

static const char *target_error_text(int err)
{
    switch (err) {
    case -ENODEV:
        return "no interface of this node is in the portal's subnet";
    case -EADDRINUSE:
        return "another process of this node listens on the iSCSI port of this or of every address: stop it, "
               "or "
               "bind it to an address of its own (ss -ltnp names it)";
    case PMS_EVERSION:
        return "bs_pms.so beside pmsd is of another version than pmsd: install both anew, from one build";
    default:
        return pms_err_text(err);
    }
}

// Slots that fell out often, and when they are taken back.
static void falls_put(json_t *obj, const struct pms_dp_status *dp)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < PMS_SLOTS_MAX; i++) {
        json_t *slot;

        if (dp->falls[i] < 2)
            continue;
        slot = json_object();
        pms_json_set_u64(slot, "slot", i);
        pms_json_set_u64(slot, "falls", dp->falls[i]);
        pms_json_set_u64(slot, "back_ms", dp->back_ms[i]);
        json_array_append_new(list, slot);
    }
    json_object_set_new(obj, "falls", list);
}

static json_t *array_report(const struct pms_local *a)
{
    json_t *obj = json_object();
    static const char *const carriers[] = {"unknown", "lost", "up"};
    struct pms_loop_array_stats stats;

    pms_json_set_str(obj, "brick", step_name(a->brick));
    pms_json_set_str(obj, "brick_path", a->path);
    if (a->brick_err != 0) {
        pms_json_set_str(obj, "brick_error", pms_err_name(a->brick_err));
        pms_json_set_str(obj, "brick_error_text", pms_local_brick_text(a->brick_err));
    }
    if (a->brick == PMS_BRICK_CREATING && a->progress_total > 0) {
        pms_json_set_u64(obj, "zero_done", a->progress_done);
        pms_json_set_u64(obj, "zero_total", a->progress_total);
    }
    pms_json_set_str(obj, "carrier", carriers[pms_local_carrier(a)]);
    pms_json_set_str(obj, "target", a->at != NULL ? pms_at_state_name(a->at_state) : "none");
    if (a->at_err != 0)
        pms_json_set_str(obj, "target_error", target_error_text(a->at_err));
    if (a->brick != PMS_BRICK_OPEN || !a->dp_known)
        return obj;
    pms_json_set_u64(obj, "epoch", a->dp.epoch);
    pms_json_set_bool(obj, "serving", pms_local_is_serving(a));
    pms_json_set_bool(obj, "leased", a->dp.leased);
    if (a->dp.ailing == PMS_DP_AIL_DISK)
        pms_json_set_str(obj, "ailing",
                         "its disk does not answer; arrays are served by other nodes where there are any");
    else if (a->dp.ailing == PMS_DP_AIL_LINKS)
        pms_json_set_str(obj, "ailing",
                         "other nodes hear each other well but this node badly: look at its network");
    // Events come only when something else changes too; progress here is at most 50 ms old.
    if (pms_loop_array_stats_get(a->app->data, a->info.id, &stats) == 0) {
        resync_put(obj, a, &stats.dp);
        falls_put(obj, &stats.dp);
        pms_json_set_u64(obj, "floor", stats.dp.floor);
        pms_json_set_id(obj, "incarnation", stats.dp.incarnation);
    }
    return obj;
}

// With whom this node cannot talk.
static json_t *mismatches_report(const struct pms_app *app)
{
    struct pms_net_mismatch m[2 * PMS_NODES_MAX];
    unsigned n = app->net != NULL ? pms_net_mismatches(app->net, m, sizeof(m) / sizeof(m[0])) : 0;
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++) {
        json_t *obj = json_object();

        pms_json_set_id(obj, "node", m[i].node);
        json_object_set_new(obj, "protocol", pms_versions_to_json(m[i].versions));
        json_array_append_new(list, obj);
    }
    return list;
}

json_t *pms_report_make(struct pms_app *app)
{
    json_t *root = json_object(), *arrays = json_object();
    char text[PMS_ID_TEXT_SIZE];

    pms_json_set_bool(root, "hypervisor", app->hypervisor);
    pms_json_set_bool(root, "probe_reads", app->probe_reads);
    pms_json_set_str(root, "version", PMS_VERSION);
    json_object_set_new(root, "protocol", pms_versions_to_json(pms_node_versions));
    json_object_set_new(root, "mismatches", mismatches_report(app));
    pms_list_for_each (it, &app->arrays) {
        const struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        json_object_set_new(arrays, pms_id_format(a->info.id, text), array_report(a));
    }
    json_object_set_new(root, "arrays", arrays);
    pms_json_set_bool(root, "cleared", pms_members_cleared(app));
    return root;
}

void pms_report_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct pms_app *app = data;
    json_t *report = pms_report_make(app);

    (void)from;
    (void)body;
    pms_rpc_answer(request, 0, report);
    json_decref(report);
}
