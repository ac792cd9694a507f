// SPDX-License-Identifier: GPL-2.0-or-later
// Commands about the feature level: what each node supports, and raising the cluster's.
//
// A node may come to support less again (an older build was put back) as long as the cluster's level allows
// it. The level only rises, and only to what every node says that it supports, those that are down included.
#include "consensus/core/state_internal.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>

int pms_field_level(struct pms_apply *a, const json_t *obj, const char *key, unsigned *out)
{
    uint64_t level = 1;

    if (json_object_get(obj, key) != NULL) {
        int rv = pms_field_u64(a, obj, key, 1, PMS_LEVEL_LIMIT, &level);

        if (rv != 0)
            return rv;
    }
    *out = (unsigned)level;
    return 0;
}

int pms_level_suffices(struct pms_apply *a, const char *name, unsigned supports)
{
    unsigned level = pms_state_feature_level(a->st);

    if (supports >= level)
        return 0;
    return pms_refuse(
        a, PMS_EVERSION,
        "the cluster is at feature level %u, and node %s supports only %u: install the newer pms "
        "there",
        level, name, supports);
}

int pms_on_node_level(struct pms_apply *a)
{
    struct pms_node_info node;
    unsigned supports = 1;
    int rv = pms_field_node(a, a->cmd, "id", &node);

    if (rv == 0)
        rv = pms_field_level(a, a->cmd, "supports", &supports);
    if (rv == 0)
        rv = pms_level_suffices(a, node.name, supports);
    if (rv != 0)
        return rv;
    node.feature_level = supports;
    pms_node_put(a->st, &node);
    return 0;
}

// The first node by name that supports less, and how many more.
static int refuse_behind(struct pms_apply *a, unsigned level)
{
    struct pms_node_info node, first = {0};
    char more[40] = "";
    unsigned n = 0;

    for (size_t c = 0; pms_state_node_next(a->st, &c, &node);)
        if (node.feature_level < level && n++ == 0)
            first = node;
    if (n == 0)
        return 0;
    if (n > 1)
        snprintf(more, sizeof(more), " (and %u more %s)", n - 1, n == 2 ? "node" : "nodes");
    return pms_refuse(a, PMS_EREFUSED,
                      "node %s supports feature level %u, not %u%s: install the newer pms there, and restart "
                      "its pmsd",
                      first.name, first.feature_level, level, more);
}

int pms_on_cluster_upgrade(struct pms_apply *a)
{
    unsigned now = pms_state_feature_level(a->st), level = 1;
    int rv = pms_field_level(a, a->cmd, "level", &level);

    if (rv == 0 && level < now)
        rv = pms_refuse(a, PMS_EREFUSED, "the cluster is at feature level %u, and that never goes down", now);
    if (rv == 0)
        rv = refuse_behind(a, level);
    if (rv != 0)
        return rv;
    PMS_MUST(pms_json_set_u64(a->st->cluster, "feature_level", level));
    PMS_MUST(pms_json_set_u64(a->result, "from", now));
    PMS_MUST(pms_json_set_u64(a->result, "to", level));
    return 0;
}
