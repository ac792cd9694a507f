// SPDX-License-Identifier: GPL-2.0-or-later
// Changes of membership in the simulated world: nodes are added, promoted, demoted and removed, leadership is
// handed on; at random moments, by whoever leads, one change at a time as libraft demands.
#include "base/check.h"
#include "tests/raft/sim.h"
#include <stdlib.h>

static void on_changed(struct raft_change *req, int status)
{
    (void)status;
    free(req);
}

static void on_transferred(struct raft_transfer *req)
{
    (void)req; // libraft may still be sending from it
}

static const struct raft_server *server_of(const struct sim_node *leader, const struct sim_node *node)
{
    const struct raft_configuration *c = &leader->raft->configuration;

    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].id == node->number + 1)
            return &c->servers[i];
    return NULL;
}

static unsigned voters_n(const struct sim_node *leader)
{
    const struct raft_configuration *c = &leader->raft->configuration;
    unsigned n = 0;

    for (unsigned i = 0; i < c->n; i++)
        n += c->servers[i].role == RAFT_VOTER ? 1 : 0;
    return n;
}

static void transfer(struct sim *sim, struct sim_node *leader)
{
    struct raft_transfer *req = calloc(1, sizeof *req);

    PMS_CHECK(req != NULL);
    if (leader->raft->transfer != NULL || raft_transfer(leader->raft, req, 0, on_transferred) != 0)
        free(req);
    else
        sim_story(sim, "node %u hands leadership on", leader->number + 1);
}

static void change(struct sim *sim, struct sim_node *leader, struct sim_node *node)
{
    const struct raft_server *server = server_of(leader, node);
    struct raft_change *req = calloc(1, sizeof *req);
    unsigned dice = sim_random(sim, 3);
    const char *what;
    int rv;

    PMS_CHECK(req != NULL);
    if (server == NULL) {
        what = "added";
        rv = raft_add(leader->raft, req, node->number + 1, node->address, on_changed);
    } else if (server->role == RAFT_VOTER && voters_n(leader) == 1) {
        what = "kept";
        rv = RAFT_CANTCHANGE;
    } else if (server->role == RAFT_VOTER ? dice == 0 : dice == 2) {
        what = "removed";
        rv = raft_remove(leader->raft, req, node->number + 1, on_changed);
    } else if (server->role == RAFT_VOTER) {
        what = "made standby";
        rv = raft_assign(leader->raft, req, node->number + 1, RAFT_STANDBY, on_changed);
    } else {
        what = "made voter";
        rv = raft_assign(leader->raft, req, node->number + 1, RAFT_VOTER, on_changed);
    }
    if (rv != 0)
        free(req);
    else
        sim_story(sim, "node %u is being %s by node %u", node->number + 1, what, leader->number + 1);
}

void sim_members_change(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_random(sim, SIM_NODES)];
    bool hand_on = sim_random(sim, 6) == 0;

    for (unsigned i = 0; i < SIM_NODES; i++) {
        struct sim_node *leader = &sim->nodes[i];

        if (!sim_node_is_ready(leader))
            continue;
        if (hand_on)
            transfer(sim, leader);
        else if (node != leader)
            change(sim, leader, node);
        sim_node_look(leader);
        return;
    }
}

bool sim_members_has(const struct sim *sim, const struct sim_node *node)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        const struct raft_server *server;

        if (!sim_node_leads(&sim->nodes[i]))
            continue;
        server = server_of(&sim->nodes[i], node);
        return server != NULL && server->role != RAFT_SPARE;
    }
    return false;
}
