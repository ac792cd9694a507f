// SPDX-License-Identifier: GPL-2.0-or-later
// The API's JSON of arrays, nodes and sessions.
#include "cmd/pmsd/view.h"
#include "base/json.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/upgrade.h"

#include <stdio.h>
#include <string.h>

const char *pms_view_node_name(const struct pms_app *app, uint64_t id)
{
    static char name[PMS_NAME_MAX + 1];
    struct pms_node_info node;

    if (id == 0)
        strcpy(name, "none");
    else if (pms_state_node_get(app->state, id, &node) == 0)
        strcpy(name, node.name);
    else
        pms_id_format(id, name);
    return name;
}

// ---- Array ----

// From the primary's report: the slot fell out again and again. back_ms: until it is taken back.
static bool falls_get(const json_t *report, unsigned slot, uint64_t *falls, uint64_t *back_ms)
{
    const json_t *entry;
    uint64_t n;
    size_t i;

    json_array_foreach (json_object_get(report, "falls"), i, entry) {
        if (pms_json_u64(entry, "slot", &n) == 0 && n == slot && pms_json_u64(entry, "falls", falls) == 0 &&
            pms_json_u64(entry, "back_ms", back_ms) == 0)
            return true;
    }
    return false;
}

static const json_t *primary_report(const struct pms_gather *g, const struct pms_array_info *info)
{
    return pms_gather_array(g, info->primary >= 0 ? info->slots[info->primary].node_id : 0, info->id);
}

static json_t *slot_view(const struct pms_app *app, const struct pms_gather *g,
                         const struct pms_array_info *info, unsigned i)
{
    const struct pms_slot_info *s = &info->slots[i];
    const json_t *r = pms_gather_array(g, s->node_id, info->id);
    const char *brick = s->brick[0] != '\0' ? s->brick : pms_json_str(r, "brick_path", NULL);
    json_t *slot = json_object();
    uint64_t n, falls, back_ms;

    pms_json_set_u64(slot, "slot", i);
    pms_json_set_str(slot, "node", pms_view_node_name(app, s->node_id));
    json_object_set_new(slot, "brick", brick != NULL ? json_string(brick) : json_null());
    pms_json_set_bool(slot, "in_sync", s->in_sync);
    pms_json_set_bool(slot, "zeroed", s->zeroed);
    pms_json_set_bool(slot, "answers", r != NULL);
    if (pms_json_str(r, "brick_error_text", NULL) != NULL)
        pms_json_set_str(slot, "error", pms_json_str(r, "brick_error_text", ""));
    if (pms_json_u64(r, "zero_total", &n) == 0)
        pms_json_set_u64(slot, "zero_total", n);
    if (pms_json_u64(r, "zero_done", &n) == 0)
        pms_json_set_u64(slot, "zero_done", n);
    if (falls_get(primary_report(g, info), i, &falls, &back_ms)) {
        pms_json_set_u64(slot, "falls", falls);
        pms_json_set_u64(slot, "back_s", (back_ms + 999) / 1000);
    }
    return slot;
}

static void target_view(json_t *obj, const struct pms_array_info *info)
{
    json_t *portal = json_object();
    char url[400];
    bool v6 = strchr(info->portal_addr, ':') != NULL;

    pms_json_set_str(portal, "addr", info->portal_addr);
    pms_json_set_u64(portal, "prefix", info->portal_prefix);
    pms_json_set_u64(portal, "port", info->portal_port);
    json_object_set_new(obj, "portal", portal);
    pms_json_set_str(obj, "iqn", info->iqn);
    pms_json_set_str(obj, "serial", info->serial);
    snprintf(url, sizeof(url), "iscsi://%s%s%s:%u/%s/%d", v6 ? "[" : "", info->portal_addr, v6 ? "]" : "",
             (unsigned)info->portal_port, info->iqn, PMS_TGTD_LUN);
    pms_json_set_str(obj, "url", url);
}

static void resync_view(json_t *obj, const json_t *report)
{
    json_t *resync = json_object();
    uint64_t percent = 0, eta_s;

    pms_json_u64(report, "percent", &percent);
    pms_json_set_u64(resync, "percent", percent);
    if (pms_json_u64(report, "eta_s", &eta_s) == 0)
        pms_json_set_u64(resync, "eta_s", eta_s);
    else
        json_object_set_new(resync, "eta_s", json_null());
    json_object_set_new(obj, "resync", resync);
}

