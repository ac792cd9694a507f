// SPDX-License-Identifier: GPL-2.0-or-later
// A simulated node: struct raft behind the guard, the raft_io table that leads to the simulated disk and
// network, and a state machine that remembers every command it was given.
#include "base/check.h"
#include "tests/raft/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_send {
    struct pms_list list;
    struct raft_io_send *req;
};

struct sim_get {
    struct pms_list list;
    struct raft_io_snapshot_get *req;
};

static struct sim_node *node_of(struct raft_io *io)
{
    return io->impl;
}

// ---- the raft_io table

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io;
    (void)id;
    (void)address;
    return 0;
}

static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
    cb(io);
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *vote, struct raft_snapshot **snapshot,
                   raft_index *start, struct raft_entry **entries, size_t *n)
{
    const struct sim_disk *disk = &node_of(io)->disk;

    *term = disk->term;
    *vote = disk->vote;
    *start = disk->start;
    *n = disk->n;
    sim_disk_load(disk, snapshot, entries);
    return 0;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct sim_node *node = node_of(io);

    node->tick_ms = msecs;
    node->tick = tick;
    node->recv = recv;
    node->tick_at = node->sim->now + sim_random(node->sim, msecs);
    return 0;
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    return sim_disk_bootstrap(&node_of(io)->disk, conf);
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_IOERR;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
    return sim_disk_set_term(node_of(io), term);
}

static int io_set_vote(struct raft_io *io, raft_id id)
{
    return sim_disk_set_vote(node_of(io), id);
}

static int io_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb cb)
{
    struct sim_node *node = node_of(io);
    struct sim_send *s;

    req->cb = cb;
    if (message->server_id == 0 || message->server_id > SIM_NODES || message->server_address == NULL)
        return RAFT_NOCONNECTION;
    sim_net_send(node, message);
    s = calloc(1, sizeof *s);
    PMS_CHECK(s != NULL);
    s->req = req;
    pms_list_add_head(&node->sends, &s->list);
    return 0;
}

static int io_append(struct raft_io *io, struct raft_io_append *req, const struct raft_entry entries[],
                     unsigned n, raft_io_append_cb cb)
{
    req->cb = cb;
    return sim_disk_append(node_of(io), req, entries, n);
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    return sim_disk_truncate(node_of(io), index);
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    req->cb = cb;
    return sim_disk_put(node_of(io), trailing, req, snapshot);
}

static int io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
    struct sim_get *g = calloc(1, sizeof *g);

    PMS_CHECK(g != NULL);
    req->cb = cb;
    g->req = req;
    pms_list_add_tail(&node_of(io)->gets, &g->list);
    return 0;
}

static raft_time io_time(struct raft_io *io)
{
    return node_of(io)->sim->now;
}

static int io_random(struct raft_io *io, int min, int max)
{
    return min + (int)sim_random(node_of(io)->sim, (unsigned)(max - min));
}

static int io_async_work(struct raft_io *io, struct raft_io_async_work *req, raft_io_async_work_cb cb)
{
    (void)io;
    cb(req, req->work(req));
    return 0;
}

static struct raft_io *io_new(struct sim_node *node)
{
    struct raft_io *io = calloc(1, sizeof *io);

    PMS_CHECK(io != NULL);
    *io = (struct raft_io){.version = 2,
                           .impl = node,
                           .init = io_init,
                           .close = io_close,
                           .load = io_load,
                           .start = io_start,
                           .bootstrap = io_bootstrap,
                           .recover = io_recover,
                           .set_term = io_set_term,
                           .set_vote = io_set_vote,
                           .send = io_send,
                           .append = io_append,
                           .truncate = io_truncate,
                           .snapshot_put = io_snapshot_put,
                           .snapshot_get = io_snapshot_get,
                           .time = io_time,
                           .random = io_random,
                           .async_work = io_async_work};
    return io;
}

