// SPDX-License-Identifier: GPL-2.0-or-later
// What pmsctl's commands share: calling pmsd, complaining, printing.
#include "cmd/pmsctl/ctl.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pms_ctl_values *pms_ctl_values_of(const struct pms_ctl_command *command,
                                               const struct pms_ctl_values *values, const char *name)
{
    for (int i = 0; i < PMS_CTL_OPTIONS_MAX && command->options[i].name != NULL; i++)
        if (strcmp(command->options[i].name, name) == 0)
            return &values[i];
    PMS_CHECK_MSG(false, "no option %s", name);
    return NULL;
}

const char *pms_ctl_value(const struct pms_ctl_command *command, const struct pms_ctl_values *values,
                          const char *name)
{
    const struct pms_ctl_values *v = pms_ctl_values_of(command, values, name);

    return v->n > 0 ? v->value[v->n - 1] : NULL;
}

// ---- Complaining ----

static bool errors_json;

void pms_ctl_errors_as_json(void)
{
    errors_json = true;
}

__attribute__((format(printf, 2, 0))) static void complain(const char *error, const char *fmt, va_list ap)
{
    json_t *obj;
    char *text = NULL;

    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    PMS_CHECK_MSG(text != NULL, "out of memory");
    if (!errors_json) {
        fprintf(stderr, "pmsctl: %s\n", text);
    } else {
        obj = json_object();
        pms_json_set_str(obj, "error", error);
        // What was typed may be no UTF-8, and then no JSON string.
        if (pms_json_set_str(obj, "text", text) != 0)
            pms_json_set_str(obj, "text", pms_err_text(pms_err_from_name(error)));
        json_dumpf(obj, stderr, JSON_SORT_KEYS);
        fputc('\n', stderr);
        json_decref(obj);
    }
    free(text);
}

__attribute__((format(printf, 2, 3))) static void complain_of(const char *error, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(error, fmt, ap);
    va_end(ap);
}

void pms_ctl_complain(int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(pms_err_name(err), fmt, ap);
    va_end(ap);
}

int pms_ctl_usage(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(pms_err_name(PMS_EUSAGE), fmt, ap);
    va_end(ap);
    return PMS_EXIT_USAGE;
}

// ---- Calling ----

static int call_failed(const struct pms_ctl *ctl, int err)
{
    const char *name = pms_err_name(err);

    if (err == -ENOENT || err == -ECONNREFUSED)
        complain_of(name,
                    "pmsd does not run here (nobody listens on %s): start it as root with `pmsd` (see pmsd "
                    "--help); another socket is named by --socket or PMS_SOCKET",
                    ctl->client.socket);
    else if (err == -EACCES || err == -EPERM)
        complain_of(name, "no permission for %s: run it as root", ctl->client.socket);
    else if (err == -ECONNRESET || err == -EPIPE)
        complain_of(pms_err_name(PMS_EUNKNOWN),
                    "pmsd ended before it answered: the outcome is unknown; look at its log, then at `pmsctl "
                    "cluster status`");
    else
        complain_of(name, "%s: %s", ctl->client.socket, pms_err_text(err));
    return PMS_EXIT_FAILED;
}

static int refusal(const json_t *answer)
{
    const char *error = pms_json_str(answer, "error", "");

    complain_of(error, "%s", pms_json_str(answer, "text", "pmsd refused without a reason"));
    if (strcmp(error, "PMS_EUSAGE") == 0)
        return PMS_EXIT_USAGE;
    return strcmp(error, "PMS_ENOQUORUM") == 0 ? PMS_EXIT_NO_QUORUM : PMS_EXIT_FAILED;
}

int pms_ctl_call(struct pms_ctl *ctl, const char *method, const char *path, const json_t *body,
                 json_t **answer)
{
    unsigned http = 0;
    int rv, status;

    if (ctl->json)
        ctl->client.on_wait = NULL; // how far it is is said to people only
    rv = pms_client_call(&ctl->client, method, path, body, &http, answer);
    if (rv != 0)
        return call_failed(ctl, rv);
    if (http == 200)
        return PMS_EXIT_DONE;
    status = refusal(*answer);
    json_decref(*answer);
    *answer = NULL;
    return status;
}

int pms_ctl_ask(struct pms_ctl *ctl, const char *method, const char *path, json_t *body, json_t **answer)
{
    int rv = pms_ctl_call(ctl, method, path, body, answer);

    json_decref(body);
    if (rv == PMS_EXIT_DONE && !ctl->json)
        return rv;
    if (rv == PMS_EXIT_DONE) {
        pms_ctl_print_json(*answer);
        json_decref(*answer);
    }
    *answer = NULL;
    return rv;
}

bool pms_ctl_array_path(const char *name, const char *suffix, char *out, size_t len)
{
    if (*name == '\0' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != strlen(name) ||
        strlen(name) > 63) {
        pms_ctl_usage("%s cannot be an array's name: it has 1 to 63 lower-case letters, digits, '.' or '-'",
                      name);
        return false;
    }
    snprintf(out, len, "/v1/arrays/%s%s", name, suffix);
    return true;
}

// ---- Printing ----

void pms_ctl_print_json(const json_t *answer)
{
    json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    putchar('\n');
}

void pms_ctl_note_quorum(const json_t *answer)
{
    if (!pms_json_bool(answer, "quorum", true))
        fputs("pmsctl: no quorum: this is what this node knew last, it may be out of date\n", stderr);
}

const char *pms_ctl_size_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"MiB", "GiB", "TiB", "PiB"};
    uint64_t n = bytes >> 20;
    unsigned u = 0;

    while (u < 3 && n >= 1024 && n % 1024 == 0) {
        n /= 1024;
        u++;
    }
    snprintf(out, 32, "%" PRIu64 " %s", n, units[u]);
    return out;
}

void pms_table_add(struct pms_table *t, int columns, const char *const *cells)
{
    PMS_CHECK(columns <= 8);
    t->columns = columns;
    t->cells = realloc(t->cells, (size_t)(t->rows + 1) * sizeof(*t->cells));
    PMS_CHECK_MSG(t->cells != NULL, "out of memory");
    for (int c = 0; c < columns; c++) {
        t->cells[t->rows][c] = strdup(cells[c]);
        PMS_CHECK_MSG(t->cells[t->rows][c] != NULL, "out of memory");
    }
    t->rows++;
}

void pms_table_print(struct pms_table *t)
{
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            int width = 0;

            for (int k = 0; k < t->rows; k++)
                if ((int)strlen(t->cells[k][c]) > width)
                    width = (int)strlen(t->cells[k][c]);
            if (c + 1 < t->columns)
                printf("%-*s  ", width, t->cells[r][c]);
            else
                printf("%s\n", t->cells[r][c]);
        }
    }
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->columns; c++)
            free(t->cells[r][c]);
    free(t->cells);
    *t = (struct pms_table){0};
}
