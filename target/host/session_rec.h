// SPDX-License-Identifier: GPL-2.0-or-later
// An iSCSI session as the cluster state records it, to and from JSON.
#ifndef PMS_TARGET_HOST_SESSION_REC_H
#define PMS_TARGET_HOST_SESSION_REC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/limits.h"

#define PMS_SESSION_PARAMS_BYTES 2048

struct pms_session_rec {
    char initiator[PMS_IQN_MAX + 1];
    uint8_t isid[6];
    uint16_t tsih;                         // 0: not given yet (only in a login request)
    bool connected;                        // has a connection as far as is known
    struct sockaddr_storage peer;          // of the last connection; ss_family 0: unknown
    char params[PMS_SESSION_PARAMS_BYTES]; // "Key=number;Key=number;.."
};

// {"initiator", "isid": 12 hex, "tsih", "params": {"Key": number, ..}, "peer": "ip:port", "connected"}: the
// session's object in the cluster state, and what session_login wants. A new reference; NULL: out of memory,
// or params is not of the form above.
json_t *pms_session_rec_to_json(const struct pms_session_rec *rec);
// 0 or PMS_EPROTO (*rec untouched). Unknown keys are passed over; params, peer, connected may be missing.
int pms_session_rec_from_json(const json_t *json, struct pms_session_rec *rec);

#endif