static unsigned sessions_connected(const struct pms_app *app, const char *array)
{
    const json_t *list = pms_state_sessions_json(app->state, array), *session;
    unsigned n = 0;
    size_t i;

    json_array_foreach (list, i, session) {
        n += pms_json_bool(session, "connected", false) ? 1 : 0;
    }
    return n;
}

json_t *pms_view_array(const struct pms_app *app, const struct pms_gather *g,
                       const struct pms_array_info *info)
{
    json_t *obj = json_object(), *in_sync = json_array(), *slots = json_array();
    uint64_t primary = info->primary >= 0 ? info->slots[info->primary].node_id : 0;
    const json_t *report = pms_gather_array(g, primary, info->id);
    uint64_t sent;
    static const char *const phases[] = {"creating", "ready", "deleting"};

    pms_json_set_str(obj, "name", info->name);
    pms_json_set_id(obj, "id", info->id);
    pms_json_set_str(obj, "level", info->level == PMS_ARRAY_RAID5 ? "raid5" : "raid1");
    pms_json_set_u64(obj, "size_bytes", info->size_bytes);
    pms_json_set_bool(obj, "write_cache", info->write_cache);
    pms_json_set_str(obj, "phase", phases[info->phase]);
    pms_json_set_u64(obj, "epoch", info->epoch);
    json_object_set_new(obj, "primary",
                        primary != 0 ? json_string(pms_view_node_name(app, primary)) : json_null());
    for (unsigned i = 0; i < info->n_slots; i++) {
        if (info->slots[i].in_sync)
            json_array_append_new(in_sync, json_string(pms_view_node_name(app, info->slots[i].node_id)));
        json_array_append_new(slots, slot_view(app, g, info, i));
    }
    json_object_set_new(obj, "in_sync", in_sync);
    json_object_set_new(obj, "slots", slots);
    pms_json_set_str(obj, "state", pms_health_name(pms_policy_array_health(info, &g->view)));
    pms_json_set_bool(obj, "serving", pms_json_bool(report, "serving", false));
    pms_json_set_str(obj, "target", pms_json_str(report, "target", "none"));
    if (pms_json_str(report, "target_error", NULL) != NULL)
        pms_json_set_str(obj, "target_error", pms_json_str(report, "target_error", ""));
    if (pms_json_bool(report, "resyncing", false))
        resync_view(obj, report);
    else
        json_object_set_new(obj, "resync", json_null());
    if (pms_json_u64(report, "resync_sent", &sent) == 0)
        pms_json_set_u64(obj, "resync_sent", sent);
    target_view(obj, info);
    pms_json_set_u64(obj, "sessions", sessions_connected(app, info->name));
    return obj;
}

json_t *pms_view_arrays(const struct pms_app *app, const struct pms_gather *g)
{
    json_t *list = json_array();
    struct pms_array_info info;

    for (size_t c = 0; pms_state_array_next(app->state, &c, &info);)
        json_array_append_new(list, pms_view_array(app, g, &info));
    return list;
}

// ---- Nodes ----

static const char *role_name(const struct pms_raft_status *st, uint64_t id)
{
    static const char *const names[] = {"none", "spare", "standby", "voter"};

    for (unsigned i = 0; i < st->members_n; i++)
        if (st->members[i].id == id)
            return names[st->members[i].role];
    return names[0];
}

static const char *node_state(const struct pms_gather *g, const struct pms_gather_node *n)
{
    if (n->answered)
        return "up";
    for (unsigned i = 0; i < g->view.n_strange; i++)
        if (g->view.strange[i] == n->info.id)
            return "incompatible";
    return "down";
}

json_t *pms_view_nodes(const struct pms_app *app, const struct pms_gather *g)
{
    json_t *list = json_array();
    struct pms_raft_status st;

    pms_raft_status_get(app->raft, &st);
    for (unsigned i = 0; i < g->n_nodes; i++) {
        const struct pms_gather_node *n = &g->nodes[i];
        json_t *obj = json_object();

        pms_json_set_str(obj, "name", n->info.name);
        pms_json_set_id(obj, "id", n->info.id);
        pms_json_set_str(obj, "addr", n->info.addr);
        pms_json_set_str(obj, "role", n->info.witness ? "witness" : "data");
        pms_json_set_u64(obj, "feature_level", n->info.feature_level);
        pms_json_set_str(obj, "state", node_state(g, n));
        if (n->answered)
            pms_json_set_str(obj, "version", pms_json_str(n->report, "version", "?"));
        pms_json_set_str(obj, "raft", role_name(&st, n->info.id));
        pms_json_set_bool(obj, "leader", st.leader == n->info.id);
        pms_json_set_bool(obj, "self", n->info.id == app->node.id);
        json_array_append_new(list, obj);
    }
    return list;
}

