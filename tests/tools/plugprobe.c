// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a well-behaved initiator would not do, or would not see: raw iSCSI bytes and awkward commands for the
 * plugin's tests. Each verb prints what it saw and exits 0 if that is what must be.
 *
 *   plugprobe time2wait ADDR PORT IQN   logs in offering DefaultTime2Wait=0: the answer must say 0
 *   plugprobe tsih ADDR PORT IQN        comes back with TSIH 0, the old one, another one; either stage first
 *   plugprobe vanish ADDR PORT IQN N    N times: sends a whole login and closes without reading the answer
 *   plugprobe outside ADDR PORT IQN     sends Data-Out beyond its command's buffer: must be disconnected
 *   plugprobe pings ADDR PORT IQN S   sends commands for S seconds, then none: NOP-Ins come only then
 *   plugprobe window ADDR PORT IQN N PID   shuts the gate, sends N SYNCHRONIZE CACHE whatever MaxCmdSN says: some
 *                                       TASK SET FULL; opens it: the others GOOD
 *   plugprobe deaf ADDR PORT IQN        the same without end, reading nothing: must be disconnected
 *   plugprobe toolong URL               READ and WRITE of 8 MiB: ILLEGAL REQUEST, and the session lives
 *   plugprobe wce URL                   the write cache must be off, and not changeable
 *   plugprobe flood URL N               N writes of 4 MiB at once: each GOOD or TASK SET FULL; those again
 *   plugprobe held-abort URL PID        shuts the gate (SIGUSR1 to PID), writes, aborts: must be answered
 *   plugprobe held-leave URL PID        shuts the gate, writes, closes the connection
 *   plugprobe block URL LBA             prints the first byte of a block, 77 after flood
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define BIG  (8u << 20)
#define LONG (4u << 20)

#define TUR        0x00 /* TEST UNIT READY */
#define SYNC_CACHE 0x35 /* SYNCHRONIZE CACHE(10) */

/* ---- raw iSCSI, RFC 7143 11 ---- */

static int raw_connect(const char *addr, const char *port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || inet_pton(AF_INET, addr, &sin.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&sin, sizeof(sin)) != 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

static void put24(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)(v >> 16);
    p[1] = (unsigned char)(v >> 8);
    p[2] = (unsigned char)v;
}

static void put32(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)(v >> 24);
    put24(p + 1, v);
}

static void raw_send(int fd, const unsigned char bhs[48], const void *data, size_t len)
{
    unsigned char buf[48 + 4096] = {0};
    size_t padded = (len + 3) & ~(size_t)3;

    memcpy(buf, bhs, 48);
    memcpy(buf + 48, data, len);
    if (send(fd, buf, 48 + padded, MSG_NOSIGNAL) != (ssize_t)(48 + padded)) {
        perror("send");
        exit(1);
    }
}

#define SECURITY_FIRST    0x81u /* transit, CSG 0, NSG 1 */
#define OPERATIONAL_FIRST 0x87u /* transit, CSG 1, NSG 3 */

static unsigned raw_tsih; /* in: what the next login says; out: what the answer said */

static void raw_login_send(int fd, const char *iqn, unsigned isid_low, unsigned flags, const char *extra,
                           size_t extra_len)
{
    unsigned char bhs[48] = {0x43}; /* login, immediate */
    char text[1024];
    size_t len;

    len = (size_t)snprintf(text, sizeof(text),
                           "InitiatorName=iqn.2026-11.io.pms.test:raw%cTargetName=%s%cSessionType=Normal%c",
                           0, iqn, 0, 0);
    memcpy(text + len, extra, extra_len);
    len += extra_len;
    bhs[1] = (unsigned char)flags;
    put24(bhs + 5, (unsigned)len);
    bhs[8] = 0x80; /* ISID type: random */
    bhs[14] = (unsigned char)(raw_tsih >> 8);
    bhs[15] = (unsigned char)raw_tsih;
    put32(bhs + 10, isid_low);
    put32(bhs + 16, 1); /* ITT */
    put32(bhs + 24, 1); /* CmdSN */
    raw_send(fd, bhs, text, len);
}

