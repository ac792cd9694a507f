// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl node: the nodes of the cluster.
#include "base/json.h"
#include "cmd/pmsctl/ctl.h"

#include <stdio.h>

static int run_list(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct pms_table t = {0};
    json_t *answer = NULL;
    const json_t *node;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/nodes", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(json_object_get(answer, "nodes"));
        goto out;
    }
    pms_ctl_note_quorum(answer);
    pms_table_add(&t, 6, (const char *const[]){"NAME", "STATE", "ROLE", "RAFT", "ADDRESS", "ID"});
    json_array_foreach (json_object_get(answer, "nodes"), i, node) {
        char raft[40];

        snprintf(raft, sizeof(raft), "%s%s", pms_json_str(node, "raft", "?"),
                 pms_json_bool(node, "leader", false) ? ", leader" : "");
        pms_table_add(&t, 6,
                      (const char *const[]){pms_json_str(node, "name", "?"), pms_json_str(node, "state", "?"),
                                            pms_json_str(node, "role", "?"), raft,
                                            pms_json_str(node, "addr", "?"), pms_json_str(node, "id", "?")});
    }
    pms_table_print(&t);
out:
    json_decref(answer);
    return rv;
}

const struct pms_ctl_command pms_ctl_nodes[] = {
    {"node", "list", "", 0, 0, "lists the nodes", {{0}}, run_list},
    {0},
};
