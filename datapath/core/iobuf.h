// SPDX-License-Identifier: GPL-2.0-or-later
// A reference-counted piece of payload memory that travels from socket or ring to disk without a copy (I11).
#ifndef PMS_DATAPATH_CORE_IOBUF_H
#define PMS_DATAPATH_CORE_IOBUF_H

#include <stdint.h>

/* One thread owns a buffer and all its references. Memory made by pms_iobuf_create is aligned to 4096 bytes,
 * so that it may go to a disk opened with O_DIRECT. A driver may embed the struct and give its own release.
 */
struct pms_iobuf {
    uint8_t *data;
    uint32_t len;                         /* bytes */
    uint32_t refs;                        /* the last put calls release */
    void (*release)(struct pms_iobuf *b); /* frees the memory, or gives it back to its pool or ring */
    void *owner;                          /* free for release */
};

/* A buffer of len bytes (contents undefined) with one reference; stops the process when memory is out. */
struct pms_iobuf *pms_iobuf_create(uint32_t len);
struct pms_iobuf *pms_iobuf_ref(struct pms_iobuf *b);
/* Drops one reference; NULL is allowed. */
void pms_iobuf_put(struct pms_iobuf *b);

#endif
