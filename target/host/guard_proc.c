// SPDX-License-Identifier: GPL-2.0-or-later
// The guard's own process: one thread, one socket, blocking calls.
//
// Happy path: pmsd asks for addresses, renews them every second, takes them off, and ends.
// Failures: pmsd dies or closes the socket: end of file here, the addresses go at once, and what pmsd left
// running is kept for the next pmsd, or killed (guard_keep.c). pmsd is stopped: no more
// renewals, the kernel drops the addresses; they are not put back when it goes on, for by then another node
// may own them: pmsd is told and decides. This process is killed: the kernel drops the addresses within their
// lifetime, unless pmsd starts another guard that renews them.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/check.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/util.h"
#include "target/host/arp.h"
#include "target/host/guard.h"
#include "target/host/guard_keep.h"
#include "target/host/netlink.h"

#define PMSD_FD      3
#define ADDR_WAIT_MS 200

struct entry { // an address
    struct pms_list link;
    uint32_t id;
    int fd; // its listener, -1: none
    struct sockaddr_storage addr;
    unsigned prefix_len;
    unsigned ifindex;
    uint64_t lifetime_s, renewed_ns;
    unsigned round;  // of announcing, PMS_ARP_ROUNDS: done
    uint64_t due_ns; // of that round
    uint64_t start_ns;
};

struct guard {
    struct pms_netlink nl;
    struct pms_arp arp;
    struct pms_list addrs; // struct entry
    struct pms_list pids;  // struct pms_guard_kept
    int keep_fd;           // where the next pmsd will ask, -1: nowhere
};

static struct entry *entry_find(struct pms_list *list, uint32_t id)
{
    pms_list_for_each (it, list) {
        struct entry *e = pms_list_entry(it, struct entry, link);

        if (e->id == id)
            return e;
    }
    return NULL;
}

static void entry_free(struct entry *e)
{
    pms_list_del(&e->link);
    if (e->fd >= 0)
        close(e->fd);
    free(e);
}

static const char *addr_text(const struct sockaddr_storage *addr)
{
    static char text[PMS_ADDR_TEXT_SIZE];

    return pms_addr_format(addr, text);
}

static void answer(struct pms_guard_msg *msg)
{
    int err = pms_guard_msg_send(PMSD_FD, msg, NULL, 0);

    if (err && err != -EPIPE)
        pms_log(PMS_LOG_WARN, "cannot answer pmsd: %s", strerror(-err));
}

static void announce_round(struct guard *g, struct entry *e)
{
    static const unsigned delays_ms[PMS_ARP_ROUNDS] = PMS_ARP_DELAYS_MS;
    int err = pms_arp_send(&g->arp, &e->addr, e->ifindex);

    if (err && err != -EOPNOTSUPP)
        pms_log(PMS_LOG_WARN, "cannot announce %s: %s", addr_text(&e->addr), strerror(-err));
    if (++e->round < PMS_ARP_ROUNDS)
        e->due_ns = e->start_ns + delays_ms[e->round] * 1000000ull;
}

static void announce_start(struct guard *g, struct entry *e)
{
    e->round = 0;
    e->start_ns = pms_clock_boot_ns();
    announce_round(g, e);
}

// Sends what is due. Returns the milliseconds until the next round, -1: none.
static int announce_due(struct guard *g)
{
    int wait_ms = -1;

    pms_list_for_each (it, &g->addrs) {
        struct entry *e = pms_list_entry(it, struct entry, link);
        uint64_t now_ns = pms_clock_boot_ns();
        int ms;

        if (e->round < PMS_ARP_ROUNDS && e->due_ns <= now_ns)
            announce_round(g, e);
        if (e->round >= PMS_ARP_ROUNDS)
            continue;
        ms = e->due_ns > now_ns ? (int)((e->due_ns - now_ns) / 1000000) + 1 : 0;
        if (wait_ms < 0 || ms < wait_ms)
            wait_ms = ms;
    }
    return wait_ms;
}

