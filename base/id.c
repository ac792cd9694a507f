// SPDX-License-Identifier: GPL-2.0-or-later
// Hexadecimal identities and the kernel's randomness.
#include "base/id.h"
#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

char *pms_hex_format(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = '\0';
    return out;
}

int pms_hex_parse(const char *text, void *data, size_t len)
{
    uint8_t *p = data;

    if (strlen(text) != 2 * len)
        return -EINVAL;
    for (size_t i = 0; i < 2 * len; i++) {
        if (digit_value(text[i]) < 0)
            return -EINVAL;
    }
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)(digit_value(text[2 * i]) << 4 | digit_value(text[2 * i + 1]));
    return 0;
}

char *pms_uuid_format(const struct pms_uuid *uuid, char out[PMS_UUID_TEXT_SIZE])
{
    return pms_hex_format(uuid->b, sizeof(uuid->b), out);
}

int pms_uuid_parse(const char *text, struct pms_uuid *uuid)
{
    return pms_hex_parse(text, uuid->b, sizeof(uuid->b));
}

void pms_uuid_random(struct pms_uuid *uuid)
{
    pms_random_bytes(uuid->b, sizeof(uuid->b));
}

// Text has the most significant digit first, unlike the wire.
char *pms_id_format(uint64_t id, char out[PMS_ID_TEXT_SIZE])
{
    uint8_t big[8];

    for (int i = 0; i < 8; i++)
        big[i] = (uint8_t)(id >> (56 - 8 * i));
    return pms_hex_format(big, sizeof(big), out);
}

int pms_id_parse(const char *text, uint64_t *id)
{
    uint8_t big[8];
    uint64_t v = 0;
    int err = pms_hex_parse(text, big, sizeof(big));

    if (err != 0)
        return err;
    for (int i = 0; i < 8; i++)
        v = v << 8 | big[i];
    *id = v;
    return 0;
}

uint64_t pms_id_random(void)
{
    uint64_t id = 0;

    while (id == 0)
        pms_random_bytes(&id, sizeof(id));
    return id;
}

void pms_random_bytes(void *data, size_t len)
{
    uint8_t *p = data;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        PMS_CHECK_MSG(n > 0, "getrandom: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
}

uint64_t pms_id_host_boot(void)
{
    char text[64] = "", hex[33];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    uint64_t half[2] = {0};
    size_t n = 0;

    if (f != NULL) {
        if (fgets(text, sizeof(text), f) == NULL)
            text[0] = '\0';
        fclose(f);
    }
    for (const char *p = text; *p != '\0' && *p != '\n' && n < 32; p++)
        if (*p != '-')
            hex[n++] = *p;
    hex[n] = '\0';
    if (pms_hex_parse(hex, half, sizeof(half)) != 0 || (half[0] ^ half[1]) == 0)
        return pms_id_random();
    return half[0] ^ half[1];
}
