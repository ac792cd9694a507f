// SPDX-License-Identifier: GPL-2.0-or-later
// Long operations: small state machines that look at the agreed state each time something has changed, make
// one asynchronous call at a time, and in the end answer the request that began them.
#ifndef PMS_CMD_PMSD_TASK_H
#define PMS_CMD_PMSD_TASK_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/http.h"

// Put it first in the task's own struct.
struct pms_task {
    struct pms_list link;
    struct pms_app *app;
    struct pms_req *req; // answered by pms_task_finish; NULL: nobody waits
    const char *name;    // for the log
    // Looks at what is so now and goes on. Never runs while a call of this task is out, nor after the end.
    void (*step)(struct pms_task *task);
    // What else to free; may be NULL.
    void (*deinit)(struct pms_task *task);
    // The time is up; NULL: the task fails with -ETIMEDOUT. Runs once.
    void (*timeout)(struct pms_task *task);
    // pmsd leaves the cluster or stops: may finish the task; what it does not finish fails. May be NULL.
    void (*stopping)(struct pms_task *task);
    int stage; // the task's own
    uint64_t started_ns;
    uint64_t deadline_ns;
    unsigned calls; // out now
    bool ended;
    pms_command_cb on_command;
};

// Zeroed memory of size bytes that begins with a struct pms_task; freed at its end. step runs first soon, not
// before the return.
void *pms_task_start(struct pms_app *app, struct pms_req *req, const char *name, size_t size,
                     unsigned timeout_ms, void (*step)(struct pms_task *task),
                     void (*deinit)(struct pms_task *task));

// Answers and ends the task: err 0 with body (stolen; NULL: {}), or the refusal.
void pms_task_finish(struct pms_task *task, json_t *body);
__attribute__((format(printf, 3, 4))) void pms_task_fail(struct pms_task *task, int err, const char *fmt,
                                                         ...);

// Around each asynchronous call of the task. After return, step runs again.
void pms_task_call(struct pms_task *task);
void pms_task_return(struct pms_task *task);

// pms_command_propose as a call of the task: cb's data is the task. cb NULL: a refusal ends the task.
void pms_task_command(struct pms_task *task, json_t *cmd, unsigned timeout_ms, pms_command_cb cb);
// pms_raft_read_barrier likewise: no quorum ends the task.
void pms_task_barrier(struct pms_task *task);

// Every task that waits looks again.
void pms_tasks_run(struct pms_app *app);
// Ends all (PMS_ESHUTDOWN).
void pms_tasks_end(struct pms_app *app);

#endif
