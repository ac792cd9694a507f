// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's side of the guard: what is registered, its renewal, and a new guard when one dies.
#include "target/host/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "target/host/guard_msg.h"
#include "target/host/proc.h"

#define RENEW_MS   1000
#define RESTART_MS 200  // pause before a guard that ended is replaced
#define CLOSE_MS   3000 // a closing guard that is not done by then is killed

enum addr_state {
    ADDR_ADDING,
    ADDR_UP,
    ADDR_OFF, // failed or lost: the callback has been told, only del is left
    ADDR_DELETING,
};

struct pms_guard_addr {
    struct pms_list link;
    struct pms_guard *guard;
    enum addr_state state;
    struct pms_guard_msg msg; // as sent; carries the id
    int fd;
    pms_guard_cb cb;
    void *arg;
};

struct pms_guard_pid {
    struct pms_list link;
    struct pms_guard *guard;
    struct pms_guard_msg msg; // carries id and tenure
    int fds[PMS_GUARD_FDS];
};

struct pms_guard {
    uv_loop_t *loop;
    char *exe;
    char *path;
    struct pms_proc *proc; // NULL: none runs
    int fd;                // our end, -1: none
    uv_poll_t poll;        // of fd; a new handle's life with every guard
    bool poll_open;
    bool closing;
    uv_timer_t renew;
    uv_timer_t restart; // also the deadline of closing
    unsigned timers_open;
    uint32_t id_last;
    unsigned lifetime_s; // of addresses
    struct pms_list addrs;
    struct pms_list pids;
    void (*close_cb)(void *arg);
    void *close_arg;
};

static int guard_start(struct pms_guard *g);
static void guard_lost(struct pms_guard *g);
static void on_restart(uv_timer_t *t);

// A guard that takes no more is as good as dead; the next one is told everything.
static void tell(struct pms_guard *g, struct pms_guard_msg *msg, const int *fds)
{
    int err = g->fd >= 0 ? pms_guard_msg_send(g->fd, msg, fds, MSG_DONTWAIT) : 0;

    if (err && g->proc) {
        pms_log(PMS_LOG_ERROR, "the guard does not listen (%s): it is replaced", strerror(-err));
        pms_proc_kill(g->proc);
    }
}

static void addr_tell(struct pms_guard_addr *a)
{
    const int fds[PMS_GUARD_FDS] = {a->state == ADDR_DELETING ? -1 : a->fd, -1, -1};

    a->msg.op = a->state == ADDR_DELETING ? PMS_GUARD_ADDR_DEL : PMS_GUARD_ADDR_ADD;
    a->msg.lifetime_s = a->guard->lifetime_s;
    tell(a->guard, &a->msg, fds);
}

static void pid_tell(struct pms_guard_pid *p)
{
    p->msg.op = PMS_GUARD_PID_ADD;
    tell(p->guard, &p->msg, p->fds);
}

static void addr_free(struct pms_guard_addr *a)
{
    pms_list_del(&a->link);
    if (a->fd >= 0)
        close(a->fd);
    free(a);
}

static struct pms_guard_addr *addr_find(struct pms_guard *g, uint32_t id)
{
    pms_list_for_each (it, &g->addrs) {
        struct pms_guard_addr *a = pms_list_entry(it, struct pms_guard_addr, link);

        if (a->msg.id == id)
            return a;
    }
    return NULL;
}

static void on_added(struct pms_guard_addr *a, int err, unsigned ifindex)
{
    bool was_up = a->state == ADDR_UP; // this answer is a new guard's

    a->state = err ? ADDR_OFF : ADDR_UP;
    if (was_up && err)
        a->cb(a->arg, -EADDRNOTAVAIL, 0);
    else if (!was_up)
        a->cb(a->arg, err, ifindex);
}

static void on_answer(struct pms_guard *g, const struct pms_guard_msg *msg)
{
    struct pms_guard_addr *a = addr_find(g, msg->id);

    if (!a)
        return;
    switch (msg->op) {
    case PMS_GUARD_ADDR_ADD:
        if (a->state == ADDR_ADDING || a->state == ADDR_UP)
            on_added(a, msg->err, msg->ifindex);
        break;
    case PMS_GUARD_ADDR_LOST:
        if (a->state != ADDR_UP)
            break;
        a->state = ADDR_OFF;
        a->cb(a->arg, -EADDRNOTAVAIL, 0);
        break;
    case PMS_GUARD_ADDR_DEL:
        if (a->state == ADDR_DELETING) {
            pms_guard_cb cb = a->cb;
            void *arg = a->arg;

            addr_free(a);
            if (cb)
                cb(arg, msg->err, 0);
        }
        break;
    default:
        pms_log(PMS_LOG_ERROR, "the guard sent operation %u", msg->op);
    }
}

