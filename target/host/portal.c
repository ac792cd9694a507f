// SPDX-License-Identifier: GPL-2.0-or-later
// One array's portal on this node: listener and address.
//
//            up                 guard: added
//   DOWN ----------> RISING ------------------> UP --+ guard: lost
//    ^  ^               | guard: refused        |    |
//    |  +---------------+-----------------------|----+
//    |       guard: gone                        | down (from RISING too)
//    +------------------- FALLING <-------------+
#include "target/host/portal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/util.h"
#include "target/host/tickle.h"

enum portal_state { PORTAL_DOWN, PORTAL_RISING, PORTAL_UP, PORTAL_FALLING };

struct pms_portal {
    uv_loop_t *loop;
    struct pms_guard *guard;
    struct pms_portal_conf conf;
    char text[PMS_ADDR_TEXT_SIZE];
    int fd;
    enum portal_state state;
    bool closing;
    struct pms_guard_addr *addr; // while not DOWN
    struct pms_tickle *tickle;
    struct sockaddr_storage *peers; // to be tickled when the address is up
    unsigned peers_count;
    uv_timer_t soon; // runs the callback of a call that had nothing to wait for
    pms_portal_cb cb;
    void *arg;
    pms_portal_cb on_lost;
    void *lost_arg;
};

int pms_portal_conf_parse(const char *text, struct pms_portal_conf *conf)
{
    struct pms_portal_conf c = {0};
    char addr[PMS_ADDR_TEXT_SIZE];
    const char *slash = strchr(text, '/');
    unsigned long len;
    char *end;

    if (!slash || (size_t)(slash - text) >= sizeof(addr))
        return -EINVAL;
    memcpy(addr, text, (size_t)(slash - text));
    addr[slash - text] = 0;
    if (pms_addr_parse(addr, PMS_PORT_ISCSI, &c.addr) != 0)
        return -EINVAL;
    if (slash[1] < '0' || slash[1] > '9')
        return -EINVAL;
    len = strtoul(slash + 1, &end, 10);
    if (*end != 0 || len == 0 || len > (c.addr.ss_family == AF_INET ? 32 : 128))
        return -EINVAL;
    c.prefix_len = (unsigned)len;
    *conf = c;
    return 0;
}

static int listener_open(const struct sockaddr_storage *addr, int *fd_out)
{
    int on = 1;
    int err = 0;
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
        err = -errno;
    else if (addr->ss_family == AF_INET6 &&
             (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0 ||
              setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)) != 0))
        err = -errno;
    else if (addr->ss_family == AF_INET && setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) != 0)
        err = -errno;
    else if (bind(fd, (const struct sockaddr *)addr, pms_addr_len(addr)) != 0 || listen(fd, SOMAXCONN) != 0)
        err = -errno;
    if (err) {
        close(fd);
        return err;
    }
    *fd_out = fd;
    return 0;
}

// Is fd a listener of that address?
static int listener_check(int fd, const struct sockaddr_storage *addr)
{
    char want[PMS_ADDR_TEXT_SIZE], is[PMS_ADDR_TEXT_SIZE];
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof(bound), size = sizeof(int);
    int listens = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &len) != 0)
        return -errno;
    return listens && strcmp(pms_addr_format(&bound, is), pms_addr_format(addr, want)) == 0 ? 0 : -EINVAL;
}

int pms_portal_open(uv_loop_t *loop, struct pms_guard *guard, const struct pms_portal_conf *conf,
                    int listen_fd, pms_portal_cb on_lost, void *arg, struct pms_portal **portal)
{
    struct pms_portal *p = calloc(1, sizeof(*p));
    int fd = listen_fd;
    int err = -ENOMEM;

    if (p)
        err = fd >= 0 ? listener_check(fd, &conf->addr) : listener_open(&conf->addr, &fd);
    if (err) {
        if (listen_fd >= 0)
            close(listen_fd);
        free(p);
        return err;
    }
    p->fd = fd;
    p->loop = loop;
    p->guard = guard;
    p->conf = *conf;
    p->on_lost = on_lost;
    p->lost_arg = arg;
    pms_addr_format(&conf->addr, p->text);
    uv_timer_init(loop, &p->soon);
    p->soon.data = p;
    *portal = p;
    return 0;
}

static void tickle_stop(struct pms_portal *p)
{
    pms_tickle_stop(p->tickle);
    p->tickle = NULL;
}

// The neighbours know already (the guard told them first): the tickles' answers come here.
static void tickle_start(struct pms_portal *p)
{
    int err = 0;

    tickle_stop(p);
    if (p->peers_count > 0)
        err = pms_tickle_start(p->loop, &p->conf.addr, p->peers, p->peers_count, &p->tickle);
    if (err)
        pms_log(PMS_LOG_WARN, "cannot tickle the peers of %s: %s", p->text, strerror(-err));
}

