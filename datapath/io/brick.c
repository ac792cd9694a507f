// SPDX-License-Identifier: GPL-2.0-or-later
// Making, locking, checking and removing bricks with plain system calls.
#include "datapath/io/brick.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/util.h"
#include "base/wire.h"
#include "datapath/core/meta.h"

#define CHUNK_BYTES  (4u << 20)
#define SUPER_MAGIC  0x42534d50u /* first bytes of each superblock copy, see meta.c */
#define LOCK_STEP_MS 10u
#define NEW_SUFFIX   ".new"

PMS_STATIC_ASSERT(CHUNK_BYTES == PMS_BRICK_DATA_OFFSET, "one buffer serves for both");

static bool all_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static int read_full(int fd, uint8_t *p, size_t n, uint64_t off)
{
    while (n > 0) {
        ssize_t k = pread(fd, p, n, (off_t)off);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -ENODATA;
        p += k;
        n -= (size_t)k;
        off += (size_t)k;
    }
    return 0;
}

static int write_full(int fd, const uint8_t *p, size_t n, uint64_t off)
{
    while (n > 0) {
        ssize_t k = pwrite(fd, p, n, (off_t)off);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        n -= (size_t)k;
        off += (size_t)k;
    }
    return 0;
}

/* Bytes of a file or a device. */
static int size_get(int fd, bool *device, uint64_t *bytes)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return -errno;
    *device = S_ISBLK(st.st_mode);
    if (*device)
        return ioctl(fd, BLKGETSIZE64, bytes) == 0 ? 0 : -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static uint64_t brick_bytes(const struct pms_brick_id *id)
{
    return PMS_BRICK_DATA_OFFSET + id->init->size_bytes;
}

/* ---- identity ---- */

/* What is in this metadata area? 0: the brick of id. */
static int area_check(const struct pms_brick_id *id, const uint8_t *area, uint64_t *incarnation)
{
    const struct pms_dp_init *want = id->init;
    struct pms_meta m;
    int rc = pms_meta_super_load(area, &m);

    if (rc == PMS_ECORRUPT && pms_get_u32(area) != SUPER_MAGIC &&
        pms_get_u32(area + PMS_META_PAGE_BYTES) != SUPER_MAGIC && !all_zero(area, PMS_BRICK_DATA_OFFSET))
        return PMS_EREFUSED;
    if (rc != 0)
        return rc;
    if (memcmp(m.cluster, id->cluster_uuid.b, sizeof m.cluster) != 0 || m.array != want->array ||
        m.node != want->self_node || m.slot != want->self_slot || m.size_bytes != want->size_bytes ||
        m.region_bytes != want->region_bytes)
        return PMS_EIDENTITY;
    *incarnation = m.incarnation;
    return 0;
}

static int area_read(int fd, uint8_t **out)
{
    uint8_t *area = aligned_alloc(PMS_BLOCK_BYTES, PMS_BRICK_DATA_OFFSET);
    int rc;

    if (area == NULL)
        return -ENOMEM;
    rc = read_full(fd, area, PMS_BRICK_DATA_OFFSET, 0);
    if (rc != 0) {
        free(area);
        return rc;
    }
    *out = area;
    return 0;
}

/* Looks at what is at an existing path. 0: our brick. PMS_ECORRUPT also means: nothing but zeros in the area.
 */
static int fd_check(int fd, const struct pms_brick_id *id, uint64_t *incarnation)
{
    uint8_t *area;
    int rc = area_read(fd, &area);

    if (rc != 0)
        return rc == -ENODATA ? PMS_EREFUSED : rc; /* shorter than any brick */
    rc = area_check(id, area, incarnation);
    free(area);
    return rc;
}

/* ---- open ---- */

static bool cancelled(atomic_bool *cancel)
{
    return cancel != NULL && atomic_load(cancel);
}

/* Opens and locks; retries while somebody else holds it. */
static int open_locked(const char *path, uint32_t wait_ms, atomic_bool *cancel, int *out)
{
    uint64_t until = pms_clock_boot_ns() + wait_ms * 1000000ull;
    const struct timespec step = {.tv_nsec = LOCK_STEP_MS * 1000000L};
    struct stat st;

    for (;;) {
        int fd, err = stat(path, &st) == 0 ? 0 : errno;

        if (err != 0)
            return -err;
        if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
            return -EINVAL;
        fd = open(path, O_RDWR | O_CLOEXEC | (S_ISBLK(st.st_mode) ? O_EXCL : 0));
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *out = fd;
            return 0;
        }
        err = errno;
        if (fd >= 0)
            close(fd);
        if (err != EWOULDBLOCK && err != EBUSY && err != EINTR)
            return -err;
        if (cancelled(cancel))
            return -ECANCELED;
        if (pms_clock_boot_ns() >= until)
            return PMS_EBUSY;
        nanosleep(&step, NULL);
    }
}

