// SPDX-License-Identifier: GPL-2.0-or-later
// Tickles: bare TCP ACKs over a raw socket.
//
// The peer's stack finds sequence number 0 outside its window and answers with an ACK of the numbers it
// expects (RFC 9293, 3.10.7.4); on that our kernel, without such a connection, answers RST with exactly those
// numbers, which the peer accepts.
#include "target/host/tickle.h"

#include <errno.h>
#include <netinet/in.h>
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

#define IP4_BYTES 20
#define IP6_BYTES 40
#define TCP_BYTES 20

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

// One's complement sum (RFC 1071) of len bytes, to be folded at the end. len is even.
static uint32_t sum_add(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    return sum;
}

static uint32_t sum_fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum & 0xffff;
}

// A bare ACK with numbers that are 0. addrs: both IP addresses, one after the other. Ports in network order.
static void tcp_encode(uint8_t *tcp, uint16_t sport, uint16_t dport, const uint8_t *addrs, size_t addrs_len)
{
    memset(tcp, 0, TCP_BYTES);
    memcpy(tcp, &sport, 2);
    memcpy(tcp + 2, &dport, 2);
    tcp[12] = TCP_BYTES / 4 << 4;
    tcp[13] = 0x10;        // ACK
    put16(tcp + 14, 1024); // window
    put16(tcp + 16, sum_fold(sum_add(sum_add(IPPROTO_TCP + TCP_BYTES, addrs, addrs_len), tcp, TCP_BYTES)));
}

static int encode4(const struct sockaddr_in *local, const struct sockaddr_in *peer, uint8_t *ip)
{
    memset(ip, 0, IP4_BYTES);
    ip[0] = 4 << 4 | IP4_BYTES / 4;
    put16(ip + 2, IP4_BYTES + TCP_BYTES);
    ip[8] = 64; // hops
    ip[9] = IPPROTO_TCP;
    memcpy(ip + 12, &local->sin_addr, 4);
    memcpy(ip + 16, &peer->sin_addr, 4);
    put16(ip + 10, sum_fold(sum_add(0, ip, IP4_BYTES)));
    tcp_encode(ip + IP4_BYTES, local->sin_port, peer->sin_port, ip + 12, 8);
    return IP4_BYTES + TCP_BYTES;
}

static int encode6(const struct sockaddr_in6 *local, const struct sockaddr_in6 *peer, uint8_t *ip)
{
    memset(ip, 0, IP6_BYTES);
    ip[0] = 6 << 4;
    put16(ip + 4, TCP_BYTES);
    ip[6] = IPPROTO_TCP;
    ip[7] = 64; // hops
    memcpy(ip + 8, &local->sin6_addr, 16);
    memcpy(ip + 24, &peer->sin6_addr, 16);
    tcp_encode(ip + IP6_BYTES, local->sin6_port, peer->sin6_port, ip + 8, 32);
    return IP6_BYTES + TCP_BYTES;
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