static void free_when_closed(struct pms_guard *g)
{
    if (g->timers_open > 0 || g->poll_open)
        return;
    if (g->close_cb)
        g->close_cb(g->close_arg);
    free(g->path);
    free(g->exe);
    free(g);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct pms_guard *g = h->data;

    g->poll_open = false;
    if (g->closing)
        free_when_closed(g);
    else
        uv_timer_start(&g->restart, on_restart, RESTART_MS, 0);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct pms_guard *g = h->data;

    (void)status;
    (void)events;
    while (g->fd >= 0) {
        struct pms_guard_msg msg;
        int fds[PMS_GUARD_FDS];
        int rv = pms_guard_msg_receive(g->fd, &msg, fds, MSG_DONTWAIT);

        pms_guard_fds_close(fds);
        if (rv == -EAGAIN || rv == -EINTR)
            return;
        if (rv != 1) {
            guard_lost(g);
            return;
        }
        on_answer(g, &msg);
    }
}

static void on_timer_closed(uv_handle_t *h)
{
    struct pms_guard *g = h->data;

    g->timers_open--;
    free_when_closed(g);
}

static void timers_close(struct pms_guard *g)
{
    uv_close((uv_handle_t *)&g->renew, on_timer_closed);
    uv_close((uv_handle_t *)&g->restart, on_timer_closed);
}

static void on_guard_exit(void *arg, int status)
{
    struct pms_guard *g = arg;

    pms_proc_close(g->proc);
    g->proc = NULL;
    if (g->closing) {
        timers_close(g);
        return;
    }
    pms_log(PMS_LOG_ERROR, "the guard ended (status 0x%x)", (unsigned)status);
    guard_lost(g);
}

// Either its socket or its process has ended: the other follows, then comes a new one.
static void guard_lost(struct pms_guard *g)
{
    if (g->fd < 0)
        return;
    if (g->proc)
        pms_proc_kill(g->proc);
    uv_close((uv_handle_t *)&g->poll, on_poll_closed);
    close(g->fd);
    g->fd = -1;
}

static void on_restart(uv_timer_t *t)
{
    struct pms_guard *g = t->data;
    int err;

    if (g->closing) {
        if (g->proc)
            pms_proc_kill(g->proc);
        return;
    }
    if (g->proc || g->poll_open) {
        uv_timer_start(&g->restart, on_restart, RESTART_MS, 0);
        return;
    }
    err = guard_start(g);
    if (err) {
        pms_log(PMS_LOG_ERROR, "cannot start a guard: %s", strerror(-err));
        uv_timer_start(&g->restart, on_restart, RESTART_MS, 0);
    }
}

static void on_renew(uv_timer_t *t)
{
    struct pms_guard *g = t->data;
    struct pms_guard_msg msg = {.op = PMS_GUARD_RENEW, .lifetime_s = g->lifetime_s};

    if (!pms_list_empty(&g->addrs))
        tell(g, &msg, NULL);
}

static int guard_start(struct pms_guard *g)
{
    char *argv[] = {(char[]){"pms-guard"}, (char[]){PMS_GUARD_ARG}, g->path, NULL};
    int pair[2];
    struct pms_proc_conf conf = {
        .exe = g->exe, .argv = argv, .fds = &pair[1], .fds_count = 1, .output_fd = -1, .own_session = true};
    int err;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -errno;
    err = pms_proc_open(g->loop, &conf, on_guard_exit, g, &g->proc);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        return err;
    }
    g->fd = pair[0];
    err = uv_poll_init(g->loop, &g->poll, g->fd);
    PMS_CHECK(err == 0);
    g->poll.data = g;
    g->poll_open = true;
    uv_poll_start(&g->poll, UV_READABLE, on_readable);

    pms_list_for_each (it, &g->pids) {
        pid_tell(pms_list_entry(it, struct pms_guard_pid, link));
    }
    pms_list_for_each (it, &g->addrs) {
        struct pms_guard_addr *a = pms_list_entry(it, struct pms_guard_addr, link);

        if (a->state != ADDR_OFF)
            addr_tell(a);
    }
    return 0;
}

int pms_guard_open(uv_loop_t *loop, const char *exe, const char *path, struct pms_guard **guard)
{
    struct pms_guard *g = calloc(1, sizeof(*g));
    int err;

    if (!g)
        return -ENOMEM;
    g->exe = strdup(exe ? exe : "/proc/self/exe");
    g->path = strdup(path);
    g->loop = loop;
    g->fd = -1;
    g->lifetime_s = PMS_ADDR_LIFETIME_S;
    pms_list_init(&g->addrs);
    pms_list_init(&g->pids);
    err = g->exe && g->path ? guard_start(g) : -ENOMEM;
    if (err) {
        free(g->path);
        free(g->exe);
        free(g);
        return err;
    }
    uv_timer_init(loop, &g->renew);
    uv_timer_init(loop, &g->restart);
    g->renew.data = g;
    g->restart.data = g;
    g->timers_open = 2;
    uv_timer_start(&g->renew, on_renew, RENEW_MS, RENEW_MS);
    *guard = g;
    return 0;
}

