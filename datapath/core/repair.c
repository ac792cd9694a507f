// SPDX-License-Identifier: GPL-2.0-or-later
// Making slots equal to the primary, region by region: settling after takeover (I4), resync of stale slots
// (I8, R7).
/*
 * A session per slot: SETTLE for an in-sync slot after takeover (its regions answer no command until
 * settled), RESYNC for a stale one (MAP ─▶ MAP_ACK gives its dirty map; need = union of both maps; new writes
 * go to it as soon as their region is done). A job makes one region equal: [resync: lock against writes] ─▶
 * read own + ask SUMS ─▶ send the chunks that differ ─▶ done. Failures: a lost link ends the jobs; a SETTLE
 * session goes on at the next link, a RESYNC session begins anew (with checksums, so little travels again);
 * an answer that says "stale" or "failed" ends the session or ejects.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "datapath/core/dp_internal.h"

#define JOBS_SETTLE 8
#define JOBS_RESYNC 2
#define REFUSED_MS  50

static void job_free(struct pms_dp *dp, struct job *j)
{
    dp->sess[j->slot].jobs--;
    dp_dreq_forget(dp, j);
    if (j->lock != NULL)
        dp_coord_unlock(dp, j->lock);
    pms_list_del(&j->link);
    pms_iobuf_put(j->data);
    free(j);
}

static void jobs_end(struct pms_dp *dp, uint8_t slot)
{
    pms_list_for_each_safe (p, &dp->jobs) {
        struct job *j = pms_list_entry(p, struct job, link);

        if (j->slot == slot)
            job_free(dp, j);
    }
}

void dp_repair_settle(struct pms_dp *dp, uint8_t slot, const uint8_t *bits)
{
    struct sess *s = &dp->sess[slot];

    memcpy(s->need, bits, dp_bits_bytes(dp));
    s->left = s->total = dp_bits_count(dp, bits);
    s->kind = s->left > 0 ? SESS_SETTLE : SESS_NONE;
    s->cursor = 0;
    s->retry_at = 0;
}

void dp_repair_map(struct pms_dp *dp, uint8_t slot)
{
    struct sess *s = &dp->sess[slot];
    struct pms_frame f = dp_frame(dp, PMS_FRAME_MAP, slot);

    s->kind = SESS_MAP_WAIT;
    s->map_seq = f.seq = ++dp->seq;
    s->started = dp->now;
    dp_send(dp, slot, &f, NULL, 0);
}

void dp_repair_map_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f,
                       const struct pms_iobuf *buf)
{
    struct sess *s = &dp->sess[slot];

    if (s->kind != SESS_MAP_WAIT || f->seq != s->map_seq)
        return;
    if (f->status != PMS_FRAME_OK || f->payload_len != dp_bits_bytes(dp) || f->arg2 == 0) {
        dp_primary_refused(dp, slot, f);
        dp_repair_end(dp, slot, 200);
        return;
    }
    memcpy(s->need, dp->brick.bits_mem, dp_bits_bytes(dp));
    for (uint32_t i = 0; i < f->payload_len; i++) {
        if (!PMS_MUTANT(OWN_MAP))
            s->need[i] |= buf->data[i];
        dp->seen[i] |= buf->data[i];
    }
    for (uint32_t r = dp->brick.regions; r < dp_bits_bytes(dp) * 8; r++)
        bit_clear(s->need, r);
    s->kind = SESS_RESYNC;
    s->incarnation = f->arg2;
    s->left = s->total = dp_bits_count(dp, s->need);
    s->cursor = 0;
    s->sent_bytes = 0;
    s->flush_seq = 0;
    s->flushed = !dp->conf.cache_used || PMS_MUTANT(ADMIT_UNFLUSHED);
    dp->next_hb = dp->now; /* its promise is needed before it can be admitted */
}

/* A wait that is longer already stays: a failed brick does not mend because a link comes back. */
static void not_before(struct pms_dp *dp, struct sess *s, uint32_t retry_ms)
{
    if (s->retry_at < dp->now + MS(retry_ms))
        s->retry_at = dp->now + MS(retry_ms);
}

