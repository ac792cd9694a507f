// SPDX-License-Identifier: GPL-2.0-or-later
// Encoding and choosing of a brick's metadata pages.
#include "datapath/core/meta.h"

#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/version.h"
#include "base/wire.h"

#define SUPER_MAGIC 0x42534d50u /* "PMSB" */
#define PAGE_MAGIC  0x44534d50u /* "PMSD" */

uint32_t pms_meta_regions(uint64_t size_bytes, uint32_t region_bytes)
{
    return (uint32_t)((size_bytes + region_bytes - 1) / region_bytes);
}

uint32_t pms_meta_pages(uint32_t regions)
{
    return (regions + PMS_META_PAGE_BITS - 1) / PMS_META_PAGE_BITS;
}

uint64_t pms_meta_super_offset(uint64_t generation)
{
    return (generation & 1) * PMS_META_PAGE_BYTES;
}

uint64_t pms_meta_page_offset(uint32_t i, uint64_t generation)
{
    return (2 + 2 * (uint64_t)i + (generation & 1)) * PMS_META_PAGE_BYTES;
}

void pms_meta_super_encode(const struct pms_meta *m, uint8_t *page)
{
    struct pms_wr w = {page, page + PMS_META_PAGE_BYTES, 0};

    memset(page, 0, PMS_META_PAGE_BYTES);
    pms_wr_u32(&w, SUPER_MAGIC);
    pms_wr_u32(&w, m->version);
    pms_wr_u64(&w, 0); /* checksum, below */
    pms_wr_u64(&w, m->generation);
    pms_wr_bytes(&w, m->cluster, sizeof m->cluster);
    pms_wr_u64(&w, m->array);
    pms_wr_u64(&w, m->node);
    pms_wr_u64(&w, m->size_bytes);
    pms_wr_u32(&w, m->region_bytes);
    pms_wr_u32(&w, m->slot);
    pms_wr_u64(&w, m->incarnation);
    pms_wr_u64(&w, m->floor);
    pms_wr_u64(&w, m->served);
    pms_wr_u64(&w, m->volatile_boot);
    pms_wr_u64(&w, m->ancestor);

    struct pms_wr sum = {page + 8, page + 16, 0};
    pms_wr_u64(&sum, XXH3_64bits(page, PMS_META_PAGE_BYTES));
}

/* The page with its checksum field at byte 8 zeroed has this checksum. */
static uint64_t page_sum(const uint8_t *page)
{
    uint8_t copy[PMS_META_PAGE_BYTES];

    memcpy(copy, page, sizeof copy);
    memset(copy + 8, 0, 8);
    return XXH3_64bits(copy, sizeof copy);
}

/* As pms_meta_super_decode; after PMS_EVERSION too *version is the page's. */
static int super_read(const uint8_t *page, struct pms_meta *m, uint32_t *version)
{
    struct pms_rd r = {page, page + PMS_META_PAGE_BYTES, 0};
    struct pms_meta out;

    if (pms_rd_u32(&r) != SUPER_MAGIC)
        return PMS_ECORRUPT;
    *version = pms_rd_u32(&r);
    if (pms_rd_u64(&r) != page_sum(page))
        return PMS_ECORRUPT;
    if (!pms_versions_has(pms_brick_versions, *version))
        return PMS_EVERSION;
    memset(&out, 0, sizeof out);
    out.version = *version;
    out.generation = pms_rd_u64(&r);
    pms_rd_bytes(&r, out.cluster, sizeof out.cluster);
    out.array = pms_rd_u64(&r);
    out.node = pms_rd_u64(&r);
    out.size_bytes = pms_rd_u64(&r);
    out.region_bytes = pms_rd_u32(&r);
    out.slot = (uint8_t)pms_rd_u32(&r);
    out.incarnation = pms_rd_u64(&r);
    out.floor = pms_rd_u64(&r);
    out.served = pms_rd_u64(&r);
    out.volatile_boot = pms_rd_u64(&r);
    out.ancestor = pms_rd_u64(&r);
    *m = out;
    return 0;
}

int pms_meta_super_decode(const uint8_t *page, struct pms_meta *m)
{
    uint32_t version;

    return super_read(page, m, &version);
}

int pms_meta_super_load(const uint8_t *area, struct pms_meta *m)
{
    struct pms_meta a, b;
    uint32_t va = 0, vb = 0;
    int ra = super_read(area, &a, &va);
    int rb = super_read(area + PMS_META_PAGE_BYTES, &b, &vb);

    /* Versions never go down in a brick: the other copy is what was so before the newer pms came. */
    if ((ra == PMS_EVERSION && va > pms_brick_versions.max) ||
        (rb == PMS_EVERSION && vb > pms_brick_versions.max))
        return PMS_EVERSION;
    if (ra != 0 && rb != 0)
        return ra == PMS_EVERSION || rb == PMS_EVERSION ? PMS_EVERSION : PMS_ECORRUPT;
    *m = ra == 0 && (rb != 0 || a.generation > b.generation) ? a : b;
    return 0;
}

static void page_part(uint32_t i, uint32_t regions, size_t *at, size_t *bytes)
{
    uint32_t bits = regions - i * PMS_META_PAGE_BITS;

    if (bits > PMS_META_PAGE_BITS)
        bits = PMS_META_PAGE_BITS;
    *at = (size_t)i * (PMS_META_PAGE_BITS / 8);
    *bytes = (bits + 7) / 8;
}

void pms_meta_page_encode(uint64_t array, uint32_t i, uint64_t generation, const uint8_t *bits,
                          uint32_t regions, uint8_t *page)
{
    struct pms_wr w = {page, page + PMS_META_PAGE_BYTES, 0};
    size_t at, bytes;

    memset(page, 0, PMS_META_PAGE_BYTES);
    pms_wr_u32(&w, PAGE_MAGIC);
    pms_wr_u32(&w, i);
    pms_wr_u64(&w, 0); /* checksum */
    pms_wr_u64(&w, generation);
    pms_wr_u64(&w, array);
    page_part(i, regions, &at, &bytes);
    memcpy(page + PMS_META_PAGE_HEADER, bits + at, bytes);

    struct pms_wr sum = {page + 8, page + 16, 0};
    pms_wr_u64(&sum, XXH3_64bits(page, PMS_META_PAGE_BYTES));
}

void pms_meta_page_load(uint64_t array, uint32_t i, const uint8_t *area, uint8_t *bits, uint32_t regions,
                        uint64_t *generation)
{
    const uint8_t *best = NULL;
    size_t at, bytes;

    *generation = 0;
    for (uint64_t c = 0; c < 2; c++) {
        const uint8_t *page = area + pms_meta_page_offset(i, c);
        struct pms_rd r = {page, page + PMS_META_PAGE_BYTES, 0};

        if (pms_rd_u32(&r) != PAGE_MAGIC || pms_rd_u32(&r) != i || pms_rd_u64(&r) != page_sum(page))
            continue;
        uint64_t g = pms_rd_u64(&r);
        if (pms_rd_u64(&r) != array || g < *generation)
            continue;
        best = page;
        *generation = g;
    }
    page_part(i, regions, &at, &bytes);
    if (best != NULL)
        memcpy(bits + at, best + PMS_META_PAGE_HEADER, bytes);
    else
        memset(bits + at, 0xff, bytes);
}
