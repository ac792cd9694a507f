// SPDX-License-Identifier: GPL-2.0-or-later
// One attempt to reach a node: resolve, connect, handshake.
#include "base/check.h"
#include "base/err.h"
#include "consensus/raft/net_internal.h"
#include "consensus/raft/socket.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct pms_net_dial {
    struct pms_list list;
    struct pms_net *net;
    struct pms_conn *conn;
    uint64_t node;
    pms_net_dial_cb cb;
    void *data;
};

static void on_conn_end(void *data, struct pms_conn *conn, int status, int fd)
{
    struct pms_net_dial *dial = data;
    struct pms_net *net = dial->net;

    pms_list_del(&dial->list);
    pms_net_version_note(net, &conn->hs, status);
    if (status == PMS_ESUPERSEDED && !net->closing && net->config.on_superseded != NULL)
        net->config.on_superseded(net->config.data, dial->node);
    if (net->closing && status == 0) {
        close(fd);
        fd = -1;
        status = -ECANCELED;
    }
    dial->cb(dial->data, status, fd, status == 0 ? conn->hs.version : 0);
    free(dial);
    pms_net_close_advance(net);
}

int pms_net_dial(struct pms_net *net, uint64_t node, enum pms_channel channel, pms_net_dial_cb cb, void *data,
                 struct pms_net_dial **out)
{
    struct pms_net_dial *dial;
    uint8_t nonce[PMS_NONCE_BYTES];
    struct sockaddr_storage addr;
    int rv;

    if (net->closing)
        return PMS_ESHUTDOWN;
    rv = net->config.resolve(net->config.data, node, &addr);
    if (rv != 0)
        return rv;
    dial = calloc(1, sizeof *dial);
    if (dial == NULL)
        return -ENOMEM;
    dial->net = net;
    dial->node = node;
    dial->cb = cb;
    dial->data = data;
    dial->conn = calloc(1, sizeof *dial->conn);
    if (dial->conn == NULL) {
        rv = -ENOMEM;
        goto out;
    }
    pms_list_init(&dial->conn->list);
    dial->conn->peer = addr;
    pms_random_bytes(nonce, sizeof nonce);
    pms_handshake_dial(&dial->conn->hs, &net->config.identity, channel, node, nonce);
    rv = pms_socket_connect(&addr);
    if (rv < 0) {
        free(dial->conn);
        goto out;
    }
    rv = pms_conn_start(dial->conn, net->loop, rv, true, PMS_NET_DIAL_MS, on_conn_end, dial);
    if (rv != 0)
        goto out;
    pms_list_add_tail(&net->dials, &dial->list);
    if (out != NULL)
        *out = dial;
out:
    if (rv != 0)
        free(dial);
    return rv;
}

void pms_net_dial_cancel(struct pms_net_dial *dial)
{
    pms_conn_cancel(dial->conn, -ECANCELED);
}

void pms_net_dials_cancel(struct pms_net *net)
{
    pms_list_for_each (l, &net->dials)
        pms_net_dial_cancel(pms_list_entry(l, struct pms_net_dial, list));
}
