// SPDX-License-Identifier: GPL-2.0-or-later
// A clean end, so that nobody waits for this node: its arrays are left to others, then Raft's leadership, then
// everything is closed, targets first.
//
//   LEAVE ── no array needs this node any more, or LEAVE_MS ──▶ TRANSFER ── led by another, or TRANSFER_MS ──▶ STOP
//
// A second signal goes to STOP at once.
#include "cmd/pmsd/quit.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd/pmsd/http.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/member.h"
#include "cmd/pmsd/task.h"

#define LEAVE_MS    2500
#define TRANSFER_MS 1000
#define STABLE_MS   2000 // for what is volatile, once the targets are down

enum { QUIT_LEAVE = 1, QUIT_TRANSFER, QUIT_STOP };

static void on_stopped(struct pms_app *app)
{
    pms_tasks_end(app);
    pms_member_left_answer(app, PMS_ESHUTDOWN);
    pms_http_close(app->http);
    uv_close((uv_handle_t *)&app->kick, NULL);
    uv_close((uv_handle_t *)&app->tick, NULL);
    uv_close((uv_handle_t *)&app->sigterm, NULL);
    uv_close((uv_handle_t *)&app->sigint, NULL);
    if (app->raft_failed)
        uv_stop(app->loop);
}

static void stage_set(struct pms_app *app, int stage, unsigned limit_ms)
{
    app->quit_stage = stage;
    app->quit_deadline_ns = pms_clock_boot_ns() + limit_ms * 1000000ull;
}

static void stop(struct pms_app *app)
{
    stage_set(app, QUIT_STOP, STABLE_MS);
    pms_member_stop(app, on_stopped);
}

bool pms_quit_waits(const struct pms_app *app, const struct pms_local *a)
{
    struct pms_loop_array_stats stats;

    return app->quit_stage == QUIT_STOP && app->exit_status == 0 &&
           pms_clock_boot_ns() < app->quit_deadline_ns &&
           pms_loop_array_stats_get(app->data, a->info.id, &stats) == 0 && stats.dp.volatile_data &&
           !stats.dp.brick_failed && (a->info.in_sync & 1u << a->slot) != 0;
}

static void on_transferred(void *data, int status)
{
    struct pms_app *app = data;

    (void)status; // without it the others elect a leader by themselves
    if (app->quit_stage == QUIT_TRANSFER)
        stop(app);
}

static void transfer(struct pms_app *app)
{
    stage_set(app, QUIT_TRANSFER, TRANSFER_MS);
    if (!pms_raft_is_ready(app->raft) || pms_raft_transfer(app->raft, 0, on_transferred, app) != 0)
        stop(app);
}

// What has still to be left, or NULL. begin: all are told.
static const struct pms_local *array_to_leave(struct pms_app *app, bool begin)
{
    const struct pms_local *found = NULL;

    pms_list_for_each (it, &app->arrays) {
        const struct pms_local *a = pms_list_entry(it, struct pms_local, link);

        if (begin && a->brick == PMS_BRICK_OPEN)
            pms_loop_leave(app->data, a->info.id);
        if (pms_local_is_needed(a))
            found = a;
    }
    return found;
}

void pms_quit_step(struct pms_app *app)
{
    bool late = app->quit_stage != 0 && pms_clock_boot_ns() >= app->quit_deadline_ns;
    const struct pms_local *a;

    if (app->quit_stage == QUIT_TRANSFER && late)
        stop(app);
    if (app->quit_stage != QUIT_LEAVE)
        return;
    if (app->phase != PMS_APP_MEMBER) {
        stop(app);
        return;
    }
    a = array_to_leave(app, false);
    if (a != NULL && late)
        pms_log(PMS_LOG_WARN, "array %s could not be left to another node in time: it is taken over instead",
                a->info.name);
    if (a == NULL || late)
        transfer(app);
}

void pms_app_quit(struct pms_app *app, int status)
{
    if (app->quit_stage == QUIT_STOP)
        return;
    if (app->exit_status == 0)
        app->exit_status = status;
    if (app->quit_stage != 0) {
        pms_log(PMS_LOG_INFO, "asked again: stopping at once");
        stop(app);
        return;
    }
    if (app->phase != PMS_APP_MEMBER || status != 0) {
        stop(app);
        return;
    }
    stage_set(app, QUIT_LEAVE, LEAVE_MS);
    array_to_leave(app, true);
    pms_app_kick(app);
}