/* Ends a session of whatever kind; it may begin anew after retry_ms. */
void dp_repair_end(struct pms_dp *dp, uint8_t slot, uint32_t retry_ms)
{
    struct sess *s = &dp->sess[slot];

    jobs_end(dp, slot);
    s->kind = SESS_NONE;
    s->left = s->total = 0;
    not_before(dp, s, retry_ms);
    pms_list_for_each (p, &dp->cops)
        pms_list_entry(p, struct cop, link)->sent &= (uint8_t)~BIT(slot);
    dp->recheck_done = dp->recheck_start = true;
}

void dp_repair_link_down(struct pms_dp *dp, uint8_t slot)
{
    jobs_end(dp, slot);
    if (PMS_MUTANT(INTERRUPTED_ADMITTED) && dp->sess[slot].kind == SESS_RESYNC) {
        memset(dp->sess[slot].need, 0, dp_bits_bytes(dp));
        dp->sess[slot].left = 0;
        return;
    }
    if (dp->sess[slot].kind != SESS_SETTLE && dp->sess[slot].kind != SESS_NONE)
        dp_repair_end(dp, slot, 0);
}

/* The slot refused a write or a checksum. Its jobs begin again a little later: by then a new epoch is
 * applied, or the slot is ejected. Not at once, or each refusal of many would begin as many requests anew. */
void dp_repair_refused(struct pms_dp *dp, uint8_t slot)
{
    dp_repair_link_down(dp, slot);
    not_before(dp, &dp->sess[slot], REFUSED_MS);
}

void dp_repair_stop(struct pms_dp *dp)
{
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++) {
        jobs_end(dp, s);
        dp->sess[s].kind = SESS_NONE;
        dp->sess[s].left = dp->sess[s].total = 0;
        dp->sess[s].retry_at = 0;
    }
}

bool dp_repair_unsettled(const struct pms_dp *dp, uint64_t offset, uint32_t length)
{
    uint32_t first = (uint32_t)(offset / dp->init.region_bytes);
    uint32_t last = (uint32_t)((offset + length - 1) / dp->init.region_bytes);

    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        for (uint32_t r = first; r <= last && dp->sess[s].kind == SESS_SETTLE; r++)
            if (bit_get(dp->sess[s].need, r))
                return true;
    return false;
}

bool dp_repair_settling(const struct pms_dp *dp)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp->sess[s].kind == SESS_SETTLE)
            return true;
    return false;
}

bool dp_repair_wants_write(const struct pms_dp *dp, uint8_t slot, uint64_t offset, uint32_t length)
{
    const struct sess *s = &dp->sess[slot];
    uint32_t last = (uint32_t)((offset + length - 1) / dp->init.region_bytes);

    if (s->kind != SESS_RESYNC || PMS_MUTANT(RESYNC_MISSES))
        return false;
    for (uint32_t r = (uint32_t)(offset / dp->init.region_bytes); r <= last; r++)
        if (!bit_get(s->need, r))
            return true;
    return false;
}

bool dp_repair_caught_up(const struct pms_dp *dp, uint8_t slot)
{
    const struct sess *s = &dp->sess[slot];

    if (PMS_MUTANT(ADMIT_EARLY))
        return s->kind == SESS_RESYNC;
    return s->kind == SESS_RESYNC && s->left == 0 && s->jobs == 0 && s->flushed;
}

uint8_t dp_repair_active(const struct pms_dp *dp)
{
    uint8_t mask = 0;

    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp->sess[s].kind == SESS_RESYNC)
            mask |= BIT(s);
    return mask;
}

uint64_t dp_repair_oldest(const struct pms_dp *dp, uint8_t slot)
{
    const struct sess *s = &dp->sess[slot];
    bool waits = s->kind == SESS_MAP_WAIT || (s->kind == SESS_RESYNC && s->flush_seq != 0 && !s->flushed);
    uint64_t oldest = waits ? s->started : 0;

    pms_list_for_each (p, &dp->jobs) {
        const struct job *j = pms_list_entry(p, struct job, link);

        if (j->slot == slot && j->running && (oldest == 0 || j->started < oldest))
            oldest = j->started;
    }
    return oldest;
}

