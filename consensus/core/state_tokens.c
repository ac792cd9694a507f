// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about join tokens: each admits one node, once, until it expires.
//
// A token: {"secret", "expires_s", "by", "added": log index, "used_by": node id or null}. A used one is kept,
// so that its node may ask again when the answer was lost; it is the first to go when room is needed.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

// The token that gives way to a new one: a used one before an expired one, the oldest first. NULL: none may
// go.
static const char *token_to_drop(const struct pms_state *st, uint64_t now_s)
{
    const char *id, *drop = NULL;
    uint64_t drop_added = 0;
    bool drop_used = false;
    json_t *token;

    // Added indexes differ (one command, one token), so the order of the walk does not matter.
    json_object_foreach (st->tokens, id, token) {
        bool used = !json_is_null(json_object_get(token, "used_by"));
        uint64_t expires_s = 0, added = 0;

        pms_json_u64(token, "expires_s", &expires_s);
        pms_json_u64(token, "added", &added);
        if (!used && expires_s > now_s)
            continue;
        if (drop == NULL || (used && !drop_used) || (used == drop_used && added < drop_added)) {
            drop = id;
            drop_added = added;
            drop_used = used;
        }
    }
    return drop;
}

int pms_on_token_add(struct pms_apply *a)
{
    const char *id = pms_json_str(a->cmd, "id", NULL), *secret, *by, *drop = NULL;
    uint64_t expires_s = 0, now_s = 0;
    json_t *token;
    int rv;

    if (!pms_text_in(id, PMS_TOKEN_ID_MAX, "", false))
        return pms_refuse(a, PMS_EUSAGE, "\"id\" must be 1 to %d lower-case letters or digits",
                          PMS_TOKEN_ID_MAX);
    rv = pms_field_text(a, a->cmd, "secret", PMS_TOKEN_SECRET_MAX, &secret);
    if (rv == 0)
        rv = pms_field_text(a, a->cmd, "by", PMS_NAME_MAX, &by);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "expires_s", 1, INT64_MAX, &expires_s);
    if (rv == 0 && json_object_get(a->cmd, "now_s") != NULL)
        rv = pms_field_u64(a, a->cmd, "now_s", 0, INT64_MAX, &now_s);
    if (rv != 0)
        return rv;
    if (json_object_get(a->st->tokens, id) != NULL)
        return pms_refuse(a, PMS_EEXISTS, "there is a token %s already", id);
    if (json_object_size(a->st->tokens) >= PMS_STATE_TOKENS_MAX) {
        drop = token_to_drop(a->st, now_s);
        if (drop == NULL)
            return pms_refuse(
                a, PMS_EFULL,
                "%d tokens wait to be used: revoke one (pmsctl token list, pmsctl token revoke ID), or "
                "wait until one expires",
                PMS_STATE_TOKENS_MAX);
    }

    if (drop != NULL)
        PMS_MUST(json_object_del(a->st->tokens, drop));
    token = pms_must(json_object());
    PMS_MUST(pms_json_set_str(token, "secret", secret));
    PMS_MUST(pms_json_set_str(token, "by", by));
    PMS_MUST(pms_json_set_u64(token, "expires_s", expires_s));
    PMS_MUST(pms_json_set_u64(token, "added", a->index));
    PMS_MUST(json_object_set_new(token, "used_by", json_null()));
    PMS_MUST(json_object_set_new(a->st->tokens, id, token));
    return 0;
}

int pms_token_admits(struct pms_apply *a, const char *token_id, uint64_t node_id, uint64_t now_s)
{
    const json_t *token = json_object_get(a->st->tokens, token_id);
    uint64_t used_by = 0, expires_s = 0;
    char label[20];

    if (token == NULL)
        return pms_refuse(a, PMS_EAUTH, "this token is not known: make a new one on a joined node");
    if (pms_json_id(token, "used_by", &used_by) == 0) {
        if (used_by == node_id)
            return 0;
        return pms_refuse(a, PMS_EAUTH, "this token has been used, by node %s: a token admits one node",
                          pms_node_label(a->st, used_by, label));
    }
    PMS_CHECK(pms_json_u64(token, "expires_s", &expires_s) == 0);
    if (now_s >= expires_s)
        return pms_refuse(a, PMS_EAUTH, "this token has expired: make a new one on a joined node");
    return 0;
}

void pms_token_spend(struct pms_apply *a, const char *token_id, uint64_t node_id)
{
    json_t *token = json_object_get(a->st->tokens, token_id);

    PMS_MUST(pms_json_set_id(token, "used_by", node_id));
}

int pms_on_token_use(struct pms_apply *a)
{
    uint64_t node_id = 0, now_s = 0;
    const char *id;
    bool already;
    int rv = pms_field_text(a, a->cmd, "id", PMS_TOKEN_ID_MAX, &id);

    if (rv == 0)
        rv = pms_field_id(a, a->cmd, "node", &node_id);
    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "now_s", 0, INT64_MAX, &now_s);
    if (rv == 0)
        rv = pms_token_admits(a, id, node_id, now_s);
    if (rv != 0)
        return rv;
    already = !json_is_null(json_object_get(json_object_get(a->st->tokens, id), "used_by"));
    pms_token_spend(a, id, node_id);
    PMS_MUST(pms_json_set_bool(a->result, "already", already));
    return 0;
}

int pms_on_token_revoke(struct pms_apply *a)
{
    const char *id = pms_json_str(a->cmd, "id", "");

    if (json_object_get(a->st->tokens, id) == NULL)
        return pms_refuse(a, PMS_ENOTFOUND, "there is no token %.32s", id);
    PMS_MUST(json_object_del(a->st->tokens, id));
    return 0;
}