// fd becomes the entry's on success.
static int addr_add(struct guard *g, struct pms_guard_msg *msg, int fd)
{
    struct entry *e;
    unsigned ifindex;
    int err;

    msg->ifname[IF_NAMESIZE - 1] = 0;
    if (msg->ifname[0] != 0) {
        ifindex = if_nametoindex(msg->ifname);
        err = ifindex == 0 ? -errno : 0;
    } else {
        err = pms_netlink_subnet_find(&g->nl, &msg->addr, &ifindex);
    }
    if (err)
        return err;
    e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    err = pms_netlink_addr_set(&g->nl, &msg->addr, msg->prefix_len, ifindex, msg->lifetime_s);
    if (err) {
        free(e);
        return err;
    }
    err = pms_netlink_addr_wait(&g->nl, &msg->addr, ADDR_WAIT_MS);
    if (err)
        pms_log(PMS_LOG_WARN, "%s is slow to come up: %s", addr_text(&msg->addr), strerror(-err));
    e->id = msg->id;
    e->fd = fd;
    e->addr = msg->addr;
    e->prefix_len = msg->prefix_len;
    e->ifindex = ifindex;
    e->lifetime_s = msg->lifetime_s;
    e->renewed_ns = pms_clock_boot_ns();
    pms_list_add_tail(&g->addrs, &e->link);
    announce_start(g, e);
    msg->ifindex = ifindex;
    return 0;
}

static int addr_off(struct guard *g, struct entry *e)
{
    int err = pms_netlink_addr_del(&g->nl, &e->addr, e->prefix_len, e->ifindex);

    if (err)
        pms_log(PMS_LOG_ERROR, "cannot take %s off: %s", addr_text(&e->addr), strerror(-err));
    return err;
}

static int addr_del(struct guard *g, const struct pms_guard_msg *msg)
{
    struct entry *e = entry_find(&g->addrs, msg->id);
    struct pms_netlink_addr present;
    int err;

    if (e) {
        err = addr_off(g, e);
        entry_free(e);
        return err;
    }
    // An earlier guard may have put it there and died.
    err = pms_netlink_addr_get(&g->nl, &msg->addr, &present);
    if (!err && present.present)
        err = pms_netlink_addr_del(&g->nl, &msg->addr, present.prefix_len, present.ifindex);
    return err;
}

// Renews what is still there. What has gone stays gone: see the head of this file.
static void renew(struct guard *g, unsigned lifetime_s)
{
    uint64_t now_ns = pms_clock_boot_ns();

    pms_list_for_each_safe (it, &g->addrs) {
        struct entry *e = pms_list_entry(it, struct entry, link);
        struct pms_netlink_addr present = {0};
        int err;

        err = pms_netlink_addr_get(&g->nl, &e->addr, &present);
        if (!err && present.present && now_ns - e->renewed_ns < e->lifetime_s * 1000000000ull) {
            err = pms_netlink_addr_set(&g->nl, &e->addr, e->prefix_len, e->ifindex, lifetime_s);
            if (!err) {
                e->renewed_ns = now_ns;
                e->lifetime_s = lifetime_s;
                continue;
            }
        }
        if (err) {
            pms_log(PMS_LOG_WARN, "cannot renew %s: %s", addr_text(&e->addr), strerror(-err));
            if (present.present)
                continue;
        }
        struct pms_guard_msg msg = {.op = PMS_GUARD_ADDR_LOST, .id = e->id};

        pms_log(PMS_LOG_WARN, "address %s is gone from its interface", addr_text(&e->addr));
        addr_off(g, e);
        entry_free(e);
        answer(&msg);
    }
}

static struct pms_guard_kept *kept_find(struct guard *g, uint32_t id)
{
    pms_list_for_each (it, &g->pids) {
        struct pms_guard_kept *k = pms_list_entry(it, struct pms_guard_kept, link);

        if (k->msg.id == id)
            return k;
    }
    return NULL;
}

// Of a known id: only what is said of it changes. The descriptors move to a new entry.
static void pid_add(struct guard *g, const struct pms_guard_msg *msg, int fds[PMS_GUARD_FDS])
{
    struct pms_guard_kept *k = kept_find(g, msg->id);

    if (k) {
        k->msg = *msg;
        return;
    }
    k = fds[PMS_GUARD_FD_FIRST] >= 0 ? calloc(1, sizeof(*k)) : NULL;
    if (!k)
        return;
    k->msg = *msg;
    for (unsigned i = 0; i < PMS_GUARD_FDS; i++) {
        k->fds[i] = fds[i];
        fds[i] = -1;
    }
    pms_list_add_tail(&g->pids, &k->link);
}