/* ---- one job ---- */
void dp_repair_locked(struct pms_dp *dp, struct job *j)
{
    struct pms_frame f = dp_frame(dp, PMS_FRAME_SUMS, j->slot);

    j->running = true;
    j->started = dp->now;
    j->seq = f.seq = ++dp->seq;
    f.offset = j->offset;
    f.length = j->length;
    f.arg = dp->chunk_bytes;
    f.arg2 = dp_incarnation(dp, j->slot);
    dp_send(dp, j->slot, &f, NULL, 0);
    j->data = pms_iobuf_create(j->length);
    dp_disk(dp, PMS_DP_DISK_READ, dp_dreq_new(dp, DREQ_JOB, j), PMS_BRICK_DATA_OFFSET + j->offset, j->length,
            pms_iobuf_ref(j->data), 0);
}

static void job_done(struct pms_dp *dp, struct job *j)
{
    struct sess *s = &dp->sess[j->slot];

    bit_clear(s->need, j->region);
    s->left--;
    job_free(dp, j);
    if (s->kind == SESS_SETTLE && s->left == 0)
        s->kind = SESS_NONE;
    dp->recheck_start = true;
}

static bool chunk_differs(const struct pms_dp *dp, const struct job *j, uint32_t i)
{
    uint32_t at = i * dp->chunk_bytes,
             len = j->length - at < dp->chunk_bytes ? j->length - at : dp->chunk_bytes;
    XXH128_canonical_t c;

    XXH128_canonicalFromHash(&c, XXH3_128bits(j->data->data + at, len));
    return memcmp(&c, j->sums[i], 16) != 0;
}

static void send_copy(struct pms_dp *dp, struct job *j, uint32_t first, uint32_t end)
{
    struct pms_frame f = dp_frame(dp, PMS_FRAME_WRITE, j->slot);
    uint32_t at = first * dp->chunk_bytes;
    uint32_t len = (end * dp->chunk_bytes < j->length ? end * dp->chunk_bytes : j->length) - at;

    f.seq = ++dp->seq;
    f.offset = j->offset + at;
    f.length = f.payload_len = len;
    f.arg2 = dp_incarnation(dp, j->slot);
    j->writes[first] = f.seq;
    j->writes_out++;
    dp->sess[j->slot].sent_bytes += len;
    dp->resync_sent += len;
    dp_send(dp, j->slot, &f, j->data, at);
}

static void compare(struct pms_dp *dp, struct job *j)
{
    uint32_t n = (j->length + dp->chunk_bytes - 1) / dp->chunk_bytes;

    if (!j->have_data || !j->have_sums)
        return;
    for (uint32_t i = 0; i < n;) {
        uint32_t first = i;

        while (i < n && chunk_differs(dp, j, i))
            i++;
        if (i > first)
            send_copy(dp, j, first, i);
        else
            i++;
    }
    if (j->writes_out == 0)
        job_done(dp, j);
}

void dp_repair_read_done(struct pms_dp *dp, struct job *j)
{
    j->have_data = true;
    compare(dp, j);
}

void dp_repair_sums_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f,
                        const struct pms_iobuf *buf)
{
    pms_list_for_each (p, &dp->jobs) {
        struct job *j = pms_list_entry(p, struct job, link);
        uint32_t n = (j->length + dp->chunk_bytes - 1) / dp->chunk_bytes;

        if (!j->running || j->slot != slot || j->seq != f->seq || j->have_sums)
            continue;
        if (f->payload_len != n * 16)
            return;
        memcpy(j->sums, buf->data, f->payload_len);
        j->have_sums = true;
        compare(dp, j);
        return;
    }
}

bool dp_repair_write_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq)
{
    pms_list_for_each (p, &dp->jobs) {
        struct job *j = pms_list_entry(p, struct job, link);

        for (uint32_t i = 0; j->slot == slot && i < CHUNKS_PER_REGION; i++) {
            if (j->writes[i] != seq || seq == 0)
                continue;
            j->writes[i] = 0;
            if (--j->writes_out == 0)
                job_done(dp, j);
            return true;
        }
    }
    return false;
}

/* What the slot held already may have been found equal before it was stable: a resync ends with a flush. What is
 * written to it later is stable when it answers, as long as it is not in sync. */
