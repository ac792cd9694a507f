// SPDX-License-Identifier: GPL-2.0-or-later
// The test tools' iSCSI session over libiscsi, with a reconnect of its own.
//
//   DOWN --attempt--> CONNECTING --connected--> LOGIN --logged in--> UP --connection lost--> DOWN
//                         |                       |
//                         +-- refused, deadline --+--> DOWN, again after RETRY_MS
//
// Requests stand in one list in the order of submission. Entering UP sends all of it, in that order; leaving
// UP marks all of it unsent. libiscsi's callbacks only take notes: contexts are destroyed and requests ended
// in the turn.
#include "tests/tools/lib/initiator.h"

#include "base/check.h"
#include "base/util.h"

#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MS               UINT64_C(1000000)
#define SECTOR_BYTES     512u
#define RETRY_MS         30   // between attempts
#define CONNECT_MS       250  // a SYN that nobody answers is given up after this
#define LOGIN_MS         3000 // a login that is held longer is begun anew
#define NOP_INTERVAL_MS  1000
#define BUSY_RETRY_MS    50
#define BUSY_ANSWERS_MAX 200 // 10 s by default; then it is the application's error

enum phase { DOWN, CONNECTING, LOGIN, UP };

struct pms_initiator {
    struct iscsi_context *ctx;
    struct iscsi_url *url;
    struct iscsi_context *url_ctx; // owns url
    char name[224];
    uint64_t isid_seed;
    bool libiscsi_reconnect;
    bool verbose;
    uint64_t nop_timeout_ns, busy_retry_ns;
    enum phase phase;
    uint64_t deadline_ns; // of the attempt under way
    uint64_t next_try_ns; // in DOWN
    uint64_t lost_ns;     // when the last working connection was lost
    uint64_t attempts;    // since then
    uint64_t answer_ns;   // last sign of life
    uint64_t nop_sent_ns; // 0: none outstanding
    int library_port;     // local port, to notice the library's own reconnects
    bool was_up;
    const char *lost; // why the connection is to be given up; set by callbacks
    struct pms_list outstanding;
    uint64_t sectors;
    struct pms_initiator_stats stats;
};

static uint64_t now_ns(void)
{
    return pms_clock_boot_ns();
}

static void say(const struct pms_initiator *ini, const char *what, const char *detail, uint64_t number)
{
    if (!ini->verbose)
        return;
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    printf("initiator: %02d:%02d:%02d.%03ld %s%s%s (%llu)\n", tm.tm_hour, tm.tm_min, tm.tm_sec,
           t.tv_nsec / 1000000, what, *detail ? " " : "", detail, (unsigned long long)number);
    fflush(stdout);
}

static void on_login(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct pms_initiator *ini = arg;
    (void)data;
    if (ctx != ini->ctx || ini->phase == UP)
        return;
    if (status != SCSI_STATUS_GOOD) {
        ini->lost = "login failed";
        return;
    }
    ini->phase = UP;
    ini->answer_ns = now_ns();
    ini->nop_sent_ns = 0;
    if (ini->was_up) {
        ini->stats.reconnects++;
        say(ini, "logged in again; ms without session", "", (now_ns() - ini->lost_ns) / MS);
    }
    ini->was_up = true;
}

static void on_connect(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct pms_initiator *ini = arg;
    (void)data;
    if (ctx != ini->ctx || ini->lost)
        return;
    if (status != SCSI_STATUS_GOOD) {
        ini->lost = ini->phase == CONNECTING ? "connect failed" : "connection closed";
    } else if (ini->phase == CONNECTING) {
        ini->phase = LOGIN;
        ini->deadline_ns = now_ns() + LOGIN_MS * MS;
        if (iscsi_login_async(ctx, on_login, ini))
            ini->lost = "login could not be sent";
    }
}

