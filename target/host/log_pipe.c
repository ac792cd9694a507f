// SPDX-License-Identifier: GPL-2.0-or-later
// A child's output as log lines.
#include "target/host/log_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"

#define LINE_BYTES_MAX  512
#define READS_PER_EVENT 16 // a child that floods must not keep the loop
#define NAME_BYTES_MAX  80

struct pms_log_pipe {
    uv_poll_t poll;
    int fd;
    char name[NAME_BYTES_MAX];
    const char *const *expected;
    char line[LINE_BYTES_MAX];
    size_t len;
};

// Expected lines are for who debugs; they would only alarm an operator.
static bool is_expected(const struct pms_log_pipe *p)
{
    for (const char *const *e = p->expected; e != NULL && *e != NULL; e++)
        if (memmem(p->line, p->len, *e, strlen(*e)) != NULL)
            return true;
    return false;
}

static void line_flush(struct pms_log_pipe *p)
{
    if (p->len > 0)
        pms_log(is_expected(p) ? PMS_LOG_DEBUG : PMS_LOG_INFO, "%s: %.*s", p->name, (int)p->len, p->line);
    p->len = 0;
}

// false at the end of the pipe or when there is nothing now.
static bool read_some(struct pms_log_pipe *p, bool *ended)
{
    char buf[1024];
    ssize_t n = read(p->fd, buf, sizeof(buf));

    *ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    for (ssize_t i = 0; i < n; i++) {
        if (buf[i] == '\n') {
            line_flush(p);
            continue;
        }
        p->line[p->len++] = buf[i];
        if (p->len == sizeof(p->line))
            line_flush(p);
    }
    return n > 0;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct pms_log_pipe *p = h->data;
    bool ended = status < 0;

    (void)events;
    for (int i = 0; i < READS_PER_EVENT && !ended; i++)
        if (!read_some(p, &ended))
            break;
    if (ended)
        uv_poll_stop(&p->poll);
}

int pms_log_pipe_adopt(uv_loop_t *loop, const char *name, const char *const *expected, int read_fd,
                       struct pms_log_pipe **pipe_out)
{
    struct pms_log_pipe *p = calloc(1, sizeof(*p));
    int err = p ? uv_poll_init(loop, &p->poll, read_fd) : -ENOMEM;

    if (err) {
        close(read_fd);
        free(p);
        return err;
    }
    p->fd = read_fd;
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    snprintf(p->name, sizeof(p->name), "%s", name);
    p->expected = expected;
    p->poll.data = p;
    uv_poll_start(&p->poll, UV_READABLE, on_readable);
    *pipe_out = p;
    return 0;
}

int pms_log_pipe_open(uv_loop_t *loop, const char *name, const char *const *expected,
                      struct pms_log_pipe **pipe_out, int *write_fd)
{
    int fds[2];
    int err;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return -errno;
    err = pms_log_pipe_adopt(loop, name, expected, fds[0], pipe_out);
    if (err)
        close(fds[1]);
    else
        *write_fd = fds[1];
    return err;
}

int pms_log_pipe_fd(const struct pms_log_pipe *p)
{
    return p->fd;
}

static void on_poll_closed(uv_handle_t *h)
{
    free(h->data);
}

void pms_log_pipe_close(struct pms_log_pipe *p)
{
    bool ended = false;

    if (!p)
        return;
    for (int i = 0; i < READS_PER_EVENT && !ended; i++)
        if (!read_some(p, &ended))
            break;
    line_flush(p);
    uv_close((uv_handle_t *)&p->poll, on_poll_closed);
    close(p->fd);
}
