// SPDX-License-Identifier: GPL-2.0-or-later
// Disk requests of one brick through io_uring: short transfers are finished here, errors reported.
#ifndef PMS_DATAPATH_IO_DISK_H
#define PMS_DATAPATH_IO_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "datapath/core/dp.h"
#include "datapath/core/iobuf.h"
#include "datapath/io/uring.h"

struct pms_disk {
    struct pms_uring *uring;
    int fd;
    unsigned inflight;
    void (*on_done)(void *user, uint64_t tag,
                    int status); /* from pms_uring_complete; the buffer is put after it */
    void *user;
    uint64_t reads, writes, flushes, zeroings, read_bytes, written_bytes, errors;
    bool zeroes_badly; /* the file system or device cannot zero a range by itself: zeros are written */
};

/* fd stays the caller's, open until inflight is 0. */
void pms_disk_init(struct pms_disk *d, struct pms_uring *uring, int fd,
                   void (*on_done)(void *user, uint64_t tag, int status), void *user);
/* READ into, WRITE from buf->data + buf_off; FLUSH is fdatasync; ZERO keeps the space reserved (fallocate's ZERO_RANGE,
 * or zeros written where that is not to be had). Takes the reference of buf over (NULL for FLUSH and ZERO). A read beyond the end of the brick is -EIO. */
void pms_disk_submit(struct pms_disk *d, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset,
                     uint32_t length, struct pms_iobuf *buf, uint32_t buf_off);

#endif
