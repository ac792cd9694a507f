// SPDX-License-Identifier: GPL-2.0-or-later
// The guard over libraft's I/O table (guard.h says what it cures and why).
//
// Three pieces of knowledge do the work:
//   - verified: how far our log is known to be the current leader's (follower). Raised when libraft accepted
//     entries or a heartbeat of this term, and never below what is committed: every leader has that
//     (Raft 5.4). Nothing beyond it is acknowledged.
//   - stored_term: the term of our last durable entry (leader). Until it is the current term,
//   acknowledgements of
//     followers are held, so libraft cannot commit an older term's entry by counting copies (Raft 5.4.2).
//   - conf (guard_conf.h): the last committed configuration, which libraft looks for in the log only.
//   - appends, installing: writes under way; meanwhile no election starts here.
//
// When a write fails: libraft's own reaction to that is not safe, so it never learns of it. The guard falls
// silent (no event in, no message out, completions kept back) and reports it; at close the completions are
// handed back as if they had succeeded, which in a closing instance only releases memory.
#include "consensus/raft/guard.h"
#include "base/check.h"
#include "base/list.h"
#include "consensus/raft/guard_conf.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// The newest success answer of one follower, held by a leader that has nothing of its own term on disk yet.
struct held_ack {
    raft_id id;
    char *address;
    struct raft_append_entries_result result;
};

// A write on its way through; kept in held_writes after a fatal error.
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

struct pms_guard {
    struct raft_io io;     // what libraft sees; io.data belongs to libraft, io.impl is this guard
    struct raft_io *inner; // inner->data is this guard
    struct raft *raft;
    struct pms_guard_config config;
    struct pms_guard_stats stats;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_io_close_cb close_cb;

    unsigned appends; // in flight
    bool installing;  // a snapshot that replaces the log is in flight
    raft_term stored_term;

    raft_term verified_term; // the term of the leader that verified is about
    raft_index verified;
    raft_term
        candidate_term; // the same pair as libraft's acceptance of the message now in hand would set it; or 0
    raft_index candidate;

    struct pms_conf_track conf;

    struct held_ack *acks;
    size_t acks_n;

    raft_time heard_at; // last sign of life from a leader of the current term

    bool failed; // fell silent
    bool closing;
    struct pms_list held_appends;
    struct pms_list held_puts;
};

static struct pms_guard *guard_of(struct raft_io *io)
{
    return io->impl;
}

static void step_done(struct pms_guard *g)
{
    if (g->config.enabled && !g->failed && !g->closing)
        pms_conf_track_follow(&g->conf, g->raft);
    if (g->config.on_step != NULL && !g->closing)
        g->config.on_step(g->config.data);
}

static void fail(struct pms_guard *g, const char *what, int status)
{
    if (!g->config.enabled || g->failed || g->closing)
        return;
    g->failed = true;
    if (g->config.on_fatal != NULL)
        g->config.on_fatal(g->config.data, what, status);
}

// The leader of term is known to have our log up to index.
static void verified_raise(struct pms_guard *g, raft_term term, raft_index index)
{
    if (term < g->verified_term)
        return;
    if (term > g->verified_term) {
        g->verified_term = term;
        g->verified = 0;
    }
    if (index > g->verified)
        g->verified = index;
}

// How far the leader of the current term may be told that our log is its own. What is committed every leader
// has.
static raft_index verified_limit(const struct pms_guard *g)
{
    raft_index committed = g->raft->commit_index;

    if (g->verified_term != g->raft->current_term)
        return committed;
    return g->verified > committed ? g->verified : committed;
}

// libraft accepted the entries or the heartbeat now in hand. (One of an older term is refused by an answer
// that looks like acceptance if it begins at index 0; hence the comparison.)
static void candidate_accept(struct pms_guard *g)
{
    if (g->candidate_term != 0 && g->candidate_term == g->raft->current_term)
        verified_raise(g, g->candidate_term, g->candidate);
}

static void acks_drop(struct pms_guard *g)
{
    for (size_t i = 0; i < g->acks_n; i++)
        free(g->acks[i].address);
    free(g->acks);
    g->acks = NULL;
    g->acks_n = 0;
}

