// SPDX-License-Identifier: GPL-2.0-or-later
// Gratuitous ARP (RFC 5227, section 3: an announcement) and unsolicited neighbour advertisements (RFC 4861,
// section 7.2.6).
#include "target/host/arp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int pms_arp_init(struct pms_arp *arp)
{
    // Protocol 0: this socket is to send, it receives nothing.
    arp->packet_fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return arp->packet_fd < 0 ? -errno : 0;
}

void pms_arp_deinit(struct pms_arp *arp)
{
    if (arp->packet_fd >= 0)
        close(arp->packet_fd);
    arp->packet_fd = -1;
}

// 0; -EOPNOTSUPP if the interface is no Ethernet (a tunnel, loopback): it has no neighbours to be told.
static int mac_get(unsigned ifindex, uint8_t mac[ETH_ALEN])
{
    struct ifreq ifr = {0};
    int fd;
    int err = 0;

    if (!if_indextoname(ifindex, ifr.ifr_name))
        return -errno;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (ioctl(fd, SIOCGIFHWADDR, &ifr) != 0)
        err = -errno;
    else if (ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER)
        err = -EOPNOTSUPP;
    else
        memcpy(mac, ifr.ifr_hwaddr.sa_data, ETH_ALEN);
    close(fd);
    return err;
}

static int arp_send(int fd, const struct sockaddr_in *addr, unsigned ifindex, const uint8_t mac[ETH_ALEN])
{
    struct ether_arp arp = {.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
                                       .ar_pro = htons(ETHERTYPE_IP),
                                       .ar_hln = ETH_ALEN,
                                       .ar_pln = 4,
                                       .ar_op = htons(ARPOP_REQUEST)}};
    struct sockaddr_ll to = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETHERTYPE_ARP),
                             .sll_ifindex = (int)ifindex,
                             .sll_halen = ETH_ALEN};

    memcpy(arp.arp_sha, mac, ETH_ALEN);
    memcpy(arp.arp_spa, &addr->sin_addr, 4);
    memcpy(arp.arp_tpa, &addr->sin_addr, 4);
    memset(to.sll_addr, 0xff, ETH_ALEN);
    if (sendto(fd, &arp, sizeof(arp), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0)
        return -errno;
    return 0;
}

static int na_send(const struct sockaddr_in6 *addr, unsigned ifindex, const uint8_t mac[ETH_ALEN])
{
    struct {
        struct nd_neighbor_advert na;
        struct nd_opt_hdr opt;
        uint8_t mac[ETH_ALEN];
    } __attribute__((packed)) pkt = {.opt = {.nd_opt_type = ND_OPT_TARGET_LINKADDR, .nd_opt_len = 1}};
    struct sockaddr_in6 from = {.sin6_family = AF_INET6, .sin6_addr = addr->sin6_addr};
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_scope_id = ifindex};
    int hops = 255; // a receiver believes no other
    int on = 1;
    int fd;
    int err = 0;

    pkt.na.nd_na_type = ND_NEIGHBOR_ADVERT;
    pkt.na.nd_na_flags_reserved = ND_NA_FLAG_OVERRIDE;
    pkt.na.nd_na_target = addr->sin6_addr;
    memcpy(pkt.mac, mac, ETH_ALEN);
    inet_pton(AF_INET6, "ff02::1", &to.sin6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&from.sin6_addr))
        from.sin6_scope_id = ifindex;

    // The kernel fills the ICMPv6 checksum in (RFC 3542, section 3.1).
    fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof(hops)) != 0 ||
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, sizeof(ifindex)) != 0 ||
        setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0 ||
        sendto(fd, &pkt, sizeof(pkt), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0)
        err = -errno;
    close(fd);
    return err;
}

int pms_arp_send(struct pms_arp *arp, const struct sockaddr_storage *addr, unsigned ifindex)
{
    uint8_t mac[ETH_ALEN];
    int err = mac_get(ifindex, mac);

    if (err)
        return err;
    if (addr->ss_family == AF_INET)
        return arp_send(arp->packet_fd, (const struct sockaddr_in *)addr, ifindex, mac);
    if (addr->ss_family == AF_INET6)
        return na_send((const struct sockaddr_in6 *)addr, ifindex, mac);
    return -EAFNOSUPPORT;
}
