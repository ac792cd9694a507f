// SPDX-License-Identifier: GPL-2.0-or-later
// Proposals: from whichever node, by way of the leader, exactly one attempt.
//
//   waiting --ready leader here--> applying (libraft) --> done | PMS_EUNKNOWN
//      |  ^--certainly not done, e.g. it does not lead--.
//      '--leader elsewhere--> forwarded (control channel) --> done | PMS_EUNKNOWN
//
// What waits at its deadline was certainly not done (PMS_ENOQUORUM); what was given away may have been.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "consensus/raft/node_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct proposal {
    struct pms_list list;
    struct pms_raft *raft; // NULL: it is closed, or gone silent
    json_t *command;       // a JSON string
    bool local;
    bool told; // its callback has run; only libraft or the RPC still holds it
    uint64_t deadline;
    uint64_t retry_at;
    struct raft_apply apply;
    pms_raft_propose_cb cb;
    void *data;
};

static void proposal_free(struct proposal *p)
{
    json_decref(p->command);
    free(p);
}

static void tell(struct proposal *p, int status, uint64_t index, const char *result)
{
    if (p->told)
        return;
    p->told = true;
    p->cb(p->data, status, index, result);
}

static void finish(struct proposal *p, int status, uint64_t index, const char *result)
{
    pms_list_del(&p->list);
    tell(p, status, index, result);
    proposal_free(p);
}

static int propose(struct pms_raft *r, const char *command, size_t len, unsigned timeout_ms, bool local,
                   pms_raft_propose_cb cb, void *data)
{
    struct proposal *p;

    if (r->closing || r->failed)
        return PMS_ESHUTDOWN;
    if (len > PMS_RAFT_COMMAND_MAX)
        return -EMSGSIZE;
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return -ENOMEM;
    p->command = json_stringn(command, len);
    if (p->command == NULL) {
        free(p);
        return -EINVAL; // not UTF-8
    }
    p->raft = r;
    p->local = local;
    p->deadline = pms_raft_now(r) + timeout_ms;
    p->cb = cb;
    p->data = data;
    pms_list_add_tail(&r->waiting, &p->list);
    pms_raft_schedule(r);
    return 0;
}

int pms_raft_propose(struct pms_raft *r, const char *command, size_t len, unsigned timeout_ms,
                     pms_raft_propose_cb cb, void *data)
{
    return propose(r, command, len, timeout_ms, false, cb, data);
}

int pms_raft_propose_local(struct pms_raft *r, const char *command, size_t len, unsigned timeout_ms,
                           pms_raft_propose_cb cb, void *data)
{
    return propose(r, command, len, timeout_ms, true, cb, data);
}

static void wait_again(struct pms_raft *r, struct proposal *p, unsigned delay_ms)
{
    pms_list_del(&p->list);
    p->retry_at = pms_raft_now(r) + delay_ms;
    pms_list_add_tail(&r->waiting, &p->list);
}

// ---- here

static void on_applied(struct raft_apply *apply, int status, void *result)
{
    struct proposal *p = apply->data;
    struct pms_raft *r = p->raft;

    (void)result;
    if (r == NULL) { // closed meanwhile
        proposal_free(p);
        return;
    }
    r->applying_n--;
    if (status == 0)
        finish(p, 0, apply->index, r->result != NULL ? r->result : "");
    else
        finish(p, PMS_EUNKNOWN, 0, NULL); // the entry may be on any disk
    pms_raft_schedule(r);
}

static void apply_start(struct pms_raft *r, struct proposal *p)
{
    struct raft_buffer buf;
    int rv = pms_raft_payload_wrap(json_string_value(p->command), json_string_length(p->command), &buf);

    if (rv != 0) {
        finish(p, rv, 0, NULL);
        return;
    }
    p->apply.data = p;
    rv = raft_apply(&r->raft, &p->apply, &buf, 1, on_applied);
    if (rv == 0) {
        pms_list_del(&p->list);
        pms_list_add_tail(&r->applying, &p->list);
        r->applying_n++;
        return;
    }
    raft_free(buf.base);
    if (rv == RAFT_NOTLEADER) // a transfer of leadership is under way
        wait_again(r, p, PMS_RAFT_TICK_MS);
    else
        finish(p, pms_raft_err(rv), 0, NULL);
}

// ---- elsewhere

