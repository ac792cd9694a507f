// SPDX-License-Identifier: GPL-2.0-or-later
// In the builds for tests of upgrades (PMS_VERSION_BUMP, see base/version.c) a node that is new in the cluster,
// or to its feature level, proposes the command that only those have; below feature level 2 it must not get
// as far as the log.
#include "base/err.h"
#include "base/log.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/upgrade.h"

#if defined(PMS_VERSION_BUMP) && PMS_VERSION_BUMP > 0

#define PROBE_MS 5000

static unsigned probed_at; // feature level

static void on_probed(void *data, int err, const char *text, const json_t *result)
{
    (void)data;
    (void)result;
    if (err == 0)
        pms_log(PMS_LOG_INFO, "probe at feature level %u: applied", probed_at);
    else
        pms_log(PMS_LOG_INFO, "probe at feature level %u: %s: %s", probed_at, pms_err_name(err), text);
}

void pms_upgrade_next_tick(struct pms_app *app)
{
    unsigned level = pms_state_feature_level(app->state);

    if (!app->caught_up || !pms_state_has_cluster(app->state) || level == probed_at)
        return;
    probed_at = level;
    pms_command_propose(app, pms_command_new("probe"), PROBE_MS, 0, on_probed, app);
}

#else

void pms_upgrade_next_tick(struct pms_app *app)
{
    (void)app;
}

#endif
