// SPDX-License-Identifier: GPL-2.0-or-later
// Interface addresses through rtnetlink: find the interface of a subnet, add with a lifetime, remove, ask.
// Blocking calls (the kernel's network lock can be held for long): for the guard process and tests only.
#ifndef PMS_TARGET_HOST_NETLINK_H
#define PMS_TARGET_HOST_NETLINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct pms_netlink {
    int fd;
    uint32_t seq;
};

int pms_netlink_init(struct pms_netlink *nl);
void pms_netlink_deinit(struct pms_netlink *nl);

// The index of the interface holding an address whose subnet contains addr (longest prefix first; other
// addresses count, addr itself does not; loopback and /32 never match). 0 or -ENODEV or -errno.
int pms_netlink_subnet_find(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned *ifindex);

// Adds addr/prefix_len, or renews its lifetime if it is there. lifetime_s 0: for ever. IPv6 without
// duplicate address detection: its second of silence is a second of pause, and the epoch has fenced the
// other owner already. 0 or -errno.
int pms_netlink_addr_set(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned prefix_len,
                         unsigned ifindex, unsigned lifetime_s);
// Waits until the kernel treats addr as its own: an IPv6 address is put into service only after the call that
// added it, and what arrives before that (a neighbour's answer, say) is lost. 0, -ETIMEDOUT or -errno.
int pms_netlink_addr_wait(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned timeout_ms);
// 0, also if it was not there; or -errno.
int pms_netlink_addr_del(struct pms_netlink *nl, const struct sockaddr_storage *addr, unsigned prefix_len,
                         unsigned ifindex);

struct pms_netlink_addr {
    bool present;
    unsigned ifindex;
    unsigned prefix_len;
    uint32_t valid_s; // UINT32_MAX: for ever
};
// Looks for addr on any interface; out->present says whether it is there. 0 or -errno.
int pms_netlink_addr_get(struct pms_netlink *nl, const struct sockaddr_storage *addr,
                         struct pms_netlink_addr *out);

#endif
