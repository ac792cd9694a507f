// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl array: making, showing, moving and removing arrays.
#include "base/json.h"
#include "base/util.h"
#include "cmd/pmsctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Show ----

static void resync_text(const json_t *array, char *out, size_t len)
{
    const json_t *resync = json_object_get(array, "resync");
    uint64_t percent = 0, eta_s;

    out[0] = '\0';
    if (!json_is_object(resync))
        return;
    pms_json_u64(resync, "percent", &percent);
    if (pms_json_u64(resync, "eta_s", &eta_s) == 0)
        snprintf(out, len, " %llu %%, %llu s left", (unsigned long long)percent, (unsigned long long)eta_s);
    else
        snprintf(out, len, " %llu %%", (unsigned long long)percent);
}

static void names_text(const json_t *list, char *out, size_t len)
{
    const json_t *name;
    size_t i, n = 0;

    snprintf(out, len, "none");
    json_array_foreach (list, i, name) {
        int k = snprintf(out + n, len - n, "%s%s", i > 0 ? "," : "", json_string_value(name));

        if (k < 0 || (size_t)k >= len - n)
            return;
        n += (size_t)k;
    }
}

static void show_slots(const json_t *array)
{
    struct pms_table t = {0};
    const json_t *s;
    size_t i;

    putchar('\n');
    pms_table_add(&t, 4, (const char *const[]){"SLOT", "NODE", "COPY", "BRICK"});
    json_array_foreach (json_object_get(array, "slots"), i, s) {
        const char *error = pms_json_str(s, "error", NULL);
        char slot[24], copy[200], back[80] = "";
        uint64_t falls, back_s;

        snprintf(slot, sizeof(slot), "%zu", i);
        if (pms_json_u64(s, "falls", &falls) == 0 && pms_json_u64(s, "back_s", &back_s) == 0 && back_s > 0)
            snprintf(back, sizeof(back), ", fell out %llu times, taken back in %llu s",
                     (unsigned long long)falls, (unsigned long long)back_s);
        snprintf(copy, sizeof(copy), "%s%s%s%s%s", pms_json_bool(s, "in_sync", false) ? "in sync" : "stale",
                 pms_json_bool(s, "answers", true) ? "" : ", node does not answer", error != NULL ? ", " : "",
                 error != NULL ? error : "", back);
        pms_table_add(
            &t, 4,
            (const char *const[]){slot, pms_json_str(s, "node", "?"), copy, pms_json_str(s, "brick", "?")});
    }
    pms_table_print(&t);
}

static void show(const json_t *a)
{
    uint64_t size = 0, epoch = 0, sessions = 0, prefix = 0;
    char text[32], resync[64], names[600];
    const json_t *portal = json_object_get(a, "portal");

    pms_json_u64(a, "size_bytes", &size);
    pms_json_u64(a, "epoch", &epoch);
    pms_json_u64(a, "sessions", &sessions);
    pms_json_u64(portal, "prefix", &prefix);
    resync_text(a, resync, sizeof(resync));
    names_text(json_object_get(a, "in_sync"), names, sizeof(names));
    printf("name      %s\nlevel     %s\nsize      %s\nstate     %s%s\nprimary   %s\nin sync   %s\nepoch     "
           "%llu\n",
           pms_json_str(a, "name", "?"), pms_json_str(a, "level", "?"), pms_ctl_size_text(size, text),
           pms_json_str(a, "state", "?"), resync, pms_json_str(a, "primary", "none"), names,
           (unsigned long long)epoch);
    printf("cache     %s\n",
           pms_json_bool(a, "write_cache", false) ? "on: writes are safe once flushed" : "off");
    printf("portal    %s/%llu\niqn       %s\nurl       %s\nsessions  %llu connected\n",
           pms_json_str(portal, "addr", "?"), (unsigned long long)prefix, pms_json_str(a, "iqn", "?"),
           pms_json_str(a, "url", "?"), (unsigned long long)sessions);
    if (pms_json_str(a, "target_error", NULL) != NULL)
        printf("trouble   %s\n", pms_json_str(a, "target_error", ""));
    show_slots(a);
}

