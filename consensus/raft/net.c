// SPDX-License-Identifier: GPL-2.0-or-later
// The listener: accepts, has the handshake done, and gives each connection to whom its channel belongs.
//
// Happy path: accept, handshake (conn.c) within its deadline, hand over. What can go wrong: too many
// half-open ones (dropped at once), no descriptors left (accepting pauses), a stranger (refused and logged),
// a channel that nobody serves (closed).
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "consensus/raft/net_internal.h"
#include "consensus/raft/socket.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS_A_TURN     16
#define RETRY_MS           100
#define LOG_WINDOW_MS      10000
#define LOG_LINES_A_WINDOW 10

static void on_listener(uv_poll_t *poll, int status, int events);

void pms_net_log_refused(struct pms_net *net, const struct sockaddr_storage *peer, const char *what,
                         int status)
{
    uint64_t now = uv_now(net->loop);
    char addr[PMS_ADDR_TEXT_SIZE];

    if (now - net->refused_window_ms >= LOG_WINDOW_MS) {
        if (net->refused_unlogged > 0)
            pms_log(PMS_LOG_WARN, "%u more connections were refused", net->refused_unlogged);
        net->refused_window_ms = now;
        net->refused_logged = 0;
        net->refused_unlogged = 0;
    }
    if (net->refused_logged >= LOG_LINES_A_WINDOW) {
        net->refused_unlogged++;
        return;
    }
    net->refused_logged++;
    pms_log(PMS_LOG_WARN, "connection from %s refused: %s: %s (%s)", pms_addr_format(peer, addr), what,
            pms_err_text(status), pms_err_name(status));
}

static void hand_over(struct pms_net *net, const struct pms_handshake *hs,
                      const struct sockaddr_storage *peer, int fd)
{
    const struct pms_net_acceptor *acceptor = &net->acceptors[hs->channel];

    if (hs->channel == PMS_CHANNEL_DATA && net->config.on_data != NULL) {
        net->config.on_data(net->config.data, hs->peer, fd, hs->version);
    } else if (hs->channel != PMS_CHANNEL_DATA && acceptor->on_accept != NULL) {
        acceptor->on_accept(acceptor->data, hs->peer, fd);
    } else {
        pms_net_log_refused(net, peer, "nobody here serves this channel yet", PMS_EREFUSED);
        close(fd);
    }
}

static void on_conn_end(void *data, struct pms_conn *conn, int status, int fd)
{
    struct pms_net *net = data;

    pms_list_del(&conn->list);
    if (status == PMS_CONN_TLS && !net->closing) {
        pms_net_join_serve(net, fd, &conn->peer); // stays half open
        return;
    }
    net->half_open--;
    pms_net_version_note(net, &conn->hs, status);
    // Whoever comes and goes without a word is a health probe, and nobody's business.
    if (status == -ECONNRESET && conn->sniffing)
        ;
    else if (status < 0 && status != -ECANCELED && status != PMS_EVERSION)
        pms_net_log_refused(net, &conn->peer, "handshake", status);
    else if (status >= 0 && net->closing)
        close(fd);
    else if (status == 0)
        hand_over(net, &conn->hs, &conn->peer, fd);
    pms_net_close_advance(net);
}

static void conn_new(struct pms_net *net, int fd, const struct sockaddr_storage *peer)
{
    uint8_t nonce[PMS_NONCE_BYTES];
    struct pms_conn *conn;

    if (net->half_open >= PMS_NET_HANDSHAKES_MAX) {
        pms_net_log_refused(net, peer, "too many handshakes at a time", PMS_EBUSY);
        close(fd);
        return;
    }
    conn = calloc(1, sizeof *conn);
    if (conn == NULL) {
        close(fd);
        return;
    }
    pms_random_bytes(nonce, sizeof nonce);
    pms_handshake_listen(&conn->hs, &net->config.identity, nonce);
    pms_handshake_former(&conn->hs, net->config.former, net->config.n_former);
    conn->peer = *peer;
    if (pms_conn_start(conn, net->loop, fd, false, PMS_NET_HANDSHAKE_MS, on_conn_end, net) != 0)
        return;
    pms_list_add_tail(&net->conns, &conn->list);
    net->half_open++;
}

