// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl: finds the command in its group's table, reads its options, runs it.
#include "cmd/pmsctl/ctl.h"
#include "cmd/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pms_ctl_command *const groups[] = {pms_ctl_cluster, pms_ctl_tokens,   pms_ctl_nodes,
                                                       pms_ctl_arrays,  pms_ctl_sessions, pms_ctl_settings,
                                                       pms_ctl_recover};

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

// ---- Help ----

static void help_all(FILE *out)
{
    fputs("usage: pmsctl [--socket S] [-o json] COMMAND ...\n\nCommands (each with --help):\n", out);
    for (size_t g = 0; g < GROUPS; g++) {
        for (const struct pms_ctl_command *c = groups[g]; c->group != NULL; c++) {
            char head[80];

            snprintf(head, sizeof(head), "%s%s%s%s%s", c->group, *c->verb ? " " : "", c->verb,
                     *c->args ? " " : "", c->args);
            fprintf(out, "  %-28s %s\n", head, c->help);
        }
    }
    fputs("\n"
          "  --socket S    pmsd's socket (default $PMS_SOCKET or /run/pms/pmsd.sock)\n"
          "  -o json       prints JSON; an error is {\"error\", \"text\"} on stderr\n"
          "  --version     prints the version\n\n"
          "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 no quorum.\n",
          out);
}

static void help_command(FILE *out, const struct pms_ctl_command *c)
{
    fprintf(out, "usage: pmsctl %s%s%s%s%s", c->group, *c->verb ? " " : "", c->verb, *c->args ? " " : "",
            c->args);
    for (int i = 0; i < PMS_CTL_OPTIONS_MAX && c->options[i].name != NULL; i++) {
        const struct pms_ctl_option *o = &c->options[i];

        fprintf(out, " %s--%s%s%s%s", o->required ? "" : "[", o->name, o->metavar != NULL ? " " : "",
                o->metavar != NULL ? o->metavar : "", o->required ? "" : "]");
    }
    fprintf(out, "\n\n%s\n", c->help);
    if (c->options[0].name != NULL)
        fputc('\n', out);
    for (int i = 0; i < PMS_CTL_OPTIONS_MAX && c->options[i].name != NULL; i++) {
        char head[80];

        snprintf(head, sizeof(head), "--%s%s%s", c->options[i].name, c->options[i].metavar != NULL ? " " : "",
                 c->options[i].metavar != NULL ? c->options[i].metavar : "");
        fprintf(out, "  %-22s %s\n", head, c->options[i].help);
    }
    fputs("\n  --socket S, -o json   as everywhere\n", out);
}

static int help_group(FILE *out, const char *group)
{
    int n = 0;

    for (size_t g = 0; g < GROUPS; g++)
        for (const struct pms_ctl_command *c = groups[g]; c->group != NULL; c++)
            if (strcmp(c->group, group) == 0)
                fprintf(out, "%s  pmsctl %s %s %s\n      %s\n", n++ == 0 ? "usage:\n" : "", c->group, c->verb,
                        c->args, c->help);
    return n;
}

// ---- Options ----

// One option, at args[*i]; advances *i over its value. 0, or the exit status (said). is_help: --help was it.
static int option_read(struct pms_ctl *ctl, const struct pms_ctl_command *c, struct pms_ctl_values *values,
                       int argc, char **argv, int *i, bool *is_help)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    size_t len = eq != NULL ? (size_t)(eq - name) : strlen(name);
    const char *value = NULL;
    int o;

    if (strcmp(argv[*i], "-h") == 0 || strcmp(argv[*i], "--help") == 0) {
        *is_help = true;
        return 0;
    }
    if (strcmp(argv[*i], "-o") == 0 || (len == 6 && strncmp(name, "output", 6) == 0) ||
        (len == 6 && strncmp(name, "socket", 6) == 0)) {
        bool socket = strncmp(name, "socket", 6) == 0 && argv[*i][1] == '-';

        value = eq != NULL && argv[*i][1] == '-' ? eq + 1 : ++*i < argc ? argv[*i] : NULL;
        if (value == NULL)
            return pms_ctl_usage("%s needs a value", socket ? "--socket" : "-o");
        if (socket)
            ctl->client.socket = value;
        else if (strcmp(value, "json") == 0 || strcmp(value, "text") == 0)
            ctl->json = value[0] == 'j';
        else
            return pms_ctl_usage("-o is json or text, not %s", value);
        return 0;
    }
    if (c == NULL)
        return pms_ctl_usage("unknown option %s; see pmsctl --help", argv[*i]);
    for (o = 0; o < PMS_CTL_OPTIONS_MAX && c->options[o].name != NULL; o++)
        if (argv[*i][1] == '-' && strlen(c->options[o].name) == len &&
            strncmp(c->options[o].name, name, len) == 0)
            break;
    if (o == PMS_CTL_OPTIONS_MAX || c->options[o].name == NULL)
        return pms_ctl_usage("unknown option %s; see pmsctl %s %s --help", argv[*i], c->group, c->verb);
    if (c->options[o].metavar == NULL) {
        if (eq != NULL)
            return pms_ctl_usage("--%s takes no value", c->options[o].name);
        value = "";
    } else {
        value = eq != NULL ? eq + 1 : ++*i < argc ? argv[*i] : NULL;
        if (value == NULL)
            return pms_ctl_usage("--%s needs a value", c->options[o].name);
    }
    if (values[o].n == PMS_CTL_VALUES_MAX || (values[o].n > 0 && !c->options[o].many))
        return pms_ctl_usage("--%s is given too often", c->options[o].name);
    values[o].value[values[o].n++] = value;
    return 0;
}

