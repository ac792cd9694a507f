// SPDX-License-Identifier: GPL-2.0-or-later
// The guard over libraft's I/O table (guard.h says what it cures and why): its life, and what goes to disk.
//
// When a write fails: libraft's own reaction to that is not safe, so it never learns of it. The guard falls
// silent (no event in, no message out, completions kept back) and reports it; at close the completions are
// handed back as if they had succeeded, which in a closing instance only releases memory.
#include "base/check.h"
#include "consensus/raft/guard_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// A write on its way through; kept in held_appends or held_puts after a fatal error.
struct append {
    struct raft_io_append inner;
    struct raft_io_append *outer;
    struct pms_guard *guard;
    raft_term term; // of its last entry
    struct pms_list list;
};

struct put {
    struct raft_io_snapshot_put inner;
    struct raft_io_snapshot_put *outer;
    struct pms_guard *guard;
    raft_index index;
    raft_term term;                // of the leader that sent it
    struct raft_snapshot snapshot; // what is written
    bool conf_own;                 // snapshot.configuration is ours
    bool install;                  // replaces the log (a leader's snapshot), as opposed to one that we took
    struct pms_list list;
};

static struct pms_guard *guard_of(struct raft_io *io)
{
    return io->impl;
}

void pms_guard_step_done(struct pms_guard *g)
{
    if (g->config.enabled && !g->failed && !g->closing)
        pms_conf_track_follow(&g->conf, g->raft);
    if (g->config.on_step != NULL && !g->closing)
        g->config.on_step(g->config.data);
}

void pms_guard_fail(struct pms_guard *g, const char *what, int status)
{
    if (!g->config.enabled || g->failed || g->closing)
        return;
    g->failed = true;
    if (g->config.on_fatal != NULL)
        g->config.on_fatal(g->config.data, what, status);
}

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->inner->init(g->inner, id, address);

    if (rv != 0)
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
    return rv;
}

void pms_guard_loaded_free(struct raft_snapshot **snapshot, struct raft_entry *entries[], size_t *n_entries)
{
    void *batch = NULL;

    for (size_t i = 0; i < *n_entries; i++) {
        if ((*entries)[i].batch == batch)
            continue;
        batch = (*entries)[i].batch;
        raft_free(batch);
    }
    raft_free(*entries);
    *entries = NULL;
    *n_entries = 0;
    if (*snapshot == NULL)
        return;
    for (unsigned i = 0; i < (*snapshot)->n_bufs; i++)
        raft_free((*snapshot)->bufs[i].base);
    raft_free((*snapshot)->bufs);
    raft_configuration_close(&(*snapshot)->configuration);
    raft_free(*snapshot);
    *snapshot = NULL;
}

// What the log that was loaded shows of the membership: is its last configuration surely committed, and are
// we the only voter, who will lead at once without an election: then in a new term, voted for ourselves.
static int loaded_conf(struct pms_guard *g, raft_term *term, raft_id *voted_for,
                       const struct raft_snapshot *snapshot, raft_index start,
                       const struct raft_entry *entries, size_t n)
{
    raft_index committed =
        snapshot != NULL ? snapshot->index : 1; // what libraft takes for committed at start
    struct pms_conf_history h;
    int rv = pms_conf_history_read(snapshot, start, entries, n, &h);

    if (rv != 0)
        return rv;
    if (pms_conf_is_sole_voter(&h.last, g->raft->id)) {
        rv = g->inner->set_term(g->inner, *term + 1);
        if (rv == 0)
            rv = g->inner->set_vote(g->inner, g->raft->id);
        if (rv == 0) {
            *term += 1;
            *voted_for = g->raft->id;
        }
    }
    if (rv == 0)
        pms_conf_track_load(&g->conf, &h, committed);
    pms_conf_history_close(&h);
    return rv;
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *voted_for, struct raft_snapshot **snapshot,
                   raft_index *start_index, struct raft_entry *entries[], size_t *n_entries)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->inner->load(g->inner, term, voted_for, snapshot, start_index, entries, n_entries);

    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        return rv;
    }
    if (*n_entries > 0)
        g->stored_term = (*entries)[*n_entries - 1].term;
    else if (*snapshot != NULL)
        g->stored_term = (*snapshot)->term;
    if (g->config.enabled)
        rv = loaded_conf(g, term, voted_for, *snapshot, *start_index, *entries, *n_entries);
    if (rv != 0)
        pms_guard_loaded_free(snapshot, entries, n_entries);
    return rv;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct pms_guard *g = guard_of(io);

    g->tick = tick;
    g->recv = recv;
    return g->inner->start(g->inner, msecs, pms_guard_on_tick, pms_guard_on_recv);
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->bootstrap(g->inner, conf);
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->recover(g->inner, conf);
}

