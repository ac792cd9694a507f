// SPDX-License-Identifier: GPL-2.0-or-later
// Brick work that blocks (lock, preallocate, zero, unlink), each on a thread of its own, answered by a
// message.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "datapath/io/loop_internal.h"

#define PROGRESS_INTERVAL_NS 1000000000ull
#define LOCK_WAIT_MS_DEFAULT 10000u

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct pms_job *job = arg;
    uint64_t now = pms_clock_boot_ns();
    struct pms_loop_event ev = {.type = PMS_LOOP_EV_BRICK_PROGRESS, .array = job->brick->init.array};

    if (now - job->progress_ns < PROGRESS_INTERVAL_NS)
        return;
    job->progress_ns = now;
    ev.progress.done = done;
    ev.progress.total = total;
    pms_loop_emit(job->loop, &ev);
}

static int open_run(struct pms_job *job, const struct pms_brick_id *id)
{
    uint32_t wait_ms = job->loop->config.lock_wait_ms;
    int rc = pms_brick_open(id, wait_ms != 0 ? wait_ms : LOCK_WAIT_MS_DEFAULT, &job->cancel, &job->file);

    if (rc != 0)
        return rc;
    rc = pms_dp_create(&job->brick->init, job->loop->config.cluster_uuid.b, job->file.area,
                       pms_clock_boot_ns(), &job->dp);
    free(job->file.area);
    job->file.area = NULL;
    job->incarnation = job->file.incarnation;
    if (rc != 0) {
        close(job->file.fd);
        job->file.fd = -1;
    }
    return rc;
}

static void *job_main(void *arg)
{
    struct pms_job *job = arg;
    struct pms_brick_id id = {job->brick->path, job->loop->config.cluster_uuid, &job->brick->init};

    switch (job->type) {
    case PMS_JOB_OPEN:
        job->status = open_run(job, &id);
        break;
    case PMS_JOB_CREATE:
        job->status = pms_brick_create(&id, job->incarnation, job->all_dirty, &job->cancel, on_progress, job,
                                       &job->incarnation);
        break;
    case PMS_JOB_DELETE:
        job->status = pms_brick_delete(&id);
        break;
    }
    pms_queue_push(&job->loop->in, &job->msg.item);
    return NULL;
}

/* Workers take no signals: those are the main thread's. */
static int thread_start(pthread_t *thread, void *(*main)(void *arg), void *arg)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

struct pms_job *pms_job_start(struct pms_loop *loop, enum pms_job_type type, struct pms_loop_brick *brick,
                              uint64_t incarnation, bool all_dirty, int *err)
{
    struct pms_job *job = calloc(1, sizeof *job);

    if (job == NULL) {
        free(brick);
        *err = -ENOMEM;
        return NULL;
    }
    job->loop = loop;
    job->type = type;
    job->brick = brick;
    job->incarnation = incarnation;
    job->all_dirty = all_dirty;
    job->file.fd = -1;
    job->progress_ns = pms_clock_boot_ns();
    job->msg.type = PMS_MSG_JOB_DONE;
    *err = thread_start(&job->thread, job_main, job);
    if (*err != 0) {
        free(brick);
        free(job);
        return NULL;
    }
    pms_list_add_tail(&loop->jobs, &job->item);
    return job;
}

void pms_job_end(struct pms_job *job)
{
    pthread_join(job->thread, NULL);
    pms_list_del(&job->item);
    free(job->brick);
    free(job);
}
