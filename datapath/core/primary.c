// SPDX-License-Identifier: GPL-2.0-or-later
// The primary: epochs, heartbeats and lease, ejecting, admitting, handing over.
/*
 *   takeover applied              all settled
 *   ───────────────▶ SETTLING ─────────────────▶ SERVING ──drained──▶ DRAINED ──newer epoch──▶ SERVING or
 * REPLICA handover applied ───────────────────────────▶ SERVING
 *
 * An epoch becomes active when floor and served are durable and older local I/O is over (R2, R5, R8); until
 * then nothing of it is sent. What is wanted of Raft is looked at in this order: eject, refresh, admit,
 * handover; it is proposed again until a newer epoch is applied, which is the only news that counts.
 */
#include <string.h>

#include "datapath/core/dp_internal.h"

#define DRAIN_MAX_MS    3000
#define UNKNOWN_MAX_MS  500
#define CLEAR_PERIOD_MS 500
#define CLEAR_MAX       4096u
#define PAUSE_MS        200 /* a longer gap between ticks means that this node was stopped */

static uint8_t others(const struct pms_dp *dp)
{
    return dp->conf.in_sync & (uint8_t)~BIT(dp->self);
}

uint8_t dp_primary_must(const struct pms_dp *dp)
{
    if (PMS_MUTANT(ACK_EARLY))
        return BIT(dp->self);
    if (PMS_MUTANT(ADMIT_NO_UNION))
        return dp->conf.in_sync;
    if (PMS_MUTANT(EJECT_ASSUMED))
        return dp->conf.in_sync & (uint8_t)~dp->eject_now;
    return dp->conf.in_sync | dp->admitting;
}

bool dp_primary_leased(const struct pms_dp *dp)
{
    uint8_t need = (dp->conf.in_sync | dp->admitting) & (uint8_t)~BIT(dp->self);

    if (PMS_MUTANT(LEASE_IGNORED))
        return true;
    if (PMS_MUTANT(ADMIT_NO_UNION))
        need = others(dp);
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if ((need & BIT(s)) && dp->now >= dp->lease_until[s])
            return false;
    return true;
}

/* Heartbeats to be answered by every other slot that a read needs (I3). */
static uint8_t probe_need(const struct pms_dp *dp)
{
    return (dp->conf.in_sync | dp->admitting) & (uint8_t)~BIT(dp->self);
}

static bool probe_answered(const struct pms_dp *dp, uint64_t seq)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if ((probe_need(dp) & BIT(s)) && dp->hb_acked[s] < seq)
            return false;
    return true;
}

static void heartbeats(struct pms_dp *dp)
{
    uint8_t to =
        (dp->conf.in_sync | dp->admitting | dp_repair_active(dp)) & dp->link_up & (uint8_t)~BIT(dp->self);

    if (dp->now < dp->next_hb || !dp->epoch_active)
        return;
    dp->next_hb = dp->now + MS(dp->init.timing.heartbeat);
    dp->hb_sent = ++dp->seq;
    dp->probe_wanted = false;
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        if (!(to & BIT(s)))
            continue;
        struct pms_frame f = dp_frame(dp, PMS_FRAME_HB, s);

        f.seq = dp->hb_sent;
        f.arg = dp->now;
        f.arg2 = dp_incarnation(dp, s);
        f.length = dp->init.timing.promise;
        dp_send(dp, s, &f, NULL, 0);
    }
}

/* A read arrived: which heartbeats must be answered first? Those to be sent next; one round is under way at a
 * time, so that reads share them. */
uint64_t dp_primary_probe(struct pms_dp *dp)
{
    if (!dp->init.probe_reads || probe_need(dp) == 0)
        return 0;
    if (!probe_answered(dp, dp->hb_sent)) {
        dp->probe_wanted = true;
        return dp->hb_sent + 1;
    }
    dp->next_hb = dp->now;
    heartbeats(dp);
    return dp->hb_sent;
}

bool dp_primary_probed(const struct pms_dp *dp, uint64_t probe)
{
    if (!dp->init.probe_reads || PMS_MUTANT(CLOCK_STOP_IGNORED))
        return dp_primary_leased(dp);
    return probe_answered(dp, probe);
}

void dp_primary_begin_epoch(struct pms_dp *dp)
{
    dp->epoch_active = false;
    dp->starting = true;
    dp->starting_since = dp->now;
    dp->brick.mem.served = dp->conf.epoch;
    dp_fence(dp, dp->conf.epoch);
}

