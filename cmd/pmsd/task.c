// SPDX-License-Identifier: GPL-2.0-or-later
// Long operations: the frame that all tasks share.
#include "cmd/pmsd/task.h"
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define BARRIER_MS 2000

void *pms_task_start(struct pms_app *app, struct pms_req *req, const char *name, size_t size,
                     unsigned timeout_ms, void (*step)(struct pms_task *task),
                     void (*deinit)(struct pms_task *task))
{
    struct pms_task *task = calloc(1, size);

    PMS_CHECK_MSG(task != NULL, "out of memory");
    task->app = app;
    task->req = req;
    task->name = name;
    task->step = step;
    task->deinit = deinit;
    task->started_ns = pms_clock_boot_ns();
    task->deadline_ns = task->started_ns + timeout_ms * 1000000ull;
    pms_list_add_tail(&app->tasks, &task->link);
    pms_app_kick(app);
    return task;
}

static void task_free_if_over(struct pms_task *task)
{
    if (!task->ended || task->calls > 0)
        return;
    pms_list_del(&task->link);
    if (task->deinit != NULL)
        task->deinit(task);
    free(task);
}

void pms_task_finish(struct pms_task *task, json_t *body)
{
    if (task->ended) {
        json_decref(body);
        return;
    }
    task->ended = true;
    if (task->req != NULL)
        pms_req_answer(task->req, body);
    else
        json_decref(body);
    task->req = NULL;
    pms_app_kick(task->app);
}

void pms_task_fail(struct pms_task *task, int err, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (task->ended)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    task->ended = true;
    pms_log(PMS_LOG_WARN, "%s: %s", task->name, text);
    if (task->req != NULL)
        pms_req_refuse(task->req, err, "%s", text);
    task->req = NULL;
    pms_app_kick(task->app);
}

void pms_task_call(struct pms_task *task)
{
    task->calls++;
}

void pms_task_return(struct pms_task *task)
{
    PMS_CHECK(task->calls > 0);
    task->calls--;
    pms_app_kick(task->app);
}

static void on_command(void *data, int err, const char *text, const json_t *result)
{
    struct pms_task *task = data;

    if (task->on_command != NULL && !task->ended)
        task->on_command(task, err, text, result);
    else if (err != 0)
        pms_task_fail(task, err, "%s", text);
    pms_task_return(task);
}

void pms_task_command(struct pms_task *task, json_t *cmd, unsigned timeout_ms, pms_command_cb cb)
{
    PMS_CHECK(task->calls == 0);
    task->on_command = cb;
    pms_task_call(task);
    pms_command_propose(task->app, cmd, timeout_ms, PMS_COMMAND_HERE, on_command, task);
}

static void on_barrier(void *data, int status)
{
    struct pms_task *task = data;

    if (status != 0)
        pms_task_fail(task, status, "%s%s", pms_err_text(status),
                      status == PMS_ENOQUORUM ? "; start the missing nodes (pmsctl cluster status names them)"
                                              : "");
    pms_task_return(task);
}

void pms_task_barrier(struct pms_task *task)
{
    int rv;

    PMS_CHECK(task->calls == 0);
    rv = task->app->raft != NULL ? pms_raft_read_barrier(task->app->raft, BARRIER_MS, on_barrier, task)
                                 : PMS_ESHUTDOWN;
    if (rv == 0)
        pms_task_call(task);
    else
        pms_task_fail(task, rv, "%s", pms_err_text(rv));
}

static void task_run(struct pms_task *task)
{
    if (!task->ended && task->calls == 0 && pms_clock_boot_ns() >= task->deadline_ns) {
        task->deadline_ns = UINT64_MAX;
        if (task->timeout != NULL)
            task->timeout(task);
        else
            pms_task_fail(task, -ETIMEDOUT, "%s took too long", task->name);
    }
    if (!task->ended && task->calls == 0)
        task->step(task);
}

void pms_tasks_run(struct pms_app *app)
{
    pms_list_for_each_safe (it, &app->tasks) {
        struct pms_task *task = pms_list_entry(it, struct pms_task, link);

        task_run(task);
        task_free_if_over(task);
    }
}

void pms_tasks_end(struct pms_app *app)
{
    pms_list_for_each_safe (it, &app->tasks) {
        struct pms_task *task = pms_list_entry(it, struct pms_task, link);

        if (task->stopping != NULL && !task->ended)
            task->stopping(task);
        pms_task_fail(task, PMS_ESHUTDOWN, "pmsd is leaving the cluster or stopping");
        task_free_if_over(task);
    }
}