// ---- the state machine

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct sim_node *node = fsm->data;
    uint64_t command;

    memcpy(&command, buf->base, sizeof command);
    *result = NULL;
    sim_check_applied(node, node->applied_n, command);
    node->applied[node->applied_n++] = command;
    return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct sim_node *node = fsm->data;
    struct raft_buffer *buf = raft_malloc(sizeof *buf);
    uint64_t *words;

    PMS_CHECK(buf != NULL);
    buf->len = sizeof *words * (node->applied_n + 1);
    buf->base = words = raft_malloc(buf->len);
    PMS_CHECK(words != NULL);
    words[0] = node->applied_n;
    memcpy(words + 1, node->applied, sizeof *words * node->applied_n);
    *bufs = buf;
    *n_bufs = 1;
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct sim_node *node = fsm->data;
    const uint64_t *words = buf->base;

    node->applied_n = words[0];
    memcpy(node->applied, words + 1, sizeof *words * words[0]);
    for (uint64_t i = 0; i < node->applied_n; i++)
        sim_check_applied(node, i, node->applied[i]);
    raft_free(buf->base);
    return 0;
}

// ---- life and death

void sim_node_init(struct sim *sim, unsigned number)
{
    struct sim_node *node = &sim->nodes[number];

    node->sim = sim;
    node->number = number;
    snprintf(node->address, sizeof node->address, "%u", number + 1);
    sim_disk_init(&node->disk);
    pms_list_init(&node->sends);
    pms_list_init(&node->gets);
}

static void bootstrap(struct sim_node *node)
{
    struct raft_configuration conf;

    raft_configuration_init(&conf);
    for (unsigned i = 0; i < SIM_VOTERS; i++)
        PMS_CHECK(raft_configuration_add(&conf, i + 1, node->sim->nodes[i].address, RAFT_VOTER) == 0);
    PMS_CHECK(raft_bootstrap(node->raft, &conf) == 0);
    raft_configuration_close(&conf);
}

static void on_fatal(void *data, const char *what, int status)
{
    struct sim_node *node = data;

    if (!node->sim->disks_fail)
        sim_fail(node->sim, "node %u: writing %s failed (%d), though this disk never fails", node->number + 1,
                 what, status);
    sim_story(node->sim, "node %u: writing %s failed (%d)", node->number + 1, what, status);
    node->disk_failed = true;
}

// As in a new process: everything in memory is new (the old is left to leak), only the disk is the same.
void sim_node_boot(struct sim_node *node, bool first)
{
    struct pms_guard_config config = {.enabled = node->sim->guarded, .data = node, .on_fatal = on_fatal};

    node->applied_n = 0;
    node->ready_term = 0;
    node->disk_failed = false;
    node->raft = calloc(1, sizeof *node->raft);
    node->io = io_new(node);
    node->fsm = (struct raft_fsm){
        .version = 2, .data = node, .apply = fsm_apply, .snapshot = fsm_snapshot, .restore = fsm_restore};
    PMS_CHECK(node->raft != NULL);
    PMS_CHECK(pms_guard_create(node->io, node->raft, &config, &node->guard) == 0);
    PMS_CHECK(raft_init(node->raft, pms_guard_io(node->guard), &node->fsm, node->number + 1, node->address) ==
              0);
    raft_set_election_timeout(node->raft, 150);
    raft_set_heartbeat_timeout(node->raft, 15);
    raft_set_install_snapshot_timeout(node->raft, 500);
    raft_set_snapshot_threshold(node->raft, 40);
    raft_set_snapshot_trailing(node->raft, 10);
    raft_set_pre_vote(node->raft, true);
    if (first && node->number < SIM_VOTERS)
        bootstrap(node);
    if (raft_start(node->raft) != 0) {
        if (!node->sim->disks_fail)
            sim_fail(node->sim, "node %u cannot start: %s", node->number + 1, raft_errmsg(node->raft));
        node->up_at = node->sim->now + 50;
        return;
    }
    node->state = RAFT_FOLLOWER;
    node->up = true;
    node->up_at = 0;
    sim_story(node->sim, "node %u starts: term %llu, last %llu, applied %llu", node->number + 1,
              node->raft->current_term, raft_last_index(node->raft), raft_last_applied(node->raft));
    sim_node_look(node); // a lone voter leads at once
}

