// SPDX-License-Identifier: GPL-2.0-or-later
// Join tokens: "pms1-" + 8 hex digits (public id) + "-" + 32 hex digits (secret).
#ifndef PMS_CONSENSUS_RAFT_TOKEN_H
#define PMS_CONSENSUS_RAFT_TOKEN_H

#include <stdint.h>

#define PMS_TOKEN_ID_SIZE     9  // 8 hex digits and NUL
#define PMS_TOKEN_SECRET_SIZE 33 // 32 hex digits and NUL
#define PMS_TOKEN_TEXT_SIZE   47 // the whole, with NUL
#define PMS_TOKEN_PSK_BYTES   32

struct pms_token {
    char id[PMS_TOKEN_ID_SIZE];         // identity on the wire; may be logged
    char secret[PMS_TOKEN_SECRET_SIZE]; // never logged
};

// A new random token (getrandom).
void pms_token_random(struct pms_token *token);
char *pms_token_format(const struct pms_token *token, char out[PMS_TOKEN_TEXT_SIZE]);
// 0 or -EINVAL. Upper-case digits are taken and lowered.
int pms_token_parse(const char *text, struct pms_token *token);

// The TLS pre-shared key that belongs to a secret.
void pms_token_psk(const char secret[PMS_TOKEN_SECRET_SIZE], uint8_t psk[PMS_TOKEN_PSK_BYTES]);

#endif
