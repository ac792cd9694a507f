// SPDX-License-Identifier: GPL-2.0-or-later
// One array's iSCSI sessions: recorded in the cluster state before a login is answered, given back to a new
// target, forgotten when they were without connection for too long.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/command.h"

#include <stdlib.h>
#include <string.h>

#define LOGIN_MS  20000 // an initiator waits about as long
#define CLOSED_MS 20000
#define EXPIRE_MS 2000
#define SWEEP_NS  10000000000ull

static const json_t *sessions_of(const struct pms_local *a)
{
    return pms_state_sessions_json(a->app->state, a->info.name);
}

unsigned pms_local_sessions_get(void *arg, struct pms_session_rec *recs, unsigned max)
{
    const json_t *list = sessions_of(arg), *session;
    unsigned n = 0;
    size_t i;

    json_array_foreach (list, i, session) {
        if (n == max)
            break;
        if (pms_session_rec_from_json(session, &recs[n]) == 0)
            n++;
    }
    return n;
}

// ---- Login ----

struct login {
    void *ref;
    uint64_t id;
};

static void on_login_recorded(void *data, int err, const char *text, const json_t *result)
{
    struct login *l = data;
    struct pms_local *a = pms_local_of(l->ref);
    uint64_t tsih = 0, evicted = 0;

    if (a == NULL || a->at == NULL)
        goto out;
    if (err != 0)
        pms_log(PMS_LOG_WARN, "array %s: a login is refused: %s", a->info.name, text);
    else
        a->app->sessions_recorded++;
    pms_json_u64(result, "tsih", &tsih);
    if (pms_json_u64(result, "evicted", &evicted) == 0)
        pms_local_session_gone(a, (uint16_t)evicted);
    pms_at_login_done(a->at, l->id, err, (uint16_t)tsih);
out:
    free(l);
}

void pms_local_on_login(void *arg, uint64_t login_id, const struct pms_session_rec *rec,
                        uint16_t requested_tsih, bool known)
{
    struct pms_local *a = arg;
    json_t *cmd = pms_command_new("session_login"), *session = pms_session_rec_to_json(rec);
    struct login *l = calloc(1, sizeof(*l));

    (void)requested_tsih; // TSIH 0 or the old one: the port decides (design, section 7)
    (void)known;
    PMS_CHECK_MSG(session != NULL && l != NULL, "out of memory");
    *l = (struct login){pms_local_ref(a), login_id};
    for (const char *const *key = (const char *const[]){"initiator", "isid", "params", "peer", NULL}; *key;
         key++)
        if (json_object_get(session, *key) != NULL)
            json_object_set(cmd, *key, json_object_get(session, *key));
    json_decref(session);
    pms_json_set_id(cmd, "array", a->info.id);
    pms_json_set_id(cmd, "node", a->app->node.id);
    // Applied here too before the answer leaves: the end of this very session must find it.
    pms_command_propose(a->app, cmd, LOGIN_MS, PMS_COMMAND_HERE, on_login_recorded, l);
}

// ---- Closed ----

static void on_closed_recorded(void *data, int err, const char *text, const json_t *result)
{
    (void)data;
    (void)result;
    // It may have logged in again, here or elsewhere, or be gone: then there is nothing to record.
    if (err != 0 && err != PMS_ESTALE && err != PMS_ENOTFOUND)
        pms_log(PMS_LOG_WARN, "the end of a session was not recorded: %s", text);
}

// login: the index of the login whose connection it was; a later login of the session is not meant.
static void closed_propose(struct pms_local *a, uint64_t tsih, uint64_t login, const char *reason)
{
    json_t *cmd = pms_command_new("session_closed");

    pms_json_set_id(cmd, "array", a->info.id);
    pms_json_set_u64(cmd, "tsih", tsih);
    pms_json_set_u64(cmd, "login", login);
    pms_json_set_str(cmd, "reason", reason);
    pms_command_propose(a->app, cmd, CLOSED_MS, 0, on_closed_recorded, NULL);
}

