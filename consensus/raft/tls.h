// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: TLS 1.3 with a pre-shared key on a non-blocking socket and the libuv loop, carrying
// messages of u32 length (little endian) and body.
#ifndef PMS_CONSENSUS_RAFT_TLS_H
#define PMS_CONSENSUS_RAFT_TLS_H

#include "consensus/raft/token.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct pms_tls;

struct pms_tls_events {
    // Server: the key for this identity: 0, or PMS_ENOTFOUND.
    int (*psk)(void *data, const char *identity, uint8_t psk[PMS_TOKEN_PSK_BYTES]);
    // The peer is authenticated.
    void (*on_ready)(void *data);
    // One whole message (borrowed).
    void (*on_message)(void *data, const uint8_t *body, size_t len);
    // What was sent has left.
    void (*on_sent)(void *data);
    // The end, once and always; the object is freed after this returns. status: pms_tls_end's, or PMS_EAUTH
    // (wrong key), PMS_EPROTO (not TLS, or garbage in it), -ECONNRESET, -ETIMEDOUT, ...
    void (*on_end)(void *data, int status);
};

struct pms_tls_config {
    bool server;
    bool connecting;               // client: the connection attempt is still under way
    const struct pms_token *token; // client; copied
    size_t message_max;            // longer ones from the peer are PMS_EPROTO
    unsigned timeout_ms;
    const struct pms_tls_events *events;
    void *data;
};

// Takes over fd. On error fd is closed and no event comes.
int pms_tls_start(uv_loop_t *loop, int fd, const struct pms_tls_config *config, struct pms_tls **tls);
// One message at a time: after on_ready, and after on_sent. 0 or -ENOMEM.
int pms_tls_send(struct pms_tls *tls, const void *body, size_t len);
// Replaces the deadline: the end comes by itself after so many ms from now.
void pms_tls_deadline_set(struct pms_tls *tls, unsigned timeout_ms);
// Ends it; on_end follows, not before this returns.
void pms_tls_end(struct pms_tls *tls, int status);

#endif
