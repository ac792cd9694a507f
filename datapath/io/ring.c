// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The shared-memory ring of ring.h: pmsd's side, and what both sides share.
 *
 * Happy path: the plugin fills a free slot, publishes its tag in the submission ring and rings the bell if
 * pmsd sleeps; pmsd copies the slot, marks it TAKEN, and later stores the answer in the slot, marks it
 * COMPLETED and publishes the tag in the completion ring. Failures:
 *  - pmsd dies before COMPLETED: attach finds the slot SUBMITTED or TAKEN and hands it out again;
 *  - pmsd dies after COMPLETED, before publishing: the plugin's rescan finds it;
 *  - either side writes nonsense: indexes, tags and ranges are checked on private copies; the ring is broken.
 */
#include "datapath/io/ring_layout.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

int pms_ring_map(struct pms_ring *ring)
{
    uint8_t *base = mmap(NULL, ring->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memfd, 0);

    if (base == MAP_FAILED)
        return -errno;
    ring->hdr = (struct header *)base;
    ring->slots = (struct slot *)(base + PMS_RING_PAGE);
    ring->sq = (void *)(base + PMS_RING_PAGE + ring_round(ring->slots_n * sizeof(struct slot)));
    ring->cq = (void *)((uint8_t *)ring->sq + ring_round(ring->slots_n * sizeof(uint64_t)));
    ring->arena = base + ring_meta_bytes(ring->slots_n);
    ring->mask = ring->slots_n - 1;
    return 0;
}

void pms_ring_free(struct pms_ring *ring)
{
    if (ring->hdr)
        munmap(ring->hdr, ring->total_bytes);
    free(ring->priv);
    free(ring->recovered);
    free(ring->free_slots);
    free(ring->rescued);
    free(ring->page_map);
    free(ring->page_count);
    free(ring);
}

void pms_ring_close_fds(struct pms_ring *ring)
{
    close(ring->memfd);
    close(ring->efd_sq);
    close(ring->efd_cq);
}

/* ---- pmsd's side ---- */

/* Is the descriptor an eventfd? Anything else could block the data loop or be someone's file. */
static int eventfd_check(int fd)
{
    static const char want[] = "anon_inode:[eventfd]";
    char path[32], link[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, link, sizeof(link));
    if (n < 0)
        return -errno;
    if ((size_t)n != sizeof(want) - 1 || memcmp(link, want, sizeof(want) - 1) != 0)
        return PMS_EPROTO;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return -errno;
    return 0;
}

/* Checks that the memfd is one and cannot shrink under us (a later access would be SIGBUS), reads its sizes.
 */