// Keeps the answer with the highest index of each follower. Out of memory, it is lost like a message may be:
// the next heartbeat brings another one.
static void ack_hold(struct pms_guard *g, const struct raft_message *m)
{
    const struct raft_append_entries_result *result = &m->append_entries_result;
    struct held_ack *grown;
    char *address;

    for (size_t i = 0; i < g->acks_n; i++) {
        if (g->acks[i].id != m->server_id)
            continue;
        if (g->acks[i].result.term < result->term ||
            (g->acks[i].result.term == result->term &&
             g->acks[i].result.last_log_index < result->last_log_index))
            g->acks[i].result = *result;
        return;
    }
    address = strdup(m->server_address);
    grown = address != NULL ? realloc(g->acks, (g->acks_n + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(address);
        return;
    }
    g->acks = grown;
    g->acks[g->acks_n++] = (struct held_ack){.id = m->server_id, .address = address, .result = *result};
}

// Hands the held answers to libraft if they may count now, and forgets them if they no longer can.
static void acks_release(struct pms_guard *g)
{
    struct held_ack *acks = g->acks;
    size_t n = g->acks_n;

    if (n == 0)
        return;
    if (raft_state(g->raft) == RAFT_LEADER && g->stored_term != g->raft->current_term)
        return;
    g->acks = NULL;
    g->acks_n = 0;
    for (size_t i = 0; i < n; i++) {
        struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT,
                                 .server_id = acks[i].id,
                                 .server_address = acks[i].address};

        m.append_entries_result = acks[i].result;
        if (!g->failed && raft_state(g->raft) == RAFT_LEADER && acks[i].result.term == g->raft->current_term)
            g->recv(&g->io, &m);
        free(acks[i].address);
    }
    free(acks);
}

static void on_tick(struct raft_io *inner)
{
    struct pms_guard *g = inner->data;

    if (g->failed)
        return;
    if (g->config.enabled)
        pms_conf_track_started(&g->conf, g->raft);
    if (g->config.enabled && (g->appends > 0 || g->installing) && raft_state(g->raft) != RAFT_LEADER) {
        g->stats.ticks_skipped++;
        return;
    }
    g->tick(&g->io);
    step_done(g);
}

// libraft keeps the last leader's name for ever in a node that never becomes a candidate itself, and refuses
// to vote on account of it.
static void leader_forget_if_silent(struct pms_guard *g)
{
    struct raft *r = g->raft;

    if (r->state != RAFT_FOLLOWER || g->inner->time(g->inner) - g->heard_at < r->election_timeout)
        return;
    r->follower_state.current_leader.id = 0;
    raft_free(r->follower_state.current_leader.address);
    r->follower_state.current_leader.address = NULL;
}

// A candidate's configuration decides whose votes count (Raft dissertation 4.2.2). So a node that is no voter
// by its own answers like one: it may be the one whose promotion it has not heard of yet. And one vote a term
// is one vote: libraft gives a second one to the node that it was to hand leadership to.
static void recv_request_vote(struct pms_guard *g, struct raft_message *m)
{
    const struct raft_request_vote *vote = &m->request_vote;
    struct raft *r = g->raft;
    struct raft_server *self = pms_conf_server(&r->configuration, r->id);
    int role = self != NULL ? self->role : RAFT_VOTER;

    if (!vote->pre_vote && vote->term == r->current_term && r->voted_for != 0 &&
        r->voted_for != vote->candidate_id) {
        g->stats.votes_refused++;
        return;
    }
    if (role == RAFT_VOTER || r->state != RAFT_FOLLOWER) {
        g->recv(&g->io, m);
        return;
    }
    leader_forget_if_silent(g);
    self->role = RAFT_VOTER;
    g->recv(&g->io, m);
    self = pms_conf_server(&r->configuration, r->id);
    PMS_CHECK(self != NULL);
    self->role = role;
}

