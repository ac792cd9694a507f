// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stands in for pmsd before one tgtd: serves the plugin's socket and ring from a plain file, so that the
 * plugin can be tested alone.
 *
 *   ringserve --sock PATH --file FILE --array HEX16 [--size BYTES] [--portal ADDR:PORT] [--journal FILE]
 *             [--delay-ms N] [--hold-login-ms N] [--refuse-login STATUS] [--die-after N] [--closed-gate] [--nop-s N]
 *             [--name TEXT]
 *
 * One line on stdout per event (hello, login, closed, portal, served, stats). SIGUSR1 opens or shuts the
 * gate, SIGUSR2 prints "stats ...", SIGTERM prints it and ends. --journal keeps the sessions: a second
 * instance imports them.
 * --die-after N: ends at once, like a crash, when command N has been executed and not yet answered.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/version.h"
#include "datapath/io/ring.h"
#include "target/plugin/proto.h"

#define SESSIONS 300
#define PENDING  4096
#define LOGINS   64

static struct {
    const char *sock, *file, *journal, *name;
    char portal_addr[PMS_PLUG_ADDR_LEN];
    unsigned portal_port, delay_ms, hold_login_ms, refuse_login, nop_s;
    unsigned long die_after;
    uint64_t array_id, size;
    bool closed_gate;
} opt = {.size = 64 << 20, .name = "ring", .nop_s = 5};

static struct pms_plug_session sessions[SESSIONS];
static unsigned sessions_n, tsih_next = 0x101;
static int fd_file = -1, client = -1;
static struct pms_ring *ring;
static bool gate;
static unsigned long executed;
static uint64_t recovered_n;

/* Answers that wait for their time. */
static struct {
    uint64_t tag, due_ms;
    uint8_t status, key, asc;
} pending[PENDING];
static unsigned pending_n;
static struct {
    struct pms_plug_login_rsp rsp;
    uint64_t due_ms;
} logins[LOGINS];
static unsigned logins_n;

