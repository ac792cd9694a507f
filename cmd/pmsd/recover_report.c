// SPDX-License-Identifier: GPL-2.0-or-later
// What pmsctl recover knows before it does anything: the log's last word, who answers, and what each array would
// have left.
#include "base/err.h"
#include "base/json.h"
#include "base/util.h"
#include "cmd/pmsd/recover.h"
#include "datapath/core/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static json_t *node_json(const struct pms_recover_node *n)
{
    json_t *obj = json_object();

    pms_json_set_str(obj, "name", n->info.name);
    pms_json_set_str(obj, "addr", n->info.addr);
    pms_json_set_str(obj, "role", n->info.witness ? "witness" : "data");
    pms_json_set_bool(obj, "voter", n->voter);
    pms_json_set_bool(obj, "self", n->self);
    pms_json_set_str(obj, "state",
                     n->self      ? "this node"
                     : n->answers ? "answers"
                     : n->host_up ? "its host is up, pmsd does not run there"
                                  : "does not answer");
    return obj;
}

// The highest epoch that the own brick has seen. 0, or a negative code.
static int brick_floor(const struct pms_recover *r, const struct pms_array_info *a,
                       const struct pms_slot_info *slot, char path[512], uint64_t *floor)
{
    uint8_t area[2 * PMS_META_PAGE_BYTES];
    struct pms_meta meta;
    ssize_t n;
    int fd, rv = 0;

    if (slot->brick[0] != '\0')
        snprintf(path, 512, "%s", slot->brick);
    else
        snprintf(path, 512, "%s/%s.brick", r->brick_dir, a->name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = pread(fd, area, sizeof(area), 0);
    if (n != (ssize_t)sizeof(area))
        rv = n < 0 ? -errno : PMS_ECORRUPT;
    close(fd);
    if (rv == 0)
        rv = pms_meta_super_load(area, &meta);
    if (rv == 0 &&
        (meta.array != a->id || memcmp(meta.cluster, r->node.cluster.b, sizeof(meta.cluster)) != 0))
        rv = PMS_EIDENTITY;
    if (rv == 0)
        *floor = meta.floor;
    return rv;
}

// Does not answer; or was given up by a recovery that was begun, and then it matters no more what it does.
static bool is_lost(const struct pms_recover *r, const struct pms_recover_node *n)
{
    if (!r->node.recovering)
        return !n->self && !n->answers;
    for (unsigned i = 0; i < r->node.n_lost; i++)
        if (r->node.lost[i] == n->info.id)
            return true;
    return false;
}

static const struct pms_recover_node *node_of(const struct pms_recover *r, uint64_t id)
{
    for (unsigned i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].info.id == id)
            return &r->nodes[i];
    return NULL;
}

static void here_put(const struct pms_recover *r, const struct pms_array_info *a, json_t *obj)
{
    int slot = pms_array_slot_of(a, r->node.id);
    char path[512], text[200];
    uint64_t floor = 0;
    int rv;

    if (slot < 0) {
        pms_json_set_str(obj, "here", "no copy");
        return;
    }
    pms_json_set_str(obj, "here", a->slots[slot].in_sync ? "in sync" : "stale");
    rv = brick_floor(r, a, &a->slots[slot], path, &floor);
    pms_json_set_str(obj, "brick", path);
    if (rv != 0) {
        snprintf(text, sizeof(text), "this brick cannot be used: %s", pms_err_text(rv));
        pms_json_set_str(obj, "doubt", text);
    } else if (floor > a->epoch + 1) {
        snprintf(
            text, sizeof(text),
            "this brick has seen epoch %llu: this node's log is not up to date, and the lost nodes may have "
            "acknowledged writes that this copy has not",
            (unsigned long long)floor);
        pms_json_set_str(obj, "doubt", text);
    }
}

static json_t *array_json(const struct pms_recover *r, const struct pms_array_info *a)
{
    json_t *obj = json_object(), *in_sync = json_array(), *left = json_array(), *stale = json_array();
    const struct pms_recover_node *primary = NULL;

    if (a->primary >= 0)
        primary = node_of(r, a->slots[a->primary].node_id);
    for (unsigned i = 0; i < a->n_slots; i++) {
        const struct pms_recover_node *n = node_of(r, a->slots[i].node_id);

        if (n == NULL)
            continue;
        if (a->slots[i].in_sync)
            json_array_append_new(in_sync, json_string(n->info.name));
        if (!is_lost(r, n))
            json_array_append_new(a->slots[i].in_sync ? left : stale, json_string(n->info.name));
    }
    pms_json_set_str(obj, "name", a->name);
    pms_json_set_u64(obj, "epoch", a->epoch);
    json_object_set_new(obj, "primary", primary != NULL ? json_string(primary->info.name) : json_null());
    json_object_set_new(obj, "in_sync", in_sync);
    json_object_set_new(obj, "in_sync_left", left);
    json_object_set_new(obj, "stale_left", stale);
    pms_json_set_str(obj, "then",
                     a->phase != PMS_ARRAY_READY  ? "removed"
                     : json_array_size(left) > 0  ? "serves"
                     : json_array_size(stale) > 0 ? "waits"
                                                  : "lost");
    here_put(r, a, obj);
    return obj;
}

json_t *pms_recover_report(const struct pms_recover *r)
{
    json_t *root = json_object(), *raft = json_object(), *nodes = json_array(), *arrays = json_array(),
           *give_up = json_array();
    struct pms_array_info info;
    char why[512], names[PMS_NODES_MAX * (PMS_NAME_MAX + 1) + 1] = "";
    const char *cluster = pms_state_cluster_name(r->state);

    pms_json_set_str(root, "cluster", cluster != NULL ? cluster : "?");
    pms_json_set_str(root, "node", r->node.name);
    pms_json_set_bool(root, "interrupted", r->node.recovering);
    pms_json_set_u64(raft, "term", r->log.term);
    pms_json_set_u64(raft, "index", r->log.index_last);
    pms_json_set_u64(raft, "index_term", r->log.term_last);
    json_object_set_new(root, "raft", raft);
    for (unsigned i = 0; i < r->n_nodes; i++) {
        const struct pms_recover_node *n = &r->nodes[i];

        json_array_append_new(nodes, node_json(n));
        if (!is_lost(r, n))
            continue;
        json_array_append_new(give_up, json_string(n->info.name));
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] != '\0' ? "," : "",
                 n->info.name);
    }
    for (size_t c = 0; pms_state_array_next(r->state, &c, &info);)
        json_array_append_new(arrays, array_json(r, &info));
    json_object_set_new(root, "nodes", nodes);
    json_object_set_new(root, "give_up", give_up);
    json_object_set_new(root, "arrays", arrays);
    json_object_set_new(root, "refused",
                        pms_recover_check(r, names, why, sizeof(why)) != 0 ? json_string(why) : json_null());
    return root;
}
