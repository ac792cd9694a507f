// SPDX-License-Identifier: GPL-2.0-or-later
// Small helpers over jansson for reading untrusted objects and for writing ids. Pure: usable in core/.
#ifndef PMS_BASE_JSON_H
#define PMS_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

// Getters accept any obj, also NULL or a non-object. The string belongs to obj.
const char *pms_json_str(const json_t *obj, const char *key, const char *def);
bool pms_json_bool(const json_t *obj, const char *key, bool def);
// A non-negative integer (at most 2^63-1: JSON's integers here are signed). 0, PMS_ENOTFOUND if the key is
// missing, -EINVAL if it is something else; then *out is as it was.
int pms_json_u64(const json_t *obj, const char *key, uint64_t *out);
// A string of 16 hex digits. Errors as above.
int pms_json_id(const json_t *obj, const char *key, uint64_t *out);

// Setters return 0, -ENOMEM, or -EINVAL (obj is no object, text is not UTF-8, v above 2^63-1).
int pms_json_set_str(json_t *obj, const char *key, const char *text);
int pms_json_set_u64(json_t *obj, const char *key, uint64_t v);
int pms_json_set_bool(json_t *obj, const char *key, bool v);
int pms_json_set_id(json_t *obj, const char *key, uint64_t id);

// Heap string (free it) without white space and with sorted keys: equal values give equal bytes. NULL if out
// of memory.
char *pms_json_dump_compact(const json_t *json);

#endif
