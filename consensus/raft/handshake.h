// SPDX-License-Identifier: GPL-2.0-or-later
// Mutual challenge and response over the cluster key, the first bytes of every connection between nodes.
// Pure: bytes in, bytes out, nonces given by the caller.
//
//   dialer                                                       listener
//     HELLO  versions, channel, cluster, from, to, nonce   ---->
//                         <----  CHALLENGE  version, versions, node, nonce, mac("listener", HELLO, CHALLENGE)
//     PROOF  mac("dialer", HELLO, CHALLENGE)               ---->
//
// The listener picks the highest version of the protocols behind the handshake that both speak, 0 if there is
// none. Then too the handshake goes on to its end, so that both know for sure with whom they have nothing in
// common. The handshake itself has no version: it never changes.
//
// mac is HMAC-SHA256 under the cluster key over the whole transcript so far; the labels keep one side's
// answer from serving as the other's. A side that refuses says why (REFUSE, a hint nobody has to believe) and
// closes. Each message is an 8-byte head {magic "PMS1", u8 type, u8 zero, u16 body length} and a body whose
// length its type fixes, so nothing is ever read or allocated on a stranger's word. It authenticates; it does
// not encrypt.
#ifndef PMS_CONSENSUS_RAFT_HANDSHAKE_H
#define PMS_CONSENSUS_RAFT_HANDSHAKE_H

#include "base/id.h"
#include "base/version.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PMS_KEY_BYTES           32
#define PMS_NONCE_BYTES         32
#define PMS_HANDSHAKE_BYTES_MAX 128 // no message is longer

enum pms_channel { PMS_CHANNEL_RAFT = 1, PMS_CHANNEL_DATA = 2, PMS_CHANNEL_CONTROL = 3 };

// Who we are, and what we must have in common with the peer.
struct pms_identity {
    struct pms_uuid cluster;
    uint8_t key[PMS_KEY_BYTES];
    uint64_t node;                // never 0
    struct pms_versions versions; // zeros: pms_node_versions
};

// What the cluster's nodes had in common before a `pmsctl recover`: whoever still comes with that was given up.
struct pms_realm {
    struct pms_uuid cluster;
    uint8_t key[PMS_KEY_BYTES];
};

enum pms_handshake_state {
    PMS_HANDSHAKE_WAIT_HELLO,     // listener
    PMS_HANDSHAKE_WAIT_CHALLENGE, // dialer
    PMS_HANDSHAKE_WAIT_PROOF,     // listener
    PMS_HANDSHAKE_DONE,
    PMS_HANDSHAKE_FAILED,
};

// Caller's memory, no heap behind it. Read state, peer, channel, version, versions (valid once DONE, and after
// PMS_EVERSION) and out.
struct pms_handshake {
    enum pms_handshake_state state;
    struct pms_identity self;
    bool dialer;
    uint8_t channel;                // enum pms_channel
    uint8_t version;                // agreed; 0: none
    struct pms_versions versions;   // the peer's
    uint64_t peer;                  // authenticated once DONE
    uint64_t to;                    // whom the dialer wants; 0 takes any node of the cluster
    const struct pms_realm *former; // listener: see pms_handshake_former
    unsigned n_former;
    bool is_former; // the dialer belongs to one of them
    uint8_t nonce[PMS_NONCE_BYTES];
    uint8_t hello[PMS_HANDSHAKE_BYTES_MAX]; // transcript
    uint8_t challenge[PMS_HANDSHAKE_BYTES_MAX];
    uint8_t in[PMS_HANDSHAKE_BYTES_MAX]; // the message being received
    size_t in_len;
    uint8_t out[PMS_HANDSHAKE_BYTES_MAX]; // to be sent, also after a failure; the driver empties it
    size_t out_len;
};

// Both copy what they are given. The nonce must be fresh and random. The dialer's first message is in out.
void pms_handshake_dial(struct pms_handshake *hs, const struct pms_identity *self, enum pms_channel channel,
                        uint64_t to, const uint8_t nonce[PMS_NONCE_BYTES]);
void pms_handshake_listen(struct pms_handshake *hs, const struct pms_identity *self,
                          const uint8_t nonce[PMS_NONCE_BYTES]);
// The listener tells nodes of these realms (borrowed as long as hs lives), under their own key, that they were
// given up: their handshake ends with PMS_ESUPERSEDED, which they can believe.
void pms_handshake_former(struct pms_handshake *hs, const struct pms_realm *former, unsigned n);

// How many more bytes to read now, never beyond the end of the handshake; 0 once done or failed.
size_t pms_handshake_want(const struct pms_handshake *hs);

// Takes 1 to pms_handshake_want() bytes. 0, or why the connection must end: PMS_EPROTO (garbage, wrong
// length, out of order), PMS_EAUTH (wrong key), PMS_EIDENTITY (another cluster, meant for another node, or
// ourselves), PMS_EVERSION (no common version; peer and versions are authentic), PMS_ESUPERSEDED (authentic
// too: the peer's cluster was recovered without us). After an error out may hold a last message for the peer.
// PMS_EREFUSED: the peer refused without a reason that we know.
int pms_handshake_feed(struct pms_handshake *hs, const uint8_t *data, size_t len);

#endif