/* Switches to O_DIRECT if 512 bytes are enough for offsets and for memory. */
static bool direct_enable(int fd)
{
    struct statx sx;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) != 0 ||
        !(sx.stx_mask & STATX_DIOALIGN))
        return false;
    if (sx.stx_dio_offset_align == 0 || sx.stx_dio_offset_align > PMS_SECTOR_BYTES ||
        sx.stx_dio_mem_align > PMS_SECTOR_BYTES)
        return false;
    return fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

int pms_brick_open(const struct pms_brick_id *id, uint32_t wait_ms, atomic_bool *cancel,
                   struct pms_brick *out)
{
    struct pms_brick b = {.fd = -1};
    uint64_t bytes = 0;
    bool device = false;
    int rc = open_locked(id->path, wait_ms, cancel, &b.fd);

    if (rc != 0)
        return rc;
    rc = size_get(b.fd, &device, &bytes);
    /* What a killed process wrote may lie in a cache only; all that is read from here on counts as stable. */
    if (rc == 0 && fdatasync(b.fd) != 0)
        rc = -errno;
    if (rc == 0)
        rc = area_read(b.fd, &b.area);
    if (rc == -ENODATA)
        rc = PMS_EREFUSED;
    if (rc == 0)
        rc = area_check(id, b.area, &b.incarnation);
    if (rc == 0 && bytes < brick_bytes(id))
        rc = PMS_ECORRUPT; /* cut short */
    if (rc != 0) {
        free(b.area);
        close(b.fd);
        return rc;
    }
    b.direct = direct_enable(b.fd);
    *out = b;
    return 0;
}

/* ---- create ---- */

struct creation {
    const struct pms_brick_id *id;
    atomic_bool *cancel;
    pms_brick_progress_fn *progress;
    void *arg;
    uint8_t *chunk; /* CHUNK_BYTES */
    uint64_t done, total;
};

static int step(struct creation *c, uint64_t bytes)
{
    c->done += bytes;
    if (c->progress != NULL)
        c->progress(c->arg, c->done, c->total);
    return cancelled(c->cancel) ? -ECANCELED : 0;
}

/* Reads all that the file system does not know to be a hole or unwritten. PMS_ECORRUPT: something is not
 * zero. */
static int zero_verify(struct creation *c, int fd, uint64_t bytes)
{
    uint64_t off = 0;
    int rc = 0;

    while (rc == 0 && off < bytes) {
        off_t data = lseek(fd, (off_t)off, SEEK_DATA);
        uint64_t n;

        if (data < 0 && errno == ENXIO)
            return 0;
        if (data >= 0 && (uint64_t)data > off)
            off = (uint64_t)data;
        if (off >= bytes)
            return 0;
        n = bytes - off < CHUNK_BYTES ? bytes - off : CHUNK_BYTES;
        rc = read_full(fd, c->chunk, n, off);
        if (rc == 0 && !all_zero(c->chunk, n))
            rc = PMS_ECORRUPT;
        if (rc == 0)
            rc = step(c, n);
        off += n;
    }
    return rc;
}

static int zero_write(struct creation *c, int fd, bool device, uint64_t bytes)
{
    int rc = 0;

    memset(c->chunk, 0, CHUNK_BYTES);
    for (uint64_t off = 0; rc == 0 && off < bytes; off += CHUNK_BYTES) {
        uint64_t n = bytes - off < CHUNK_BYTES ? bytes - off : CHUNK_BYTES;
        uint64_t range[2] = {off, n};

        if (!device || ioctl(fd, BLKZEROOUT, range) != 0)
            rc = write_full(fd, c->chunk, n, off);
        if (rc == 0)
            rc = step(c, n);
    }
    return rc;
}

/* The superblocks go last, after a flush: without them it is no brick. */
static int meta_write(struct creation *c, int fd, uint64_t incarnation, bool all_dirty)
{
    const uint32_t supers = 2 * PMS_META_PAGE_BYTES;
    int rc;

    memset(c->chunk, 0, PMS_BRICK_DATA_OFFSET);
    rc = pms_dp_brick_format(c->chunk, c->id->cluster_uuid.b, c->id->init, incarnation, all_dirty);
    if (rc == 0)
        rc = write_full(fd, c->chunk + supers, PMS_BRICK_DATA_OFFSET - supers, supers);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    if (rc == 0)
        rc = write_full(fd, c->chunk, supers, 0);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    return rc;
}

static int dir_sync(const char *path)
{
    char copy[PATH_MAX];
    int fd, rc;

    snprintf(copy, sizeof copy, "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return rc;
}

static int file_fill(struct creation *c, int fd, uint64_t incarnation, bool all_dirty)
{
    uint64_t bytes = brick_bytes(c->id);
    int rc = ftruncate(fd, 0) == 0 ? 0 : -errno; /* left by a creation that crashed */

    if (rc == 0 && fallocate(fd, 0, 0, (off_t)bytes) != 0)
        rc = -errno;
    if (rc == -EOPNOTSUPP)
        rc = zero_write(c, fd, false, bytes);
    if (rc == 0)
        rc = zero_verify(c, fd, bytes);
    if (rc == 0)
        rc = meta_write(c, fd, incarnation, all_dirty);
    return rc;
}

static int file_create(struct creation *c, uint64_t incarnation, bool all_dirty)
{
    char tmp[PATH_MAX];
    int fd, rc;

    /* The array's random id is in the name: what lies there is the rest of an attempt of ours and of nobody
     * else. */
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.%016" PRIx64 NEW_SUFFIX, c->id->path, c->id->init->array) >=
        sizeof tmp)
        return -ENAMETOOLONG;
    fd = open(tmp, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return PMS_EBUSY; /* another creation is at it: its file is not ours to remove */
    }
    rc = file_fill(c, fd, incarnation, all_dirty);
    if (rc == 0 && renameat2(AT_FDCWD, tmp, AT_FDCWD, c->id->path, RENAME_NOREPLACE) != 0)
        rc = -errno;
    if (rc == 0)
        rc = dir_sync(c->id->path);
    else
        unlink(tmp);
    close(fd);
    return rc;
}

