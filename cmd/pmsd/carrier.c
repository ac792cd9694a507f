// SPDX-License-Identifier: GPL-2.0-or-later
// A portal's interface without carrier: its array is handed to a node that has some.
//
// Only to a copy in sync whose node says that it has carrier: so it never goes where it is no better, and comes back
// only when that one loses its own. Tried again after 10 s, 20 s, 40 s, 60 s ..., so that a loose cable on each side
// does not make it go to and fro; ten minutes without begin anew.
#include "cmd/pmsd/carrier.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/util.h"
#include "cmd/pmsd/gather.h"

#include <stdlib.h>
#include <string.h>

#define LOST_NS   300000000ull // a shorter loss is none
#define AGAIN_S   10u
#define AGAIN_MAX 60u
#define RESET_NS  600000000000ull
#define GATHER_MS 800

enum pms_carrier_state pms_local_carrier(const struct pms_local *a)
{
    struct sockaddr_storage addr;

    if (a->app->carrier == NULL || pms_addr_parse(a->info.portal_addr, a->info.portal_port, &addr) != 0)
        return PMS_CARRIER_UNKNOWN;
    return pms_carrier_get(a->app->carrier, &addr);
}

static void on_taken(void *data, int status)
{
    (void)data;
    if (status != 0)
        pms_log(PMS_LOG_WARN, "the array cannot be handed over now: %s", pms_err_text(status));
}

static void on_gathered(void *data, struct pms_gather *g)
{
    struct pms_local *a = pms_local_of(data);

    if (a == NULL || a->app->phase != PMS_APP_MEMBER || !pms_local_is_serving(a) ||
        pms_local_carrier(a) != PMS_CARRIER_LOST)
        return;
    for (unsigned i = 0; g->quorum && i < a->info.n_slots; i++) {
        const struct pms_slot_info *s = &a->info.slots[i];
        const char *carrier = pms_json_str(pms_gather_array(g, s->node_id, a->info.id), "carrier", "");

        if ((int)i == a->slot || !s->in_sync || strcmp(carrier, "up") != 0)
            continue;
        pms_log(PMS_LOG_WARN,
                "array %s: the portal's interface has lost its carrier: handing over to slot %u",
                a->info.name, i);
        if (pms_local_handover(a, (uint8_t)i, on_taken, NULL) == 0)
            return;
    }
    pms_log(PMS_LOG_WARN,
            "array %s: the portal's interface has lost its carrier, and no other node can take it over",
            a->info.name);
}

static void array_watch(struct pms_local *a, uint64_t now)
{
    if (!pms_local_is_serving(a) || pms_local_carrier(a) != PMS_CARRIER_LOST) {
        a->carrier_lost_ns = 0;
        return;
    }
    if (a->carrier_lost_ns == 0)
        a->carrier_lost_ns = now;
    if (now - a->carrier_lost_ns < LOST_NS || now < a->carrier_next_ns)
        return;
    if (a->carrier_again_s == 0 || now - a->carrier_next_ns > RESET_NS)
        a->carrier_again_s = AGAIN_S;
    a->carrier_next_ns = now + a->carrier_again_s * 1000000000ull;
    a->carrier_again_s = a->carrier_again_s * 2 < AGAIN_MAX ? a->carrier_again_s * 2 : AGAIN_MAX;
    pms_gather_start(a->app, GATHER_MS, on_gathered, pms_local_ref(a));
}

void pms_carrier_tick(struct pms_app *app)
{
    uint64_t now = pms_clock_boot_ns();

    pms_list_for_each (it, &app->arrays) {
        array_watch(pms_list_entry(it, struct pms_local, link), now);
    }
}
