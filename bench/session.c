// SPDX-License-Identifier: GPL-2.0-or-later
// The load generator's session over libiscsi.
//
// A request: submit -> READ(16) or WRITE(16) -> answer -> [SYNCHRONIZE CACHE(10) -> answer] -> done.
// Failures: any answer but GOOD, and a lost connection, end the request with ok false; nothing is sent twice.
//
// libiscsi 1.19 gives its answer to a target's NOP-In the CmdSN of whatever is first in its send queue. If that
// is a Data-Out, the CmdSN is an old one, and it then closes the connection over its own PDU. So the queue is
// sent before anything is received; where an R2T and a NOP-In arrive together that is not enough, and
// bench_session_own_fault tells.
#include "bench/session.h"

#include "base/check.h"

#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_WAIT_MS    100 // then receive, too: the target may wait for that
#define LOGIN_TIMEOUT_S 30

struct bench_session {
    struct iscsi_context *ctx;
    int lun;
    uint32_t block_bytes;
    uint64_t blocks;
    bool synced, sync_done; // of bench_session_sync
    bool own_fault;
};

static int session_fail(struct bench_session *s, const char *url, const char *what)
{
    fprintf(stderr, "bench-load: %s: %s: %s\n", url, what, s->ctx != NULL ? iscsi_get_error(s->ctx) : "");
    return -ECONNREFUSED;
}

static int capacity_get(struct bench_session *s, const char *url)
{
    struct scsi_task *task = iscsi_readcapacity16_sync(s->ctx, s->lun);
    struct scsi_readcapacity16 *cap = NULL;

    if (task != NULL && task->status == SCSI_STATUS_GOOD)
        cap = scsi_datain_unmarshall(task);
    if (cap != NULL) {
        s->block_bytes = cap->block_length;
        s->blocks = cap->returned_lba + 1;
    }
    if (task != NULL)
        scsi_free_scsi_task(task);
    return cap != NULL && s->block_bytes > 0 ? 0 : session_fail(s, url, "READ CAPACITY");
}

static int session_login(struct bench_session *s, const char *url, const char *name)
{
    struct iscsi_url *u;
    int rc = 0;

    s->ctx = iscsi_create_context(name);
    PMS_CHECK_MSG(s->ctx != NULL, "out of memory");
    u = iscsi_parse_full_url(s->ctx, url);
    if (u == NULL)
        return session_fail(s, url, "not a URL");
    s->lun = u->lun;
    iscsi_set_targetname(s->ctx, u->target);
    iscsi_set_session_type(s->ctx, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(s->ctx, ISCSI_HEADER_DIGEST_NONE);
    iscsi_set_timeout(s->ctx, LOGIN_TIMEOUT_S);
    iscsi_set_noautoreconnect(s->ctx, 1);
    if (iscsi_full_connect_sync(s->ctx, u->portal, u->lun) != 0)
        rc = session_fail(s, url, "login");
    iscsi_destroy_url(u);
    return rc != 0 ? rc : capacity_get(s, url);
}

int bench_session_open(struct bench_session **out, const char *url, const char *name)
{
    struct bench_session *s = calloc(1, sizeof *s);
    int rc;

    PMS_CHECK_MSG(s != NULL, "out of memory");
    rc = session_login(s, url, name);
    if (rc != 0) {
        bench_session_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void bench_session_close(struct bench_session *s)
{
    if (s == NULL)
        return;
    if (s->ctx != NULL) {
        iscsi_logout_sync(s->ctx);
        iscsi_destroy_context(s->ctx);
    }
    free(s);
}

uint32_t bench_session_block_bytes(const struct bench_session *s)
{
    return s->block_bytes;
}

uint64_t bench_session_blocks(const struct bench_session *s)
{
    return s->blocks;
}

static void io_end(struct bench_io *io, bool ok)
{
    if (io->task != NULL)
        scsi_free_scsi_task(io->task);
    io->task = NULL;
    io->done(io, ok);
}

static void failure_note(struct bench_session *s, int status)
{
    const char *text = iscsi_get_error(s->ctx);

    if (strstr(text, "cmdsn < expcmdsn") != NULL)
        s->own_fault = true;
    else
        fprintf(stderr, "bench-load: SCSI status 0x%x: %s\n", (unsigned)status, text);
}

bool bench_session_own_fault(const struct bench_session *s)
{
    return s->own_fault;
}

static void on_io(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct bench_io *io = arg;
    struct bench_session *s = io->session;

    (void)ctx;
    (void)data;
    if (status != SCSI_STATUS_GOOD)
        failure_note(s, status);
    if (status != SCSI_STATUS_GOOD || io->task->residual_status != SCSI_RESIDUAL_NO_RESIDUAL) {
        io_end(io, false);
        return;
    }
    if (!io->write || !io->then_sync) {
        io_end(io, true);
        return;
    }
    scsi_free_scsi_task(io->task);
    io->task = iscsi_synchronizecache10_task(s->ctx, s->lun, 0, 0, 0, 0, on_io, io);
    io->then_sync = false;
    if (io->task == NULL)
        io_end(io, false);
}

void bench_session_submit(struct bench_session *s, struct bench_io *io)
{
    io->session = s;
    if (io->write)
        io->task = iscsi_write16_task(s->ctx, s->lun, io->lba, io->buf, io->bytes, (int)s->block_bytes, 0, 0,
                                      0, 0, 0, on_io, io);
    else
        io->task = iscsi_read16_task(s->ctx, s->lun, io->lba, io->bytes, (int)s->block_bytes, 0, 0, 0, 0, 0,
                                     on_io, io);
    if (io->task == NULL)
        io_end(io, false);
    else if (!io->write)
        PMS_CHECK(scsi_task_add_data_in_buffer(io->task, (int)io->bytes, io->buf) == 0);
}

static void on_sync(struct iscsi_context *ctx, int status, void *data, void *arg)
{
    struct bench_session *s = arg;

    (void)ctx;
    (void)data;
    s->sync_done = true;
    s->synced = status == SCSI_STATUS_GOOD;
}

bool bench_session_sync(struct bench_session *s)
{
    struct scsi_task *task;

    s->sync_done = s->synced = false;
    task = iscsi_synchronizecache10_task(s->ctx, s->lun, 0, 0, 0, 0, on_sync, s);
    if (task == NULL)
        return false;
    while (!s->sync_done && bench_session_turn(s, 1000))
        ;
    scsi_free_scsi_task(task);
    return s->synced;
}

bool bench_session_turn(struct bench_session *s, int timeout_ms)
{
    struct pollfd p = {.fd = iscsi_get_fd(s->ctx), .events = POLLOUT};
    int events = iscsi_which_events(s->ctx);

    while (events & POLLOUT) {
        int n = poll(&p, 1, SEND_WAIT_MS);

        if (n < 0 && errno != EINTR)
            return false;
        if (n == 0)
            break;
        if (p.revents != 0 && iscsi_service(s->ctx, p.revents) != 0)
            return false;
        events = iscsi_which_events(s->ctx);
    }
    p.events = (short)events;
    if (poll(&p, 1, timeout_ms) < 0 && errno != EINTR)
        return false;
    return p.revents == 0 || iscsi_service(s->ctx, p.revents) == 0;
}
