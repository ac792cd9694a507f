// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: one socket on its way through the handshake, on the libuv loop, within a deadline.
#ifndef PMS_CONSENSUS_RAFT_CONN_H
#define PMS_CONSENSUS_RAFT_CONN_H

#include "base/list.h"
#include "consensus/raft/handshake.h"
#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

// A status besides 0 and the errors: the stranger speaks TLS (nothing was read yet), so this is a join.
#define PMS_CONN_TLS 1

struct pms_conn;

// Called once, when nothing of the connection is left on the loop. hs tells who the peer is (status 0). fd is
// the callee's; on an error it is closed already, and -1. conn is freed after this returns.
typedef void (*pms_conn_cb)(void *data, struct pms_conn *conn, int status, int fd);

struct pms_conn {
    struct pms_list list; // for its owner
    struct pms_handshake hs;
    struct sockaddr_storage peer;

    // conn.c's own
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles; // on the loop
    int fd;
    bool sniffing; // listener, before the first byte
    bool ending;
    size_t out_sent;
    int status;
    pms_conn_cb cb;
    void *data;
};

// Takes over fd; connecting: the connection attempt is still under way. hs is set up by the caller beforehand
// in conn->hs, list and peer too. On error fd is closed and conn freed, and cb does not run.
int pms_conn_start(struct pms_conn *conn, uv_loop_t *loop, int fd, bool connecting, unsigned timeout_ms,
                   pms_conn_cb cb, void *data);
// Ends it with this status (an error), if it has not ended yet.
void pms_conn_cancel(struct pms_conn *conn, int status);

#endif
