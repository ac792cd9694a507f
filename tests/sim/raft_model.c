// SPDX-License-Identifier: GPL-2.0-or-later
// Raft as its users see it: one linearizable log, late and unknown outcomes, replay after a restart.
#include "tests/sim/raft_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "tests/sim/sim.h"

#define ARRAY_NAME "a0"

static const char *const kind_names[] = {
    [PMS_DP_TAKEOVER] = "takeover", [PMS_DP_REFRESH] = "refresh",   [PMS_DP_EJECT] = "eject",
    [PMS_DP_ADMIT] = "admit",       [PMS_DP_HANDOVER] = "handover",
};

struct proposal {
    struct sim_event ev;
    char *command;
    const char *kind; // for the story
    int from;         // who proposes
    int leader;       // who accepted it; -1: nobody yet
    unsigned *under_way;
};

static void conf_from(const struct pms_state *st, uint64_t array, struct pms_dp_conf *out)
{
    struct pms_array_info info;

    *out = (struct pms_dp_conf){0};
    if (pms_state_array_get(st, array, &info) != 0 || info.phase != PMS_ARRAY_READY)
        return;
    out->epoch = info.epoch;
    out->primary = (uint8_t)info.primary;
    out->n_slots = (uint8_t)info.n_slots;
    out->in_sync = (uint8_t)info.in_sync;
    out->write_cache = info.write_cache;
    out->cache_used = info.cache_used;
    for (unsigned i = 0; i < info.n_slots; i++) {
        out->node[i] = info.slots[i].node_id;
        out->incarnation[i] = (out->in_sync >> i & 1) != 0 ? info.slots[i].incarnation : 0;
    }
}

// ---- Connectivity and leadership. ----

static bool runs(const struct sim *sim, int node)
{
    return sim->nodes[node].up && !sim->nodes[node].paused;
}

bool raft_has_quorum(const struct sim *sim, int node)
{
    unsigned votes = 0;

    if (!runs(sim, node))
        return false;
    for (unsigned i = 0; i < sim->n_nodes; i++)
        votes += runs(sim, (int)i) && ((int)i == node || net_connected(sim, node, (int)i));
    return votes * 2 > sim->n_nodes;
}

// n hears the leader, who has a quorum.
static bool reaches_leader(const struct sim *sim, const struct node *n)
{
    int l = sim->raft.leader;

    return l >= 0 && raft_has_quorum(sim, l) && runs(sim, n->index) &&
           (l == n->index || net_connected(sim, l, n->index));
}

static void on_raft_tick(struct sim *sim, uint64_t unused)
{
    struct raft *r = &sim->raft;
    struct world *w = &sim->world;

    if (r->leader >= 0 && !raft_has_quorum(sim, r->leader)) {
        story(sim, "raft: %s leads no more", sim->nodes[r->leader].name);
        r->leader = -1;
        r->elect_at = w->now + world_range(w, 150, 500) * SIM_MS;
    }
    if (r->leader < 0 && w->now >= r->elect_at) {
        int start = (int)world_below(w, sim->n_nodes);

        for (unsigned i = 0; i < sim->n_nodes && r->leader < 0; i++) {
            int candidate = (start + (int)i) % (int)sim->n_nodes;

            if (raft_has_quorum(sim, candidate))
                r->leader = candidate;
        }
        r->elect_at = w->now + world_range(w, 100, 300) * SIM_MS;
        if (r->leader >= 0)
            story(sim, "raft: %s leads", sim->nodes[r->leader].name);
    }
    world_call(w, 20 * SIM_MS, on_raft_tick, unused);
}

// ---- The log. ----

