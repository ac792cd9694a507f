// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ring's layout in shared memory and what both sides do alike. Private to ring.c and ring_plugin.c.
 *
 * Neither index ring can overflow: a slot is in each at most once, and each has as many places as there are
 * slots.
 */
#ifndef PMS_DATAPATH_IO_RING_LAYOUT_H
#define PMS_DATAPATH_IO_RING_LAYOUT_H

#include <errno.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/version.h"
#include "datapath/io/ring.h"

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
    _Atomic uint64_t completed;         /* pmsd */
    _Atomic uint64_t unused, doorbells; /* both */
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

static inline uint64_t ring_tag(uint32_t gen, uint32_t slot)
{
    return (uint64_t)gen << 32 | slot;
}

static inline size_t ring_round(size_t n)
{
    return (n + PMS_RING_PAGE - 1) & ~(size_t)(PMS_RING_PAGE - 1);
}

static inline size_t ring_meta_bytes(uint32_t slots)
{
    return PMS_RING_PAGE + ring_round(slots * sizeof(struct slot)) + 2 * ring_round(slots * sizeof(uint64_t));
}

static inline void ring_bell(struct pms_ring *ring, int efd, _Atomic uint32_t *wanted)
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

static inline bool ring_arm(struct pms_ring *ring, _Atomic uint32_t *wanted, _Atomic uint32_t *peer_tail)
{
    atomic_store(wanted, 1);
    return atomic_load(peer_tail) != ring->head;
}

static inline int ring_broken(struct pms_ring *ring)
{
    ring->broken = true;
    return PMS_EPROTO;
}

/* Maps the memfd; memfd, total_bytes and slots_n are set. 0 or -errno. */
int pms_ring_map(struct pms_ring *ring);
/* Unmaps, frees the tables. */
void pms_ring_free(struct pms_ring *ring);
void pms_ring_close_fds(struct pms_ring *ring);

#endif
