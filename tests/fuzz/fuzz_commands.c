// SPDX-License-Identifier: GPL-2.0-or-later
// Raft commands and snapshots: garbage is refused and changes nothing, and the state always obeys its invariants.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "consensus/core/state.h"

static const char *const story[] = {
    "{\"op\":\"cluster_init\",\"cluster\":\"00112233445566778899aabbccddeeff\",\"name\":\"c\",\"node\":{"
    "\"id\":"
    "\"0000000000000001\",\"name\":\"a\",\"addr\":\"10.0.0.1:7470\",\"role\":\"data\"}}",
    "{\"op\":\"settings_set\",\"key\":\"heartbeat_ms\",\"value\":40}",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pms_state *st = pms_state_create();
    size_t at = 0;

    PMS_CHECK(st != NULL);
    for (size_t i = 0; i < sizeof story / sizeof *story; i++)
        free(pms_state_apply(st, story[i], strlen(story[i]), pms_state_index(st) + 1));
    /* Commands are lines. */
    while (at < size) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end != NULL ? (size_t)(end - data) - at : size - at;

        free(pms_state_apply(st, (const char *)data + at, len, pms_state_index(st) + 1));
        at += len + 1;
    }
    pms_state_destroy(st);
    return 0;
}
