// SPDX-License-Identifier: GPL-2.0-or-later
// array create: from a wish to an array that serves.
//
//   LOOK -> PLACE (array_create) -> BRICKS (each node makes its own and says so) -> COMMIT -> SERVE -> answer
//   any failure after PLACE: UNDO (array_delete), then the refusal
//
// If this pmsd dies meanwhile, the array stays half made; it can be deleted, and cluster status says so.
#include "cmd/pmsd/create.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/gather.h"
#include "cmd/pmsd/task.h"
#include "cmd/pmsd/view.h"
#include "target/host/array_target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GATHER_MS  800
#define COMMAND_MS 10000
#define LOOK_NS    300000000ull
#define SILENT_NS  30000000000ull // a node that should make a brick may be silent for so long
#define SERVE_NS   60000000000ull // from commit to serving
#define UNDO_NS    20000000000ull
#define CREATE_MS  (24u * 3600 * 1000) // zeroing a large device takes its time

enum {
    CREATE_LOOK,
    CREATE_PLACED,
    CREATE_BRICKS,
    CREATE_COMMITTED,
    CREATE_SERVE,
    CREATE_UNDO,
    CREATE_UNDOING
};

struct create_task {
    struct pms_task task;
    char name[PMS_NAME_MAX + 1];
    char level[16];
    uint64_t size_bytes, array_id, copies;
    bool write_cache;
    struct pms_portal_conf portal;
    json_t *nodes, *bricks; // as requested; NULL: our choice
    json_t *cmd;            // array_create, once placed
    uint64_t look_ns;       // not before: the next look around
    uint64_t since_ns;      // of the stage
    uint64_t heard_ns[PMS_SLOTS_MAX];
    int err; // why everything is taken back
    char why[600];
};

static void create_deinit(struct pms_task *task)
{
    struct create_task *c = (struct create_task *)task;

    json_decref(c->nodes);
    json_decref(c->bricks);
    json_decref(c->cmd);
}

static void stage_set(struct create_task *c, int stage)
{
    c->task.stage = stage;
    c->since_ns = pms_clock_boot_ns();
    c->look_ns = 0;
}

__attribute__((format(printf, 3, 4))) static void undo(struct create_task *c, int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    c->err = err;
    stage_set(c, CREATE_UNDO);
}

// ---- Where ----

static void slot_add(struct create_task *c, json_t *slots, const struct pms_node_info *node)
{
    const char *brick = pms_json_str(c->bricks, node->name, NULL);
    json_t *slot = json_object();

    pms_json_set_id(slot, "node", node->id);
    json_object_set_new(slot, "brick", brick != NULL ? json_string(brick) : json_null());
    json_array_append_new(slots, slot);
}

// The nodes that were named. NULL: the task has failed.
static json_t *slots_named(struct create_task *c, const struct pms_gather *g)
{
    json_t *slots = json_array();
    struct pms_node_info node;
    const json_t *name;
    size_t i;

    json_array_foreach (c->nodes, i, name) {
        const char *text = json_string_value(name);

        if (text == NULL || pms_state_node_get_by_name(c->task.app->state, text, &node) != 0) {
            pms_task_fail(&c->task, PMS_ENOTFOUND, "there is no node %s: pmsctl node list shows them",
                          text != NULL ? text : "?");
            goto fail;
        }
        for (unsigned k = 0; k < g->n_nodes; k++) {
            if (g->nodes[k].info.id == node.id && !g->nodes[k].answered) {
                pms_task_fail(&c->task, PMS_EREFUSED, "node %s does not answer: start it, or name another",
                              text);
                goto fail;
            }
        }
        slot_add(c, slots, &node);
    }
    return slots;
fail:
    json_decref(slots);
    return NULL;
}

static json_t *slots_chosen(struct create_task *c, const struct pms_gather *g)
{
    uint64_t ids[PMS_SLOTS_MAX];
    struct pms_node_info node;
    json_t *slots;
    char why[300] = "";
    int rv = pms_policy_place(c->task.app->state, &g->view, (unsigned)c->copies, ids, why, sizeof(why));

    if (rv != 0) {
        pms_task_fail(&c->task, rv, "%s", why[0] != '\0' ? why : "the number of copies is 1 to 8");
        return NULL;
    }
    slots = json_array();
    for (unsigned i = 0; i < c->copies; i++)
        if (pms_state_node_get(c->task.app->state, ids[i], &node) == 0)
            slot_add(c, slots, &node);
    return slots;
}