// A message that libraft shall not see: frees what it would have taken over.
static void message_free(struct raft_message *m)
{
    if (m->type == RAFT_IO_APPEND_ENTRIES && m->append_entries.n_entries > 0) {
        raft_free(m->append_entries.entries[0].batch);
        raft_free(m->append_entries.entries);
    } else if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
}

// Entries below our compacted log: all of them are committed here, and libraft would append them at the wrong
// index. What the message still tells is that its leader lives, so it becomes a heartbeat at our commit
// index, which every leader has.
static void make_heartbeat(struct pms_guard *g, struct raft_append_entries *a)
{
    raft_free(a->entries[0].batch);
    raft_free(a->entries);
    a->entries = NULL;
    a->n_entries = 0;
    a->prev_log_index = g->raft->commit_index;
    a->prev_log_term = pms_log_term_at(&g->raft->log, g->raft->commit_index);
    g->stats.stale_dropped++;
}

static void recv_append_entries(struct pms_guard *g, struct raft_message *m)
{
    struct raft_append_entries *a = &m->append_entries;
    raft_index last;
    int rv;

    if (a->term >= g->raft->current_term)
        g->heard_at = g->inner->time(g->inner);
    if (a->n_entries > 0 && a->prev_log_index < g->raft->log.offset)
        make_heartbeat(g, a);
    last = a->prev_log_index + a->n_entries;
    if (a->leader_commit > last) { // Raft, figure 2: min(leaderCommit, index of last new entry)
        a->leader_commit = last;
        g->stats.commits_clamped++;
    }
    rv = pms_conf_track_rollback(&g->conf, g->raft, a);
    if (rv != 0) {
        message_free(m);
        fail(g, "configuration", rv);
        return;
    }
    g->candidate_term = a->term;
    g->candidate = last;
    g->recv(&g->io, m);
    g->candidate_term = 0;
}

// A leader without a durable entry of its own term: the answer shows that the follower lives (index 0 is
// never progress); what it acknowledges counts later.
static void recv_result(struct pms_guard *g, struct raft_message *m)
{
    struct raft_append_entries_result *result = &m->append_entries_result;

    if (raft_state(g->raft) == RAFT_LEADER && result->rejected == 0 &&
        result->term == g->raft->current_term && g->stored_term != g->raft->current_term) {
        ack_hold(g, m);
        g->stats.acks_held++;
        result->last_log_index = 0;
    }
    g->recv(&g->io, m);
}

// If our log holds the snapshot's last entry, then it holds all before it as the leader does (log matching),
// and libraft will say so without installing anything.
static void recv_snapshot(struct pms_guard *g, struct raft_message *m)
{
    const struct raft_install_snapshot *s = &m->install_snapshot;

    if (s->term >= g->raft->current_term)
        g->heard_at = g->inner->time(g->inner);
    if (s->term >= g->raft->current_term && pms_log_term_at(&g->raft->log, s->last_index) == s->last_term)
        verified_raise(g, s->term, s->last_index);
    g->recv(&g->io, m);
}

static void on_recv(struct raft_io *inner, struct raft_message *m)
{
    struct pms_guard *g = inner->data;

    if (g->failed || g->closing) {
        message_free(m);
        return;
    }
    if (g->config.enabled)
        pms_conf_track_started(&g->conf, g->raft);
    if (!g->config.enabled) {
        g->recv(&g->io, m);
    } else if (m->type == RAFT_IO_TIMEOUT_NOW && (g->appends > 0 || g->installing)) {
        g->stats.timeouts_dropped++;
    } else if (m->type == RAFT_IO_APPEND_ENTRIES) {
        recv_append_entries(g, m);
    } else if (m->type == RAFT_IO_APPEND_ENTRIES_RESULT) {
        recv_result(g, m);
    } else if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
        recv_snapshot(g, m);
    } else if (m->type == RAFT_IO_REQUEST_VOTE) {
        recv_request_vote(g, m);
    } else {
        g->recv(&g->io, m);
    }
    acks_release(g);
    step_done(g);
}

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->inner->init(g->inner, id, address);

    if (rv != 0)
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
    return rv;
}

