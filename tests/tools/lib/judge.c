// SPDX-License-Identifier: GPL-2.0-or-later
// The verifying client's model of every sector, and the stamps by which it knows its own writes again.
#include "tests/tools/lib/judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STAMP_MAGIC 0x31304d5453534d50ull // "PMSSTM01"
#define STAMP_WORDS (PMS_STAMP_BYTES / 8)
#define STAMP_HEAD  5 // magic, lba, generation, client, checksum

struct sector {
    uint64_t acked;   // generation of the last acknowledged write; 0: none
    uint64_t floor;   // the oldest generation that a read issued now may return
    uint64_t latest;  // the newest begun
    uint64_t initial; // hash of what it held before the first write; 0: not known
    bool in_flight;
};

struct pms_judge {
    uint64_t client;
    uint64_t lba;
    uint64_t sectors;
    struct sector *s;
    struct pms_judge_counts counts;
    pms_judge_report report;
    void *report_arg;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void stamp_build(uint64_t w[STAMP_WORDS], uint64_t client, uint64_t lba, uint64_t gen)
{
    w[0] = STAMP_MAGIC;
    w[1] = lba;
    w[2] = gen;
    w[3] = client;
    w[4] = mix(mix(mix(client) ^ lba) ^ gen);
    uint64_t x = w[4];
    for (int i = STAMP_HEAD; i < STAMP_WORDS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        w[i] = x;
    }
}

void pms_stamp_fill(void *buf, uint64_t client, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    uint64_t w[STAMP_WORDS];
    for (uint32_t i = 0; i < sectors; i++) {
        stamp_build(w, client, lba + i, gen);
        memcpy((uint8_t *)buf + (size_t)i * PMS_STAMP_BYTES, w, sizeof w);
    }
}

enum pms_stamp_kind pms_stamp_read(const void *buf, uint64_t client, uint64_t lba, uint64_t *gen)
{
    uint64_t got[STAMP_WORDS], want[STAMP_WORDS], any = 0;
    memcpy(got, buf, sizeof got);
    if (got[0] == STAMP_MAGIC) {
        stamp_build(want, got[3], lba, got[2]);
        if (memcmp(got, want, sizeof got))
            return PMS_STAMP_BROKEN;
        *gen = got[2];
        return got[3] == client ? PMS_STAMP_OWN : PMS_STAMP_FOREIGN;
    }
    for (int i = 0; i < STAMP_WORDS; i++)
        any |= got[i];
    return any ? PMS_STAMP_BROKEN : PMS_STAMP_ZERO;
}

static uint64_t content_hash(const void *buf)
{
    uint64_t w[STAMP_WORDS], h = 1;
    memcpy(w, buf, sizeof w);
    for (int i = 0; i < STAMP_WORDS; i++)
        h = mix(h ^ w[i]);
    return h ? h : 1;
}

int pms_judge_create(struct pms_judge **out, uint64_t client, uint64_t lba, uint64_t sectors, bool zeroed)
{
    if (!sectors || lba + sectors < lba)
        return -EINVAL;
    struct pms_judge *j = calloc(1, sizeof *j);
    if (!j)
        return -ENOMEM;
    j->s = calloc(sectors, sizeof *j->s);
    if (!j->s) {
        free(j);
        return -ENOMEM;
    }
    j->client = client;
    j->lba = lba;
    j->sectors = sectors;
    if (zeroed) {
        static const uint8_t zero[PMS_STAMP_BYTES];
        uint64_t h = content_hash(zero);
        for (uint64_t i = 0; i < sectors; i++)
            j->s[i].initial = h;
    }
    *out = j;
    return 0;
}

void pms_judge_destroy(struct pms_judge *j)
{
    if (!j)
        return;
    free(j->s);
    free(j);
}

void pms_judge_on_verdict(struct pms_judge *j, pms_judge_report report, void *arg)
{
    j->report = report;
    j->report_arg = arg;
}

static struct sector *range(const struct pms_judge *j, uint64_t lba, uint64_t sectors)
{
    if (!sectors || lba < j->lba || lba - j->lba > j->sectors || sectors > j->sectors - (lba - j->lba))
        return NULL;
    return j->s + (lba - j->lba);
}

int pms_judge_write_begin(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    struct sector *s = range(j, lba, sectors);
    if (!s || !gen)
        return -EINVAL;
    for (uint32_t i = 0; i < sectors; i++) {
        if (s[i].in_flight)
            return -EBUSY;
        if (gen <= s[i].latest)
            return -EINVAL;
    }
    for (uint32_t i = 0; i < sectors; i++) {
        s[i].in_flight = true;
        s[i].latest = gen;
    }
    return 0;
}

// The sectors of a write in flight, or NULL if it is not exactly that.
static struct sector *write_in_flight(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    struct sector *s = range(j, lba, sectors);
    for (uint32_t i = 0; s && i < sectors; i++)
        if (!s[i].in_flight || s[i].latest != gen)
            return NULL;
    return s;
}

int pms_judge_write_ack(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    struct sector *s = write_in_flight(j, lba, sectors, gen);
    if (!s)
        return -EINVAL;
    for (uint32_t i = 0; i < sectors; i++) {
        s[i].in_flight = false;
        s[i].acked = s[i].floor = gen;
    }
    return 0;
}

int pms_judge_write_unknown(struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    struct sector *s = write_in_flight(j, lba, sectors, gen);
    if (!s)
        return -EINVAL;
    for (uint32_t i = 0; i < sectors; i++)
        s[i].in_flight = false;
    return 0;
}

int pms_judge_seen(struct pms_judge *j, uint64_t lba, uint64_t gen)
{
    struct sector *s = range(j, lba, 1);
    if (!s || gen > s->latest)
        return -EINVAL;
    if (gen > s->floor)
        s->floor = gen;
    return 0;
}

int pms_judge_read_begin(const struct pms_judge *j, uint64_t lba, uint32_t sectors, uint64_t *floor)
{
    const struct sector *s = range(j, lba, sectors);
    if (!s)
        return -EINVAL;
    for (uint32_t i = 0; i < sectors; i++)
        floor[i] = s[i].floor;
    return 0;
}

static void condemn(struct pms_judge *j, struct pms_verdict v)
{
    if (v.kind == PMS_VERDICT_LOST)
        j->counts.lost++;
    else if (v.kind == PMS_VERDICT_STALE)
        j->counts.stale++;
    else
        j->counts.garbage++;
    if (j->report)
        j->report(j->report_arg, &v);
}

// Judges one sector; true if it is as it must be. *gen: what it holds (0: the content from before this run).
static bool sector_judge(struct pms_judge *j, struct sector *s, uint64_t lba, uint64_t floor,
                         const void *data, bool final, uint64_t *gen)
{
    struct pms_verdict v = {.lba = lba, .floor = floor, .latest = s->latest};
    enum pms_stamp_kind kind = pms_stamp_read(data, j->client, lba, gen);
    if (kind != PMS_STAMP_OWN) {
        uint64_t h = content_hash(data);
        *gen = 0;
        if (!s->initial && !floor)
            s->initial = h;
        bool before = s->initial ? h == s->initial : kind != PMS_STAMP_BROKEN;
        if (!before) {
            v.kind = PMS_VERDICT_GARBAGE;
            condemn(j, v);
            return false;
        }
    }
    v.gen = *gen;
    if (*gen > s->latest) {
        v.kind = PMS_VERDICT_GARBAGE;
    } else if (*gen < floor) {
        v.kind = final && *gen < s->acked ? PMS_VERDICT_LOST : PMS_VERDICT_STALE;
    } else {
        return true;
    }
    condemn(j, v);
    return false;
}

uint32_t pms_judge_read_end(struct pms_judge *j, uint64_t lba, uint32_t sectors, const uint64_t *floor,
                            const void *data, bool final, uint32_t *seen_unacked)
{
    struct sector *s = range(j, lba, sectors);
    uint32_t bad = 0, seen = 0;
    for (uint32_t i = 0; s && i < sectors; i++) {
        uint64_t gen = 0;
        if (!sector_judge(j, s + i, lba + i, floor[i], (const uint8_t *)data + (size_t)i * PMS_STAMP_BYTES,
                          final, &gen)) {
            bad++;
        } else if (gen > s[i].floor) {
            s[i].floor = gen;
            seen++;
        }
    }
    if (seen_unacked)
        *seen_unacked = seen;
    return bad;
}

bool pms_judge_written(const struct pms_judge *j, uint64_t lba)
{
    const struct sector *s = range(j, lba, 1);
    return s && s->latest;
}

uint64_t pms_judge_floor(const struct pms_judge *j, uint64_t lba)
{
    const struct sector *s = range(j, lba, 1);
    return s ? s->floor : 0;
}

uint64_t pms_judge_acked(const struct pms_judge *j, uint64_t lba)
{
    const struct sector *s = range(j, lba, 1);
    return s ? s->acked : 0;
}

struct pms_judge_counts pms_judge_counts(const struct pms_judge *j)
{
    return j->counts;
}
