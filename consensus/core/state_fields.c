// SPDX-License-Identifier: GPL-2.0-or-later
// What is well-formed in commands and snapshots, reading a command's fields, and refusing with a reason.
#include "consensus/core/state_internal.h"
#include "base/check.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

int pms_refuse(struct pms_apply *a, int err, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p != '\0'; p++)
        if (*p < 0x20 || *p > 0x7e)
            *p = '?';
    json_object_clear(a->result);
    PMS_MUST(pms_json_set_bool(a->result, "ok", false));
    PMS_MUST(pms_json_set_str(a->result, "error", pms_err_name(err)));
    PMS_MUST(pms_json_set_str(a->result, "text", text));
    return err;
}

// ---- Well-formed ----

bool pms_text_printable(const char *s, size_t max)
{
    size_t n = s != NULL ? strlen(s) : 0;

    if (n == 0 || n > max || s[0] == ' ' || s[n - 1] == ' ')
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return true;
}

bool pms_text_in(const char *s, size_t max, const char *extra, bool upper)
{
    size_t n = s != NULL ? strlen(s) : 0;

    if (n == 0 || n > max)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool known = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') ||
                     (upper && s[i] >= 'A' && s[i] <= 'Z') || strchr(extra, s[i]) != NULL;

        if (!known)
            return false;
    }
    return true;
}

// Names stand where ids may stand, so no name looks like an id.
static bool text_is_id(const char *s)
{
    uint64_t id = 0;

    return pms_id_parse(s, &id) == 0;
}

bool pms_name_valid(const char *s)
{
    return pms_text_in(s, PMS_NAME_MAX, "._-", true) && strchr("._-", s[0]) == NULL && !text_is_id(s);
}

bool pms_array_name_valid(const char *s)
{
    return pms_text_in(s, PMS_NAME_MAX, ".-", false) && strchr(".-", s[0]) == NULL && !text_is_id(s);
}

bool pms_iqn_valid(const char *s)
{
    return pms_text_in(s, PMS_IQN_MAX, ".:-", false) && strncmp(s, "iqn.", 4) == 0;
}

bool pms_isid_valid(const char *s)
{
    for (int i = 0; i < 12; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    return s[12] == '\0';
}

bool pms_brick_path_valid(const char *s)
{
    size_t n = strlen(s);

    if (n < 2 || n > PMS_BRICK_PATH_MAX || s[0] != '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return true;
}

bool pms_params_valid(const json_t *params)
{
    const char *key;
    json_t *value;
    size_t bytes = 0;

    if (!json_is_object(params) || json_object_size(params) > 64)
        return false;
    json_object_foreach ((json_t *)params, key, value) {
        if (!pms_text_printable(key, 63))
            return false;
        if (json_is_string(value))
            bytes += json_string_length(value);
        else if (!json_is_integer(value) && !json_is_boolean(value))
            return false;
    }
    return bytes <= 4096;
}

bool pms_ip_canonical(const char *text, unsigned *prefix_max, char out[46])
{
    unsigned char raw[16];
    int family = AF_INET;

    if (text == NULL)
        return false;
    if (inet_pton(AF_INET, text, raw) != 1) {
        family = AF_INET6;
        if (inet_pton(AF_INET6, text, raw) != 1)
            return false;
    }
    *prefix_max = family == AF_INET ? 32 : 128;
    return inet_ntop(family, raw, out, 46) != NULL;
}

// ---- Fields ----

int pms_field_id(struct pms_apply *a, const json_t *obj, const char *key, uint64_t *out)
{
    uint64_t id = 0;

    if (pms_json_id(obj, key, &id) != 0 || id == 0)
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be 16 hex digits, not all zero", key);
    *out = id;
    return 0;
}

int pms_field_u64(struct pms_apply *a, const json_t *obj, const char *key, uint64_t min, uint64_t max,
                  uint64_t *out)
{
    uint64_t v = 0;

    if (pms_json_u64(obj, key, &v) != 0 || v < min || v > max)
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be a whole number from %llu to %llu", key,
                          (unsigned long long)min, (unsigned long long)max);
    *out = v;
    return 0;
}

int pms_field_bool(struct pms_apply *a, const json_t *obj, const char *key, bool def, bool *out)
{
    const json_t *v = json_object_get(obj, key);

    if (v != NULL && !json_is_boolean(v))
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be true or false", key);
    *out = v != NULL ? json_is_true(v) : def;
    return 0;
}

int pms_field_text(struct pms_apply *a, const json_t *obj, const char *key, size_t max, const char **out)
{
    const char *s = pms_json_str(obj, key, NULL);

    if (!pms_text_printable(s, max))
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be 1 to %zu printable characters", key, max);
    *out = s;
    return 0;
}

int pms_field_name(struct pms_apply *a, const json_t *obj, const char *key, const char **out)
{
    const char *s = pms_json_str(obj, key, NULL);

    if (!pms_name_valid(s))
        return pms_refuse(a, PMS_EUSAGE,
                          "\"%s\" must be 1 to %d of letters, digits, '.', '_', '-', begin with a letter or "
                          "digit and not look like an id",
                          key, PMS_NAME_MAX);
    *out = s;
    return 0;
}

int pms_field_object(struct pms_apply *a, const json_t *obj, const char *key, const json_t **out)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_object(v))
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be an object", key);
    *out = v;
    return 0;
}

