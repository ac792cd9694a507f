// SPDX-License-Identifier: GPL-2.0-or-later
// A brick's metadata pages: superblock and dirty bitmap, each in two copies written in turn.
#ifndef PMS_DATAPATH_CORE_META_H
#define PMS_DATAPATH_CORE_META_H

/*
 * Layout of [0, PMS_BRICK_DATA_OFFSET), pages of 4096 bytes, all integers little-endian:
 *
 *   0      superblock, copy 0        generation g is written to copy g % 2, so the last durable one is never
 *   4096   superblock, copy 1        overwritten and a torn page costs nothing
 *   8192 + (2 i + c) * 4096          bitmap page i, copy c: PMS_META_PAGE_BITS regions each, 1 = dirty
 *
 * A copy counts if magic, checksum and identity are right; the higher generation wins. A bitmap page with no
 * valid copy reads as all dirty, which is safe.
 */

#include <stdbool.h>
#include <stdint.h>

#define PMS_META_PAGE_BYTES  4096u
#define PMS_META_PAGE_HEADER 32u
#define PMS_META_PAGE_BITS   ((PMS_META_PAGE_BYTES - PMS_META_PAGE_HEADER) * 8u)

struct pms_meta {
    uint32_t version; /* of the superblock: as read, and to be written */
    uint8_t cluster[16];
    uint64_t array, node;
    uint64_t size_bytes;
    uint32_t region_bytes;
    uint8_t slot;
    uint64_t incarnation;
    uint64_t floor;  /* highest epoch promised or obeyed (I2) */
    uint64_t served; /* highest epoch this node started to serve (R2) */
    uint64_t
        volatile_boot; /* acknowledged data may be volatile; the host's boot that it is of (0: none is) */
    uint64_t ancestor; /* the incarnation that this brick was before it may have lost such data (0: none) */
    uint64_t generation;
};

/* Regions of an array, and the bitmap pages that hold them. */
uint32_t pms_meta_regions(uint64_t size_bytes, uint32_t region_bytes);
uint32_t pms_meta_pages(uint32_t regions);

/* Writes one 4096-byte page. The generation chooses the copy: see pms_meta_super_offset. */
void pms_meta_super_encode(const struct pms_meta *m, uint8_t *page);
/* 0, PMS_ECORRUPT, or PMS_EVERSION: intact, but not of pms_brick_versions. */
int pms_meta_super_decode(const uint8_t *page, struct pms_meta *m);
/* The better of both copies in a metadata area. 0, PMS_ECORRUPT (none is valid) or PMS_EVERSION: one copy is newer
 * than this build reads (so the other one is out of date), or both are older. */
int pms_meta_super_load(const uint8_t *area, struct pms_meta *m);
uint64_t pms_meta_super_offset(uint64_t generation);

/* bits: the whole bitmap; page i takes its part. */
void pms_meta_page_encode(uint64_t array, uint32_t i, uint64_t generation, const uint8_t *bits,
                          uint32_t regions, uint8_t *page);
/* Fills page i's part of bits and its generation from the area; all ones and generation 0 if no copy is
 * valid. */
void pms_meta_page_load(uint64_t array, uint32_t i, const uint8_t *area, uint8_t *bits, uint32_t regions,
                        uint64_t *generation);
uint64_t pms_meta_page_offset(uint32_t i, uint64_t generation);

#endif
