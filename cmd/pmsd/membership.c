// SPDX-License-Identifier: GPL-2.0-or-later
// Raft membership follows the agreed list of nodes.
//
// At the leader, every half second, one change at a time: a node of the list that is no voter becomes one (at
// most PMS_VOTERS_MAX, the others follow as standbys); a member that is not on the list is removed; if that
// is the leader itself, it hands leadership over first. So join and leave only change the list, and whoever
// leads finishes the work. A member that left is removed only after its farewell: it has applied that it left
// and has removed its bricks; or it does not answer, or takes too long.
//
// A node that is not on the list of its own state, or that hears no leader for long, asks the others; the
// leader's word (after a barrier) that it is no member makes it leave: it forgets the cluster and takes a new
// id.
#include "cmd/pmsd/membership.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsd/local.h"
#include "cmd/pmsd/member.h"

#include <stdlib.h>
#include <string.h>

#define RECONCILE_NS  500000000ull
#define ASK_NS        1000000000ull
#define ASK_LEFT_NS   200000000ull // by one that knows that it has left
#define LEADERLESS_NS 3000000000ull
#define SILENT_NS     2500000000ull  // a leaving node that does not answer is down
#define FAREWELL_NS   15000000000ull // for its bricks
#define CHANGE_MS     20000
#define ASK_MS        1000

// The member that is on the list no more, at the leader.
struct farewell {
    uint64_t id; // 0: none
    uint64_t since_ns, heard_ns;
    bool asking;
    bool cleared; // it said so
};

struct pms_members {
    struct pms_app *app;
    struct farewell farewell;
    bool changing; // a change of the membership is under way
    bool asking;
    unsigned ask_next;                        // whom
    uint64_t reconcile_ns, ask_ns, leader_ns; // when next; when last heard
};

struct pms_members *pms_members_create(struct pms_app *app)
{
    struct pms_members *m = calloc(1, sizeof(*m));

    PMS_CHECK_MSG(m != NULL, "out of memory");
    m->app = app;
    m->leader_ns = pms_clock_boot_ns();
    return m;
}

void pms_members_destroy(struct pms_members *m)
{
    free(m);
}

// ---- The leader's work ----

static void on_changed(void *data, int status)
{
    struct pms_app *app = data;

    if (status != 0 && status != PMS_ENOTLEADER && status != PMS_ESHUTDOWN)
        pms_log(PMS_LOG_WARN, "a change of the Raft membership failed and is tried again: %s",
                pms_err_text(status));
    if (app->members != NULL)
        app->members->changing = false;
    pms_app_kick(app);
}

static void member_set(struct pms_members *m, uint64_t id, enum pms_raft_role role, const char *what)
{
    pms_log(PMS_LOG_INFO, "node %s %s", pms_log_hexid(id), what);
    m->changing = pms_raft_member_set(m->app->raft, id, role, CHANGE_MS, on_changed, m->app) == 0;
}

static const struct pms_raft_member *member_find(const struct pms_raft_status *st, uint64_t id)
{
    for (unsigned i = 0; i < st->members_n; i++)
        if (st->members[i].id == id)
            return &st->members[i];
    return NULL;
}

static unsigned voters_count(const struct pms_raft_status *st)
{
    unsigned n = 0;

    for (unsigned i = 0; i < st->members_n; i++)
        n += st->members[i].role == PMS_RAFT_VOTER ? 1 : 0;
    return n;
}

static bool add_one(struct pms_members *m, const struct pms_raft_status *st)
{
    enum pms_raft_role want = voters_count(st) < PMS_VOTERS_MAX ? PMS_RAFT_VOTER : PMS_RAFT_STANDBY;
    struct pms_node_info node;

    for (size_t c = 0; pms_state_node_next(m->app->state, &c, &node);) {
        const struct pms_raft_member *have = member_find(st, node.id);

        if (have != NULL && have->role >= want)
            continue;
        member_set(m, node.id, want, want == PMS_RAFT_VOTER ? "becomes a voter" : "becomes a standby");
        return true;
    }
    return false;
}