static void on_retry(uv_timer_t *timer)
{
    struct pms_net *net = timer->data;

    PMS_CHECK(uv_poll_start(&net->poll, UV_READABLE, on_listener) == 0);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct pms_net *net = poll->data;

    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage peer;
        int fd = pms_socket_accept(net->fd, &peer);

        if (fd >= 0) {
            conn_new(net, fd, &peer);
        } else if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
            pms_log(PMS_LOG_ERROR, "cannot accept connections: %s", pms_err_text(fd));
            uv_poll_stop(&net->poll);
            PMS_CHECK(uv_timer_start(&net->retry, on_retry, RETRY_MS, 0) == 0);
            return;
        } else if (fd == -EAGAIN) {
            return;
        }
    }
}

static int port_get(int fd, uint16_t *port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } addr = {0};
    socklen_t len = sizeof addr;

    if (getsockname(fd, &addr.any, &len) != 0)
        return -errno;
    *port = ntohs(addr.any.sa_family == AF_INET6 ? addr.v6.sin6_port : addr.v4.sin_port);
    return 0;
}

int pms_net_open(uv_loop_t *loop, const struct pms_net_config *config, struct pms_net **out)
{
    struct pms_net *net = calloc(1, sizeof *net);
    int rv;

    PMS_CHECK(config->identity.node != 0 && config->resolve != NULL);
    if (net == NULL)
        return -ENOMEM;
    net->loop = loop;
    net->config = *config;
    pms_list_init(&net->conns);
    pms_list_init(&net->dials);
    pms_list_init(&net->joins);
    net->fd = pms_socket_listen(&config->listen);
    rv = net->fd < 0 ? net->fd : port_get(net->fd, &net->port);
    if (rv == 0)
        rv = uv_poll_init(loop, &net->poll, net->fd);
    if (rv != 0)
        goto out;
    PMS_CHECK(uv_timer_init(loop, &net->retry) == 0);
    net->poll.data = net;
    net->retry.data = net;
    net->handles = 2;
    PMS_CHECK(uv_poll_start(&net->poll, UV_READABLE, on_listener) == 0);
    *out = net;
out:
    if (rv != 0) {
        if (net->fd >= 0)
            close(net->fd);
        free(net);
    }
    return rv;
}

void pms_net_close_advance(struct pms_net *net)
{
    void (*cb)(void *data) = net->close_cb;
    void *data = net->close_data;

    if (!net->closing || net->handles > 0 || !pms_list_empty(&net->conns) || !pms_list_empty(&net->dials) ||
        !pms_list_empty(&net->joins))
        return;
    close(net->fd);
    free(net);
    if (cb != NULL)
        cb(data);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pms_net *net = handle->data;

    net->handles--;
    pms_net_close_advance(net);
}

void pms_net_close(struct pms_net *net, void (*cb)(void *data), void *data)
{
    PMS_CHECK(!net->closing);
    net->closing = true;
    net->close_cb = cb;
    net->close_data = data;
    pms_list_for_each (l, &net->conns)
        pms_conn_cancel(pms_list_entry(l, struct pms_conn, list), -ECANCELED);
    pms_net_dials_cancel(net);
    pms_net_joins_cancel(net);
    uv_close((uv_handle_t *)&net->poll, on_handle_closed);
    uv_close((uv_handle_t *)&net->retry, on_handle_closed);
}

uint16_t pms_net_port(const struct pms_net *net)
{
    return net->port;
}

uint64_t pms_net_node(const struct pms_net *net)
{
    return net->config.identity.node;
}

void pms_net_accept_set(struct pms_net *net, enum pms_channel channel,
                        void (*on_accept)(void *data, uint64_t peer, int fd), void *data)
{
    PMS_CHECK(channel == PMS_CHANNEL_RAFT || channel == PMS_CHANNEL_CONTROL);
    PMS_CHECK(on_accept == NULL || net->acceptors[channel].on_accept == NULL);
    net->acceptors[channel] = (struct pms_net_acceptor){.on_accept = on_accept, .data = data};
}
