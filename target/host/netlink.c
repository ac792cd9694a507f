// SPDX-License-Identifier: GPL-2.0-or-later
// Interface addresses through rtnetlink.
#include "target/host/netlink.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_S 5

struct request {
    struct nlmsghdr hdr;
    union {
        struct ifaddrmsg ifa;
        struct rtmsg route;
    };
    char attrs[128];
};

// The address's bytes in network order and their number; 0: not an IP address.
static size_t addr_bytes(const struct sockaddr_storage *addr, const uint8_t **bytes)
{
    if (addr->ss_family == AF_INET) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in *)addr)->sin_addr;
        return 4;
    }
    if (addr->ss_family == AF_INET6) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in6 *)addr)->sin6_addr;
        return 16;
    }
    return 0;
}

int pms_netlink_init(struct pms_netlink *nl)
{
    struct timeval tv = {.tv_sec = ANSWER_TIMEOUT_S};
    struct sockaddr_nl sa = {.nl_family = AF_NETLINK};

    nl->seq = 0;
    nl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (nl->fd < 0)
        return -errno;
    if (bind(nl->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
        setsockopt(nl->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) != 0) {
        int err = -errno;

        close(nl->fd);
        nl->fd = -1;
        return err;
    }
    return 0;
}

void pms_netlink_deinit(struct pms_netlink *nl)
{
    if (nl->fd >= 0)
        close(nl->fd);
    nl->fd = -1;
}

static void attr_add(struct request *req, unsigned short type, const void *data, size_t len)
{
    struct rtattr *rta = (struct rtattr *)((char *)req + NLMSG_ALIGN(req->hdr.nlmsg_len));

    rta->rta_type = type;
    rta->rta_len = (unsigned short)RTA_LENGTH(len);
    memcpy(RTA_DATA(rta), data, len);
    req->hdr.nlmsg_len = NLMSG_ALIGN(req->hdr.nlmsg_len) + RTA_ALIGN(rta->rta_len);
}

static void request_init(struct pms_netlink *nl, struct request *req, uint16_t type, uint16_t flags)
{
    memset(req, 0, sizeof(*req));
    req->hdr.nlmsg_len = NLMSG_LENGTH(sizeof(req->ifa));
    req->hdr.nlmsg_type = type;
    req->hdr.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    req->hdr.nlmsg_seq = ++nl->seq;
}

typedef void (*message_cb)(const struct nlmsghdr *hdr, void *arg);

// Sends, and reads answers until the acknowledgement or the end of the dump. Answers to an earlier request
// (one that timed out) are passed over.
static int transact(struct pms_netlink *nl, const struct request *req, message_cb cb, void *arg)
{
    char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));

    if (send(nl->fd, req, req->hdr.nlmsg_len, 0) < 0)
        return -errno;
    for (;;) {
        ssize_t n = recv(nl->fd, buf, sizeof(buf), 0);
        struct nlmsghdr *hdr = (struct nlmsghdr *)buf;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        for (unsigned left = (unsigned)n; NLMSG_OK(hdr, left); hdr = NLMSG_NEXT(hdr, left)) {
            if (hdr->nlmsg_seq != nl->seq)
                continue;
            if (hdr->nlmsg_type == NLMSG_ERROR)
                return ((const struct nlmsgerr *)NLMSG_DATA(hdr))->error;
            if (hdr->nlmsg_type == NLMSG_DONE)
                return 0;
            if (cb)
                cb(hdr, arg);
        }
    }
}

struct address {
    uint8_t family;
    uint8_t prefix_len;
    uint8_t scope;
    unsigned ifindex;
    const uint8_t *bytes; // of the own end
    uint32_t valid_s;
};

static int address_parse(const struct nlmsghdr *hdr, struct address *a)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(hdr);
    const struct rtattr *rta = IFA_RTA(ifa);
    size_t len;

    if (hdr->nlmsg_type != RTM_NEWADDR || hdr->nlmsg_len < NLMSG_LENGTH(sizeof(*ifa)))
        return -EBADMSG;
    *a = (struct address){.family = ifa->ifa_family,
                          .prefix_len = ifa->ifa_prefixlen,
                          .scope = ifa->ifa_scope,
                          .ifindex = ifa->ifa_index,
                          .valid_s = UINT32_MAX};
    len = ifa->ifa_family == AF_INET ? 4 : ifa->ifa_family == AF_INET6 ? 16 : 0;
    if (len == 0)
        return -EAFNOSUPPORT;
    for (unsigned left = hdr->nlmsg_len - (unsigned)NLMSG_LENGTH(sizeof(*ifa)); RTA_OK(rta, left);
         rta = RTA_NEXT(rta, left)) {
        // On a point-to-point link IFA_ADDRESS is the peer and IFA_LOCAL the own end.
        if ((rta->rta_type == IFA_LOCAL || (rta->rta_type == IFA_ADDRESS && !a->bytes)) &&
            RTA_PAYLOAD(rta) >= len)
            a->bytes = RTA_DATA(rta);
        if (rta->rta_type == IFA_CACHEINFO && RTA_PAYLOAD(rta) >= sizeof(struct ifa_cacheinfo))
            a->valid_s = ((const struct ifa_cacheinfo *)RTA_DATA(rta))->ifa_valid;
    }
    return a->bytes ? 0 : -EBADMSG;
}

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8;
    unsigned rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

struct subnet_search {
    uint8_t family;
    size_t len;
    const uint8_t *bytes;
    unsigned prefix_len_best;
    unsigned ifindex; // 0: none yet
};