// ---- Sessions ----

json_t *pms_view_sessions(const struct pms_app *app)
{
    static const char *const keys[] = {"initiator", "isid", "tsih", "peer", "connected"};
    json_t *out = json_array();
    const json_t *list, *session;
    struct pms_array_info info;
    size_t i;

    for (size_t c = 0; pms_state_array_next(app->state, &c, &info);) {
        list = pms_state_sessions_json(app->state, info.name);
        json_array_foreach (list, i, session) {
            json_t *obj = json_object();
            uint64_t node = 0;

            pms_json_set_str(obj, "array", info.name);
            for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
                if (json_object_get(session, keys[k]) != NULL)
                    json_object_set(obj, keys[k], json_object_get(session, keys[k]));
            pms_json_id(session, "node", &node);
            pms_json_set_str(obj, "node", pms_view_node_name(app, node));
            json_array_append_new(out, obj);
        }
    }
    return out;
}

// ---- The whole ----

__attribute__((format(printf, 2, 3))) static void warn(json_t *list, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_array_append_new(list, json_string(text));
}

static void array_warnings(json_t *list, const struct pms_app *app, const struct pms_gather *g,
                           const struct pms_array_info *info)
{
    for (unsigned i = 0; i < info->n_slots; i++) {
        const json_t *r = pms_gather_array(g, info->slots[i].node_id, info->id);
        const char *brick = pms_json_str(r, "brick_error_text", NULL);
        const char *target = pms_json_str(r, "target_error", NULL);
        const char *ailing = pms_json_str(r, "ailing", NULL);
        uint64_t falls, back_ms;

        if (brick != NULL)
            warn(list, "array %s: brick %s on node %s: %s", info->name, pms_json_str(r, "brick_path", "?"),
                 pms_view_node_name(app, info->slots[i].node_id), brick);
        if (falls_get(primary_report(g, info), i, &falls, &back_ms) && back_ms > 0)
            warn(list,
                 "array %s: the copy on node %s fell out %llu times, one soon after the other: it is taken "
                 "back in "
                 "%llu s; look at that node's disk and network",
                 info->name, pms_view_node_name(app, info->slots[i].node_id), (unsigned long long)falls,
                 (unsigned long long)((back_ms + 999) / 1000));
        if (strcmp(pms_json_str(r, "carrier", ""), "lost") == 0)
            warn(list,
                 "array %s: node %s: the portal's interface has no carrier: look at its cable and switch",
                 info->name, pms_view_node_name(app, info->slots[i].node_id));
        if (ailing != NULL)
            warn(list, "array %s: node %s: %s", info->name, pms_view_node_name(app, info->slots[i].node_id),
                 ailing);
        if (target != NULL)
            warn(list, "array %s: target or portal on node %s: %s", info->name,
                 pms_view_node_name(app, info->slots[i].node_id), target);
    }
}

static int node_index(const struct pms_gather *g, uint64_t id)
{
    for (unsigned i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].info.id == id)
            return (int)i;
    return -1;
}

// What node i says of those that it cannot talk to. Of a pair that both answer here the first one tells.
static void version_warnings(json_t *list, const struct pms_gather *g, unsigned i)
{
    const json_t *mismatches = json_object_get(g->nodes[i].report, "mismatches"), *m;
    struct pms_versions own = pms_versions_from_json(json_object_get(g->nodes[i].report, "protocol")), theirs;
    char own_text[PMS_VERSIONS_TEXT_SIZE], theirs_text[PMS_VERSIONS_TEXT_SIZE];
    uint64_t id;
    size_t k;

    json_array_foreach (mismatches, k, m) {
        int other = pms_json_id(m, "node", &id) == 0 ? node_index(g, id) : -1;
        const char *a, *b;

        if (other < 0 || (g->nodes[other].answered && other < (int)i))
            continue;
        theirs = pms_versions_from_json(json_object_get(m, "protocol"));
        a = g->nodes[i].info.name;
        b = g->nodes[other].info.name;
        warn(list,
             "nodes %s and %s cannot talk: %s speaks version %s of the protocol between nodes, %s version "
             "%s; upgrade pms on %s",
             a, b, a, pms_versions_format(own, own_text), b, pms_versions_format(theirs, theirs_text),
             theirs.min > own.max ? a : b);
    }
}

