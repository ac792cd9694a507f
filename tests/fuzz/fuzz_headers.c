// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes as a frame's header and as a brick's superblock and bitmap page, with and without a right checksum.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/wire.h"
#include "datapath/core/frame.h"
#include "datapath/core/meta.h"

static void frame(const uint8_t *data, size_t size)
{
    uint8_t head[PMS_FRAME_HEADER_BYTES] = {0}, again[PMS_FRAME_HEADER_BYTES];
    struct pms_frame f;

    memcpy(head, data, size < sizeof head ? size : sizeof head);
    (void)pms_frame_decode(head, 1, &f);
    pms_put_u64(head + sizeof head - 8, XXH3_64bits(head, sizeof head - 8));
    if (pms_frame_decode(head, 1, &f) != 0)
        return;
    pms_frame_encode(&f, 1, again);
    PMS_CHECK(pms_frame_decode(again, 1, &f) == 0); /* the six zero bytes may differ, all else stays */
}

static void pages(const uint8_t *data, size_t size)
{
    static uint8_t area[8 * PMS_META_PAGE_BYTES];
    static uint8_t bits[2 * PMS_META_PAGE_BYTES];
    struct pms_meta m;
    uint64_t generation;

    memset(area, 0, sizeof area);
    memcpy(area, data, size < sizeof area ? size : sizeof area);
    (void)pms_meta_super_load(area, &m);
    pms_meta_page_load(2, 0, area, bits, 40000, &generation);
    for (size_t at = 0; at < sizeof area; at += PMS_META_PAGE_BYTES) {
        memset(area + at + 8, 0, 8);
        pms_put_u64(area + at + 8, XXH3_64bits(area + at, PMS_META_PAGE_BYTES));
    }
    (void)pms_meta_super_load(area, &m);
    pms_meta_page_load(2, 0, area, bits, 40000, &generation);
    pms_meta_page_load(2, 1, area, bits, 40000, &generation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frame(data, size);
    pages(data, size);
    return 0;
}