static void on_nop(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct pms_initiator *ini = arg;
    (void)data;
    if (ctx != ini->ctx)
        return;
    ini->nop_sent_ns = 0; // also when the library gave it up in a reconnect
    if (status == SCSI_STATUS_GOOD)
        ini->answer_ns = now_ns();
}

static void on_answer(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct pms_io *io = arg;
    struct pms_initiator *ini = io->ini;
    (void)data;
    if (ctx != ini->ctx)
        return;
    if (!ini->libiscsi_reconnect && (status == SCSI_STATUS_CANCELLED || status == SCSI_STATUS_ERROR)) {
        if (!ini->lost)
            ini->lost = "connection broken";
        return;
    }
    io->answered = true;
    io->status = status;
    ini->answer_ns = now_ns();
    ini->nop_sent_ns = 0;
}

static void attempt_start(struct pms_initiator *ini)
{
    ini->attempts++;
    ini->lost = NULL;
    ini->phase = CONNECTING;
    ini->deadline_ns = now_ns() + CONNECT_MS * MS;
    ini->ctx = iscsi_create_context(ini->name);
    PMS_CHECK_MSG(ini->ctx, "out of memory");
    iscsi_set_targetname(ini->ctx, ini->url->target);
    iscsi_set_session_type(ini->ctx, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(ini->ctx, ISCSI_HEADER_DIGEST_NONE);
    iscsi_set_isid_random(ini->ctx, (uint32_t)ini->isid_seed & 0xffffff,
                          (uint32_t)(ini->isid_seed >> 24) & 0xffff);
    if (ini->libiscsi_reconnect) { // it can only repeat a full connect
        ini->deadline_ns += LOGIN_MS * MS;
        iscsi_set_reconnect_max_retries(ini->ctx, -1);
        if (iscsi_full_connect_async(ini->ctx, ini->url->portal, ini->url->lun, on_login, ini))
            ini->lost = "connect failed";
        return;
    }
    iscsi_set_noautoreconnect(ini->ctx, 1);
    if (iscsi_connect_async(ini->ctx, ini->url->portal, on_connect, ini))
        ini->lost = "connect failed";
}

// Gives the connection up; every request is unsent again.
static void connection_drop(struct pms_initiator *ini)
{
    struct iscsi_context *ctx = ini->ctx;
    uint64_t now = now_ns();
    struct pms_list *l;
    if (ini->phase == UP) {
        uint64_t n = 0;
        for (l = ini->outstanding.next; l != &ini->outstanding; l = l->next)
            n++;
        say(ini, "connection lost; commands outstanding; reason:", ini->lost, n);
        ini->lost_ns = now;
        ini->attempts = 0;
        ini->next_try_ns = now;
    } else {
        ini->next_try_ns = now + RETRY_MS * MS;
    }
    ini->ctx = NULL; // late callbacks are recognised by this
    ini->phase = DOWN;
    if (ctx)
        iscsi_destroy_context(ctx);
    for (l = ini->outstanding.next; l != &ini->outstanding; l = l->next) {
        struct pms_io *io = pms_list_entry(l, struct pms_io, link);
        if (io->task)
            scsi_free_scsi_task(io->task);
        io->task = NULL;
        io->answered = false;
    }
    ini->lost = NULL;
}

static void io_send(struct pms_initiator *ini, struct pms_io *io)
{
    uint32_t bytes = io->sectors * SECTOR_BYTES;
    int lun = ini->url->lun;
    io->answered = false;
    if (io->write) {
        io->task = iscsi_write16_task(ini->ctx, lun, io->lba, io->buf, bytes, SECTOR_BYTES, 0, 0, 0, 0, 0,
                                      on_answer, io);
    } else {
        // Whatever the target leaves out must not look like data read before.
        for (uint32_t i = 0; i < io->sectors; i++)
            memset(io->buf + (size_t)i * SECTOR_BYTES, 0x5a, 16);
        io->task =
            iscsi_read16_task(ini->ctx, lun, io->lba, bytes, SECTOR_BYTES, 0, 0, 0, 0, 0, on_answer, io);
        if (io->task && scsi_task_add_data_in_buffer(io->task, (int)bytes, io->buf))
            ini->lost = "out of memory";
    }
    if (!io->task)
        ini->lost = "command could not be queued";
    else if (io->sends++)
        ini->stats.resent++;
}

static void send_due(struct pms_initiator *ini)
{
    uint64_t now = now_ns();
    for (struct pms_list *l = ini->outstanding.next; l != &ini->outstanding && !ini->lost; l = l->next) {
        struct pms_io *io = pms_list_entry(l, struct pms_io, link);
        if (!io->task && io->retry_at_ns <= now)
            io_send(ini, io);
    }
}

static void nop_tend(struct pms_initiator *ini)
{
    uint64_t now = now_ns();
    if (!ini->nop_sent_ns) {
        if (now - ini->answer_ns > NOP_INTERVAL_MS * MS) {
            if (!iscsi_nop_out_async(ini->ctx, on_nop, NULL, 0, ini))
                ini->nop_sent_ns = now;
        }
    } else if (now - ini->nop_sent_ns > ini->nop_timeout_ns) {
        if (!ini->libiscsi_reconnect) {
            ini->lost = "no answer to NOP";
        } else if (iscsi_get_nops_in_flight(ini->ctx)) { // none: it is reconnecting already
            ini->nop_sent_ns = 0;
            ini->answer_ns = now;
            iscsi_reconnect(ini->ctx);
        }
    }
}

// Judges one answer. 0 done, -EAGAIN to be sent again, -EIO the application's error (text says which).
static int answer_judge(struct pms_initiator *ini, struct pms_io *io, char *text, size_t size)
{
    struct scsi_task *t = io->task;
    if (io->status == SCSI_STATUS_GOOD) {
        if (t->residual_status == SCSI_RESIDUAL_NO_RESIDUAL)
            return 0;
        snprintf(text, size, "GOOD, but %zu bytes left over", t->residual);
        return -EIO;
    }
    if (io->status == SCSI_STATUS_BUSY || io->status == SCSI_STATUS_TASK_SET_FULL) {
        ini->stats.busy++;
        ini->stats.full += io->status == SCSI_STATUS_TASK_SET_FULL;
        io->retry_at_ns = now_ns() + ini->busy_retry_ns;
        snprintf(text, size, "BUSY or TASK SET FULL %d times", BUSY_ANSWERS_MAX);
        return ++io->busy_answers < BUSY_ANSWERS_MAX ? -EAGAIN : -EIO;
    }
    if (io->status == SCSI_STATUS_CHECK_CONDITION) {
        if (t->sense.key == SCSI_SENSE_UNIT_ATTENTION && t->sense.ascq >> 8 == 0x29) {
            ini->stats.unit_attentions++;
            return -EAGAIN;
        }
        if (t->sense.key == SCSI_SENSE_UNIT_ATTENTION && t->sense.ascq == 0x2a01) {
            ini->stats.mode_changes++;
            return -EAGAIN;
        }
        snprintf(text, size, "sense %x/%02x/%02x", (unsigned)t->sense.key, (unsigned)t->sense.ascq >> 8,
                 (unsigned)t->sense.ascq & 0xff);
    } else {
        snprintf(text, size, "status %#x (%s)", (unsigned)io->status, iscsi_get_error(ini->ctx));
    }
    return -EIO;
}

static void deliver(struct pms_initiator *ini)
{
    struct pms_list *l = ini->outstanding.next;
    while (l != &ini->outstanding) {
        struct pms_io *io = pms_list_entry(l, struct pms_io, link);
        l = l->next;
        if (!io->answered)
            continue;
        char text[160] = "";
        int rc = answer_judge(ini, io, text, sizeof text);
        scsi_free_scsi_task(io->task);
        io->task = NULL;
        io->answered = false;
        if (rc == -EAGAIN)
            continue;
        pms_list_del(&io->link);
        io->done(io, rc, text);
    }
}

static int local_port(struct pms_initiator *ini)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    int fd = iscsi_get_fd(ini->ctx);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&a, &len))
        return -1;
    return a.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&a)->sin6_port)
                                   : ntohs(((struct sockaddr_in *)&a)->sin_port);
}