/* Reads one PDU's header and data. Returns the data's length, -1 at the end of the connection. */
static int raw_recv(int fd, unsigned char bhs[48], char *data, size_t size)
{
    size_t got = 0, len, want;
    ssize_t n;

    while (got < 48) {
        n = recv(fd, bhs + got, 48 - got, 0);
        if (n <= 0)
            return -1;
        got += (size_t)n;
    }
    len = (size_t)bhs[5] << 16 | (size_t)bhs[6] << 8 | bhs[7];
    want = (len + 3) & ~(size_t)3;
    for (got = 0; got < want; got += (size_t)n) {
        if (got >= size)
            return -1;
        n = recv(fd, data + got, (want < size ? want : size) - got, 0);
        if (n <= 0)
            return -1;
    }
    return (int)len;
}

/* Key=value in a login answer's text. */
static const char *key_find(const char *text, int len, const char *key)
{
    const char *p;

    for (p = text; p < text + len; p += strlen(p) + 1)
        if (strncmp(p, key, strlen(key)) == 0 && p[strlen(key)] == '=')
            return p + strlen(key) + 1;
    return NULL;
}

/* Logs in; the text of all answers is gathered. 0, or the login's status. */
static unsigned raw_login(int fd, const char *iqn, unsigned isid_low, unsigned flags, const char *extra,
                          size_t extra_len, char *text, int *text_len)
{
    unsigned char bhs[48];
    int n, rounds;

    *text_len = 0;
    raw_login_send(fd, iqn, isid_low, flags, extra, extra_len);
    for (rounds = 0; rounds < 5; rounds++) {
        n = raw_recv(fd, bhs, text + *text_len, 4096 - (size_t)*text_len);
        if (n < 0 || (bhs[0] & 0x3f) != 0x23) {
            fprintf(stderr, "no login answer\n");
            exit(1);
        }
        *text_len += n;
        raw_tsih = (unsigned)bhs[14] << 8 | bhs[15];
        if (bhs[36] || bhs[37] || (bhs[1] & 0x83) == 0x83) /* refused, or transit to full feature phase */
            return (unsigned)bhs[36] << 8 | bhs[37];
        raw_login_send(fd, iqn, isid_low, OPERATIONAL_FIRST, "", 0);
    }
    return 0xffff;
}

static int verb_time2wait(char **arg)
{
    static const char offer[] =
        "DefaultTime2Wait=0\0MaxRecvDataSegmentLength=262144\0InitialR2T=No\0ImmediateData=Yes\0"
        "FirstBurstLength=262144\0MaxBurstLength=1048576\0";
    static const char *const keys[] = {"DefaultTime2Wait", "InitialR2T",     "ImmediateData",
                                       "FirstBurstLength", "MaxBurstLength", "MaxRecvDataSegmentLength"};
    static const char *const want[] = {"0", "No", "Yes", "262144", "1048576", "262144"};
    char text[4200] = {0};
    int len, fd = raw_connect(arg[0], arg[1]), bad = 0;
    unsigned status =
        raw_login(fd, arg[2], 0x424242, OPERATIONAL_FIRST, offer, sizeof(offer) - 1, text, &len);
    const char *v;
    size_t i;

    printf("status=%04x", status);
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        v = key_find(text, len, keys[i]);
        printf(" %s=%s", keys[i], v ? v : "(silent)");
        bad += !v || strcmp(v, want[i]) != 0;
    }
    printf("\n");
    close(fd);
    return status || bad;
}

/* One login, then the connection is just closed. */
static unsigned tsih_login(char **arg, unsigned flags, unsigned tsih)
{
    static const char none[] = "AuthMethod=None\0";
    char text[4200];
    int len, fd = raw_connect(arg[0], arg[1]);
    unsigned status;

    raw_tsih = tsih;
    status = raw_login(fd, arg[2], 0x737373, flags, none, flags == SECURITY_FIRST ? sizeof(none) - 1 : 0,
                       text, &len);
    close(fd);
    usleep(50000);
    return status;
}

/* Every way to come back with the same ISID: TSIH 0 or the old one, either stage first. Another TSIH is
 * refused. */
