// SPDX-License-Identifier: GPL-2.0-or-later
// The first bytes of a connection, from a stranger: it never gets in, nothing is read beyond a message.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "consensus/raft/handshake.h"

static void feed(struct pms_handshake *hs, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t want = pms_handshake_want(hs);

        if (want == 0)
            break;
        size_t n = want < size ? want : size;

        if (pms_handshake_feed(hs, data, n) != 0)
            break;
        hs->out_len = 0;
        data += n;
        size -= n;
    }
    PMS_CHECK(hs->state != PMS_HANDSHAKE_DONE); /* it does not know the key */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pms_identity self = {.node = 5};
    const uint8_t nonce[PMS_NONCE_BYTES] = {1, 2, 3};
    struct pms_realm former = {.cluster.b = {8}, .key = {1}};
    struct pms_handshake hs;

    memset(self.key, 0x5a, sizeof self.key);
    self.cluster.b[0] = 9;
    pms_handshake_listen(&hs, &self, nonce);
    feed(&hs, data, size);
    pms_handshake_listen(&hs, &self, nonce);
    pms_handshake_former(&hs, &former, 1);
    feed(&hs, data, size);
    pms_handshake_dial(&hs, &self, PMS_CHANNEL_DATA, 6, nonce);
    hs.out_len = 0;
    feed(&hs, data, size);
    return 0;
}
