// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd: start, the control loop, stop.
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/http.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/member.h"
#include "cmd/pmsd/membership.h"
#include "cmd/pmsd/alive.h"
#include "cmd/pmsd/carrier.h"
#include "cmd/pmsd/links.h"
#include "cmd/pmsd/quit.h"
#include "cmd/pmsd/upgrade.h"
#include "cmd/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- What changed is looked at ----

static void on_kick(uv_async_t *async)
{
    struct pms_app *app = async->data;

    if (app->phase == PMS_APP_STOPPING)
        pms_member_stop_step(app);
    pms_pulse_doing(&app->pulse, "commands and tasks");
    pms_commands_applied(app);
    pms_tasks_run(app);
    pms_pulse_doing(&app->pulse, "arrays");
    if (app->phase == PMS_APP_MEMBER)
        pms_locals_tick(app);
    pms_quit_step(app);
    pms_pulse_beat(&app->pulse, "other callbacks: network, API, targets");
}

static void on_tick(uv_timer_t *timer)
{
    struct pms_app *app = timer->data;

    pms_pulse_beat(&app->pulse, "members and links");
    if (app->phase == PMS_APP_MEMBER) {
        pms_members_tick(app->members);
        pms_upgrade_tick(app);
        pms_upgrade_next_tick(app);
        pms_links_tick(app->links);
        pms_carrier_tick(app);
    }
    on_kick(&app->kick);
}

void pms_app_kick(struct pms_app *app)
{
    uv_async_send(&app->kick);
}

// ---- Start ----

static void on_signal(uv_signal_t *sig, int signum)
{
    pms_log(PMS_LOG_INFO, "stopping on signal %d", signum);
    pms_app_quit(sig->data, 0);
}

// A virtual machine's clock stops with it; then a lease read may be wrong (design, I3).
static bool hypervisor_detect(void)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[8192];
    bool found = false;

    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor") != NULL;
    if (f != NULL)
        fclose(f);
    return found || access("/sys/hypervisor/type", F_OK) == 0;
}

// Sockets of the plugins: beside our own socket, if the path is short enough for a Unix socket's name.
static int run_dir_make(struct pms_app *app)
{
    const char *slash = strrchr(app->opt.socket, '/');
    int n = slash != NULL ? (int)(slash - app->opt.socket) : 1;

    snprintf(app->run_dir, sizeof(app->run_dir), "%.*s/run", n, slash != NULL ? app->opt.socket : ".");
    if (strlen(app->run_dir) > 60)
        snprintf(app->run_dir, sizeof(app->run_dir), "/run/pms-%s", pms_log_hexid(app->node.id));
    if (mkdir(app->run_dir, 0700) != 0 && errno != EEXIST)
        return -errno;
    app->tgtd_paths.run_dir = app->run_dir;
    return 0;
}

// A brick's path is this folder, the array's name and ".brick".
static int brick_dir_make(const char *dir)
{
    if (strlen(dir) + 1 + PMS_NAME_MAX + strlen(".brick") > PMS_LOOP_PATH_MAX)
        return -ENAMETOOLONG;
    return mkdir(dir, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

static int app_init(struct pms_app *app)
{
    char why[4600];
    int rv = pms_node_dir_open(app->opt.state_dir, &app->node, &app->lock_fd, why, sizeof(why));

    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "%s", why);
        return rv;
    }
    rv = brick_dir_make(app->opt.brick_dir);
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "the brick directory %s cannot be made: %s", app->opt.brick_dir,
                strerror(-rv));
        return rv;
    }
    app->loop = uv_default_loop();
    pms_list_init(&app->arrays);
    pms_list_init(&app->tasks);
    pms_list_init(&app->commands);
    app->command_client = pms_id_random();
    app->hypervisor = hypervisor_detect();
    app->probe_reads =
        app->opt.read_mode == PMS_READ_PROBE || (app->opt.read_mode == PMS_READ_AUTO && app->hypervisor);
    rv = pms_http_open(app, app->opt.socket, &app->http);
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "the local socket %s cannot be opened: %s", app->opt.socket, strerror(-rv));
        return rv;
    }
    pms_tgtd_paths_default(&app->tgtd_paths);
    if (app->opt.tgtd != NULL)
        app->tgtd_paths.tgtd = app->opt.tgtd;
    if (app->opt.plugin_dir != NULL)
        app->tgtd_paths.plugin_dir = app->opt.plugin_dir;
    rv = run_dir_make(app);
    if (rv != 0)
        pms_log(PMS_LOG_ERROR, "the folder %s cannot be made: %s", app->run_dir, strerror(-rv));
    return rv;
}