static int run_show(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *answer = NULL;
    char path[128];
    int rv;

    (void)c;
    (void)v;
    if (!pms_ctl_array_path(ctl->args[0], "", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    rv = pms_ctl_call(ctl, "GET", path, NULL, &answer);
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(answer);
    } else {
        pms_ctl_note_quorum(answer);
        show(answer);
    }
    json_decref(answer);
    return rv;
}

static int run_list(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct pms_table t = {0};
    json_t *answer = NULL;
    const json_t *a;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/arrays", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(json_object_get(answer, "arrays"));
        goto out;
    }
    pms_ctl_note_quorum(answer);
    pms_table_add(&t, 7,
                  (const char *const[]){"NAME", "LEVEL", "SIZE", "STATE", "PRIMARY", "IN SYNC", "URL"});
    json_array_foreach (json_object_get(answer, "arrays"), i, a) {
        char size[32], state[100], names[600], resync[64];
        uint64_t bytes = 0;

        pms_json_u64(a, "size_bytes", &bytes);
        resync_text(a, resync, sizeof(resync));
        snprintf(state, sizeof(state), "%s%s", pms_json_str(a, "state", "?"), resync);
        names_text(json_object_get(a, "in_sync"), names, sizeof(names));
        pms_table_add(&t, 7,
                      (const char *const[]){pms_json_str(a, "name", "?"), pms_json_str(a, "level", "?"),
                                            pms_ctl_size_text(bytes, size), state,
                                            pms_json_str(a, "primary", "none"), names,
                                            pms_json_str(a, "url", "?")});
    }
    pms_table_print(&t);
out:
    json_decref(answer);
    return rv;
}

// ---- Create ----

// While pmsd works: how far it is, whenever that has changed.
struct progress {
    const char *name;
    char last[300];
};

// "a: brick ready, b: zeroing its brick (40 %)"
static void bricks_text(const json_t *array, char *out, size_t len)
{
    const json_t *s;
    size_t i, n = 0;

    out[0] = '\0';
    json_array_foreach (json_object_get(array, "slots"), i, s) {
        uint64_t done = 0, total = 0;
        char what[48] = "making its brick";
        int k;

        pms_json_u64(s, "zero_done", &done);
        pms_json_u64(s, "zero_total", &total);
        if (pms_json_bool(s, "zeroed", false))
            snprintf(what, sizeof(what), "brick ready");
        else if (!pms_json_bool(s, "answers", true))
            snprintf(what, sizeof(what), "does not answer");
        else if (total > 0)
            snprintf(what, sizeof(what), "zeroing its brick (%llu %%)",
                     (unsigned long long)(done * 100 / total));
        k = snprintf(out + n, len - n, "%s%s: %s", i > 0 ? ", " : "", pms_json_str(s, "node", "?"), what);
        if (k < 0 || (size_t)k >= len - n)
            return;
        n += (size_t)k;
    }
}

static void on_wait(struct pms_client *client, void *data)
{
    struct pms_client other = {.socket = client->socket};
    struct progress *p = data;
    char path[128], text[300] = "";
    const char *phase, *primary;
    json_t *a = NULL;
    unsigned http = 0;

    snprintf(path, sizeof(path), "/v1/arrays/%s", p->name);
    if (pms_client_call(&other, "GET", path, NULL, &http, &a) != 0)
        return;
    phase = http == 200 ? pms_json_str(a, "phase", "") : "";
    primary = pms_json_str(a, "primary", NULL);
    if (strcmp(phase, "creating") == 0)
        bricks_text(a, text, sizeof(text));
    else if (strcmp(phase, "deleting") == 0)
        snprintf(text, sizeof(text), "%s: it failed, and is being taken back", p->name);
    else if (primary != NULL)
        snprintf(text, sizeof(text), "%s: bricks are ready; waiting until node %s serves", p->name, primary);
    if (text[0] != '\0' && strcmp(text, p->last) != 0)
        fprintf(stderr, "%s\n", text);
    memcpy(p->last, text, sizeof(p->last));
    json_decref(a);
}