static void die(const char *what)
{
    fprintf(stderr, "ringserve: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void send_msg(void *msg)
{
    struct pms_plug_hdr *hdr = msg;

    if (hdr->type != PMS_PLUG_HELLO_OK)
        hdr->version = pms_ring_versions.max;
    if (send(client, msg, hdr->length, MSG_NOSIGNAL) != (ssize_t)hdr->length)
        fprintf(stderr, "ringserve: send: %s\n", strerror(errno));
}

/* ---- sessions ---- */

static void journal_write(void)
{
    char tmp[512];
    FILE *f;
    unsigned i, b;

    if (!opt.journal)
        return;
    snprintf(tmp, sizeof(tmp), "%s.tmp", opt.journal);
    f = fopen(tmp, "w");
    if (!f)
        die(tmp);
    for (i = 0; i < sessions_n; i++) {
        fprintf(f, "%s ", sessions[i].initiator);
        for (b = 0; b < 6; b++)
            fprintf(f, "%02x", sessions[i].isid[b]);
        fprintf(f, " %u %u %s\n", sessions[i].tsih, sessions[i].exp_cmd_sn, sessions[i].params);
    }
    if (fclose(f) != 0 || rename(tmp, opt.journal) != 0)
        die(opt.journal);
}

static void journal_read(void)
{
    FILE *f = opt.journal ? fopen(opt.journal, "r") : NULL;
    char isid[13];
    unsigned tsih, b, x;
    struct pms_plug_session *s;

    if (!f)
        return;
    while (sessions_n < SESSIONS) {
        s = &sessions[sessions_n];
        memset(s, 0, sizeof(*s));
        if (fscanf(f, "%223s %12s %u %u %2047s", s->initiator, isid, &tsih, &s->exp_cmd_sn, s->params) != 5)
            break;
        for (b = 0; b < 6; b++) {
            sscanf(isid + 2 * b, "%2x", &x);
            s->isid[b] = (uint8_t)x;
        }
        s->tsih = (uint16_t)tsih;
        if (tsih >= tsih_next)
            tsih_next = tsih + 1;
        sessions_n++;
    }
    fclose(f);
}

static struct pms_plug_session *session_find(const char *initiator, const uint8_t isid[6])
{
    unsigned i;

    for (i = 0; i < sessions_n; i++)
        if (strcmp(sessions[i].initiator, initiator) == 0 && memcmp(sessions[i].isid, isid, 6) == 0)
            return &sessions[i];
    return NULL;
}

static void on_login(const struct pms_plug_login_req *req)
{
    struct pms_plug_session *s = session_find(req->session.initiator, req->session.isid);
    struct pms_plug_login_rsp *rsp;
    uint16_t tsih;

    if (logins_n == LOGINS)
        return;
    rsp = &logins[logins_n].rsp;
    pms_plug_init(rsp, PMS_PLUG_LOGIN_RSP);
    rsp->cookie = req->cookie;
    rsp->status = (uint16_t)opt.refuse_login;
    if (!rsp->status) {
        tsih = s ? s->tsih : (uint16_t)tsih_next++;
        if (!s && sessions_n < SESSIONS)
            s = &sessions[sessions_n++];
        if (s) {
            *s = req->session;
            s->tsih = tsih;
        }
        rsp->tsih = tsih;
        journal_write();
    }
    printf("login %s known=%u req_tsih=%u tsih=%u peer=%s time2wait=%s\n", req->session.initiator, req->known,
           req->req_tsih, rsp->tsih, req->peer,
           strstr(req->session.params, "DefaultTime2Wait=0;") ? "0" : "other");
    logins[logins_n++].due_ms = now_ms() + opt.hold_login_ms;
}

static void on_closed(const struct pms_plug_closed *msg)
{
    static const char *const why[] = {"?", "loss", "logout", "moved"};
    struct pms_plug_session *s = session_find(msg->initiator, msg->isid);

    printf("closed %s tsih=%u reason=%s\n", msg->initiator, msg->tsih, why[msg->reason & 3]);
    if (s && msg->reason == PMS_PLUG_REASON_LOGOUT) {
        *s = sessions[--sessions_n];
        journal_write();
    }
}

/* ---- start of a plugin's life ---- */

static void serve_send(bool on)
{
    struct pms_plug_serve msg;

    gate = on;
    pms_plug_init(&msg, PMS_PLUG_SERVE);
    msg.on = on;
    send_msg(&msg);
}

static void welcome(void)
{
    struct pms_plug_hello_ok ok;
    struct pms_plug_import import;
    struct pms_plug_import_end end;
    struct pms_plug_portal portal;
    unsigned i;

    pms_plug_init(&ok, PMS_PLUG_HELLO_OK);
    ok.version = pms_ring_versions.max;
    ok.block_bytes = 512;
    ok.phys_bytes = 4096;
    ok.io_bytes_max = PMS_RING_IO_MAX;
    ok.array_id = opt.array_id;
    ok.size_bytes = opt.size;
    ok.nop_interval_s = opt.nop_s;
    ok.nop_count = 3;
    ok.naa[0] = 0x60;
    memcpy(ok.naa + 8, &opt.array_id, 8);
    snprintf(ok.vendor, sizeof(ok.vendor), "PMS");
    snprintf(ok.product, sizeof(ok.product), "%.16s", opt.name);
    snprintf(ok.revision, sizeof(ok.revision), "1");
    snprintf(ok.serial, sizeof(ok.serial), "%016llx", (unsigned long long)opt.array_id);
    snprintf(ok.t10_id, sizeof(ok.t10_id), "%016llx", (unsigned long long)opt.array_id);
    send_msg(&ok);
    for (i = 0; i < sessions_n; i++) {
        pms_plug_init(&import, PMS_PLUG_IMPORT);
        import.session = sessions[i];
        send_msg(&import);
    }
    pms_plug_init(&end, PMS_PLUG_IMPORT_END);
    end.count = sessions_n;
    send_msg(&end);
    if (opt.portal_port) {
        pms_plug_init(&portal, PMS_PLUG_PORTAL);
        portal.add = 1;
        portal.port = opt.portal_port;
        snprintf(portal.addr, sizeof(portal.addr), "%s", opt.portal_addr);
        send_msg(&portal);
    }
    if (!opt.closed_gate)
        serve_send(true);
}

static void on_hello(const struct pms_plug_hello *hello, const int fds[3])
{
    int rc = pms_ring_attach(fds[0], fds[1], fds[2], opt.size, &ring);

    printf("hello array=%016llx connects=%u sessions=%u outstanding=%u attach=%d\n",
           (unsigned long long)hello->array_id, hello->connects, hello->sessions, hello->outstanding, rc);
    if (rc) {
        fprintf(stderr, "ringserve: attach: %d\n", rc);
        exit(1);
    }
    welcome();
}

static void on_message(const union pms_plug_any *msg, const int fds[3])
{
    switch (msg->hdr.type) {
    case PMS_PLUG_HELLO:
        on_hello(&msg->hello, fds);
        break;
    case PMS_PLUG_IMPORT_RSP:
        printf("imported %u status=%d\n", msg->import_rsp.imported, msg->import_rsp.status);
        break;
    case PMS_PLUG_PORTAL_RSP:
        printf("portal status=%d\n", msg->portal_rsp.status);
        break;
    case PMS_PLUG_SERVE_RSP:
        printf("serve on=%u outstanding=%u held=%llu\n", msg->serve_rsp.on, msg->serve_rsp.outstanding,
               (unsigned long long)msg->serve_rsp.held);
        break;
    case PMS_PLUG_LOGIN_REQ:
        on_login(&msg->login_req);
        break;
    case PMS_PLUG_CLOSED:
        on_closed(&msg->closed);
        break;
    default:
        printf("unexpected message %u\n", msg->hdr.type);
        break;
    }
}

static void client_lost(void)
{
    printf("plugin gone\n");
    close(client);
    client = -1;
    pms_ring_detach(ring);
    ring = NULL;
    pending_n = 0;
    logins_n = 0;
}

static void on_client(void)
{
    static union pms_plug_any msg;
    union {
        struct cmsghdr hdr;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = &msg, .iov_len = sizeof(msg)};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    int fds[3] = {-1, -1, -1};
    ssize_t n = recvmsg(client, &mh, MSG_CMSG_CLOEXEC);

    if (n <= 0) {
        client_lost();
        return;
    }
    for (c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c))
        if (c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(fds)))
            memcpy(fds, CMSG_DATA(c), sizeof(fds));
    if (!pms_plug_valid(&msg, (size_t)n) || !pms_plug_fits(&msg, pms_ring_versions.max)) {
        printf("garbled message of %zd bytes\n", n);
        return;
    }
    on_message(&msg, fds);
}