// Once silent, libraft is told that all goes well: its error paths are what crashes, and nothing it decides
// from then on leaves this process.
static int io_set_term(struct raft_io *io, raft_term term)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->failed ? 0 : g->inner->set_term(g->inner, term);

    if (rv != 0)
        pms_guard_fail(g, "term", rv);
    return g->failed ? 0 : rv;
}

static int io_set_vote(struct raft_io *io, raft_id server_id)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->failed ? 0 : g->inner->set_vote(g->inner, server_id);

    if (rv != 0)
        pms_guard_fail(g, "vote", rv);
    return g->failed ? 0 : rv;
}

static void append_finish(struct append *a, int status)
{
    struct raft_io_append *outer = a->outer;

    free(a);
    outer->cb(outer, status);
}

static void on_append(struct raft_io_append *inner, int status)
{
    struct append *a = inner->data;
    struct pms_guard *g = a->guard;

    g->appends--;
    if (!g->config.enabled) {
        append_finish(a, status);
        pms_guard_step_done(g);
        return;
    }
    if (g->closing) {
        append_finish(a, 0);
        return;
    }
    if (status != 0)
        pms_guard_fail(g, "entries", status);
    if (g->failed) {
        pms_list_add_tail(&g->held_appends, &a->list);
        return;
    }
    g->stored_term = a->term;
    append_finish(a, 0);
    pms_guard_acks_release(g);
    pms_guard_step_done(g);
}

static int io_append(struct raft_io *io, struct raft_io_append *req, const struct raft_entry entries[],
                     unsigned n, raft_io_append_cb cb)
{
    struct pms_guard *g = guard_of(io);
    struct append *a = calloc(1, sizeof *a);
    int rv;

    if (a == NULL)
        return RAFT_NOMEM;
    pms_list_init(&a->list);
    a->inner.data = a;
    a->outer = req;
    a->guard = g;
    a->term = entries[n - 1].term;
    req->cb = cb;
    pms_guard_candidate_accept(g); // its answer follows once durable
    if (!g->failed) {
        g->appends++;
        rv = g->inner->append(g->inner, &a->inner, entries, n, on_append);
        if (rv == 0)
            return 0;
        g->appends--;
        if (!g->config.enabled) {
            free(a);
            return rv;
        }
        pms_guard_fail(g, "entries", rv);
    }
    pms_list_add_tail(&g->held_appends, &a->list);
    return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->failed ? 0 : g->inner->truncate(g->inner, index);

    if (rv != 0)
        pms_guard_fail(g, "truncation", rv);
    return g->failed ? 0 : rv;
}

static void put_free(struct put *p)
{
    if (p->conf_own)
        raft_configuration_close(&p->snapshot.configuration);
    free(p);
}

static void put_finish(struct put *p, int status)
{
    struct raft_io_snapshot_put *outer = p->outer;

    put_free(p);
    outer->cb(outer, status);
}

