// SPDX-License-Identifier: GPL-2.0-or-later
// Connections between nodes: one TCP listener, a dialer, the handshake on both, and the join channel (TLS
// with the token as pre-shared key, told apart by its first byte). Everything runs on one libuv loop and one
// thread; nothing here blocks. Connections are handed over as plain sockets: connected, authenticated,
// O_NONBLOCK, FD_CLOEXEC, TCP_NODELAY, TCP_USER_TIMEOUT 2 s; whoever gets one closes it. Reconnecting is the
// caller's matter.
#ifndef PMS_CONSENSUS_RAFT_NET_H
#define PMS_CONSENSUS_RAFT_NET_H

#include "consensus/raft/handshake.h"
#include "consensus/raft/token.h"
#include <jansson.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#define PMS_NET_HANDSHAKE_MS 2000 // a half-open handshake is dropped after this
#define PMS_NET_DIAL_MS                                                                                      \
    800 // one attempt to connect, handshake included: short, as a new one finds a returned node sooner
#define PMS_NET_HANDSHAKES_MAX  64   // as many at a time, join connections included; more are dropped at once
#define PMS_NET_USER_TIMEOUT_MS 2000 // TCP_USER_TIMEOUT
#define PMS_JOIN_REQUEST_MAX    65536   // bytes of JSON
#define PMS_JOIN_ANSWER_MAX     1048576 // bytes of JSON
#define PMS_JOIN_SERVE_MS       60000   // a join must be answered within this

struct pms_net;
struct pms_join;

struct pms_net_config {
    struct pms_identity identity;
    const struct pms_realm *former; // n_former of them, borrowed while the net is open: see handshake.h
    unsigned n_former;
    struct sockaddr_storage listen; // port 0 takes a free one (see pms_net_port)
    void *data;                     // first argument of every callback below

    // Where a node listens: 0, or PMS_ENOTFOUND.
    int (*resolve)(void *data, uint64_t node, struct sockaddr_storage *addr);

    // A peer opened a data connection to us; fd is the callee's. version: what both speak. NULL: refused.
    void (*on_data)(void *data, uint64_t peer, int fd, unsigned version);

    // `peer`, which has the cluster's key, says that the cluster was recovered without this node. May come
    // again. NULL: nobody is told.
    void (*on_superseded)(void *data, uint64_t peer);

    // The secret of a valid token: 0, or PMS_ENOTFOUND (unknown, used, expired). NULL: no one can join here.
    int (*token_secret)(void *data, const char *token_id, char secret[PMS_TOKEN_SECRET_SIZE]);

    // A stranger that proved to hold the token asks to join. request is borrowed. Must be followed, now or
    // later, by exactly one pms_join_answer(); that is also so if the stranger has gone meanwhile.
    void (*on_join)(void *data, struct pms_join *join, const char *token_id, const json_t *request);
};

// Binds and listens. config is copied. 0, -errno of socket/bind/listen (-EADDRINUSE ...), -ENOMEM.
int pms_net_open(uv_loop_t *loop, const struct pms_net_config *config, struct pms_net **net);
// Stops listening, ends what is unfinished (callbacks with -ECANCELED), then calls cb and frees. Connections
// handed over live on. Close struct pms_raft and struct pms_rpc first.
void pms_net_close(struct pms_net *net, void (*cb)(void *data), void *data);

// The port listened on.
uint16_t pms_net_port(const struct pms_net *net);
// Our own node id.
uint64_t pms_net_node(const struct pms_net *net);

// Accepted connections of the raft and control channels go to whoever registered for the channel (struct
// pms_raft's transport, struct pms_rpc); without one they are refused. NULL unregisters.
void pms_net_accept_set(struct pms_net *net, enum pms_channel channel,
                        void (*on_accept)(void *data, uint64_t peer, int fd), void *data);

// A node of the cluster that speaks no version of the protocol that this one does. Authentic.
struct pms_net_mismatch {
    uint64_t node;
    struct pms_versions versions; // what it speaks
};
// Those for which that was so at the last attempt, theirs or ours. Returns how many of at most n were written.
unsigned pms_net_mismatches(const struct pms_net *net, struct pms_net_mismatch *out, unsigned n);

// One attempt to connect. On status 0 fd is the callee's, and version is the highest that both sides speak;
// else fd is -1, version 0, and status says why: -ECONNREFUSED,
// -ETIMEDOUT ..., PMS_ENOTFOUND (resolve), PMS_EAUTH, PMS_EIDENTITY, PMS_EVERSION (logged once, by us),
// PMS_EPROTO, -ECANCELED
// (net closed or pms_net_dial_cancel).
typedef void (*pms_net_dial_cb)(void *data, int status, int fd, unsigned version);

struct pms_net_dial;

// 0 and cb is called once, later; or an error and it never is. *dial may be used for cancelling until cb has
// run; dial may be NULL.
int pms_net_dial(struct pms_net *net, uint64_t node, enum pms_channel channel, pms_net_dial_cb cb, void *data,
                 struct pms_net_dial **dial);
// cb runs with -ECANCELED, not before this returns.
void pms_net_dial_cancel(struct pms_net_dial *dial);

// Answers a join: answer is borrowed, any JSON object; it is the caller's part to put cluster key and uuid
// in.
void pms_join_answer(struct pms_join *join, const json_t *answer);
// The joiner's address, for the log.
const struct sockaddr_storage *pms_join_peer(const struct pms_join *join);

// The joiner's side; needs no struct pms_net and no identity yet. Connects to peer, TLS with the token, sends
// request, gets the answer. cb: status 0 and the answer (borrowed), or NULL and -ECONNREFUSED, -ETIMEDOUT,
// PMS_EAUTH (wrong token), PMS_EPROTO (no pms node there), PMS_EUNKNOWN (sent, but no answer came).
typedef void (*pms_join_cb)(void *data, int status, const json_t *answer);
int pms_join_request(uv_loop_t *loop, const struct sockaddr_storage *peer, const struct pms_token *token,
                     const json_t *request, unsigned timeout_ms, pms_join_cb cb, void *data);

#endif
