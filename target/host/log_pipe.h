// SPDX-License-Identifier: GPL-2.0-or-later
// Turns what a child process writes to its stdout and stderr into log lines of ours.
#ifndef PMS_TARGET_HOST_LOG_PIPE_H
#define PMS_TARGET_HOST_LOG_PIPE_H

#include <uv.h>

struct pms_log_pipe;

// Makes a pipe and logs every line that comes out of it as "name: line", at level info; at level debug if it
// contains one of the expected phrases (ended by NULL, outliving the pipe; NULL: none). *write_fd is for the
// child; the caller closes its copy after the start. 0 or -errno.
int pms_log_pipe_open(uv_loop_t *loop, const char *name, const char *const *expected,
                      struct pms_log_pipe **pipe, int *write_fd);
// The same for the reading end of a pipe that is there already (taken over, also on failure).
int pms_log_pipe_adopt(uv_loop_t *loop, const char *name, const char *const *expected, int read_fd,
                       struct pms_log_pipe **pipe);
// The reading end; stays the pipe's.
int pms_log_pipe_fd(const struct pms_log_pipe *pipe);
// Logs what is still in it, closes, frees. NULL is fine.
void pms_log_pipe_close(struct pms_log_pipe *pipe);

#endif