static void peers_clear(struct pms_portal *p)
{
    free(p->peers);
    p->peers = NULL;
    p->peers_count = 0;
}

static void on_soon_closed(uv_handle_t *h)
{
    struct pms_portal *p = h->data;

    if (p->cb)
        p->cb(p->arg, 0);
    free(p);
}

// The address is gone (or never was): the rest of close.
static void close_finish(struct pms_portal *p)
{
    peers_clear(p);
    close(p->fd);
    uv_close((uv_handle_t *)&p->soon, on_soon_closed);
}

static void on_addr_event(void *arg, int err, unsigned ifindex)
{
    struct pms_portal *p = arg;

    (void)ifindex;
    if (p->state == PORTAL_RISING && err == 0) {
        p->state = PORTAL_UP;
        pms_log(PMS_LOG_INFO, "portal %s is up", p->text);
        tickle_start(p);
        p->cb(p->arg, 0);
        return;
    }
    // Refused, or lost later: either way nothing is on the interface, and the guard only has to forget it.
    bool was_up = p->state == PORTAL_UP;

    pms_guard_addr_del(p->addr, NULL, NULL);
    p->addr = NULL;
    p->state = PORTAL_DOWN;
    tickle_stop(p);
    if (!was_up)
        p->cb(p->arg, err);
    else if (p->on_lost)
        p->on_lost(p->lost_arg, 0);
}

static void on_soon(uv_timer_t *t)
{
    struct pms_portal *p = t->data;

    p->cb(p->arg, 0);
}

static void callback_soon(struct pms_portal *p, pms_portal_cb cb, void *arg)
{
    p->cb = cb;
    p->arg = arg;
    uv_timer_start(&p->soon, on_soon, 0, 0);
}

int pms_portal_up(struct pms_portal *p, const struct sockaddr_storage *peers, unsigned n, pms_portal_cb cb,
                  void *arg)
{
    struct sockaddr_storage *copy = NULL;
    int err;

    PMS_CHECK(p->state == PORTAL_DOWN || p->state == PORTAL_UP);
    if (n > 0) {
        copy = malloc(n * sizeof(*copy));
        if (!copy)
            return -ENOMEM;
        memcpy(copy, peers, n * sizeof(*copy));
    }
    if (p->state == PORTAL_DOWN) {
        err =
            pms_guard_addr_add(p->guard, &p->conf.addr, p->conf.prefix_len,
                               p->conf.ifname[0] ? p->conf.ifname : NULL, p->fd, on_addr_event, p, &p->addr);
        if (err) {
            free(copy);
            return err;
        }
    }
    peers_clear(p);
    p->peers = copy;
    p->peers_count = n;
    if (p->state == PORTAL_UP) {
        pms_guard_addr_announce(p->addr);
        tickle_start(p);
        callback_soon(p, cb, arg);
        return 0;
    }
    p->state = PORTAL_RISING;
    p->cb = cb;
    p->arg = arg;
    return 0;
}

static void on_addr_gone(void *arg, int err, unsigned ifindex)
{
    struct pms_portal *p = arg;

    (void)ifindex;
    p->state = PORTAL_DOWN;
    pms_log(err ? PMS_LOG_ERROR : PMS_LOG_INFO, "portal %s is down%s%s", p->text, err ? ": " : "",
            err ? strerror(-err) : "");
    if (p->closing)
        close_finish(p);
    else
        p->cb(p->arg, err);
}

static void addr_off(struct pms_portal *p)
{
    uv_timer_stop(&p->soon);
    tickle_stop(p);
    p->state = PORTAL_FALLING;
    pms_guard_addr_del(p->addr, on_addr_gone, p);
    p->addr = NULL;
}

void pms_portal_down(struct pms_portal *p, pms_portal_cb cb, void *arg)
{
    PMS_CHECK(p->state != PORTAL_FALLING);
    if (p->state == PORTAL_DOWN) {
        callback_soon(p, cb, arg);
        return;
    }
    addr_off(p);
    p->cb = cb;
    p->arg = arg;
}

void pms_portal_close(struct pms_portal *p, pms_portal_cb cb, void *arg)
{
    PMS_CHECK(!p->closing);
    p->closing = true;
    p->cb = cb;
    p->arg = arg;
    if (p->state == PORTAL_DOWN)
        close_finish(p);
    else if (p->state != PORTAL_FALLING)
        addr_off(p);
}

int pms_portal_listen_fd(const struct pms_portal *p)
{
    return p->fd;
}

const char *pms_portal_text(const struct pms_portal *p)
{
    return p->text;
}