int pms_field_list(struct pms_apply *a, const json_t *obj, const char *key, size_t max, const json_t **out)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > max)
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be a list of 1 to %zu", key, max);
    *out = v;
    return 0;
}

int pms_field_addr(struct pms_apply *a, const json_t *obj, const char *key, char out[PMS_ADDR_TEXT_MAX + 1])
{
    const char *s = pms_json_str(obj, key, NULL);

    PMS_STATIC_ASSERT(PMS_ADDR_TEXT_MAX + 1 == PMS_ADDR_TEXT_SIZE, "pms_addr_format fills out");
    if (!pms_addr_canonical(s, out))
        return pms_refuse(a, PMS_EUSAGE, "\"%s\" must be a numeric ADDRESS:PORT", key);
    return 0;
}

bool pms_addr_canonical(const char *text, char out[PMS_ADDR_TEXT_MAX + 1])
{
    struct sockaddr_storage ss;

    if (text == NULL || pms_addr_parse(text, 0, &ss) != 0)
        return false;
    // Both families keep the port at the same place.
    if (((const struct sockaddr_in *)&ss)->sin_port == 0)
        return false;
    pms_addr_format(&ss, out);
    return true;
}

int pms_field_array(struct pms_apply *a, json_t **json, struct pms_array_info *info)
{
    const char *text = pms_json_str(a->cmd, "array", NULL);
    const char *name = text;
    uint64_t id = 0;

    if (text == NULL)
        return pms_refuse(a, PMS_EUSAGE, "\"array\" must be an array's id or name");
    if (pms_id_parse(text, &id) == 0)
        name = pms_array_name_by_id(a->st, id);
    *json = name != NULL ? json_object_get(a->st->arrays, name) : NULL;
    if (*json == NULL)
        return pms_refuse(a, PMS_ENOTFOUND, "there is no array %.63s", text);
    PMS_CHECK(pms_array_info_parse(name, *json, info));
    return 0;
}

int pms_field_slot(struct pms_apply *a, const struct pms_array_info *info, unsigned *slot)
{
    uint64_t v = 0;
    int rv = pms_field_u64(a, a->cmd, "slot", 0, info->n_slots - 1, &v);

    if (rv != 0)
        return rv;
    *slot = (unsigned)v;
    return 0;
}

int pms_field_node(struct pms_apply *a, const json_t *obj, const char *key, struct pms_node_info *node)
{
    uint64_t id = 0;
    int rv = pms_field_id(a, obj, key, &id);

    if (rv != 0)
        return rv;
    if (pms_state_node_get(a->st, id, node) != 0)
        return pms_refuse(a, PMS_ENOTFOUND, "there is no node with the id %016llx", (unsigned long long)id);
    return 0;
}

// ---- Tree ----

json_t *pms_must(json_t *j)
{
    PMS_CHECK_MSG(j != NULL, "out of memory");
    return j;
}

json_t *pms_json_id_new(uint64_t id)
{
    char text[PMS_ID_TEXT_SIZE];

    return id != 0 ? pms_must(json_string(pms_id_format(id, text))) : json_null();
}

static int key_compare(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

const char **pms_sorted_keys(const json_t *obj, size_t *n)
{
    const char **keys = NULL;
    const char *key;
    json_t *value;

    *n = 0;
    if (json_object_size(obj) == 0)
        return NULL;
    keys = calloc(json_object_size(obj), sizeof(*keys));
    PMS_CHECK_MSG(keys != NULL, "out of memory");
    json_object_foreach ((json_t *)obj, key, value) {
        keys[(*n)++] = key;
    }
    qsort(keys, *n, sizeof(*keys), key_compare);
    return keys;
}