static bool flush_last(struct pms_dp *dp, uint8_t slot)
{
    struct sess *s = &dp->sess[slot];

    if (s->kind != SESS_RESYNC || s->left > 0 || s->flushed || s->flush_seq != 0)
        return false;
    struct pms_frame f = dp_frame(dp, PMS_FRAME_FLUSH, slot);

    s->flush_seq = f.seq = ++dp->seq;
    s->started = dp->now;
    f.arg2 = dp_incarnation(dp, slot);
    dp_send(dp, slot, &f, NULL, 0);
    return true;
}

bool dp_repair_flush_ack(struct pms_dp *dp, uint8_t slot, uint64_t seq)
{
    struct sess *s = &dp->sess[slot];

    if (s->kind != SESS_RESYNC || s->flush_seq != seq)
        return false;
    s->flushed = true;
    return true;
}

/* ---- which region next ---- */
static bool in_job(const struct pms_dp *dp, uint8_t slot, uint32_t region)
{
    pms_list_for_each (p, &dp->jobs) {
        const struct job *j = pms_list_entry(p, struct job, link);

        if (j->slot == slot && j->region == region)
            return true;
    }
    return false;
}

/* A region that a held command waits for comes first. */
static bool wanted_region(const struct pms_dp *dp, uint8_t slot, uint32_t *region)
{
    const struct sess *s = &dp->sess[slot];

    pms_list_for_each (p, &dp->cops) {
        const struct cop *c = pms_list_entry(p, struct cop, link);

        if (c->state != COP_QUEUED || c->length == 0)
            continue;
        uint32_t last = (uint32_t)((c->offset + c->length - 1) / dp->init.region_bytes);

        for (uint32_t r = (uint32_t)(c->offset / dp->init.region_bytes); r <= last; r++)
            if (bit_get(s->need, r) && !in_job(dp, slot, r)) {
                *region = r;
                return true;
            }
    }
    return false;
}

static bool next_region(struct pms_dp *dp, uint8_t slot, uint32_t *region)
{
    struct sess *s = &dp->sess[slot];

    if (s->left <= s->jobs)
        return false;
    if (s->kind == SESS_SETTLE && dp->cops_queued > 0 && wanted_region(dp, slot, region))
        return true;
    for (uint32_t i = 0; i < dp->brick.regions; i++) {
        uint32_t r = s->cursor;

        s->cursor = (s->cursor + 1) % dp->brick.regions;
        if (bit_get(s->need, r) && !in_job(dp, slot, r)) {
            *region = r;
            return true;
        }
    }
    return false;
}

static void job_start(struct pms_dp *dp, uint8_t slot, uint32_t region)
{
    struct job *j = calloc(1, sizeof *j);

    PMS_CHECK(j != NULL);
    j->slot = slot;
    j->region = region;
    j->settle = dp->sess[slot].kind == SESS_SETTLE;
    j->offset = (uint64_t)region * dp->init.region_bytes;
    j->length = dp->init.region_bytes;
    if (j->length > dp->init.size_bytes - j->offset)
        j->length = (uint32_t)(dp->init.size_bytes - j->offset);
    pms_list_add_tail(&dp->jobs, &j->link);
    dp->sess[slot].jobs++;
    if (j->settle)
        dp_repair_locked(dp, j); /* its region answers no command: nothing to lock against */
    else
        j->lock = dp_coord_lock(dp, j);
}

bool dp_repair_pump(struct pms_dp *dp)
{
    bool any = false;

    if (!dp_is_primary(dp) || !dp->epoch_active || dp->role == PMS_DP_DRAINED || dp->draining ||
        dp->higher_floor > dp->conf.epoch)
        return false;
    for (uint8_t slot = 0; slot < dp->conf.n_slots; slot++) {
        struct sess *s = &dp->sess[slot];
        uint32_t max = s->kind == SESS_SETTLE ? JOBS_SETTLE : JOBS_RESYNC, region;

        if ((s->kind != SESS_SETTLE && s->kind != SESS_RESYNC) || !(dp->link_up & BIT(slot)) ||
            dp->now < s->retry_at)
            continue;
        while (s->jobs < max && next_region(dp, slot, &region)) {
            job_start(dp, slot, region);
            any = true;
        }
        any |= flush_last(dp, slot);
    }
    return any;
}
