// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Logins that wait for pmsd, and connections that end.
 *
 *   last login request    pms_login_complete: attach to the port's session or make one, close its older
 *                         connections, LOGIN_REQ to pmsd; tgtd builds the answer, which is held (no EPOLLOUT)
 *   LOGIN_RSP ok          once no command of the older connections runs any more: TSIH, answer released
 *   LOGIN_RSP refused     the answer is rewritten to that status and released, the connection closes
 *   connection closes     meanwhile: the login stays as a record, so that a committed session is kept, and
 *                         pmsd is told
 *
 * So an old write can never land after a write of the new connection: the new one has not begun.
 */
#include "target/plugin/plugin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* A connection that closed, to be told to pmsd; whether its session lives on is seen a moment later. */
struct closed {
    struct list_head siblings;
    struct pms_plug_closed msg;
};

static void addr_format(const struct sockaddr_storage *ss, socklen_t len, char out[PMS_PLUG_ADDR_LEN])
{
    char host[48], port[8];

    out[0] = 0;
    if (getnameinfo((const struct sockaddr *)ss, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(out, PMS_PLUG_ADDR_LEN, ss->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static void addresses(struct iscsi_connection *conn, struct pms_login *l)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);

    if (plug.tcp_orig.ep_getpeername(conn, (struct sockaddr *)&ss, &len) == 0)
        addr_format(&ss, len, l->peer);
    len = sizeof(ss);
    if (plug.tcp_orig.ep_getsockname(conn, (struct sockaddr *)&ss, &len) == 0)
        addr_format(&ss, len, l->local);
}

static struct pms_login *login_of(const struct iscsi_connection *conn)
{
    struct pms_login *l;

    list_for_each_entry(l, &plug.logins, siblings) if (l->conn == conn) return l;
    return NULL;
}

static void login_free(struct pms_login *l)
{
    list_del(&l->siblings);
    free(l);
}

/* A session that never was committed and that nobody waits for any more is forgotten. */
static void sess_forget(struct pms_sess *sess)
{
    struct pms_login *l;

    if (sess->committed)
        return;
    list_for_each_entry(l, &plug.logins, siblings) if (l->sess == sess) return;
    pms_sess_drop(sess);
}

static void login_ask(struct pms_login *l)
{
    struct iscsi_connection *conn = l->conn;
    struct iscsi_session *session = l->sess->session;
    struct pms_plug_login_req req;

    pms_plug_init(&req, PMS_PLUG_LOGIN_REQ);
    req.cookie = l->cookie;
    req.cid = conn->cid;
    req.req_tsih = l->req_tsih;
    req.known = l->known;
    snprintf(req.peer, sizeof(req.peer), "%s", l->peer);
    snprintf(req.local, sizeof(req.local), "%s", l->local);
    snprintf(req.session.initiator, sizeof(req.session.initiator), "%s", session->initiator);
    memcpy(req.session.isid, session->isid, sizeof(req.session.isid));
    req.session.tsih = ntohs(session->tsih);
    req.session.exp_cmd_sn = session->exp_cmd_sn;
    pms_sess_params_write(session->session_param, req.session.params, sizeof(req.session.params));
    pms_link_send(&req); /* if it cannot be sent, it is asked after the next HELLO_OK */
}

/* The session for this login: that of the same initiator port if there is one. NULL: refuse. */
static struct pms_sess *sess_for(struct iscsi_connection *conn, bool *known)
{
    struct iscsi_session *session = conn->session;
    struct iscsi_connection *other, *next;
    struct pms_sess *sess;

    if (!session)
        session = session_find_name(conn->tid, conn->initiator, conn->isid);
    *known = session && pms_sess_of(session);
    if (conn->tsih && (!session || session->tsih != conn->tsih))
        return NULL;
    if (!session && plug.sessions_n >= PMS_SESSIONS_LIMIT)
        return NULL;
    if (!session) {
        if (session_create(conn) != 0)
            return NULL;
        return pms_sess_keep(conn->session); /* on failure conn_exit ends it */
    }
    sess = pms_sess_keep(session);
    if (!sess)
        return NULL;
    /* One connection a session: the port has come back, so what was before is over. */
    list_for_each_entry_safe(other, next, &session->conn_list, clist) if (other != conn) conn_close(other);
    if (!conn->session)
        conn_add_to_session(conn, session);
    session->exp_cmd_sn = conn->exp_cmd_sn;
    memcpy(session->session_param, conn->session_param, sizeof(session->session_param));
    session->max_queue_cmd = session->session_param[ISCSI_PARAM_MAX_QUEUE_CMD].val;
    return sess;
}

/*
 * In place of the transport's ep_login_complete: called when negotiation is over, before tgtd would make a
 * session and before the answer goes out. Nonzero: refused with 0302. The original runs at release: it starts
 * the NOP timer, and a NOP-In would let the held answer out.
 */
int pms_login_complete(struct iscsi_connection *conn)
{
    struct pms_login *l;

    if (!plug.lu || conn->tid != plug.tid || strlen(conn->initiator) >= PMS_PLUG_IQN_LEN)
        return -EINVAL;
    l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->req_tsih = ntohs(conn->tsih);
    l->sess = sess_for(conn, &l->known);
    if (!l->sess) {
        free(l);
        return -EINVAL;
    }
    l->conn = conn;
    l->cookie = plug.cookie_next++;
    addresses(conn, l);
    memcpy(l->sess->peer, l->peer, sizeof(l->peer));
    list_add_tail(&l->siblings, &plug.logins);
    plug.tcp_orig.ep_event_modify(conn, EPOLLET); /* neither reads nor writes: held */
    pms_login_closed_flush();
    login_ask(l);
    return 0;
}

/*
 * tgtd has put a NOP-In (a ping) in the line of what is to be sent. An initiator whose commands arrive is alive, and
 * need not say so: libiscsi up to 1.19 (QEMU) gives its answer a wrong CmdSN if Data-Outs wait in its own line, and
 * then closes the connection itself, so that large writes would lose theirs every few seconds. True: taken back.
 */
static bool ping_take_back(struct iscsi_connection *conn)
{
    struct iscsi_task *task;
    struct pms_sess *sess;
    uint32_t ttt;

    if (list_empty(&conn->tx_clist))
        return false;
    task = list_entry(conn->tx_clist.prev, struct iscsi_task, c_list);
    if (task == conn->tx_task || task_opcode(task) != ISCSI_OP_NOOP_IN)
        return false;
    sess = conn->session ? pms_sess_of(conn->session) : NULL;
    if (!sess || sess->ping_cmd_sn == conn->session->exp_cmd_sn)
        return false;
    sess->ping_cmd_sn = conn->session->exp_cmd_sn;
    ttt = ntohl(task->req.ttt);
    list_del(&task->c_list);
    plug.tcp_orig.free_task(task);
    plug.tcp_orig.ep_nop_reply(ttt); /* as good as answered */
    return true;
}

/* In place of ep_event_modify: nobody but us wakes a held connection. */
void pms_login_event_modify(struct iscsi_connection *conn, int events)
{
    bool may_be_held = conn->state == STATE_LOGIN_FULL || conn->state == STATE_SECURITY_FULL;

    if (may_be_held && login_of(conn))
        return;
    if ((events & EPOLLOUT) && ping_take_back(conn))
        return;
    plug.tcp_orig.ep_event_modify(conn, events);
}

static void release(struct pms_login *l)
{
    struct iscsi_connection *conn = l->conn;
    struct iscsi_login_rsp *rsp = (struct iscsi_login_rsp *)&conn->rsp.bhs;

    conn->tsih = l->sess->session->tsih;
    rsp->tsih = conn->tsih;
    l->sess->committed = true;
    login_free(l);
    plug.tcp_orig.ep_login_complete(conn);
    plug.tcp_orig.ep_event_modify(conn, EPOLLOUT);
}

static void refuse(struct pms_login *l, uint16_t status)
{
    struct iscsi_connection *conn = l->conn;
    struct iscsi_login_rsp *rsp = (struct iscsi_login_rsp *)&conn->rsp.bhs;
    struct pms_sess *sess = l->sess;

    rsp->flags = 0;
    rsp->tsih = 0;
    rsp->status_class = (uint8_t)(status >> 8);
    rsp->status_detail = (uint8_t)status;
    conn->state = STATE_EXIT; /* tgtd closes it once the answer is out */
    login_free(l);
    sess_forget(sess);
    plug.tcp_orig.ep_event_modify(conn, EPOLLOUT);
}

static void go_on(struct pms_login *l)
{
    int rc;

    if (!l->answered || !l->conn)
        return;
    if (l->status) {
        refuse(l, l->status);
        return;
    }
    if (!pms_sess_drained(l->sess))
        return; /* pms_login_drained comes when a command ends */
    rc = pms_sess_tsih_set(l->sess, l->tsih);
    if (rc) {
        pms_plug_log("TSIH %u for %s cannot be set: %d", l->tsih, l->sess->session->initiator, rc);
        refuse(l, PMS_PLUG_LOGIN_NO_RESOURCES);
        return;
    }
    release(l);
}

void pms_login_answer(const struct pms_plug_login_rsp *in)
{
    struct pms_login *l, *next;
    struct pms_sess *sess;

    list_for_each_entry_safe(l, next, &plug.logins, siblings)
    {
        if (l->cookie != in->cookie)
            continue;
        l->answered = true;
        l->status = in->status;
        l->tsih = in->tsih;
        if (l->conn) {
            go_on(l);
            return;
        }
        /* The initiator did not wait. If the session is committed it exists, just without a connection. */
        sess = l->sess;
        login_free(l);
        if (in->status == 0 && pms_sess_tsih_set(sess, in->tsih) == 0)
            sess->committed = true;
        sess_forget(sess);
        return;
    }
}

void pms_login_drained(void)
{
    struct pms_login *l, *next;

    list_for_each_entry_safe(l, next, &plug.logins, siblings) go_on(l);
}

void pms_login_ask_again(void)
{
    struct pms_login *l, *next;
    struct pms_sess *sess;

    list_for_each_entry_safe(l, next, &plug.logins, siblings)
    {
        if (l->conn && !l->answered) {
            login_ask(l);
        } else if (!l->conn) {
            /* The pmsd that was asked is gone; if it did commit, the new one imports the session. */
            sess = l->sess;
            login_free(l);
            sess_forget(sess);
        }
    }
}

static void closed_add(struct iscsi_connection *conn, struct pms_sess *sess, bool logout)
{
    struct closed *c = calloc(1, sizeof(*c));

    if (!c)
        return;
    pms_plug_init(&c->msg, PMS_PLUG_CLOSED);
    c->msg.tsih = ntohs(sess->session->tsih);
    memcpy(c->msg.isid, sess->session->isid, sizeof(c->msg.isid));
    c->msg.reason = logout ? PMS_PLUG_REASON_LOGOUT : PMS_PLUG_REASON_LOSS;
    snprintf(c->msg.initiator, sizeof(c->msg.initiator), "%s", conn->initiator ? conn->initiator : "");
    snprintf(c->msg.peer, sizeof(c->msg.peer), "%s", sess->peer);
    list_add_tail(&c->siblings, &plug.closed);
}

/* In place of ep_close: first thing when a connection ends, whatever the cause. */
size_t pms_login_close(struct iscsi_connection *conn)
{
    struct pms_sess *sess = conn->session ? pms_sess_of(conn->session) : NULL;
    struct pms_login *l = login_of(conn);
    bool logout = plug.logout_conn == conn;
    size_t rc = plug.tcp_orig.ep_close(conn);

    if (logout)
        plug.logout_conn = NULL;
    if (sess && (sess->committed || l))
        closed_add(conn, sess, logout);
    if (l)
        l->conn = NULL;
    if (sess && logout)
        pms_sess_drop(sess); /* the connection's own reference is the last: tgtd ends the session with it */
    pms_gate_pump_soon();    /* commands of this connection that have not begun never will */
    return rc;
}

/* RESERVE(6) does not outlive a connection that a healthy node sees lost (SPC-2 5.5.1). */
static void reserve_lost(const struct iscsi_session *session)
{
    if (session && plug.lu && plug.lu->reserve_id == session->tsih)
        plug.lu->reserve_id = 0;
}

void pms_login_closed_flush(void)
{
    struct iscsi_session *session;
    struct closed *c, *next;

    list_for_each_entry_safe(c, next, &plug.closed, siblings)
    {
        session = session_find_name(plug.tid, c->msg.initiator, c->msg.isid);
        if (c->msg.reason == PMS_PLUG_REASON_LOSS) {
            if (session && pms_sess_connected(session))
                c->msg.reason = PMS_PLUG_REASON_MOVED;
            else
                reserve_lost(session);
        }
        if (!pms_link_send(&c->msg))
            return; /* told after the next HELLO_OK */
        list_del(&c->siblings);
        free(c);
    }
}
