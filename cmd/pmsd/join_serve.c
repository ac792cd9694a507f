// SPDX-License-Identifier: GPL-2.0-or-later
// A member's side of cluster join: a stranger that proved to hold a token is put on the list of nodes and
// told the cluster's key. The leader adds it to Raft afterwards (membership.c).
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOIN_MS     10000
#define NAMESAKE_MS 1000

int pms_join_token_secret(void *data, const char *token_id, char secret[PMS_TOKEN_SECRET_SIZE])
{
    struct pms_app *app = data;
    const json_t *token = app->state != NULL ? pms_state_token_json(app->state, token_id) : NULL;
    const char *text = pms_json_str(token, "secret", "");
    uint64_t expires_s = 0, used_by = 0;

    if (strlen(text) + 1 != PMS_TOKEN_SECRET_SIZE)
        return PMS_ENOTFOUND;
    pms_json_u64(token, "expires_s", &expires_s);
    // A used token still opens the door: its node may ask again when the answer was lost. The state decides.
    if (pms_json_id(token, "used_by", &used_by) != 0 && (uint64_t)time(NULL) >= expires_s)
        return PMS_ENOTFOUND;
    strcpy(secret, text);
    return 0;
}

struct join_serve {
    struct pms_app *app;
    struct pms_join *join;
    json_t *cmd; // node_join
};

static json_t *welcome(const struct pms_app *app)
{
    json_t *answer = json_object(), *list = json_array(), *former = json_array();
    char id[PMS_UUID_TEXT_SIZE];
    struct pms_node_info node;

    for (size_t c = 0; pms_state_node_next(app->state, &c, &node);) {
        json_t *n = json_object();

        pms_json_set_id(n, "id", node.id);
        pms_json_set_str(n, "addr", node.addr);
        json_array_append_new(list, n);
    }
    pms_json_set_bool(answer, "ok", true);
    pms_json_set_str(answer, "cluster", pms_uuid_format(&app->node.cluster, id));
    pms_json_set_str(answer, "name", pms_state_cluster_name(app->state));
    for (unsigned i = 0; i < app->node.n_former; i++)
        json_array_append_new(former, pms_realm_to_json(&app->node.former[i]));
    json_object_set_new(answer, "realm", pms_realm_to_json(&app->node.realm));
    json_object_set_new(answer, "former", former);
    json_object_set_new(answer, "nodes", list);
    return answer;
}

static void on_joined(void *data, int err, const char *text, const json_t *result)
{
    struct join_serve *s = data;
    char peer[PMS_ADDR_TEXT_SIZE];
    json_t *answer;

    (void)result;
    if (err == 0 && s->app->phase == PMS_APP_MEMBER) {
        answer = welcome(s->app);
        pms_log(PMS_LOG_INFO, "a node joins from %s", pms_addr_format(pms_join_peer(s->join), peer));
    } else {
        answer = json_object();
        pms_json_set_bool(answer, "ok", false);
        pms_json_set_str(answer, "error", pms_err_name(err));
        pms_json_set_str(answer, "text", text);
        pms_log(PMS_LOG_WARN, "a node that wants to join from %s is refused: %s",
                pms_addr_format(pms_join_peer(s->join), peer), text);
    }
    pms_join_answer(s->join, answer);
    json_decref(answer);
    free(s);
}

static void propose(struct join_serve *s)
{
    pms_command_propose(s->app, s->cmd, JOIN_MS, PMS_COMMAND_HERE, on_joined, s);
}

static void refuse(struct join_serve *s, int err, const char *text)
{
    json_t *none = json_object();

    json_decref(s->cmd);
    on_joined(s, err, text, none);
    json_decref(none);
}

// True: the stranger could talk to none of our channels, and it was told.
static bool refuse_version(struct join_serve *s, struct pms_versions theirs)
{
    struct pms_versions own = pms_node_versions;
    char own_text[PMS_VERSIONS_TEXT_SIZE], theirs_text[PMS_VERSIONS_TEXT_SIZE], text[300];

    if (pms_versions_common(own, theirs) != 0)
        return false;
    snprintf(text, sizeof(text),
             "this node speaks version %s of the protocol between nodes, the cluster's node %s version %s: "
             "upgrade pms on %s",
             pms_versions_format(theirs, theirs_text), s->app->node.name, pms_versions_format(own, own_text),
             theirs.min > own.max ? "the cluster's nodes" : "this node");
    refuse(s, PMS_EVERSION, text);
    return true;
}

static void on_namesake(void *data, int status, const json_t *body)
{
    struct join_serve *s = data;
    char text[200];

    (void)body;
    if (status != 0) {
        propose(s); // it is gone: a node that lost its disk comes back under its old name
        return;
    }
    snprintf(text, sizeof(text), "there is a node %.63s already, and it is up: join under another name",
             pms_json_str(s->cmd, "name", "?"));
    refuse(s, PMS_EEXISTS, text);
}

void pms_join_serve(void *data, struct pms_join *join, const char *token_id, const json_t *request)
{
    static const char *const keys[] = {"id", "name", "addr", "role", "supports"};
    struct join_serve *s = calloc(1, sizeof(*s));
    struct pms_node_info have;
    uint64_t id = 0;

    PMS_CHECK_MSG(s != NULL, "out of memory");
    *s = (struct join_serve){data, join, pms_command_new("node_join")};
    // The state machine checks every field.
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(request, keys[i]) != NULL)
            json_object_set(s->cmd, keys[i], json_object_get(request, keys[i]));
    pms_json_set_str(s->cmd, "token", token_id);
    pms_json_set_u64(s->cmd, "now_s", (uint64_t)time(NULL));
    pms_json_id(request, "id", &id);
    if (refuse_version(s, pms_versions_from_json(json_object_get(request, "protocol"))))
        return;
    // A name may be taken over only from a node that does not answer any more.
    if (pms_state_node_get_by_name(s->app->state, pms_json_str(request, "name", ""), &have) != 0 ||
        have.id == id || pms_rpc_call(s->app->rpc, have.id, "local", NULL, NAMESAKE_MS, on_namesake, s) != 0)
        propose(s);
}
