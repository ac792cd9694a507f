// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The socket to pmsd.
 *
 *   OFF --open--> HELLO --HELLO_OK--> UP --socket dies--> DOWN --timer, connect--> HELLO ...
 *                   '--refused, timeout: open fails                    '--refused: DOWN, tried again
 *
 * Too long DOWN: tgtd ends.
 *
 * Only the first HELLO waits (bs_open, at most PMS_PLUG_HELLO_TIMEOUT_MS); everything else is driven by
 * tgtd's event loop. A message that cannot be sent at once means that pmsd is stuck or gone: the socket is
 * dropped and all said anew.
 */
#include "target/plugin/plugin.h"
#include "base/version.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static void on_readable(int fd, int events, void *data);

static void timer_set(bool on)
{
    struct itimerspec t = {.it_value = {0, 0}, .it_interval = {0, 0}};

    if (on)
        t.it_value.tv_nsec = t.it_interval.tv_nsec = PMS_PLUG_RECONNECT_MS * 1000000L;
    timerfd_settime(plug.timer, 0, &t, NULL);
}

static void sock_drop(void)
{
    if (plug.sock < 0)
        return;
    tgt_event_del(plug.sock);
    close(plug.sock);
    plug.sock = -1;
}

/* pmsd is gone: hold everything, try again. Also what it had answered: this node may not be the primary any
 * more, and its address is gone, so that TCP would only learn to wait longer. */
static void link_lost(const char *why)
{
    bool was_up = plug.link == PMS_LINK_UP;

    if (plug.link == PMS_LINK_OFF)
        return;
    sock_drop();
    plug.link = PMS_LINK_DOWN;
    plug.answers_held = true;
    pms_gate_serve(false);
    timer_set(true);
    if (!was_up)
        return;
    pms_plug_log("pmsd is gone (%s): holding commands, %u are in the ring", why,
                 pms_ring_outstanding(plug.ring));
}

static int hello_send(void)
{
    struct pms_plug_hello hello;
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof(hello)};
    union {
        struct cmsghdr hdr;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int fds[3];

    pms_plug_init(&hello, PMS_PLUG_HELLO);
    hello.array_id = plug.array_id;
    hello.pid = (uint32_t)getpid();
    hello.ring_slots = PMS_RING_SLOTS_DEFAULT;
    hello.connects = plug.connects;
    hello.sessions = plug.sessions_n;
    hello.outstanding = pms_ring_outstanding(plug.ring);
    snprintf(hello.build_id, sizeof(hello.build_id), "%s", plug.build_id);
    hello.arena_bytes = plug.arena_bytes;
    hello.version_min = pms_ring_versions.min;
    hello.version_max = pms_ring_versions.max;
    pms_ring_fds(plug.ring, &fds[0], &fds[1], &fds[2]);
    memset(&control, 0, sizeof(control));
    control.hdr.cmsg_level = SOL_SOCKET;
    control.hdr.cmsg_type = SCM_RIGHTS;
    control.hdr.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&control.hdr), fds, sizeof(fds));
    return sendmsg(plug.sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(hello) ? 0 : -errno;
}