static int verb_tsih(char **arg)
{
    static const unsigned first[] = {OPERATIONAL_FIRST, SECURITY_FIRST};
    unsigned want, status, i, bad = 0;

    status = tsih_login(arg, OPERATIONAL_FIRST, 0);
    want = raw_tsih;
    printf("first: status=%04x tsih=%u\n", status, want);
    bad += status != 0 || want == 0;
    for (i = 0; i < 2; i++) {
        status = tsih_login(arg, first[i], 0);
        printf("flags %02x, TSIH 0: status=%04x tsih=%u\n", first[i], status, raw_tsih);
        bad += status != 0 || raw_tsih != want;
        status = tsih_login(arg, first[i], want);
        printf("flags %02x, old TSIH: status=%04x tsih=%u\n", first[i], status, raw_tsih);
        bad += status != 0 || raw_tsih != want;
        status = tsih_login(arg, first[i], want ^ 0x5500);
        printf("flags %02x, another TSIH: status=%04x\n", first[i], status);
        bad += status == 0;
    }
    return bad != 0;
}

static int verb_vanish(char **arg)
{
    int i, fd, n = atoi(arg[3]);

    for (i = 0; i < n; i++) {
        fd = raw_connect(arg[0], arg[1]);
        raw_login_send(fd, arg[2], 0x515100 + (unsigned)(i % 3), OPERATIONAL_FIRST, "", 0);
        usleep((unsigned)(i % 7) * 1000);
        close(fd);
    }
    printf("vanished %d times\n", n);
    return 0;
}

static int verb_outside(char **arg)
{
    unsigned char bhs[48] = {0x01,
                             0x21}; /* SCSI command, write, simple, not final: unsolicited data follows */
    char text[4200], data[4096] = "outside";
    int len, fd = raw_connect(arg[0], arg[1]);

    if (raw_login(fd, arg[2], 0x626262, OPERATIONAL_FIRST, "InitialR2T=No\0", 14, text, &len)) {
        fprintf(stderr, "login refused\n");
        return 1;
    }
    bhs[9] = 1; /* LUN 1 */
    put32(bhs + 16, 7);
    put32(bhs + 20, 8192); /* expected data transfer length */
    put32(bhs + 24, 1);    /* CmdSN */
    bhs[32] = 0x2a;        /* WRITE(10) of 16 blocks */
    bhs[40] = 16;
    raw_send(fd, bhs, "", 0);
    memset(bhs, 0, sizeof(bhs));
    bhs[0] = 0x05; /* Data-Out */
    bhs[1] = 0x80;
    put24(bhs + 5, sizeof(data));
    bhs[9] = 1;
    put32(bhs + 16, 7);
    put32(bhs + 20, 0xffffffff);
    put32(bhs + 40, 1u << 20); /* buffer offset: 1 MiB into 8 KiB */
    raw_send(fd, bhs, data, sizeof(data) - 4);
    len = raw_recv(fd, bhs, text, sizeof(text));
    printf("after data outside the buffer: %s\n", len < 0 ? "disconnected" : "still served");
    close(fd);
    return len >= 0;
}

/* A command without data. */
static void raw_command(int fd, unsigned char op, unsigned cmd_sn)
{
    unsigned char bhs[48] = {0x01, 0x81};

    bhs[9] = 1; /* LUN 1 */
    put32(bhs + 16, cmd_sn);
    put32(bhs + 24, cmd_sn);
    bhs[32] = op;
    raw_send(fd, bhs, "", 0);
}

/* The answer to the NOP-In with that TTT. */
static void raw_pong(int fd, unsigned cmd_sn, const unsigned char ttt[4])
{
    unsigned char bhs[48] = {0x40, 0x80};

    bhs[9] = 1;
    put32(bhs + 16, 0xffffffff);
    memcpy(bhs + 20, ttt, 4);
    put32(bhs + 24, cmd_sn);
    raw_send(fd, bhs, "", 0);
}

/* Takes what comes for ms, and answers NOP-Ins. Their number, or -1: the connection is gone. */
static int pings_count(int fd, unsigned cmd_sn, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec begun, now;
    unsigned char bhs[48];
    char data[4096];
    int pings = 0, left;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = ms - (int)((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000);
        if (left <= 0 || poll(&p, 1, left) == 0)
            return pings;
        if (raw_recv(fd, bhs, data, sizeof(data)) < 0)
            return -1;
        if ((bhs[0] & 0x3f) != 0x20)
            continue;
        pings++;
        raw_pong(fd, cmd_sn, bhs + 20);
    }
}

