// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's side of the plugin's socket.
//
// Happy path: the expected process connects, says hello and is answered, gets sessions, portal, serve; then
// logins and closings come as initiators do.
// Failures: a stranger connects (other pid): closed. Garbage, an answer to nothing, another array's id, too
// many logins: the connection is dropped and on_lost runs; the plugin connects again and starts over. The
// plugin does not read: packets wait here, a bounded number of them.
#include "target/host/session.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/util.h"
#include "base/version.h"
#include "target/plugin/proto.h"

#define PACKETS_PER_EVENT 32
#define PACKETS_WAIT_MAX  (4 * PMS_SESSIONS_MAX)
#define LOGINS_WAIT_MAX   (2 * PMS_SESSIONS_MAX)
#define NOP_INTERVAL_S    5
#define NOP_COUNT         3
#define HELLO_FDS         3
// What the kernel may put into room for HELLO_FDS descriptors: the padding counts too.
#define RECEIVED_FDS_MAX ((CMSG_SPACE(HELLO_FDS * sizeof(int)) - CMSG_LEN(0)) / sizeof(int))

PMS_STATIC_ASSERT(PMS_PLUG_IQN_LEN == PMS_IQN_MAX + 1, "names are copied as they are");
PMS_STATIC_ASSERT(PMS_PLUG_PARAMS_LEN == PMS_SESSION_PARAMS_BYTES, "parameters are copied as they are");

struct packet {
    struct pms_list link;
    size_t len;
    union pms_plug_any msg;
};

struct login {
    struct pms_list link;
    uint64_t id;
    uint64_t cookie;
};

// One connection. Dropped ones live on until their handle is closed.
struct conn {
    uv_poll_t poll;
    struct pms_session_server *server; // NULL: dropped
    int fd;
    bool hello;       // received
    bool hello_done;  // answered with yes
    unsigned imports; // answers awaited
    unsigned portals;
    unsigned serves;
    unsigned version;        // agreed, once HELLO was received
    struct pms_list packets; // to be sent
    unsigned packets_count;
    struct pms_list logins;
    unsigned logins_count;
};

struct pms_session_server {
    uv_loop_t *loop;
    uv_poll_t poll;
    int fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct pms_session_conf conf;
    struct pms_session_cbs cbs;
    void *arg;
    pid_t expected;
    uint64_t login_last;
    struct conn *conn;
};

static void on_conn_event(uv_poll_t *h, int status, int events);

void pms_session_naa(const uint8_t cluster_uuid[16], uint64_t array_id, uint8_t naa[16])
{
    // 6 | company id 02-50-4d (locally administered) | 36 bits of the cluster | 64 bits of the array
    naa[0] = 0x60;
    naa[1] = 0x25;
    naa[2] = 0x04;
    naa[3] = (uint8_t)(0xd0 | (cluster_uuid[0] >> 4));
    memcpy(naa + 4, cluster_uuid + 1, 4);
    for (int i = 0; i < 8; i++)
        naa[8 + i] = (uint8_t)(array_id >> (56 - 8 * i));
}

// ---- Connection: drop, send ----

static void on_conn_closed(uv_handle_t *h)
{
    free(h->data);
}

static void conn_drop(struct conn *c)
{
    c->server->conn = NULL;
    c->server = NULL;
    pms_list_for_each_safe (it, &c->packets) {
        free(pms_list_entry(it, struct packet, link));
    }
    pms_list_for_each_safe (it, &c->logins) {
        free(pms_list_entry(it, struct login, link));
    }
    uv_close((uv_handle_t *)&c->poll, on_conn_closed);
    close(c->fd);
}

static void conn_lost(struct conn *c, int err)
{
    struct pms_session_server *s = c->server;

    if (err)
        pms_log(PMS_LOG_WARN, "array %s: the plugin's connection is dropped: %s",
                pms_log_hexid(s->conf.array_id), pms_err_text(err));
    conn_drop(c);
    s->cbs.on_lost(s->arg, err);
}