/* ---- commands ---- */

static void execute(const struct pms_ring_cmd *cmd)
{
    static uint8_t zeros[PMS_RING_IO_MAX];
    void *data = pms_ring_data(ring, cmd->arena_off, cmd->length);
    bool ok = true;

    recovered_n += cmd->recovered;
    if (cmd->op == PMS_RING_READ)
        ok = pread(fd_file, data, cmd->length, (off_t)cmd->offset) == (ssize_t)cmd->length;
    else if (cmd->op == PMS_RING_WRITE)
        ok = pwrite(fd_file, data, cmd->length, (off_t)cmd->offset) == (ssize_t)cmd->length;
    else if (cmd->op == PMS_RING_ZERO)
        ok = pwrite(fd_file, zeros, cmd->length, (off_t)cmd->offset) == (ssize_t)cmd->length;
    if (cmd->op == PMS_RING_FLUSH || (cmd->flags & PMS_RING_FUA))
        ok = fdatasync(fd_file) == 0 && ok;
    if (++executed == opt.die_after) {
        printf("dying after %lu commands\n", executed);
        fflush(stdout);
        _exit(9);
    }
    pending[pending_n].tag = cmd->tag;
    pending[pending_n].due_ms = now_ms() + opt.delay_ms;
    pending[pending_n].status = ok ? 0 : 2;
    pending[pending_n].key = 3;
    pending[pending_n++].asc = cmd->op == PMS_RING_READ ? 0x11 : 0x0c;
}

static void answers_due(void)
{
    unsigned i, kept = 0;
    uint64_t now = now_ms();

    for (i = 0; i < pending_n; i++) {
        if (pending[i].due_ms <= now)
            pms_ring_complete(ring, pending[i].tag, pending[i].status, pending[i].key, pending[i].asc, 0);
        else
            pending[kept++] = pending[i];
    }
    pending_n = kept;
    if (ring)
        pms_ring_kick(ring);
    for (i = kept = 0; i < logins_n; i++) {
        if (logins[i].due_ms <= now)
            send_msg(&logins[i].rsp);
        else
            logins[kept++] = logins[i];
    }
    logins_n = kept;
}

/* Runs what is in the ring. Returns false when it is empty and the bell is armed. */
static bool run_ring(void)
{
    struct pms_ring_cmd cmd[32];
    int n, i;

    if (!ring || pending_n > PENDING - 32)
        return false;
    n = pms_ring_poll(ring, cmd, 32);
    if (n < 0) {
        fprintf(stderr, "ringserve: broken ring\n");
        exit(1);
    }
    for (i = 0; i < n; i++)
        execute(&cmd[i]);
    return n > 0 || pms_ring_arm(ring);
}

