// SPDX-License-Identifier: GPL-2.0-or-later
// The handshake's two state machines (handshake.h shows the messages).
//
//   dialer    WAIT_CHALLENGE --CHALLENGE ok--> DONE (PROOF in out), FAILED if no version is common (likewise)
//   listener  WAIT_HELLO --HELLO ok--> WAIT_PROOF (CHALLENGE in out) --PROOF ok--> DONE, FAILED likewise
//   either    --anything else--> FAILED (REFUSE in out, if the peer could use it)
#include "consensus/raft/handshake.h"
#include "base/check.h"
#include "base/err.h"
#include "base/wire.h"
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#define HEAD_BYTES 8
#define MAC_BYTES  32

static const uint8_t magic[4] = {'P', 'M', 'S', '1'};

enum type { TYPE_HELLO = 1, TYPE_CHALLENGE = 2, TYPE_PROOF = 3, TYPE_REFUSE = 4 };

// REFUSE's reason on the wire.
enum reason { REASON_OTHER = 0, REASON_AUTH = 1, REASON_IDENTITY = 2 };

static const size_t body_bytes[] = {
    [TYPE_HELLO] =
        1 + 1 + 1 + 1 + 16 + 8 + 8 + PMS_NONCE_BYTES, // versions, channel, zero, cluster, from, to, nonce
    [TYPE_CHALLENGE] =
        1 + 2 + 4 + 1 + 8 + PMS_NONCE_BYTES + MAC_BYTES, // version, versions, zeros, former, node, nonce, mac
    [TYPE_PROOF] = MAC_BYTES,
    [TYPE_REFUSE] = 1,
};

PMS_STATIC_ASSERT(HEAD_BYTES + 1 + 2 + 5 + 8 + PMS_NONCE_BYTES + MAC_BYTES <= PMS_HANDSHAKE_BYTES_MAX,
                  "the longest message fits");

static size_t message_bytes(enum type type)
{
    return HEAD_BYTES + body_bytes[type];
}

// A writer over out, behind the message's head. Whatever was in out is replaced: the driver has sent it by
// now.
static struct pms_wr message_begin(struct pms_handshake *hs, enum type type)
{
    struct pms_wr w = pms_wr_over(hs->out, sizeof hs->out);

    pms_wr_bytes(&w, magic, sizeof magic);
    pms_wr_u8(&w, (uint8_t)type);
    pms_wr_u8(&w, 0);
    pms_wr_u16(&w, (uint16_t)body_bytes[type]);
    hs->out_len = message_bytes(type);
    return w;
}

static int refuse(struct pms_handshake *hs, enum reason reason, int err)
{
    struct pms_wr w = message_begin(hs, TYPE_REFUSE);

    pms_wr_u8(&w, (uint8_t)reason);
    hs->state = PMS_HANDSHAKE_FAILED;
    return err;
}

// Garbage gets no answer.
static int fail(struct pms_handshake *hs, int err)
{
    hs->state = PMS_HANDSHAKE_FAILED;
    return err;
}

// HMAC under the cluster key over the label, the whole HELLO, and CHALLENGE as far as it is known to both at
// that point (without its own mac for the listener's, with it for the dialer's).
static void transcript_mac(const struct pms_handshake *hs, const char *label, size_t challenge_len,
                           uint8_t mac[MAC_BYTES])
{
    gnutls_hmac_hd_t h;
    int rv = gnutls_hmac_init(&h, GNUTLS_MAC_SHA256, hs->self.key, sizeof hs->self.key);

    PMS_CHECK_MSG(rv == 0, "gnutls cannot start HMAC-SHA256: %s", gnutls_strerror(rv));
    rv = gnutls_hmac(h, label, strlen(label) + 1);
    if (rv == 0)
        rv = gnutls_hmac(h, hs->hello, message_bytes(TYPE_HELLO));
    if (rv == 0)
        rv = gnutls_hmac(h, hs->challenge, challenge_len);
    PMS_CHECK_MSG(rv == 0, "gnutls cannot compute HMAC-SHA256: %s", gnutls_strerror(rv));
    gnutls_hmac_deinit(h, mac);
}

static void listener_mac(const struct pms_handshake *hs, uint8_t mac[MAC_BYTES])
{
    transcript_mac(hs, "pms handshake listener", message_bytes(TYPE_CHALLENGE) - MAC_BYTES, mac);
}

static void dialer_mac(const struct pms_handshake *hs, uint8_t mac[MAC_BYTES])
{
    transcript_mac(hs, "pms handshake dialer", message_bytes(TYPE_CHALLENGE), mac);
}

static bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
    return gnutls_memcmp(a, b, MAC_BYTES) == 0;
}

static void self_set(struct pms_handshake *hs, const struct pms_identity *self)
{
    hs->self = *self;
    if (self->versions.max == 0)
        hs->self.versions = pms_node_versions;
    PMS_CHECK(pms_versions_valid(hs->self.versions));
}

