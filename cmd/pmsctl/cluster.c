// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl cluster: forming, growing and judging the cluster.
#include "base/json.h"
#include "cmd/pmsctl/ctl.h"

#include <stdio.h>
#include <string.h>

static int run_init(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *answer = NULL;
    int rv;

    pms_json_set_str(body, "name", pms_ctl_value(c, v, "name"));
    pms_json_set_str(body, "node", pms_ctl_value(c, v, "node"));
    pms_json_set_str(body, "addr", pms_ctl_value(c, v, "addr"));
    rv = pms_ctl_ask(ctl, "POST", "/v1/cluster/init", body, &answer);
    if (answer == NULL)
        return rv;
    printf("cluster %s begins with node %s; on the next node run:\n  %s\n(the token is good for one node "
           "and for "
           "24 hours; pmsctl token create makes another)\n",
           pms_json_str(answer, "cluster", "?"), pms_json_str(answer, "node", "?"),
           pms_json_str(answer, "join", "?"));
    json_decref(answer);
    return rv;
}

static void on_wait(struct pms_client *client, void *data)
{
    (void)client;
    if (!*(bool *)data)
        fputs("waiting until the cluster has brought this node up to date ...\n", stderr);
    *(bool *)data = true;
}

static int run_join(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *answer = NULL;
    bool said = false;
    int rv;

    pms_json_set_str(body, "peer", ctl->args[0]);
    pms_json_set_str(body, "token", pms_ctl_value(c, v, "token"));
    pms_json_set_str(body, "node", pms_ctl_value(c, v, "node"));
    pms_json_set_str(body, "addr", pms_ctl_value(c, v, "addr"));
    pms_json_set_bool(body, "witness", pms_ctl_value(c, v, "witness") != NULL);
    ctl->client.on_wait = on_wait;
    ctl->client.data = &said;
    rv = pms_ctl_call(ctl, "POST", "/v1/cluster/join", body, &answer);
    json_decref(body);
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json)
        pms_ctl_print_json(answer);
    else
        printf("node %s has joined cluster %s as a %s node\n", pms_json_str(answer, "node", "?"),
               pms_json_str(answer, "cluster", "?"), pms_json_str(answer, "role", "?"));
    json_decref(answer);
    return rv;
}

static int run_leave(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *answer = NULL;
    int rv;

    if (pms_ctl_value(c, v, "node") != NULL)
        pms_json_set_str(body, "node", pms_ctl_value(c, v, "node"));
    rv = pms_ctl_call(ctl, "POST", "/v1/cluster/leave", body, &answer);
    json_decref(body);
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json)
        pms_ctl_print_json(answer);
    else
        printf("node %s has left the cluster; it stops serving and forgets its membership\n",
               pms_json_str(answer, "node", "?"));
    json_decref(answer);
    return rv;
}

static int run_upgrade(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *answer = NULL;
    uint64_t from = 0, level = 0;
    int rv = pms_ctl_call(ctl, "POST", "/v1/cluster/upgrade", body, &answer);

    (void)c;
    (void)v;
    json_decref(body);
    if (rv != PMS_EXIT_DONE)
        return rv;
    pms_json_u64(answer, "from", &from);
    pms_json_u64(answer, "level", &level);
    if (ctl->json)
        pms_ctl_print_json(answer);
    else if (from == level)
        printf("the cluster is at feature level %u already, the newest that its nodes support\n",
               (unsigned)level);
    else
        printf(
            "the cluster's feature level is %u now, it was %u; older versions of pms cannot join any more\n",
            (unsigned)level, (unsigned)from);
    json_decref(answer);
    return rv;
}

static void upgrade_print(const json_t *status)
{
    const json_t *up = json_object_get(status, "upgrade"), *name;
    uint64_t level = 0, newest = 0;
    size_t i;

    if (!json_is_object(up))
        return;
    pms_json_u64(json_object_get(status, "cluster"), "feature_level", &level);
    pms_json_u64(up, "newest", &newest);
    printf("upgrade: the cluster is at feature level %u, ", (unsigned)level);
    if (pms_json_bool(up, "possible", false)) {
        printf("and every node supports %u: pmsctl cluster upgrade raises it\n", (unsigned)newest);
        return;
    }
    printf("%u is supported by all nodes but", (unsigned)newest);
    json_array_foreach (json_object_get(up, "behind"), i, name)
        printf("%s %s", i > 0 ? "," : "", json_string_value(name));
    puts(": install the newer pms there");
}

