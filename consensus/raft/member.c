// SPDX-License-Identifier: GPL-2.0-or-later
// Membership, at the leader: brings nodes to their roles one change at a time, and hands leadership on.
//
// A change looks at what is so and does the next step towards what is wanted, until there is none:
//   absent --raft_add--> spare --raft_assign--> standby | voter;   any --raft_remove--> absent
// Steps that fail are tried again, since libraft may leave a node a spare (it was too slow to catch up, say).
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "consensus/raft/node_internal.h"
#include <errno.h>
#include <stdlib.h>

#define CHANGE_RETRY_MS 100

struct change {
    struct pms_list list;
    uint64_t id;
    enum pms_raft_role role;
    uint64_t deadline;
    pms_raft_cb cb;
    void *data;
};

// One step with libraft. Stays allocated if libraft keeps it for ever (fatal error).
struct pms_raft_change_call {
    struct raft_change req;
    struct pms_raft *raft; // NULL: closed
};

struct transfer {
    struct pms_list list;
    struct raft_transfer req;
    struct pms_raft *raft;
    bool started;
    bool done; // libraft has called back; it may still be sending from req
    pms_raft_cb cb;
    void *data;
};

static void finish(struct change *c, int status)
{
    pms_list_del(&c->list);
    c->cb(c->data, status);
    free(c);
}

static void finish_all(struct pms_raft *r, int status)
{
    struct pms_list now, *l;

    pms_list_init(&now);
    pms_list_splice_tail(&now, &r->changes);
    while ((l = pms_list_pop(&now)) != NULL)
        finish(pms_list_entry(l, struct change, list), status);
}

enum pms_raft_role pms_raft_role_of(int role)
{
    return role == RAFT_VOTER ? PMS_RAFT_VOTER : (role == RAFT_STANDBY ? PMS_RAFT_STANDBY : PMS_RAFT_SPARE);
}

static int role_to_raft(enum pms_raft_role role)
{
    return role == PMS_RAFT_VOTER ? RAFT_VOTER : (role == PMS_RAFT_STANDBY ? RAFT_STANDBY : RAFT_SPARE);
}

static enum pms_raft_role role_now(const struct pms_raft *r, uint64_t id)
{
    const struct raft_configuration *c = &r->raft.configuration;

    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].id == id)
            return pms_raft_role_of(c->servers[i].role);
    return PMS_RAFT_GONE;
}

static unsigned voters_n(const struct pms_raft *r)
{
    const struct raft_configuration *c = &r->raft.configuration;
    unsigned n = 0;

    for (unsigned i = 0; i < c->n; i++)
        n += c->servers[i].role == RAFT_VOTER ? 1 : 0;
    return n;
}

int pms_raft_member_set(struct pms_raft *r, uint64_t id, enum pms_raft_role role, unsigned timeout_ms,
                        pms_raft_cb cb, void *data)
{
    struct change *c;

    if (r->closing || r->failed)
        return PMS_ESHUTDOWN;
    if (id == 0)
        return -EINVAL;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return -ENOMEM;
    c->id = id;
    c->role = role;
    c->deadline = pms_raft_now(r) + timeout_ms;
    c->cb = cb;
    c->data = data;
    pms_list_add_tail(&r->changes, &c->list);
    pms_raft_schedule(r);
    return 0;
}

static void on_changed(struct raft_change *req, int status)
{
    struct pms_raft_change_call *call = req->data;
    struct pms_raft *r = call->raft;

    free(call);
    if (r == NULL)
        return;
    r->change_call = NULL;
    if (status != 0)
        r->change_retry_at = pms_raft_now(r) + CHANGE_RETRY_MS;
    pms_raft_schedule(r);
}

// Starts the next step. 0, or libraft's code (it is then tried again).
static int step_start(struct pms_raft *r, const struct change *c, enum pms_raft_role now)
{
    struct pms_raft_change_call *call = calloc(1, sizeof *call);
    char address[PMS_ID_TEXT_SIZE];
    int rv;

    if (call == NULL)
        return RAFT_NOMEM;
    call->raft = r;
    call->req.data = call;
    if (c->role == PMS_RAFT_GONE)
        rv = raft_remove(&r->raft, &call->req, c->id, on_changed);
    else if (now == PMS_RAFT_GONE)
        rv = raft_add(&r->raft, &call->req, c->id, pms_id_format(c->id, address), on_changed);
    else
        rv = raft_assign(&r->raft, &call->req, c->id, role_to_raft(c->role), on_changed);
    if (rv == 0)
        r->change_call = call;
    else
        free(call);
    return rv;
}