// "a,b,c" into a JSON list. NULL: an empty name among them.
static json_t *names_parse(const char *text)
{
    json_t *list = json_array();

    for (;;) {
        size_t n = strcspn(text, ",");

        if (n == 0) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, json_stringn(text, n));
        if (text[n] == '\0')
            return list;
        text += n + 1;
    }
}

// Into the body, if it was given. False: said what is wrong.
static bool cache_parse(const char *text, json_t *body)
{
    if (text == NULL)
        return true;
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0) {
        pms_ctl_usage("--write-cache is on or off");
        return false;
    }
    pms_json_set_bool(body, "write_cache", strcmp(text, "on") == 0);
    return true;
}

// The request's body, or NULL: said what is wrong.
static json_t *create_body(struct pms_ctl *ctl, const struct pms_ctl_command *c,
                           const struct pms_ctl_values *v)
{
    const struct pms_ctl_values *bricks = pms_ctl_values_of(c, v, "brick");
    const char *nodes = pms_ctl_value(c, v, "nodes"), *copies = pms_ctl_value(c, v, "copies");
    json_t *body = json_object(), *list, *paths = json_object();
    uint64_t size;
    char *end = NULL;

    if (pms_size_parse(pms_ctl_value(c, v, "size"), &size) != 0 || size == 0 || size % (1u << 20) != 0 ||
        size > INT64_MAX) {
        pms_ctl_usage("--size %s: a size is a multiple of 1 MiB and more than 0, like 512M, 20G or 1T",
                      pms_ctl_value(c, v, "size"));
        goto fail;
    }
    pms_json_set_str(body, "name", ctl->args[0]);
    pms_json_set_str(body, "level",
                     pms_ctl_value(c, v, "level") != NULL ? pms_ctl_value(c, v, "level") : "raid1");
    pms_json_set_u64(body, "size_bytes", size);
    pms_json_set_str(body, "portal", pms_ctl_value(c, v, "portal"));
    if (nodes != NULL && copies != NULL) {
        pms_ctl_usage("give either --nodes or --copies");
        goto fail;
    }
    if (nodes != NULL) {
        list = names_parse(nodes);
        if (list == NULL) {
            pms_ctl_usage("--nodes takes names with commas between them");
            goto fail;
        }
        json_object_set_new(body, "nodes", list);
    }
    if (copies != NULL) {
        unsigned long n = strtoul(copies, &end, 10);

        if (*copies < '0' || *copies > '9' || *end != '\0' || n == 0 || n > 1000) {
            pms_ctl_usage("--copies takes a number, 1 or more");
            goto fail;
        }
        pms_json_set_u64(body, "copies", n);
    }
    if (!cache_parse(pms_ctl_value(c, v, "write-cache"), body))
        goto fail;
    for (int i = 0; i < bricks->n; i++) {
        const char *eq = strchr(bricks->value[i], '=');
        char node[64];

        if (eq == NULL || eq == bricks->value[i] || eq[1] != '/' || eq - bricks->value[i] > 63) {
            pms_ctl_usage("--brick takes NODE=PATH, with an absolute path");
            goto fail;
        }
        snprintf(node, sizeof(node), "%.*s", (int)(eq - bricks->value[i]), bricks->value[i]);
        pms_json_set_str(paths, node, eq + 1);
    }
    if (bricks->n > 0)
        json_object_set(body, "bricks", paths);
    json_decref(paths);
    return body;
fail:
    json_decref(body);
    json_decref(paths);
    return NULL;
}

