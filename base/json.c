// SPDX-License-Identifier: GPL-2.0-or-later
// Reading and writing members of JSON objects.
#include "base/json.h"
#include "base/err.h"
#include "base/id.h"

#include <errno.h>

const char *pms_json_str(const json_t *obj, const char *key, const char *def)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_string(v) ? json_string_value(v) : def;
}

bool pms_json_bool(const json_t *obj, const char *key, bool def)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_boolean(v) ? json_is_true(v) : def;
}

int pms_json_u64(const json_t *obj, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(obj, key);

    if (v == NULL)
        return PMS_ENOTFOUND;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -EINVAL;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

int pms_json_id(const json_t *obj, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(obj, key);

    if (v == NULL)
        return PMS_ENOTFOUND;
    if (!json_is_string(v))
        return -EINVAL;
    return pms_id_parse(json_string_value(v), out);
}

// Takes the reference to value, which may be NULL if its creation failed.
static int member_set(json_t *obj, const char *key, json_t *value)
{
    if (!json_is_object(obj)) {
        json_decref(value);
        return -EINVAL;
    }
    if (value == NULL)
        return -ENOMEM;
    return json_object_set_new(obj, key, value) == 0 ? 0 : -ENOMEM;
}

int pms_json_set_str(json_t *obj, const char *key, const char *text)
{
    json_t *value = json_string(text);

    // json_string fails for both reasons; text that is not UTF-8 is by far the likelier one.
    return value != NULL ? member_set(obj, key, value) : -EINVAL;
}

int pms_json_set_u64(json_t *obj, const char *key, uint64_t v)
{
    if (v > INT64_MAX)
        return -EINVAL;
    return member_set(obj, key, json_integer((json_int_t)v));
}

int pms_json_set_bool(json_t *obj, const char *key, bool v)
{
    return member_set(obj, key, json_boolean(v));
}

int pms_json_set_id(json_t *obj, const char *key, uint64_t id)
{
    char text[PMS_ID_TEXT_SIZE];

    return member_set(obj, key, json_string(pms_id_format(id, text)));
}

char *pms_json_dump_compact(const json_t *json)
{
    return json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}
