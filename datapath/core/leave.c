// SPDX-License-Identifier: GPL-2.0-or-later
// A planned stop: this node hands over what it serves and says goodbye; the primary ejects who said so at once.
/*
 *             primary: hand over (again, as long as it is refused)      applied: set without this slot
 *   leaving ──────────────────────────────────────────────▶ replica ───────────────────────────────▶ may stop
 *                                                            GOODBYE to the primary every 100 ms
 *
 * Until it is ejected the node goes on acknowledging, so that nobody waits for it at any time. The primary does
 * not take a slot back that said goodbye, until its node's link has come up anew or it has been silent for
 * GONE_MS. The last one in sync has nobody to leave to: it just stops.
 */
#include "datapath/core/dp_internal.h"

#define GOODBYE_MS 100
#define GONE_MS    3000

bool dp_leave_is_gone(const struct pms_dp *dp, uint8_t slot)
{
    return dp->now < dp->gone_until[slot];
}

static void hand_over(struct pms_dp *dp)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (s != dp->self && (dp->conf.in_sync & dp->link_up & BIT(s)) && !dp_leave_is_gone(dp, s) &&
            dp->now < dp->lease_until[s] && dp_primary_handover(dp, s) == 0)
            return;
}

void dp_leave_tick(struct pms_dp *dp)
{
    uint8_t primary = dp->conf.primary;

    if (!dp->leaving || !dp_self_in_sync(dp))
        return;
    if (dp_is_primary(dp)) {
        hand_over(dp);
        return;
    }
    if (primary == dp->self || dp->now < dp->next_goodbye)
        return;
    dp->next_goodbye = dp->now + MS(GOODBYE_MS);
    struct pms_frame f = dp_frame(dp, PMS_FRAME_GOODBYE, primary);

    f.arg2 = dp->brick.mem.incarnation;
    dp_send(dp, primary, &f, NULL, 0);
}

/* Only the living primary makes use of it, and only of what is said by the brick that is meant. */
void dp_leave_goodbye(struct pms_dp *dp, const struct pms_frame *f)
{
    uint8_t s = f->from_slot;

    if (!dp_is_primary(dp) || !(dp->conf.in_sync & BIT(s)) || f->arg2 != dp->conf.incarnation[s])
        return;
    dp->gone_until[s] = dp->now + MS(GONE_MS);
    dp->eject_now |= BIT(s);
    dp_primary_tick(dp);
}

void pms_dp_leave(struct pms_dp *dp, uint64_t now)
{
    dp->leaving = true;
    pms_dp_tick(dp, now);
}