void dp_primary_start(struct pms_dp *dp, const uint8_t *settle_bits)
{
    dp->role = PMS_DP_SERVING;
    dp->tenure_since = dp->now;
    dp->tenure_epoch = dp->conf.epoch;
    dp->higher_floor = 0;
    dp->admitting = dp->eject_now = 0;
    dp->draining = false;
    dp->handover_to = NO_SLOT;
    dp->next_hb = dp->now;
    dp->counters_takeovers++;
    /* What earlier primaries acknowledged may be volatile still: as if it were one byte. */
    dp->volatile_total = dp->conf.cache_used;
    dp->stable_total = 0;
    dp->volatile_since = dp->conf.cache_used ? dp->now : 0;
    dp->flushed_clock = 0;
    dp->flush_wanted = dp->lossy = false;
    memcpy(dp->seen, dp->brick.bits_mem, dp_bits_bytes(dp));
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        dp->lease_until[s] = 0;
        dp->hb_acked[s] = 0;
        dp->last_ack[s] = dp->now;
        if (settle_bits != NULL && (others(dp) & BIT(s)) && !PMS_MUTANT(NO_SETTLE))
            dp_repair_settle(dp, s, settle_bits);
    }
    if (settle_bits != NULL)
        for (uint32_t i = 0; i < dp_bits_bytes(dp); i++)
            dp->seen[i] |= settle_bits[i];
    if (dp_repair_settling(dp))
        dp->role = PMS_DP_SETTLING;
    dp_primary_begin_epoch(dp);
}

/* A newer epoch in the same tenure: eject, admit, refresh, or a handover that did not come about. */
void dp_primary_same(struct pms_dp *dp)
{
    uint8_t admitted = dp->admitting;

    dp->admitting = 0;
    dp->draining = false;
    dp->handover_to = NO_SLOT;
    dp->eject_now &= dp->conf.in_sync;
    if (dp->role == PMS_DP_DRAINED)
        dp->role = PMS_DP_SERVING;
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        bool in = dp->conf.in_sync & BIT(s);
        enum sess_kind k = dp->sess[s].kind;

        if ((in && k != SESS_SETTLE && k != SESS_NONE) || (!in && k == SESS_SETTLE) ||
            (!in && (admitted & BIT(s))))
            dp_repair_end(dp, s, in ? 0 : 200);
        if (in && (admitted & BIT(s)))
            dp->last_ack[s] = dp->now;
    }
    dp_primary_begin_epoch(dp);
    dp->recheck_done = dp->recheck_start = true;
}

void dp_primary_stop(struct pms_dp *dp)
{
    dp->starting = dp->epoch_active = dp->draining = false;
    dp->admitting = dp->eject_now = 0;
    dp->higher_floor = 0;
    dp->handover_to = NO_SLOT;
    dp_repair_stop(dp);
    dp_coord_drop_all(dp);
    dp_replica_cancel_local(dp);
}

void dp_primary_hb_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f)
{
    uint64_t until = (PMS_MUTANT(LEASE_FROM_ACK) ? dp->now : f->arg) + MS(dp->init.timing.lease);

    if (f->status != PMS_FRAME_OK) {
        dp_primary_refused(dp, slot, f);
        return;
    }
    if (f->epoch < dp->tenure_epoch || f->arg > dp->now)
        return;
    if (until > dp->lease_until[slot])
        dp->lease_until[slot] = until;
    if (f->seq > dp->hb_acked[slot])
        dp->hb_acked[slot] = f->seq;
    dp->last_ack[slot] = dp->now;
    dp->recheck_done = true;
    if (dp->probe_wanted && probe_answered(dp, dp->hb_sent)) {
        dp->next_hb = dp->now;
        heartbeats(dp);
    }
}

/* Any request of ours was refused. */
void dp_primary_refused(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f)
{
    if (!dp_is_primary(dp))
        return;
    switch (f->status) {
    case PMS_FRAME_STALE:
        if (f->floor > dp->conf.epoch && f->floor > dp->higher_floor)
            dp->higher_floor = f->floor;
        break;
    case PMS_FRAME_INCARNATION:
    case PMS_FRAME_IO_ERROR:
        if (others(dp) & BIT(slot))
            dp->eject_now |= BIT(slot);
        else
            dp_repair_end(dp, slot, 2000);
        break;
    default:
        break;
    }
}