static void loaded_free(struct raft_snapshot **snapshot, struct raft_entry *entries[], size_t *n_entries)
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
        loaded_free(snapshot, entries, n_entries);
    return rv;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct pms_guard *g = guard_of(io);

    g->tick = tick;
    g->recv = recv;
    return g->inner->start(g->inner, msecs, on_tick, on_recv);
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
        fail(g, "term", rv);
    return g->failed ? 0 : rv;
}

static int io_set_vote(struct raft_io *io, raft_id server_id)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->failed ? 0 : g->inner->set_vote(g->inner, server_id);

    if (rv != 0)
        fail(g, "vote", rv);
    return g->failed ? 0 : rv;
}

// A lone voter sends only what it has on disk. Otherwise a node could hold entries that nobody else has after
// a crash, one that shrinks the group to this voter among them; then neither of the two would ever be elected
// again.
static void send_stored_only(const struct pms_guard *g, struct raft_append_entries *a)
{
    raft_index stored = g->raft->last_stored;

    if (a->n_entries == 0 || a->prev_log_index + a->n_entries <= stored ||
        !pms_conf_is_sole_voter(&g->raft->configuration, g->raft->id))
        return;
    a->n_entries = stored > a->prev_log_index ? (unsigned)(stored - a->prev_log_index) : 0;
}

// A refused pre-vote has to tell our term. libraft echoes the candidate's, who then never learns that his is
// too old, though his log may be the only one that can win.
static void vote_result_complete(const struct pms_guard *g, struct raft_request_vote_result *result)
{
    if (result->pre_vote == raft_tribool_true && !result->vote_granted &&
        result->term < g->raft->current_term)
        result->term = g->raft->current_term;
}

static int io_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb cb)
{
    struct pms_guard *g = guard_of(io);
    struct raft_message m = *message;

    // Silent: taken and never finished, since libraft frees twice what it cannot send.
    if (g->failed)
        return 0;
    // libraft answers "the current leader" even when it knows none any more
    if (m.server_id == 0 || m.server_address == NULL)
        return RAFT_NOCONNECTION;
    if (g->config.enabled && m.type == RAFT_IO_APPEND_ENTRIES)
        send_stored_only(g, &m.append_entries);
    if (g->config.enabled && m.type == RAFT_IO_REQUEST_VOTE_RESULT)
        vote_result_complete(g, &m.request_vote_result);
    if (g->config.enabled && m.type == RAFT_IO_APPEND_ENTRIES_RESULT &&
        m.append_entries_result.rejected == 0) {
        raft_index limit;

        candidate_accept(g);
        limit = verified_limit(g);
        if (m.append_entries_result.last_log_index > limit) {
            m.append_entries_result.last_log_index = limit;
            g->stats.acks_clamped++;
        }
    }
    return g->inner->send(g->inner, req, &m, cb);
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
        step_done(g);
        return;
    }
    if (g->closing) {
        append_finish(a, 0);
        return;
    }
    if (status != 0)
        fail(g, "entries", status);
    if (g->failed) {
        pms_list_add_tail(&g->held_appends, &a->list);
        return;
    }
    g->stored_term = a->term;
    append_finish(a, 0);
    acks_release(g);
    step_done(g);
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
    candidate_accept(g); // its answer follows once durable
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
        fail(g, "entries", rv);
    }
    pms_list_add_tail(&g->held_appends, &a->list);
    return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    struct pms_guard *g = guard_of(io);
    int rv = g->failed ? 0 : g->inner->truncate(g->inner, index);

    if (rv != 0)
        fail(g, "truncation", rv);
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
        fail(g, "snapshot", status);
    if (g->failed && !g->closing) {
        pms_list_add_tail(&g->held_puts, &p->list);
        return;
    }
    if (p->install && status == 0)
        verified_raise(g, p->term, p->index);
    put_finish(p, status);
    step_done(g);
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
        fail(g, "snapshot", rv);
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
    g->io.send = io_send;
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
    table_fill(g);
    inner->data = g;
    *guard = g;
    return 0;
}

void pms_guard_destroy(struct pms_guard *guard)
{
    if (guard == NULL)
        return;
    acks_drop(guard);
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