static json_t *warnings(const struct pms_app *app, const struct pms_gather *g)
{
    json_t *list = json_array();
    struct pms_array_info info;
    unsigned data = 0;

    for (size_t c = 0; pms_state_array_next(app->state, &c, &info);)
        array_warnings(list, app, g, &info);
    for (unsigned i = 0; i < g->n_nodes; i++) {
        data += g->nodes[i].info.witness ? 0 : 1;
        version_warnings(list, g, i);
        if (!g->nodes[i].info.witness && pms_json_bool(g->nodes[i].report, "hypervisor", false) &&
            !pms_json_bool(g->nodes[i].report, "probe_reads", false))
            warn(list,
                 "node %s runs in a virtual machine with --read-mode lease: if it is paused and goes on "
                 "later, a "
                 "read may be answered from before the pause; start its pmsd with --read-mode probe",
                 g->nodes[i].info.name);
    }
    if (g->n_nodes == 2)
        warn(list,
             "two nodes cannot outvote each other: everything stops when either is lost; add a witness%s",
             data == 2 ? " (pmsctl cluster join ... --witness)" : " or a data node");
    return list;
}

// It is in a cluster, but nobody has told it yet what was agreed: it is alone since its start, or was never
// brought up to date.
static void silence_put(json_t *body, json_t *list, const struct pms_app *app)
{
    struct pms_net_mismatch m[2 * PMS_NODES_MAX];
    unsigned n = pms_net_mismatches(app->net, m, sizeof(m) / sizeof(m[0]));
    char own[PMS_VERSIONS_TEXT_SIZE], theirs[PMS_VERSIONS_TEXT_SIZE], addr[PMS_ADDR_TEXT_SIZE];

    pms_json_set_str(body, "kind", "no quorum");
    pms_json_set_str(body, "verdict",
                     "no quorum: since its start this node has not heard from its cluster what was agreed");
    pms_json_set_str(body, "next",
                     n > 0 ? "upgrade pms as the warning says"
                           : "start the other nodes, or mend the network");
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < app->node.n_peers; k++)
            if (app->node.peers[k].id == m[i].node)
                warn(list,
                     "the node at %s speaks version %s of the protocol between nodes, this node version %s; "
                     "upgrade pms on %s",
                     pms_addr_format(&app->node.peers[k].addr, addr),
                     pms_versions_format(m[i].versions, theirs), pms_versions_format(pms_node_versions, own),
                     m[i].versions.min > pms_node_versions.max ? "this node" : "that node");
}

json_t *pms_view_status(const struct pms_app *app, const struct pms_gather *g)
{
    static const char *const kinds[] = {"healthy", "resyncing", "degraded",
                                        "waiting", "no quorum", "no cluster"};
    json_t *body = json_object(), *cluster = json_object(), *list = warnings(app, g);
    struct pms_verdict verdict = {0};

    pms_policy_verdict(app->state, &g->view, &verdict);
    pms_json_set_str(body, "verdict", verdict.text);
    pms_json_set_str(body, "next", verdict.next);
    pms_json_set_str(body, "kind", kinds[verdict.kind]);
    pms_json_set_bool(body, "quorum", g->quorum);
    if (pms_state_has_cluster(app->state)) {
        pms_json_set_str(cluster, "id", pms_state_cluster_id(app->state));
        pms_json_set_str(cluster, "name", pms_state_cluster_name(app->state));
        pms_json_set_u64(cluster, "feature_level", pms_state_feature_level(app->state));
    }
    json_object_set_new(body, "upgrade", pms_upgrade_view(app));
    json_object_set_new(body, "cluster", cluster);
    pms_json_set_str(body, "node", app->node.name);
    json_object_set_new(body, "nodes", pms_view_nodes(app, g));
    json_object_set_new(body, "arrays", pms_view_arrays(app, g));
    if (!pms_state_has_cluster(app->state))
        silence_put(body, list, app);
    json_object_set_new(body, "warnings", list);
    return body;
}
