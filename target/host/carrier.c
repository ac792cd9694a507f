// SPDX-License-Identifier: GPL-2.0-or-later
// Carrier of interfaces, from the kernel's notices.
//
//   open: LINKS ── dump of the interfaces is over ──▶ ADDRS ── dump of the addresses is over ──▶ IDLE
//   an address came or went, or notices were lost (ENOBUFS): LINKS again, when idle
//
// A change of an interface needs no dump: its notice has all.
#include "target/host/carrier.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"

#define LINKS_MAX 256u // beyond, an interface is unknown
#define ADDRS_MAX 512u

enum dump { DUMP_IDLE, DUMP_LINKS, DUMP_ADDRS };

struct link {
    int ifindex;
    bool up;
};

struct addr {
    int ifindex;
    uint8_t family, prefix_len;
    uint8_t bytes[16];
};

struct pms_carrier {
    uv_poll_t poll;
    int fd;
    void (*changed)(void *arg);
    void *arg;
    enum dump dump;
    bool again; // dump once more
    struct link links[LINKS_MAX];
    unsigned n_links;
    struct addr addrs[ADDRS_MAX], fresh[ADDRS_MAX]; // in use; being dumped
    unsigned n_addrs, n_fresh;
};

static size_t addr_bytes(const struct sockaddr_storage *addr, const uint8_t **bytes)
{
    if (addr->ss_family == AF_INET) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in *)addr)->sin_addr;
        return 4;
    }
    *bytes = (const uint8_t *)&((const struct sockaddr_in6 *)addr)->sin6_addr;
    return addr->ss_family == AF_INET6 ? 16 : 0;
}

static bool has_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned rest = bits % 8;

    if (memcmp(a, b, bits / 8) != 0)
        return false;
    return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

enum pms_carrier_state pms_carrier_get(const struct pms_carrier *c, const struct sockaddr_storage *addr)
{
    const struct addr *best = NULL;
    const uint8_t *bytes;
    size_t n = addr_bytes(addr, &bytes);

    for (unsigned i = 0; c != NULL && i < c->n_addrs; i++) {
        const struct addr *a = &c->addrs[i];

        if (a->family == addr->ss_family && a->prefix_len > 0 && a->prefix_len < n * 8 &&
            has_prefix(a->bytes, bytes, a->prefix_len) && memcmp(a->bytes, bytes, n) != 0 &&
            (best == NULL || a->prefix_len > best->prefix_len))
            best = a;
    }
    for (unsigned i = 0; best != NULL && i < c->n_links; i++)
        if (c->links[i].ifindex == best->ifindex)
            return c->links[i].up ? PMS_CARRIER_UP : PMS_CARRIER_LOST;
    return PMS_CARRIER_UNKNOWN;
}

// ---- From the kernel ----

