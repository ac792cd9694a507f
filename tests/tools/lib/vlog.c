// SPDX-License-Identifier: GPL-2.0-or-later
// The verifying client's log on disk, and its replay into a judge.
#include "tests/tools/lib/vlog.h"

#include "base/err.h"
#include "base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VLOG_MAGIC     0x31304c5653504d50ull
#define RECORD_BYTES   32
#define BUFFER_RECORDS 1024

struct pms_vlog {
    int fd;
    size_t used; // bytes
    uint8_t buf[BUFFER_RECORDS * RECORD_BYTES];
};

int pms_vlog_flush(struct pms_vlog *log)
{
    size_t at = 0;
    while (at < log->used) {
        ssize_t n = write(log->fd, log->buf + at, log->used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += (size_t)n;
    }
    log->used = 0;
    return 0;
}

static int record_put(struct pms_vlog *log, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    int rc = log->used == sizeof log->buf ? pms_vlog_flush(log) : 0;
    if (rc)
        return rc;
    struct pms_wr w = {.p = log->buf + log->used, .end = log->buf + sizeof log->buf};
    pms_wr_u64(&w, a);
    pms_wr_u64(&w, b);
    pms_wr_u64(&w, c);
    pms_wr_u64(&w, d);
    log->used += RECORD_BYTES;
    return w.err;
}

int pms_vlog_create(struct pms_vlog **out, const char *path, const struct pms_vlog_head *head)
{
    struct pms_vlog *log = calloc(1, sizeof *log);
    if (!log)
        return -ENOMEM;
    log->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (log->fd < 0) {
        int rc = -errno;
        free(log);
        return rc;
    }
    int rc =
        record_put(log, VLOG_MAGIC, head->client, head->lba, head->sectors << 1 | (head->zeroed ? 1 : 0));
    if (!rc)
        rc = pms_vlog_flush(log);
    if (rc) {
        close(log->fd);
        free(log);
        return rc;
    }
    *out = log;
    return 0;
}

int pms_vlog_add(struct pms_vlog *log, enum pms_vlog_kind kind, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    uint64_t what = (uint64_t)kind << 32 | sectors;
    return record_put(log, what, lba, gen, what ^ lba ^ gen ^ VLOG_MAGIC);
}

int pms_vlog_close(struct pms_vlog *log)
{
    if (!log)
        return 0;
    int rc = pms_vlog_flush(log);
    close(log->fd);
    free(log);
    return rc;
}

static int record_get(FILE *f, uint64_t v[4])
{
    uint8_t raw[RECORD_BYTES];
    if (fread(raw, 1, sizeof raw, f) != sizeof raw)
        return -ENODATA; // the end, or a record torn by a kill
    struct pms_rd r = {.p = raw, .end = raw + sizeof raw};
    for (int i = 0; i < 4; i++)
        v[i] = pms_rd_u64(&r);
    return r.err;
}

static int record_apply(struct pms_judge *j, const uint64_t v[4], uint64_t *writes)
{
    if (v[3] != (v[0] ^ v[1] ^ v[2] ^ VLOG_MAGIC))
        return PMS_ECORRUPT;
    uint32_t sectors = (uint32_t)v[0];
    switch (v[0] >> 32) {
    case PMS_VLOG_BEGIN:
        return pms_judge_write_begin(j, v[1], sectors, v[2]);
    case PMS_VLOG_ACK:
        ++*writes;
        return pms_judge_write_ack(j, v[1], sectors, v[2]);
    case PMS_VLOG_UNKNOWN:
        return pms_judge_write_unknown(j, v[1], sectors, v[2]);
    case PMS_VLOG_SEEN:
        return pms_judge_seen(j, v[1], v[2]);
    default:
        return PMS_ECORRUPT;
    }
}

int pms_vlog_replay(const char *path, struct pms_vlog_head *head, struct pms_judge **judge, uint64_t *writes)
{
    uint64_t v[4], acked = 0;
    struct pms_judge *j = NULL;
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    int rc = record_get(f, v);
    if (rc || v[0] != VLOG_MAGIC) {
        rc = PMS_ECORRUPT;
        goto out;
    }
    *head = (struct pms_vlog_head){.client = v[1], .lba = v[2], .sectors = v[3] >> 1, .zeroed = v[3] & 1};
    rc = pms_judge_create(&j, head->client, head->lba, head->sectors, head->zeroed);
    while (!rc && record_get(f, v) == 0)
        rc = record_apply(j, v, &acked);
    if (rc) {
        pms_judge_destroy(j);
        if (rc == -EINVAL || rc == -EBUSY)
            rc = PMS_ECORRUPT;
        goto out;
    }
    *judge = j;
    if (writes)
        *writes = acked;
out:
    fclose(f);
    return rc;
}
