// SPDX-License-Identifier: GPL-2.0-or-later
// Tells the neighbours that an address is here now: gratuitous ARP for IPv4, unsolicited neighbour
// advertisements for IPv6. Several times (PMS_ARP_DELAYS_MS), because one alone gets lost. For the guard
// process: it keeps the packet socket open, since closing one waits for the kernel's readers (10 ms).
#ifndef PMS_TARGET_HOST_ARP_H
#define PMS_TARGET_HOST_ARP_H

#include <sys/socket.h>

// When to send, counted from the moment the address is up.
#define PMS_ARP_DELAYS_MS                                                                                    \
    {                                                                                                        \
        0, 50, 200, 1000                                                                                     \
    }
#define PMS_ARP_ROUNDS 4

struct pms_arp {
    int packet_fd;
};

int pms_arp_init(struct pms_arp *arp);
void pms_arp_deinit(struct pms_arp *arp);

// Sends one announcement for addr out of the interface. 0, -EOPNOTSUPP (no Ethernet, so no neighbours) or
// -errno.
int pms_arp_send(struct pms_arp *arp, const struct sockaddr_storage *addr, unsigned ifindex);

#endif
