// SPDX-License-Identifier: GPL-2.0-or-later
// The own brick's durable side: floor and served epoch, dirty marks, grouped flushes.
/*
 * Happy path: a change of the superblock or a new dirty mark wants a commit; the changed pages are written to
 * their other copies, then one flush, shared with the data writes that wait for one, makes all durable; then
 * whoever waited goes on. Failures: any error of a page write or flush fails the brick for good (I6): nothing
 * is ever retried as if nothing happened.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "datapath/core/dp_internal.h"

static void *zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);

    PMS_CHECK(p != NULL);
    return p;
}

uint32_t dp_bits_bytes(const struct pms_dp *dp)
{
    return (dp->brick.regions + 7) / 8;
}

uint32_t dp_bits_count(const struct pms_dp *dp, const uint8_t *bits)
{
    uint32_t bytes = dp_bits_bytes(dp), i = 0, n = 0;
    uint64_t word;

    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, bits + i, sizeof word);
        n += (uint32_t)__builtin_popcountll(word);
    }
    for (; i < bytes; i++)
        n += (uint32_t)__builtin_popcount(bits[i]);
    return n;
}

int pms_dp_brick_format(uint8_t *area, const uint8_t cluster_uuid[16], const struct pms_dp_init *init,
                        uint64_t incarnation, bool all_dirty)
{
    struct pms_meta m = {
        .version = init->brick_version != 0 ? init->brick_version : pms_brick_versions.min,
        .array = init->array,
        .node = init->self_node,
        .size_bytes = init->size_bytes,
        .region_bytes = init->region_bytes,
        .slot = init->self_slot,
        .incarnation = incarnation,
        .generation = 2,
    };
    uint32_t regions = pms_meta_regions(init->size_bytes, init->region_bytes);
    uint32_t pages = pms_meta_pages(regions);

    if (2 * (uint64_t)(1 + pages) * PMS_META_PAGE_BYTES > PMS_BRICK_DATA_OFFSET || incarnation == 0)
        return PMS_EREFUSED;
    memcpy(m.cluster, cluster_uuid, sizeof m.cluster);
    memset(area, 0, PMS_BRICK_DATA_OFFSET);
    pms_meta_super_encode(&m, area + pms_meta_super_offset(m.generation));

    uint8_t *bits = zalloc((regions + 7) / 8 + PMS_META_PAGE_BYTES);
    if (all_dirty)
        memset(bits, 0xff, (regions + 7) / 8);
    for (uint32_t i = 0; i < pages; i++)
        pms_meta_page_encode(init->array, i, 2, bits, regions, area + pms_meta_page_offset(i, 2));
    free(bits);
    return 0;
}

int dp_brick_load(struct pms_dp *dp, const uint8_t cluster_uuid[16], const uint8_t *area)
{
    struct brick *b = &dp->brick;
    int err = pms_meta_super_load(area, &b->disk);

    if (err != 0)
        return err;
    if (memcmp(b->disk.cluster, cluster_uuid, sizeof b->disk.cluster) != 0 ||
        b->disk.array != dp->init.array || b->disk.slot != dp->init.self_slot ||
        b->disk.size_bytes != dp->init.size_bytes || b->disk.region_bytes != dp->init.region_bytes)
        return PMS_EIDENTITY;
    b->mem = b->disk;
    /* Another boot of the host, or an I/O error: what was acknowledged as volatile may be gone (R6). */
    if (b->disk.volatile_boot != 0 && b->disk.volatile_boot != dp->init.boot_id &&
        !PMS_MUTANT(UNCLEAN_IGNORED)) {
        b->mem.ancestor = b->disk.incarnation;
        b->mem.incarnation = dp->init.fresh_incarnation;
        b->mem.volatile_boot = 0;
    }
    b->unclean = b->mem.ancestor != 0;
    b->regions = pms_meta_regions(dp->init.size_bytes, dp->init.region_bytes);
    b->pages = pms_meta_pages(b->regions);
    size_t bytes = dp_bits_bytes(dp) + PMS_META_PAGE_BYTES;
    b->bits_mem = zalloc(bytes);
    b->bits_disk = zalloc(bytes);
    b->bits_inflight = zalloc(bytes);
    b->page_gen = zalloc(b->pages * sizeof *b->page_gen);
    b->page_inflight = zalloc(b->pages);
    b->page_urgent = zalloc(b->pages);
    for (uint32_t i = 0; i < b->pages; i++)
        pms_meta_page_load(dp->init.array, i, area, b->bits_disk, b->regions, &b->page_gen[i]);
    for (uint32_t r = b->regions; r < dp_bits_bytes(dp) * 8; r++)
        bit_clear(b->bits_disk, r);
    memcpy(b->bits_mem, b->bits_disk, dp_bits_bytes(dp));
    if (b->mem.version < dp->init.brick_version)
        b->mem.version = dp->init.brick_version;
    return 0;
}

