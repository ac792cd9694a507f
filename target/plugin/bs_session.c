// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sessions that outlive their connections, their tgtd and their node.
 *
 * tgtd ends a session with its last connection; we hold one more reference until the initiator logs out or
 * pmsd says EXPIRE. A session known to the cluster is made from nothing with tgtd's own session_create and a
 * connection that is none, then given its TSIH and relieved of the power-on UNIT ATTENTION, so that the
 * initiator port that logs in again is the same I_T nexus. tgtd keeps TSIHs in the byte order of the wire;
 * here and in messages they are host order.
 */
#include "target/plugin/plugin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pms_sess *pms_sess_of(const struct iscsi_session *session)
{
    struct pms_sess *s;

    list_for_each_entry(s, &plug.sessions, siblings) if (s->session == session) return s;
    return NULL;
}

struct pms_sess *pms_sess_keep(struct iscsi_session *session)
{
    struct pms_sess *s = pms_sess_of(session);

    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    session_get(session);
    s->session = session;
    list_add_tail(&s->siblings, &plug.sessions);
    plug.sessions_n++;
    return s;
}

/* A closed connection stays on the list while commands of it run. */
bool pms_sess_connected(const struct iscsi_session *session)
{
    struct iscsi_connection *conn;

    list_for_each_entry(conn, &session->conn_list, clist) if (!conn->closed) return true;
    return false;
}

void pms_sess_drop(struct pms_sess *s)
{
    list_del(&s->siblings);
    plug.sessions_n--;
    session_put(s->session);
    free(s);
}

bool pms_sess_drained(const struct pms_sess *s)
{
    struct it_nexus *n = it_nexus_lookup(plug.tid, s->session->tsih);

    return !n || list_empty(&n->cmd_list);
}

/* The number is in three places, and nowhere else while no command runs. */
static void tsih_write(struct iscsi_session *session, uint16_t wire)
{
    struct it_nexus *n = it_nexus_lookup(plug.tid, session->tsih);
    struct it_nexus_lu_info *il;

    if (n) {
        n->itn_id = wire;
        list_for_each_entry(il, &n->itn_itl_info_list, itn_itl_info_siblings) il->itn_id = wire;
    }
    session->tsih = wire;
}

int pms_sess_tsih_set(struct pms_sess *s, uint16_t tsih)
{
    uint16_t wire = htons(tsih), other_wire;
    struct iscsi_session *other;
    struct pms_sess *o;

    if (tsih == 0)
        return -EINVAL;
    if (s->session->tsih == wire)
        return 0;
    if (!pms_sess_drained(s))
        return -EBUSY;
    other = session_lookup_by_tsih(wire);
    if (other) {
        /* One that has no committed number yet can be moved out of the way: nobody has been told it. */
        o = pms_sess_of(other);
        if (!o || o->committed || !pms_sess_drained(o))
            return -EEXIST;
        for (other_wire = 0xffff; other_wire && session_lookup_by_tsih(other_wire); other_wire--)
            ;
        if (!other_wire)
            return -EEXIST;
        tsih_write(other, other_wire);
    }
    tsih_write(s->session, wire);
    return 0;
}

void pms_sess_params_write(const struct param *params, char *out, size_t size)
{
    size_t at = 0;
    int i, n;

    out[0] = 0;
    for (i = 0; session_keys[i].name; i++) {
        n = snprintf(out + at, size - at, "%s%s=%u", i ? ";" : "", session_keys[i].name, params[i].val);
        if (n < 0 || (size_t)n >= size - at) {
            out[at] = 0; /* the rest takes its default when it is imported */
            return;
        }
        at += (size_t)n;
    }
}

/* Unknown keys and values out of range are left at their defaults: another tgtd may have written them. */
static void params_read(struct param *params, const char *in)
{
    char key[64], *end;
    unsigned long value;
    size_t len;
    int idx;

    param_set_defaults(params, session_keys);
    while (*in) {
        len = strcspn(in, "=");
        if (in[len] != '=' || len >= sizeof(key))
            return;
        memcpy(key, in, len);
        key[len] = 0;
        value = strtoul(in + len + 1, &end, 10);
        idx = param_index_by_name(key, session_keys);
        if (idx >= 0 && value >= session_keys[idx].min && value <= session_keys[idx].max) {
            params[idx].val = (unsigned)value;
            params[idx].state = KEY_STATE_DONE;
        }
        in = *end == ';' ? end + 1 : end;
        if (*end && *end != ';')
            return;
    }
}

static int none_show(struct iscsi_connection *conn, char *buf, int rest)
{
    (void)conn;
    return snprintf(buf, (size_t)rest, "none (recorded session)");
}

/* The stand-in for a connection that session_create wants; it is taken off again at once. */
static struct iscsi_transport none_transport = {.name = "none", .ep_show = none_show};

static struct pms_sess *sess_make(const struct pms_plug_session *in)
{
    struct iscsi_connection none;
    struct pms_sess *s;

    memset(&none, 0, sizeof(none));
    INIT_LIST_HEAD(&none.clist);
    none.tid = plug.tid;
    none.initiator = (char *)in->initiator;
    none.tp = &none_transport;
    none.exp_cmd_sn = in->exp_cmd_sn;
    memcpy(none.isid, in->isid, sizeof(none.isid));
    params_read(none.session_param, in->params);
    if (session_create(&none) != 0)
        return NULL;
    list_del_init(&none.clist);
    s = pms_sess_keep(none.session);
    session_put(none.session); /* the reference of the connection that is none */
    return s;
}

static void no_power_on(const struct iscsi_session *session)
{
    struct it_nexus *n = it_nexus_lookup(plug.tid, session->tsih);
    struct it_nexus_lu_info *il;

    if (n)
        list_for_each_entry(il, &n->itn_itl_info_list, itn_itl_info_siblings)
            ua_sense_clear(il, ASC_POWERON_RESET);
}

static int import(const struct pms_plug_session *in)
{
    struct iscsi_session *have = session_find_name(plug.tid, in->initiator, (uint8_t *)in->isid);
    struct pms_sess *s = have ? pms_sess_of(have) : NULL;
    int rc;

    if (in->tsih == 0 || in->initiator[0] == 0)
        return -EINVAL;
    if (have && !s)
        return -EBUSY; /* logged out, its last commands are ending */
    if (!have) {
        if (plug.sessions_n >= PMS_SESSIONS_LIMIT)
            return -ENOSPC;
        s = sess_make(in);
        if (!s)
            return -ENOMEM;
    }
    rc = pms_sess_tsih_set(s, in->tsih);
    if (rc) {
        if (!have)
            pms_sess_drop(s);
        return rc;
    }
    if (!have)
        no_power_on(s->session);
    s->committed = true;
    return 0;
}

void pms_sess_import(const struct pms_plug_session *in)
{
    int rc = import(in);

    if (rc == 0)
        plug.imported++;
    else
        pms_plug_log("cannot import the session of %s, TSIH %u: %d", in->initiator, in->tsih, rc);
    if (rc && plug.import_status == 0)
        plug.import_status = rc;
}

void pms_sess_expire(uint16_t tsih)
{
    struct iscsi_session *session = session_lookup_by_tsih(htons(tsih));
    struct pms_sess *s = session ? pms_sess_of(session) : NULL;

    struct pms_login *l;

    if (!s || pms_sess_connected(session))
        return;
    list_for_each_entry(l, &plug.logins, siblings) if (l->sess == s) return; /* it is coming back */
    pms_sess_drop(s);
}
