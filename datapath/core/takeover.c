// SPDX-License-Identifier: GPL-2.0-or-later
// The candidate: from a lapsed promise to a proposed takeover.
/*
 *            promise lapsed, quiet over             no veto                  own fence done
 *  REPLICA ───────────────────────────▶ ASK ───────────────────▶ FENCE ───────────────────▶ PROMISE
 *     ▲                                  │ veto, stale             │                           │ all
 * answered, or time out └──────────── backoff ─────────────┴──── heartbeat, newer epoch, time out
 * ───────────────▼ PROPOSE ──▶ conf: primary
 *
 * ASK raises no floor (R9). The new set is this node and those that promised. A restarted primary takes over
 * from itself (R2).
 *
 * An unclean node, whose brick may have lost acknowledged data, takes over only if every in-sync slot is unclean too
 * and promises (R6): one clean or silent slot ends the attempt. All of them go on under new incarnations.
 */
#include <string.h>

#include "datapath/core/dp_internal.h"

#define PROMISE_WAIT_MS    400
#define PROPOSE_WAIT_MS    2000
#define NOT_READY_MAX_MS   1000
#define RANK_DELAY_MS      60
#define UNCLEAN_BACKOFF_MS 200
#define BOOT_GRACE_MS      1000 /* after its start a candidate waits this long for links to in-sync slots */

/* This node's place in the order of candidates: in-sync slots but the primary, by number. */
static uint32_t rank(const struct pms_dp *dp)
{
    uint32_t n = 0;

    for (uint8_t s = 0; s < dp->self; s++)
        n += (dp->conf.in_sync & BIT(s)) && s != dp->conf.primary;
    return n;
}

/* Gives up (if it stood at all); stands again after backoff_ms and its place in the order. */
void dp_cand_abort(struct pms_dp *dp, uint32_t backoff_ms)
{
    if (dp->role == PMS_DP_CANDIDATE)
        dp->role = PMS_DP_REPLICA;
    dp->cand.backoff_until = dp->now + MS(backoff_ms + RANK_DELAY_MS * rank(dp));
}

static bool may_stand(const struct pms_dp *dp)
{
    const struct replica *r = &dp->rep;

    if (dp->role != PMS_DP_REPLICA || !dp->live || dp->leaving || dp->brick.failed ||
        (!dp_self_in_sync(dp) && !dp_self_unclean(dp)) || dp->brick.mem.floor > dp->conf.epoch + 1 ||
        dp->now < dp->cand.backoff_until)
        return false;
    if (dp->conf.primary == dp->self)
        return true;
    if (PMS_MUTANT(NO_PROMISE_WAIT))
        return dp->now >= r->last_hb + MS(2 * dp->init.timing.heartbeat);
    uint64_t lapsed = r->promise_until > r->quiet_until ? r->promise_until : r->quiet_until;

    return dp->now >= lapsed + MS(RANK_DELAY_MS) * rank(dp);
}

static void send_to(struct pms_dp *dp, uint8_t type, uint8_t slots)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        if (!(slots & BIT(s)))
            continue;
        struct pms_frame f = dp_frame(dp, type, s);

        f.epoch = dp->cand.epoch;
        f.seq = dp->cand.seq;
        f.arg = dp->cand.unclean;
        f.arg2 = type == PMS_FRAME_PROMISE ? dp->cand.becomes[s] : dp->conf.incarnation[s];
        dp_send(dp, s, &f, NULL, 0);
    }
}

void dp_cand_tick(struct pms_dp *dp)
{
    struct cand *c = &dp->cand;

    if (!may_stand(dp))
        return;
    dp->role = PMS_DP_CANDIDATE;
    c->phase = CAND_ASK;
    c->epoch = dp->conf.epoch + 1;
    c->seq = ++dp->seq;
    c->phase_started = dp->now;
    c->asked = dp->conf.in_sync & dp->link_up & (uint8_t)~BIT(dp->self);
    c->ok = c->refused = c->promised = 0;
    c->unclean = !dp_self_in_sync(dp);
    memcpy(c->becomes, dp->conf.incarnation, sizeof c->becomes);
    c->becomes[dp->self] = dp->brick.mem.incarnation;
    send_to(dp, PMS_FRAME_ASK, c->asked);
}

void dp_cand_link_up(struct pms_dp *dp, uint8_t slot)
{
    struct cand *c = &dp->cand;

    if (dp->role != PMS_DP_CANDIDATE || c->phase != CAND_ASK || !(dp->conf.in_sync & BIT(slot)) ||
        ((c->ok | c->refused) & BIT(slot)))
        return;
    c->asked |= BIT(slot);
    send_to(dp, PMS_FRAME_ASK, BIT(slot));
}

/* An answer that ends this attempt. */
static void refused(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f)
{
    struct cand *c = &dp->cand;

    switch (f->status) {
    case PMS_FRAME_NOT_READY:
        if (c->not_ready_since == 0)
            c->not_ready_since = dp->now;
        if (dp->now < c->not_ready_since + MS(NOT_READY_MAX_MS)) {
            dp_cand_abort(dp, 50);
            return;
        }
        break;
    case PMS_FRAME_VETO:
    case PMS_FRAME_STALE:
        dp_cand_abort(dp, 100);
        return;
    default: /* a failed, foreign or unclean brick: go on without it */
        break;
    }
    if (c->unclean && !PMS_MUTANT(UNCLEAN_ALONE))
        dp_cand_abort(dp, UNCLEAN_BACKOFF_MS);
    c->refused |= BIT(slot);
}