// With the library's own reconnect: a new local port on a live context is a new session.
static void library_port_watch(struct pms_initiator *ini)
{
    int port = local_port(ini);
    if (port <= 0 || port == ini->library_port || !iscsi_is_logged_in(ini->ctx))
        return;
    if (ini->library_port) {
        ini->stats.reconnects++;
        say(ini, "libiscsi reconnected, local port", "", (uint64_t)port);
    }
    ini->library_port = port;
}

static void service(struct pms_initiator *ini, int timeout_ms)
{
    int events = iscsi_which_events(ini->ctx);
    struct pollfd p = {.fd = iscsi_get_fd(ini->ctx), .events = (short)events};
    if (events == 0) { // the library waits before its next attempt
        p.fd = -1;
        timeout_ms = timeout_ms > 20 ? 20 : timeout_ms;
    }
    if (poll(&p, 1, timeout_ms) < 0)
        return;
    if (!ini->libiscsi_reconnect && ini->phase == UP && p.revents) {
        char c;
        ssize_t n = p.revents & (POLLIN | POLLERR | POLLHUP) ? recv(p.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
        if (n == 0)
            ini->lost = "closed by the target";
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            ini->lost = strerror(errno);
        if (ini->lost)
            return;
    }
    if (iscsi_service(ini->ctx, p.fd < 0 ? 0 : p.revents) && !ini->lost)
        ini->lost = "connection broken";
}

void pms_initiator_turn(struct pms_initiator *ini, int timeout_ms)
{
    uint64_t now = now_ns();
    if (ini->phase == DOWN) {
        if (now < ini->next_try_ns) {
            uint64_t wait = (ini->next_try_ns - now) / MS + 1;
            poll(NULL, 0, wait < (uint64_t)timeout_ms ? (int)wait : timeout_ms);
            return;
        }
        attempt_start(ini);
    }
    if (ini->phase == UP && !ini->lost) {
        send_due(ini);
        nop_tend(ini);
    }
    if (!ini->lost) {
        if (ini->phase != UP && timeout_ms > 10)
            timeout_ms = 10; // an attempt's deadline is near
        service(ini, timeout_ms);
    }
    if (ini->phase == UP) {
        deliver(ini); // answers that came before a loss count
        if (ini->libiscsi_reconnect)
            library_port_watch(ini);
    } else if (!ini->lost && now_ns() > ini->deadline_ns) {
        ini->lost = ini->phase == CONNECTING ? "connect timed out" : "login timed out";
    }
    if (ini->lost)
        connection_drop(ini);
}

void pms_initiator_submit(struct pms_initiator *ini, struct pms_io *io)
{
    io->ini = ini;
    io->task = NULL;
    io->answered = false;
    io->sends = 0;
    io->busy_answers = 0;
    io->retry_at_ns = 0;
    pms_list_add_tail(&ini->outstanding, &io->link);
}

void pms_initiator_abandon(struct pms_initiator *ini)
{
    struct pms_list *l;
    ini->lost = "abandoned";
    connection_drop(ini);
    while ((l = pms_list_pop(&ini->outstanding))) {
        struct pms_io *io = pms_list_entry(l, struct pms_io, link);
        io->done(io, -ETIMEDOUT, "abandoned by the client: no answer");
    }
}

// The first contact: takes the power-on UNIT ATTENTION, learns the capacity. 0 or -EIO.
static int capacity_read(struct pms_initiator *ini)
{
    int lun = ini->url->lun, rc = -EIO;
    for (int i = 0; i < 5; i++) {
        struct scsi_task *t = iscsi_testunitready_sync(ini->ctx, lun);
        int status = t ? t->status : -1;
        scsi_free_scsi_task(t);
        if (status == SCSI_STATUS_GOOD)
            break;
    }
    struct scsi_task *t = iscsi_readcapacity16_sync(ini->ctx, lun);
    if (t && t->status == SCSI_STATUS_GOOD) {
        struct scsi_readcapacity16 *rc16 = scsi_datain_unmarshall(t);
        if (rc16 && rc16->block_length == SECTOR_BYTES) {
            ini->sectors = rc16->returned_lba + 1;
            rc = 0;
        }
    }
    scsi_free_scsi_task(t);
    return rc;
}

static int first_login(struct pms_initiator *ini, uint32_t timeout_ms)
{
    uint64_t end = now_ns() + timeout_ms * MS;
    const char *why = "not reached";
    while (now_ns() < end) {
        while (ini->phase != UP && now_ns() < end) {
            if (ini->lost)
                why = ini->lost;
            pms_initiator_turn(ini, 10);
        }
        if (ini->phase != UP)
            break;
        iscsi_set_timeout(ini->ctx, 5);
        if (!capacity_read(ini)) {
            iscsi_set_timeout(ini->ctx, 0);
            ini->library_port = local_port(ini);
            return 0;
        }
        why = "no capacity of 512-byte blocks";
        ini->lost = why;
        connection_drop(ini);
        ini->was_up = false;
    }
    fprintf(stderr, "initiator: cannot log in at %s to %s: %s\n", ini->url->portal, ini->url->target, why);
    return -ETIMEDOUT;
}

int pms_initiator_open(struct pms_initiator **out, const struct pms_initiator_opts *opts)
{
    struct pms_initiator *ini = calloc(1, sizeof *ini);
    if (!ini)
        return -ENOMEM;
    int rc = -EINVAL;
    pms_list_init(&ini->outstanding);
    ini->isid_seed = opts->isid_seed;
    ini->libiscsi_reconnect = opts->libiscsi_reconnect;
    ini->verbose = opts->verbose;
    ini->nop_timeout_ns = opts->nop_timeout_ms * MS;
    ini->busy_retry_ns = (opts->busy_retry_ms ? opts->busy_retry_ms : BUSY_RETRY_MS) * MS;
    snprintf(ini->name, sizeof ini->name, "%s", opts->name);
    ini->url_ctx = iscsi_create_context(ini->name);
    if (ini->url_ctx)
        ini->url = iscsi_parse_full_url(ini->url_ctx, opts->url);
    if (!ini->url) {
        fprintf(stderr, "initiator: not an iSCSI URL (iscsi://HOST[:PORT]/IQN/LUN): %s\n", opts->url);
        goto out;
    }
    rc = first_login(ini, opts->open_timeout_ms);
out:
    if (rc)
        pms_initiator_close(ini);
    else
        *out = ini;
    return rc;
}

void pms_initiator_close(struct pms_initiator *ini)
{
    PMS_CHECK(pms_list_empty(&ini->outstanding));
    if (ini->ctx && ini->phase == UP) {
        iscsi_set_noautoreconnect(ini->ctx, 1);
        iscsi_set_timeout(ini->ctx, 1);
        iscsi_logout_sync(ini->ctx);
    }
    struct iscsi_context *ctx = ini->ctx;
    ini->ctx = NULL;
    if (ctx)
        iscsi_destroy_context(ctx);
    if (ini->url)
        iscsi_destroy_url(ini->url);
    if (ini->url_ctx)
        iscsi_destroy_context(ini->url_ctx);
    free(ini);
}

uint64_t pms_initiator_sectors(const struct pms_initiator *ini)
{
    return ini->sectors;
}

struct pms_initiator_stats pms_initiator_stats(const struct pms_initiator *ini)
{
    return ini->stats;
}