static void on_put(struct raft_io_snapshot_put *inner, int status)
{
    struct put *p = inner->data;
    struct pms_guard *g = p->guard;

    if (p->install)
        g->installing = false;
    // A failed snapshot of our own costs nothing but a longer log: libraft tries again.
    if (p->install && status != 0 && g->config.enabled)
        pms_guard_fail(g, "snapshot", status);
    if (g->failed && !g->closing) {
        pms_list_add_tail(&g->held_puts, &p->list);
        return;
    }
    if (p->install && status == 0)
        pms_guard_verified_raise(g, p->term, p->index);
    put_finish(p, status);
    pms_guard_step_done(g);
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct pms_guard *g = guard_of(io);
    struct put *p = calloc(1, sizeof *p);
    int rv;

    if (p == NULL)
        return RAFT_NOMEM;
    pms_list_init(&p->list);
    p->inner.data = p;
    p->outer = req;
    p->guard = g;
    p->index = snapshot->index;
    p->snapshot = *snapshot;
    if (g->config.enabled && trailing != 0 && g->raft->configuration_uncommitted_index != 0 &&
        g->conf.committed_index == snapshot->configuration_index) // libraft puts the uncommitted one in
        p->conf_own = pms_conf_copy(&g->conf.committed, &p->snapshot.configuration) == 0;
    p->term = g->raft->current_term;
    p->install = trailing == 0;
    req->cb = cb;
    if (!g->failed) {
        g->installing = g->installing || p->install;
        rv = g->inner->snapshot_put(g->inner, trailing, &p->inner, &p->snapshot, on_put);
        if (rv == 0)
            return 0;
        if (p->install)
            g->installing = false;
        if (!g->config.enabled) {
            put_free(p);
            return rv;
        }
        pms_guard_fail(g, "snapshot", rv);
    }
    pms_list_add_tail(&g->held_puts, &p->list);
    return 0;
}

static int io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->snapshot_get(g->inner, req, cb);
}

static raft_time io_time(struct raft_io *io)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->time(g->inner);
}

static int io_random(struct raft_io *io, int min, int max)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->random(g->inner, min, max);
}

static int io_async_work(struct raft_io *io, struct raft_io_async_work *req, raft_io_async_work_cb cb)
{
    struct pms_guard *g = guard_of(io);

    return g->inner->async_work(g->inner, req, cb);
}

static void on_close(struct raft_io *inner)
{
    struct pms_guard *g = inner->data;

    g->close_cb(&g->io);
}

// libraft truncates its log once for every cancelled append of a closing leader, and crashes at the second
// one; told of success, it only releases.
static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
    struct pms_guard *g = guard_of(io);
    struct pms_list *l;

    g->closing = true;
    g->close_cb = cb;
    while ((l = pms_list_pop(&g->held_appends)) != NULL)
        append_finish(pms_list_entry(l, struct append, list), 0);
    while ((l = pms_list_pop(&g->held_puts)) != NULL)
        put_finish(pms_list_entry(l, struct put, list), RAFT_CANCELED);
    while ((l = pms_list_pop(&g->held_sends)) != NULL) {
        struct pms_guard_send_held *held = pms_list_entry(l, struct pms_guard_send_held, list);

        held->req->cb(held->req, RAFT_CANCELED);
        free(held);
    }
    g->inner->close(g->inner, on_close);
}

static void table_fill(struct pms_guard *g)
{
    g->io.version = 2;
    g->io.impl = g;
    g->io.init = io_init;
    g->io.close = io_close;
    g->io.load = io_load;
    g->io.start = io_start;
    g->io.bootstrap = io_bootstrap;
    g->io.recover = io_recover;
    g->io.set_term = io_set_term;
    g->io.set_vote = io_set_vote;
    g->io.send = pms_guard_send;
    g->io.append = io_append;
    g->io.truncate = io_truncate;
    g->io.snapshot_put = io_snapshot_put;
    g->io.snapshot_get = io_snapshot_get;
    g->io.time = io_time;
    g->io.random = io_random;
    g->io.async_work = io_async_work;
}

int pms_guard_create(struct raft_io *inner, struct raft *raft, const struct pms_guard_config *config,
                     struct pms_guard **guard)
{
    struct pms_guard *g = calloc(1, sizeof *g);

    if (g == NULL)
        return -ENOMEM;
    g->inner = inner;
    g->raft = raft;
    g->config = *config;
    pms_list_init(&g->held_appends);
    pms_list_init(&g->held_puts);
    pms_list_init(&g->held_sends);
    table_fill(g);
    inner->data = g;
    *guard = g;
    return 0;
}

void pms_guard_destroy(struct pms_guard *guard)
{
    if (guard == NULL)
        return;
    pms_guard_acks_drop(guard);
    pms_conf_track_close(&guard->conf);
    free(guard);
}

struct raft_io *pms_guard_io(struct pms_guard *guard)
{
    return &guard->io;
}

void pms_guard_silence(struct pms_guard *guard)
{
    guard->failed = true;
}

void pms_guard_stats_get(const struct pms_guard *guard, struct pms_guard_stats *stats)
{
    *stats = guard->stats;
}
