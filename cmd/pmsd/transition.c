// SPDX-License-Identifier: GPL-2.0-or-later
// From the data loop to Raft: an array's transitions. At most one of a kind and epoch is under way; what
// becomes of it is seen in the applied state only.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/local.h"

#include <stdlib.h>

#define TRANSITION_MS 1000

struct proposal {
    void *ref;
    enum pms_dp_transition kind;
    uint64_t epoch;
};

// The applied state decides; here only the place is freed for the next one.
static void on_proposed(void *data, int err, const char *text, const json_t *result)
{
    struct proposal *p = data;
    struct pms_local *a = pms_local_of(p->ref);

    (void)result;
    if (a != NULL && a->proposals_out[p->kind] == p->epoch + 1)
        a->proposals_out[p->kind] = 0;
    if (a != NULL && err != 0)
        pms_log(PMS_LOG_INFO, "array %s: transition from epoch %llu not made: %s", a->info.name,
                (unsigned long long)p->epoch, text);
    free(p);
}

void pms_local_propose(struct pms_local *a, const struct pms_loop_event *ev)
{
    static const char *const kinds[] = {"takeover", "refresh", "eject", "admit", "handover"};
    json_t *cmd, *set;
    struct proposal *p;

    if (a->proposals_out[ev->propose.kind] == ev->propose.epoch + 1)
        return;
    a->proposals_out[ev->propose.kind] = ev->propose.epoch + 1;
    a->app->transitions_proposed++;
    cmd = pms_command_new("array_transition");
    set = json_array();
    pms_json_set_id(cmd, "array", a->info.id);
    pms_json_set_str(cmd, "kind", kinds[ev->propose.kind]);
    pms_json_set_u64(cmd, "epoch", ev->propose.epoch);
    pms_json_set_u64(cmd, "primary", ev->propose.primary);
    for (unsigned i = 0; i < PMS_SLOTS_MAX; i++) {
        json_t *entry;

        if ((ev->propose.in_sync & (1u << i)) == 0)
            continue;
        entry = json_object();
        pms_json_set_u64(entry, "slot", i);
        pms_json_set_id(entry, "incarnation", ev->propose.incarnation[i]);
        json_array_append_new(set, entry);
    }
    json_object_set_new(cmd, "in_sync", set);
    pms_log(PMS_LOG_INFO, "array %s: proposing %s from epoch %llu, primary slot %u, in sync 0x%x",
            a->info.name, kinds[ev->propose.kind], (unsigned long long)ev->propose.epoch, ev->propose.primary,
            ev->propose.in_sync);
    p = calloc(1, sizeof(*p));
    PMS_CHECK_MSG(p != NULL, "out of memory");
    *p = (struct proposal){pms_local_ref(a), ev->propose.kind, ev->propose.epoch};
    pms_command_propose(a->app, cmd, TRANSITION_MS, PMS_COMMAND_ONCE, on_proposed, p);
}