static void stats_print(void)
{
    struct pms_ring_stats st = {0};

    if (ring)
        pms_ring_stats_get(ring, &st);
    printf("stats submitted=%llu completed=%llu held=%llu arena_used=%llu arena_max=%llu "
           "doorbells=%llu "
           "recovered=%llu sessions=%u\n",
           (unsigned long long)st.submitted, (unsigned long long)st.completed, (unsigned long long)st.held,
           (unsigned long long)st.arena_used, (unsigned long long)st.arena_used_max,
           (unsigned long long)st.doorbells, (unsigned long long)recovered_n, sessions_n);
}

static void on_signal(int fd)
{
    struct signalfd_siginfo si;

    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    if (si.ssi_signo == SIGUSR1 && client >= 0)
        serve_send(!gate);
    if (si.ssi_signo == SIGUSR2 || si.ssi_signo == SIGTERM)
        stats_print();
    if (si.ssi_signo == SIGTERM) {
        fflush(stdout);
        unlink(opt.sock);
        exit(0);
    }
}

/* ---- start ---- */

static void options(int argc, char **argv)
{
    static const struct option longs[] = {
        {"sock", 1, NULL, 's'},         {"file", 1, NULL, 'f'},
        {"array", 1, NULL, 'a'},        {"size", 1, NULL, 'z'},
        {"portal", 1, NULL, 'p'},       {"journal", 1, NULL, 'j'},
        {"delay-ms", 1, NULL, 'd'},     {"hold-login-ms", 1, NULL, 'h'},
        {"refuse-login", 1, NULL, 'r'}, {"die-after", 1, NULL, 'k'},
        {"closed-gate", 0, NULL, 'c'},  {"name", 1, NULL, 'n'},
        {"nop-s", 1, NULL, 'o'},        {NULL, 0, NULL, 0},
    };
    char *colon;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 's':
            opt.sock = optarg;
            break;
        case 'f':
            opt.file = optarg;
            break;
        case 'a':
            opt.array_id = strtoull(optarg, NULL, 16);
            break;
        case 'z':
            opt.size = strtoull(optarg, NULL, 10);
            break;
        case 'p':
            colon = strrchr(optarg, ':');
            if (!colon)
                exit(2);
            snprintf(opt.portal_addr, sizeof(opt.portal_addr), "%.*s", (int)(colon - optarg), optarg);
            opt.portal_port = (unsigned)atoi(colon + 1);
            break;
        case 'j':
            opt.journal = optarg;
            break;
        case 'd':
            opt.delay_ms = (unsigned)atoi(optarg);
            break;
        case 'h':
            opt.hold_login_ms = (unsigned)atoi(optarg);
            break;
        case 'r':
            opt.refuse_login = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'k':
            opt.die_after = strtoul(optarg, NULL, 10);
            break;
        case 'o':
            opt.nop_s = (unsigned)atoi(optarg);
            break;
        case 'c':
            opt.closed_gate = true;
            break;
        case 'n':
            opt.name = optarg;
            break;
        default:
            exit(2);
        }
    }
    if (!opt.sock || !opt.file || !opt.array_id) {
        fprintf(stderr, "usage: ringserve --sock PATH --file FILE --array HEX16 [options; see the source]\n");
        exit(2);
    }
}

static int listen_sock(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", opt.sock);
    unlink(opt.sock);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4) != 0)
        die(opt.sock);
    return fd;
}

int main(int argc, char **argv)
{
    struct pollfd p[4];
    sigset_t mask;
    int listener, sigs, timeout;
    bool busy = false;

    options(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    fd_file = open(opt.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd_file < 0 || ftruncate(fd_file, (off_t)opt.size) != 0)
        die(opt.file);
    journal_read();
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    sigs = signalfd(-1, &mask, SFD_CLOEXEC);
    listener = listen_sock();
    printf("ready\n");
    for (;;) {
        p[0] = (struct pollfd){.fd = sigs, .events = POLLIN};
        p[1] = (struct pollfd){.fd = listener, .events = POLLIN};
        p[2] = (struct pollfd){.fd = client, .events = POLLIN};
        p[3] = (struct pollfd){.fd = ring ? pms_ring_sq_fd(ring) : -1, .events = POLLIN};
        timeout = busy ? 0 : pending_n || logins_n ? 1 : 1000;
        if (poll(p, 4, timeout) < 0 && errno != EINTR)
            die("poll");
        if (p[0].revents)
            on_signal(sigs);
        if (p[2].revents)
            on_client();
        if (p[1].revents) {
            if (client >= 0)
                client_lost();
            client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        }
        if (p[3].revents && ring)
            pms_ring_sq_clear(ring);
        busy = run_ring();
        answers_due();
    }
}