void sim_node_crash(struct sim_node *node)
{
    if (!node->up)
        return;
    node->up = false;
    sim_disk_crash(node);
    pms_list_init(&node->sends);
    pms_list_init(&node->gets);
    sim_story(node->sim, "node %u crashes: log on disk %llu..%llu", node->number + 1, node->disk.start,
              node->disk.start + node->disk.n - 1);
}

// Trouble for a fresh leader: cut off after a moment, perhaps crashed while cut off.
static void ambush(struct sim_node *node)
{
    struct sim *sim = node->sim;

    node->isolate_at = sim->now + 1 + sim_random(sim, 60);
    node->isolate_until = node->isolate_at + 200 + sim_random(sim, 900);
    if (sim_random(sim, 3) == 0)
        node->isolated_crash_at = node->isolate_at + sim_random(sim, 200);
}

struct barrier {
    struct raft_barrier req;
    struct sim_node *node;
    raft_term term;
};

static void on_barrier(struct raft_barrier *req, int status)
{
    struct barrier *b = req->data;

    if (status == 0)
        b->node->ready_term = b->term;
    free(b);
}

static void barrier_start(struct sim_node *node)
{
    struct barrier *b = calloc(1, sizeof *b);

    PMS_CHECK(b != NULL);
    b->req.data = b;
    b->node = node;
    b->term = node->raft->current_term;
    if (raft_barrier(node->raft, &b->req, on_barrier) != 0)
        free(b);
}

bool sim_node_leads(const struct sim_node *node)
{
    return node->up && node->raft->state == RAFT_LEADER && node->paused_until <= node->sim->now;
}

bool sim_node_is_ready(const struct sim_node *node)
{
    return sim_node_leads(node) && (!node->sim->guarded || node->ready_term == node->raft->current_term);
}

void sim_node_look(struct sim_node *node)
{
    struct sim *sim = node->sim;
    int old = node->state;

    if (!node->up)
        return;
    node->state = raft_state(node->raft);
    if (node->disk_failed || node->state == RAFT_UNAVAILABLE) {
        sim_story(sim, "node %u gave up (%s)", node->number + 1, raft_errmsg(node->raft));
        sim_node_crash(node);
        return;
    }
    if (node->state == old)
        return;
    sim_story(sim, "node %u %s: term %llu, last %llu", node->number + 1,
              node->state == RAFT_LEADER ? "leads"
                                         : (node->state == RAFT_CANDIDATE ? "wants to lead" : "follows"),
              node->raft->current_term, raft_last_index(node->raft));
    if (node->state != RAFT_LEADER)
        return;
    if (sim->ambush && sim_random(sim, 3) != 0)
        ambush(node);
    if (sim->guarded)
        barrier_start(node);
}

void sim_node_sends_finish(struct sim_node *node)
{
    struct pms_list *l;

    while ((l = pms_list_pop(&node->sends)) != NULL) {
        struct sim_send *s = pms_list_entry(l, struct sim_send, list);

        if (s->req->cb != NULL)
            s->req->cb(s->req, 0);
        free(s);
    }
}

void sim_node_step(struct sim_node *node)
{
    struct pms_list *l;

    if (!node->up || node->paused_until > node->sim->now)
        return;
    while (node->up && sim_disk_step(node))
        sim_node_look(node);
    while (node->up && (l = pms_list_pop(&node->gets)) != NULL) {
        struct sim_get *g = pms_list_entry(l, struct sim_get, list);

        g->req->cb(g->req, sim_snapshot_copy(node->disk.snapshot), 0);
        free(g);
        sim_node_look(node);
    }
    if (node->up && node->tick_at <= node->sim->now) {
        node->tick_at = node->sim->now + node->tick_ms;
        node->tick(node->io);
        sim_node_look(node);
    }
}
