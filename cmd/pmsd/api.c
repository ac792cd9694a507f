// SPDX-License-Identifier: GPL-2.0-or-later
// The API's dispatch table, and the routes that only look. docs/api.md describes it.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/create.h"
#include "cmd/pmsd/gather.h"
#include "cmd/pmsd/handover.h"
#include "cmd/pmsd/http.h"
#include "cmd/pmsd/join.h"
#include "cmd/pmsd/metrics.h"
#include "cmd/pmsd/route.h"
#include "cmd/pmsd/settings.h"
#include "cmd/pmsd/token.h"
#include "cmd/pmsd/upgrade.h"
#include "cmd/pmsd/view.h"

#include <stdlib.h>
#include <time.h>

#define GATHER_MS 1000

// ---- Looking ----

static void body_answer(struct pms_req *req, const struct pms_gather *g, const char *key, json_t *list)
{
    json_t *body = json_object();

    json_object_set_new(body, key, list);
    pms_json_set_bool(body, "quorum", g->quorum);
    pms_req_answer(req, body);
}

static void status_gathered(void *data, struct pms_gather *g)
{
    pms_req_answer(data, pms_view_status(pms_req_app(data), g));
}

static void nodes_gathered(void *data, struct pms_gather *g)
{
    body_answer(data, g, "nodes", pms_view_nodes(pms_req_app(data), g));
}

static void arrays_gathered(void *data, struct pms_gather *g)
{
    body_answer(data, g, "arrays", pms_view_arrays(pms_req_app(data), g));
}

static void sessions_gathered(void *data, struct pms_gather *g)
{
    body_answer(data, g, "sessions", pms_view_sessions(pms_req_app(data)));
}

static void tokens_gathered(void *data, struct pms_gather *g)
{
    body_answer(data, g, "tokens", pms_tokens_view(pms_req_app(data), (uint64_t)time(NULL)));
}

static void settings_gathered(void *data, struct pms_gather *g)
{
    body_answer(data, g, "settings", pms_settings_view(pms_req_app(data)));
}

static void array_gathered(void *data, struct pms_gather *g)
{
    struct pms_app *app = pms_req_app(data);
    struct pms_array_info info;
    json_t *body;

    if (pms_state_array_get_by_name(app->state, pms_req_arg(data), &info) != 0) {
        pms_req_refuse(data, PMS_ENOTFOUND, "there is no array %s: pmsctl array list shows them",
                       pms_req_arg(data));
        return;
    }
    body = pms_view_array(app, g, &info);
    pms_json_set_bool(body, "quorum", g->quorum);
    pms_req_answer(data, body);
}

// The request waits while the cluster is looked at; it may find that this node has left meanwhile.
struct look {
    struct pms_req *req;
    pms_gather_cb then;
};

static void on_gathered(void *data, struct pms_gather *g)
{
    struct look *l = data;

    if (pms_req_app(l->req)->phase == PMS_APP_MEMBER)
        l->then(l->req, g);
    else
        pms_req_refuse(l->req, PMS_ESHUTDOWN, "this node is leaving the cluster or stopping");
    free(l);
}

static void look(struct pms_req *req, pms_gather_cb then)
{
    struct look *l = calloc(1, sizeof(*l));

    PMS_CHECK_MSG(l != NULL, "out of memory");
    *l = (struct look){req, then};
    pms_gather_start(pms_req_app(req), GATHER_MS, on_gathered, l);
}

static void get_nodes(struct pms_req *req)
{
    look(req, nodes_gathered);
}

static void get_arrays(struct pms_req *req)
{
    look(req, arrays_gathered);
}

static void get_array(struct pms_req *req)
{
    look(req, array_gathered);
}

static void get_tokens(struct pms_req *req)
{
    look(req, tokens_gathered);
}

static void get_settings(struct pms_req *req)
{
    look(req, settings_gathered);
}

static void get_sessions(struct pms_req *req)
{
    look(req, sessions_gathered);
}

// Answers in every phase: it is what an operator asks first.
static void get_status(struct pms_req *req)
{
    json_t *body;

    if (pms_req_app(req)->phase == PMS_APP_MEMBER) {
        look(req, status_gathered);
        return;
    }
    body = json_object();
    if (pms_req_app(req)->phase == PMS_APP_STOPPING) {
        pms_json_set_str(body, "kind", "stopping");
        pms_json_set_str(body, "verdict", "this node is just leaving its cluster, or stopping");
        pms_json_set_str(body, "next", "wait a moment");
        pms_json_set_bool(body, "quorum", false);
        pms_req_answer(req, body);
        return;
    }
    pms_json_set_str(body, "kind", "no cluster");
    pms_json_set_str(body, "verdict", "this node is in no cluster");
    pms_json_set_str(
        body, "next",
        "pmsctl cluster init for a new one, or pmsctl cluster join with a token from a node that is in "
        "one");
    pms_json_set_bool(body, "quorum", false);
    pms_req_answer(req, body);
}

static void get_metrics(struct pms_req *req)
{
    char *text = pms_metrics_text(pms_req_app(req));

    pms_req_answer_text(req, "text/plain; version=0.0.4", text);
    free(text);
}

// ---- The table ----

static const struct pms_route routes[] = {
    {"GET", "/v1/cluster/status", get_status, false},
    {"POST", "/v1/cluster/init", pms_init_route, false},
    {"POST", "/v1/cluster/join", pms_join_route, false},
    {"POST", "/v1/cluster/leave", pms_leave_route, true},
    {"POST", "/v1/cluster/upgrade", pms_upgrade_route, true},
    {"GET", "/v1/tokens", get_tokens, true},
    {"POST", "/v1/tokens", pms_token_route, true},
    {"DELETE", "/v1/tokens/*", pms_token_revoke_route, true},
    {"GET", "/v1/nodes", get_nodes, true},
    {"GET", "/v1/arrays", get_arrays, true},
    {"POST", "/v1/arrays", pms_create_route, true},
    {"GET", "/v1/arrays/*", get_array, true},
    {"DELETE", "/v1/arrays/*", pms_delete_route, true},
    {"POST", "/v1/arrays/*/handover", pms_handover_route, true},
    {"POST", "/v1/arrays/*/replace", pms_replace_route, true},
    {"POST", "/v1/arrays/*/recover", pms_array_recover_route, true},
    {"GET", "/v1/settings", get_settings, true},
    {"POST", "/v1/settings", pms_settings_set_route, true},
    {"POST", "/v1/arrays/*/set", pms_set_route, true},
    {"GET", "/v1/sessions", get_sessions, true},
    {"GET", "/v1/metrics", get_metrics, false},
};

const struct pms_route *pms_api_find(const char *method, const char *path, char *arg, size_t size,
                                     bool *known_path)
{
    return pms_route_match(routes, sizeof(routes) / sizeof(routes[0]), method, path, arg, size, known_path);
}
