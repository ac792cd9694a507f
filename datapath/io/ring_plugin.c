// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The shared-memory ring of ring.h: the plugin's side. It makes the memfd, owns slots and arena, submits and
 * reaps. Buffers are runs of pages, found first fit: short ones from below, long ones from above, so that the
 * short ones do not cut the rest up.
 */
#include "datapath/io/ring_layout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

static int memfd_make(struct pms_ring *ring)
{
    ring->memfd = memfd_create("pms-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ring->memfd < 0)
        return -errno;
    if (ftruncate(ring->memfd, (off_t)ring->total_bytes) != 0 ||
        fcntl(ring->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -errno;
    ring->efd_sq = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ring->efd_sq < 0)
        return -errno;
    ring->efd_cq = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return ring->efd_cq < 0 ? -errno : 0;
}

static int tables_make(struct pms_ring *ring)
{
    uint32_t i;

    ring->priv = calloc(ring->slots_n, sizeof(*ring->priv));
    ring->free_slots = calloc(ring->slots_n, sizeof(*ring->free_slots));
    ring->rescued = calloc(ring->slots_n, sizeof(*ring->rescued));
    ring->page_map = calloc((ring->pages_n + 63) / 64, sizeof(*ring->page_map));
    ring->page_count = calloc(ring->pages_n, sizeof(*ring->page_count));
    if (!ring->priv || !ring->free_slots || !ring->rescued || !ring->page_map || !ring->page_count)
        return -ENOMEM;
    for (i = 0; i < ring->slots_n; i++)
        ring->free_slots[i] = ring->slots_n - 1 - i;
    ring->free_n = ring->slots_n;
    return 0;
}

int pms_ring_create(uint64_t array_id, uint32_t slots, uint32_t arena_bytes, struct pms_ring **out)
{
    struct pms_ring *ring;
    int rc;

    if (slots == 0 || slots > PMS_RING_SLOTS_MAX || (slots & (slots - 1)) || arena_bytes == 0 ||
        arena_bytes > PMS_RING_ARENA_MAX || arena_bytes % PMS_RING_PAGE)
        return -EINVAL;
    ring = calloc(1, sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    ring->plugin = true;
    ring->memfd = ring->efd_sq = ring->efd_cq = -1;
    ring->array_id = array_id;
    ring->slots_n = slots;
    ring->arena_bytes = arena_bytes;
    ring->total_bytes = ring_meta_bytes(slots) + arena_bytes;
    ring->pages_n = arena_bytes / PMS_RING_PAGE;
    rc = memfd_make(ring);
    if (rc == 0)
        rc = pms_ring_map(ring);
    if (rc == 0)
        rc = tables_make(ring);
    if (rc) {
        pms_ring_destroy(ring);
        return rc;
    }
    ring->hdr->version = pms_ring_versions.max;
    ring->hdr->slots = slots;
    ring->hdr->array_id = array_id;
    ring->hdr->arena_bytes = arena_bytes;
    ring->hdr->total_bytes = ring->total_bytes;
    ring->hdr->magic = RING_MAGIC;
    *out = ring;
    return 0;
}

void pms_ring_destroy(struct pms_ring *ring)
{
    if (!ring)
        return;
    pms_ring_close_fds(ring);
    pms_ring_free(ring);
}

void pms_ring_fds(const struct pms_ring *ring, int *memfd, int *efd_sq, int *efd_cq)
{
    *memfd = ring->memfd;
    *efd_sq = ring->efd_sq;
    *efd_cq = ring->efd_cq;
}

static bool page_used(const struct pms_ring *ring, uint32_t page)
{
    return ring->page_map[page / 64] >> (page % 64) & 1;
}

/* First run of `want` free pages, searched upwards; pages_n if there is none. */
static uint32_t run_find_low(const struct pms_ring *ring, uint32_t want)
{
    uint32_t page = 0, run = 0;

    while (page < ring->pages_n) {
        if (page % 64 == 0 && ring->page_map[page / 64] == UINT64_MAX) {
            run = 0;
            page += 64;
            continue;
        }
        run = page_used(ring, page) ? 0 : run + 1;
        page++;
        if (run == want)
            return page - want;
    }
    return ring->pages_n;
}

/* Last run, searched downwards: long buffers live at the far end, so that short ones do not cut it up. */
static uint32_t run_find_high(const struct pms_ring *ring, uint32_t want)
{
    uint32_t page = ring->pages_n, run = 0;

    while (page > 0) {
        if (page % 64 == 0 && ring->page_map[page / 64 - 1] == UINT64_MAX) {
            run = 0;
            page -= 64;
            continue;
        }
        page--;
        run = page_used(ring, page) ? 0 : run + 1;
        if (run == want)
            return page;
    }
    return ring->pages_n;
}

void *pms_ring_buf_alloc(struct pms_ring *ring, size_t len)
{
    struct header *h = ring->hdr;
    uint32_t want, page, i;
    uint64_t used;

    if (len == 0 || len > PMS_RING_IO_MAX)
        return NULL;
    want = (uint32_t)(ring_round(len) / PMS_RING_PAGE);
    page = want < 16 ? run_find_low(ring, want) : run_find_high(ring, want);
    if (page >= ring->pages_n)
        return NULL;
    for (i = page; i < page + want; i++)
        ring->page_map[i / 64] |= 1ull << (i % 64);
    ring->page_count[page] = (uint16_t)want;
    used = atomic_load_explicit(&h->arena_used, memory_order_relaxed) + (uint64_t)want * PMS_RING_PAGE;
    atomic_store_explicit(&h->arena_used, used, memory_order_relaxed);
    if (used > atomic_load_explicit(&h->arena_used_max, memory_order_relaxed))
        atomic_store_explicit(&h->arena_used_max, used, memory_order_relaxed);
    return ring->arena + (size_t)page * PMS_RING_PAGE;
}

void pms_ring_buf_free(struct pms_ring *ring, void *buf)
{
    uint64_t off;
    uint32_t page, count, i;

    PMS_CHECK(pms_ring_buf_offset(ring, buf, &off) && off % PMS_RING_PAGE == 0);
    page = (uint32_t)(off / PMS_RING_PAGE);
    count = ring->page_count[page];
    PMS_CHECK_MSG(count > 0, "page %u is not the first of a buffer", page);
    for (i = page; i < page + count; i++)
        ring->page_map[i / 64] &= ~(1ull << (i % 64));
    ring->page_count[page] = 0;
    atomic_fetch_sub_explicit(&ring->hdr->arena_used, (uint64_t)count * PMS_RING_PAGE, memory_order_relaxed);
}

bool pms_ring_buf_offset(const struct pms_ring *ring, const void *p, uint64_t *arena_off)
{
    const uint8_t *b = p;

    if (b < ring->arena || b >= ring->arena + ring->arena_bytes)
        return false;
    *arena_off = (uint64_t)(b - ring->arena);
    return true;
}

static bool submit_valid(const struct pms_ring *ring, enum pms_ring_op op, unsigned flags, uint64_t offset,
                         uint32_t length, uint64_t arena_off)
{
    if (op == PMS_RING_FLUSH)
        return flags == 0 && offset == 0 && length == 0 && arena_off == 0;
    if (op != PMS_RING_READ && op != PMS_RING_WRITE && op != PMS_RING_ZERO)
        return false;
    if (op == PMS_RING_ZERO && arena_off != 0)
        return false;
    return (flags & ~PMS_RING_FUA) == 0 && length > 0 && length <= PMS_RING_IO_MAX &&
           length % PMS_RING_SECTOR == 0 && offset % PMS_RING_SECTOR == 0 &&
           arena_off % PMS_RING_SECTOR == 0 &&
           (op == PMS_RING_ZERO || (length <= ring->arena_bytes && arena_off <= ring->arena_bytes - length));
}

int pms_ring_submit(struct pms_ring *ring, enum pms_ring_op op, unsigned flags, uint64_t offset,
                    uint32_t length, uint64_t arena_off, uint64_t cookie, uint64_t *tag_out)
{
    struct priv *p;
    struct slot *s;
    uint32_t idx;
    uint64_t tag;

    if (!submit_valid(ring, op, flags, offset, length, arena_off))
        return -EINVAL;
    if (ring->free_n == 0)
        return -EAGAIN;
    idx = ring->free_slots[--ring->free_n];
    p = &ring->priv[idx];
    PMS_CHECK(!p->busy);
    p->busy = true;
    p->gen++;
    p->cookie = cookie;
    ring->busy_n++;

    s = &ring->slots[idx];
    s->gen = p->gen;
    s->seq = ++ring->seq;
    s->offset = offset;
    s->arena_off = arena_off;
    s->length = length;
    s->op = (uint8_t)op;
    s->flags = (uint8_t)flags;
    atomic_store_explicit(&s->state, SLOT_SUBMITTED, memory_order_release);
    tag = ring_tag(p->gen, idx);
    atomic_store_explicit(&ring->sq[ring->tail & ring->mask], tag, memory_order_relaxed);
    ring->tail++;
    atomic_store(&ring->hdr->sq_tail, ring->tail);
    atomic_fetch_add_explicit(&ring->hdr->submitted, 1, memory_order_relaxed);
    ring->kick = true;
    if (tag_out)
        *tag_out = tag;
    return 0;
}

void pms_ring_submit_kick(struct pms_ring *ring)
{
    ring_bell(ring, ring->efd_sq, &ring->hdr->sq_wanted);
}

unsigned pms_ring_outstanding(const struct pms_ring *ring)
{
    return ring->busy_n;
}

/* Takes the answer to tag out of its slot. False: not ours, already reaped, or not completed. */
static bool slot_reap(struct pms_ring *ring, uint64_t tag, struct pms_ring_cpl *out)
{
    uint32_t idx = (uint32_t)tag;
    struct priv *p;
    struct slot *s;

    if (idx >= ring->slots_n)
        return false;
    p = &ring->priv[idx];
    s = &ring->slots[idx];
    if (!p->busy || p->gen != tag >> 32 ||
        atomic_load_explicit(&s->state, memory_order_acquire) != SLOT_COMPLETED)
        return false;
    *out = (struct pms_ring_cpl){
        .tag = tag, .cookie = p->cookie, .status = s->status, .key = s->key, .asc = s->asc, .ascq = s->ascq};
    p->busy = false;
    ring->busy_n--;
    atomic_store_explicit(&s->state, SLOT_FREE, memory_order_release);
    ring->free_slots[ring->free_n++] = idx;
    return true;
}

int pms_ring_reap(struct pms_ring *ring, struct pms_ring_cpl *out, int n)
{
    uint32_t tail;
    uint64_t tag;
    int got = 0;

    if (ring->broken)
        return PMS_EPROTO;
    while (got < n && ring->rescued_n > 0)
        got += slot_reap(ring, ring->rescued[--ring->rescued_n], &out[got]);
    tail = atomic_load_explicit(&ring->hdr->cq_tail, memory_order_acquire);
    if (tail - ring->head > ring->slots_n)
        return ring_broken(ring);
    while (got < n && ring->head != tail) {
        tag = atomic_load_explicit(&ring->cq[ring->head++ & ring->mask], memory_order_relaxed);
        got += slot_reap(ring, tag, &out[got]);
    }
    return got;
}

bool pms_ring_reap_arm(struct pms_ring *ring)
{
    if (ring->broken)
        return false;
    return ring_arm(ring, &ring->hdr->cq_wanted, &ring->hdr->cq_tail) || ring->rescued_n > 0;
}

int pms_ring_rescan(struct pms_ring *ring)
{
    uint32_t i;

    ring->rescued_n = 0;
    for (i = 0; i < ring->slots_n; i++)
        if (ring->priv[i].busy &&
            atomic_load_explicit(&ring->slots[i].state, memory_order_acquire) == SLOT_COMPLETED)
            ring->rescued[ring->rescued_n++] = ring_tag(ring->priv[i].gen, i);
    return (int)ring->rescued_n;
}

void pms_ring_held_set(struct pms_ring *ring, uint64_t held)
{
    atomic_store_explicit(&ring->hdr->held, held, memory_order_relaxed);
}