// A brick for a node that gets no copy is a mistake of the operator.
static bool bricks_fit(struct create_task *c, const json_t *slots)
{
    struct pms_node_info node;
    const char *name;
    json_t *path, *slot;
    size_t i;

    json_object_foreach (c->bricks, name, path) {
        bool used = false;

        if (pms_state_node_get_by_name(c->task.app->state, name, &node) == 0) {
            json_array_foreach (slots, i, slot) {
                uint64_t id = 0;

                pms_json_id(slot, "node", &id);
                used |= id == node.id;
            }
        }
        if (!used) {
            pms_task_fail(&c->task, PMS_EREFUSED,
                          "a brick is given for node %s, which gets no copy: name it in --nodes", name);
            return false;
        }
    }
    return true;
}

static json_t *command_make(struct create_task *c, json_t *slots)
{
    json_t *cmd = pms_command_new("array_create"), *portal = json_object();
    char addr[INET6_ADDRSTRLEN] = "", iqn[PMS_IQN_MAX + 1], serial[PMS_ID_TEXT_SIZE];
    const struct sockaddr_storage *ss = &c->portal.addr;

    if (ss->ss_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)ss)->sin_addr, addr, sizeof(addr));
    else
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)ss)->sin6_addr, addr, sizeof(addr));
    pms_json_set_str(portal, "addr", addr);
    pms_json_set_u64(portal, "prefix", c->portal.prefix_len);
    pms_json_set_u64(portal, "port", ntohs(((const struct sockaddr_in *)ss)->sin_port));
    snprintf(iqn, sizeof(iqn), "iqn.2026-11.io.pms:%.8s:%s", pms_state_cluster_id(c->task.app->state),
             c->name);
    pms_json_set_id(cmd, "id", c->array_id);
    pms_json_set_str(cmd, "name", c->name);
    pms_json_set_bool(cmd, "write_cache", c->write_cache);
    pms_json_set_str(cmd, "level", c->level);
    pms_json_set_u64(cmd, "size_bytes", c->size_bytes);
    json_object_set_new(cmd, "slots", slots);
    json_object_set_new(cmd, "portal", portal);
    pms_json_set_str(cmd, "iqn", iqn);
    pms_json_set_str(cmd, "serial", pms_id_format(c->array_id, serial));
    return cmd;
}

static void on_looked(void *data, struct pms_gather *g)
{
    struct create_task *c = data;
    json_t *slots;

    if (c->task.ended)
        goto out;
    if (!g->quorum) {
        pms_task_fail(&c->task, PMS_ENOQUORUM,
                      "no quorum: a new array must be agreed; start the missing nodes");
        goto out;
    }
    slots = c->nodes != NULL ? slots_named(c, g) : slots_chosen(c, g);
    if (slots == NULL)
        goto out;
    if (bricks_fit(c, slots))
        c->cmd = command_make(c, slots);
    else
        json_decref(slots);
    c->task.stage = CREATE_PLACED;
out:
    pms_task_return(&c->task);
}

// ---- Bricks ----

// Has a node failed to make its brick, or vanished?
static void bricks_judge(struct create_task *c, const struct pms_gather *g, const struct pms_array_info *info)
{
    uint64_t now = pms_clock_boot_ns();

    for (unsigned i = 0; i < info->n_slots; i++) {
        const json_t *r = pms_gather_array(g, info->slots[i].node_id, info->id);
        const char *error = pms_json_str(r, "brick_error_text", NULL);
        const char *node = pms_view_node_name(c->task.app, info->slots[i].node_id);

        if (r != NULL || c->heard_ns[i] == 0)
            c->heard_ns[i] = now;
        if (info->slots[i].zeroed)
            continue;
        if (error != NULL && strcmp(pms_json_str(r, "brick", ""), "none") == 0) {
            undo(c, pms_err_from_name(pms_json_str(r, "brick_error", "")),
                 "node %s cannot make the brick %s: %s", node, pms_json_str(r, "brick_path", "?"), error);
            return;
        }
        if (now - c->heard_ns[i] > SILENT_NS) {
            undo(c, PMS_EREFUSED, "node %s does not answer while it should make its brick", node);
            return;
        }
    }
}

