// SPDX-License-Identifier: GPL-2.0-or-later
// Looking through the join tokens and revoking one. Making one is in init.c.
#include "cmd/pmsd/token.h"
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"
#include "consensus/raft/token.h"

#include <string.h>

#define COMMAND_MS 10000

static json_t *token_view(const struct pms_app *app, const char *id, const json_t *token, uint64_t now_s)
{
    uint64_t expires_s = 0, used_by = 0;
    json_t *obj = json_object();

    pms_json_u64(token, "expires_s", &expires_s);
    pms_json_set_str(obj, "id", id);
    pms_json_set_u64(obj, "expires_s", expires_s);
    if (pms_json_id(token, "used_by", &used_by) == 0) {
        pms_json_set_str(obj, "state", "used");
        pms_json_set_str(obj, "node", pms_view_node_name(app, used_by));
    } else {
        pms_json_set_str(obj, "state", now_s < expires_s ? "open" : "expired");
        json_object_set_new(obj, "node", json_null());
    }
    return obj;
}

json_t *pms_tokens_view(const struct pms_app *app, uint64_t now_s)
{
    json_t *state = pms_state_public(app->state), *tokens = json_object_get(state, "tokens");
    json_t *list = json_array(), *token;
    const char *id;

    json_object_foreach (tokens, id, token) {
        size_t at = 0;

        // By id: the order of a JSON object says nothing.
        while (at < json_array_size(list) && strcmp(pms_json_str(json_array_get(list, at), "id", ""), id) < 0)
            at++;
        json_array_insert_new(list, at, token_view(app, id, token, now_s));
    }
    json_decref(state);
    return list;
}

// ---- Revoking ----

struct revoke_task {
    struct pms_task task;
    char id[PMS_TOKEN_ID_SIZE];
};

enum { REVOKE_BEGIN, REVOKE_DONE };

static void revoke_step(struct pms_task *task)
{
    struct revoke_task *r = (struct revoke_task *)task;
    json_t *json;

    if (task->stage == REVOKE_BEGIN) {
        task->stage = REVOKE_DONE;
        json = pms_command_new("token_revoke");
        pms_json_set_str(json, "id", r->id);
        pms_task_command(task, json, COMMAND_MS, NULL);
        return;
    }
    json = json_object();
    pms_json_set_str(json, "id", r->id);
    pms_json_set_bool(json, "revoked", true);
    pms_task_finish(task, json);
}

void pms_token_revoke_route(struct pms_req *req)
{
    struct revoke_task *r;

    if (strlen(pms_req_arg(req)) >= PMS_TOKEN_ID_SIZE) {
        pms_req_refuse(req, PMS_ENOTFOUND, "there is no such token: pmsctl token list shows them");
        return;
    }
    r = pms_task_start(pms_req_app(req), req, "token revoke", sizeof(*r), 2 * COMMAND_MS, revoke_step, NULL);
    strcpy(r->id, pms_req_arg(req));
}