static void handles_init(struct pms_app *app)
{
    PMS_CHECK(uv_async_init(app->loop, &app->kick, on_kick) == 0);
    PMS_CHECK(uv_timer_init(app->loop, &app->tick) == 0);
    PMS_CHECK(uv_signal_init(app->loop, &app->sigterm) == 0);
    PMS_CHECK(uv_signal_init(app->loop, &app->sigint) == 0);
    app->kick.data = app->tick.data = app->sigterm.data = app->sigint.data = app;
    uv_timer_start(&app->tick, on_tick, PMS_TICK_MS, PMS_TICK_MS);
    uv_signal_start(&app->sigterm, on_signal, SIGTERM);
    uv_signal_start(&app->sigint, on_signal, SIGINT);
}

static void member_begin(struct pms_app *app)
{
    char why[512] = "";

    if (!app->node.member) {
        pms_log(PMS_LOG_INFO, "this node is in no cluster and waits for pmsctl cluster init or join");
        return;
    }
    if (app->node.superseded) {
        pms_log(PMS_LOG_ERROR,
                "this node's cluster was recovered without it, and it must not go on: empty the state "
                "directory %s, start pmsd, and join again with a new token",
                app->opt.state_dir);
        pms_app_quit(app, 1);
        return;
    }
    if (app->node.recovering) {
        pms_log(PMS_LOG_ERROR,
                "a pmsctl recover of this node was begun and is not finished: run it again, with the same "
                "arguments");
        pms_app_quit(app, 1);
        return;
    }
    if (pms_member_start(app, false, why, sizeof(why)) != 0) {
        pms_log(PMS_LOG_ERROR, "%s", why);
        pms_app_quit(app, 1);
        return;
    }
    pms_log(PMS_LOG_INFO, "node %s of cluster %08x... runs", app->node.name,
            (unsigned)app->node.cluster.b[0] << 24 | (unsigned)app->node.cluster.b[1] << 16 |
                (unsigned)app->node.cluster.b[2] << 8 | app->node.cluster.b[3]);
}

static void versions_log(const struct pms_app *app)
{
    char node[PMS_VERSIONS_TEXT_SIZE], ring[PMS_VERSIONS_TEXT_SIZE], brick[PMS_VERSIONS_TEXT_SIZE];

    pms_log(PMS_LOG_INFO,
            "pmsd %s, node id %s; protocol between nodes %s, plugin %s, bricks %s, feature level up to %u",
            PMS_VERSION, pms_log_hexid(app->node.id), pms_versions_format(pms_node_versions, node),
            pms_versions_format(pms_ring_versions, ring), pms_versions_format(pms_brick_versions, brick),
            pms_feature_level_max);
}

int main(int argc, char **argv)
{
    static struct pms_app app;
    int rv;

    if (argc > 1 && strcmp(argv[1], PMS_GUARD_ARG) == 0)
        return pms_guard_main(argc, argv);
    rv = pms_options_parse(argc, argv, &app.opt);
    if (rv != 0)
        return rv == 1 ? 0 : 2;
    pms_log_init("pmsd", app.opt.log_level);
    signal(SIGPIPE, SIG_IGN);
    umask(0077);
    app.lock_fd = -1;
    if (app_init(&app) != 0)
        return 1;
    handles_init(&app);
    if (geteuid() != 0)
        pms_log(PMS_LOG_WARN, "not running as root: portal addresses and targets will not work");
    versions_log(&app);
    member_begin(&app);
    if (pms_alive_begin(&app) != 0)
        return 1;
    uv_run(app.loop, UV_RUN_DEFAULT);
    pms_alive_end(&app);
    if (!app.raft_failed)
        PMS_CHECK_MSG(uv_loop_close(app.loop) == 0, "a handle was left open");
    close(app.lock_fd);
    return app.exit_status;
}