/* Slots that no longer answer: dead (no heartbeat answers) or slow (writes or copies unanswered). */
static uint8_t to_eject(const struct pms_dp *dp)
{
    uint8_t mask = dp->eject_now & others(dp);
    uint64_t dead = MS(dp->init.timing.eject_dead), slow = MS(dp->init.timing.eject_slow);

    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        if (!(others(dp) & BIT(s)))
            continue;
        uint64_t oldest = dp_coord_oldest(dp, s), copy = dp_repair_oldest(dp, s);

        if (dp->now >= dp->last_ack[s] + dead && dp->now >= dp->smooth_since + dead)
            mask |= BIT(s);
        if (oldest != 0 && dp->now >= oldest + slow && dp->now >= dp->smooth_since + slow)
            mask |= BIT(s);
        /* A copy waits for the own disk too. */
        if (copy != 0 && dp->now >= copy + slow && dp->now >= dp->smooth_since + slow && !dp->aside.hangs)
            mask |= BIT(s);
    }
    return mask;
}

static uint8_t to_admit(const struct pms_dp *dp)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp_repair_caught_up(dp, s) && (dp->link_up & BIT(s)) &&
            (dp->now < dp->lease_until[s] || PMS_MUTANT(ADMIT_NO_UNION)))
            return BIT(s);
    return 0;
}

static void propose_admit(struct pms_dp *dp, uint8_t slots)
{
    uint64_t inc[PMS_SLOTS_MAX];

    memcpy(inc, dp->conf.incarnation, sizeof inc);
    if (dp->admitting == 0) {
        dp->admitting = slots;
        dp->admit_since = dp->now;
    }
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp->admitting & BIT(s))
            inc[s] = dp->sess[s].incarnation;
    dp_propose(dp, PMS_DP_ADMIT, dp->self, dp->conf.in_sync | dp->admitting, inc);
}

static void want(struct pms_dp *dp)
{
    uint8_t eject = to_eject(dp), admit = 0;
    bool unknown = dp->admitting != 0 && (dp->now >= dp->admit_since + MS(UNKNOWN_MAX_MS) ||
                                          (dp->admitting & (uint8_t)~dp_repair_active(dp)) != 0);

    if (dp->starting || dp->conf.epoch == 0)
        return;
    if (dp_aside_instead(dp, eject & (uint8_t)~dp->eject_now))
        return;
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (eject & BIT(s)) {
            dp_propose(dp, PMS_DP_EJECT, dp->self,
                       dp->conf.in_sync &
                           (uint8_t) ~(BIT(s) | (PMS_MUTANT(EJECT_LEAVES_NONE) ? BIT(dp->self) : 0)),
                       dp->conf.incarnation);
            return;
        }
    if (dp->role == PMS_DP_DRAINED && dp->now >= dp->handover_since + MS(UNKNOWN_MAX_MS))
        unknown = true;
    if (dp->higher_floor > dp->conf.epoch || unknown) {
        dp_propose(dp, PMS_DP_REFRESH, dp->self, dp->conf.in_sync, dp->conf.incarnation);
        return;
    }
    if (dp->role == PMS_DP_DRAINED) {
        dp_propose(dp, PMS_DP_HANDOVER, dp->handover_to, dp->conf.in_sync, dp->conf.incarnation);
        return;
    }
    if (dp->role == PMS_DP_SERVING && !dp->draining)
        admit = dp->admitting != 0 ? dp->admitting : to_admit(dp);
    if (admit != 0)
        propose_admit(dp, admit);
}

/* Regions that nobody has written for a while are equal and stable everywhere: take their marks off (R7). */
static void clear_idle(struct pms_dp *dp)
{
    uint8_t all = (uint8_t)((1u << dp->conf.n_slots) - 1);
    uint32_t clock = (uint32_t)(dp->now / MS(256)), idle = dp->init.timing.clear_idle / 256 + 1, n = 0;
    struct pms_iobuf *list;

    if (dp->now < dp->next_clear)
        return;
    dp->next_clear = dp->now + MS(CLEAR_PERIOD_MS);
    if (!dp->epoch_active || dp->role != PMS_DP_SERVING || dp->admitting != 0 || dp_repair_active(dp) != 0 ||
        dp->higher_floor > dp->conf.epoch)
        return;
    if (dp->conf.in_sync != all && !PMS_MUTANT(CLEAR_EARLY))
        return;
    list = pms_iobuf_create(CLEAR_MAX * 4);
    for (uint32_t r = 0; r < dp->brick.regions && n < CLEAR_MAX; r++) {
        if (!bit_get(dp->seen, r) || clock - dp->last_use[r] < idle ||
            (dp_coord_region_busy(dp, r) && !PMS_MUTANT(CLEAR_BUSY)))
            continue;
        if (dp->conf.cache_used && dp->flushed_clock <= dp->last_use[r] && !PMS_MUTANT(CLEAR_UNFLUSHED)) {
            dp->flush_wanted = true;
            continue;
        }
        memcpy(list->data + (size_t)n++ * 4, &r, 4);
        bit_clear(dp->seen, r);
        dp_brick_unmark(dp, r);
    }
    for (uint8_t s = 0; s < dp->conf.n_slots && n > 0; s++) {
        if (!(others(dp) & dp->link_up & BIT(s)))
            continue;
        struct pms_frame f = dp_frame(dp, PMS_FRAME_CLEAR, s);

        f.seq = ++dp->seq;
        f.arg2 = dp_incarnation(dp, s);
        f.payload_len = n * 4;
        dp_send(dp, s, &f, list, 0);
    }
    if (n > 0)
        dp->brick.lazy_due = true;
    pms_iobuf_put(list);
}

