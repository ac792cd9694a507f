// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The shared-memory ring of ring.h: both sides, over one layout.
 *
 * Happy path: the plugin fills a free slot, publishes its tag in the submission ring and rings the bell if
 * pmsd sleeps; pmsd copies the slot, marks it TAKEN, and later stores the answer in the slot, marks it
 * COMPLETED and publishes the tag in the completion ring. Failures:
 *  - pmsd dies before COMPLETED: attach finds the slot SUBMITTED or TAKEN and hands it out again;
 *  - pmsd dies after COMPLETED, before publishing: the plugin's rescan finds it;
 *  - either side writes nonsense: indexes, tags and ranges are checked on private copies, the ring is marked
 * broken. Neither index ring can overflow: a slot is in each at most once, and each has as many places as
 * there are slots.
 */
#include "datapath/io/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"

#define RING_MAGIC 0x31474e4952534d50ull /* "PMSRING1" */

enum slot_state { SLOT_FREE = 0, SLOT_SUBMITTED, SLOT_TAKEN, SLOT_COMPLETED };

/* In shared memory. Which side writes a field is said beside it. */
struct slot {
    _Atomic uint32_t state; /* both, see the drawing in ring.h */
    uint32_t gen;           /* plugin; this and the rest up to flags are stable while state is not FREE */
    uint64_t seq;
    uint64_t offset;
    uint64_t arena_off;
    uint32_t length;
    uint8_t op;
    uint8_t flags;
    uint8_t status, key, asc, ascq; /* pmsd, before COMPLETED */
    uint8_t zero[22];
};
PMS_STATIC_ASSERT(sizeof(struct slot) == 64, "a slot is one cache line");

struct header {
    /* plugin, once */
    uint64_t magic;
    uint32_t version;
    uint32_t slots;
    uint64_t array_id;
    uint64_t arena_bytes;
    uint64_t total_bytes;
    alignas(64) _Atomic uint32_t sq_tail;   /* plugin */
    _Atomic uint32_t cq_wanted;             /* plugin sets, pmsd clears as it rings */
    alignas(64) _Atomic uint32_t cq_tail;   /* pmsd */
    _Atomic uint32_t sq_wanted;             /* pmsd sets, plugin clears as it rings */
    alignas(64) _Atomic uint64_t submitted; /* plugin */
    _Atomic uint64_t held, arena_used, arena_used_max;
    _Atomic uint64_t completed;               /* pmsd */
    _Atomic uint64_t copied_bytes, doorbells; /* both */
};
PMS_STATIC_ASSERT(sizeof(struct header) <= PMS_RING_PAGE, "the header fits its page");

struct pms_ring {
    /* both sides; private copies, so that the peer cannot change them */
    bool plugin;
    bool broken;
    int memfd, efd_sq, efd_cq;
    uint32_t slots_n, mask;
    uint64_t array_id;
    size_t arena_bytes, total_bytes;
    struct header *hdr;
    struct slot *slots;
    _Atomic uint64_t *sq, *cq; /* tags */
    uint8_t *arena;

    uint32_t head; /* next to read: in sq (pmsd) or cq (plugin) */
    uint32_t tail; /* next to write: in cq (pmsd) or sq (plugin) */
    bool kick;     /* something was published since the last bell */

    /* One entry a slot. pmsd: held and not completed. plugin: submitted and not reaped. */
    struct priv {
        uint64_t cookie; /* plugin */
        uint32_t gen;
        bool busy;
    } * priv;
    unsigned busy_n;

    /* pmsd */
    uint64_t size_bytes;
    struct pms_ring_cmd *recovered; /* handed out first */
    uint32_t recovered_n, recovered_at;

    /* plugin */
    uint64_t seq;
    uint32_t *free_slots, free_n;
    uint64_t *rescued; /* tags found by rescan */
    uint32_t rescued_n;
    uint64_t *page_map;   /* arena pages in use, one bit each */
    uint16_t *page_count; /* at a buffer's first page: its pages */
    uint32_t pages_n;
};

static uint64_t tag_make(uint32_t gen, uint32_t slot)
{
    return (uint64_t)gen << 32 | slot;
}

static size_t round_page(size_t n)
{
    return (n + PMS_RING_PAGE - 1) & ~(size_t)(PMS_RING_PAGE - 1);
}

static size_t meta_bytes(uint32_t slots)
{
    return PMS_RING_PAGE + round_page(slots * sizeof(struct slot)) + 2 * round_page(slots * sizeof(uint64_t));
}