static void on_subnet_address(const struct nlmsghdr *hdr, void *arg)
{
    struct subnet_search *s = arg;
    struct address a;

    if (address_parse(hdr, &a) != 0 || a.family != s->family || a.scope == RT_SCOPE_HOST)
        return;
    if (a.prefix_len == 0 || a.prefix_len >= s->len * 8 || memcmp(a.bytes, s->bytes, s->len) == 0)
        return;
    if (!prefix_equal(a.bytes, s->bytes, a.prefix_len))
        return;
    if (s->ifindex == 0 || a.prefix_len > s->prefix_len_best) {
        s->ifindex = a.ifindex;
        s->prefix_len_best = a.prefix_len;
    }
}

int pms_netlink_subnet_find(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned *ifindex)
{
    struct subnet_search s = {.family = (uint8_t)addr->ss_family};
    struct request req;
    int err;

    s.len = addr_bytes(addr, &s.bytes);
    if (s.len == 0)
        return -EAFNOSUPPORT;
    request_init(nl, &req, RTM_GETADDR, NLM_F_DUMP);
    req.ifa.ifa_family = s.family;
    err = transact(nl, &req, on_subnet_address, &s);
    if (err)
        return err;
    if (s.ifindex == 0)
        return -ENODEV;
    *ifindex = s.ifindex;
    return 0;
}

static int change_request(struct pms_netlink *nl, struct request *req, uint16_t type, uint16_t flags,
                          const struct sockaddr_storage *addr, unsigned prefix_len, unsigned ifindex)
{
    const uint8_t *bytes;
    size_t len = addr_bytes(addr, &bytes);

    if (len == 0)
        return -EAFNOSUPPORT;
    if (prefix_len > len * 8)
        return -EINVAL;
    request_init(nl, req, type, (uint16_t)(NLM_F_ACK | flags));
    req->ifa.ifa_family = (uint8_t)addr->ss_family;
    req->ifa.ifa_prefixlen = (uint8_t)prefix_len;
    req->ifa.ifa_index = ifindex;
    attr_add(req, IFA_LOCAL, bytes, len);
    attr_add(req, IFA_ADDRESS, bytes, len);
    return 0;
}

int pms_netlink_addr_set(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned prefix_len,
                         unsigned ifindex, unsigned lifetime_s)
{
    struct ifa_cacheinfo ci = {.ifa_valid = lifetime_s, .ifa_prefered = lifetime_s};
    struct request req;
    int err;

    err = change_request(nl, &req, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, addr, prefix_len, ifindex);
    if (err)
        return err;
    if (addr->ss_family == AF_INET6) {
        req.ifa.ifa_flags = IFA_F_NODAD;
        // Deprecated from the start: this host's own connections must not choose it as their source.
        ci.ifa_prefered = 0;
    }
    if (lifetime_s != 0)
        attr_add(&req, IFA_CACHEINFO, &ci, sizeof(ci));
    return transact(nl, &req, NULL, NULL);
}

static void on_route(const struct nlmsghdr *hdr, void *arg)
{
    const struct rtmsg *route = NLMSG_DATA(hdr);

    if (hdr->nlmsg_type == RTM_NEWROUTE && hdr->nlmsg_len >= NLMSG_LENGTH(sizeof(*route)))
        *(bool *)arg = route->rtm_type == RTN_LOCAL;
}

int pms_netlink_addr_wait(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned timeout_ms)
{
    const uint8_t *bytes;
    size_t len = addr_bytes(addr, &bytes);

    if (len == 0)
        return -EAFNOSUPPORT;
    for (unsigned ms = 0; ms <= timeout_ms; ms++) {
        struct request req;
        bool local = false;
        int err;

        request_init(nl, &req, RTM_GETROUTE, NLM_F_ACK);
        req.hdr.nlmsg_len = NLMSG_LENGTH(sizeof(req.route));
        req.route.rtm_family = (uint8_t)addr->ss_family;
        req.route.rtm_dst_len = (uint8_t)(len * 8);
        attr_add(&req, RTA_DST, bytes, len);
        err = transact(nl, &req, on_route, &local);
        if (err && err != -ENETUNREACH)
            return err;
        if (local)
            return 0;
        usleep(1000);
    }
    return -ETIMEDOUT;
}

int pms_netlink_addr_del(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned prefix_len,
                         unsigned ifindex)
{
    struct request req;
    int err;

    err = change_request(nl, &req, RTM_DELADDR, 0, addr, prefix_len, ifindex);
    if (err)
        return err;
    err = transact(nl, &req, NULL, NULL);
    return err == -EADDRNOTAVAIL || err == -ENODEV ? 0 : err;
}

struct address_search {
    uint8_t family;
    size_t len;
    const uint8_t *bytes;
    struct pms_netlink_addr found;
};

static void on_wanted_address(const struct nlmsghdr *hdr, void *arg)
{
    struct address_search *s = arg;
    struct address a;

    if (address_parse(hdr, &a) != 0 || a.family != s->family || memcmp(a.bytes, s->bytes, s->len) != 0)
        return;
    s->found = (struct pms_netlink_addr){
        .present = true, .ifindex = a.ifindex, .prefix_len = a.prefix_len, .valid_s = a.valid_s};
}

int pms_netlink_addr_get(struct pms_netlink *nl, const struct sockaddr_storage *addr,
                         struct pms_netlink_addr *out)
{
    struct address_search s = {.family = (uint8_t)addr->ss_family};
    struct request req;
    int err;

    s.len = addr_bytes(addr, &s.bytes);
    if (s.len == 0)
        return -EAFNOSUPPORT;
    request_init(nl, &req, RTM_GETADDR, NLM_F_DUMP);
    req.ifa.ifa_family = s.family;
    err = transact(nl, &req, on_wanted_address, &s);
    if (err)
        return err;
    *out = s.found;
    return 0;
}