// Applies to the true state and remembers the snapshot. The result is the caller's.
static char *log_append(struct sim *sim, const char *command)
{
    struct raft *r = &sim->raft;
    struct raft_entry *e;
    char *result;

    if (r->n == r->cap) {
        r->cap = r->cap != 0 ? 2 * r->cap : 64;
        r->log = realloc(r->log, r->cap * sizeof *r->log);
        PMS_CHECK(r->log != NULL);
    }
    e = &r->log[r->n++];
    e->command = strdup(command);
    PMS_CHECK(e->command != NULL);
    result = pms_state_apply(r->state, e->command, strlen(e->command), r->n);
    e->snapshot = pms_state_encode(r->state, &e->snapshot_len);
    conf_from(r->state, sim->array_id, &r->conf);
    return result;
}

static void apply_later(struct sim *sim, struct node *n, uint64_t delay_ns);

static void commit(struct sim *sim, const struct proposal *p)
{
    struct raft *r = &sim->raft;
    struct pms_dp_conf old = r->conf;
    char *result = log_append(sim, p->command);

    if (r->conf.epoch != old.epoch) {
        r->changed++;
        story(sim, "raft: entry %zu: %s by %s: epoch %llu, primary slot %u, in sync %#x", r->n, p->kind,
              sim->nodes[p->from].name, (unsigned long long)r->conf.epoch, r->conf.primary, r->conf.in_sync);
        audit_transition(sim, &old);
        faults_on_transition(sim, &sim->nodes[p->from]);
    } else if (r->conf.write_cache != old.write_cache) {
        story(sim, "raft: entry %zu: the write cache is %s", r->n, r->conf.write_cache ? "on" : "off");
    } else {
        story(sim, "raft: entry %zu: %s by %s refused: %s", r->n, p->kind, sim->nodes[p->from].name, result);
    }
    free(result);
    for (unsigned i = 0; i < sim->n_nodes; i++)
        apply_later(sim, &sim->nodes[i],
                    world_skewed(&sim->world, 200 * SIM_US, sim->plan.apply_lag_us * SIM_US));
}

static void drop_proposal(struct sim_event *ev)
{
    struct proposal *p = pms_list_entry(ev, struct proposal, ev);

    --*p->under_way;
    free(p->command);
    free(p);
}

// An entry of a deposed leader that the next one may or may not have.
static void on_straggler(struct sim *sim, struct sim_event *ev)
{
    struct proposal *p = pms_list_entry(ev, struct proposal, ev);

    if (sim->raft.leader < 0) {
        world_add(&sim->world, ev, 50 * SIM_MS);
        return;
    }
    commit(sim, p);
    drop_proposal(ev);
}

static void on_replicated(struct sim *sim, struct sim_event *ev)
{
    struct proposal *p = pms_list_entry(ev, struct proposal, ev);
    struct world *w = &sim->world;

    if (sim->raft.leader == p->leader && raft_has_quorum(sim, p->leader)) {
        commit(sim, p);
        if (world_chance(w, 1, 40))
            commit(sim, p); // the proposer sent it again
        drop_proposal(ev);
    } else if (world_chance(w, 1, 2)) {
        story(sim, "raft: %s of %s is lost with its leader", p->kind, sim->nodes[p->from].name);
        drop_proposal(ev);
    } else {
        ev->run = on_straggler;
        world_add(w, ev, world_skewed(w, 10 * SIM_MS, 3 * SIM_S));
    }
}

static void on_proposed(struct sim *sim, struct sim_event *ev)
{
    struct proposal *p = pms_list_entry(ev, struct proposal, ev);
    struct world *w = &sim->world;

    if (!reaches_leader(sim, &sim->nodes[p->from]) || world_chance(w, sim->plan.raft_losses, 1000)) {
        story(sim, "raft: %s of %s finds no leader", p->kind, sim->nodes[p->from].name);
        drop_proposal(ev);
        return;
    }
    p->leader = sim->raft.leader;
    ev->run = on_replicated;
    world_add(w, ev, world_skewed(w, 500 * SIM_US, sim->plan.raft_commit_us * SIM_US));
}