// By its own state this node has left.
static bool has_left(const struct pms_app *app)
{
    struct pms_node_info node;

    return app->caught_up && pms_state_has_cluster(app->state) &&
           pms_state_node_get(app->state, app->node.id, &node) != 0;
}

bool pms_members_cleared(const struct pms_app *app)
{
    return app->phase == PMS_APP_MEMBER && has_left(app) && pms_locals_none(app);
}

struct farewell_ask {
    struct pms_app *app;
    uint64_t id;
};

static void on_farewell(void *data, int status, const json_t *body)
{
    struct farewell_ask *ask = data;
    struct pms_members *m = ask->app->members;

    if (m != NULL && m->farewell.id == ask->id) {
        m->farewell.asking = false;
        if (status == 0)
            m->farewell.heard_ns = pms_clock_boot_ns();
        m->farewell.cleared = status == 0 && pms_json_bool(body, "cleared", false);
        if (m->farewell.cleared)
            m->reconcile_ns = 0;
    }
    free(ask);
}

static void farewell_ask(struct pms_members *m)
{
    struct farewell_ask *ask;

    if (m->farewell.asking || m->farewell.id == m->app->node.id)
        return;
    ask = calloc(1, sizeof(*ask));
    PMS_CHECK_MSG(ask != NULL, "out of memory");
    *ask = (struct farewell_ask){m->app, m->farewell.id};
    m->farewell.asking = pms_rpc_call(m->app->rpc, ask->id, "local", NULL, ASK_MS, on_farewell, ask) == 0;
    if (!m->farewell.asking)
        free(ask);
}

// May the member go? Else it is asked again.
static bool farewell_over(struct pms_members *m, uint64_t id)
{
    uint64_t now = pms_clock_boot_ns();
    struct farewell *f = &m->farewell;

    if (f->id != id)
        *f = (struct farewell){.id = id, .since_ns = now, .heard_ns = now};
    if (id == m->app->node.id) {
        f->cleared = pms_members_cleared(m->app);
        f->heard_ns = now;
    }
    if (f->cleared)
        return true;
    if (now - f->heard_ns > SILENT_NS || now - f->since_ns > FAREWELL_NS) {
        pms_log(PMS_LOG_WARN, "node %s has left, but %s: it may keep brick files", pms_log_hexid(id),
                now - f->heard_ns > SILENT_NS ? "does not answer" : "has not removed its bricks in time");
        return true;
    }
    farewell_ask(m);
    return false;
}

static bool remove_one(struct pms_members *m, const struct pms_raft_status *st)
{
    struct pms_node_info node;

    for (unsigned i = 0; i < st->members_n; i++) {
        if (pms_state_node_get(m->app->state, st->members[i].id, &node) == 0)
            continue;
        if (!farewell_over(m, st->members[i].id))
            return true;
        if (st->members[i].id == m->app->node.id)
            m->changing = pms_raft_transfer(m->app->raft, 0, on_changed, m->app) == 0;
        else
            member_set(m, st->members[i].id, PMS_RAFT_GONE, "is removed from the Raft group");
        return true;
    }
    return false;
}

static void reconcile(struct pms_members *m)
{
    struct pms_raft_status st;

    if (!pms_raft_is_ready(m->app->raft))
        m->farewell.id = 0; // the next leader sees to it
    if (m->changing || !pms_raft_is_ready(m->app->raft) || !pms_state_has_cluster(m->app->state))
        return;
    pms_raft_status_get(m->app->raft, &st);
    if (remove_one(m, &st))
        return;
    m->farewell.id = 0;
    add_one(m, &st);
}

// ---- Am I still one of you? ----

static void on_answer(void *data, int status, const json_t *body)
{
    struct pms_app *app = data;

    if (app->members != NULL)
        app->members->asking = false;
    if (status != 0 || pms_json_bool(body, "member", true) || app->phase != PMS_APP_MEMBER)
        return;
    pms_log(PMS_LOG_WARN,
            "this node is in the cluster no more: it forgets the cluster and waits for a new one");
    pms_member_leave(app);
}