static int memfd_check(struct pms_ring *ring)
{
    struct header hdr;
    struct statfs fs;
    struct stat st;
    ssize_t n;
    int seals = fcntl(ring->memfd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstatfs(ring->memfd, &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
        fstat(ring->memfd, &st) != 0)
        return PMS_EPROTO;
    n = pread(ring->memfd, &hdr, sizeof(hdr), 0);
    if (n != (ssize_t)sizeof(hdr) || hdr.magic != RING_MAGIC)
        return PMS_EPROTO;
    if (!pms_versions_has(pms_ring_versions, hdr.version))
        return PMS_EVERSION;
    if (hdr.slots == 0 || hdr.slots > PMS_RING_SLOTS_MAX || (hdr.slots & (hdr.slots - 1)) ||
        hdr.arena_bytes == 0 || hdr.arena_bytes > PMS_RING_ARENA_MAX || hdr.arena_bytes % PMS_RING_PAGE ||
        hdr.total_bytes != ring_meta_bytes(hdr.slots) + hdr.arena_bytes ||
        (uint64_t)st.st_size != hdr.total_bytes)
        return PMS_EPROTO;
    ring->slots_n = hdr.slots;
    ring->array_id = hdr.array_id;
    ring->arena_bytes = hdr.arena_bytes;
    ring->total_bytes = hdr.total_bytes;
    return 0;
}

/* Copies slot idx out of shared memory, then checks the copy. */
static int slot_take(struct pms_ring *ring, uint32_t idx, struct pms_ring_cmd *cmd, uint32_t *gen)
{
    struct slot *shared = &ring->slots[idx], s;
    uint32_t state = atomic_load_explicit(&shared->state, memory_order_acquire);

    memcpy(&s, shared, sizeof(s));
    /* The compiler may not go back to shared memory for what is checked below. */
    __asm__ volatile("" : : "r"(&s) : "memory");
    if (state != SLOT_SUBMITTED && state != SLOT_TAKEN)
        return PMS_EPROTO;
    *gen = s.gen;
    *cmd = (struct pms_ring_cmd){
        .tag = ring_tag(s.gen, idx),
        .seq = s.seq,
        .offset = s.offset,
        .arena_off = s.arena_off,
        .length = s.length,
        .op = s.op,
        .flags = s.flags,
        .recovered = state == SLOT_TAKEN,
    };
    switch (s.op) {
    case PMS_RING_FLUSH:
        return s.length == 0 && s.offset == 0 && s.arena_off == 0 && s.flags == 0 ? 0 : PMS_EPROTO;
    case PMS_RING_READ:
    case PMS_RING_WRITE:
        break;
    case PMS_RING_ZERO:
        if (s.arena_off != 0)
            return PMS_EPROTO;
        break;
    default:
        return PMS_EPROTO;
    }
    if ((s.flags & ~PMS_RING_FUA) || s.length == 0 || s.length > PMS_RING_IO_MAX ||
        s.length % PMS_RING_SECTOR || s.offset % PMS_RING_SECTOR || s.arena_off % PMS_RING_SECTOR)
        return PMS_EPROTO;
    if (s.length > ring->size_bytes || s.offset > ring->size_bytes - s.length)
        return PMS_EPROTO;
    if (s.op == PMS_RING_ZERO)
        return 0;
    if (s.length > ring->arena_bytes || s.arena_off > ring->arena_bytes - s.length)
        return PMS_EPROTO;
    return 0;
}

static int seq_compare(const void *a, const void *b)
{
    const struct pms_ring_cmd *x = a, *y = b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Finds what an earlier pmsd left unanswered. */
static int ring_recover(struct pms_ring *ring)
{
    uint32_t i, gen;
    int rc;

    PMS_CHECK(ring->hdr && ring->slots);
    ring->head = atomic_load(&ring->hdr->sq_tail);
    ring->tail = atomic_load(&ring->hdr->cq_tail);
    for (i = 0; i < ring->slots_n; i++) {
        uint32_t state = atomic_load_explicit(&ring->slots[i].state, memory_order_acquire);

        if (state != SLOT_SUBMITTED && state != SLOT_TAKEN)
            continue;
        rc = slot_take(ring, i, &ring->recovered[ring->recovered_n], &gen);
        if (rc)
            return rc;
        ring->recovered_n++;
        ring->priv[i].busy = true;
        ring->priv[i].gen = gen;
        ring->busy_n++;
    }
    qsort(ring->recovered, ring->recovered_n, sizeof(*ring->recovered), seq_compare);
    return 0;
}

int pms_ring_attach(int memfd, int efd_sq, int efd_cq, uint64_t size_bytes, struct pms_ring **out)
{
    struct pms_ring *ring = calloc(1, sizeof(*ring));
    int rc;

    if (!ring)
        return -ENOMEM;
    ring->memfd = memfd;
    ring->efd_sq = efd_sq;
    ring->efd_cq = efd_cq;
    ring->size_bytes = size_bytes;
    rc = memfd_check(ring);
    if (rc == 0)
        rc = eventfd_check(efd_sq);
    if (rc == 0)
        rc = eventfd_check(efd_cq);
    if (rc)
        goto out;
    ring->priv = calloc(ring->slots_n, sizeof(*ring->priv));
    ring->recovered = calloc(ring->slots_n, sizeof(*ring->recovered));
    if (!ring->priv || !ring->recovered) {
        rc = -ENOMEM;
        goto out;
    }
    rc = pms_ring_map(ring);
    if (rc == 0)
        rc = ring_recover(ring);
out:
    if (rc) {
        pms_ring_free(ring);
        return rc;
    }
    *out = ring;
    return 0;
}

void pms_ring_detach(struct pms_ring *ring)
{
    if (!ring)
        return;
    pms_ring_close_fds(ring);
    pms_ring_free(ring);
}

void pms_ring_size_set(struct pms_ring *ring, uint64_t size_bytes)
{
    ring->size_bytes = size_bytes;
}

uint64_t pms_ring_array_id(const struct pms_ring *ring)
{
    return ring->array_id;
}

int pms_ring_sq_fd(const struct pms_ring *ring)
{
    return ring->efd_sq;
}

void pms_ring_sq_clear(struct pms_ring *ring)
{
    uint64_t n;

    while (read(ring->efd_sq, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

static void slot_mark_taken(struct pms_ring *ring, uint64_t tag)
{
    atomic_store_explicit(&ring->slots[(uint32_t)tag].state, SLOT_TAKEN, memory_order_release);
}

int pms_ring_poll(struct pms_ring *ring, struct pms_ring_cmd *out, int n)
{
    uint32_t tail, idx, gen;
    uint64_t tag;
    int got = 0;

    if (ring->broken)
        return PMS_EPROTO;
    while (got < n && ring->recovered_at < ring->recovered_n) {
        out[got] = ring->recovered[ring->recovered_at++];
        slot_mark_taken(ring, out[got++].tag);
    }
    tail = atomic_load_explicit(&ring->hdr->sq_tail, memory_order_acquire);
    if (tail - ring->head > ring->slots_n)
        return ring_broken(ring);
    while (got < n && ring->head != tail) {
        tag = atomic_load_explicit(&ring->sq[ring->head & ring->mask], memory_order_relaxed);
        idx = (uint32_t)tag;
        if (idx >= ring->slots_n || ring->priv[idx].busy || slot_take(ring, idx, &out[got], &gen) ||
            out[got].tag != tag)
            return ring_broken(ring);
        ring->priv[idx].busy = true;
        ring->priv[idx].gen = gen;
        ring->busy_n++;
        out[got].recovered = false;
        slot_mark_taken(ring, tag);
        ring->head++;
        got++;
    }
    return got;
}

bool pms_ring_arm(struct pms_ring *ring)
{
    if (ring->broken)
        return false;
    return ring_arm(ring, &ring->hdr->sq_wanted, &ring->hdr->sq_tail) ||
           ring->recovered_at < ring->recovered_n;
}

unsigned pms_ring_inflight(const struct pms_ring *ring)
{
    return ring->busy_n;
}

int pms_ring_complete(struct pms_ring *ring, uint64_t tag, uint8_t status, uint8_t key, uint8_t asc,
                      uint8_t ascq)
{
    uint32_t idx = (uint32_t)tag;
    struct slot *s;

    if (idx >= ring->slots_n || !ring->priv[idx].busy || ring->priv[idx].gen != tag >> 32)
        return -ENOENT;
    ring->priv[idx].busy = false;
    ring->busy_n--;
    if (ring->broken)
        return PMS_EPROTO;
    s = &ring->slots[idx];
    s->status = status;
    s->key = key;
    s->asc = asc;
    s->ascq = ascq;
    atomic_store_explicit(&s->state, SLOT_COMPLETED, memory_order_release);
    atomic_store_explicit(&ring->cq[ring->tail & ring->mask], tag, memory_order_relaxed);
    ring->tail++;
    atomic_store(&ring->hdr->cq_tail, ring->tail);
    atomic_fetch_add_explicit(&ring->hdr->completed, 1, memory_order_relaxed);
    ring->kick = true;
    return 0;
}

void pms_ring_kick(struct pms_ring *ring)
{
    ring_bell(ring, ring->efd_cq, &ring->hdr->cq_wanted);
}

void *pms_ring_data(struct pms_ring *ring, uint64_t arena_off, uint32_t len)
{
    if (len > ring->arena_bytes || arena_off > ring->arena_bytes - len)
        return NULL;
    return ring->arena + arena_off;
}

void *pms_ring_arena(struct pms_ring *ring, size_t *bytes)
{
    *bytes = ring->arena_bytes;
    return ring->arena;
}

/* ---- either side ---- */

void pms_ring_stats_get(const struct pms_ring *ring, struct pms_ring_stats *out)
{
    const struct header *h = ring->hdr;

    *out = (struct pms_ring_stats){
        .submitted = atomic_load_explicit(&h->submitted, memory_order_relaxed),
        .completed = atomic_load_explicit(&h->completed, memory_order_relaxed),
        .held = atomic_load_explicit(&h->held, memory_order_relaxed),
        .arena_used = atomic_load_explicit(&h->arena_used, memory_order_relaxed),
        .arena_used_max = atomic_load_explicit(&h->arena_used_max, memory_order_relaxed),
        .doorbells = atomic_load_explicit(&h->doorbells, memory_order_relaxed),
    };
}