void pms_handshake_dial(struct pms_handshake *hs, const struct pms_identity *self, enum pms_channel channel,
                        uint64_t to, const uint8_t nonce[PMS_NONCE_BYTES])
{
    struct pms_wr w;

    memset(hs, 0, sizeof *hs);
    hs->state = PMS_HANDSHAKE_WAIT_CHALLENGE;
    self_set(hs, self);
    hs->dialer = true;
    hs->channel = (uint8_t)channel;
    hs->to = to;
    w = message_begin(hs, TYPE_HELLO);
    pms_wr_u8(&w, hs->self.versions.min);
    pms_wr_u8(&w, hs->self.versions.max);
    pms_wr_u8(&w, (uint8_t)channel);
    pms_wr_u8(&w, 0);
    pms_wr_bytes(&w, self->cluster.b, sizeof self->cluster.b);
    pms_wr_u64(&w, self->node);
    pms_wr_u64(&w, to);
    pms_wr_bytes(&w, nonce, PMS_NONCE_BYTES);
    PMS_CHECK(w.err == 0);
    memcpy(hs->hello, hs->out, hs->out_len);
}

void pms_handshake_listen(struct pms_handshake *hs, const struct pms_identity *self,
                          const uint8_t nonce[PMS_NONCE_BYTES])
{
    memset(hs, 0, sizeof *hs);
    hs->state = PMS_HANDSHAKE_WAIT_HELLO;
    self_set(hs, self);
    memcpy(hs->nonce, nonce, PMS_NONCE_BYTES);
}

size_t pms_handshake_want(const struct pms_handshake *hs)
{
    if (hs->state == PMS_HANDSHAKE_DONE || hs->state == PMS_HANDSHAKE_FAILED)
        return 0;
    if (hs->in_len < HEAD_BYTES)
        return HEAD_BYTES - hs->in_len;
    return HEAD_BYTES + pms_get_u16(hs->in + 6) - hs->in_len;
}

// The head is complete: is a message like this due now, and of the right length?
static int head_check(const struct pms_handshake *hs)
{
    uint8_t type = hs->in[4];
    uint8_t due = TYPE_HELLO;

    if (hs->state == PMS_HANDSHAKE_WAIT_CHALLENGE)
        due = TYPE_CHALLENGE;
    else if (hs->state == PMS_HANDSHAKE_WAIT_PROOF)
        due = TYPE_PROOF;
    if (memcmp(hs->in, magic, sizeof magic) != 0 || hs->in[5] != 0)
        return PMS_EPROTO;
    if (type != due && !(type == TYPE_REFUSE && due != TYPE_HELLO))
        return PMS_EPROTO;
    return pms_get_u16(hs->in + 6) == body_bytes[type] ? 0 : PMS_EPROTO;
}

static int on_refuse(struct pms_handshake *hs)
{
    switch (hs->in[HEAD_BYTES]) {
    case REASON_AUTH:
        return fail(hs, PMS_EAUTH);
    case REASON_IDENTITY:
        return fail(hs, PMS_EIDENTITY);
    default:
        return fail(hs, PMS_EREFUSED);
    }
}

static void challenge_write(struct pms_handshake *hs)
{
    struct pms_wr w = message_begin(hs, TYPE_CHALLENGE);
    uint8_t mac[MAC_BYTES];

    pms_wr_u8(&w, hs->version);
    pms_wr_u8(&w, hs->self.versions.min);
    pms_wr_u8(&w, hs->self.versions.max);
    pms_wr_zero(&w, 4);
    pms_wr_u8(&w, hs->is_former ? 1 : 0);
    pms_wr_u64(&w, hs->self.node);
    pms_wr_bytes(&w, hs->nonce, PMS_NONCE_BYTES);
    memcpy(hs->challenge, hs->out, message_bytes(TYPE_CHALLENGE) - MAC_BYTES);
    listener_mac(hs, mac);
    pms_wr_bytes(&w, mac, sizeof mac);
    PMS_CHECK(w.err == 0);
    memcpy(hs->challenge, hs->out, hs->out_len);
}

void pms_handshake_former(struct pms_handshake *hs, const struct pms_realm *former, unsigned n)
{
    hs->former = former;
    hs->n_former = n;
}

// The dialer's cluster is ours, or was: then we speak to it as what we were.
static bool cluster_known(struct pms_handshake *hs, const struct pms_uuid *cluster)
{
    if (memcmp(cluster->b, hs->self.cluster.b, sizeof cluster->b) == 0)
        return true;
    for (unsigned i = 0; i < hs->n_former; i++) {
        if (memcmp(cluster->b, hs->former[i].cluster.b, sizeof cluster->b) != 0)
            continue;
        memcpy(hs->self.key, hs->former[i].key, sizeof hs->self.key);
        hs->is_former = true;
        return true;
    }
    return false;
}