// fds: what came with the message; what is not taken is closed.
static void handle(struct guard *g, struct pms_guard_msg *msg, int fds[PMS_GUARD_FDS])
{
    struct pms_guard_kept *k;
    struct entry *e;

    switch (msg->op) {
    case PMS_GUARD_ADDR_ADD:
        msg->err = addr_add(g, msg, fds[PMS_GUARD_FD_FIRST]);
        if (msg->err == 0)
            fds[PMS_GUARD_FD_FIRST] = -1;
        answer(msg);
        break;
    case PMS_GUARD_ADDR_DEL:
        msg->err = addr_del(g, msg);
        answer(msg);
        break;
    case PMS_GUARD_ANNOUNCE:
        e = entry_find(&g->addrs, msg->id);
        if (e)
            announce_start(g, e);
        break;
    case PMS_GUARD_PID_ADD:
        pid_add(g, msg, fds);
        break;
    case PMS_GUARD_PID_DEL:
        k = kept_find(g, msg->id);
        if (k)
            pms_guard_kept_free(k);
        break;
    case PMS_GUARD_RENEW:
        renew(g, msg->lifetime_s);
        break;
    default:
        pms_log(PMS_LOG_ERROR, "pmsd sent operation %u", msg->op);
    }
    pms_guard_fds_close(fds);
}

// Addresses first, while the listeners still keep the kernel from refusing anybody. An address that does not
// go is left to its lifetime; then nothing may be behind it.
static void pmsd_gone(struct guard *g)
{
    bool all = true;

    pms_list_for_each (it, &g->addrs) {
        struct entry *e = pms_list_entry(it, struct entry, link);

        if (addr_off(g, e) == 0)
            pms_log(PMS_LOG_INFO, "pmsd is gone: took %s off", addr_text(&e->addr));
        else
            all = false;
    }
    pms_guard_keep(all ? g->keep_fd : -1, &g->pids);
    pms_list_for_each_safe (it, &g->addrs) {
        entry_free(pms_list_entry(it, struct entry, link));
    }
}

static int guard_init(struct guard *g, const char *path)
{
    int err;

    pms_list_init(&g->addrs);
    pms_list_init(&g->pids);
    err = pms_netlink_init(&g->nl);
    if (err) {
        pms_log(PMS_LOG_ERROR, "no netlink socket: %s", strerror(-err));
        return err;
    }
    err = pms_arp_init(&g->arp);
    if (err) {
        pms_log(PMS_LOG_ERROR, "no packet socket: %s", strerror(-err));
        return err;
    }
    g->keep_fd = path ? pms_guard_keep_listen(path) : -1;
    if (path && g->keep_fd < 0) {
        pms_log(PMS_LOG_WARN, "another pmsd could not take over from %s: %s", path, strerror(-g->keep_fd));
        g->keep_fd = -1;
    }
    return 0;
}

int pms_guard_main(int argc, char **argv)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE};
    struct guard g;
    int err;

    pms_log_init("pms-guard", PMS_LOG_INFO);
    prctl(PR_SET_NAME, "pms-guard");
    // Whoever ends pmsd with a signal to its whole group must not end its guard first.
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    if (guard_init(&g, argc > 2 ? argv[2] : NULL) != 0)
        return 1;
    for (;;) {
        struct pollfd pmsd = {.fd = PMSD_FD, .events = POLLIN};
        struct pms_guard_msg msg;
        int fds[PMS_GUARD_FDS];

        if (poll(&pmsd, 1, announce_due(&g)) <= 0)
            continue;
        err = pms_guard_msg_receive(PMSD_FD, &msg, fds, 0);
        if (err == -EINTR)
            continue;
        if (err <= 0) {
            pms_guard_fds_close(fds);
            break;
        }
        handle(&g, &msg, fds);
    }
    pmsd_gone(&g);
    if (g.keep_fd >= 0)
        close(g.keep_fd);
    pms_arp_deinit(&g.arp);
    pms_netlink_deinit(&g.nl);
    return 0;
}