void dp_brick_free(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;

    free(b->bits_mem);
    free(b->bits_disk);
    free(b->bits_inflight);
    free(b->page_gen);
    free(b->page_inflight);
    free(b->page_urgent);
}

static bool region_marked(const struct brick *b, uint32_t r)
{
    return bit_get(b->bits_mem, r) && bit_get(b->bits_disk, r) &&
           (!b->page_inflight[r / PMS_META_PAGE_BITS] || bit_get(b->bits_inflight, r));
}

void dp_brick_mark(struct pms_dp *dp, uint64_t offset, uint32_t length)
{
    struct brick *b = &dp->brick;
    uint32_t first = (uint32_t)(offset / dp->init.region_bytes);
    uint32_t last = (uint32_t)((offset + length - 1) / dp->init.region_bytes);

    for (uint32_t r = first; r <= last; r++) {
        bit_set(b->bits_mem, r);
        if (!region_marked(b, r))
            b->page_urgent[r / PMS_META_PAGE_BITS] = true;
    }
}

bool dp_brick_marked(const struct pms_dp *dp, uint64_t offset, uint32_t length)
{
    uint32_t first = (uint32_t)(offset / dp->init.region_bytes);
    uint32_t last = (uint32_t)((offset + length - 1) / dp->init.region_bytes);

    if (PMS_MUTANT(DIRTY_FORGOTTEN))
        return true;
    for (uint32_t r = first; r <= last; r++)
        if (!region_marked(&dp->brick, r))
            return false;
    return true;
}

void dp_brick_unmark(struct pms_dp *dp, uint32_t region)
{
    bit_clear(dp->brick.bits_mem, region);
}

/* The brick is about to hold acknowledged data that is not stable: only an in-sync one ever does. */
void dp_brick_volatile_mark(struct pms_dp *dp)
{
    dp->brick.mem.volatile_boot = dp->init.boot_id;
    dp->brick.mem.ancestor = 0;
}

bool dp_brick_volatile_marked(const struct pms_dp *dp)
{
    const struct brick *b = &dp->brick;
    uint64_t boot = dp->init.boot_id;

    if (PMS_MUTANT(VOLATILE_UNMARKED))
        return true;
    return b->mem.volatile_boot == boot && b->disk.volatile_boot == boot &&
           (!b->commit_busy || b->inflight.volatile_boot == boot);
}

/* Takes the mark off when all has been stable for a while; it costs a flush to set it again. A node that leaves does
 * not wait: what it keeps must not look lost after its host's next boot. */
void dp_brick_tick(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;

    /* Written a second time after the primary's flush, since a link or an epoch ended in between: the primary does
     * not count that. */
    if (b->volatile_since && dp->now >= b->last_volatile + 2 * MS(dp->init.timing.flush))
        b->flush_wanted = true;
    if (b->mem.volatile_boot == 0 || b->volatile_since || b->flush_busy || b->failed ||
        (!dp->leaving && dp->now < b->last_volatile + MS(dp->init.timing.clear_idle)) ||
        !pms_list_empty(&dp->rep.rops))
        return;
    b->mem.volatile_boot = 0;
}

static void write_page(struct pms_dp *dp, uint64_t offset, struct pms_iobuf *page)
{
    dp->brick.writes_out++;
    dp_disk(dp, PMS_DP_DISK_WRITE, dp_dreq_new(dp, DREQ_META, &dp->brick), offset, PMS_META_PAGE_BYTES, page,
            0);
}

