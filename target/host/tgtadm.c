// SPDX-License-Identifier: GPL-2.0-or-later
// A client of tgtd's management socket. Its protocol: a fixed header in native byte order, then a text of
// parameters; the answer is an error number and the length of a text that nobody here reads.
#include "target/host/tgtadm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"

#define TARGET_ID 1

// tgtd's numbers.
enum { MODE_TARGET = 1, MODE_DEVICE = 2, MODE_LLD = 4 };
enum { OP_NEW = 0, OP_SHOW = 2, OP_BIND = 3, OP_UPDATE = 5 };

struct request {
    uint32_t mode;
    uint32_t op;
    char driver[64];
    uint32_t len; // with the text
    int32_t target_id;
    uint64_t session_id;
    uint64_t lun;
    uint32_t connection_id;
    uint32_t host_no;
    uint32_t device_type;
    uint32_t account_dir;
    uint32_t pack;
    uint32_t force;
};
PMS_STATIC_ASSERT(sizeof(struct request) == 120, "tgtd reads exactly this many bytes");

struct answer {
    uint32_t err;
    uint32_t len;
};

static const struct {
    const char *name;
    uint32_t mode;
    uint32_t op;
} ops[] = {
    [PMS_TGTADM_TARGET_NEW] = {"new target", MODE_TARGET, OP_NEW},
    [PMS_TGTADM_LUN_NEW] = {"new LUN", MODE_DEVICE, OP_NEW},
    [PMS_TGTADM_TARGET_BIND] = {"bind target", MODE_TARGET, OP_BIND},
    [PMS_TGTADM_TARGET_SET] = {"set parameter", MODE_TARGET, OP_UPDATE},
    [PMS_TGTADM_PING] = {"ping", MODE_LLD, OP_SHOW},
};

struct pms_tgtadm {
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles;
    int fd;
    enum pms_tgtadm_op op;
    struct answer answer;
    size_t answer_have;
    pms_tgtadm_cb cb;
    void *arg;
};

static void on_handle_closed(uv_handle_t *h)
{
    struct pms_tgtadm *c = h->data;

    if (--c->handles == 0)
        free(c);
}

void pms_tgtadm_cancel(struct pms_tgtadm *c)
{
    if (!c)
        return;
    uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    close(c->fd);
}

static void finish(struct pms_tgtadm *c, int err)
{
    pms_tgtadm_cb cb = c->cb;
    void *arg = c->arg;

    pms_tgtadm_cancel(c);
    cb(arg, err);
}

static void on_timeout(uv_timer_t *t)
{
    finish(t->data, -ETIMEDOUT);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct pms_tgtadm *c = h->data;
    ssize_t n;

    (void)events;
    if (status < 0) {
        finish(c, status);
        return;
    }
    n = recv(c->fd, (char *)&c->answer + c->answer_have, sizeof(c->answer) - c->answer_have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        finish(c, n < 0 ? -errno : -ECONNRESET);
        return;
    }
    c->answer_have += (size_t)n;
    if (c->answer_have < sizeof(c->answer))
        return;
    if (c->answer.err != 0) {
        pms_log(PMS_LOG_ERROR, "tgtd refuses \"%s\" with error %u", ops[c->op].name, c->answer.err);
        finish(c, PMS_EREFUSED);
        return;
    }
    finish(c, 0);
}

// A Unix socket takes the whole request at once or (its owner's backlog is full) not at all.
static int connect_and_send(const char *path, const struct request *req, const char *params, int *fd_out)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct iovec iov[2] = {{(void *)req, sizeof(*req)}, {(void *)params, req->len - sizeof(*req)}};
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = 2};
    int err = 0;
    int fd;

    if (strlen(path) >= sizeof(sa.sun_path))
        return -ENAMETOOLONG;
    memcpy(sa.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
        err = -errno;
    else if (sendmsg(fd, &mh, MSG_NOSIGNAL) != (ssize_t)req->len)
        err = errno ? -errno : -EIO;
    if (err) {
        close(fd);
        return err;
    }
    *fd_out = fd;
    return 0;
}

int pms_tgtadm_call(uv_loop_t *loop, const char *path, enum pms_tgtadm_op op, uint64_t lun,
                    const char *params, unsigned timeout_ms, pms_tgtadm_cb cb, void *arg,
                    struct pms_tgtadm **call)
{
    struct request req = {.mode = ops[op].mode,
                          .op = ops[op].op,
                          .driver = "iscsi",
                          .len = (uint32_t)(sizeof(req) + (params ? strlen(params) + 1 : 0)),
                          .target_id = TARGET_ID,
                          .lun = lun};
    struct pms_tgtadm *c = calloc(1, sizeof(*c));
    int err;

    if (!c)
        return -ENOMEM;
    err = connect_and_send(path, &req, params, &c->fd);
    if (err) {
        free(c);
        return err;
    }
    err = uv_poll_init(loop, &c->poll, c->fd);
    PMS_CHECK(err == 0);
    uv_timer_init(loop, &c->timer);
    c->handles = 2;
    c->poll.data = c;
    c->timer.data = c;
    c->op = op;
    c->cb = cb;
    c->arg = arg;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    uv_timer_start(&c->timer, on_timeout, timeout_ms, 0);
    *call = c;
    return 0;
}