// Codes of a leader's (or of our RPC's) answer that say: not done, try again.
static bool is_not_done(int status)
{
    switch (status) {
    case PMS_ENOTLEADER:
    case PMS_ENOQUORUM:
    case PMS_ESHUTDOWN:
    case PMS_EBUSY:
    case PMS_ENOTFOUND: // its raft service is not up yet, or it has no address
    case PMS_EAUTH:
    case PMS_EIDENTITY:
    case PMS_EVERSION:
    case PMS_EPROTO:
    case PMS_EREFUSED:
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ENETDOWN:
    case -EADDRNOTAVAIL:
    case -EPIPE:
        return true;
    default:
        return false;
    }
}

static void on_forwarded(void *data, int status, const json_t *body)
{
    struct proposal *p = data;
    struct pms_raft *r = p->raft;
    uint64_t index;

    if (r == NULL) {
        proposal_free(p);
        return;
    }
    r->forwarded_n--;
    if (status == 0 && pms_json_u64(body, "index", &index) != 0)
        status = PMS_EUNKNOWN;
    if (status == 0)
        finish(p, 0, index, pms_json_str(body, "result", ""));
    else if (is_not_done(status))
        wait_again(r, p, PMS_RAFT_RETRY_MS);
    else
        finish(p, status, 0, NULL);
    pms_raft_schedule(r);
}

static void forward_start(struct pms_raft *r, struct proposal *p, uint64_t leader)
{
    uint64_t now = pms_raft_now(r);
    unsigned timeout_ms = p->deadline > now ? (unsigned)(p->deadline - now) : 1;
    json_t *body =
        json_pack("{s:s, s:O, s:i}", "op", "propose", "command", p->command, "timeout_ms", (int)timeout_ms);
    int rv = -ENOMEM;

    if (body != NULL)
        rv = pms_rpc_call(r->config.rpc, leader, PMS_RAFT_SERVICE, body, timeout_ms, on_forwarded, p);
    json_decref(body);
    if (rv == 0) {
        pms_list_del(&p->list);
        pms_list_add_tail(&r->forwarded, &p->list);
        r->forwarded_n++;
    } else if (is_not_done(rv)) {
        wait_again(r, p, PMS_RAFT_RETRY_MS);
    } else {
        finish(p, rv, 0, NULL);
    }
}

// ---- all of them

static void expire(struct pms_raft *r)
{
    uint64_t now = pms_raft_now(r);
    struct pms_list due, *l;

    pms_list_init(&due);
    pms_list_for_each_safe (l, &r->waiting) {
        if (pms_list_entry(l, struct proposal, list)->deadline > now)
            continue;
        pms_list_del(l);
        pms_list_add_tail(&due, l);
    }
    while ((l = pms_list_pop(&due)) != NULL)
        finish(pms_list_entry(l, struct proposal, list), PMS_ENOQUORUM, 0, NULL);
    // libraft still holds these; only the one who waits is told.
    pms_list_for_each (l, &r->applying) {
        struct proposal *p = pms_list_entry(l, struct proposal, list);

        if (p->deadline <= now)
            tell(p, PMS_EUNKNOWN, 0, NULL);
    }
}

void pms_raft_proposals_work(struct pms_raft *r)
{
    struct pms_list todo;
    uint64_t now;

    expire(r);
    now = pms_raft_now(r);
    pms_list_init(&todo);
    pms_list_splice_tail(&todo, &r->waiting);
    while (!pms_list_empty(&todo)) {
        struct proposal *p = pms_list_entry(todo.next, struct proposal, list);
        uint64_t leader = pms_raft_leader(r);

        pms_list_del(&p->list);
        pms_list_add_tail(&r->waiting, &p->list);
        if (pms_raft_leads(r)) {
            if (pms_raft_is_ready(r) && p->retry_at <= now && r->applying_n < PMS_RAFT_WINDOW)
                apply_start(r, p);
        } else if (p->local) {
            finish(p, PMS_ENOTLEADER, 0, NULL);
        } else if (leader != 0 && leader != r->config.id && p->retry_at <= now &&
                   r->forwarded_n < PMS_RAFT_WINDOW) {
            forward_start(r, p, leader);
        }
    }
}

// Ends those that nobody holds with PMS_ESHUTDOWN, and tells the others; they are freed when they come back.
void pms_raft_proposals_close(struct pms_raft *r)
{
    struct pms_list held, *l;

    while ((l = pms_list_pop(&r->waiting)) != NULL)
        finish(pms_list_entry(l, struct proposal, list), PMS_ESHUTDOWN, 0, NULL);
    pms_list_init(&held);
    pms_list_splice_tail(&held, &r->applying);
    pms_list_splice_tail(&held, &r->forwarded);
    while (!pms_list_empty(&held)) {
        struct proposal *p = pms_list_entry(pms_list_pop(&held), struct proposal, list);

        p->raft = NULL;
        tell(p, PMS_EUNKNOWN, 0, NULL);
    }
}