static void on_ask_ack(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f)
{
    struct cand *c = &dp->cand;

    if (c->unclean && f->status == PMS_FRAME_UNCLEAN) {
        c->becomes[slot] = f->arg2;
        c->ok |= BIT(slot);
    } else if (c->unclean && f->status == PMS_FRAME_OK) {
        if (!PMS_MUTANT(UNCLEAN_ALONE))
            dp_cand_abort(dp, UNCLEAN_BACKOFF_MS); /* it is clean: the array is its to serve */
    } else if (f->status == PMS_FRAME_OK) {
        c->ok |= BIT(slot);
    } else {
        refused(dp, slot, f);
    }
}

/* Under R6 none may be missing. */
static bool enough(const struct pms_dp *dp, uint8_t have)
{
    return !dp->cand.unclean || PMS_MUTANT(UNCLEAN_ALONE) ||
           (dp->conf.in_sync & (uint8_t) ~(have | BIT(dp->self))) == 0;
}

void dp_cand_answer(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f, const struct pms_iobuf *buf)
{
    struct cand *c = &dp->cand;

    if (dp->role != PMS_DP_CANDIDATE || f->seq != c->seq || f->epoch != c->epoch)
        return;
    if (f->type == PMS_FRAME_ASK_ACK) {
        if (c->phase != CAND_ASK)
            return;
        on_ask_ack(dp, slot, f);
        return;
    }
    if (c->phase != CAND_PROMISE || !(c->ok & BIT(slot)))
        return;
    if (f->status != PMS_FRAME_OK) {
        refused(dp, slot, f);
        return;
    }
    if (f->payload_len != dp_bits_bytes(dp) || f->arg2 != c->becomes[slot])
        return;
    for (uint32_t i = 0; i < f->payload_len && !PMS_MUTANT(SETTLE_OWN_MAP); i++)
        c->bits[i] |= buf->data[i];
    c->promised |= BIT(slot);
}

static void propose(struct pms_dp *dp)
{
    struct cand *c = &dp->cand;
    uint8_t set = c->promised | BIT(dp->self);

    if (PMS_MUTANT(KEEP_ALL))
        set = dp->conf.in_sync & (uint8_t) ~(dp->conf.primary != dp->self ? BIT(dp->conf.primary) : 0);
    dp_propose(dp, PMS_DP_TAKEOVER, dp->self, set, c->becomes);
}

static void next_phase(struct pms_dp *dp, enum cand_phase phase)
{
    dp->cand.phase = phase;
    dp->cand.phase_started = dp->now;
}

bool dp_cand_pump(struct pms_dp *dp)
{
    struct cand *c = &dp->cand;
    uint64_t age = dp->now - c->phase_started;
    uint8_t waiting;

    if (dp->role != PMS_DP_CANDIDATE)
        return false;
    switch (c->phase) {
    case CAND_ASK:
        waiting = dp->conf.in_sync & (uint8_t) ~(c->ok | c->refused | BIT(dp->self));
        if ((waiting & ~dp->link_up) != 0 && dp->now < dp->boot + MS(BOOT_GRACE_MS))
            return false;
        if ((waiting & dp->link_up) != 0 && age < MS(dp->init.timing.ask_wait))
            return false;
        if (!enough(dp, c->ok)) {
            dp_cand_abort(dp, UNCLEAN_BACKOFF_MS);
            return true;
        }
        dp_fence(dp, c->epoch);
        next_phase(dp, CAND_FENCE);
        return true;
    case CAND_FENCE:
        if (!dp_fence_done(dp, c->epoch))
            return false;
        memcpy(c->bits, dp->brick.bits_mem, dp_bits_bytes(dp));
        c->ok &= dp->link_up;
        next_phase(dp, CAND_PROMISE);
        send_to(dp, PMS_FRAME_PROMISE, c->ok);
        return true;
    case CAND_PROMISE:
        waiting = c->ok & dp->link_up & (uint8_t) ~(c->promised | c->refused);
        if (waiting != 0 && age < MS(PROMISE_WAIT_MS))
            return false;
        if (!enough(dp, c->promised)) {
            dp_cand_abort(dp, UNCLEAN_BACKOFF_MS);
            return true;
        }
        next_phase(dp, CAND_PROPOSE);
        propose(dp);
        return true;
    case CAND_PROPOSE:
        if (age >= MS(PROPOSE_WAIT_MS))
            dp_cand_abort(dp, 100);
        else
            propose(dp);
        return false;
    }
    return false;
}

bool dp_cand_matches(const struct pms_dp *dp, const struct pms_dp_conf *conf)
{
    const struct cand *c = &dp->cand;
    uint8_t others = conf->in_sync & (uint8_t)~BIT(dp->self);

    if (dp->role != PMS_DP_CANDIDATE || conf->primary != dp->self || conf->epoch != c->epoch ||
        c->phase < CAND_PROMISE)
        return false;
    for (uint8_t s = 0; s < conf->n_slots; s++)
        if ((conf->in_sync & BIT(s)) && conf->incarnation[s] != c->becomes[s])
            return false;
    return (others & (uint8_t)~c->promised) == 0 || PMS_MUTANT(KEEP_ALL);
}