// Nothing in it is believed before PROOF; it only says what the dialer wants, and we may refuse at once.
static int on_hello(struct pms_handshake *hs)
{
    struct pms_rd r = pms_rd_over(hs->in + HEAD_BYTES, body_bytes[TYPE_HELLO]);
    uint8_t min = pms_rd_u8(&r), max = pms_rd_u8(&r), channel = pms_rd_u8(&r), zero = pms_rd_u8(&r);
    struct pms_versions versions = {min, max};
    struct pms_uuid cluster;
    uint64_t from, to;

    pms_rd_bytes(&r, cluster.b, sizeof cluster.b);
    from = pms_rd_u64(&r);
    to = pms_rd_u64(&r);
    if (zero != 0 || from == 0 || !pms_versions_valid(versions) || channel < PMS_CHANNEL_RAFT ||
        channel > PMS_CHANNEL_CONTROL)
        return fail(hs, PMS_EPROTO);
    if ((to != 0 && to != hs->self.node) || from == hs->self.node || !cluster_known(hs, &cluster))
        return refuse(hs, REASON_IDENTITY, PMS_EIDENTITY);
    hs->channel = channel;
    hs->peer = from;
    hs->to = to;
    hs->versions = versions;
    hs->version = (uint8_t)pms_versions_common(hs->self.versions, versions);
    memcpy(hs->hello, hs->in, message_bytes(TYPE_HELLO));
    challenge_write(hs);
    hs->state = PMS_HANDSHAKE_WAIT_PROOF;
    return 0;
}

// Both know each other; can they talk?
static int done(struct pms_handshake *hs)
{
    if (hs->version == 0)
        return fail(hs, PMS_EVERSION);
    hs->state = PMS_HANDSHAKE_DONE;
    return 0;
}

static int on_challenge(struct pms_handshake *hs)
{
    struct pms_rd r = pms_rd_over(hs->in + HEAD_BYTES, body_bytes[TYPE_CHALLENGE]);
    uint8_t version = pms_rd_u8(&r), min = pms_rd_u8(&r), max = pms_rd_u8(&r);
    struct pms_versions versions = {min, max};
    uint8_t mac[MAC_BYTES];
    bool former;
    uint64_t node;
    struct pms_wr w;

    pms_rd_skip(&r, 4);
    former = pms_rd_u8(&r) != 0;
    node = pms_rd_u64(&r);
    memcpy(hs->challenge, hs->in, message_bytes(TYPE_CHALLENGE));
    listener_mac(hs, mac);
    if (!mac_equal(mac, hs->in + message_bytes(TYPE_CHALLENGE) - MAC_BYTES))
        return refuse(hs, REASON_AUTH, PMS_EAUTH);
    if (former)
        return fail(hs, PMS_ESUPERSEDED);
    if (!pms_versions_valid(versions) || version != pms_versions_common(hs->self.versions, versions))
        return fail(hs, PMS_EPROTO);
    if (node == 0 || node == hs->self.node || (hs->to != 0 && node != hs->to))
        return refuse(hs, REASON_IDENTITY, PMS_EIDENTITY);
    hs->version = version;
    hs->versions = versions;
    hs->peer = node;
    w = message_begin(hs, TYPE_PROOF);
    dialer_mac(hs, mac);
    pms_wr_bytes(&w, mac, sizeof mac);
    PMS_CHECK(w.err == 0);
    return done(hs);
}

static int on_proof(struct pms_handshake *hs)
{
    uint8_t mac[MAC_BYTES];

    dialer_mac(hs, mac);
    if (!mac_equal(mac, hs->in + HEAD_BYTES))
        return refuse(hs, REASON_AUTH, PMS_EAUTH);
    if (hs->is_former) // it did not understand
        return refuse(hs, REASON_IDENTITY, PMS_EIDENTITY);
    return done(hs);
}

static int message_handle(struct pms_handshake *hs)
{
    if (hs->in[4] == TYPE_REFUSE)
        return on_refuse(hs);
    switch (hs->state) {
    case PMS_HANDSHAKE_WAIT_HELLO:
        return on_hello(hs);
    case PMS_HANDSHAKE_WAIT_CHALLENGE:
        return on_challenge(hs);
    case PMS_HANDSHAKE_WAIT_PROOF:
        return on_proof(hs);
    default:
        return fail(hs, PMS_EPROTO);
    }
}

int pms_handshake_feed(struct pms_handshake *hs, const uint8_t *data, size_t len)
{
    bool head_was_missing = hs->in_len < HEAD_BYTES;
    int rv;

    PMS_CHECK(len > 0 && len <= pms_handshake_want(hs));
    memcpy(hs->in + hs->in_len, data, len);
    hs->in_len += len;
    if (hs->in_len < HEAD_BYTES)
        return 0;
    if (head_was_missing) {
        rv = head_check(hs);
        if (rv != 0)
            return fail(hs, rv);
    }
    if (pms_handshake_want(hs) != 0)
        return 0;
    rv = message_handle(hs);
    hs->in_len = 0;
    return rv;
}
