// SPDX-License-Identifier: GPL-2.0-or-later
// A slot that falls out again and again is taken back later and later, so that nothing flaps.
/*
 * Every node counts from the configurations it applies, so that the next primary knows too. The first time a slot
 * is taken back at once; the second time in FLAP_MS after it fell out or, if that was later, after its link came up;
 * then in twice that, and so on, at most in readmit_max. Who was in sync for FLAP_RESET_MS begins anew. A goodbye is
 * no fall.
 */
#include "datapath/core/dp_internal.h"

#define FLAP_MS       1000
#define FLAP_RESET_MS 600000

static uint32_t delay_ms(const struct pms_dp *dp, uint32_t falls)
{
    uint64_t ms = FLAP_MS;

    if (falls < 2)
        return 0;
    for (uint32_t i = 2; i < falls && ms < dp->init.timing.readmit_max; i++)
        ms *= 2;
    return ms < dp->init.timing.readmit_max ? (uint32_t)ms : dp->init.timing.readmit_max;
}

void dp_flap_epoch(struct pms_dp *dp, const struct pms_dp_conf *old)
{
    for (uint8_t s = 0; s < dp->conf.n_slots && old->epoch > 0 && dp->live; s++) {
        struct flap *f = &dp->flap[s];
        bool was = old->in_sync & BIT(s), is = dp->conf.in_sync & BIT(s);

        if (!was && is)
            f->in_since = dp->now;
        if (!was || is || dp_leave_is_gone(dp, s))
            continue;
        f->falls = dp->now >= f->in_since + MS(FLAP_RESET_MS) ? 1 : f->falls + 1;
        f->back_at = dp->now;
    }
}

void dp_flap_link_up(struct pms_dp *dp, uint8_t slot)
{
    dp->flap[slot].back_at = dp->now;
}

uint32_t dp_flap_wait_ms(const struct pms_dp *dp, uint8_t slot)
{
    uint64_t ready = dp->flap[slot].back_at + MS(delay_ms(dp, dp->flap[slot].falls));

    return dp->now < ready ? (uint32_t)((ready - dp->now + MS(1) - 1) / MS(1)) : 0;
}
