// SPDX-License-Identifier: GPL-2.0-or-later
// Settings: their names, defaults and ranges, what must hold between them, and the command that sets them.
//
// The tree keeps only what was set, and LONGEST, which nobody sets. Defaults are part of a feature level: a build that changes one raises the
// level.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

#define LONGEST "promise_ms_longest" // the longest promise_ms ever, if that is more than the default

struct setting {
    const char *name;
    uint64_t def, min, max;
};

static const struct setting settings[PMS_SETTINGS] = {
    [PMS_SET_HEARTBEAT_MS] = {"heartbeat_ms", PMS_HEARTBEAT_MS, 5, 10000},
    [PMS_SET_PROMISE_MS] = {"promise_ms", PMS_PROMISE_MS, 50, 60000},
    [PMS_SET_LEASE_MS] = {"lease_ms", PMS_LEASE_MS, 40, 60000},
    [PMS_SET_RAFT_ELECTION_MS] = {"raft_election_ms", PMS_RAFT_ELECTION_MS, 50, 60000},
    [PMS_SET_RAFT_HEARTBEAT_MS] = {"raft_heartbeat_ms", PMS_RAFT_HEARTBEAT_MS, 10, 10000},
    [PMS_SET_EJECT_DEAD_MS] = {"eject_dead_ms", PMS_EJECT_DEAD_MS, 100, 600000},
    [PMS_SET_EJECT_SLOW_MS] = {"eject_slow_ms", PMS_EJECT_SLOW_MS, 200, 3600000},
    [PMS_SET_ADDR_LIFETIME_S] = {"addr_lifetime_s", PMS_ADDR_LIFETIME_S, 2, 60},
    [PMS_SET_ORPHAN_S] = {"orphan_s", PMS_ORPHAN_S, 10, 86400},
};

const char *pms_setting_name(enum pms_setting s)
{
    PMS_CHECK(s < PMS_SETTINGS);
    return settings[s].name;
}

static uint64_t value_of(const json_t *overrides, enum pms_setting s)
{
    uint64_t v = settings[s].def;

    pms_json_u64(overrides, settings[s].name, &v);
    return v;
}

uint64_t pms_state_setting(const struct pms_state *st, enum pms_setting s)
{
    PMS_CHECK(s < PMS_SETTINGS);
    return value_of(st->settings, s);
}

void pms_state_setting_get(const struct pms_state *st, enum pms_setting s, struct pms_setting_info *out)
{
    PMS_CHECK(s < PMS_SETTINGS);
    *out = (struct pms_setting_info){.name = settings[s].name,
                                     .value = value_of(st->settings, s),
                                     .def = settings[s].def,
                                     .min = settings[s].min,
                                     .max = settings[s].max,
                                     .is_set = json_object_get(st->settings, settings[s].name) != NULL};
}

uint64_t pms_state_promise_ms_longest(const struct pms_state *st)
{
    uint64_t v = PMS_PROMISE_MS;

    pms_json_u64(st->settings, LONGEST, &v);
    return v;
}

// Called with the settings to be and those that were.
static void longest_note(json_t *overrides, const struct pms_state *st)
{
    uint64_t longest = pms_state_promise_ms_longest(st), now = value_of(overrides, PMS_SET_PROMISE_MS);

    if (now > longest)
        PMS_MUST(pms_json_set_u64(overrides, LONGEST, now));
}

static const struct setting *setting_find(const char *name)
{
    for (int s = 0; s < PMS_SETTINGS; s++)
        if (strcmp(settings[s].name, name) == 0)
            return &settings[s];
    return NULL;
}

const char *pms_settings_invalid(const json_t *overrides)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)overrides, key, value) {
        const struct setting *s = setting_find(strcmp(key, LONGEST) == 0 ? "promise_ms" : key);

        if (s == NULL || !json_is_integer(value) || json_integer_value(value) < (json_int_t)s->min ||
            json_integer_value(value) > (json_int_t)s->max)
            return "unknown or out of its range";
        if (strcmp(key, LONGEST) == 0 &&
            (uint64_t)json_integer_value(value) < value_of(overrides, PMS_SET_PROMISE_MS))
            return "promise_ms is longer than it ever was";
    }
    // A tenth of the promise is left for clocks that run at different rates.
    if (value_of(overrides, PMS_SET_LEASE_MS) * 10 > value_of(overrides, PMS_SET_PROMISE_MS) * 9)
        return "lease_ms must be at most nine tenths of promise_ms";
    if (value_of(overrides, PMS_SET_HEARTBEAT_MS) * 4 >= value_of(overrides, PMS_SET_LEASE_MS))
        return "lease_ms must be more than four times heartbeat_ms";
    if (value_of(overrides, PMS_SET_RAFT_HEARTBEAT_MS) * 3 >= value_of(overrides, PMS_SET_RAFT_ELECTION_MS))
        return "raft_election_ms must be more than three times raft_heartbeat_ms";
    if (value_of(overrides, PMS_SET_PROMISE_MS) >= value_of(overrides, PMS_SET_EJECT_DEAD_MS))
        return "eject_dead_ms must be more than promise_ms";
    if (value_of(overrides, PMS_SET_EJECT_DEAD_MS) >= value_of(overrides, PMS_SET_EJECT_SLOW_MS))
        return "eject_slow_ms must be more than eject_dead_ms";
    return NULL;
}

