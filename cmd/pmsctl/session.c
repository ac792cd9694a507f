// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl session: the iSCSI sessions that the cluster remembers.
#include "base/json.h"
#include "cmd/pmsctl/ctl.h"

#include <stdio.h>

static int run_list(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct pms_table t = {0};
    json_t *answer = NULL;
    const json_t *s;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/sessions", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(json_object_get(answer, "sessions"));
        goto out;
    }
    pms_ctl_note_quorum(answer);
    pms_table_add(&t, 6, (const char *const[]){"ARRAY", "STATE", "TSIH", "PEER", "ISID", "INITIATOR"});
    json_array_foreach (json_object_get(answer, "sessions"), i, s) {
        uint64_t n = 0;
        char tsih[24];

        pms_json_u64(s, "tsih", &n);
        snprintf(tsih, sizeof(tsih), "%llu", (unsigned long long)n);
        pms_table_add(&t, 6,
                      (const char *const[]){pms_json_str(s, "array", "?"),
                                            pms_json_bool(s, "connected", false) ? "connected" : "orphan",
                                            tsih, pms_json_str(s, "peer", "?"), pms_json_str(s, "isid", "?"),
                                            pms_json_str(s, "initiator", "?")});
    }
    pms_table_print(&t);
out:
    json_decref(answer);
    return rv;
}

const struct pms_ctl_command pms_ctl_sessions[] = {
    {"session", "list", "", 0, 0, "lists the sessions of all arrays", {{0}}, run_list},
    {0},
};
