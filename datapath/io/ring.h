// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The shared-memory ring between the plugin in tgtd (submits) and pmsd's data loop (executes).
 *
 * One sealed memfd holds: a header, a table of slots, two index rings (submission, completion) and the data
 * arena. Two eventfds are the doorbells. The memfd outlives pmsd: the plugin keeps it and hands it to the
 * next pmsd, which finds every command that has no posted completion (pms_ring_attach) and never sees again
 * one that has.
 *
 *   plugin: pms_ring_buf_alloc, tgtd reads the socket into it, pms_ring_submit ... pms_ring_reap
 *   pmsd:   pms_ring_poll, disk and peers straight from pms_ring_data(), pms_ring_complete, pms_ring_kick
 *
 * A slot's life, kept in shared memory:
 *   FREE -submit-> SUBMITTED -poll-> TAKEN -complete-> COMPLETED -reap-> FREE
 *
 * Trust: neither side believes the other. pmsd copies each entry to private memory before it looks at it,
 * checks opcode, tag, offset, length and arena range against what it was told at attach, and keeps its own
 * record of which slots it holds; the worst a broken tgtd can do is to spoil the contents of its own array's
 * buffers. After the first violation the ring is broken for good and every call returns PMS_EPROTO.
 *
 * Threads: one thread on each side; no locks. libc only (also linked into tgtd).
 */
#ifndef PMS_DATAPATH_IO_RING_H
#define PMS_DATAPATH_IO_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PMS_RING_SLOTS_MAX     4096u
#define PMS_RING_SLOTS_DEFAULT 1024u
#define PMS_RING_ARENA_DEFAULT (64u << 20)
#define PMS_RING_ARENA_MAX     (1u << 30)
#define PMS_RING_IO_MAX        (4u << 20) /* longest payload of one command, and longest buffer, in bytes */
#define PMS_RING_PAGE          4096u      /* alignment of every arena buffer */
#define PMS_RING_SECTOR        512u       /* unit of offset and length */

enum pms_ring_op {
    PMS_RING_READ = 1,  /* medium -> arena */
    PMS_RING_WRITE = 2, /* arena -> medium */
    PMS_RING_FLUSH = 3, /* everything completed before is made stable; offset, length, arena are 0 */
    PMS_RING_ZERO = 4,  /* a WRITE of zeros; arena is 0 */
};

#define PMS_RING_FUA                                                                                         \
    0x1u /* flag of a WRITE or ZERO (stable before the answer) or a READ (from stable storage) */

/* One command as pmsd gets it: already checked. */
struct pms_ring_cmd {
    uint64_t tag; /* names the command in pms_ring_complete; unique for the ring's life */
    uint64_t seq; /* order of submission, strictly rising */
    uint64_t
        offset; /* byte on the array, multiple of PMS_RING_SECTOR, offset + length <= size given to attach */
    uint64_t arena_off; /* byte in the arena, multiple of PMS_RING_SECTOR */
    uint32_t length;    /* bytes, multiple of PMS_RING_SECTOR, 1 sector .. PMS_RING_IO_MAX; 0 for FLUSH */
    uint8_t op;         /* enum pms_ring_op */
    uint8_t flags;      /* PMS_RING_FUA */
    bool recovered;     /* was already handed to an earlier pmsd, which may or may not have executed it */
};

/* One answer as the plugin gets it. SCSI status and sense as SAM-5, SPC-4. */
struct pms_ring_cpl {
    uint64_t tag;
    uint64_t cookie; /* as given to pms_ring_submit */
    uint8_t status;  /* SAM status: 0 GOOD, 2 CHECK CONDITION, 8 BUSY, 0x28 TASK SET FULL ... */
    uint8_t key, asc, ascq;
};

struct pms_ring_stats {
    uint64_t submitted, completed;       /* commands, whole life of the ring */
    uint64_t held;                       /* commands that wait in the plugin now (gate closed or ring full) */
    uint64_t arena_used, arena_used_max; /* bytes in buffers now, and at most */
    uint64_t doorbells;                  /* eventfd writes of both sides */
};

struct pms_ring; /* one side's handle: opaque */

/* ---- pmsd's side ---- */

/*
 * Maps a ring made by a plugin. Takes the three descriptors over on success only; on error they stay the
 * caller's. size_bytes bounds the commands (pms_ring_size_set changes it later). Commands without a posted
 * completion are handed out first by pms_ring_poll, in their order, those an earlier pmsd had taken with
 * `recovered` set. The plugin does not submit between its HELLO and SERVE, so that nothing is missed
 * meanwhile. Errors: -errno, PMS_EPROTO (not a ring, not sealed against shrinking, impossible sizes),
 * PMS_EVERSION.
 */
