// SPDX-License-Identifier: GPL-2.0-or-later
// The cluster's health in words: the worst thing there is, and what to do about it.
//
// From bad to good: no cluster, no quorum, waiting, degraded, resyncing, healthy. Of several arrays that fare
// equally badly the first by name is told, with the number of the others.
#include "consensus/core/policy.h"
#include "consensus/core/policy_internal.h"
#include "consensus/core/state_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *pms_health_name(enum pms_health health)
{
    static const char *const names[] = {"healthy",  "resyncing", "degraded", "waiting",
                                        "creating", "deleting",  "unknown"};

    PMS_CHECK(health < sizeof(names) / sizeof(names[0]));
    return names[health];
}

static const struct pms_policy_array *report_find(const struct pms_policy_view *view, uint64_t array_id)
{
    for (size_t i = 0; i < view->n_arrays; i++)
        if (view->arrays[i].array_id == array_id)
            return &view->arrays[i];
    return NULL;
}

static const struct pms_policy_brick *brick_bad(const struct pms_policy_view *view, uint64_t array_id,
                                                uint64_t node_id)
{
    for (size_t i = 0; i < view->n_bricks; i++)
        if (view->bricks[i].array_id == array_id && view->bricks[i].node_id == node_id)
            return &view->bricks[i];
    return NULL;
}

static bool slot_good(const struct pms_array_info *array, unsigned slot, const struct pms_policy_view *view)
{
    return array->slots[slot].in_sync && pms_view_alive(view, array->slots[slot].node_id);
}

static unsigned slots_good(const struct pms_array_info *array, const struct pms_policy_view *view)
{
    unsigned n = 0;

    for (unsigned i = 0; i < array->n_slots; i++)
        n += slot_good(array, i, view) ? 1 : 0;
    return n;
}

enum pms_health pms_policy_array_health(const struct pms_array_info *array,
                                        const struct pms_policy_view *view)
{
    const struct pms_policy_array *report = report_find(view, array->id);

    if (array->phase == PMS_ARRAY_CREATING)
        return PMS_CREATING;
    if (array->phase == PMS_ARRAY_DELETING)
        return PMS_DELETING;
    if (!view->quorum && report == NULL)
        return PMS_UNKNOWN;
    if (!slot_good(array, (unsigned)array->primary, view) || (report != NULL && report->waiting))
        return PMS_WAITING;
    if (slots_good(array, view) == array->n_slots)
        return PMS_HEALTHY;
    return report != NULL && report->resyncing ? PMS_RESYNCING : PMS_DEGRADED;
}

// ---- Words ----

__attribute__((format(printf, 2, 3))) static void say(char text[PMS_VERDICT_SIZE], const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text + n, PMS_VERDICT_SIZE - n, fmt, ap);
    va_end(ap);
}

struct survey {
    unsigned nodes, alive, data_nodes, witnesses, arrays;
    struct pms_node_info down; // the first node that does not answer, if alive < nodes
    unsigned count[PMS_UNKNOWN + 1];
    struct pms_array_info first[PMS_UNKNOWN + 1]; // of each health, by name
    unsigned serving;                             // arrays whose I/O goes on
    struct pms_array_info first_serving;
};

static void survey_make(const struct pms_state *st, const struct pms_policy_view *view, struct survey *s)
{
    struct pms_array_info array;
    struct pms_node_info node;

    memset(s, 0, sizeof(*s));
    for (size_t c = 0; pms_state_node_next(st, &c, &node);) {
        s->nodes++;
        s->witnesses += node.witness ? 1 : 0;
        s->data_nodes += node.witness ? 0 : 1;
        if (pms_view_alive(view, node.id))
            s->alive++;
        else if (s->down.id == 0)
            s->down = node;
    }
    for (size_t c = 0; pms_state_array_next(st, &c, &array);) {
        enum pms_health health = pms_policy_array_health(&array, view);

        s->arrays++;
        if (s->count[health]++ == 0)
            s->first[health] = array;
        if ((health == PMS_HEALTHY || health == PMS_RESYNCING || health == PMS_DEGRADED) && s->serving++ == 0)
            s->first_serving = array;
    }
}

static void say_more(char text[PMS_VERDICT_SIZE], unsigned count)
{
    if (count > 1)
        say(text, " (and %u more)", count - 1);
}

static void say_others(char text[PMS_VERDICT_SIZE], const struct survey *s, enum pms_health health)
{
    say_more(text, s->count[health]);
}

// What becomes of the arrays meanwhile, as far as their primaries can be asked.
static void say_arrays_without_quorum(const struct pms_state *st, const struct survey *s,
                                      struct pms_verdict *v)
{
    const struct pms_array_info *unknown = &s->first[PMS_UNKNOWN];
    char label[20];