static int run_create(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct progress progress = {.name = ctl->args[0]};
    json_t *body, *answer = NULL;
    char path[128];
    int rv;

    if (!pms_ctl_array_path(ctl->args[0], "", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    body = create_body(ctl, c, v);
    if (body == NULL)
        return PMS_EXIT_USAGE;
    ctl->client.on_wait = on_wait;
    ctl->client.data = &progress;
    rv = pms_ctl_ask(ctl, "POST", "/v1/arrays", body, &answer);
    if (answer == NULL)
        return rv;
    printf("array %s serves: %s\n", pms_json_str(answer, "name", "?"), pms_json_str(answer, "url", "?"));
    json_decref(answer);
    return rv;
}

// ---- Delete, handover ----

static int run_delete(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body, *answer = NULL;
    char path[128];
    int rv;

    if (!pms_ctl_array_path(ctl->args[0], "", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    body = json_object();
    pms_json_set_bool(body, "force", pms_ctl_value(c, v, "force") != NULL);
    rv = pms_ctl_ask(ctl, "DELETE", path, body, &answer);
    if (answer == NULL)
        return rv;
    printf("array %s is deleted\n", ctl->args[0]);
    json_decref(answer);
    return rv;
}

static int run_handover(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    const char *to = pms_ctl_value(c, v, "to");
    json_t *body, *answer = NULL;
    uint64_t ms = 0;
    char path[128];
    int rv;

    if (!pms_ctl_array_path(ctl->args[0], "/handover", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    body = json_object();
    if (to != NULL)
        pms_json_set_str(body, "to", to);
    rv = pms_ctl_ask(ctl, "POST", path, body, &answer);
    if (answer == NULL)
        return rv;
    pms_json_u64(answer, "took_ms", &ms);
    if (pms_json_bool(answer, "moved", true))
        printf("array %s is now served by node %s (after %llu ms)\n", ctl->args[0],
               pms_json_str(answer, "primary", "?"), (unsigned long long)ms);
    else
        printf("array %s is served by node %s already\n", ctl->args[0], pms_json_str(answer, "primary", "?"));
    json_decref(answer);
    return rv;
}

static int run_replace(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    const char *slot = pms_ctl_value(c, v, "slot"), *brick = pms_ctl_value(c, v, "brick");
    json_t *body, *answer = NULL;
    uint64_t n = 0;
    char path[128];
    int rv;

    if (!pms_ctl_array_path(ctl->args[0], "/replace", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    if (slot != NULL && (slot[0] < '0' || slot[0] > '9' || slot[1] != '\0'))
        return pms_ctl_usage("--slot takes a slot's number, as pmsctl array show prints it");
    body = json_object();
    pms_json_set_str(body, "node", pms_ctl_value(c, v, "node"));
    if (slot != NULL)
        pms_json_set_u64(body, "slot", (uint64_t)(slot[0] - '0'));
    if (brick != NULL)
        pms_json_set_str(body, "brick", brick);
    rv = pms_ctl_ask(ctl, "POST", path, body, &answer);
    if (answer == NULL)
        return rv;
    pms_json_u64(answer, "slot", &n);
    printf("slot %llu of array %s is now on node %s and is being filled; pmsctl array show %s tells how "
           "far it is\n",
           (unsigned long long)n, ctl->args[0], pms_json_str(answer, "node", "?"), ctl->args[0]);
    json_decref(answer);
    return rv;
}

// "a,b" as a list.
static json_t *names_list(const char *text)
{
    json_t *list = json_array();

    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, ",");

        json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] == ',' ? 1 : 0);
    }
    return list;
}

static int run_recover(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body, *answer = NULL;
    char path[128];
    int rv;

    if (!pms_ctl_array_path(ctl->args[0], "/recover", path, sizeof(path)))
        return PMS_EXIT_USAGE;
    body = json_object();
    pms_json_set_str(body, "slot", pms_ctl_value(c, v, "slot"));
    pms_json_set_bool(body, "accept_data_loss", pms_ctl_value(c, v, "accept-data-loss") != NULL);
    json_object_set_new(body, "give_up", names_list(pms_ctl_value(c, v, "give-up")));
    rv = pms_ctl_ask(ctl, "POST", path, body, &answer);
    if (answer == NULL)
        return rv;
    printf("the copy of array %s on node %s is the good one now; check what is on it before you trust it\n",
           ctl->args[0], pms_json_str(answer, "node", "?"));
    json_decref(answer);
    return rv;
}

static int run_set(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *answer = NULL;
    char path[128];
    int rv = PMS_EXIT_USAGE;

    if (!pms_ctl_array_path(ctl->args[0], "/set", path, sizeof(path)) ||
        !cache_parse(pms_ctl_value(c, v, "write-cache"), body))
        goto out;
    rv = pms_ctl_call(ctl, "POST", path, body, &answer);
    if (rv != PMS_EXIT_DONE)
        goto out;
    if (ctl->json)
        pms_ctl_print_json(answer);
    else if (pms_json_bool(answer, "write_cache", false))
        printf("write cache of array %s is on: an initiator must see that (rescan, or log in again) before "
               "it relies "
               "on its flushes\n",
               ctl->args[0]);
    else
        printf("write cache of array %s is off: what is acknowledged from now on is on stable storage\n",
               ctl->args[0]);
    json_decref(answer);
out:
    json_decref(body);
    return rv;
}

const struct pms_ctl_command pms_ctl_arrays[] = {
    {"array",
     "create",
     "NAME",
     1,
     1,
     "makes an array and waits until it serves",
     {{"size", "S", true, false, "a multiple of 1 MiB: 512M, 20G, 1T"},
      {"portal", "ADDR/LEN", true, false, "an address of its own, which moves with the primary"},
      {"level", "raid1", false, false, "raid1 (default)"},
      {"nodes", "A,B", false, false, "nodes that get a copy; the first one serves"},
      {"copies", "N", false, false, "how many copies (default 2), where there is most room"},
      {"brick", "NODE=PATH", false, true, "a file or block device for that node's copy"},
      {"write-cache", "on|off", false, false, "on: writes are safe once flushed, and faster (default off)"}},
     run_create},
    {"array", "list", "", 0, 0, "lists the arrays", {{0}}, run_list},
    {"array", "show", "NAME", 1, 1, "shows one array", {{0}}, run_show},
    {"array",
     "delete",
     "NAME",
     1,
     1,
     "removes an array and its data",
     {{"force", NULL, false, false, "even while initiators are connected or nodes are down"}},
     run_delete},
    {"array",
     "handover",
     "NAME",
     1,
     1,
     "lets another node serve the array",
     {{"to", "NODE", false, false, "which (default: the least busy one in sync)"}},
     run_handover},
    {"array",
     "set",
     "NAME",
     1,
     1,
     "changes an array while it serves",
     {{"write-cache", "on|off", true, false,
       "on: writes are safe once flushed (look for the new state on the initiators)"}},
     run_set},
    {"array",
     "replace",
     "NAME",
     1,
     1,
     "gives a copy that is not in sync a new, blank place",
     {{"node", "NODE", true, false, "where"},
      {"slot", "N", false, false, "which (default: the only one that is not in sync)"},
      {"brick", "PATH", false, false, "a file or block device there (default: in its brick directory)"}},
     run_replace},
    {"array",
     "recover",
     "NAME",
     1,
     1,
     "its good copies are lost for ever: takes a stale one for good",
     {{"slot", "NODE", true, false, "the node whose copy is taken"},
      {"accept-data-loss", NULL, false, false, "what was written since that copy fell out of sync is lost"},
      {"give-up", "NODE,...", false, false, "nodes of the cluster whose good copies are lost"}},
     run_recover},
    {0},
};