static void propose(struct sim *sim, struct node *n, char *command, const char *kind)
{
    struct proposal *p = calloc(1, sizeof *p);
    struct world *w = &sim->world;

    PMS_CHECK(p != NULL);
    p->ev = (struct sim_event){.node = -1, .run = on_proposed, .drop = drop_proposal};
    p->command = command;
    p->kind = kind;
    p->from = n->index;
    p->leader = -1;
    sim->raft.proposals++;
    p->under_way = &sim->raft.under_way;
    ++*p->under_way;
    world_add(w, &p->ev, world_skewed(w, 50 * SIM_US, 3 * SIM_MS));
}

static char *transition_command(const struct sim *sim, struct node *n, const char *kind, uint64_t epoch,
                                unsigned primary, unsigned in_sync, const uint64_t *incarnation)
{
    char id[17], client[17], entry[17], set[256] = "", *command = NULL;
    size_t at = 0;

    for (unsigned i = 0; i < PMS_SLOTS_MAX; i++)
        if ((in_sync >> i & 1) != 0)
            at += (size_t)snprintf(set + at, sizeof set - at, "%s{\"slot\":%u,\"incarnation\":\"%s\"}",
                                   at != 0 ? "," : "", i, pms_id_format(incarnation[i], entry));
    PMS_CHECK(
        asprintf(
            &command,
            "{\"op\":\"array_transition\",\"client\":\"%s\",\"seq\":%llu,\"array\":\"%s\",\"kind\":\"%s\","
            "\"epoch\":%llu,\"primary\":%u,\"in_sync\":[%s]}",
            pms_id_format(n->id, client), (unsigned long long)++n->command_seq,
            pms_id_format(sim->array_id, id), kind, (unsigned long long)epoch, primary, set) > 0);
    return command;
}

void raft_propose(struct sim *sim, struct node *n, const struct pms_dp_action *a)
{
    const char *kind = kind_names[a->propose.kind];

    story(sim, "%s proposes %s: expects e%llu, primary slot %u, in sync %#x", n->name, kind,
          (unsigned long long)a->propose.epoch, a->propose.primary, a->propose.in_sync);
    propose(sim, n,
            transition_command(sim, n, kind, a->propose.epoch, a->propose.primary, a->propose.in_sync,
                               a->propose.incarnation),
            kind);
    faults_on_proposal(sim, n);
}

void raft_propose_refresh(struct sim *sim, struct node *n)
{
    const struct pms_dp_conf *c = pms_dp_conf_get(n->dp);

    propose(sim, n, transition_command(sim, n, "refresh", c->epoch, c->primary, c->in_sync, c->incarnation),
            "refresh");
}

void raft_propose_cache(struct sim *sim, struct node *n, bool on)
{
    char id[17], client[17], *command = NULL;

    PMS_CHECK(
        asprintf(&command,
                 "{\"op\":\"array_set\",\"client\":\"%s\",\"seq\":%llu,\"array\":\"%s\",\"write_cache\":%s}",
                 pms_id_format(n->id, client), (unsigned long long)++n->command_seq,
                 pms_id_format(sim->array_id, id), on ? "true" : "false") > 0);
    propose(sim, n, command, on ? "cache on" : "cache off");
}

// ---- Applying at a node. ----

static void load_snapshot(struct sim *sim, struct node *n, size_t applied)
{
    struct raft_entry *e = &sim->raft.log[applied - 1];
    int rc;

    pms_state_destroy(n->state);
    n->state = NULL;
    rc = pms_state_decode(e->snapshot, e->snapshot_len, &n->state);
    PMS_CHECK_MSG(rc == 0, "a snapshot does not load: %s", pms_err_name(rc));
    n->applied = applied;
}

static void tell_dp(struct sim *sim, struct node *n, bool live)
{
    struct pms_dp_conf conf;

    conf_from(n->state, sim->array_id, &conf);
    if (conf.epoch > 0)
        node_conf(sim, n, &conf, live);
}

static void drop_apply(struct sim_event *ev)
{
    free(ev);
}

