// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An initiator port that comes back: logs in with an ISID of its own, loses its connection without a logout,
 * logs in again with the same ISID and says what UNIT ATTENTION it got. libiscsi's own reconnect (off here)
 * would draw a new ISID.
 *
 *   relogin [--isid HEX8] [--initiator IQN] [--between COMMAND] [--logout] [--times N] [--resend] URL
 *
 * COMMAND runs between the logins. A pattern is written in the first session and verified in each later one.
 * One line a login: "login N ua=none|KEY/ASC/ASCQ ms=T". --logout: the session is ended in order instead.
 * --resend: a write is sent and the connection dropped before its answer, then COMMAND runs, and the write is
 * sent again by the next session. Exit code 0: all logins and checks passed (whatever the UNIT ATTENTIONs
 * were).
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <poll.h>
#include <unistd.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define PATTERN_BYTES (256u << 10)

static struct {
    const char *url, *initiator, *between;
    unsigned isid, times;
    bool logout, resend;
} opt = {.initiator = "iqn.2026-11.io.pms.test:relogin", .isid = 0x123456, .times = 1};

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void fail(struct iscsi_context *iscsi, const char *what)
{
    fprintf(stderr, "relogin: %s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "?");
    exit(1);
}

static struct iscsi_context *login(struct iscsi_url **url)
{
    struct iscsi_context *iscsi = iscsi_create_context(opt.initiator);

    if (!iscsi)
        fail(NULL, "context");
    *url = iscsi_parse_full_url(iscsi, opt.url);
    if (!*url)
        fail(iscsi, "URL");
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_timeout(iscsi, 30);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_targetname(iscsi, (*url)->target);
    iscsi_set_isid_random(iscsi, opt.isid, 0x77);
    if (iscsi_connect_sync(iscsi, (*url)->portal) != 0)
        fail(iscsi, "connect");
    if (iscsi_login_sync(iscsi) != 0)
        fail(iscsi, "login");
    return iscsi;
}

/* TEST UNIT READY until GOOD; what was the first UNIT ATTENTION? */
static void attention(struct iscsi_context *iscsi, int lun, char *out, size_t size)
{
    struct scsi_task *task;
    int tries;

    snprintf(out, size, "none");
    for (tries = 0; tries < 5; tries++) {
        task = iscsi_testunitready_sync(iscsi, lun);
        if (!task)
            fail(iscsi, "TEST UNIT READY");
        if (task->status == SCSI_STATUS_GOOD) {
            scsi_free_scsi_task(task);
            return;
        }
        if (tries == 0)
            snprintf(out, size, "%x/%02x/%02x", task->sense.key, task->sense.ascq >> 8,
                     task->sense.ascq & 0xff);
        scsi_free_scsi_task(task);
    }
    fail(iscsi, "the LUN does not become ready");
}

static void pattern(unsigned char *buf, unsigned seed)
{
    unsigned i;

    for (i = 0; i < PATTERN_BYTES; i++)
        buf[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 9));
}

static void pattern_write(struct iscsi_context *iscsi, int lun, unsigned seed)
{
    static unsigned char buf[PATTERN_BYTES];
    struct scsi_task *task;

    pattern(buf, seed);
    task = iscsi_write10_sync(iscsi, lun, 2048, buf, PATTERN_BYTES, 512, 0, 0, 0, 0, 0);
    if (!task || task->status != SCSI_STATUS_GOOD)
        fail(iscsi, "write");
    scsi_free_scsi_task(task);
}

static void pattern_verify(struct iscsi_context *iscsi, int lun, unsigned seed)
{
    static unsigned char buf[PATTERN_BYTES];
    struct scsi_task *task = iscsi_read10_sync(iscsi, lun, 2048, PATTERN_BYTES, 512, 0, 0, 0, 0, 0);

    if (!task || task->status != SCSI_STATUS_GOOD || task->datain.size != PATTERN_BYTES)
        fail(iscsi, "read");
    pattern(buf, seed);
    if (memcmp(buf, task->datain.data, PATTERN_BYTES) != 0)
        fail(iscsi, "what was written is not what is read");
    scsi_free_scsi_task(task);
}

static void on_write(struct iscsi_context *iscsi, int status, void *data, void *private_data)
{
    (void)iscsi;
    (void)status;
    (void)data;
    *(bool *)private_data = true;
}

/* Sends a write and lets the bytes out, then leaves without waiting for the answer. */
static void write_and_leave(struct iscsi_context *iscsi, int lun, unsigned seed)
{
    static unsigned char buf[PATTERN_BYTES];
    struct pollfd p;
    static bool answered; /* outlives this call: the context reports the cancelled task as it ends */
    int turns;

    answered = false;
    pattern(buf, seed);
    if (!iscsi_write10_task(iscsi, lun, 2048, buf, PATTERN_BYTES, 512, 0, 0, 0, 0, 0, on_write, &answered))
        fail(iscsi, "write");
    for (turns = 0; turns < 20 && !answered; turns++) {
        p = (struct pollfd){.fd = iscsi_get_fd(iscsi), .events = (short)iscsi_which_events(iscsi)};
        if (poll(&p, 1, 5) < 0 || iscsi_service(iscsi, p.revents) != 0)
            fail(iscsi, "send");
    }
    printf("left answered=%d\n", answered);
}

static void options(int argc, char **argv)
{
    static const struct option longs[] = {
        {"isid", 1, NULL, 'i'},  {"initiator", 1, NULL, 'n'}, {"between", 1, NULL, 'b'},
        {"times", 1, NULL, 't'}, {"logout", 0, NULL, 'l'},    {"resend", 0, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'i':
            opt.isid = (unsigned)strtoul(optarg, NULL, 16);
            break;
        case 'n':
            opt.initiator = optarg;
            break;
        case 'b':
            opt.between = optarg;
            break;
        case 't':
            opt.times = (unsigned)atoi(optarg);
            break;
        case 'l':
            opt.logout = true;
            break;
        case 'r':
            opt.resend = true;
            break;
        default:
            exit(2);
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr,
                "usage: relogin [--isid HEX] [--initiator IQN] [--between COMMAND] [--logout] [--times N] "
                "[--resend] URL\n");
        exit(2);
    }
    opt.url = argv[optind];
}

int main(int argc, char **argv)
{
    struct iscsi_context *iscsi;
    struct iscsi_url *url;
    char ua[32];
    uint64_t start;
    unsigned n;

    options(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (n = 0; n <= opt.times; n++) {
        if (n > 0 && opt.between && system(opt.between) != 0) {
            fprintf(stderr, "relogin: the command between the logins failed\n");
            return 1;
        }
        start = now_ms();
        iscsi = login(&url);
        attention(iscsi, url->lun, ua, sizeof(ua));
        printf("login %u ua=%s ms=%llu\n", n + 1, ua, (unsigned long long)(now_ms() - start));
        if (n > 0 && opt.resend)
            pattern_write(iscsi, url->lun, n - 1 + 100);
        if (n > 0)
            pattern_verify(iscsi, url->lun, opt.resend ? n - 1 + 100 : n - 1);
        if (opt.resend && n < opt.times)
            write_and_leave(iscsi, url->lun, n + 100);
        else
            pattern_write(iscsi, url->lun, n);
        if ((opt.logout || n == opt.times) && iscsi_logout_sync(iscsi) != 0)
            fail(iscsi, "logout");
        iscsi_destroy_url(url);
        iscsi_destroy_context(iscsi);
    }
    return 0;
}
