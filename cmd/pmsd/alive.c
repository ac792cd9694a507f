// SPDX-License-Identifier: GPL-2.0-or-later
// The watchdog of this process, and systemd's (sd_watchdog_enabled(3)) fed by it: while both loops turn.
#include "cmd/pmsd/alive.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/util.h"

#include <string.h>
#include <systemd/sd-daemon.h>

static uint64_t feed_ns, fed_ns; // how often systemd wants to hear, halved (0: not at all); when it last did

static void on_well(void)
{
    uint64_t now_ns = pms_clock_boot_ns();

    if (feed_ns == 0 || now_ns - fed_ns < feed_ns)
        return;
    fed_ns = now_ns;
    sd_notify(0, "WATCHDOG=1");
}

int pms_alive_begin(struct pms_app *app)
{
    uint64_t usec = 0;
    int rv;

    if (sd_watchdog_enabled(0, &usec) > 0)
        feed_ns = usec * 1000 / 2;
    pms_pulse_begin(&app->pulse, "control", PMS_WATCHDOG_CONTROL_MS);
    rv = pms_watchdog_start(on_well);
    if (rv != 0) {
        pms_pulse_end(&app->pulse);
        pms_log(PMS_LOG_ERROR, "the watchdog's thread cannot be started: %s", strerror(-rv));
        return rv;
    }
    sd_notify(0, "READY=1");
    return 0;
}

void pms_alive_end(struct pms_app *app)
{
    pms_pulse_end(&app->pulse);
    pms_watchdog_stop();
}