static void on_apply(struct sim *sim, struct sim_event *ev)
{
    struct node *n = &sim->nodes[ev->node];
    struct raft *r = &sim->raft;
    struct world *w = &sim->world;
    bool news = false;

    free(ev);
    n->apply_due = false;
    if (!reaches_leader(sim, n)) {
        apply_later(sim, n, 20 * SIM_MS);
        return;
    }
    if (n->barrier == SIZE_MAX) {
        n->barrier = r->n;
        news = true;
    }
    if (n->applied + 2 <= r->n && world_chance(w, 1, 12)) {
        story(sim, "%s is sent a snapshot of entry %zu", n->name, r->n);
        load_snapshot(sim, n, r->n);
        news = true;
    } else if (n->applied < r->n) {
        struct raft_entry *e = &r->log[n->applied];

        free(pms_state_apply(n->state, e->command, strlen(e->command), ++n->applied));
        news = true;
    }
    if (n->applied < r->n)
        apply_later(sim, n, world_skewed(w, 20 * SIM_US, 2 * SIM_MS));
    if (news)
        tell_dp(sim, n, n->applied >= n->barrier);
}

static void apply_later(struct sim *sim, struct node *n, uint64_t delay_ns)
{
    struct sim_event *ev;

    if (n->apply_due || !n->up)
        return;
    ev = calloc(1, sizeof *ev);
    PMS_CHECK(ev != NULL);
    *ev = (struct sim_event){.node = n->index, .life = n->life, .run = on_apply, .drop = drop_apply};
    n->apply_due = true;
    world_add(&sim->world, ev, delay_ns);
}

// The process begins with its last snapshot and replays what it is sure of.
void raft_node_up(struct sim *sim, struct node *n)
{
    size_t back = (size_t)world_skewed(&sim->world, 0, 8);
    size_t from = n->applied > sim->raft.n_setup + back ? n->applied - back : sim->raft.n_setup;

    n->barrier = SIZE_MAX;
    n->apply_due = false;
    load_snapshot(sim, n, from);
    tell_dp(sim, n, false);
    apply_later(sim, n, world_range(&sim->world, SIM_MS, 100 * SIM_MS));
}

void raft_node_down(struct sim *sim, struct node *n)
{
    (void)sim;
    pms_state_destroy(n->state);
    n->state = NULL;
    n->apply_due = false;
}

void raft_check_equal(struct sim *sim)
{
    const struct raft_entry *last = &sim->raft.log[sim->raft.n - 1];

    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *n = &sim->nodes[i];
        size_t len;
        char *snapshot;

        if (!n->up || n->applied != sim->raft.n)
            continue;
        snapshot = pms_state_encode(n->state, &len);
        if (len != last->snapshot_len || memcmp(snapshot, last->snapshot, len) != 0)
            sim_violation(sim, "%s: the applied cluster state differs from that of the log", n->name);
        free(snapshot);
    }
}

// ---- Before time begins. ----

static void setup_command(struct sim *sim, const char *fmt, ...)
{
    static const char ok[] = "\"ok\":true";
    char text[2048], *result;
    va_list ap;
    int at = snprintf(text, sizeof text, "{\"client\":\"00000000000000ff\",\"seq\":%zu,", sim->raft.n + 1);

    va_start(ap, fmt);
    vsnprintf(text + at, sizeof text - (size_t)at, fmt, ap);
    va_end(ap);
    result = log_append(sim, text);
    PMS_CHECK_MSG(strstr(result, ok) != NULL, "%s: %s", text, result);
    free(result);
}