// Sends what waits, until the socket is full. 0 or -errno.
static int packets_flush(struct conn *c)
{
    pms_list_for_each_safe (it, &c->packets) {
        struct packet *p = pms_list_entry(it, struct packet, link);

        if (send(c->fd, &p->msg, p->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        pms_list_del(it);
        free(p);
        c->packets_count--;
    }
    return 0;
}

static void poll_update(struct conn *c)
{
    uv_poll_start(&c->poll, UV_READABLE | (pms_list_empty(&c->packets) ? 0 : UV_WRITABLE), on_conn_event);
}

// A failure to send shows as the end of the connection when it is next read; nothing to do about it here.
static int conn_send(struct conn *c, const void *msg)
{
    const struct pms_plug_hdr *hdr = msg;
    struct packet *p;

    if (c->packets_count >= PACKETS_WAIT_MAX)
        return -ENOBUFS;
    p = malloc(sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->len = hdr->length;
    memcpy(&p->msg, msg, hdr->length);
    if (hdr->type != PMS_PLUG_HELLO_OK)
        p->msg.hdr.version = (uint16_t)c->version;
    pms_list_add_tail(&c->packets, &p->link);
    c->packets_count++;
    packets_flush(c);
    poll_update(c);
    return 0;
}

// ---- Messages from the plugin ----

// Picks the version. 0, or PMS_EVERSION: tgtd has to be started anew, with our own plugin.
static int version_pick(struct conn *c, const struct pms_plug_hello *m)
{
    struct pms_versions own = pms_ring_versions, theirs = {(uint8_t)m->version_min, (uint8_t)m->version_max};
    char own_text[PMS_VERSIONS_TEXT_SIZE], theirs_text[PMS_VERSIONS_TEXT_SIZE];

    if (m->version_max > UINT8_MAX || !pms_versions_valid(theirs))
        return PMS_EPROTO;
    c->version = pms_versions_common(own, theirs);
    if (c->version == own.max)
        return 0;
    pms_log(PMS_LOG_INFO, "array %s: the plugin in tgtd speaks version %s, this pmsd version %s: %s",
            pms_log_hexid(c->server->conf.array_id), pms_versions_format(theirs, theirs_text),
            pms_versions_format(own, own_text),
            c->version != 0 ? "they use the highest common one" : "tgtd is started anew with pmsd's own");
    return c->version != 0 ? 0 : PMS_EVERSION;
}

static int on_hello(struct conn *c, const struct pms_plug_hello *m, int *fds, unsigned fds_count)
{
    struct pms_session_server *s = c->server;
    struct pms_session_fds out;
    int err;

    if (c->hello || fds_count != HELLO_FDS)
        return PMS_EPROTO;
    if (m->array_id != s->conf.array_id)
        return PMS_EIDENTITY;
    err = version_pick(c, m);
    if (err)
        return err;
    c->hello = true;
    out = (struct pms_session_fds){.memfd = fds[0],
                                   .sq_efd = fds[1],
                                   .cq_efd = fds[2],
                                   .ring_slots = m->ring_slots,
                                   .arena_bytes = m->arena_bytes,
                                   .again = m->connects > 1};
    for (unsigned i = 0; i < fds_count; i++)
        fds[i] = -1;
    s->cbs.on_hello(s->arg, &out);
    return 0;
}

static bool initiator_valid(const char *name)
{
    json_t *text;

    // Names are UTF-8 without white space (RFC 7143, 4.2.7.2).
    if (*name == 0)
        return false;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return false;
    text = json_string(name);
    json_decref(text);
    return text != NULL;
}

static void login_answer(struct conn *c, uint64_t cookie, uint16_t status, uint16_t tsih)
{
    struct pms_plug_login_rsp rsp;

    pms_plug_init(&rsp, PMS_PLUG_LOGIN_RSP);
    rsp.cookie = cookie;
    rsp.status = status;
    rsp.tsih = tsih;
    conn_send(c, &rsp);
}

static int on_login_req(struct conn *c, const struct pms_plug_login_req *m)
{
    struct pms_session_server *s = c->server;
    struct pms_session_rec rec = {.tsih = m->session.tsih, .connected = true};
    struct login *login;
    json_t *json;

    if (!c->hello_done)
        return PMS_EPROTO;
    memcpy(rec.initiator, m->session.initiator, sizeof(rec.initiator));
    memcpy(rec.isid, m->session.isid, sizeof(rec.isid));
    memcpy(rec.params, m->session.params, sizeof(rec.params));
    if (!initiator_valid(rec.initiator) || pms_addr_parse(m->peer, 0, &rec.peer) != 0)
        return PMS_EPROTO;
    json = pms_session_rec_to_json(&rec);
    if (!json)
        return PMS_EPROTO;
    json_decref(json);
    login = c->logins_count < LOGINS_WAIT_MAX ? malloc(sizeof(*login)) : NULL;
    if (!login) {
        login_answer(c, m->cookie, PMS_PLUG_LOGIN_NO_RESOURCES, 0);
        return 0;
    }
    login->id = ++s->login_last;
    login->cookie = m->cookie;
    pms_list_add_tail(&c->logins, &login->link);
    c->logins_count++;
    s->cbs.on_login(s->arg, login->id, &rec, m->req_tsih, m->known != 0);
    return 0;
}

static int on_closed(struct conn *c, const struct pms_plug_closed *m)
{
    static const enum pms_session_end ends[] = {[PMS_PLUG_REASON_LOSS] = PMS_SESSION_LOSS,
                                                [PMS_PLUG_REASON_LOGOUT] = PMS_SESSION_LOGOUT,
                                                [PMS_PLUG_REASON_MOVED] = PMS_SESSION_MOVED};
    struct pms_session_server *s = c->server;
    struct pms_session_rec rec = {.tsih = m->tsih};

    if (!c->hello_done || m->reason < PMS_PLUG_REASON_LOSS || m->reason > PMS_PLUG_REASON_MOVED)
        return PMS_EPROTO;
    memcpy(rec.initiator, m->initiator, sizeof(rec.initiator));
    memcpy(rec.isid, m->isid, sizeof(rec.isid));
    if (!initiator_valid(rec.initiator) || pms_addr_parse(m->peer, 0, &rec.peer) != 0)
        return PMS_EPROTO;
    s->cbs.on_closed(s->arg, &rec, ends[m->reason]);
    return 0;
}

// May drop the connection (through a callback). 0, or why the connection must be dropped.
static int message(struct conn *c, const union pms_plug_any *m, int *fds, unsigned fds_count)
{
    struct pms_session_server *s = c->server;

    switch (m->hdr.type) {
    case PMS_PLUG_HELLO:
        return on_hello(c, &m->hello, fds, fds_count);
    case PMS_PLUG_LOGIN_REQ:
        return on_login_req(c, &m->login_req);
    case PMS_PLUG_CLOSED:
        return on_closed(c, &m->closed);
    case PMS_PLUG_IMPORT_RSP:
        if (c->imports == 0)
            return PMS_EPROTO;
        c->imports--;
        s->cbs.on_import_done(s->arg, m->import_rsp.status > 0 ? PMS_EPROTO : m->import_rsp.status);
        return 0;
    case PMS_PLUG_PORTAL_RSP:
        if (c->portals == 0)
            return PMS_EPROTO;
        c->portals--;
        s->cbs.on_portal_done(s->arg, m->portal_rsp.status > 0 ? PMS_EPROTO : m->portal_rsp.status);
        return 0;
    case PMS_PLUG_SERVE_RSP:
        if (c->serves == 0)
            return PMS_EPROTO;
        c->serves--;
        s->cbs.on_serve_done(s->arg, m->serve_rsp.on != 0);
        return 0;
    default:
        return PMS_EPROTO;
    }
}

// One packet with its descriptors: its length, 0 at the end, or -errno.
static ssize_t packet_receive(struct conn *c, union pms_plug_any *m, int *fds, unsigned *fds_count)
{
    union {
        struct cmsghdr hdr;
        char space[CMSG_SPACE(HELLO_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(c->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *fds_count = 0;
    if (n < 0)
        return -errno;
    // More descriptors than fit were closed by the kernel, and MSG_CTRUNC says so.
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&mh); h; h = CMSG_NXTHDR(&mh, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            *fds_count = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            PMS_CHECK(*fds_count <= RECEIVED_FDS_MAX);
            memcpy(fds, CMSG_DATA(h), *fds_count * sizeof(int));
        }
    if (n > 0 && mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return -EMSGSIZE;
    return n;
}

static void fds_close(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void on_conn_event(uv_poll_t *h, int status, int events)
{
    struct conn *c = h->data;
    struct pms_session_server *s = c->server;
    int err = status < 0 ? status : 0;

    if (!err && events & UV_WRITABLE) {
        err = packets_flush(c);
        poll_update(c);
    }
    // A callback may drop this connection, or drop it and let another take its place.
    for (int i = 0; !err && i < PACKETS_PER_EVENT; i++) {
        union pms_plug_any m;
        int fds[RECEIVED_FDS_MAX];
        unsigned fds_count;
        ssize_t n = packet_receive(c, &m, fds, &fds_count);

        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n == 0) {
            fds_close(fds, fds_count);
            conn_lost(c, 0);
            return;
        }
        if (n < 0 || !pms_plug_valid(&m, (size_t)n) || !pms_plug_fits(&m, c->version) ||
            (fds_count > 0 && m.hdr.type != PMS_PLUG_HELLO))
            err = n < 0 && n != -EMSGSIZE ? (int)n : PMS_EPROTO;
        else
            err = message(c, &m, fds, fds_count);
        fds_close(fds, fds_count);
        if (s->conn != c)
            return;
    }
    if (err)
        conn_lost(c, err);
}

// ---- Listener ----

static void on_connection(uv_poll_t *h, int status, int events)
{
    struct pms_session_server *s = h->data;
    struct ucred cred;
    socklen_t len = sizeof(cred);
    struct conn *c;
    int fd;

    (void)events;
    if (status < 0)
        return;
    fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.pid != s->expected) {
        pms_log(PMS_LOG_WARN, "array %s: a stranger at the plugin's socket (pid %d) is sent away",
                pms_log_hexid(s->conf.array_id), (int)cred.pid);
        close(fd);
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return;
    }
    // The plugin connects again only after it has given its old connection up.
    if (s->conn)
        conn_lost(s->conn, 0);
    c->server = s;
    c->fd = fd;
    pms_list_init(&c->packets);
    pms_list_init(&c->logins);
    s->conn = c;
    uv_poll_init(s->loop, &c->poll, fd);
    c->poll.data = c;
    poll_update(c);
}

int pms_session_server_open(uv_loop_t *loop, const char *path, const struct pms_session_conf *conf,
                            const struct pms_session_cbs *cbs, void *arg, struct pms_session_server **server)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct pms_session_server *s;
    int err = 0;

    if (strlen(path) >= sizeof(sa.sun_path))
        return -ENAMETOOLONG;
    memcpy(sa.sun_path, path, strlen(path) + 1);
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0) {
        free(s);
        return -errno;
    }
    // fchmod before bind gives the socket's file its mode: there is no moment with a wider one.
    unlink(path);
    if (fchmod(s->fd, 0600) != 0 || bind(s->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
        listen(s->fd, 4) != 0)
        err = -errno;
    if (!err)
        err = uv_poll_init(loop, &s->poll, s->fd);
    if (err) {
        close(s->fd);
        free(s);
        return err;
    }
    s->loop = loop;
    memcpy(s->path, sa.sun_path, sizeof(s->path));
    s->conf = *conf;
    s->cbs = *cbs;
    s->arg = arg;
    s->poll.data = s;
    *server = s;
    return 0;
}

static void on_server_closed(uv_handle_t *h)
{
    free(h->data);
}

void pms_session_server_close(struct pms_session_server *s)
{
    if (s->conn)
        conn_drop(s->conn);
    unlink(s->path);
    uv_close((uv_handle_t *)&s->poll, on_server_closed);
    close(s->fd);
}

void pms_session_expect(struct pms_session_server *s, pid_t pid)
{
    if (s->conn)
        conn_drop(s->conn);
    s->expected = pid;
    // A tgtd that an earlier pmsd left may knock before we know whether it is wanted.
    if (pid != 0)
        uv_poll_start(&s->poll, UV_READABLE, on_connection);
    else
        uv_poll_stop(&s->poll);
}

// ---- Messages to the plugin ----

static struct conn *ready_conn(struct pms_session_server *s)
{
    return s->conn && s->conn->hello_done ? s->conn : NULL;
}

int pms_session_hello_done(struct pms_session_server *s, int err)
{
    struct conn *c = s->conn;
    struct pms_plug_hello_ok m;

    if (!c || !c->hello || c->hello_done)
        return -ENOTCONN;
    pms_plug_init(&m, PMS_PLUG_HELLO_OK);
    m.status = err;
    m.nop_interval_s = NOP_INTERVAL_S;
    m.nop_count = NOP_COUNT;
    m.block_bytes = PMS_SECTOR_BYTES;
    m.phys_bytes = PMS_BLOCK_BYTES;
    m.io_bytes_max = PMS_IO_BYTES_MAX;
    m.array_id = s->conf.array_id;
    m.size_bytes = s->conf.size_bytes;
    m.wce = s->conf.write_cache;
    m.version = (uint16_t)c->version;
    memcpy(m.naa, s->conf.naa, sizeof(m.naa));
    snprintf(m.vendor, sizeof(m.vendor), "PMS");
    snprintf(m.product, sizeof(m.product), "ARRAY");
    snprintf(m.revision, sizeof(m.revision), "1");
    snprintf(m.serial, sizeof(m.serial), "%.36s", s->conf.serial);
    snprintf(m.t10_id, sizeof(m.t10_id), "%.36s", s->conf.serial);
    if (err)
        snprintf(m.text, sizeof(m.text), "%s", pms_err_text(err));
    c->hello_done = err == 0;
    return conn_send(c, &m);
}

int pms_session_import(struct pms_session_server *s, const struct pms_session_rec *recs, unsigned n)
{
    struct conn *c = ready_conn(s);
    struct pms_plug_import_end end;
    int err;

    if (!c)
        return -ENOTCONN;
    for (unsigned i = 0; i < n; i++) {
        struct pms_plug_import m;

        pms_plug_init(&m, PMS_PLUG_IMPORT);
        memcpy(m.session.initiator, recs[i].initiator, sizeof(m.session.initiator));
        memcpy(m.session.isid, recs[i].isid, sizeof(m.session.isid));
        memcpy(m.session.params, recs[i].params, sizeof(m.session.params));
        m.session.tsih = recs[i].tsih;
        err = conn_send(c, &m);
        if (err)
            return err;
    }
    pms_plug_init(&end, PMS_PLUG_IMPORT_END);
    end.count = n;
    err = conn_send(c, &end);
    if (!err)
        c->imports++;
    return err;
}

int pms_session_portal(struct pms_session_server *s, const struct sockaddr_storage *addr)
{
    struct conn *c = ready_conn(s);
    struct pms_plug_portal m;
    socklen_t len = pms_addr_len(addr);
    int err;

    if (!c)
        return -ENOTCONN;
    pms_plug_init(&m, PMS_PLUG_PORTAL);
    m.add = 1;
    if (getnameinfo((const struct sockaddr *)addr, len, m.addr, sizeof(m.addr), NULL, 0, NI_NUMERICHOST) != 0)
        return -EAFNOSUPPORT;
    m.port = ntohs(addr->ss_family == AF_INET ? ((const struct sockaddr_in *)addr)->sin_port
                                              : ((const struct sockaddr_in6 *)addr)->sin6_port);
    err = conn_send(c, &m);
    if (!err)
        c->portals++;
    return err;
}

int pms_session_serve(struct pms_session_server *s, bool on)
{
    struct conn *c = ready_conn(s);
    struct pms_plug_serve m;
    int err;

    if (!c)
        return -ENOTCONN;
    pms_plug_init(&m, PMS_PLUG_SERVE);
    m.on = on;
    err = conn_send(c, &m);
    if (!err)
        c->serves++;
    return err;
}

int pms_session_expire(struct pms_session_server *s, uint16_t tsih)
{
    struct conn *c = ready_conn(s);
    struct pms_plug_expire m;

    if (!c)
        return -ENOTCONN;
    pms_plug_init(&m, PMS_PLUG_EXPIRE);
    m.tsih = tsih;
    return conn_send(c, &m);
}

int pms_session_write_cache_set(struct pms_session_server *s, bool on)
{
    struct conn *c = ready_conn(s);
    struct pms_plug_cache m;

    s->conf.write_cache = on;
    if (!c)
        return -ENOTCONN;
    pms_plug_init(&m, PMS_PLUG_CACHE);
    m.wce = on;
    return conn_send(c, &m);
}

int pms_session_login_done(struct pms_session_server *s, uint64_t login_id, int err, uint16_t tsih)
{
    struct conn *c = s->conn;

    if (!c)
        return PMS_ENOTFOUND;
    pms_list_for_each (it, &c->logins) {
        struct login *login = pms_list_entry(it, struct login, link);
        uint16_t status = err == 0           ? 0
                          : err == PMS_EFULL ? PMS_PLUG_LOGIN_NO_RESOURCES
                                             : PMS_PLUG_LOGIN_UNAVAILABLE;

        if (login->id != login_id)
            continue;
        login_answer(c, login->cookie, status, tsih);
        pms_list_del(&login->link);
        free(login);
        c->logins_count--;
        return 0;
    }
    return PMS_ENOTFOUND;
}
