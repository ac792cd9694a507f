// SPDX-License-Identifier: GPL-2.0-or-later
// Barriers and linearizable reads.
//
// A leader's barrier is an entry of its own term that has been committed and applied here: everything
// committed before it is applied too, and we were leader when it was committed. One is issued at every
// election; the others on demand, one at a time, for all who came while the one before was under way. A read
// at another node asks the leader for a barrier and the index it applied up to, and waits to have applied
// that itself.
//
//   reads_next --we lead--> barriers_next --> barriers_now --> done
//      |  ^----------------- lost leadership --------'
//      '--leader elsewhere--> reads_now --index--> reads_apply --> done
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "consensus/raft/node_internal.h"
#include <errno.h>
#include <stdlib.h>

#define READ_CALL_MS 1000

struct waiter {
    struct pms_list list;
    bool leader_only;
    uint64_t deadline;
    uint64_t index; // reads_apply: to be applied
    pms_raft_cb cb;
    void *data;
};

// One question to the leader; outlives a closed struct pms_raft.
struct pms_raft_read_call {
    struct pms_raft *raft; // NULL: closed
};

// One barrier; libraft may hold it for ever after a fatal error.
struct pms_raft_barrier_call {
    struct raft_barrier req;
    struct pms_raft *raft; // NULL: closed, or gone silent
    raft_term term;
};

static void finish(struct waiter *w, int status)
{
    pms_list_del(&w->list);
    w->cb(w->data, status);
    free(w);
}

// Those that are in the list now: callbacks may add more.
static void finish_all(struct pms_list *waiters, int status)
{
    struct pms_list now, *l;

    pms_list_init(&now);
    pms_list_splice_tail(&now, waiters);
    while ((l = pms_list_pop(&now)) != NULL)
        finish(pms_list_entry(l, struct waiter, list), status);
}