static int verb_pings(char **arg)
{
    char text[4200];
    int len, fd = raw_connect(arg[0], arg[1]), busy = 0, idle, i, n, seconds = atoi(arg[3]);
    unsigned cmd_sn = 1;

    if (raw_login(fd, arg[2], 0x636363, OPERATIONAL_FIRST, "InitialR2T=No\0", 14, text, &len)) {
        fprintf(stderr, "login refused\n");
        return 1;
    }
    for (i = 0; i < seconds * 10; i++) {
        raw_command(fd, TUR, cmd_sn++);
        n = pings_count(fd, cmd_sn, 100);
        if (n < 0)
            break;
        busy += n;
    }
    idle = pings_count(fd, cmd_sn, seconds * 1000);
    printf("pings while commands came: %d, while none came: %d\n", busy, idle);
    close(fd);
    return !(i == seconds * 10 && busy == 0 && idle >= 1);
}

/* The status of the next command that is answered, -1: nothing for ms, -2: the connection is gone. */
static int raw_status(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    unsigned char bhs[48];
    char data[4096];

    do {
        if (poll(&p, 1, ms) == 0)
            return -1;
        if (raw_recv(fd, bhs, data, sizeof(data)) < 0)
            return -2;
    } while ((bhs[0] & 0x3f) != 0x21);
    return bhs[3];
}

static int window_login(char **arg, unsigned isid_low)
{
    char text[4200];
    int len, fd = raw_connect(arg[0], arg[1]);

    if (raw_login(fd, arg[2], isid_low, OPERATIONAL_FIRST, "InitialR2T=No\0", 14, text, &len)) {
        fprintf(stderr, "login refused\n");
        exit(1);
    }
    raw_command(fd, TUR, 1); /* takes the UNIT ATTENTION */
    if (raw_status(fd, 5000) < 0) {
        fprintf(stderr, "no answer\n");
        exit(1);
    }
    return fd;
}

static int verb_window(char **arg)
{
    int fd = window_login(arg, 0x646464), n = atoi(arg[3]), status, i, full = 0, good = 0;

    kill(atoi(arg[4]), SIGUSR1);
    usleep(200000);
    for (i = 0; i < n; i++)
        raw_command(fd, SYNC_CACHE, (unsigned)i + 2);
    while ((status = raw_status(fd, 500)) == SCSI_STATUS_TASK_SET_FULL)
        full++;
    kill(atoi(arg[4]), SIGUSR1);
    while (status == -1 || status == SCSI_STATUS_GOOD) {
        good += status == SCSI_STATUS_GOOD;
        if (full + good == n)
            break;
        status = raw_status(fd, 10000);
    }
    printf("good=%d of %d, full=%d, last status %d\n", good, n, full, status);
    close(fd);
    return !(full > 0 && full + good == n);
}

static int verb_deaf(char **arg)
{
    int fd = window_login(arg, 0x656565), i;
    unsigned char bhs[48] = {0x01, 0x81};

    bhs[9] = 1;
    bhs[32] = 0x12; /* INQUIRY, standard data of 4 KiB: answers pile up where nobody reads them */
    bhs[35] = 0x10;
    put32(bhs + 20, 4096);
    bhs[1] = 0xc1; /* final, read, simple */
    for (i = 0; i < 200000; i++) {
        put32(bhs + 16, (unsigned)i + 2);
        put32(bhs + 24, (unsigned)i + 2);
        if (send(fd, bhs, sizeof(bhs), MSG_NOSIGNAL) != (ssize_t)sizeof(bhs))
            break;
    }
    printf("disconnected after %d requests\n", i);
    close(fd);
    return i == 200000;
}

/* ---- libiscsi ---- */

static int lun;

static struct iscsi_context *lib_login(const char *url_text)
{
    struct iscsi_context *iscsi = iscsi_create_context("iqn.2026-11.io.pms.test:probe");
    struct iscsi_url *url = iscsi ? iscsi_parse_full_url(iscsi, url_text) : NULL;
    struct scsi_task *task;
    int tries;

