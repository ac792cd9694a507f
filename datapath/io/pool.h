// SPDX-License-Identifier: GPL-2.0-or-later
// Payload buffers of the data loop by size class, with a cap on what is in use: the back pressure on the
// links.
#ifndef PMS_DATAPATH_IO_POOL_H
#define PMS_DATAPATH_IO_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "datapath/core/iobuf.h"

#define PMS_POOL_CLASSES 11u /* 4 KiB, 8 KiB ... 4 MiB */

/* One thread. All buffers must be back before deinit. */
struct pms_pool {
    struct pool_buf *free[PMS_POOL_CLASSES];
    uint64_t used_bytes, used_bytes_max; /* by class size, handed out now and at most */
    uint64_t kept_bytes;                 /* on the free lists */
    uint64_t cap_bytes;
    bool released; /* set whenever a buffer comes back; who waits for room clears it */
};

void pms_pool_init(struct pms_pool *pool, uint64_t cap_bytes);
void pms_pool_deinit(struct pms_pool *pool);
/* A buffer of len bytes (1 .. 4 MiB), aligned to 4096, with one reference. NULL: the cap is reached, or
 * memory is out; then try again when pool->released is set. One buffer is always granted, whatever the cap.
 */
struct pms_iobuf *pms_pool_get(struct pms_pool *pool, uint32_t len);

#endif