static void bell(struct pms_ring *ring, int efd, _Atomic uint32_t *wanted)
{
    uint64_t one = 1;

    if (!ring->kick)
        return;
    ring->kick = false;
    /*
     * Publishing must be visible before "wanted" is looked at; the sleeper does it the other way round. So
     * the stores of tails and of "wanted", and the loads of the other one, are all sequentially consistent.
     */
    if (atomic_load(wanted) == 0 || atomic_exchange(wanted, 0) == 0)
        return;
    atomic_fetch_add_explicit(&ring->hdr->doorbells, 1, memory_order_relaxed);
    /* EAGAIN: the counter is full, so the peer has a bell to hear anyway. */
    while (write(efd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static bool arm(struct pms_ring *ring, _Atomic uint32_t *wanted, _Atomic uint32_t *peer_tail)
{
    atomic_store(wanted, 1);
    return atomic_load(peer_tail) != ring->head;
}

static int broken(struct pms_ring *ring)
{
    ring->broken = true;
    return PMS_EPROTO;
}

static int ring_map(struct pms_ring *ring)
{
    uint8_t *base = mmap(NULL, ring->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memfd, 0);

    if (base == MAP_FAILED)
        return -errno;
    ring->hdr = (struct header *)base;
    ring->slots = (struct slot *)(base + PMS_RING_PAGE);
    ring->sq = (void *)(base + PMS_RING_PAGE + round_page(ring->slots_n * sizeof(struct slot)));
    ring->cq = (void *)((uint8_t *)ring->sq + round_page(ring->slots_n * sizeof(uint64_t)));
    ring->arena = base + meta_bytes(ring->slots_n);
    ring->mask = ring->slots_n - 1;
    return 0;
}

static void ring_free(struct pms_ring *ring)
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

static void close_fds(struct pms_ring *ring)
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
    if (hdr.version != PMS_RING_VERSION)
        return PMS_EVERSION;
    if (hdr.slots == 0 || hdr.slots > PMS_RING_SLOTS_MAX || (hdr.slots & (hdr.slots - 1)) ||
        hdr.arena_bytes == 0 || hdr.arena_bytes > PMS_RING_ARENA_MAX || hdr.arena_bytes % PMS_RING_PAGE ||
        hdr.total_bytes != meta_bytes(hdr.slots) + hdr.arena_bytes || (uint64_t)st.st_size != hdr.total_bytes)
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
        .tag = tag_make(s.gen, idx),
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
    default:
        return PMS_EPROTO;
    }
    if ((s.flags & ~PMS_RING_FUA) || s.length == 0 || s.length > PMS_RING_IO_MAX ||
        s.length % PMS_RING_SECTOR || s.offset % PMS_RING_SECTOR || s.arena_off % PMS_RING_SECTOR)
        return PMS_EPROTO;
    if (s.length > ring->size_bytes || s.offset > ring->size_bytes - s.length)
        return PMS_EPROTO;
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
    rc = ring_map(ring);
    if (rc == 0)
        rc = ring_recover(ring);
out:
    if (rc) {
        ring_free(ring);
        return rc;
    }
    *out = ring;
    return 0;
}

void pms_ring_detach(struct pms_ring *ring)
{
    if (!ring)
        return;
    close_fds(ring);
    ring_free(ring);
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
        return broken(ring);
    while (got < n && ring->head != tail) {
        tag = atomic_load_explicit(&ring->sq[ring->head & ring->mask], memory_order_relaxed);
        idx = (uint32_t)tag;
        if (idx >= ring->slots_n || ring->priv[idx].busy || slot_take(ring, idx, &out[got], &gen) ||
            out[got].tag != tag)
            return broken(ring);
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
    return arm(ring, &ring->hdr->sq_wanted, &ring->hdr->sq_tail) || ring->recovered_at < ring->recovered_n;
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
    bell(ring, ring->efd_cq, &ring->hdr->cq_wanted);
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
        .copied_bytes = atomic_load_explicit(&h->copied_bytes, memory_order_relaxed),
        .held = atomic_load_explicit(&h->held, memory_order_relaxed),
        .arena_used = atomic_load_explicit(&h->arena_used, memory_order_relaxed),
        .arena_used_max = atomic_load_explicit(&h->arena_used_max, memory_order_relaxed),
        .doorbells = atomic_load_explicit(&h->doorbells, memory_order_relaxed),
    };
}

void pms_ring_copied(struct pms_ring *ring, size_t len)
{
    if (len >= PMS_RING_COPY_LIMIT)
        atomic_fetch_add_explicit(&ring->hdr->copied_bytes, len, memory_order_relaxed);
}

/* ---- the plugin's side ---- */

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
    ring->total_bytes = meta_bytes(slots) + arena_bytes;
    ring->pages_n = arena_bytes / PMS_RING_PAGE;
    rc = memfd_make(ring);
    if (rc == 0)
        rc = ring_map(ring);
    if (rc == 0)
        rc = tables_make(ring);
    if (rc) {
        pms_ring_destroy(ring);
        return rc;
    }
    ring->hdr->version = PMS_RING_VERSION;
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
    close_fds(ring);
    ring_free(ring);
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
    want = (uint32_t)(round_page(len) / PMS_RING_PAGE);
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
    if (op != PMS_RING_READ && op != PMS_RING_WRITE)
        return false;
    return (flags & ~PMS_RING_FUA) == 0 && length > 0 && length <= PMS_RING_IO_MAX &&
           length % PMS_RING_SECTOR == 0 && offset % PMS_RING_SECTOR == 0 &&
           arena_off % PMS_RING_SECTOR == 0 && length <= ring->arena_bytes &&
           arena_off <= ring->arena_bytes - length;
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
    tag = tag_make(p->gen, idx);
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
    bell(ring, ring->efd_sq, &ring->hdr->sq_wanted);
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
        return broken(ring);
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
    return arm(ring, &ring->hdr->cq_wanted, &ring->hdr->cq_tail) || ring->rescued_n > 0;
}

int pms_ring_rescan(struct pms_ring *ring)
{
    uint32_t i;

    ring->rescued_n = 0;
    for (i = 0; i < ring->slots_n; i++)
        if (ring->priv[i].busy &&
            atomic_load_explicit(&ring->slots[i].state, memory_order_acquire) == SLOT_COMPLETED)
            ring->rescued[ring->rescued_n++] = tag_make(ring->priv[i].gen, i);
    return (int)ring->rescued_n;
}

void pms_ring_held_set(struct pms_ring *ring, uint64_t held)
{
    atomic_store_explicit(&ring->hdr->held, held, memory_order_relaxed);
}