    if (!url) {
        fprintf(stderr, "bad URL\n");
        exit(2);
    }
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_targetname(iscsi, url->target);
    lun = url->lun;
    if (iscsi_connect_sync(iscsi, url->portal) != 0 || iscsi_login_sync(iscsi) != 0) {
        fprintf(stderr, "%s\n", iscsi_get_error(iscsi));
        exit(1);
    }
    iscsi_destroy_url(url);
    for (tries = 0; tries < 2; tries++) {
        task = iscsi_testunitready_sync(iscsi, lun);
        if (task)
            scsi_free_scsi_task(task);
    }
    return iscsi;
}

static int verb_toolong(char **arg)
{
    struct iscsi_context *iscsi = lib_login(arg[0]);
    unsigned char *buf = calloc(1, BIG);
    struct scsi_task *r = iscsi_read16_sync(iscsi, lun, 0, BIG, 512, 0, 0, 0, 0, 0);
    struct scsi_task *w = iscsi_write16_sync(iscsi, lun, 0, buf, BIG, 512, 0, 0, 0, 0, 0);
    struct scsi_task *t = iscsi_testunitready_sync(iscsi, lun);
    bool ok = r && w && t && r->status == 2 && w->status == 2 && t->status == 0 && r->sense.key == 5 &&
              w->sense.key == 5 && r->sense.ascq == 0x2400 && w->sense.ascq == 0x2400;

    printf("read %d %x/%04x write %d %x/%04x then %d\n", r ? r->status : -1, r ? (unsigned)r->sense.key : 0,
           r ? (unsigned)r->sense.ascq : 0, w ? w->status : -1, w ? (unsigned)w->sense.key : 0,
           w ? (unsigned)w->sense.ascq : 0, t ? t->status : -1);
    iscsi_logout_sync(iscsi);
    return !ok;
}

/* Caching mode page: current values and what can be changed. SBC-4 6.5.5: WCE is bit 2 of byte 2. */
static int verb_wce(char **arg)
{
    struct iscsi_context *iscsi = lib_login(arg[0]);
    struct scsi_task *now = iscsi_modesense6_sync(iscsi, lun, 1, SCSI_MODESENSE_PC_CURRENT, 0x08, 0, 255);
    struct scsi_task *can = iscsi_modesense6_sync(iscsi, lun, 1, SCSI_MODESENSE_PC_CHANGEABLE, 0x08, 0, 255);
    int i, changeable = 0;

    if (!now || !can || now->status || can->status || now->datain.size < 7 || can->datain.size < 24)
        return 1;
    for (i = 6; i < 24; i++) /* 4 bytes of header, 2 of the page's own */
        changeable |= can->datain.data[i];
    printf("wce=%d changeable=%02x\n", now->datain.data[6] >> 2 & 1, (unsigned)changeable);
    iscsi_logout_sync(iscsi);
    return (now->datain.data[6] & 4) || changeable;
}

static struct flood {
    int outstanding, good, full, other;
    bool done[256];
} flood;

static void on_flood(struct iscsi_context *iscsi, int status, void *data, void *index)
{
    (void)iscsi;
    (void)data;
    flood.outstanding--;
    if (status == SCSI_STATUS_GOOD) {
        flood.good++;
        flood.done[(size_t)index] = true;
    } else if (status == SCSI_STATUS_TASK_SET_FULL) {
        flood.full++;
    } else {
        flood.other++;
        printf("write %zu: status %x\n", (size_t)index, (unsigned)status);
    }
}

static void lib_wait(struct iscsi_context *iscsi, const int *outstanding, int ms)
{
    struct pollfd p;
    int waited = 0;

    while (*outstanding > 0 && waited < ms) {
        p = (struct pollfd){.fd = iscsi_get_fd(iscsi), .events = (short)iscsi_which_events(iscsi)};
        if (poll(&p, 1, 10) == 0)
            waited += 10;
        if (iscsi_service(iscsi, p.revents) != 0) {
            fprintf(stderr, "connection lost: %s\n", iscsi_get_error(iscsi));
            exit(1);
        }
    }
}

