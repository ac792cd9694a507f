// SPDX-License-Identifier: GPL-2.0-or-later
// Child processes watched through a pidfd, with chosen descriptors only. (uv_spawn passes on whatever is not
// close-on-exec, and its fork copies the page tables of the whole address space: here it is vfork.)
#ifndef PMS_TARGET_HOST_PROC_H
#define PMS_TARGET_HOST_PROC_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct pms_proc_conf {
    const char *exe;
    char *const *argv;
    char *const *env; // NULL: this process's
    const int *fds;   // the child's descriptors 3, 4, .. are duplicates of these; all others are closed
    unsigned fds_count;
    int output_fd;    // the child's stdout and stderr; -1: ours
    bool own_session; // setsid: a terminal's signals do not reach it
};

struct pms_proc;
// status: as from waitpid.
typedef void (*pms_proc_exit_cb)(void *arg, int status);

// Starts it; stdin is /dev/null. 0 or -errno (also of execve).
int pms_proc_open(uv_loop_t *loop, const struct pms_proc_conf *conf, pms_proc_exit_cb on_exit, void *arg,
                  struct pms_proc **proc);
// Watches a process that another has started: pidfd (taken over, also on failure) names it. on_exit's status is
// 0, whatever it was. 0 or -errno.
int pms_proc_adopt(uv_loop_t *loop, pid_t pid, int pidfd, pms_proc_exit_cb on_exit, void *arg,
                   struct pms_proc **proc);
// Sends SIGKILL. Harmless if it has ended.
void pms_proc_kill(struct pms_proc *proc);
// The callback does not run any more. A process that is still there goes on and is reaped when it ends.
void pms_proc_close(struct pms_proc *proc);
// As close, but a process that is still there is not reaped by us: it is meant to outlive this program.
void pms_proc_forget(struct pms_proc *proc);
pid_t pms_proc_pid(const struct pms_proc *proc);
int pms_proc_pidfd(const struct pms_proc *proc);

#endif