// The change that is first in the queue. True: it is done with, look at the next one.
static bool change_work(struct pms_raft *r, struct change *c)
{
    enum pms_raft_role now = role_now(r, c->id);

    if (c->deadline <= pms_raft_now(r)) {
        finish(c, PMS_EUNKNOWN);
        return true;
    }
    if (r->change_call != NULL || r->raft.configuration_uncommitted_index != 0 || !pms_raft_is_ready(r) ||
        r->change_retry_at > pms_raft_now(r))
        return false;
    if (now == c->role) {
        finish(c, 0);
        return true;
    }
    if (c->id == r->config.id) {
        finish(c, PMS_EREFUSED);
        return true;
    }
    if (c->role == PMS_RAFT_VOTER && voters_n(r) >= PMS_VOTERS_MAX) {
        finish(c, PMS_EFULL);
        return true;
    }
    if (step_start(r, c, now) != 0)
        r->change_retry_at = pms_raft_now(r) + CHANGE_RETRY_MS;
    return false;
}

// When each follower was last heard of: libraft's own mark is cleared once an election timeout.
static void heard_work(struct pms_raft *r)
{
    const struct raft_configuration *c = &r->raft.configuration;

    for (unsigned i = 0; i < c->n && i < 2 * PMS_NODES_MAX; i++)
        if (r->raft.leader_state.progress != NULL && r->raft.leader_state.progress[i].recent_recv)
            r->heard_at[i] = pms_raft_now(r);
}

// ---- transfer of leadership

static void on_transferred(struct raft_transfer *req)
{
    struct transfer *t = req->data;
    struct pms_raft *r = t->raft;

    if (t->done)
        return;
    t->done = true;
    t->cb(t->data, r->raft.state != RAFT_LEADER ? 0 : -ETIMEDOUT);
    pms_raft_schedule(r);
}

static void transfer_start(struct transfer *t)
{
    struct pms_raft *r = t->raft;
    int rv = RAFT_NOTLEADER;

    t->started = true;
    if (pms_raft_leads(r) && r->raft.transfer != NULL)
        rv = RAFT_BUSY;
    else if (pms_raft_leads(r))
        rv = raft_transfer(&r->raft, &t->req, t->req.id, on_transferred);
    if (rv == 0)
        return;
    t->done = true;
    t->cb(t->data, pms_raft_err(rv));
}

int pms_raft_transfer(struct pms_raft *r, uint64_t id, pms_raft_cb cb, void *data)
{
    struct transfer *t;

    if (r->closing || r->failed)
        return PMS_ESHUTDOWN;
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return -ENOMEM;
    t->raft = r;
    t->req.id = id;
    t->req.data = t;
    t->cb = cb;
    t->data = data;
    pms_list_add_tail(&r->transfers, &t->list);
    pms_raft_schedule(r);
    return 0;
}

static void transfers_work(struct pms_raft *r)
{
    pms_list_for_each (l, &r->transfers) {
        struct transfer *t = pms_list_entry(l, struct transfer, list);

        if (!t->started && !t->done)
            transfer_start(t);
    }
}

// ---- all of it

void pms_raft_members_work(struct pms_raft *r)
{
    transfers_work(r);
    if (!pms_raft_leads(r)) {
        finish_all(r, PMS_ENOTLEADER);
        return;
    }
    heard_work(r);
    while (!pms_list_empty(&r->changes) &&
           change_work(r, pms_list_entry(r->changes.next, struct change, list)))
        ;
}

void pms_raft_members_close(struct pms_raft *r)
{
    if (r->change_call != NULL)
        r->change_call->raft = NULL;
    r->change_call = NULL;
    finish_all(r, PMS_ESHUTDOWN);
    pms_list_for_each (l, &r->transfers) {
        struct transfer *t = pms_list_entry(l, struct transfer, list);

        if (!t->done) {
            t->done = true;
            t->cb(t->data, PMS_ESHUTDOWN);
        }
    }
}

void pms_raft_members_free(struct pms_raft *r)
{
    struct pms_list *l;

    while ((l = pms_list_pop(&r->transfers)) != NULL)
        free(pms_list_entry(l, struct transfer, list));
}

// ---- status

void pms_raft_status_get(const struct pms_raft *r, struct pms_raft_status *s)
{
    const struct raft_configuration *c = &r->raft.configuration;
    bool leads = pms_raft_leads(r);
    unsigned election_ms = r->raft.election_timeout;

    *s = (struct pms_raft_status){.term = r->raft.current_term,
                                  .leader = pms_raft_leader(r),
                                  .is_leader = leads,
                                  .is_ready = pms_raft_is_ready(r),
                                  .is_caught_up = r->caught_up,
                                  .index_last = raft_last_index((struct raft *)&r->raft),
                                  .index_commit = r->raft.commit_index,
                                  .index_applied = r->raft.last_applied};
    for (unsigned i = 0; i < c->n && s->members_n < 2 * PMS_NODES_MAX; i++) {
        struct pms_raft_member *m = &s->members[s->members_n++];

        m->id = c->servers[i].id;
        m->role = pms_raft_role_of(c->servers[i].role);
        if (!leads)
            continue;
        m->heard = m->id == r->config.id || r->heard_at[i] + election_ms > pms_raft_now(r);
        m->match = r->raft.leader_state.progress[i].match_index;
    }
}