static int link_connect(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int rc, size = 1 << 20;

    strcpy(addr.sun_path, plug.sock_path);
    plug.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (plug.sock < 0)
        return -errno;
    /* Best effort: room for the logins of all sessions at once. */
    setsockopt(plug.sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    plug.connects++;
    rc = connect(plug.sock, (struct sockaddr *)&addr, sizeof(addr)) == 0 ? hello_send() : -errno;
    if (rc) {
        close(plug.sock);
        plug.sock = -1;
        plug.connects--;
        return rc;
    }
    plug.link = PMS_LINK_HELLO;
    return 0;
}

bool pms_link_send(void *msg)
{
    struct pms_plug_hdr *hdr = msg;

    if (plug.link != PMS_LINK_UP)
        return false;
    hdr->version = plug.hello.version;
    if (send(plug.sock, msg, hdr->length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)hdr->length)
        return true;
    link_lost(errno == EAGAIN ? "it does not read its messages" : strerror(errno));
    return false;
}

/* Is this the array we serve? After a reconnect nothing that an initiator has seen may differ. */
static int hello_accept(const struct pms_plug_hello_ok *ok)
{
    const struct pms_plug_hello_ok *was = &plug.hello;

    if (ok->status) {
        pms_plug_log("pmsd refuses: %s (%d)", ok->text, ok->status);
        return -EACCES;
    }
    if (!pms_versions_has(pms_ring_versions, ok->version)) {
        pms_plug_log("pmsd speaks version %u, which this plugin does not", ok->version);
        return -EPROTO;
    }
    if (ok->array_id != plug.array_id || ok->block_bytes != 1u << PMS_BLOCK_SHIFT || ok->size_bytes == 0 ||
        ok->size_bytes % ok->block_bytes || ok->io_bytes_max < PMS_RING_PAGE ||
        ok->io_bytes_max > PMS_RING_IO_MAX) {
        pms_plug_log("pmsd describes an array that this plugin cannot serve");
        return -EINVAL;
    }
    if (was->size_bytes && (was->size_bytes != ok->size_bytes || strcmp(was->serial, ok->serial) != 0 ||
                            memcmp(was->naa, ok->naa, sizeof(ok->naa)) != 0)) {
        pms_plug_log("pmsd describes another array than before");
        return -EINVAL;
    }
    plug.hello = *ok;
    plug.link = PMS_LINK_UP;
    plug.lost_ticks = plug.hello_ticks = 0;
    timer_set(false);
    return 0;
}

static void on_portal(struct pms_plug_portal *in)
{
    struct pms_plug_portal_rsp rsp;
    struct iscsi_portal *p;
    bool have = false;

    pms_plug_init(&rsp, PMS_PLUG_PORTAL_RSP);
    list_for_each_entry(p, &iscsi_portals_list,
                        iscsi_portal_siblings) if (strcmp(p->addr, in->addr) == 0 && p->port == (int)in->port)
        have = true;
    errno = 0;
    if (in->add && !have && iscsi_add_portal(in->addr, (int)in->port, 1) != 0)
        rsp.status = errno ? -errno : -EADDRNOTAVAIL;
    if (!in->add && have && iscsi_delete_portal(in->addr, (int)in->port) != 0)
        rsp.status = -EIO;
    pms_link_send(&rsp);
}

static void on_serve(const struct pms_plug_serve *in)
{
    struct pms_plug_serve_rsp rsp;

    if (in->on && plug.answers_held) {
        /* Before the gate opens, so that no slot is used twice in the index that is being read. */
        plug.answers_held = false;
        pms_ring_rescan(plug.ring);
        pms_io_reap();
    }
    pms_gate_serve(in->on != 0);
    pms_plug_init(&rsp, PMS_PLUG_SERVE_RSP);
    rsp.on = plug.serve;
    rsp.outstanding = pms_ring_outstanding(plug.ring);
    rsp.held = plug.waiting;
    pms_link_send(&rsp);
}

static void on_import_end(void)
{
    struct pms_plug_import_rsp rsp;

    pms_plug_init(&rsp, PMS_PLUG_IMPORT_RSP);
    rsp.status = plug.import_status;
    rsp.imported = plug.imported;
    plug.import_status = 0;
    plug.imported = 0;
    pms_link_send(&rsp);
}

static void on_hello_ok(const struct pms_plug_hello_ok *in)
{
    uint8_t wce = plug.hello.wce;

    if (plug.link != PMS_LINK_HELLO || hello_accept(in) != 0) {
        link_lost("HELLO was not accepted");
        return;
    }
    pms_plug_log("pmsd is back");
    plug.hello.wce = wce; /* as the LUN shows it: it may have been switched while there was no pmsd */
    pms_identity_cache(in->wce != 0);
    pms_login_ask_again();
    pms_login_closed_flush();
}

static void on_message(union pms_plug_any *msg)
{
    if (plug.link != PMS_LINK_UP && msg->hdr.type != PMS_PLUG_HELLO_OK) {
        link_lost("it speaks before HELLO_OK");
        return;
    }
    switch (msg->hdr.type) {
    case PMS_PLUG_HELLO_OK:
        on_hello_ok(&msg->hello_ok);
        break;
    case PMS_PLUG_IMPORT:
        pms_sess_import(&msg->import.session);
        break;
    case PMS_PLUG_IMPORT_END:
        on_import_end();
        break;
    case PMS_PLUG_PORTAL:
        on_portal(&msg->portal);
        break;
    case PMS_PLUG_SERVE:
        on_serve(&msg->serve);
        break;
    case PMS_PLUG_LOGIN_RSP:
        pms_login_answer(&msg->login_rsp);
        break;
    case PMS_PLUG_EXPIRE:
        pms_sess_expire(msg->expire.tsih);
        break;
    case PMS_PLUG_CACHE:
        pms_identity_cache(msg->cache.wce != 0);
        break;
    default:
        link_lost("it sends a message that only a plugin sends");
        break;
    }
}

static void on_readable(int fd, int events, void *data)
{
    static union pms_plug_any msg;
    ssize_t n;
    int turns;

    (void)events;
    (void)data;
    for (turns = 0; turns < 64 && plug.sock == fd; turns++) {
        n = recv(fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            link_lost(n == 0 ? "it closed the socket" : strerror(errno));
            return;
        }
        if ((size_t)n > sizeof(msg) || !pms_plug_valid(&msg, (size_t)n) ||
            !pms_plug_fits(&msg, plug.hello.version)) {
            link_lost("its message is garbled");
            return;
        }
        on_message(&msg);
    }
}

static void on_timer(int fd, int events, void *data)
{
    uint64_t n;

    (void)events;
    (void)data;
    if (read(fd, &n, sizeof(n)) < 0)
        return;
    if (plug.orphan_ms && ++plug.lost_ticks * PMS_PLUG_RECONNECT_MS > plug.orphan_ms) {
        pms_plug_log("no pmsd for %u ms: this tgtd ends", plug.orphan_ms);
        _exit(1);
    }
    if (plug.link == PMS_LINK_HELLO && ++plug.hello_ticks * PMS_PLUG_RECONNECT_MS > PMS_PLUG_HELLO_TIMEOUT_MS)
        link_lost("no answer to HELLO");
    if (plug.link != PMS_LINK_DOWN)
        return;
    plug.hello_ticks = 0;
    if (link_connect() == 0 && tgt_event_add(plug.sock, EPOLLIN, on_readable, NULL) != 0) {
        close(plug.sock);
        plug.sock = -1;
        plug.link = PMS_LINK_DOWN;
    }
}

/* Waits for the answer to the first HELLO. */
static int hello_wait(void)
{
    struct pollfd pfd = {.fd = plug.sock, .events = POLLIN};
    union pms_plug_any msg;
    ssize_t n;
    int rc = poll(&pfd, 1, PMS_PLUG_HELLO_TIMEOUT_MS);

    if (rc == 0)
        return -ETIMEDOUT;
    if (rc < 0)
        return -errno;
    n = recv(plug.sock, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);
    if (n <= 0)
        return n == 0 ? -ECONNRESET : -errno;
    if ((size_t)n > sizeof(msg) || !pms_plug_valid(&msg, (size_t)n) || msg.hdr.type != PMS_PLUG_HELLO_OK)
        return -EPROTO;
    return hello_accept(&msg.hello_ok);
}

int pms_link_open(const char *path)
{
    const char *orphan = getenv(PMS_PLUG_ENV_ORPHAN);
    int rc;

    if (strlen(path) >= sizeof(plug.sock_path))
        return -ENAMETOOLONG;
    strcpy(plug.sock_path, path);
    plug.orphan_ms = orphan ? (unsigned)strtoul(orphan, NULL, 10) : PMS_PLUG_ORPHAN_MS;
    plug.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (plug.timer < 0)
        return -errno;
    plug.sock = -1;
    rc = link_connect();
    if (rc == 0)
        rc = hello_wait();
    if (rc == 0)
        rc = tgt_event_add(plug.sock, EPOLLIN, on_readable, NULL);
    if (rc == 0)
        rc = tgt_event_add(plug.timer, EPOLLIN, on_timer, NULL);
    if (rc) {
        plug.link = PMS_LINK_OFF;
        if (plug.sock >= 0)
            close(plug.sock);
        close(plug.timer);
        plug.sock = -1;
    }
    return rc;
}

void pms_link_close(void)
{
    if (plug.link == PMS_LINK_OFF)
        return;
    sock_drop();
    tgt_event_del(plug.timer);
    close(plug.timer);
    plug.link = PMS_LINK_OFF;
}