static void resync_start(struct pms_dp *dp)
{
    if (!dp->epoch_active || dp->role == PMS_DP_DRAINED || dp->draining || dp->higher_floor > dp->conf.epoch)
        return;
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (!((dp->conf.in_sync | dp->admitting) & BIT(s)) && (dp->link_up & BIT(s)) &&
            dp->sess[s].kind == SESS_NONE && dp->now >= dp->sess[s].retry_at && !dp_leave_is_gone(dp, s) &&
            dp_flap_wait_ms(dp, s) == 0)
            dp_repair_map(dp, s);
}

void dp_primary_tick(struct pms_dp *dp)
{
    if (dp->now > dp->last_tick + MS(PAUSE_MS) || dp->starting)
        dp->smooth_since = dp->now;
    dp->last_tick = dp->now;
    if (!dp_is_primary(dp))
        return;
    heartbeats(dp);
    if (dp->draining && dp->role == PMS_DP_SERVING && dp->now >= dp->handover_since + MS(DRAIN_MAX_MS)) {
        dp->draining = false;
        dp->recheck_start = true;
    }
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        uint64_t copy = dp_repair_oldest(dp, s);

        if (copy != 0 && !(dp->conf.in_sync & BIT(s)) && dp->now >= copy + MS(dp->init.timing.eject_slow))
            dp_repair_end(dp, s, 1000);
    }
    resync_start(dp);
    want(dp);
    clear_idle(dp);
    dp_coord_flush(dp);
}

bool dp_primary_pump(struct pms_dp *dp)
{
    bool any = false;

    if (!dp_is_primary(dp))
        return false;
    if (dp->starting && dp->brick.disk.served >= dp->conf.epoch && dp_fence_done(dp, dp->conf.epoch)) {
        PMS_CHECK(dp->brick.mem.floor == dp->conf.epoch);
        dp->starting = false;
        dp->epoch_active = true;
        dp->next_hb = dp->now;
        heartbeats(dp);
        dp_coord_resend(dp, 0xff);
        dp->recheck_done = dp->recheck_start = true;
        any = true;
    }
    if (dp->role == PMS_DP_SETTLING && !dp_repair_settling(dp)) {
        dp->role = PMS_DP_SERVING;
        dp->recheck_start = true;
        any = true;
    }
    if (dp->draining && dp->role == PMS_DP_SERVING &&
        (dp->cops_active == 0 || PMS_MUTANT(HANDOVER_UNDRAINED)) && dp->admitting == 0 &&
        pms_list_empty(&dp->jobs)) {
        dp->role = PMS_DP_DRAINED;
        dp->handover_since = dp->now;
        want(dp);
        any = true;
    }
    return any;
}

int dp_primary_handover(struct pms_dp *dp, uint8_t slot)
{
    if (dp->role != PMS_DP_SERVING || !dp->epoch_active || dp->draining || dp->admitting != 0 ||
        slot >= dp->conf.n_slots || !(others(dp) & BIT(slot)) || !dp_primary_leased(dp))
        return PMS_EREFUSED;
    dp->draining = true;
    dp->handover_to = slot;
    dp->handover_since = dp->now;
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp->sess[s].kind != SESS_NONE)
            dp_repair_end(dp, s, 1000);
    return 0;
}

int pms_dp_handover(struct pms_dp *dp, uint64_t now, uint8_t slot)
{
    int err;

    dp->now = now;
    err = dp_primary_handover(dp, slot);
    if (err == 0)
        pms_dp_tick(dp, now);
    return err;
}