void pms_local_on_closed(void *arg, const struct pms_session_rec *rec, enum pms_session_end how)
{
    struct pms_local *a = arg;
    const json_t *session;
    uint64_t tsih = 0, login = 0;
    size_t i;

    if (how == PMS_SESSION_MOVED || !pms_local_is_primary(a))
        return;
    json_array_foreach (sessions_of(a), i, session) {
        if (pms_json_u64(session, "tsih", &tsih) == 0 && tsih == rec->tsih &&
            pms_json_u64(session, "login", &login) == 0) {
            closed_propose(a, tsih, login, how == PMS_SESSION_LOGOUT ? "logout" : "connection lost");
            return;
        }
    }
}

// Nobody told of the connections that ended with an earlier target, here or on another node. Who has not
// logged in again SWEEP_NS after this one came up has no connection.
static void sweep(struct pms_local *a, uint64_t now_ns)
{
    const json_t *session;
    size_t i;

    if (a->swept || a->at_state != PMS_AT_SERVING || now_ns - a->up_ns < SWEEP_NS)
        return;
    a->swept = true;
    json_array_foreach (sessions_of(a), i, session) {
        uint64_t tsih = 0, login = 0;

        if (pms_json_bool(session, "connected", false) && pms_json_u64(session, "tsih", &tsih) == 0 &&
            pms_json_u64(session, "login", &login) == 0 && login <= a->up_index)
            closed_propose(a, tsih, login, "not back");
    }
}

void pms_local_session_gone(struct pms_local *a, uint16_t tsih)
{
    if (a->at != NULL && a->at_wanted)
        pms_at_session_expire(a->at, tsih);
}

// ---- Expiry: the primary's clock, from when it first saw the orphan ----

static void on_expired(void *data, int err, const char *text, const json_t *result)
{
    (void)data;
    (void)result;
    if (err != 0 && err != PMS_ESTALE && err != PMS_ENOTFOUND)
        pms_log(PMS_LOG_INFO, "an orphaned session could not be expired: %s", text);
}

static struct pms_orphan *orphan_find(struct pms_local *a, uint16_t tsih, uint64_t disconnected,
                                      uint64_t now_ns)
{
    for (unsigned i = 0; i < a->n_orphans; i++)
        if (a->orphans[i].tsih == tsih && a->orphans[i].disconnected == disconnected)
            return &a->orphans[i];
    if (a->n_orphans == PMS_SESSIONS_MAX)
        return NULL;
    a->orphans[a->n_orphans] =
        (struct pms_orphan){.tsih = tsih, .disconnected = disconnected, .since_ns = now_ns};
    return &a->orphans[a->n_orphans++];
}

static void orphan_expire(struct pms_local *a, struct pms_orphan *o)
{
    json_t *cmd = pms_command_new("session_expire");

    o->since_ns = pms_clock_boot_ns(); // if it fails: once more after the same time
    pms_json_set_id(cmd, "array", a->info.id);
    pms_json_set_u64(cmd, "tsih", o->tsih);
    pms_json_set_u64(cmd, "if_disconnected_index", o->disconnected);
    pms_command_propose(a->app, cmd, EXPIRE_MS, 0, on_expired, NULL);
}

void pms_local_sessions_tick(struct pms_local *a, uint64_t now_ns)
{
    uint64_t limit_ns = pms_state_setting(a->app->state, PMS_SET_ORPHAN_S) * 1000000000ull;
    const json_t *session;
    unsigned kept = 0;
    size_t i;

    if (!pms_local_is_serving(a)) {
        a->n_orphans = 0;
        return;
    }
    sweep(a, now_ns);
    for (unsigned k = 0; k < a->n_orphans; k++)
        a->orphans[k].seen = false;
    json_array_foreach (sessions_of(a), i, session) {
        uint64_t tsih = 0, disconnected = 0;
        struct pms_orphan *o;

        if (pms_json_bool(session, "connected", true) || pms_json_u64(session, "tsih", &tsih) != 0 ||
            pms_json_u64(session, "disconnected", &disconnected) != 0)
            continue;
        o = orphan_find(a, (uint16_t)tsih, disconnected, now_ns);
        if (o == NULL)
            continue;
        o->seen = true;
        if (now_ns - o->since_ns > limit_ns)
            orphan_expire(a, o);
    }
    for (unsigned k = 0; k < a->n_orphans; k++)
        if (a->orphans[k].seen)
            a->orphans[kept++] = a->orphans[k];
    a->n_orphans = kept;
}
