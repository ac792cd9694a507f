// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about iSCSI sessions: login, closed (an orphan then), expired.
//
// A session is known by (initiator, ISID) and keeps its TSIH for as long as it is remembered, over any number
// of logins, so that after a failover the same initiator port is the same I_T nexus. Log indexes stand for
// times: "login" is the index of the last login, "disconnected" that of the loss of its connection (0 while
// connected).
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

static uint64_t member_u64(const json_t *obj, const char *key)
{
    uint64_t v = 0;

    PMS_CHECK(pms_json_u64(obj, key, &v) == 0);
    return v;
}

static json_t *session_find(const json_t *sessions, const char *initiator, const char *isid)
{
    json_t *s;
    size_t i;

    json_array_foreach (sessions, i, s) {
        if (strcmp(pms_json_str(s, "initiator", ""), initiator) == 0 &&
            strcmp(pms_json_str(s, "isid", ""), isid) == 0)
            return s;
    }
    return NULL;
}

static bool find_tsih(const json_t *sessions, uint64_t tsih, size_t *at)
{
    for (size_t i = 0; i < json_array_size(sessions); i++) {
        if (member_u64(json_array_get(sessions, i), "tsih") == tsih) {
            *at = i;
            return true;
        }
    }
    return false;
}

// The next TSIH that no session has. Counting on makes one that was just given up the last to be given again.
static uint64_t tsih_choose(const json_t *array, const json_t *sessions)
{
    uint64_t tsih = member_u64(array, "tsih_last");
    size_t at = 0;

    PMS_STATIC_ASSERT(PMS_SESSIONS_MAX < UINT16_MAX, "there is always a free TSIH");
    do
        tsih = tsih < UINT16_MAX ? tsih + 1 : 1;
    while (find_tsih(sessions, tsih, &at));
    return tsih;
}

// The oldest orphan's place, of equally old ones that with the lowest TSIH. (Orphans with a persistent
// registration must stay; registrations come with a later feature level.)
static bool orphan_oldest(const json_t *sessions, size_t *at)
{
    uint64_t oldest = 0, oldest_tsih = 0;
    bool found = false;
    json_t *s;
    size_t i;

    json_array_foreach (sessions, i, s) {
        uint64_t disconnected = member_u64(s, "disconnected"), tsih = member_u64(s, "tsih");

        if (pms_json_bool(s, "connected", true))
            continue;
        if (!found || disconnected < oldest || (disconnected == oldest && tsih < oldest_tsih)) {
            found = true;
            *at = i;
            oldest = disconnected;
            oldest_tsih = tsih;
        }
    }
    return found;
}

struct login {
    const char *initiator, *isid;
    const json_t *params;
    char peer[PMS_ADDR_TEXT_MAX + 1];
    struct pms_node_info node;
};

static int login_fields(struct pms_apply *a, const struct pms_array_info *info, struct login *l)
{
    int rv = pms_field_text(a, a->cmd, "initiator", PMS_IQN_MAX, &l->initiator);

    if (rv == 0)
        rv = pms_field_addr(a, a->cmd, "peer", l->peer);
    if (rv == 0)
        rv = pms_field_node(a, a->cmd, "node", &l->node);
    if (rv != 0)
        return rv;
    l->isid = pms_json_str(a->cmd, "isid", "");
    if (!pms_isid_valid(l->isid))
        return pms_refuse(a, PMS_EUSAGE, "\"isid\" must be 12 lower-case hex digits");
    l->params = json_object_get(a->cmd, "params");
    if (!pms_params_valid(l->params))
        return pms_refuse(a, PMS_EUSAGE, "\"params\" must be an object of at most 64 short values");
    if (info->phase != PMS_ARRAY_READY)
        return pms_refuse(a, PMS_EREFUSED, "array %s does not serve", info->name);
    if (info->slots[info->primary].node_id != l->node.id)
        return pms_refuse(a, PMS_ESTALE, "node %s is not the primary of array %s", l->node.name, info->name);
    return 0;
}

static void session_fill(struct pms_apply *a, json_t *session, const struct login *l)
{
    PMS_MUST(json_object_set_new(session, "params", pms_must(json_deep_copy(l->params))));
    PMS_MUST(pms_json_set_str(session, "peer", l->peer));
    PMS_MUST(pms_json_set_id(session, "node", l->node.id));
    PMS_MUST(pms_json_set_bool(session, "connected", true));
    PMS_MUST(pms_json_set_u64(session, "login", a->index));
    PMS_MUST(pms_json_set_u64(session, "disconnected", 0));
}