static void dump_begin(struct pms_carrier *c, enum dump dump)
{
    struct {
        struct nlmsghdr hdr;
        struct rtgenmsg gen;
    } req = {{.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
              .nlmsg_type = dump == DUMP_LINKS ? RTM_GETLINK : RTM_GETADDR,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
             {.rtgen_family = AF_UNSPEC}};

    c->n_fresh = 0;
    c->again = false;
    c->dump = send(c->fd, &req, req.hdr.nlmsg_len, 0) < 0 ? DUMP_IDLE : dump;
}

static void on_dumped(struct pms_carrier *c)
{
    if (c->dump == DUMP_LINKS) {
        dump_begin(c, DUMP_ADDRS);
        return;
    }
    memcpy(c->addrs, c->fresh, c->n_fresh * sizeof(c->fresh[0]));
    c->n_addrs = c->n_fresh;
    c->dump = DUMP_IDLE;
    if (c->again)
        dump_begin(c, DUMP_LINKS);
}

static void on_link(struct pms_carrier *c, const struct nlmsghdr *hdr)
{
    const struct ifinfomsg *info = NLMSG_DATA(hdr);
    unsigned i = 0;

    while (i < c->n_links && c->links[i].ifindex != info->ifi_index)
        i++;
    if (hdr->nlmsg_type == RTM_DELLINK) {
        if (i < c->n_links)
            c->links[i] = c->links[--c->n_links];
        return;
    }
    if (i == LINKS_MAX)
        return;
    c->n_links += i == c->n_links ? 1 : 0;
    c->links[i] = (struct link){info->ifi_index,
                                (info->ifi_flags & IFF_LOWER_UP) != 0 && (info->ifi_flags & IFF_UP) != 0};
}

static void on_addr(struct pms_carrier *c, const struct nlmsghdr *hdr)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(hdr);
    unsigned left = (unsigned)IFA_PAYLOAD(hdr);
    const struct rtattr *found = NULL;

    if (c->n_fresh == ADDRS_MAX || ifa->ifa_scope == RT_SCOPE_HOST)
        return;
    for (const struct rtattr *rta = IFA_RTA(ifa); RTA_OK(rta, left); rta = RTA_NEXT(rta, left))
        if (rta->rta_type == IFA_LOCAL || (rta->rta_type == IFA_ADDRESS && found == NULL))
            found = rta;
    if (found == NULL || RTA_PAYLOAD(found) > 16)
        return;
    struct addr *a = &c->fresh[c->n_fresh++];

    *a = (struct addr){(int)ifa->ifa_index, ifa->ifa_family, ifa->ifa_prefixlen, {0}};
    memcpy(a->bytes, RTA_DATA(found), RTA_PAYLOAD(found));
}

static void on_message(struct pms_carrier *c, const struct nlmsghdr *hdr)
{
    bool dumped = (hdr->nlmsg_flags & NLM_F_MULTI) != 0;

    switch (hdr->nlmsg_type) {
    case NLMSG_DONE:
    case NLMSG_ERROR:
        if (c->dump != DUMP_IDLE)
            on_dumped(c);
        break;
    case RTM_NEWLINK:
    case RTM_DELLINK:
        if (hdr->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifinfomsg)))
            on_link(c, hdr);
        break;
    case RTM_NEWADDR:
        if (dumped && hdr->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg)))
            on_addr(c, hdr);
        c->again |= !dumped;
        break;
    case RTM_DELADDR:
        c->again = true;
        break;
    default:
        break;
    }
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct pms_carrier *c = p->data;
    char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
    ssize_t n;

    (void)status;
    (void)events;
    while ((n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0 || (n < 0 && errno == ENOBUFS)) {
        struct nlmsghdr *hdr = (struct nlmsghdr *)buf;

        if (n < 0) {
            c->again = true; // notices were lost
            continue;
        }
        for (unsigned left = (unsigned)n; NLMSG_OK(hdr, left); hdr = NLMSG_NEXT(hdr, left))
            on_message(c, hdr);
    }
    if (c->again && c->dump == DUMP_IDLE)
        dump_begin(c, DUMP_LINKS);
    if (c->changed != NULL)
        c->changed(c->arg);
}

// ---- Life ----

int pms_carrier_open(uv_loop_t *loop, void (*changed)(void *arg), void *arg, struct pms_carrier **out)
{
    struct sockaddr_nl sa = {.nl_family = AF_NETLINK,
                             .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    struct pms_carrier *c = calloc(1, sizeof(*c));
    int err;

    if (c == NULL)
        return -ENOMEM;
    c->changed = changed;
    c->arg = arg;
    c->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        err = -errno;
        if (c->fd >= 0)
            close(c->fd);
        free(c);
        return err;
    }
    PMS_CHECK(uv_poll_init(loop, &c->poll, c->fd) == 0);
    c->poll.data = c;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    dump_begin(c, DUMP_LINKS);
    *out = c;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct pms_carrier *c = h->data;

    close(c->fd);
    free(c);
}

void pms_carrier_close(struct pms_carrier *c)
{
    if (c != NULL)
        uv_close((uv_handle_t *)&c->poll, on_closed);
}