// ---- Serving ----

static void serve_judge(struct create_task *c, const struct pms_gather *g, const struct pms_array_info *info)
{
    json_t *view;
    const char *error;

    if (info->primary < 0)
        return;
    view = pms_view_array(c->task.app, g, info);
    error = pms_json_str(view, "target_error", NULL);
    if (pms_json_bool(view, "serving", false) &&
        strcmp(pms_json_str(view, "target", ""), pms_at_state_name(PMS_AT_SERVING)) == 0) {
        pms_task_finish(&c->task, view);
        return;
    }
    if (pms_clock_boot_ns() - c->since_ns > (error != NULL ? SERVE_NS / 6 : SERVE_NS))
        undo(c, PMS_EREFUSED, "node %s cannot serve the array: %s", pms_json_str(view, "primary", "?"),
             error != NULL ? error : "it does not come up; its log says more");
    json_decref(view);
}

static void on_gathered(void *data, struct pms_gather *g)
{
    struct create_task *c = data;
    struct pms_array_info info;

    c->look_ns = pms_clock_boot_ns() + LOOK_NS;
    if (!c->task.ended && c->task.app->phase == PMS_APP_MEMBER &&
        pms_state_array_get(c->task.app->state, c->array_id, &info) == 0) {
        if (c->task.stage == CREATE_BRICKS)
            bricks_judge(c, g, &info);
        else if (c->task.stage == CREATE_SERVE)
            serve_judge(c, g, &info);
    }
    pms_task_return(&c->task);
}

static void look(struct create_task *c)
{
    if (pms_clock_boot_ns() < c->look_ns)
        return;
    pms_task_call(&c->task);
    pms_gather_start(c->task.app, GATHER_MS, on_gathered, c);
}

// ---- Steps ----

static bool all_zeroed(const struct pms_array_info *info)
{
    for (unsigned i = 0; i < info->n_slots; i++)
        if (!info->slots[i].zeroed)
            return false;
    return true;
}

static void array_command(struct create_task *c, const char *op, bool force, pms_command_cb cb)
{
    json_t *cmd = pms_command_new(op);

    pms_json_set_id(cmd, "array", c->array_id);
    if (force)
        pms_json_set_bool(cmd, "force", true);
    pms_task_command(&c->task, cmd, COMMAND_MS, cb);
}

static void on_committed(void *data, int err, const char *text, const json_t *result)
{
    struct create_task *c = data;

    (void)result;
    if (err != 0)
        undo(c, err, "%s", text);
}

static void on_undone(void *data, int err, const char *text, const json_t *result)
{
    struct create_task *c = data;

    (void)result;
    if (err != 0 && err != PMS_ENOTFOUND)
        pms_task_fail(&c->task, c->err, "%s (and it could not be taken back: %s; run pmsctl array delete %s)",
                      c->why, text, c->name);
}

static void undo_step(struct create_task *c, bool exists)
{
    if (c->task.stage == CREATE_UNDO) {
        stage_set(c, CREATE_UNDOING);
        array_command(c, "array_delete", true, on_undone);
    } else if (!exists) {
        pms_task_fail(&c->task, c->err, "%s", c->why);
    } else if (pms_clock_boot_ns() - c->since_ns > UNDO_NS) {
        pms_task_fail(&c->task, c->err,
                      "%s (bricks on nodes that do not answer are removed when they are back)", c->why);
    }
}

static void create_step(struct pms_task *task)
{
    struct create_task *c = (struct create_task *)task;
    struct pms_array_info info;
    bool exists = pms_state_array_get(task->app->state, c->array_id, &info) == 0;

    if (task->stage >= CREATE_UNDO) {
        undo_step(c, exists);
        return;
    }
    if (task->stage == CREATE_LOOK) {
        pms_task_call(task);
        pms_gather_start(task->app, GATHER_MS, on_looked, c);
        return;
    }
    if (task->stage == CREATE_PLACED) {
        stage_set(c, CREATE_BRICKS);
        pms_task_command(task, json_incref(c->cmd), COMMAND_MS, NULL);
        return;
    }
    if (!exists || info.phase == PMS_ARRAY_DELETING) {
        pms_task_fail(task, PMS_ENOTFOUND, "array %s was deleted meanwhile", c->name);
        return;
    }
    if (task->stage == CREATE_BRICKS && all_zeroed(&info)) {
        stage_set(c, CREATE_COMMITTED);
        array_command(c, "array_commit", false, on_committed);
    } else if (task->stage == CREATE_COMMITTED) {
        stage_set(c, CREATE_SERVE);
    } else {
        look(c);
    }
}

