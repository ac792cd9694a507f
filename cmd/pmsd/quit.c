// SPDX-License-Identifier: GPL-2.0-or-later
// A clean end: Raft's leadership is handed over, then everything is closed, targets first.
//
// Arrays are not handed over: their new primary would wait for this node's acknowledgements until it ejects
// it (1 s), whereas a primary that just stops is taken over without it (the promises lapse after 0.3 s).
#include "cmd/pmsd/quit.h"
#include "cmd/pmsd/http.h"
#include "cmd/pmsd/member.h"
#include "cmd/pmsd/task.h"

#define QUIT_MS 1000 // for the leadership

enum { QUIT_TRANSFER = 1, QUIT_STOP };

static void on_stopped(struct pms_app *app)
{
    pms_tasks_end(app);
    pms_http_close(app->http);
    uv_close((uv_handle_t *)&app->kick, NULL);
    uv_close((uv_handle_t *)&app->tick, NULL);
    uv_close((uv_handle_t *)&app->sigterm, NULL);
    uv_close((uv_handle_t *)&app->sigint, NULL);
}

static void stop(struct pms_app *app)
{
    app->quit_stage = QUIT_STOP;
    pms_member_stop(app, on_stopped);
}

static void on_transferred(void *data, int status)
{
    struct pms_app *app = data;

    (void)status; // without it the others elect a leader by themselves
    if (app->quit_stage == QUIT_TRANSFER)
        stop(app);
}

void pms_quit_step(struct pms_app *app)
{
    if (app->quit_stage == QUIT_TRANSFER && pms_clock_boot_ns() >= app->quit_deadline_ns)
        stop(app);
}

void pms_app_quit(struct pms_app *app, int status)
{
    if (app->quit_stage != 0)
        return;
    app->exit_status = status;
    app->quit_stage = QUIT_TRANSFER;
    app->quit_deadline_ns = pms_clock_boot_ns() + QUIT_MS * 1000000ull;
    if (app->phase != PMS_APP_MEMBER || status != 0 || !pms_raft_is_ready(app->raft) ||
        pms_raft_transfer(app->raft, 0, on_transferred, app) != 0)
        stop(app);
}
