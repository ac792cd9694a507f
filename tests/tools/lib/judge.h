// SPDX-License-Identifier: GPL-2.0-or-later
// What the verifying client believes that each sector may hold, and its verdict on what a read returned.
//
// One client writes a span of 512-byte sectors. It stamps every sector with its own id, the sector's number
// and the write's generation (strictly rising), and never has two overlapping writes in flight. So the value
// of a sector is its last acknowledged generation, or that of the one write in flight (a write that is sent
// again after a reconnect may be executed twice; the value is the same). A read may return any generation
// from the floor at its issue (the last acknowledged, or a later one that a completed read has already seen)
// up to the latest begun.
#ifndef PMS_TESTS_TOOLS_JUDGE_H
#define PMS_TESTS_TOOLS_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PMS_STAMP_BYTES 512

// Fills `sectors` sectors of 512 bytes at `buf` with the stamps of generation `gen` from `lba` on.
void pms_stamp_fill(void *buf, uint64_t client, uint64_t lba, uint32_t sectors, uint64_t gen);

enum pms_stamp_kind {
    PMS_STAMP_OWN,     // this client's, for this sector, whole: *gen is set
    PMS_STAMP_FOREIGN, // a whole stamp of another client for this sector (an earlier run's)
    PMS_STAMP_ZERO,    // 512 zero bytes
    PMS_STAMP_BROKEN,  // torn, misplaced, or no stamp at all
};
enum pms_stamp_kind pms_stamp_read(const void *buf, uint64_t client, uint64_t lba, uint64_t *gen);

enum pms_verdict_kind { PMS_VERDICT_LOST, PMS_VERDICT_STALE, PMS_VERDICT_GARBAGE };

struct pms_verdict {
    enum pms_verdict_kind kind;
    uint64_t lba;
    uint64_t gen;    // what was read; 0: not a stamp of this run
    uint64_t floor;  // the oldest generation allowed
    uint64_t latest; // the newest allowed
};

struct pms_judge_counts {
    uint64_t lost;    // sectors whose acknowledged write is gone at the end
    uint64_t stale;   // sectors for which a read went back in time
    uint64_t garbage; // sectors that hold what was never written there
};

struct pms_judge;
typedef void (*pms_judge_report)(void *arg, const struct pms_verdict *v);

// A judge of `sectors` sectors from `lba` on. `zeroed`: never-written sectors must read zero; otherwise their
// content is learnt at the first read and may not change. Returns 0, -EINVAL or -ENOMEM; destroy frees it.
int pms_judge_create(struct pms_judge **out, uint64_t client, uint64_t lba, uint64_t sectors, bool zeroed);
void pms_judge_destroy(struct pms_judge *j);
void pms_judge_on_verdict(struct pms_judge *j, pms_judge_report report, void *arg);

// A write is about to be sent. -EBUSY: a write of one of these sectors is in flight; -EINVAL: outside the
// span, or `gen` not newer.
int pms_judge_write_begin(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen);
// It was acknowledged. -EINVAL: it was not in flight.
int pms_judge_write_ack(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen);
// It ended without a known outcome: old and new are both allowed from now on. -EINVAL: it was not in flight.
int pms_judge_write_unknown(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen);
// A generation that a read has seen and that was not acknowledged yet (replay of a log).
int pms_judge_seen(struct pms_judge *j, uint64_t lba, uint64_t gen);

// A read is about to be sent: keeps the floors of its sectors in floor[sectors].
int pms_judge_read_begin(const struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t *floor);
// It returned `data`. `final`: nothing is in flight any more, so an old value is a loss. Returns the number
// of sectors found bad; *seen_max is the number of sectors for which an unacknowledged generation was seen
// (may be NULL).
uint32_t pms_judge_read_end(struct pms_judge *j, uint64_t lba, uint32_t sectors, const uint64_t *floor,
                            const void *data, bool final, uint32_t *seen_unacked);

// Whether this run ever began a write of the sector; its state for the log.
bool pms_judge_written(const struct pms_judge *j, uint64_t lba);
uint64_t pms_judge_floor(const struct pms_judge *j, uint64_t lba);
uint64_t pms_judge_acked(const struct pms_judge *j, uint64_t lba);
struct pms_judge_counts pms_judge_counts(const struct pms_judge *j);

#endif
