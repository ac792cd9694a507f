// SPDX-License-Identifier: GPL-2.0-or-later
// What pmsctl's commands share: their table, calling pmsd, complaining, printing.
#ifndef PMS_CMD_PMSCTL_CTL_H
#define PMS_CMD_PMSCTL_CTL_H

#include "cmd/pmsctl/client.h"

#include <stdbool.h>
#include <stdint.h>

enum { PMS_EXIT_DONE = 0, PMS_EXIT_FAILED = 1, PMS_EXIT_USAGE = 2, PMS_EXIT_NO_QUORUM = 3 };

struct pms_ctl {
    struct pms_client client;
    bool json; // -o json
    int n_args;
    char **args;
};

// One command. Its options are read from the table by main.c: for each a value or, for flags, "".
struct pms_ctl_option {
    const char *name;    // without --
    const char *metavar; // NULL: a flag
    bool required;
    bool many; // may be given several times
    const char *help;
};

#define PMS_CTL_VALUES_MAX  16
#define PMS_CTL_OPTIONS_MAX 10

// What was given for an option.
struct pms_ctl_values {
    int n;
    const char *value[PMS_CTL_VALUES_MAX];
};

struct pms_ctl_command {
    const char *group, *verb; // "cluster", "init"
    const char *args;         // of the usage line: "NAME"; "" for none
    int args_min, args_max;
    const char *help; // one line
    struct pms_ctl_option options[PMS_CTL_OPTIONS_MAX];
    int (*run)(struct pms_ctl *ctl, const struct pms_ctl_command *command,
               const struct pms_ctl_values *values);
};

// Every group's table ends with an entry without a group. A group that is one command has a verb "".
extern const struct pms_ctl_command pms_ctl_cluster[], pms_ctl_tokens[], pms_ctl_nodes[], pms_ctl_arrays[],
    pms_ctl_sessions[], pms_ctl_settings[], pms_ctl_recover[];

// token create, which is cluster token too.
int pms_ctl_token_create(struct pms_ctl *ctl, const struct pms_ctl_command *command,
                         const struct pms_ctl_values *values);

// The value of an option; NULL if it was not given. The name must be one of the command's.
const char *pms_ctl_value(const struct pms_ctl_command *command, const struct pms_ctl_values *values,
                          const char *name);
const struct pms_ctl_values *pms_ctl_values_of(const struct pms_ctl_command *command,
                                               const struct pms_ctl_values *values, const char *name);

// From now on every complaint is one line of JSON on stderr, {"error", "text"}; else it is "pmsctl: text".
void pms_ctl_errors_as_json(void);

// Calls pmsd. PMS_EXIT_DONE and *answer (new reference); else the exit status, and it was said on stderr why.
int pms_ctl_call(struct pms_ctl *ctl, const char *method, const char *path, const json_t *body,
                 json_t **answer);
// The same for what is told in a sentence: takes the reference of body, and with -o json prints the answer. *answer: what
// is still to be told (new reference); NULL: nothing.
int pms_ctl_ask(struct pms_ctl *ctl, const char *method, const char *path, json_t *body, json_t **answer);
// "/v1/arrays/NAME" + suffix; false (said) if name cannot be in a path.
bool pms_ctl_array_path(const char *name, const char *suffix, char *out, size_t len);

// Complains of an error of ours.
__attribute__((format(printf, 2, 3))) void pms_ctl_complain(int err, const char *fmt, ...);
// Complains and returns PMS_EXIT_USAGE.
__attribute__((format(printf, 1, 2))) int pms_ctl_usage(const char *fmt, ...);

// Prints the answer as JSON, for -o json.
void pms_ctl_print_json(const json_t *answer);
// A note on stderr if the answer came without quorum.
void pms_ctl_note_quorum(const json_t *answer);

// A table: rows of cells, columns as wide as needed. Cells are copied; the first row is the head.
struct pms_table {
    int columns, rows;
    char *(*cells)[8];
};
void pms_table_add(struct pms_table *t, int columns, const char *const *cells);
void pms_table_print(struct pms_table *t); // and frees

// "1 GiB", "1536 MiB": exact, for sizes in whole MiB.
const char *pms_ctl_size_text(uint64_t bytes, char out[32]);

#endif