static int wait_new(struct pms_raft *r, struct pms_list *list, bool leader_only, unsigned timeout_ms,
                    pms_raft_cb cb, void *data)
{
    struct waiter *w;

    if (r->closing || r->failed)
        return PMS_ESHUTDOWN;
    w = calloc(1, sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    w->leader_only = leader_only;
    w->deadline = pms_raft_now(r) + timeout_ms;
    w->cb = cb;
    w->data = data;
    pms_list_add_tail(list, &w->list);
    pms_raft_schedule(r);
    return 0;
}

int pms_raft_barrier(struct pms_raft *r, unsigned timeout_ms, pms_raft_cb cb, void *data)
{
    return wait_new(r, &r->barriers_next, true, timeout_ms, cb, data);
}

int pms_raft_read_barrier(struct pms_raft *r, unsigned timeout_ms, pms_raft_cb cb, void *data)
{
    return wait_new(r, &r->reads_next, false, timeout_ms, cb, data);
}

// ---- here

// Not leader (any more): who needs no leader here tries again elsewhere.
static void barrier_lost(struct pms_raft *r, struct pms_list *waiters)
{
    struct pms_list failed;

    pms_list_init(&failed);
    pms_list_for_each_safe (l, waiters) {
        pms_list_del(l);
        pms_list_add_tail(pms_list_entry(l, struct waiter, list)->leader_only ? &failed : &r->reads_next, l);
    }
    finish_all(&failed, PMS_ENOTLEADER);
}

static void on_barrier(struct raft_barrier *req, int status)
{
    struct pms_raft_barrier_call *b = req->data;
    struct pms_raft *r = b->raft;

    if (r != NULL) {
        r->barrier_call = NULL;
        if (status == 0) {
            r->ready_term = b->term;
            finish_all(&r->barriers_now, 0);
        } else {
            barrier_lost(r, &r->barriers_now);
        }
        pms_raft_schedule(r);
    }
    free(b);
}

static void barrier_start(struct pms_raft *r)
{
    struct pms_raft_barrier_call *b = calloc(1, sizeof *b);

    if (b == NULL)
        return; // the next tick tries again
    b->raft = r;
    b->req.data = b;
    b->term = r->raft.current_term;
    if (raft_barrier(&r->raft, &b->req, on_barrier) != 0) {
        free(b); // a transfer of leadership is under way
        return;
    }
    r->barrier_call = b;
    r->barrier_term = b->term;
    pms_list_splice_tail(&r->barriers_now, &r->barriers_next);
}

static void barriers_work(struct pms_raft *r)
{
    if (!pms_raft_leads(r)) {
        barrier_lost(r, &r->barriers_next);
        return;
    }
    pms_list_splice_tail(&r->barriers_next, &r->reads_next);
    if (r->barrier_call != NULL)
        return;
    if (r->barrier_term != r->raft.current_term || !pms_list_empty(&r->barriers_next))
        barrier_start(r);
}

// ---- elsewhere

static void on_read_index(void *data, int status, const json_t *body)
{
    struct pms_raft_read_call *call = data;
    struct pms_raft *r = call->raft;
    uint64_t index;

    free(call);
    if (r == NULL)
        return;
    r->read_call = NULL;
    if (status == 0 && pms_json_u64(body, "index", &index) == 0) {
        pms_list_for_each (l, &r->reads_now)
            pms_list_entry(l, struct waiter, list)->index = index;
        pms_list_splice_tail(&r->reads_apply, &r->reads_now);
    } else { // asking again does no harm
        pms_list_splice_tail(&r->reads_next, &r->reads_now);
        r->read_retry_at = pms_raft_now(r) + PMS_RAFT_RETRY_MS;
    }
    pms_raft_schedule(r);
}

static void reads_ask(struct pms_raft *r)
{
    uint64_t leader = pms_raft_leader(r);
    struct pms_raft_read_call *call;
    json_t *body;
    int rv = -ENOMEM;

    if (leader == 0 || pms_raft_leads(r) || r->read_call != NULL || pms_list_empty(&r->reads_next) ||
        r->read_retry_at > pms_raft_now(r))
        return;
    call = calloc(1, sizeof *call);
    body = json_pack("{s:s, s:i}", "op", "read_index", "timeout_ms", READ_CALL_MS);
    if (call != NULL && body != NULL) {
        call->raft = r;
        rv = pms_rpc_call(r->config.rpc, leader, PMS_RAFT_SERVICE, body, READ_CALL_MS, on_read_index, call);
    }
    json_decref(body);
    if (rv != 0) {
        free(call);
        r->read_retry_at = pms_raft_now(r) + PMS_RAFT_RETRY_MS;
        return;
    }
    r->read_call = call;
    pms_list_splice_tail(&r->reads_now, &r->reads_next);
}

static void reads_applied(struct pms_raft *r)
{
    raft_index applied = raft_last_applied(&r->raft);
    struct pms_list done;

    pms_list_init(&done);
    pms_list_for_each_safe (l, &r->reads_apply) {
        if (pms_list_entry(l, struct waiter, list)->index > applied)
            continue;
        pms_list_del(l);
        pms_list_add_tail(&done, l);
    }
    finish_all(&done, 0);
}

// ---- all of them

static void expire(struct pms_list *waiters, uint64_t now)
{
    struct pms_list due;

    pms_list_init(&due);
    pms_list_for_each_safe (l, waiters) {
        if (pms_list_entry(l, struct waiter, list)->deadline > now)
            continue;
        pms_list_del(l);
        pms_list_add_tail(&due, l);
    }
    finish_all(&due, PMS_ENOQUORUM);
}

void pms_raft_barriers_work(struct pms_raft *r)
{
    struct pms_list *all[] = {&r->barriers_next, &r->barriers_now, &r->reads_next, &r->reads_now,
                              &r->reads_apply};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        expire(all[i], pms_raft_now(r));
    barriers_work(r);
    reads_ask(r);
    reads_applied(r);
}

void pms_raft_barriers_close(struct pms_raft *r)
{
    struct pms_list *all[] = {&r->barriers_next, &r->barriers_now, &r->reads_next, &r->reads_now,
                              &r->reads_apply};

    if (r->read_call != NULL)
        r->read_call->raft = NULL;
    r->read_call = NULL;
    if (r->barrier_call != NULL)
        r->barrier_call->raft = NULL;
    r->barrier_call = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        finish_all(all[i], PMS_ESHUTDOWN);
}