void pms_guard_lifetime_set(struct pms_guard *g, unsigned lifetime_s)
{
    PMS_CHECK(lifetime_s >= 2);
    g->lifetime_s = lifetime_s;
}

static void pid_free(struct pms_guard_pid *p)
{
    pms_list_del(&p->link);
    pms_guard_fds_close(p->fds);
    free(p);
}

void pms_guard_close(struct pms_guard *g, void (*cb)(void *arg), void *arg)
{
    bool keeps = false;

    g->closing = true;
    g->close_cb = cb;
    g->close_arg = arg;
    pms_list_for_each_safe (it, &g->addrs) {
        addr_free(pms_list_entry(it, struct pms_guard_addr, link));
    }
    pms_list_for_each_safe (it, &g->pids) {
        struct pms_guard_pid *p = pms_list_entry(it, struct pms_guard_pid, link);

        keeps = keeps || p->msg.tenure != 0;
        pid_free(p);
    }
    uv_timer_stop(&g->renew);
    uv_timer_start(&g->restart, on_restart, CLOSE_MS, 0);
    if (g->fd >= 0) {
        uv_close((uv_handle_t *)&g->poll, on_poll_closed);
        close(g->fd);
        g->fd = -1;
    }
    if (g->proc && keeps) {
        pms_proc_forget(g->proc); // it ends when it has nothing to keep any more
        g->proc = NULL;
    }
    if (!g->proc)
        timers_close(g);
}

pid_t pms_guard_pid(const struct pms_guard *g)
{
    return g->proc ? pms_proc_pid(g->proc) : 0;
}

int pms_guard_addr_add(struct pms_guard *g, const struct sockaddr_storage *addr, unsigned prefix_len,
                       const char *ifname, int listen_fd, pms_guard_cb cb, void *arg,
                       struct pms_guard_addr **out)
{
    struct pms_guard_addr *a;

    if (ifname && strlen(ifname) >= sizeof(a->msg.ifname))
        return -EINVAL;
    a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->fd = -1;
    if (listen_fd >= 0) {
        a->fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
        if (a->fd < 0) {
            free(a);
            return -errno;
        }
    }
    a->guard = g;
    a->msg.id = ++g->id_last;
    a->msg.addr = *addr;
    a->msg.prefix_len = prefix_len;
    if (ifname)
        memcpy(a->msg.ifname, ifname, strlen(ifname) + 1);
    a->cb = cb;
    a->arg = arg;
    pms_list_add_tail(&g->addrs, &a->link);
    addr_tell(a);
    *out = a;
    return 0;
}

void pms_guard_addr_announce(struct pms_guard_addr *a)
{
    struct pms_guard_msg msg = {.op = PMS_GUARD_ANNOUNCE, .id = a->msg.id};

    tell(a->guard, &msg, NULL);
}

void pms_guard_addr_del(struct pms_guard_addr *a, pms_guard_cb cb, void *arg)
{
    if (a->state == ADDR_OFF && !cb) {
        addr_free(a); // the guard has forgotten it already
        return;
    }
    a->state = ADDR_DELETING;
    a->cb = cb;
    a->arg = arg;
    addr_tell(a);
}

int pms_guard_pid_add(struct pms_guard *g, const struct pms_guard_child *child, struct pms_guard_pid **out)
{
    const int fds[PMS_GUARD_FDS] = {child->pidfd, child->listen_fd, child->log_fd};
    struct pms_guard_pid *p = calloc(1, sizeof(*p));
    int err = 0;

    if (!p)
        return -ENOMEM;
    for (unsigned i = 0; i < PMS_GUARD_FDS; i++) {
        p->fds[i] = fds[i] >= 0 ? fcntl(fds[i], F_DUPFD_CLOEXEC, 0) : -1;
        if (fds[i] >= 0 && p->fds[i] < 0)
            err = -errno;
    }
    if (err) {
        pms_guard_fds_close(p->fds);
        free(p);
        return err;
    }
    p->guard = g;
    p->msg.id = ++g->id_last;
    p->msg.pid = child->pid;
    p->msg.array_id = child->array_id;
    p->msg.tenure = child->tenure;
    memcpy(p->msg.ipc_path, child->ipc_path, sizeof(p->msg.ipc_path));
    pms_list_add_tail(&g->pids, &p->link);
    pid_tell(p);
    *out = p;
    return 0;
}

void pms_guard_pid_tenure(struct pms_guard_pid *p, uint64_t tenure)
{
    p->msg.tenure = tenure;
    pid_tell(p);
}

void pms_guard_pid_del(struct pms_guard_pid *p)
{
    struct pms_guard_msg msg = {.op = PMS_GUARD_PID_DEL, .id = p->msg.id};

    tell(p->guard, &msg, NULL);
    pid_free(p);
}
