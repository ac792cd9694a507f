// SPDX-License-Identifier: GPL-2.0-or-later
// libraft's view of struct pms_net. (transport->data is libraft's; transport->impl is ours.)
#include "consensus/raft/transport.h"
#include "base/check.h"
#include "base/list.h"
#include "base/log.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct impl {
    struct raft_uv_transport *transport;
    uv_loop_t *loop;
    struct pms_net *net; // NULL: detached
    raft_uv_accept_cb on_accept;
    struct pms_list connects; // struct connect
    bool closing;
    raft_uv_transport_close_cb close_cb;
};

struct connect {
    struct pms_list list;
    struct impl *impl;
    struct raft_uv_connect *req;
    struct pms_net_dial *dial;
};

static void on_tcp_closed(uv_handle_t *handle)
{
    raft_free(handle);
}

// The stream that libraft will own (it frees with raft_free), or NULL; fd is gone then.
static struct uv_stream_s *stream_new(struct impl *impl, int fd)
{
    uv_tcp_t *tcp = raft_malloc(sizeof *tcp);

    if (tcp == NULL || uv_tcp_init(impl->loop, tcp) != 0) {
        raft_free(tcp);
        close(fd);
        return NULL;
    }
    if (uv_tcp_open(tcp, fd) != 0) {
        close(fd);
        uv_close((uv_handle_t *)tcp, on_tcp_closed);
        return NULL;
    }
    return (struct uv_stream_s *)tcp;
}

static void close_advance(struct impl *impl)
{
    if (impl->closing && pms_list_empty(&impl->connects) && impl->close_cb != NULL) {
        raft_uv_transport_close_cb cb = impl->close_cb;

        impl->close_cb = NULL;
        cb(impl->transport);
    }
}

static int transport_init(struct raft_uv_transport *transport, raft_id id, const char *address)
{
    struct impl *impl = transport->impl;

    (void)address;
    PMS_CHECK(id == pms_net_node(impl->net));
    return 0;
}

static void on_accept(void *data, uint64_t peer, int fd)
{
    struct impl *impl = data;
    struct uv_stream_s *stream = stream_new(impl, fd);
    char address[PMS_ID_TEXT_SIZE];

    if (stream != NULL)
        impl->on_accept(impl->transport, peer, pms_id_format(peer, address), stream);
}

static int transport_listen(struct raft_uv_transport *transport, raft_uv_accept_cb cb)
{
    struct impl *impl = transport->impl;

    impl->on_accept = cb;
    pms_net_accept_set(impl->net, PMS_CHANNEL_RAFT, on_accept, impl);
    return 0;
}

static void on_dialed(void *data, int status, int fd, unsigned version)
{
    struct connect *c = data;
    struct impl *impl = c->impl;
    struct uv_stream_s *stream = status == 0 ? stream_new(impl, fd) : NULL;
    struct raft_uv_connect *req = c->req;

    (void)version;
    pms_list_del(&c->list);
    free(c);
    if (stream != NULL)
        req->cb(req, stream, 0);
    else
        req->cb(req, NULL, status == -ECANCELED ? RAFT_CANCELED : RAFT_NOCONNECTION);
    close_advance(impl);
}

static int transport_connect(struct raft_uv_transport *transport, struct raft_uv_connect *req, raft_id id,
                             const char *address, raft_uv_connect_cb cb)
{
    struct impl *impl = transport->impl;
    struct connect *c;

    (void)address;
    if (impl->net == NULL)
        return RAFT_NOCONNECTION;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return RAFT_NOMEM;
    c->impl = impl;
    c->req = req;
    req->cb = cb;
    if (pms_net_dial(impl->net, id, PMS_CHANNEL_RAFT, on_dialed, c, &c->dial) != 0) {
        free(c);
        return RAFT_NOCONNECTION;
    }
    pms_list_add_tail(&impl->connects, &c->list);
    return 0;
}

static void quiesce(struct impl *impl)
{
    if (impl->on_accept != NULL)
        pms_net_accept_set(impl->net, PMS_CHANNEL_RAFT, NULL, NULL);
    impl->on_accept = NULL;
    pms_list_for_each (l, &impl->connects)
        pms_net_dial_cancel(pms_list_entry(l, struct connect, list)->dial);
}

static void transport_close(struct raft_uv_transport *transport, raft_uv_transport_close_cb cb)
{
    struct impl *impl = transport->impl;

    impl->closing = true;
    impl->close_cb = cb;
    quiesce(impl);
    close_advance(impl);
}

void pms_transport_detach(struct raft_uv_transport *transport)
{
    struct impl *impl = transport->impl;

    quiesce(impl);
    impl->net = NULL;
}

int pms_transport_init(struct raft_uv_transport *transport, uv_loop_t *loop, struct pms_net *net)
{
    struct impl *impl = calloc(1, sizeof *impl);

    if (impl == NULL)
        return -ENOMEM;
    impl->transport = transport;
    impl->loop = loop;
    impl->net = net;
    pms_list_init(&impl->connects);
    *transport = (struct raft_uv_transport){.impl = impl,
                                            .init = transport_init,
                                            .listen = transport_listen,
                                            .connect = transport_connect,
                                            .close = transport_close};
    return 0;
}

void pms_transport_deinit(struct raft_uv_transport *transport)
{
    free(transport->impl);
    transport->impl = NULL;
}