int pms_ring_attach(int memfd, int efd_sq, int efd_cq, uint64_t size_bytes, struct pms_ring **out);
/* Unmaps and closes. The commands stay in the memfd for the next pmsd. NULL is allowed. */
void pms_ring_detach(struct pms_ring *ring);

void pms_ring_size_set(struct pms_ring *ring, uint64_t size_bytes);
uint64_t pms_ring_array_id(const struct pms_ring *ring);
/* The eventfd to wait on (readable: poll the ring). The caller reads it to clear it, or calls
 * pms_ring_sq_clear. */
int pms_ring_sq_fd(const struct pms_ring *ring);
void pms_ring_sq_clear(struct pms_ring *ring);

/* Takes up to n commands. Returns their number (0: none), PMS_EPROTO: the ring is broken, drop the plugin. */
int pms_ring_poll(struct pms_ring *ring, struct pms_ring_cmd *out, int n);
/*
 * Before sleeping: asks for a doorbell. Returns true if commands came meanwhile (poll again instead of
 * sleeping). Without it the plugin rings no bell: poll in a loop while busy, arm, then sleep.
 */
bool pms_ring_arm(struct pms_ring *ring);
/* Commands taken and not completed. */
unsigned pms_ring_inflight(const struct pms_ring *ring);

/*
 * Posts one answer. status GOOD is 0; key, asc, ascq count only with CHECK CONDITION (2). The answer becomes
 * durable in the ring at once, the plugin's bell rings in pms_ring_kick. -ENOENT: no such command is held;
 * PMS_EPROTO: broken.
 */
int pms_ring_complete(struct pms_ring *ring, uint64_t tag, uint8_t status, uint8_t key, uint8_t asc,
                      uint8_t ascq);
/* Rings the plugin's bell if it sleeps and something was completed since the last kick. Once per batch. */
void pms_ring_kick(struct pms_ring *ring);

/* Address of arena bytes [arena_off, arena_off + len), NULL if outside. Valid until detach. */
void *pms_ring_data(struct pms_ring *ring, uint64_t arena_off, uint32_t len);
/* The whole arena, for registering it with io_uring. */
void *pms_ring_arena(struct pms_ring *ring, size_t *bytes);

/* ---- either side ---- */

void pms_ring_stats_get(const struct pms_ring *ring, struct pms_ring_stats *out);

/* ---- the plugin's side ---- */

/* Makes memfd, eventfds and mapping. slots: a power of two up to PMS_RING_SLOTS_MAX; arena_bytes: of
 * PMS_RING_PAGE. */
int pms_ring_create(uint64_t array_id, uint32_t slots, uint32_t arena_bytes, struct pms_ring **out);
void pms_ring_destroy(struct pms_ring *ring);
/* The three descriptors, to be passed on by SCM_RIGHTS; they stay the ring's. */
void pms_ring_fds(const struct pms_ring *ring, int *memfd, int *efd_sq, int *efd_cq);

/* A page-aligned buffer of len bytes (1 .. PMS_RING_IO_MAX) in the arena, NULL if none is free. */
void *pms_ring_buf_alloc(struct pms_ring *ring, size_t len);
void pms_ring_buf_free(struct pms_ring *ring, void *buf);
/* Is the address inside the arena? Then *arena_off says where. */
bool pms_ring_buf_offset(const struct pms_ring *ring, const void *p, uint64_t *arena_off);

/*
 * Submits one command. cookie comes back with the answer and is never shown to pmsd. *tag_out may be NULL.
 * -EAGAIN: no slot free now. -EINVAL: not a valid command. The bell rings in pms_ring_submit_kick.
 */
int pms_ring_submit(struct pms_ring *ring, enum pms_ring_op op, unsigned flags, uint64_t offset,
                    uint32_t length, uint64_t arena_off, uint64_t cookie, uint64_t *tag_out);
void pms_ring_submit_kick(struct pms_ring *ring);
/* Slots neither free nor reaped. */
unsigned pms_ring_outstanding(const struct pms_ring *ring);
/* Takes up to n answers; their slots are free again. Same arming rule as pms_ring_arm. */
int pms_ring_reap(struct pms_ring *ring, struct pms_ring_cpl *out, int n);
bool pms_ring_reap_arm(struct pms_ring *ring);
/*
 * After pmsd was lost: finds answers that it had stored but not announced. Returns their number;
 * pms_ring_reap then delivers them; to be done before anything is submitted again.
 */
int pms_ring_rescan(struct pms_ring *ring);
/* Gauge for the metrics: commands waiting in the plugin. */
void pms_ring_held_set(struct pms_ring *ring, uint64_t held);

#endif