/* A device must be empty at its start and its end, where file systems, partition tables and volume managers
 * leave their marks. */
static int device_create(struct creation *c, int fd, uint64_t device_bytes, uint64_t incarnation,
                         bool all_dirty)
{
    uint64_t bytes = brick_bytes(c->id);
    int rc;

    if (device_bytes < bytes)
        return -ENOSPC;
    rc = read_full(fd, c->chunk, CHUNK_BYTES, device_bytes - CHUNK_BYTES);
    if (rc == 0 && !all_zero(c->chunk, CHUNK_BYTES))
        rc = PMS_EREFUSED;
    c->total = 2 * bytes;
    if (rc == 0)
        rc = zero_write(c, fd, true, bytes);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    if (rc == 0)
        rc = zero_verify(c, fd, bytes);
    if (rc == 0)
        rc = meta_write(c, fd, incarnation, all_dirty);
    return rc;
}

/* Something is at the path: our brick, a device that may become one, or not ours. */
static int existing_create(struct creation *c, uint64_t incarnation, bool all_dirty,
                           uint64_t *incarnation_there)
{
    uint64_t bytes = 0;
    bool device = false;
    int fd = -1, rc = open_locked(c->id->path, 0, c->cancel, &fd);

    if (rc != 0)
        return rc;
    rc = size_get(fd, &device, &bytes);
    if (rc == 0)
        rc = fd_check(fd, c->id, incarnation_there);
    if (rc == 0)
        rc = PMS_EEXISTS;
    else if (rc == PMS_ECORRUPT && device)
        rc = read_full(fd, c->chunk, CHUNK_BYTES, 0);
    else if (rc == PMS_ECORRUPT && !device)
        rc = PMS_EREFUSED; /* a file of zeros or a damaged brick: made by somebody, not by us */
    if (rc == 0)           /* a device without superblock */
        rc = all_zero(c->chunk, CHUNK_BYTES) ? device_create(c, fd, bytes, incarnation, all_dirty)
                                             : PMS_EREFUSED;
    close(fd);
    return rc;
}

int pms_brick_create(const struct pms_brick_id *id, uint64_t incarnation, bool all_dirty, atomic_bool *cancel,
                     pms_brick_progress_fn *progress, void *arg, uint64_t *incarnation_there)
{
    struct creation c = {
        .id = id, .cancel = cancel, .progress = progress, .arg = arg, .total = brick_bytes(id)};
    struct stat st;
    int rc;

    if (incarnation == 0 || id->init->size_bytes == 0 || id->init->size_bytes % PMS_SECTOR_BYTES != 0)
        return -EINVAL;
    c.chunk = aligned_alloc(PMS_BLOCK_BYTES, CHUNK_BYTES);
    if (c.chunk == NULL)
        return -ENOMEM;
    if (stat(id->path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = -EISDIR;
    else if (stat(id->path, &st) == 0)
        rc = existing_create(&c, incarnation, all_dirty, incarnation_there);
    else
        rc = errno == ENOENT ? file_create(&c, incarnation, all_dirty) : -errno;
    free(c.chunk);
    return rc;
}

/* ---- delete ---- */

static int device_wipe(int fd)
{
    uint8_t *zeros = calloc(1, PMS_BRICK_DATA_OFFSET);
    int rc;

    if (zeros == NULL)
        return -ENOMEM;
    rc = write_full(fd, zeros, PMS_BRICK_DATA_OFFSET, 0);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    free(zeros);
    return rc;
}

int pms_brick_delete(const struct pms_brick_id *id)
{
    uint64_t bytes = 0, incarnation = 0;
    bool device = false;
    struct stat st;
    int fd = -1, rc;

    if (stat(id->path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return PMS_EREFUSED; /* a folder, say: no brick of anybody */
    rc = open_locked(id->path, 0, NULL, &fd);
    if (rc != 0)
        return rc == -ENOENT ? 0 : rc;
    rc = size_get(fd, &device, &bytes);
    if (rc == 0)
        rc = fd_check(fd, id, &incarnation);
    if (rc == 0 && device)
        rc = device_wipe(fd);
    else if (rc == 0 && unlink(id->path) != 0)
        rc = -errno;
    else if (rc == 0)
        rc = dir_sync(id->path);
    close(fd);
    return rc;
}
