// SPDX-License-Identifier: GPL-2.0-or-later
// Tickles: bare TCP ACKs over a raw socket.
//
// The peer's stack finds sequence number 0 outside its window and answers with an ACK of the numbers it
// expects (RFC 9293, 3.10.7.4); on that our kernel, without such a connection, answers RST with exactly those
// numbers, which the peer accepts.
#include "target/host/tickle.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/util.h"

static const unsigned delays_ms[] = {0, 50, 200, 500, 1000};
#define ROUNDS (sizeof(delays_ms) / sizeof(delays_ms[0]))

struct pms_tickle {
    uv_timer_t timer;
    unsigned round;
    struct sockaddr_storage local;
    size_t peers_count;
    struct sockaddr_storage peers[];
};

// One's complement sum (RFC 1071) of len bytes, to be folded at the end. len is even.
static uint32_t sum_add(uint32_t sum, const void *data, size_t len)
{
    const uint8_t *p = data;

    for (size_t i = 0; i + 1 < len; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    return sum;
}

static uint16_t sum_fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static void tcp_fill(struct tcphdr *tcp, uint16_t sport, uint16_t dport, uint32_t pseudo_sum)
{
    memset(tcp, 0, sizeof(*tcp));
    tcp->source = sport;
    tcp->dest = dport;
    tcp->doff = sizeof(*tcp) / 4;
    tcp->ack = 1;
    tcp->window = htons(1024);
    tcp->check = sum_fold(sum_add(pseudo_sum + IPPROTO_TCP + sizeof(*tcp), tcp, sizeof(*tcp)));
}

static int encode4(const struct sockaddr_in *local, const struct sockaddr_in *peer, uint8_t *out)
{
    struct iphdr ip = {.version = 4,
                       .ihl = sizeof(ip) / 4,
                       .ttl = 64,
                       .protocol = IPPROTO_TCP,
                       .saddr = local->sin_addr.s_addr,
                       .daddr = peer->sin_addr.s_addr};
    struct tcphdr tcp;

    ip.tot_len = htons(sizeof(ip) + sizeof(tcp));
    ip.check = sum_fold(sum_add(0, &ip, sizeof(ip)));
    tcp_fill(&tcp, local->sin_port, peer->sin_port, sum_add(sum_add(0, &ip.saddr, 4), &ip.daddr, 4));
    memcpy(out, &ip, sizeof(ip));
    memcpy(out + sizeof(ip), &tcp, sizeof(tcp));
    return sizeof(ip) + sizeof(tcp);
}

static int encode6(const struct sockaddr_in6 *local, const struct sockaddr_in6 *peer, uint8_t *out)
{
    struct ip6_hdr ip = {.ip6_src = local->sin6_addr, .ip6_dst = peer->sin6_addr};
    struct tcphdr tcp;

    ip.ip6_flow = htonl(6u << 28);
    ip.ip6_plen = htons(sizeof(tcp));
    ip.ip6_nxt = IPPROTO_TCP;
    ip.ip6_hlim = 64;
    tcp_fill(&tcp, local->sin6_port, peer->sin6_port, sum_add(sum_add(0, &ip.ip6_src, 16), &ip.ip6_dst, 16));
    memcpy(out, &ip, sizeof(ip));
    memcpy(out + sizeof(ip), &tcp, sizeof(tcp));
    return sizeof(ip) + sizeof(tcp);
}

int pms_tickle_encode(const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                      uint8_t out[PMS_TICKLE_BYTES_MAX])
{
    if (local->ss_family != peer->ss_family)
        return -EAFNOSUPPORT;
    if (local->ss_family == AF_INET)
        return encode4((const struct sockaddr_in *)local, (const struct sockaddr_in *)peer, out);
    if (local->ss_family == AF_INET6)
        return encode6((const struct sockaddr_in6 *)local, (const struct sockaddr_in6 *)peer, out);
    return -EAFNOSUPPORT;
}

int pms_tickle_send(const struct sockaddr_storage *local, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage to = *peer;
    uint8_t pkt[PMS_TICKLE_BYTES_MAX];
    int len = pms_tickle_encode(local, peer, pkt);
    int fd;
    int err = 0;

    if (len < 0)
        return len;
    // The packet brings its own IP header. A raw IPv6 socket takes the port as a protocol: it must be 0.
    fd = socket(peer->ss_family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd < 0)
        return -errno;
    if (to.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&to)->sin6_port = 0;
    if (sendto(fd, pkt, (size_t)len, MSG_DONTWAIT, (struct sockaddr *)&to, pms_addr_len(&to)) < 0)
        err = -errno;
    close(fd);
    return err;
}

static void on_round(uv_timer_t *t)
{
    struct pms_tickle *tickle = t->data;

    for (size_t i = 0; i < tickle->peers_count; i++) {
        int err = pms_tickle_send(&tickle->local, &tickle->peers[i]);
        char text[PMS_ADDR_TEXT_SIZE];

        if (err && tickle->round == 0)
            pms_log(PMS_LOG_WARN, "cannot tickle %s: %s", pms_addr_format(&tickle->peers[i], text),
                    strerror(-err));
    }
    if (++tickle->round < ROUNDS)
        uv_timer_start(t, on_round, delays_ms[tickle->round] - delays_ms[tickle->round - 1], 0);
}

int pms_tickle_start(uv_loop_t *loop, const struct sockaddr_storage *local,
                     const struct sockaddr_storage *peers, size_t n, struct pms_tickle **tickle_out)
{
    struct pms_tickle *tickle = calloc(1, sizeof(*tickle) + n * sizeof(*peers));

    if (!tickle)
        return -ENOMEM;
    tickle->local = *local;
    tickle->peers_count = n;
    if (n > 0)
        memcpy(tickle->peers, peers, n * sizeof(*peers));
    uv_timer_init(loop, &tickle->timer);
    tickle->timer.data = tickle;
    on_round(&tickle->timer);
    *tickle_out = tickle;
    return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

void pms_tickle_stop(struct pms_tickle *tickle)
{
    if (tickle)
        uv_close((uv_handle_t *)&tickle->timer, on_timer_closed);
}
