// SPDX-License-Identifier: GPL-2.0-or-later
// Disk requests of one brick through io_uring: short transfers are finished here, errors reported.
#ifndef PMS_DATAPATH_IO_DISK_H
#define PMS_DATAPATH_IO_DISK_H

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
    uint64_t reads, writes, flushes, read_bytes, written_bytes, errors;
};

/* fd stays the caller's, open until inflight is 0. */
void pms_disk_init(struct pms_disk *d, struct pms_uring *uring, int fd,
                   void (*on_done)(void *user, uint64_t tag, int status), void *user);
/* READ into, WRITE from buf->data + buf_off; FLUSH is fdatasync. Takes the reference of buf over (NULL for
 * FLUSH). A read beyond the end of the brick is -EIO. */
void pms_disk_submit(struct pms_disk *d, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset,
                     uint32_t length, struct pms_iobuf *buf, uint32_t buf_off);

#endif
