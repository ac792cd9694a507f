// SPDX-License-Identifier: GPL-2.0-or-later
// Bricks as files and block devices: create, open under a lock, delete. Blocking: for worker threads, never
// for the data loop.
#ifndef PMS_DATAPATH_IO_BRICK_H
#define PMS_DATAPATH_IO_BRICK_H

/*
 * create: the file is made as PATH.new, preallocated, verified to be zero, given its metadata, made stable,
 * and only then renamed to PATH: a crash leaves a brick or none. A device is zeroed, verified, and gets its
 * metadata last. open:   exclusive lock (flock of the open file description; for a device O_EXCL as well).
 * Requests of io_uring outlive the process that was killed and hold its description, so the lock is free only
 * when the last old write has ended (R5).
 *
 * Refusals: PMS_EREFUSED: data that is not ours. PMS_EIDENTITY: a brick of another cluster, array, slot or
 * node, or of another size. PMS_ECORRUPT: ours, but no valid superblock. PMS_EVERSION. PMS_EBUSY: locked.
 * -ENOENT ...
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "datapath/core/dp.h"

struct pms_brick_id {
    const char *path;
    struct pms_uuid cluster_uuid;
    const struct pms_dp_init *init; /* array, self_node, self_slot, size_bytes, region_bytes count */
};

struct pms_brick {
    int fd;
    bool direct; /* open with O_DIRECT: offsets, lengths and memory in multiples of 512 bytes */
    uint8_t
        *area; /* PMS_BRICK_DATA_OFFSET bytes of metadata as read, heap; for pms_dp_create, then free it */
    uint64_t incarnation;
};

/* done, total: bytes. Called now and then from create. */
typedef void pms_brick_progress_fn(void *arg, uint64_t done, uint64_t total);

/* 0, or PMS_EEXISTS if this very brick is there already: then *incarnation_there is its incarnation. cancel:
 * becomes true when the work is to be given up (-ECANCELED). progress may be NULL. */
int pms_brick_create(const struct pms_brick_id *id, uint64_t incarnation, bool all_dirty, atomic_bool *cancel,
                     pms_brick_progress_fn *progress, void *arg, uint64_t *incarnation_there);
/* Waits for the lock at most wait_ms. On success the caller closes out->fd and frees out->area. */
int pms_brick_open(const struct pms_brick_id *id, uint32_t wait_ms, atomic_bool *cancel,
                   struct pms_brick *out);
/* Unlinks a file, wipes a device's metadata. 0 also if no file is there. */
int pms_brick_delete(const struct pms_brick_id *id);

#endif