// ---- The request ----

// A subnet's first and last address are its own name and everybody's; nobody can have them.
static const char *portal_unusable(const struct pms_portal_conf *portal)
{
    uint32_t addr, host;

    if (portal->addr.ss_family != AF_INET || portal->prefix_len >= 31)
        return NULL;
    addr = ntohl(((const struct sockaddr_in *)&portal->addr)->sin_addr.s_addr);
    host = UINT32_MAX >> portal->prefix_len;
    if ((addr & host) == 0)
        return "is the address of the subnet itself";
    return (addr & host) == host ? "is the subnet's broadcast address" : NULL;
}

// 0, or the request was refused.
static int wish_parse(struct pms_req *req, struct create_task *c)
{
    const json_t *body = pms_req_body(req), *nodes = json_object_get(body, "nodes");
    const json_t *bricks = json_object_get(body, "bricks"), *copies = json_object_get(body, "copies");
    const char *name = pms_json_str(body, "name", ""), *level = pms_json_str(body, "level", "raid1");
    const char *portal = pms_json_str(body, "portal", ""), *why;

    if (strlen(name) == 0 || strlen(name) > PMS_NAME_MAX || strlen(level) >= sizeof(c->level) ||
        pms_json_u64(body, "size_bytes", &c->size_bytes) != 0) {
        pms_req_refuse(req, PMS_EUSAGE, "an array needs a name, a level and a size");
        return PMS_EUSAGE;
    }
    if (c->size_bytes == 0 || c->size_bytes % PMS_ARRAY_BYTES_MIN != 0) {
        pms_req_refuse(req, PMS_EUSAGE, "an array's size is a multiple of 1 MiB, and more than 0");
        return PMS_EUSAGE;
    }
    if (pms_portal_conf_parse(portal, &c->portal) != 0) {
        pms_req_refuse(
            req, PMS_EUSAGE,
            "the portal must be ADDRESS/PREFIX, like 192.168.1.50/24: an address of its own that moves "
            "between the nodes");
        return PMS_EUSAGE;
    }
    why = portal_unusable(&c->portal);
    if (why != NULL) {
        pms_req_refuse(req, PMS_EUSAGE, "the portal %s %s: name an address that a host could have", portal,
                       why);
        return PMS_EUSAGE;
    }
    if ((nodes != NULL && (!json_is_array(nodes) || json_array_size(nodes) == 0)) ||
        (bricks != NULL && !json_is_object(bricks)) || (nodes != NULL && copies != NULL)) {
        pms_req_refuse(req, PMS_EUSAGE, "give either the nodes or the number of copies");
        return PMS_EUSAGE;
    }
    c->copies = 2;
    if (copies != NULL && pms_json_u64(body, "copies", &c->copies) != 0) {
        pms_req_refuse(req, PMS_EUSAGE, "the number of copies is a whole number");
        return PMS_EUSAGE;
    }
    if (json_object_get(body, "write_cache") != NULL &&
        !json_is_boolean(json_object_get(body, "write_cache"))) {
        pms_req_refuse(req, PMS_EUSAGE, "\"write_cache\" is true or false");
        return PMS_EUSAGE;
    }
    c->write_cache = pms_json_bool(body, "write_cache", false);
    strcpy(c->name, name);
    strcpy(c->level, level);
    return 0;
}

void pms_create_route(struct pms_req *req)
{
    struct create_task wish = {0}, *c;
    const json_t *body = pms_req_body(req);

    if (wish_parse(req, &wish) != 0)
        return;
    c = pms_task_start(pms_req_app(req), req, "array create", sizeof(*c), CREATE_MS, create_step,
                       create_deinit);
    wish.task = c->task;
    *c = wish;
    c->array_id = pms_id_random();
    if (json_object_get(body, "nodes") != NULL)
        c->nodes = json_deep_copy(json_object_get(body, "nodes"));
    if (json_object_get(body, "bricks") != NULL)
        c->bricks = json_deep_copy(json_object_get(body, "bricks"));
    stage_set(c, CREATE_LOOK);
}
