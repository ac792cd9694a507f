// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl token: making, listing and revoking what admits a new node.
#include "base/json.h"
#include "cmd/pmsctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int pms_ctl_token_create(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    json_t *answer = NULL;
    int rv = pms_ctl_call(ctl, "POST", "/v1/tokens", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json)
        pms_ctl_print_json(answer);
    else
        printf("a token for one node, good for 24 hours; on that node run:\n  %s\n",
               pms_json_str(answer, "join", "?"));
    json_decref(answer);
    return rv;
}

static int run_list(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    struct pms_table t = {0};
    json_t *answer = NULL;
    const json_t *token;
    size_t i;
    int rv = pms_ctl_call(ctl, "GET", "/v1/tokens", NULL, &answer);

    (void)c;
    (void)v;
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json) {
        pms_ctl_print_json(json_object_get(answer, "tokens"));
        goto out;
    }
    pms_ctl_note_quorum(answer);
    pms_table_add(&t, 4, (const char *const[]){"ID", "STATE", "EXPIRES", "USED BY"});
    json_array_foreach (json_object_get(answer, "tokens"), i, token) {
        uint64_t expires_s = 0;
        char expires[40] = "?";
        struct tm tm;
        time_t at;

        pms_json_u64(token, "expires_s", &expires_s);
        at = (time_t)expires_s;
        if (gmtime_r(&at, &tm) != NULL)
            strftime(expires, sizeof(expires), "%Y-%m-%dT%H:%M:%SZ", &tm);
        pms_table_add(&t, 4,
                      (const char *const[]){pms_json_str(token, "id", "?"), pms_json_str(token, "state", "?"),
                                            expires, pms_json_str(token, "node", "")});
    }
    pms_table_print(&t);
out:
    json_decref(answer);
    return rv;
}

static int run_revoke(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    const char *id = ctl->args[0];
    json_t *answer = NULL;
    char path[128];
    int rv;

    (void)c;
    (void)v;
    // Nothing else would be one element of a path; a whole token is not repeated in a message.
    if (*id == '\0' || strlen(id) > 32 || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(id))
        return pms_ctl_usage("pmsctl token revoke takes a token's id, as pmsctl token list prints it");
    snprintf(path, sizeof(path), "/v1/tokens/%s", id);
    rv = pms_ctl_call(ctl, "DELETE", path, NULL, &answer);
    if (rv != PMS_EXIT_DONE)
        return rv;
    if (ctl->json)
        pms_ctl_print_json(answer);
    else
        printf("token %s is revoked: it admits nobody any more\n", id);
    json_decref(answer);
    return rv;
}

const struct pms_ctl_command pms_ctl_tokens[] = {
    {"token", "create", "", 0, 0, "makes a token for one more node", {{0}}, pms_ctl_token_create},
    {"token", "list", "", 0, 0, "lists the tokens: id, state, expiry; never a secret", {{0}}, run_list},
    {"token", "revoke", "ID", 1, 1, "makes a token useless", {{0}}, run_revoke},
    {0},
};