static int verb_flood(char **arg)
{
    struct iscsi_context *iscsi = lib_login(arg[0]);
    size_t n = (size_t)atoi(arg[1]), i;
    unsigned char *buf = malloc(LONG);
    struct scsi_task *task;
    int rounds, bad = 0;

    memset(buf, 0x77, LONG);
    for (rounds = 0; rounds < 1000 && flood.good < (int)n && !flood.other; rounds++) {
        for (i = 0; i < n && i < 256; i++) {
            if (flood.done[i])
                continue;
            flood.outstanding++;
            if (!iscsi_write16_task(iscsi, lun, i * (LONG / 512), buf, LONG, 512, 0, 0, 0, 0, 0, on_flood,
                                    (void *)i))
                return 1;
        }
        lib_wait(iscsi, &flood.outstanding, 20000);
        if (flood.outstanding)
            break;
    }
    for (i = 0; i < n && !bad; i++) {
        task = iscsi_read16_sync(iscsi, lun, i * (LONG / 512), LONG, 512, 0, 0, 0, 0, 0);
        bad = !task || task->status || task->datain.size != LONG || memcmp(task->datain.data, buf, LONG) != 0;
        if (task)
            scsi_free_scsi_task(task);
    }
    printf("good=%d full=%d other=%d rounds=%d unanswered=%d readback=%s\n", flood.good, flood.full,
           flood.other, rounds, flood.outstanding, bad ? "bad" : "ok");
    iscsi_logout_sync(iscsi);
    return bad || flood.good != (int)n || flood.other || flood.outstanding;
}

static int write_status = -1, abort_outstanding = 1, abort_response = -1;

static void on_held_write(struct iscsi_context *iscsi, int status, void *data, void *p)
{
    (void)iscsi;
    (void)data;
    (void)p;
    write_status = status;
}

static void on_abort(struct iscsi_context *iscsi, int status, void *data, void *p)
{
    (void)iscsi;
    (void)p;
    abort_outstanding = 0;
    abort_response = status == 0 && data ? (int)*(uint32_t *)data : -2;
}

static int verb_held(char **arg, bool abort)
{
    static unsigned char buf[4096];
    struct iscsi_context *iscsi = lib_login(arg[0]);
    struct scsi_task *task;
    int never = 1;

    kill(atoi(arg[1]), SIGUSR1);
    usleep(200000);
    memset(buf, 0xee, sizeof(buf));
    task = iscsi_write10_task(iscsi, lun, 64, buf, sizeof(buf), 512, 0, 0, 0, 0, 0, on_held_write, NULL);
    lib_wait(iscsi, &never, 300);
    if (write_status != -1) {
        printf("the write was answered (%d) though the gate is shut\n", write_status);
        return 1;
    }
    if (!abort) {
        printf("leaving with the write held\n");
        iscsi_destroy_context(iscsi);
        return 0;
    }
    iscsi_task_mgmt_abort_task_async(iscsi, task, on_abort, NULL);
    lib_wait(iscsi, &abort_outstanding, 3000);
    printf("abort response=%d write status=%x\n", abort_response, (unsigned)write_status);
    iscsi_destroy_context(iscsi);
    return abort_outstanding || write_status == SCSI_STATUS_GOOD;
}

static int verb_block(char **arg)
{
    struct iscsi_context *iscsi = lib_login(arg[0]);
    struct scsi_task *task = iscsi_read10_sync(iscsi, lun, (uint32_t)atoi(arg[1]), 512, 512, 0, 0, 0, 0, 0);

    if (!task || task->status || task->datain.size < 1)
        return 1;
    printf("%02x\n", task->datain.data[0]);
    iscsi_logout_sync(iscsi);
    return 0;
}

static int verb_held_abort(char **arg)
{
    return verb_held(arg, true);
}

static int verb_held_leave(char **arg)
{
    return verb_held(arg, false);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        int (*run)(char **arg);
    } verbs[] = {
        {"time2wait", 3, verb_time2wait},
        {"tsih", 3, verb_tsih},
        {"pings", 4, verb_pings},
        {"window", 5, verb_window},
        {"deaf", 3, verb_deaf},
        {"vanish", 4, verb_vanish},
        {"outside", 3, verb_outside},
        {"toolong", 1, verb_toolong},
        {"wce", 1, verb_wce},
        {"flood", 2, verb_flood},
        {"held-abort", 2, verb_held_abort},
        {"block", 2, verb_block},
        {"held-leave", 2, verb_held_leave},
    };
    size_t i;

    for (i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (argc == verbs[i].args + 2 && strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argv + 2);
    fprintf(stderr, "usage: see the top of tests/tools/plugprobe.c\n");
    return 2;
}
