// SPDX-License-Identifier: GPL-2.0-or-later
// Tells the neighbours that an address is here now: gratuitous ARP for IPv4, unsolicited neighbour
// advertisements for IPv6; at once and after 50, 200 and 1000 ms, because one alone gets lost.
#ifndef PMS_TARGET_HOST_ARP_H
#define PMS_TARGET_HOST_ARP_H

#include <sys/socket.h>
#include <uv.h>

// Sends one announcement for addr out of the interface. 0 or -errno.
int pms_arp_send(const struct sockaddr_storage *addr, unsigned ifindex);

struct pms_arp;
// Starts the series; it stops by itself. 0 or -ENOMEM; failures to send are logged.
int pms_arp_start(uv_loop_t *loop, const struct sockaddr_storage *addr, unsigned ifindex,
                  struct pms_arp **arp);
// To be called also after the series has ended: frees arp (when its timer is closed). NULL is fine.
void pms_arp_stop(struct pms_arp *arp);

#endif
