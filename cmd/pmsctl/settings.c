// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl settings: the cluster's timings and limits.
#include "base/json.h"
#include "cmd/pmsctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run_show(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct pms_table t = {0};
    json_t *answer = NULL;
    const json_t *s;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/settings", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(json_object_get(answer, "settings"));
        goto out;
    }
    pms_ctl_note_quorum(answer);
    pms_table_add(&t, 5,
                  (const char *const[]){"SETTING", "VALUE", "DEFAULT", "RANGE", "A CHANGE TAKES EFFECT"});
    json_array_foreach (json_object_get(answer, "settings"), i, s) {
        uint64_t value = 0, def = 0, min = 0, max = 0;
        char text[3][64];

        pms_json_u64(s, "value", &value);
        pms_json_u64(s, "default", &def);
        pms_json_u64(s, "min", &min);
        pms_json_u64(s, "max", &max);
        snprintf(text[0], sizeof(text[0]), "%llu", (unsigned long long)value);
        snprintf(text[1], sizeof(text[1]), "%llu", (unsigned long long)def);
        snprintf(text[2], sizeof(text[2]), "%llu..%llu", (unsigned long long)min, (unsigned long long)max);
        pms_table_add(&t, 5,
                      (const char *const[]){pms_json_str(s, "name", "?"), text[0], text[1], text[2],
                                            pms_json_str(s, "takes_effect", "?")});
    }
    pms_table_print(&t);
out:
    json_decref(answer);
    return rv;
}

// "name=123" or "name=default" into values; false: said why not.
static bool value_read(const char *text, json_t *values)
{
    const char *eq = strchr(text, '=');
    char name[64], *end;
    unsigned long long n;

    if (eq == NULL || eq == text || (size_t)(eq - text) >= sizeof(name)) {
        pms_ctl_usage("settings are given as NAME=VALUE, not %s; pmsctl settings show lists them", text);
        return false;
    }
    memcpy(name, text, (size_t)(eq - text));
    name[eq - text] = '\0';
    if (json_object_get(values, name) != NULL) {
        pms_ctl_usage("%s is given twice", name);
        return false;
    }
    if (strcmp(eq + 1, "default") == 0)
        return json_object_set_new(values, name, json_null()) == 0;
    errno = 0;
    n = strtoull(eq + 1, &end, 10);
    if (eq[1] < '0' || eq[1] > '9' || *end != '\0' || errno != 0 || n > INT64_MAX) {
        pms_ctl_usage("%s takes a whole number, or \"default\", not %s", name, eq + 1);
        return false;
    }
    return pms_json_set_u64(values, name, n) == 0;
}

static int run_set(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *body = json_object(), *values = json_object(), *answer = NULL;
    int rv = PMS_EXIT_DONE;

    (void)c;
    (void)v;
    for (int i = 0; i < ctl->n_args && rv == PMS_EXIT_DONE; i++)
        rv = value_read(ctl->args[i], values) ? PMS_EXIT_DONE : PMS_EXIT_USAGE;
    json_object_set(body, "values", values);
    if (rv == PMS_EXIT_DONE)
        rv = pms_ctl_call(ctl, "POST", "/v1/settings", body, &answer);
    if (rv == PMS_EXIT_DONE && ctl->json)
        pms_ctl_print_json(answer);
    else if (rv == PMS_EXIT_DONE)
        puts("agreed; pmsctl settings show tells when each takes effect");
    json_decref(answer);
    json_decref(values);
    json_decref(body);
    return rv;
}

const struct pms_ctl_command pms_ctl_settings[] = {
    {"settings", "show", "", 0, 0, "the cluster's settings, their ranges and defaults", {{0}}, run_show},
    {"settings",
     "set",
     "NAME=VALUE...",
     1,
     64,
     "changes settings, all or none; VALUE may be \"default\"",
     {{0}},
     run_set},
    {0},
};
