// SPDX-License-Identifier: GPL-2.0-or-later
// Memory of executed commands, so that one sent again after an unknown outcome is not executed twice.
//
// Per client: the highest seq, and the results of the last PMS_STATE_WINDOW seqs below it (a client has no
// more in flight). An older seq is "forgotten": nobody can tell whether it ran. At most PMS_STATE_CLIENTS_MAX
// clients; the one heard least recently, by log index, goes first.
#include "consensus/core/state_internal.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

// seq as a key: "18", at most 20 digits.
static const char *seq_key(uint64_t seq, char buf[21])
{
    snprintf(buf, 21, "%llu", (unsigned long long)seq);
    return buf;
}

static uint64_t member_u64(const json_t *obj, const char *key)
{
    uint64_t v = 0;

    PMS_CHECK(pms_json_u64(obj, key, &v) == 0);
    return v;
}

json_t *pms_dedup_find(const struct pms_state *st, const char *client, uint64_t seq, bool *forgotten)
{
    const json_t *record = json_object_get(st->dedup, client);
    char key[21];
    uint64_t top;

    *forgotten = false;
    if (record == NULL)
        return NULL;
    top = member_u64(record, "top");
    *forgotten = top >= PMS_STATE_WINDOW && seq <= top - PMS_STATE_WINDOW;
    return json_object_get(json_object_get(record, "results"), seq_key(seq, key));
}

static void evict_oldest(struct pms_state *st)
{
    const char *client, *oldest = NULL;
    uint64_t oldest_index = 0;
    json_t *record;

    // Each index belongs to one command of one client, so there is no tie.
    json_object_foreach (st->dedup, client, record) {
        uint64_t index = member_u64(record, "index");

        if (oldest == NULL || index < oldest_index) {
            oldest = client;
            oldest_index = index;
        }
    }
    PMS_MUST(json_object_del(st->dedup, oldest));
}

static json_t *record_add(struct pms_state *st, const char *client)
{
    json_t *record = pms_must(json_object());

    if (json_object_size(st->dedup) >= PMS_STATE_CLIENTS_MAX)
        evict_oldest(st);
    PMS_MUST(pms_json_set_u64(record, "top", 0));
    PMS_MUST(json_object_set_new(record, "results", json_object()));
    PMS_MUST(json_object_set_new(st->dedup, client, record));
    return record;
}

void pms_dedup_store(struct pms_state *st, const char *client, uint64_t seq, uint64_t index, json_t *result)
{
    json_t *record = json_object_get(st->dedup, client), *results;
    uint64_t top;
    char key[21];

    if (record == NULL)
        record = record_add(st, client);
    results = json_object_get(record, "results");
    top = member_u64(record, "top");
    if (seq > top) {
        const char *name;
        json_t *value;
        void *next;

        json_object_foreach_safe (results, next, name, value) {
            if (strtoull(name, NULL, 10) + PMS_STATE_WINDOW <= seq)
                PMS_MUST(json_object_del(results, name));
        }
        PMS_MUST(pms_json_set_u64(record, "top", seq));
    }
    PMS_MUST(pms_json_set_u64(record, "index", index));
    PMS_MUST(json_object_set(results, seq_key(seq, key), result));
}