static void setup_nodes(struct sim *sim)
{
    char id[17], uuid[33];

    for (int i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", sim->cluster_uuid[i]);
    setup_command(
        sim,
        "\"op\":\"cluster_init\",\"id\":\"%s\",\"name\":\"sim\",\"node\":{\"id\":\"%s\",\"name\":\"%s\","
        "\"addr\":\"10.0.0.1:7470\"}}",
        uuid, pms_id_format(sim->nodes[0].id, id), sim->nodes[0].name);
    for (unsigned i = 1; i < sim->n_nodes; i++) {
        const struct node *n = &sim->nodes[i];

        setup_command(
            sim, "\"op\":\"token_add\",\"id\":\"t%u\",\"secret\":\"s\",\"expires_s\":1000,\"by\":\"n1\"}", i);
        setup_command(
            sim,
            "\"op\":\"node_join\",\"id\":\"%s\",\"name\":\"%s\",\"addr\":\"10.0.0.%u:7470\",\"role\":\"%s\","
            "\"token\":\"t%u\",\"now_s\":1}",
            pms_id_format(n->id, id), n->name, i + 1, n->witness ? "witness" : "data", i);
    }
}

static void setup_array(struct sim *sim)
{
    char id[17], array[17], slots[256] = "";
    size_t at = 0;

    pms_id_format(sim->array_id, array);
    for (unsigned s = 0; s < sim->n_slots; s++)
        at += (size_t)snprintf(slots + at, sizeof slots - at, "%s{\"node\":\"%s\",\"brick\":null}",
                               s != 0 ? "," : "", pms_id_format(node_of_slot(sim, (int)s)->id, id));
    setup_command(
        sim,
        "\"op\":\"array_create\",\"id\":\"%s\",\"name\":\"" ARRAY_NAME "\",\"level\":\"raid1\","
        "\"size_bytes\":1048576,\"slots\":[%s],\"portal\":{\"addr\":\"10.0.0.100\",\"prefix\":24,"
        "\"port\":3260},\"iqn\":\"iqn.2026-11.io.pms:00000000:a0\",\"serial\":\"pms0\",\"write_cache\":%s}",
        array, slots, sim->plan.write_cache ? "true" : "false");
    for (unsigned s = 0; s < sim->n_slots; s++)
        setup_command(sim,
                      "\"op\":\"array_slot_zeroed\",\"array\":\"%s\",\"slot\":%u,\"incarnation\":\"%s\"}",
                      array, s, pms_id_format(sim->incarnation[s], id));
    // The array's own size and regions are far smaller than a real one's: only the dp sees them.
    sim->raft.n_setup = sim->raft.n;
    setup_command(sim, "\"op\":\"array_commit\",\"array\":\"%s\"}", array);
}

void raft_init(struct sim *sim)
{
    sim->raft.leader = -1;
    sim->raft.state = pms_state_create();
    setup_nodes(sim);
    setup_array(sim);
    PMS_CHECK(sim->raft.conf.epoch == 1);
    for (unsigned i = 0; i < sim->n_nodes; i++)
        sim->nodes[i].applied = sim->raft.n_setup;
    on_raft_tick(sim, 0);
}

void raft_deinit(struct sim *sim)
{
    for (size_t i = 0; i < sim->raft.n; i++) {
        free(sim->raft.log[i].command);
        free(sim->raft.log[i].snapshot);
    }
    free(sim->raft.log);
    pms_state_destroy(sim->raft.state);
}

void raft_dp_init(const struct sim *sim, const struct node *n, struct pms_dp_init *out)
{
    *out = (struct pms_dp_init){
        .array = sim->array_id,
        .self_node = n->id,
        .self_slot = (uint8_t)n->slot,
        .size_bytes = sim->size_bytes,
        .region_bytes = sim->region_bytes,
        .probe_reads = sim->plan.probe_reads,
        .boot_id = 1,
        .fresh_incarnation = 1, // formatting needs neither
        .volatile_bytes = sim->plan.volatile_bytes,
        .timing = pms_dp_timing_default,
    };
    out->timing.clear_idle = sim->plan.clear_idle_ms;
    out->timing.eject_slow = sim->plan.eject_slow_ms;
    out->timing.readmit_max = sim->plan.readmit_max_ms;
    out->timing.aside_again = sim->plan.aside_again_ms;
    out->timing.flush = sim->plan.flush_ms;
    for (int i = 7; i >= 0; i--)
        out->cluster = out->cluster << 8 | sim->cluster_uuid[i];
}
