// SPDX-License-Identifier: GPL-2.0-or-later
// The guard's filters on what comes in (messages, ticks) and goes out.
#include "base/check.h"
#include "consensus/raft/guard_internal.h"
#include <stdlib.h>
#include <string.h>

void pms_guard_verified_raise(struct pms_guard *g, raft_term term, raft_index index)
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

// A message of an older term is refused by an answer that looks like acceptance if it begins at index 0;
// hence the comparison.
void pms_guard_candidate_accept(struct pms_guard *g)
{
    if (g->candidate_term != 0 && g->candidate_term == g->raft->current_term)
        pms_guard_verified_raise(g, g->candidate_term, g->candidate);
}

void pms_guard_acks_drop(struct pms_guard *g)
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
    struct pms_guard_ack *grown;
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
    g->acks[g->acks_n++] = (struct pms_guard_ack){.id = m->server_id, .address = address, .result = *result};
}

void pms_guard_acks_release(struct pms_guard *g)
{
    struct pms_guard_ack *acks = g->acks;
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

void pms_guard_on_tick(struct raft_io *inner)
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
    pms_guard_step_done(g);
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
        pms_guard_fail(g, "configuration", rv);
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
        pms_guard_verified_raise(g, s->term, s->last_index);
    g->recv(&g->io, m);
}

void pms_guard_on_recv(struct raft_io *inner, struct raft_message *m)
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
    pms_guard_acks_release(g);
    pms_guard_step_done(g);
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

// Silent: taken, and finished at close only, since libraft frees twice what it cannot send.
static int send_hold(struct pms_guard *g, struct raft_io_send *req, raft_io_send_cb cb)
{
    struct pms_guard_send_held *held = cb != NULL ? malloc(sizeof *held) : NULL;

    if (held == NULL)
        return 0; // what it leaves behind ends with the process
    req->cb = cb;
    held->req = req;
    pms_list_add_tail(&g->held_sends, &held->list);
    return 0;
}

int pms_guard_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb cb)
{
    struct pms_guard *g = io->impl;
    struct raft_message m = *message;

    if (g->failed)
        return send_hold(g, req, cb);
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

        pms_guard_candidate_accept(g);
        limit = verified_limit(g);
        if (m.append_entries_result.last_log_index > limit) {
            m.append_entries_result.last_log_index = limit;
            g->stats.acks_clamped++;
        }
    }
    return g->inner->send(g->inner, req, &m, cb);
}
