// SPDX-License-Identifier: GPL-2.0-or-later
// One struct per request; a transfer that ends early goes on where it stopped; a range that cannot be zeroed at once is
// overwritten piece by piece.
#include "datapath/io/disk.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdalign.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/list.h"

#define ZEROS_BYTES (256u << 10)
#define RANGE_MIN   (64u << 10) /* what is shorter is written: cheaper than to change a file's extents */

static alignas(PMS_BLOCK_BYTES) uint8_t zeros[ZEROS_BYTES];

struct disk_req {
    struct pms_uring_op op;
    struct pms_disk *disk;
    enum pms_dp_disk_type type;
    uint64_t tag, offset;
    uint32_t length, done;
    struct pms_iobuf *buf;
    uint32_t buf_off;
    bool range; /* ZERO: by fallocate, all at once */
};

static void zero_start(struct disk_req *r, struct io_uring_sqe *sqe)
{
    uint32_t left = r->length - r->done;

    if (r->range)
        io_uring_prep_fallocate(sqe, r->disk->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, r->offset,
                                r->length);
    else
        io_uring_prep_write(sqe, r->disk->fd, zeros, left < ZEROS_BYTES ? left : ZEROS_BYTES,
                            r->offset + r->done);
}

static void req_start(struct disk_req *r)
{
    struct pms_disk *d = r->disk;
    struct io_uring_sqe *sqe = pms_uring_sqe(d->uring);
    uint8_t *p = r->buf != NULL ? r->buf->data + r->buf_off + r->done : NULL;

    switch (r->type) {
    case PMS_DP_DISK_READ:
        io_uring_prep_read(sqe, d->fd, p, r->length - r->done, r->offset + r->done);
        break;
    case PMS_DP_DISK_WRITE:
        io_uring_prep_write(sqe, d->fd, p, r->length - r->done, r->offset + r->done);
        break;
    case PMS_DP_DISK_FLUSH:
        io_uring_prep_fsync(sqe, d->fd, IORING_FSYNC_DATASYNC);
        break;
    case PMS_DP_DISK_ZERO:
        zero_start(r, sqe);
        break;
    }
    pms_uring_start(d->uring, sqe, &r->op);
}

/* The file system or device cannot do it, or not now (ENOSPC: for what describes the range, not for the range). */
static bool is_range_refused(int res)
{
    return res == -EOPNOTSUPP || res == -ENOSYS || res == -EINVAL || res == -ENODEV || res == -ENOSPC;
}

static void on_disk(struct pms_uring_op *op, int res)
{
    struct disk_req *r = pms_list_entry(op, struct disk_req, op);
    struct pms_disk *d = r->disk;
    struct pms_iobuf *buf = r->buf;

    if (res == -EINTR || res == -EAGAIN) { /* a signal or no memory for it just now: nothing was tried */
        req_start(r);
        return;
    }
    if (r->range && is_range_refused(res)) {
        d->zeroes_badly |= res != -ENOSPC;
        r->range = false;
        req_start(r);
        return;
    }
    if (res >= 0 && r->type != PMS_DP_DISK_FLUSH && !r->range) {
        r->done += (uint32_t)res;
        if (res > 0 && r->done < r->length) {
            req_start(r);
            return;
        }
        res = r->done == r->length ? 0 : -EIO; /* end of the file */
    }
    d->inflight--;
    if (res < 0)
        d->errors++;
    d->on_done(d->user, r->tag, res);
    pms_iobuf_put(buf);
    free(r);
}

void pms_disk_init(struct pms_disk *d, struct pms_uring *uring, int fd,
                   void (*on_done)(void *user, uint64_t tag, int status), void *user)
{
    *d = (struct pms_disk){.uring = uring, .fd = fd, .on_done = on_done, .user = user};
}

void pms_disk_submit(struct pms_disk *d, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset,
                     uint32_t length, struct pms_iobuf *buf, uint32_t buf_off)
{
    struct disk_req *r = malloc(sizeof *r);

    PMS_CHECK_MSG(r != NULL, "out of memory");
    PMS_CHECK(type == PMS_DP_DISK_FLUSH || (type == PMS_DP_DISK_ZERO && length > 0 && buf == NULL) ||
              (length > 0 && buf != NULL && length <= buf->len && buf_off <= buf->len - length));
    *r = (struct disk_req){.disk = d, .type = type, .tag = tag, .offset = offset, .length = length};
    r->op.done = on_disk;
    r->buf = buf;
    r->buf_off = buf_off;
    /* Whole blocks only: else the file system zeroes the rest in its cache, beside the direct I/O of others. */
    r->range = type == PMS_DP_DISK_ZERO && !d->zeroes_badly && length >= RANGE_MIN &&
               offset % PMS_BLOCK_BYTES == 0 && length % PMS_BLOCK_BYTES == 0;
    d->inflight++;
    d->reads += type == PMS_DP_DISK_READ;
    d->writes += type == PMS_DP_DISK_WRITE;
    d->flushes += type == PMS_DP_DISK_FLUSH;
    d->zeroings += type == PMS_DP_DISK_ZERO;
    d->read_bytes += type == PMS_DP_DISK_READ ? length : 0;
    d->written_bytes += type == PMS_DP_DISK_WRITE ? length : 0;
    req_start(r);
}