// Puts one value into the overrides to be; null takes it out.
static int override_put(struct pms_apply *a, json_t *overrides, const char *key, const json_t *value)
{
    const struct setting *s = setting_find(key);

    if (s == NULL)
        return pms_refuse(a, PMS_EUSAGE, "there is no setting %.63s", key);
    if (json_is_null(value)) {
        json_object_del(overrides, s->name);
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)s->min ||
        json_integer_value(value) > (json_int_t)s->max)
        return pms_refuse(a, PMS_EUSAGE, "%s must be a whole number from %llu to %llu", s->name,
                          (unsigned long long)s->min, (unsigned long long)s->max);
    PMS_MUST(pms_json_set_u64(overrides, s->name, (uint64_t)json_integer_value(value)));
    return 0;
}

// All the command's values, into the overrides to be. The first refusal in the order of names wins.
static int overrides_collect(struct pms_apply *a, json_t *overrides)
{
    const json_t *values = json_object_get(a->cmd, "values");
    const char *key = pms_json_str(a->cmd, "key", NULL);
    const json_t *value = json_object_get(a->cmd, "value");
    const char **keys;
    size_t n;
    int rv = 0;

    if (values == NULL) {
        if (key == NULL || value == NULL)
            return pms_refuse(a, PMS_EUSAGE, "settings_set wants \"key\" and \"value\", or \"values\"");
        return override_put(a, overrides, key, value);
    }
    if (!json_is_object(values) || json_object_size(values) == 0 || key != NULL)
        return pms_refuse(a, PMS_EUSAGE, "\"values\" must be an object of settings, and without \"key\"");
    keys = pms_sorted_keys(values, &n);
    for (size_t i = 0; i < n && rv == 0; i++)
        rv = override_put(a, overrides, keys[i], json_object_get(values, keys[i]));
    free(keys);
    return rv;
}

// Nodes take Raft's timings over one by one, as they are restarted: those that have and those that have not must get
// along, or the cluster is without a leader all the while.
static const char *raft_step_too_large(const json_t *now, const json_t *next)
{
    if (value_of(next, PMS_SET_RAFT_HEARTBEAT_MS) * 2 > value_of(now, PMS_SET_RAFT_ELECTION_MS))
        return "raft_heartbeat_ms must be at most half of the raft_election_ms so far: raise that first, "
               "restart "
               "pmsd on every node, then go on";
    if (value_of(now, PMS_SET_RAFT_HEARTBEAT_MS) * 2 > value_of(next, PMS_SET_RAFT_ELECTION_MS))
        return "raft_election_ms must be at least twice the raft_heartbeat_ms so far: lower that first, "
               "restart pmsd "
               "on every node, then go on";
    return NULL;
}

int pms_on_settings_set(struct pms_apply *a)
{
    json_t *overrides = pms_must(json_deep_copy(a->st->settings));
    const char *conflict;
    int rv = overrides_collect(a, overrides);

    if (rv != 0)
        goto out;
    conflict = pms_settings_invalid(overrides);
    if (conflict != NULL) {
        rv = pms_refuse(a, PMS_EREFUSED, "%s: set both in one command", conflict);
        goto out;
    }
    conflict = raft_step_too_large(a->st->settings, overrides);
    if (conflict != NULL) {
        rv = pms_refuse(a, PMS_EREFUSED, "%s", conflict);
        goto out;
    }
    longest_note(overrides, a->st);
    PMS_MUST(json_object_clear(a->st->settings));
    PMS_MUST(json_object_update(a->st->settings, overrides));
out:
    json_decref(overrides);
    return rv;
}