static int command_run(struct pms_ctl *ctl, const struct pms_ctl_command *c, int argc, char **argv)
{
    struct pms_ctl_values values[PMS_CTL_OPTIONS_MAX] = {0};
    bool is_help = false, only_args = false;
    char **args = calloc((size_t)argc + 1, sizeof(*args));
    int n = 0, rv = 0;

    if (args == NULL)
        return PMS_EXIT_FAILED;
    for (int i = 0; i < argc && rv == 0 && !is_help; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0)
            only_args = true;
        else if (!only_args && argv[i][0] == '-' && argv[i][1] != '\0')
            rv = option_read(ctl, c, values, argc, argv, &i, &is_help);
        else
            args[n++] = argv[i];
    }
    if (rv == 0 && is_help) {
        help_command(stdout, c);
        goto out;
    }
    for (int i = 0; i < PMS_CTL_OPTIONS_MAX && c->options[i].name != NULL && rv == 0; i++)
        if (c->options[i].required && values[i].n == 0)
            rv = pms_ctl_usage("--%s is missing; see pmsctl %s %s --help", c->options[i].name, c->group,
                               c->verb);
    if (rv == 0 && (n < c->args_min || n > c->args_max))
        rv = pms_ctl_usage("pmsctl %s %s takes %s; see pmsctl %s %s --help", c->group, c->verb,
                           *c->args ? c->args : "no argument", c->group, c->verb);
    if (rv == 0) {
        ctl->args = args;
        ctl->n_args = n;
        rv = c->run(ctl, c, values);
    }
out:
    free(args);
    return rv;
}

static const struct pms_ctl_command *command_find(const char *group, const char *verb)
{
    for (size_t g = 0; g < GROUPS; g++)
        for (const struct pms_ctl_command *c = groups[g]; c->group != NULL; c++)
            if (strcmp(c->group, group) == 0 && strcmp(c->verb, verb) == 0)
                return c;
    return NULL;
}

// Before anything is judged: in what form would a complaint be wanted?
static bool json_wanted(int argc, char **argv)
{
    bool json = false;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool apart = strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0;

        if (apart && i + 1 < argc)
            json = strcmp(argv[++i], "json") == 0;
        else if (strncmp(argv[i], "--output=", 9) == 0)
            json = strcmp(argv[i] + 9, "json") == 0;
    }
    return json;
}

// The group alone, or with something that is no verb of it.
static int group_only(const char *group, const char *verb, bool json)
{
    if (verb != NULL && (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0)) {
        if (help_group(stdout, group) > 0)
            return PMS_EXIT_DONE;
    }
    if (json)
        return pms_ctl_usage("there is no command %s%s%s; see pmsctl --help", group,
                             verb != NULL && *verb != '-' ? " " : "",
                             verb != NULL && *verb != '-' ? verb : "");
    if (help_group(stderr, group) == 0)
        return pms_ctl_usage("there is no command %s; see pmsctl --help", group);
    return PMS_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *socket = getenv("PMS_SOCKET");
    struct pms_ctl ctl = {.client.socket = socket != NULL && *socket ? socket : "/run/pms/pmsd.sock"};
    const struct pms_ctl_command *c;
    bool is_help = false, json = json_wanted(argc, argv);
    int i = 1, rv;

    if (json)
        pms_ctl_errors_as_json();
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--version") == 0) {
            printf("pmsctl %s\n", PMS_VERSION);
            return PMS_EXIT_DONE;
        }
        rv = option_read(&ctl, NULL, NULL, argc, argv, &i, &is_help);
        if (rv != 0)
            return rv;
        if (is_help) {
            help_all(stdout);
            return PMS_EXIT_DONE;
        }
    }
    if (i == argc && json)
        return pms_ctl_usage("a command is missing; see pmsctl --help");
    if (i == argc) {
        help_all(stderr);
        return PMS_EXIT_USAGE;
    }
    if (strcmp(argv[i], "help") == 0) {
        help_all(stdout);
        return PMS_EXIT_DONE;
    }
    c = command_find(argv[i], "");
    if (c != NULL)
        return command_run(&ctl, c, argc - i - 1, argv + i + 1);
    c = i + 1 < argc ? command_find(argv[i], argv[i + 1]) : NULL;
    if (c == NULL)
        return group_only(argv[i], i + 1 < argc ? argv[i + 1] : NULL, json);
    return command_run(&ctl, c, argc - i - 2, argv + i + 2);
}