int pms_on_session_login(struct pms_apply *a)
{
    struct pms_array_info info;
    struct login l = {0};
    json_t *json, *sessions, *session;
    uint64_t tsih = 0;
    size_t evict = 0;
    bool known;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = login_fields(a, &info, &l);
    if (rv != 0)
        return rv;
    sessions = json_object_get(a->st->sessions, info.name);
    session = session_find(sessions, l.initiator, l.isid);
    known = session != NULL;
    if (!known && json_array_size(sessions) >= PMS_SESSIONS_MAX) {
        if (!orphan_oldest(sessions, &evict))
            return pms_refuse(a, PMS_EFULL, "array %s has %d sessions, all connected", info.name,
                              PMS_SESSIONS_MAX);
        PMS_MUST(pms_json_set_u64(a->result, "evicted", member_u64(json_array_get(sessions, evict), "tsih")));
        PMS_MUST(json_array_remove(sessions, evict));
    }
    if (!known) {
        tsih = tsih_choose(json, sessions);
        session = pms_must(json_object());
        PMS_MUST(pms_json_set_str(session, "initiator", l.initiator));
        PMS_MUST(pms_json_set_str(session, "isid", l.isid));
        PMS_MUST(pms_json_set_u64(session, "tsih", tsih));
        PMS_MUST(json_array_append_new(sessions, session));
        PMS_MUST(pms_json_set_u64(json, "tsih_last", tsih));
    }
    session_fill(a, session, &l);
    PMS_MUST(pms_json_set_u64(a->result, "tsih", member_u64(session, "tsih")));
    PMS_MUST(pms_json_set_u64(a->result, "login", a->index));
    PMS_MUST(pms_json_set_bool(a->result, "new", !known));
    return 0;
}

// The session that the fields "array" and "tsih" name.
static int session_fields(struct pms_apply *a, json_t **sessions, size_t *at)
{
    struct pms_array_info info;
    uint64_t tsih = 0;
    json_t *json;
    int rv = pms_field_array(a, &json, &info);

    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "tsih", 1, UINT16_MAX, &tsih);
    if (rv != 0)
        return rv;
    *sessions = json_object_get(a->st->sessions, info.name);
    if (!find_tsih(*sessions, tsih, at))
        return pms_refuse(a, PMS_ENOTFOUND, "array %s has no session with TSIH %llu", info.name,
                          (unsigned long long)tsih);
    return 0;
}

static void orphan(json_t *session, uint64_t index)
{
    PMS_MUST(pms_json_set_bool(session, "connected", false));
    PMS_MUST(pms_json_set_u64(session, "disconnected", index));
}

int pms_on_session_closed(struct pms_apply *a)
{
    json_t *sessions, *session;
    const char *reason;
    uint64_t login = 0;
    size_t at = 0;
    int rv = session_fields(a, &sessions, &at);

    if (rv == 0)
        rv = pms_field_text(a, a->cmd, "reason", 63, &reason);
    if (rv != 0)
        return rv;
    session = json_array_get(sessions, at);
    login = member_u64(session, "login");
    if (json_object_get(a->cmd, "login") != NULL) {
        uint64_t meant;

        rv = pms_field_u64(a, a->cmd, "login", 1, INT64_MAX, &meant);
        if (rv != 0)
            return rv;
        // What closed was an earlier connection of it.
        if (meant != login)
            return pms_refuse(a, PMS_ESTALE, "the session has logged in again since");
    }
    if (strcmp(reason, "logout") == 0) {
        PMS_MUST(json_array_remove(sessions, at));
        return 0;
    }
    if (pms_json_bool(session, "connected", false))
        orphan(session, a->index);
    PMS_MUST(pms_json_set_u64(a->result, "disconnected", member_u64(session, "disconnected")));
    return 0;
}

int pms_on_session_expire(struct pms_apply *a)
{
    json_t *sessions, *session;
    uint64_t meant = 0;
    size_t at = 0;
    int rv = session_fields(a, &sessions, &at);

    if (rv == 0)
        rv = pms_field_u64(a, a->cmd, "if_disconnected_index", 1, INT64_MAX, &meant);
    if (rv != 0)
        return rv;
    session = json_array_get(sessions, at);
    if (pms_json_bool(session, "connected", true) || member_u64(session, "disconnected") != meant)
        return pms_refuse(a, PMS_ESTALE, "the session has logged in again since");
    PMS_MUST(json_array_remove(sessions, at));
    return 0;
}

void pms_sessions_forget_all(struct pms_state *st, const char *array_name)
{
    PMS_MUST(json_array_clear(json_object_get(st->sessions, array_name)));
}

void pms_sessions_orphan_all(struct pms_state *st, const char *array_name, uint64_t index)
{
    json_t *session;
    size_t i;

    json_array_foreach (json_object_get(st->sessions, array_name), i, session) {
        if (pms_json_bool(session, "connected", false))
            orphan(session, index);
    }
}
