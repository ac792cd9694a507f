// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: what net.c, dial.c and join.c share.
#ifndef PMS_CONSENSUS_RAFT_NET_INTERNAL_H
#define PMS_CONSENSUS_RAFT_NET_INTERNAL_H

#include "base/limits.h"
#include "base/list.h"
#include "consensus/raft/conn.h"
#include "consensus/raft/net.h"
#include <stdbool.h>

// Who takes accepted connections of a channel.
struct pms_net_acceptor {
    void (*on_accept)(void *data, uint64_t peer, int fd);
    void *data;
};

#define PMS_NET_MISMATCHES_MAX (2 * PMS_NODES_MAX) // nodes that joined lately may not be known here yet

struct pms_net {
    uv_loop_t *loop;
    struct pms_net_config config;
    int fd; // listener
    uint16_t port;
    uv_poll_t poll;
    uv_timer_t retry; // accepting goes on after the process ran out of descriptors
    unsigned handles;
    struct pms_net_acceptor acceptors[PMS_CHANNEL_CONTROL + 1];

    struct pms_list conns;   // struct pms_conn: accepted, in the handshake
    struct pms_list dials;   // struct pms_net_dial
    struct pms_list joins;   // struct pms_join: being served
    unsigned half_open;      // accepted, and not yet known who it is: conns, and joins without their request
    unsigned refused_logged; // in the current window of the log limit
    unsigned refused_unlogged;  // likewise, left out
    uint64_t refused_window_ms; // its start (uv_now)
    unsigned mismatches_n;
    struct pms_net_mismatch mismatches[PMS_NET_MISMATCHES_MAX]; // the oldest first

    bool closing;
    void (*close_cb)(void *data);
    void *close_data;
};

// A stranger was turned away. At most a few lines a second reach the log; the rest is counted.
void pms_net_log_refused(struct pms_net *net, const struct sockaddr_storage *peer, const char *what,
                         int status);
// A handshake ended, with this status: 0 or PMS_EVERSION. Remembers and logs with whom no version is common.
void pms_net_version_note(struct pms_net *net, const struct pms_handshake *hs, int status);
// Something of the net's has ended: if it is closing and all is gone, finishes that.
void pms_net_close_advance(struct pms_net *net);

// Takes over fd, from a stranger that speaks TLS; counted in half_open already.
void pms_net_join_serve(struct pms_net *net, int fd, const struct sockaddr_storage *peer);
void pms_net_joins_cancel(struct pms_net *net);

void pms_net_dials_cancel(struct pms_net *net);

#endif