static bool page_changed(const struct pms_dp *dp, uint32_t i)
{
    const struct brick *b = &dp->brick;
    size_t at = (size_t)i * (PMS_META_PAGE_BITS / 8);
    size_t bytes = dp_bits_bytes(dp) - at;

    if (bytes > PMS_META_PAGE_BITS / 8)
        bytes = PMS_META_PAGE_BITS / 8;
    return memcmp(b->bits_mem + at, b->bits_disk + at, bytes) != 0;
}

static bool super_changed(const struct brick *b)
{
    if (b->mem.version != b->disk.version)
        return true;
    return b->mem.floor != b->disk.floor || b->mem.served != b->disk.served ||
           b->mem.incarnation != b->disk.incarnation || b->mem.volatile_boot != b->disk.volatile_boot ||
           b->mem.ancestor != b->disk.ancestor;
}

/* Starts a commit of all that differs, if something is urgent and none is under way. */
static bool commit_start(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;
    bool urgent = super_changed(b) || b->lazy_due;

    if (b->commit_busy || b->failed)
        return false;
    for (uint32_t i = 0; i < b->pages && !urgent; i++)
        urgent = b->page_urgent[i];
    if (!urgent)
        return false;
    b->lazy_due = false;
    b->inflight = b->mem;
    if (super_changed(b)) {
        struct pms_iobuf *page = pms_iobuf_create(PMS_META_PAGE_BYTES);

        b->inflight.generation = ++b->mem.generation;
        pms_meta_super_encode(&b->inflight, page->data);
        write_page(dp, pms_meta_super_offset(b->inflight.generation), page);
    }
    memcpy(b->bits_inflight, b->bits_mem, dp_bits_bytes(dp));
    for (uint32_t i = 0; i < b->pages; i++) {
        b->page_urgent[i] = false;
        if (!page_changed(dp, i))
            continue;
        struct pms_iobuf *page = pms_iobuf_create(PMS_META_PAGE_BYTES);

        b->page_inflight[i] = true;
        pms_meta_page_encode(dp->init.array, i, ++b->page_gen[i], b->bits_inflight, b->regions, page->data);
        write_page(dp, pms_meta_page_offset(i, b->page_gen[i]), page);
    }
    b->commit_busy = b->writes_out > 0;
    return b->commit_busy;
}

void dp_brick_written(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;

    PMS_CHECK(b->writes_out > 0);
    if (--b->writes_out == 0)
        b->need_flush = true;
}

static bool flush_start(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;
    bool wanted = b->need_flush || b->flush_wanted;

    if (b->flush_busy || b->failed)
        return false;
    pms_list_for_each (p, &dp->rep.rops) {
        struct rop *r = pms_list_entry(p, struct rop, link);

        if (r->state == ROP_WRITTEN && r->flush_no == 0) {
            r->flush_no = b->flush_no + 1;
            wanted = true;
        }
    }
    if (!wanted)
        return false;
    b->flush_no++;
    b->flush_busy = true;
    b->volatile_since = b->flush_wanted = false;
    b->flush_covers_meta = b->need_flush;
    b->need_flush = false;
    dp->counters_flushes++;
    dp_disk(dp, PMS_DP_DISK_FLUSH, dp_dreq_new(dp, DREQ_FLUSH, b), 0, 0, NULL, 0);
    return true;
}

void dp_brick_flushed(struct pms_dp *dp)
{
    struct brick *b = &dp->brick;

    b->flush_busy = false;
    if (b->flush_covers_meta) {
        b->flush_covers_meta = false;
        b->commit_busy = false;
        b->disk = b->inflight;
        for (uint32_t i = 0; i < b->pages; i++) {
            if (!b->page_inflight[i])
                continue;
            size_t at = (size_t)i * (PMS_META_PAGE_BITS / 8);
            size_t bytes = dp_bits_bytes(dp) - at;

            b->page_inflight[i] = false;
            memcpy(b->bits_disk + at, b->bits_inflight + at,
                   bytes > PMS_META_PAGE_BITS / 8 ? PMS_META_PAGE_BITS / 8 : bytes);
        }
    }
    dp_replica_flushed(dp);
}

void dp_brick_fail(struct pms_dp *dp)
{
    if (dp->brick.failed)
        return;
    dp->brick.failed = true;
    dp_stepdown(dp);
    dp_replica_fail(dp);
}

bool dp_brick_pump(struct pms_dp *dp)
{
    bool a = commit_start(dp);
    bool b = flush_start(dp);

    return a || b;
}
