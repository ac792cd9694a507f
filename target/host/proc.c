// SPDX-License-Identifier: GPL-2.0-or-later
// Child processes watched through a pidfd.
#include "target/host/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/check.h"

#define PROC_FDS_MAX 8

extern char **environ;

struct pms_proc {
    uv_poll_t poll;
    pid_t pid;
    int pidfd;
    bool exited;
    pms_proc_exit_cb on_exit; // NULL: nobody is interested any more
    void *arg;
};

// Runs in the vfork child, in the parent's memory: system calls only. Returns only if something failed.
static int child_exec(const struct pms_proc_conf *conf, int null_fd, const sigset_t *mask)
{
    int moved[PROC_FDS_MAX];
    int first_free = 3 + (int)conf->fds_count;
    struct sigaction dfl = {.sa_handler = SIG_DFL};

    if (conf->own_session)
        setsid();
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            sigaction(sig, &dfl, NULL);

    // Sources out of the way first: they may lie among the targets.
    for (unsigned i = 0; i < conf->fds_count; i++) {
        moved[i] = fcntl(conf->fds[i], F_DUPFD, first_free);
        if (moved[i] < 0)
            return errno;
    }
    if (dup2(null_fd, 0) < 0)
        return errno;
    if (conf->output_fd >= 0 && (dup2(conf->output_fd, 1) < 0 || dup2(conf->output_fd, 2) < 0))
        return errno;
    for (unsigned i = 0; i < conf->fds_count; i++)
        if (dup2(moved[i], 3 + (int)i) < 0)
            return errno;
    if (close_range((unsigned)first_free, ~0u, 0) != 0)
        return errno;
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(conf->exe, conf->argv, conf->env ? conf->env : environ);
    return errno;
}

// The parent sleeps until the child has executed or failed; signals wait meanwhile, since a handler would run
// in shared memory.
static int spawn(const struct pms_proc_conf *conf, int null_fd, pid_t *pid_out)
{
    volatile int child_errno = 0;
    sigset_t all, old;
    pid_t pid;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid = vfork();
    if (pid == 0) {
        sigset_t none;

        sigemptyset(&none);
        child_errno = child_exec(conf, null_fd, &none);
        _exit(127);
    }
    if (pid < 0)
        child_errno = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid > 0 && child_errno != 0)
        waitpid(pid, NULL, 0);
    *pid_out = pid;
    return -child_errno;
}

static void on_proc_closed(uv_handle_t *h)
{
    struct pms_proc *proc = h->data;

    close(proc->pidfd);
    free(proc);
}

static void on_pidfd(uv_poll_t *h, int status, int events)
{
    struct pms_proc *proc = h->data;
    int wait_status;
    pid_t pid;

    (void)status;
    (void)events;
    pid = waitpid(proc->pid, &wait_status, WNOHANG);
    if (pid == 0)
        return;
    // ECHILD: no child of ours, or somebody set SIGCHLD to be ignored; it is gone all the same.
    if (pid < 0)
        wait_status = 0;
    proc->exited = true;
    uv_poll_stop(&proc->poll);
    if (proc->on_exit)
        proc->on_exit(proc->arg, wait_status);
    else
        uv_close((uv_handle_t *)&proc->poll, on_proc_closed);
}

int pms_proc_open(uv_loop_t *loop, const struct pms_proc_conf *conf, pms_proc_exit_cb on_exit, void *arg,
                  struct pms_proc **proc_out)
{
    struct pms_proc *proc;
    int null_fd;
    int err;

    PMS_CHECK(conf->fds_count <= PROC_FDS_MAX && on_exit);
    proc = calloc(1, sizeof(*proc));
    if (!proc)
        return -ENOMEM;
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0) {
        free(proc);
        return -errno;
    }
    proc->poll.data = proc;
    proc->on_exit = on_exit;
    proc->arg = arg;
    err = spawn(conf, null_fd, &proc->pid);
    close(null_fd);
    if (err) {
        free(proc);
        return err;
    }

    // Nobody else waits for this pid, so it cannot have been given to another process.
    proc->pidfd = pidfd_open(proc->pid, 0);
    err = proc->pidfd < 0 ? -errno : uv_poll_init(loop, &proc->poll, proc->pidfd);
    if (err) {
        kill(proc->pid, SIGKILL);
        waitpid(proc->pid, NULL, 0);
        if (proc->pidfd >= 0)
            close(proc->pidfd);
        free(proc);
        return err;
    }
    err = uv_poll_start(&proc->poll, UV_READABLE, on_pidfd);
    PMS_CHECK(err == 0);
    *proc_out = proc;
    return 0;
}

int pms_proc_adopt(uv_loop_t *loop, pid_t pid, int pidfd, pms_proc_exit_cb on_exit, void *arg,
                   struct pms_proc **proc_out)
{
    struct pms_proc *proc = calloc(1, sizeof(*proc));
    int err = proc ? uv_poll_init(loop, &proc->poll, pidfd) : -ENOMEM;

    if (err) {
        close(pidfd);
        free(proc);
        return err;
    }
    proc->poll.data = proc;
    proc->on_exit = on_exit;
    proc->arg = arg;
    proc->pid = pid;
    proc->pidfd = pidfd;
    err = uv_poll_start(&proc->poll, UV_READABLE, on_pidfd);
    PMS_CHECK(err == 0);
    *proc_out = proc;
    return 0;
}

void pms_proc_kill(struct pms_proc *proc)
{
    if (!proc->exited)
        pidfd_send_signal(proc->pidfd, SIGKILL, NULL, 0);
}

void pms_proc_close(struct pms_proc *proc)
{
    proc->on_exit = NULL;
    if (proc->exited)
        uv_close((uv_handle_t *)&proc->poll, on_proc_closed);
    else
        uv_unref((uv_handle_t *)&proc->poll);
}

void pms_proc_forget(struct pms_proc *proc)
{
    proc->on_exit = NULL;
    uv_close((uv_handle_t *)&proc->poll, on_proc_closed);
}

pid_t pms_proc_pid(const struct pms_proc *proc)
{
    return proc->pid;
}

int pms_proc_pidfd(const struct pms_proc *proc)
{
    return proc->pidfd;
}
