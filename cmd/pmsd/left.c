// SPDX-License-Identifier: GPL-2.0-or-later
// What an earlier pmsd left running here.
#include "cmd/pmsd/left.h"
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>

void pms_left_open(struct pms_app *app)
{
    char path[sizeof(app->run_dir) + 16];
    struct pms_guard_child *children;
    unsigned n;
    int rv;

    snprintf(path, sizeof(path), "%s/guard.sock", app->run_dir);
    rv = pms_guard_inherit(path, &children, &n);
    app->left_until_ns = pms_clock_boot_ns() + PMS_GUARD_KEEP_MS * 1000000ull;
    if (rv != 0)
        pms_log(PMS_LOG_WARN, "what an earlier pmsd left cannot be taken over and will end by itself: %s",
                pms_err_text(rv));
    app->left = calloc(n + 1, sizeof(*app->left));
    PMS_CHECK_MSG(app->left != NULL, "out of memory");
    for (unsigned i = 0; i < n; i++) {
        pms_log(PMS_LOG_INFO, "an earlier pmsd left the tgtd (pid %d) of array %s", (int)children[i].pid,
                pms_log_hexid(children[i].array_id));
        app->left[app->n_left++].child = children[i];
    }
    free(children);
}

void pms_left_guard(struct pms_app *app)
{
    for (unsigned i = 0; i < app->n_left; i++) {
        int rv = pms_guard_pid_add(app->guard, &app->left[i].child, &app->left[i].guarded);

        if (rv != 0)
            pms_log(PMS_LOG_WARN, "the guard cannot keep the tgtd (pid %d): %s", (int)app->left[i].child.pid,
                    pms_err_text(rv));
    }
}

static void entry_remove(struct pms_app *app, unsigned i)
{
    if (app->left[i].guarded != NULL)
        pms_guard_pid_del(app->left[i].guarded);
    app->left[i] = app->left[--app->n_left];
}

static void entry_kill(struct pms_app *app, unsigned i, const char *why)
{
    struct pms_guard_child *c = &app->left[i].child;

    pms_log(PMS_LOG_INFO, "ending the tgtd (pid %d) of array %s that an earlier pmsd left: %s", (int)c->pid,
            pms_log_hexid(c->array_id), why);
    pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0);
    pms_guard_child_close(c);
    entry_remove(app, i);
}

bool pms_left_take(struct pms_app *app, uint64_t array_id, uint64_t tenure, struct pms_guard_child *child)
{
    bool found = false;

    for (unsigned i = app->n_left; i-- > 0;) {
        if (app->left[i].child.array_id != array_id)
            continue;
        if (!found && app->left[i].child.tenure == tenure) {
            *child = app->left[i].child;
            entry_remove(app, i);
            found = true;
        } else {
            entry_kill(app, i, "another node was primary since");
        }
    }
    return found;
}

void pms_left_drop(struct pms_app *app, uint64_t array_id)
{
    for (unsigned i = app->n_left; i-- > 0;)
        if (app->left[i].child.array_id == array_id)
            entry_kill(app, i, "another node is primary");
}

void pms_left_tick(struct pms_app *app, uint64_t now_ns)
{
    if (now_ns >= app->left_until_ns)
        for (unsigned i = app->n_left; i-- > 0;)
            entry_kill(app, i, "this node does not serve it in time");
}

void pms_left_close(struct pms_app *app)
{
    for (unsigned i = app->n_left; i-- > 0;) {
        if (app->quit_stage == 0) {
            entry_kill(app, i, "this node leaves");
        } else { // the guard goes on keeping it
            pms_guard_child_close(&app->left[i].child);
            app->n_left--;
        }
    }
    free(app->left);
    app->left = NULL;
}