static bool in_doubt(struct pms_members *m, uint64_t now)
{
    struct pms_app *app = m->app;

    if (pms_raft_leader(app->raft) != 0)
        m->leader_ns = now;
    if (now - m->leader_ns > LEADERLESS_NS)
        return true;
    return has_left(app);
}

// The turn-th node of the state, from the start again after the last; 0: there is none.
static uint64_t listed_node(const struct pms_app *app, unsigned turn)
{
    struct pms_node_info node;
    unsigned n = 0;
    size_t c;

    for (c = 0; pms_state_node_next(app->state, &c, &node);)
        n++;
    if (n == 0)
        return 0;
    turn %= n;
    for (c = 0; pms_state_node_next(app->state, &c, &node) && turn > 0;)
        turn--;
    return node.id;
}

// Only the leader answers: who led last, those on the list, and those whom this node ever knew, in turn. The
// last only if the state may be old: they may be many and gone.
static uint64_t whom_to_ask(struct pms_members *m)
{
    const struct pms_node_file *node = &m->app->node;
    unsigned ways = has_left(m->app) ? 2 : 3, turn = m->ask_next / ways, way = m->ask_next % ways;

    m->ask_next++;
    if (way == 0)
        return pms_raft_leader(m->app->raft);
    if (way == 1)
        return listed_node(m->app, turn);
    return node->n_peers > 0 ? node->peers[turn % node->n_peers].id : 0;
}

static void ask(struct pms_members *m)
{
    uint64_t to;

    if (m->asking)
        return;
    to = whom_to_ask(m);
    if (to != 0 && to != m->app->node.id)
        m->asking = pms_rpc_call(m->app->rpc, to, "member", NULL, ASK_MS, on_answer, m->app) == 0;
    else
        m->ask_ns = 0; // the next one soon
}

void pms_members_tick(struct pms_members *m)
{
    uint64_t now = pms_clock_boot_ns();

    if (now >= m->reconcile_ns) {
        m->reconcile_ns = now + RECONCILE_NS;
        reconcile(m);
    }
    if (in_doubt(m, now) && now >= m->ask_ns) {
        m->ask_ns = now + (has_left(m->app) ? ASK_LEFT_NS : ASK_NS);
        ask(m);
    }
}

struct question {
    struct pms_app *app;
    struct pms_rpc_request *request;
    uint64_t from;
};

static void on_sure(void *data, int status)
{
    struct question *q = data;
    struct pms_raft_status st;
    struct pms_node_info node;
    json_t *body;

    if (status != 0 || q->app->phase != PMS_APP_MEMBER) {
        pms_rpc_answer(q->request, status != 0 ? status : PMS_ESHUTDOWN, NULL);
    } else {
        pms_raft_status_get(q->app->raft, &st);
        body = json_object();
        pms_json_set_bool(body, "member",
                          pms_state_node_get(q->app->state, q->from, &node) == 0 ||
                              member_find(&st, q->from) != NULL);
        pms_rpc_answer(q->request, 0, body);
        json_decref(body);
    }
    free(q);
}

void pms_members_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct pms_app *app = data;
    struct question *q = calloc(1, sizeof(*q));
    int rv;

    (void)body;
    PMS_CHECK_MSG(q != NULL, "out of memory");
    *q = (struct question){app, request, from};
    rv = app->phase == PMS_APP_MEMBER ? pms_raft_barrier(app->raft, ASK_MS, on_sure, q) : PMS_ESHUTDOWN;
    if (rv != 0) {
        pms_rpc_answer(request, rv, NULL);
        free(q);
    }
}

// ---- Addresses ----

void pms_members_note_addresses(struct pms_app *app)
{
    struct sockaddr_storage addr;
    struct pms_node_info node;
    bool changed = false;

    for (size_t c = 0; pms_state_node_next(app->state, &c, &node);)
        if (node.id != app->node.id && pms_addr_parse(node.addr, PMS_PORT_NODE, &addr) == 0)
            changed |= pms_node_file_peer(&app->node, node.id, &addr);
    if (changed)
        pms_node_save(app);
}
