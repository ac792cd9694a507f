// SPDX-License-Identifier: GPL-2.0-or-later
// Looking at the whole cluster from here: a barrier for the agreed state, and each node's own report.
#include "cmd/pmsd/gather.h"
#include "base/check.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

struct gather {
    struct pms_app *app;
    struct pms_gather g;
    unsigned waiting; // answers, the barrier's among them
    pms_gather_cb cb;
    void *data;
};

struct ask {
    struct gather *gather;
    unsigned node;
};

const json_t *pms_gather_array(const struct pms_gather *g, uint64_t node_id, uint64_t array_id)
{
    char text[PMS_ID_TEXT_SIZE];

    for (unsigned i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].info.id == node_id)
            return json_object_get(json_object_get(g->nodes[i].report, "arrays"),
                                   pms_id_format(array_id, text));
    return NULL;
}

// The bricks that their nodes cannot use. What is beyond the room for them is only not said.
static void bricks_collect(struct pms_gather *g, const struct pms_array_info *info)
{
    for (unsigned i = 0; i < info->n_slots && g->view.n_bricks < PMS_STATE_ARRAYS_MAX; i++) {
        const json_t *r = pms_gather_array(g, info->slots[i].node_id, info->id);
        const char *error = pms_json_str(r, "brick_error_text", NULL);

        if (error != NULL)
            g->bricks[g->view.n_bricks++] = (struct pms_policy_brick){info->id, info->slots[i].node_id, error,
                                                                      pms_json_str(r, "brick_path", "?")};
    }
}

// Those that do not answer because they cannot.
static void strange_collect(struct pms_gather *g, const struct pms_app *app)
{
    struct pms_net_mismatch m[2 * PMS_NODES_MAX];
    unsigned n = pms_net_mismatches(app->net, m, sizeof(m) / sizeof(m[0]));

    for (unsigned i = 0; i < g->n_nodes; i++)
        for (unsigned k = 0; k < n && !g->nodes[i].answered; k++)
            if (m[k].node == g->nodes[i].info.id)
                g->view.strange[g->view.n_strange++] = m[k].node;
}

// The policy's view: who answers, what the primaries say of their arrays, and the nodes of their bricks.
static void view_make(struct gather *w)
{
    struct pms_gather *g = &w->g;
    struct pms_array_info info;

    g->view.quorum = g->quorum;
    g->view.arrays = g->arrays;
    g->view.bricks = g->bricks;
    for (unsigned i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].answered)
            g->view.alive[g->view.n_alive++] = g->nodes[i].info.id;
    strange_collect(g, w->app);
    for (size_t c = 0; pms_state_array_next(w->app->state, &c, &info);) {
        const json_t *r =
            info.primary >= 0 ? pms_gather_array(g, info.slots[info.primary].node_id, info.id) : NULL;
        struct pms_policy_array *p = &g->arrays[g->view.n_arrays];
        uint64_t percent = 0;

        bricks_collect(g, &info);
        if (r == NULL || g->view.n_arrays == PMS_STATE_ARRAYS_MAX)
            continue;
        p->array_id = info.id;
        // Without promises of the others it answers nothing either.
        p->waiting = !pms_json_bool(r, "serving", false) || !pms_json_bool(r, "leased", false);
        p->resyncing = pms_json_bool(r, "resyncing", false);
        pms_json_u64(r, "percent", &percent);
        p->percent = (unsigned)percent;
        pms_json_u64(r, "eta_s", &p->eta_s);
        g->view.n_arrays++;
    }
}

static void gather_end_if_all(struct gather *w)
{
    if (--w->waiting > 0)
        return;
    if (w->app->phase == PMS_APP_MEMBER && w->app->state != NULL)
        view_make(w);
    w->cb(w->data, &w->g);
    for (unsigned i = 0; i < w->g.n_nodes; i++)
        json_decref(w->g.nodes[i].report);
    pms_app_kick(w->app);
    free(w);
}

static void on_report(void *data, int status, const json_t *body)
{
    struct ask *ask = data;
    struct gather *w = ask->gather;

    if (status == 0) {
        w->g.nodes[ask->node].answered = true;
        w->g.nodes[ask->node].report = json_deep_copy(body);
    }
    free(ask);
    gather_end_if_all(w);
}

static void on_barrier(void *data, int status)
{
    struct gather *w = data;

    w->g.quorum = status == 0;
    gather_end_if_all(w);
}

static void node_ask(struct gather *w, unsigned i, unsigned timeout_ms)
{
    struct ask *ask = calloc(1, sizeof(*ask));

    PMS_CHECK_MSG(ask != NULL, "out of memory");
    *ask = (struct ask){w, i};
    w->waiting++;
    if (pms_rpc_call(w->app->rpc, w->g.nodes[i].info.id, "local", NULL, timeout_ms, on_report, ask) != 0) {
        free(ask);
        w->waiting--;
    }
}

static void on_nothing(uv_handle_t *h)
{
    struct gather *w = h->data;

    free(h);
    gather_end_if_all(w);
}

void pms_gather_start(struct pms_app *app, unsigned timeout_ms, pms_gather_cb cb, void *data)
{
    struct gather *w = calloc(1, sizeof(*w));
    uv_timer_t *later = calloc(1, sizeof(*later));
    size_t c = 0;

    PMS_CHECK_MSG(w != NULL && later != NULL, "out of memory");
    w->app = app;
    w->cb = cb;
    w->data = data;
    // One count for this function, given back from the loop: so the callback never runs before the return.
    w->waiting = 1;
    uv_timer_init(app->loop, later);
    later->data = w;
    uv_close((uv_handle_t *)later, on_nothing);
    while (w->g.n_nodes < PMS_NODES_MAX &&
           pms_state_node_next(app->state, &c, &w->g.nodes[w->g.n_nodes].info))
        w->g.n_nodes++;
    w->waiting++;
    if (pms_raft_read_barrier(app->raft, timeout_ms, on_barrier, w) != 0)
        w->waiting--;
    for (unsigned i = 0; i < w->g.n_nodes; i++)
        node_ask(w, i, timeout_ms);
}
