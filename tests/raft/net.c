// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated network: every message has its own delay, so they overtake each other; some are lost;
// directed cuts swallow what is sent and what arrives.
#include "base/check.h"
#include "tests/raft/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_message {
    struct pms_list list;
    uint64_t due;
    uint64_t seq;
    unsigned from;
    unsigned to;
    struct raft_message m;
};

void sim_net_init(struct sim_net *net)
{
    memset(net, 0, sizeof *net);
    pms_list_init(&net->messages);
}

static void entries_copy(const struct raft_append_entries *from, struct raft_append_entries *to)
{
    struct sim_entry *entries;

    to->entries = NULL;
    if (from->n_entries == 0)
        return;
    entries = calloc(from->n_entries, sizeof *entries);
    PMS_CHECK(entries != NULL);
    for (unsigned i = 0; i < from->n_entries; i++)
        entries[i] = (struct sim_entry){.term = from->entries[i].term,
                                        .type = from->entries[i].type,
                                        .len = from->entries[i].buf.len,
                                        .data = from->entries[i].buf.base};
    to->entries = sim_entries_make(entries, from->n_entries);
    free(entries);
}

static void snapshot_copy(const struct raft_install_snapshot *from, struct raft_install_snapshot *to)
{
    raft_configuration_init(&to->conf);
    for (unsigned i = 0; i < from->conf.n; i++)
        PMS_CHECK(raft_configuration_add(&to->conf, from->conf.servers[i].id, from->conf.servers[i].address,
                                         from->conf.servers[i].role) == 0);
    to->data.base = raft_malloc(from->data.len);
    PMS_CHECK(to->data.base != NULL);
    memcpy(to->data.base, from->data.base, from->data.len);
}

void sim_net_send(struct sim_node *from, const struct raft_message *message)
{
    struct sim *sim = from->sim;
    struct sim_net *net = &sim->net;
    struct sim_message *g;
    unsigned to = (unsigned)message->server_id - 1;

    if (net->cut[from->number][to] || sim_random(sim, 1000) < net->loss_permille)
        return;
    g = calloc(1, sizeof *g);
    PMS_CHECK(g != NULL);
    g->m = *message;
    g->from = from->number;
    g->to = to;
    g->due = sim->now + 1 + sim_random(sim, net->delay_ms_max);
    g->seq = net->seq++;
    if (message->type == RAFT_IO_APPEND_ENTRIES)
        entries_copy(&message->append_entries, &g->m.append_entries);
    else if (message->type == RAFT_IO_INSTALL_SNAPSHOT)
        snapshot_copy(&message->install_snapshot, &g->m.install_snapshot);
    pms_list_add_tail(&net->messages, &g->list);
}

static struct sim_message *oldest_due(struct sim *sim)
{
    struct sim_message *best = NULL;

    pms_list_for_each (l, &sim->net.messages) {
        struct sim_message *g = pms_list_entry(l, struct sim_message, list);

        if (g->due > sim->now || sim->nodes[g->to].paused_until > sim->now)
            continue;
        if (best == NULL || g->due < best->due || (g->due == best->due && g->seq < best->seq))
            best = g;
    }
    return best;
}

bool sim_net_step(struct sim *sim)
{
    struct sim_message *g = oldest_due(sim);
    struct sim_node *to;

    if (g == NULL)
        return false;
    pms_list_del(&g->list);
    to = &sim->nodes[g->to];
    if (to->up && !sim->net.cut[g->from][g->to]) {
        g->m.server_id = g->from + 1;
        g->m.server_address = sim->nodes[g->from].address;
        to->recv(to->io, &g->m);
        sim_node_look(to);
    }
    free(g);
    return true;
}