    if (s->serving > 0) {
        say(v->text, "; array %s", s->first_serving.name);
        say_more(v->text, s->serving);
        say(v->text, " is still served");
    }
    if (s->count[PMS_WAITING] > 0) {
        say(v->text, "; I/O of array %s", s->first[PMS_WAITING].name);
        say_others(v->text, s, PMS_WAITING);
        say(v->text, " waits");
    }
    if (s->count[PMS_UNKNOWN] > 0) {
        say(v->text, "; nothing is known of array %s", unknown->name);
        say_others(v->text, s, PMS_UNKNOWN);
        say(v->text, ": its primary %s does not answer",
            pms_node_label(st, unknown->slots[unknown->primary].node_id, label));
    }
}

// Why the node does not answer, and what to do.
static bool is_strange(const struct pms_policy_view *view, uint64_t node_id)
{
    for (unsigned i = 0; i < view->n_strange; i++)
        if (view->strange[i] == node_id)
            return true;
    return false;
}

static const char *silence_name(const struct pms_policy_view *view, uint64_t node_id)
{
    return is_strange(view, node_id) ? "runs a version of pms that cannot talk to this node's" : "is down";
}

static void say_no_quorum(const struct pms_state *st, const struct pms_policy_view *view,
                          const struct survey *s, struct pms_verdict *v)
{
    v->kind = PMS_VERDICT_NO_QUORUM;
    say(v->text,
        "no quorum: %u of %u nodes reach each other; nothing can be changed, and nobody new can log in",
        s->alive, s->nodes);
    say_arrays_without_quorum(st, s, v);
    if (s->alive == s->nodes)
        say(v->next,
            "an election should end this in a moment; if not, look at the network and the nodes' logs");
    else if (is_strange(view, s->down.id))
        say(v->next, "upgrade pms: node %s %s", s->down.name, silence_name(view, s->down.id));
    else
        say(v->next, "start node %s again, or mend the network (if it is gone for ever: pmsctl recover)",
            s->down.name);
    if (s->alive < s->nodes && s->nodes <= PMS_VOTERS_MAX) // then all vote
        say(v->next, "; %u of %u nodes are needed", s->nodes / 2 + 1, s->nodes);
    if (s->data_nodes == 2 && s->witnesses == 0)
        say(v->next, "; a witness would have kept it going");
}

// True: the cause is a brick; it was said, and what to do.
static bool say_brick(const struct pms_policy_view *view, const struct pms_array_info *array, unsigned slot,
                      const struct pms_node_info *node, struct pms_verdict *v)
{
    const struct pms_policy_brick *bad = brick_bad(view, array->id, array->slots[slot].node_id);

    if (bad == NULL)
        return false;
    say(v->text, ": node %s cannot use its brick %s: %s", node->name, bad->path, bad->error);
    if (!array->slots[slot].zeroed) { // a new place, not filled yet: nothing of the array was ever there
        say(v->next, "clear that place, or name another: pmsctl array replace %s --node %s --brick PATH",
            array->name, node->name);
        return true;
    }
    say(v->next, "put the right file or disk of array %s back in its place on node %s", array->name,
        node->name);
    if (!array->slots[slot].in_sync) // else nothing else has the data
        say(v->next, ", or give the copy a new one: pmsctl array replace %s --node %s [--brick PATH]",
            array->name, node->name);
    return true;
}

// Its good copies were given up with their nodes.
static void say_lost(const struct pms_state *st, const struct pms_array_info *array, struct pms_verdict *v)
{
    struct pms_node_info node;

    say(v->text, ": its good copies were lost with nodes that were given up");
    for (unsigned i = 0; i < array->n_slots; i++) {
        if (pms_state_node_get(st, array->slots[i].node_id, &node) != 0)
            continue;
        say(v->next,
            "take the stale copy on node %s for good, which loses what was written since it fell out of sync "
            "(pmsctl array recover %s --slot %s), or delete the array",
            node.name, array->name, node.name);
        return;
    }
    say(v->next, "no copy is left: delete the array (pmsctl array delete %s)", array->name);
}

static void say_waiting(const struct pms_state *st, const struct pms_policy_view *view,
                        const struct survey *s, struct pms_verdict *v)
{
    const struct pms_array_info *array = &s->first[PMS_WAITING];
    unsigned good = slots_good(array, view);
    struct pms_node_info node;
    char label[20];

    v->kind = PMS_VERDICT_WAITING;
    say(v->text, "waiting: I/O of array %s waits", array->name);
    say_others(v->text, s, PMS_WAITING);
    if (pms_array_is_lost(st, array)) {
        say_lost(st, array, v);
        return;
    }
    if (slot_good(array, (unsigned)array->primary, view)) {
        if (pms_state_node_get(st, array->slots[array->primary].node_id, &node) == 0)
            say_brick(view, array, (unsigned)array->primary, &node, v);
        return;
    }
    say(v->text, ": its primary %s does not answer",
        pms_node_label(st, array->slots[array->primary].node_id, label));
    if (good >= pms_array_copies_min(array)) {
        say(v->text, ", another node is taking over");
        return;
    }
    say(v->next, "bring back node ");
    for (unsigned i = 0, told = 0; i < array->n_slots; i++)
        if (array->slots[i].in_sync && !slot_good(array, i, view))
            say(v->next, "%s%s", told++ > 0 ? " or " : "",
                pms_node_label(st, array->slots[i].node_id, label));
    say(v->next, ": no other node has a good copy of array %s", array->name);
}

