// SPDX-License-Identifier: GPL-2.0-or-later
// An iSCSI session as the cluster state records it, to and from JSON.
#include "target/host/session_rec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/util.h"

#define KEY_BYTES_MAX 64

// "Key=number;Key=number;" to an object; NULL if it has another form or memory is out.
static json_t *params_to_json(const char *text)
{
    json_t *obj = json_object();

    while (obj && *text) {
        char key[KEY_BYTES_MAX];
        size_t key_len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
        size_t digits;

        if (key_len == 0 || key_len >= sizeof(key) || text[key_len] != '=')
            goto fail;
        memcpy(key, text, key_len);
        key[key_len] = 0;
        text += key_len + 1;
        digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 18 || (text[digits] != ';' && text[digits] != 0))
            goto fail;
        if (json_object_set_new(obj, key, json_integer((json_int_t)strtoull(text, NULL, 10))) != 0)
            goto fail;
        text += digits;
        text += *text == ';';
    }
    return obj;
fail:
    json_decref(obj);
    return NULL;
}

static int params_from_json(const json_t *obj, char out[PMS_SESSION_PARAMS_BYTES])
{
    size_t len = 0;
    const char *key;
    json_t *value;

    out[0] = 0;
    if (!obj)
        return 0;
    if (!json_is_object(obj))
        return PMS_EPROTO;
    json_object_foreach ((json_t *)obj, key, value) {
        int n;

        if (!json_is_integer(value) || json_integer_value(value) < 0 || strpbrk(key, "=;") || *key == 0)
            return PMS_EPROTO;
        n = snprintf(out + len, PMS_SESSION_PARAMS_BYTES - len, "%s=%lld;", key,
                     (long long)json_integer_value(value));
        if (n < 0 || (size_t)n >= PMS_SESSION_PARAMS_BYTES - len)
            return PMS_EPROTO;
        len += (size_t)n;
    }
    return 0;
}

json_t *pms_session_rec_to_json(const struct pms_session_rec *rec)
{
    char isid[2 * sizeof(rec->isid) + 1];
    char peer[PMS_ADDR_TEXT_SIZE];
    json_t *params = params_to_json(rec->params);
    json_t *obj;

    if (!params)
        return NULL;
    obj = json_pack("{s:s, s:s, s:i, s:o, s:b}", "initiator", rec->initiator, "isid",
                    pms_hex_format(rec->isid, sizeof(rec->isid), isid), "tsih", rec->tsih, "params", params,
                    "connected", rec->connected);
    if (!obj)
        return NULL; // json_pack has dropped params
    if (rec->peer.ss_family != 0 && pms_json_set_str(obj, "peer", pms_addr_format(&rec->peer, peer)) != 0) {
        json_decref(obj);
        return NULL;
    }
    return obj;
}

int pms_session_rec_from_json(const json_t *json, struct pms_session_rec *rec)
{
    struct pms_session_rec r = {0};
    const char *initiator = pms_json_str(json, "initiator", NULL);
    const char *isid = pms_json_str(json, "isid", NULL);
    const char *peer = pms_json_str(json, "peer", "");
    uint64_t tsih;

    if (!initiator || *initiator == 0 || strlen(initiator) > PMS_IQN_MAX)
        return PMS_EPROTO;
    if (!isid || pms_hex_parse(isid, r.isid, sizeof(r.isid)) != 0)
        return PMS_EPROTO;
    if (pms_json_u64(json, "tsih", &tsih) != 0 || tsih > UINT16_MAX)
        return PMS_EPROTO;
    if (*peer != 0 && pms_addr_parse(peer, 0, &r.peer) != 0)
        return PMS_EPROTO;
    if (params_from_json(json_object_get(json, "params"), r.params) != 0)
        return PMS_EPROTO;
    memcpy(r.initiator, initiator, strlen(initiator) + 1);
    r.tsih = (uint16_t)tsih;
    r.connected = pms_json_bool(json, "connected", false);
    *rec = r;
    return 0;
}
