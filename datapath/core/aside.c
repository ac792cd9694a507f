// SPDX-License-Identifier: GPL-2.0-or-later
// A primary that is itself the sick one steps aside, instead of ejecting healthy copies or holding all up.
/*
 * Disk: one of its own disk requests is unanswered for eject_slow, and another in-sync slot answers. It cannot hand
 * over, as what hangs cannot be drained: it stops serving and is silent, and the others take over after the lapse.
 * What hangs may still reach the own brick later: that brick is out of the set by then, and its fence (R5) keeps it
 * from being taken back before its old I/O is over. While its disk hangs a node answers ASK, PROMISE and MAP with
 * IO_ERROR, so that nobody waits for it.
 *
 * Links: a slot would be ejected as dead or slow, but the driver says that third nodes hear that slot well and this
 * node badly. Then this node steps aside in the same way. If only that lasts, for eject_slow, without anybody to
 * eject, it hands over as if an operator wished it.
 *
 * If nobody takes over within ASIDE_MS, this node stands again, from its own copy; it does not step aside for its links
 * a second time within aside_again. So a wrong verdict costs a pause, and never a copy.
 */
#include "datapath/core/dp_internal.h"

#define ASIDE_MS      3000
#define DOUBT_LIVE_MS 2000 /* what the driver said is forgotten after this */

/* In-sync slots that answer. */
static uint8_t answering(const struct pms_dp *dp)
{
    uint8_t mask = 0;

    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (s != dp->self && (dp->conf.in_sync & dp->link_up & BIT(s)) && dp->now < dp->lease_until[s])
            mask |= BIT(s);
    return mask;
}

static uint8_t doubted(const struct pms_dp *dp)
{
    return dp->now < dp->aside.doubt_at + MS(DOUBT_LIVE_MS) ? dp->aside.doubt : 0;
}

static void step_aside(struct pms_dp *dp)
{
    dp->aside.again_at = dp->now + MS(dp->init.timing.aside_again);
    dp->aside.stepped = true;
    dp_stepdown(dp);
    dp_cand_abort(dp, ASIDE_MS);
}

bool dp_aside_instead(struct pms_dp *dp, uint8_t eject)
{
    if ((eject & doubted(dp)) == 0 || dp->now < dp->aside.again_at)
        return false;
    step_aside(dp);
    return true;
}

/* Another node took over: it was right to step aside. */
void dp_aside_epoch(struct pms_dp *dp)
{
    if (dp->aside.stepped && dp->conf.primary != dp->self)
        dp->aside.again_at = 0;
    dp->aside.stepped = false;
}

/* A request of the own disk is unanswered for eject_slow, and not because this node stood still. */
static bool disk_hangs(const struct pms_dp *dp)
{
    uint64_t slow = MS(dp->init.timing.eject_slow);

    if (dp->now < dp->smooth_since + slow)
        return false;
    for (uint32_t i = 0; i < dp->dreqs_n; i++)
        if (dp->dreqs[i].kind != DREQ_FREE && dp->now >= dp->dreqs[i].started + slow)
            return true;
    return false;
}

static void hand_over(struct pms_dp *dp, uint8_t slots)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if ((slots & BIT(s)) && dp_primary_handover(dp, s) == 0) {
            dp->aside.again_at = dp->now + MS(dp->init.timing.aside_again);
            return;
        }
}

void dp_aside_tick(struct pms_dp *dp)
{
    struct aside *a = &dp->aside;

    a->hangs = disk_hangs(dp);
    if (doubted(dp) == 0)
        a->doubt_since = dp->now;
    if (!dp_is_primary(dp))
        return;
    if (a->hangs && answering(dp) != 0)
        step_aside(dp);
    else if (dp->now >= a->doubt_since + MS(dp->init.timing.eject_slow) && dp->now >= a->again_at)
        hand_over(dp, doubted(dp) & answering(dp));
}

enum pms_dp_ail dp_aside_ailing(const struct pms_dp *dp)
{
    if (dp->aside.hangs)
        return PMS_DP_AIL_DISK;
    return dp_is_primary(dp) && doubted(dp) != 0 ? PMS_DP_AIL_LINKS : PMS_DP_AIL_NONE;
}

void pms_dp_doubt(struct pms_dp *dp, uint64_t now, uint8_t slots)
{
    dp->aside.doubt = slots;
    dp->aside.doubt_at = now;
    pms_dp_tick(dp, now);
}