// The first slot that is not good says what is missing.
static void say_degraded(const struct pms_state *st, const struct pms_policy_view *view,
                         const struct survey *s, struct pms_verdict *v)
{
    const struct pms_array_info *array = &s->first[PMS_DEGRADED];
    struct pms_node_info node;
    unsigned slot = 0;

    v->kind = PMS_VERDICT_DEGRADED;
    while (slot_good(array, slot, view))
        slot++;
    say(v->text, "degraded: array %s has %u of %u copies", array->name, slots_good(array, view),
        array->n_slots);
    say_others(v->text, s, PMS_DEGRADED);
    if (pms_state_node_get(st, array->slots[slot].node_id, &node) != 0) {
        say(v->text, ": slot %u is on no node of the cluster", slot);
        say(v->next, "give slot %u of array %s a place on another data node", slot, array->name);
    } else if (!pms_view_alive(view, node.id)) {
        say(v->text, ": node %s %s", node.name, silence_name(view, node.id));
        if (is_strange(view, node.id))
            say(v->next, "upgrade pms as the warning says: node %s resyncs by itself then", node.name);
        else
            say(v->next, "bring node %s back: it resyncs by itself", node.name);
    } else if (!say_brick(view, array, slot, &node, v)) {
        say(v->text, ": node %s is up, and resyncs next", node.name);
    }
}

static void say_resyncing(const struct pms_policy_view *view, const struct survey *s, struct pms_verdict *v)
{
    const struct pms_array_info *array = &s->first[PMS_RESYNCING];
    const struct pms_policy_array *report = report_find(view, array->id);

    v->kind = PMS_VERDICT_RESYNCING;
    say(v->text, "resyncing: array %s is at %u %%", array->name, report->percent);
    if (report->eta_s > 0)
        say(v->text, ", about %llu s left", (unsigned long long)report->eta_s);
    say_others(v->text, s, PMS_RESYNCING);
}

static void say_healthy(const struct survey *s, struct pms_verdict *v)
{
    unsigned serving = s->count[PMS_HEALTHY];

    v->kind = PMS_VERDICT_HEALTHY;
    say(v->text, "healthy: %u of %u nodes up, ", s->alive, s->nodes);
    if (s->arrays == 0)
        say(v->text, "no array yet");
    else
        say(v->text, "%u %s with all copies in sync", serving, serving == 1 ? "array" : "arrays");
    if (s->count[PMS_CREATING] > 0)
        say(v->text, ", %u being created", s->count[PMS_CREATING]);
    if (s->count[PMS_DELETING] > 0)
        say(v->text, ", %u being deleted", s->count[PMS_DELETING]);
}

// What the layout of the cluster itself lacks, however well it is.
static void say_layout(const struct survey *s, struct pms_verdict *v)
{
    if (v->next[0] != '\0')
        return;
    if (s->nodes == 1) {
        say(v->text, "; a single node protects nothing");
        say(v->next, "join a second data node and a witness (pmsctl cluster join)");
    } else if (s->nodes == 2) {
        say(v->text, "; losing either of the two nodes stops I/O");
        say(v->next, "join a %s",
            s->witnesses == 0 ? "witness (pmsctl cluster join ... --witness)" : "second data node");
    } else if (s->arrays == 0) {
        say(v->next, "make an array (pmsctl array create)");
    }
}

void pms_policy_verdict(const struct pms_state *st, const struct pms_policy_view *view,
                        struct pms_verdict *out)
{
    struct survey s;

    memset(out, 0, sizeof(*out));
    if (!pms_state_has_cluster(st)) {
        out->kind = PMS_VERDICT_NO_CLUSTER;
        say(out->text, "no cluster: this node belongs to none yet");
        say(out->next, "run pmsctl cluster init, or pmsctl cluster join");
        return;
    }
    survey_make(st, view, &s);
    if (!view->quorum) {
        say_no_quorum(st, view, &s, out);
        return;
    }
    if (s.count[PMS_WAITING] > 0) {
        say_waiting(st, view, &s, out);
    } else if (s.count[PMS_DEGRADED] > 0) {
        say_degraded(st, view, &s, out);
    } else if (s.count[PMS_RESYNCING] > 0) {
        say_resyncing(view, &s, out);
    } else if (s.alive < s.nodes) {
        out->kind = PMS_VERDICT_DEGRADED;
        say(out->text, "degraded: %s %s %s", s.down.witness ? "witness" : "node", s.down.name,
            silence_name(view, s.down.id));
        if (is_strange(view, s.down.id))
            say(out->next, "upgrade pms as the warning says");
        else
            say(out->next, "bring it back, or run pmsctl cluster leave --node %s if it is gone for good",
                s.down.name);
    } else {
        say_healthy(&s, out);
    }
    say_layout(&s, out);
}
