// SPDX-License-Identifier: GPL-2.0-or-later
// The agreed settings: looking, and setting several at once, all or none. What may be set is the state machine's matter.
#include "cmd/pmsd/settings.h"
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/task.h"

#define COMMAND_MS 10000

// When a change is felt. The datapath's timings hold for as long as an array is open: the lease that a node has
// depends on the promise that it asked for.
static const char *takes_effect(enum pms_setting s)
{
    switch (s) {
    case PMS_SET_ADDR_LIFETIME_S:
    case PMS_SET_ORPHAN_S:
        return "at once";
    default:
        return "at each node's next start of pmsd";
    }
}

json_t *pms_settings_view(const struct pms_app *app)
{
    json_t *list = json_array();

    for (int s = 0; s < PMS_SETTINGS; s++) {
        struct pms_setting_info info;
        json_t *obj = json_object();

        pms_state_setting_get(app->state, (enum pms_setting)s, &info);
        pms_json_set_str(obj, "name", info.name);
        pms_json_set_u64(obj, "value", info.value);
        pms_json_set_u64(obj, "default", info.def);
        pms_json_set_u64(obj, "min", info.min);
        pms_json_set_u64(obj, "max", info.max);
        pms_json_set_bool(obj, "set", info.is_set);
        pms_json_set_str(obj, "takes_effect", takes_effect((enum pms_setting)s));
        json_array_append_new(list, obj);
    }
    return list;
}

struct settings_task {
    struct pms_task task;
    json_t *values;
};

enum { SETTINGS_BEGIN, SETTINGS_DONE };

static void settings_step(struct pms_task *task)
{
    struct settings_task *s = (struct settings_task *)task;
    json_t *json;

    if (task->stage == SETTINGS_BEGIN) {
        task->stage = SETTINGS_DONE;
        json = pms_command_new("settings_set");
        json_object_set(json, "values", s->values);
        pms_task_command(task, json, COMMAND_MS, NULL);
        return;
    }
    json = json_object();
    json_object_set(json, "set", s->values);
    pms_task_finish(task, json);
}

static void settings_deinit(struct pms_task *task)
{
    json_decref(((struct settings_task *)task)->values);
}

void pms_settings_set_route(struct pms_req *req)
{
    const json_t *values = json_object_get(pms_req_body(req), "values");
    struct settings_task *s;

    if (!json_is_object(values) || json_object_size(values) == 0) {
        pms_req_refuse(req, PMS_EUSAGE, "\"values\" must be an object of settings");
        return;
    }
    s = pms_task_start(pms_req_app(req), req, "settings set", sizeof(*s), 2 * COMMAND_MS, settings_step,
                       settings_deinit);
    s->values = json_deep_copy(values);
}