static void nodes_print(const json_t *status)
{
    struct pms_table t = {0};
    const json_t *node;
    size_t i;

    pms_table_add(&t, 5, (const char *const[]){"NODE", "STATE", "ROLE", "RAFT", "ADDRESS"});
    json_array_foreach (json_object_get(status, "nodes"), i, node) {
        char raft[40];

        snprintf(raft, sizeof(raft), "%s%s", pms_json_str(node, "raft", "?"),
                 pms_json_bool(node, "leader", false) ? ", leader" : "");
        pms_table_add(&t, 5,
                      (const char *const[]){pms_json_str(node, "name", "?"), pms_json_str(node, "state", "?"),
                                            pms_json_str(node, "role", "?"), raft,
                                            pms_json_str(node, "addr", "?")});
    }
    pms_table_print(&t);
}

static void arrays_print(const json_t *status)
{
    struct pms_table t = {0};
    const json_t *array;
    size_t i;

    if (json_array_size(json_object_get(status, "arrays")) == 0)
        return;
    putchar('\n');
    pms_table_add(&t, 5, (const char *const[]){"ARRAY", "STATE", "PRIMARY", "IN SYNC", "URL"});
    json_array_foreach (json_object_get(status, "arrays"), i, array) {
        char in_sync[40];

        snprintf(in_sync, sizeof(in_sync), "%zu of %zu", json_array_size(json_object_get(array, "in_sync")),
                 json_array_size(json_object_get(array, "slots")));
        pms_table_add(&t, 5,
                      (const char *const[]){
                          pms_json_str(array, "name", "?"), pms_json_str(array, "state", "?"),
                          pms_json_str(array, "primary", "none"), in_sync, pms_json_str(array, "url", "?")});
    }
    pms_table_print(&t);
}

static int run_status(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *answer = NULL;
    const json_t *warning;
    const char *next;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/cluster/status", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (strcmp(pms_json_str(answer, "kind", ""), "no cluster") != 0 &&
        strcmp(pms_json_str(answer, "kind", ""), "stopping") != 0 && !pms_json_bool(answer, "quorum", false))
        rv = PMS_EXIT_NO_QUORUM;
    if (ctl->json) {
        pms_ctl_print_json(answer);
        goto out;
    }
    next = pms_json_str(answer, "next", "");
    printf("%s%s%s\n", pms_json_str(answer, "verdict", "?"), *next ? "; next: " : "", next);
    if (rv == PMS_EXIT_NO_QUORUM)
        puts("(without quorum this is what this node knew last)");
    json_array_foreach (json_object_get(answer, "warnings"), i, warning) {
        printf("warning: %s\n", json_string_value(warning));
    }
    upgrade_print(answer);
    if (json_array_size(json_object_get(answer, "nodes")) > 0) {
        putchar('\n');
        nodes_print(answer);
    }
    arrays_print(answer);
out:
    json_decref(answer);
    return rv;
}

#define NODE_OPTIONS                                                                                         \
    {"node", "NAME", true, false, "this node's name"},                                                       \
    {                                                                                                        \
        "addr", "A[:port]", true, false, "this host's address for the other nodes (port 7470)"               \
    }

const struct pms_ctl_command pms_ctl_cluster[] = {
    {"cluster",
     "init",
     "",
     0,
     0,
     "begins a new cluster on this node, and prints how to join it",
     {{"name", "CLUSTER", true, false, "the cluster's name"}, NODE_OPTIONS},
     run_init},
    {"cluster",
     "join",
     "PEER",
     1,
     1,
     "joins the cluster that the node at address PEER is in",
     {{"token", "T", true, false, "from pmsctl cluster init or token create"},
      NODE_OPTIONS,
      {"witness", NULL, false, false, "votes, but stores no data"}},
     run_join},
    {"cluster",
     "leave",
     "",
     0,
     0,
     "takes a node out of the cluster, its primaries first",
     {{"node", "NAME", false, false, "which (default: this one)"}},
     run_leave},
    {"cluster",
     "upgrade",
     "",
     0,
     0,
     "lets the cluster use what is new in the pms that all nodes run by now; cannot be undone",
     {{0}},
     run_upgrade},
    {"cluster", "status", "", 0, 0, "judges the cluster in words; then nodes and arrays", {{0}}, run_status},
    {"cluster", "token", "", 0, 0, "the same as token create", {{0}}, pms_ctl_token_create},
    {0},
};
