// SPDX-License-Identifier: GPL-2.0-or-later
// Join tokens: text form, and the key derived from the secret.
#include "consensus/raft/token.h"
#include "base/check.h"
#include "base/id.h"
#include <ctype.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "pms1-"

void pms_token_random(struct pms_token *token)
{
    uint8_t bytes[20];

    pms_random_bytes(bytes, sizeof bytes);
    pms_hex_format(bytes, 4, token->id);
    pms_hex_format(bytes + 4, 16, token->secret);
}

char *pms_token_format(const struct pms_token *token, char out[PMS_TOKEN_TEXT_SIZE])
{
    snprintf(out, PMS_TOKEN_TEXT_SIZE, PREFIX "%s-%s", token->id, token->secret);
    return out;
}

// n hex digits, lowered.
static int digits_take(const char **text, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        char c = (char)tolower((unsigned char)(*text)[i]);

        if (!isxdigit((unsigned char)c))
            return -EINVAL;
        out[i] = c;
    }
    out[n] = '\0';
    *text += n;
    return 0;
}

int pms_token_parse(const char *text, struct pms_token *token)
{
    struct pms_token t;

    if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
        return -EINVAL;
    text += strlen(PREFIX);
    if (digits_take(&text, PMS_TOKEN_ID_SIZE - 1, t.id) != 0 || *text++ != '-' ||
        digits_take(&text, PMS_TOKEN_SECRET_SIZE - 1, t.secret) != 0 || *text != '\0')
        return -EINVAL;
    *token = t;
    return 0;
}

void pms_token_psk(const char secret[PMS_TOKEN_SECRET_SIZE], uint8_t psk[PMS_TOKEN_PSK_BYTES])
{
    static const char label[] = "pms join psk 1";
    int rv = gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret, strlen(secret), label, strlen(label), psk);

    PMS_CHECK_MSG(rv == 0, "gnutls cannot compute HMAC-SHA256: %s", gnutls_strerror(rv));
}
