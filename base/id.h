// SPDX-License-Identifier: GPL-2.0-or-later
// Identities: 16-byte uuids as 32 hex digits and 64-bit ids as 16 hex digits, and the randomness to make
// them. The random functions are not for core/ folders: there, randomness comes in with the event.
#ifndef PMS_BASE_ID_H
#define PMS_BASE_ID_H

#include <stddef.h>
#include <stdint.h>

#define PMS_UUID_TEXT_SIZE 33 // with NUL
#define PMS_ID_TEXT_SIZE   17 // with NUL

struct pms_uuid {
    uint8_t b[16];
};

// Writes 32 lower-case digits and NUL, and returns out.
char *pms_uuid_format(const struct pms_uuid *uuid, char out[PMS_UUID_TEXT_SIZE]);
// Exactly 32 hex digits, or -EINVAL.
int pms_uuid_parse(const char *text, struct pms_uuid *uuid);
void pms_uuid_random(struct pms_uuid *uuid);

// Writes 16 lower-case digits and NUL, and returns out.
char *pms_id_format(uint64_t id, char out[PMS_ID_TEXT_SIZE]);
// Exactly 16 hex digits, or -EINVAL. Zero is accepted: whether it means something is the caller's matter.
int pms_id_parse(const char *text, uint64_t *id);
// Never zero.
uint64_t pms_id_random(void);

// This boot of the host, never zero: the same in all its processes until it boots again. If the kernel does not tell, a
// random one: then nothing is taken to have survived.
uint64_t pms_id_host_boot(void);

// len bytes to and from 2*len lower-case hex digits (format adds NUL: out holds 2*len+1).
char *pms_hex_format(const void *data, size_t len, char *out);
int pms_hex_parse(const char *text, void *data, size_t len);

// Good enough for keys (getrandom(2)); a kernel that cannot give it is a broken invariant.
void pms_random_bytes(void *data, size_t len);

#endif
