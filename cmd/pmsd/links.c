// SPDX-License-Identifier: GPL-2.0-or-later
// How well the nodes hear each other, the witnesses too, and what that says of this node.
//
// Each node sends each other one a pulse every tick, with what it heard of all; both the pulse and its answer carry
// that. A pulse not answered within LATE_MS was not heard. So a link that loses or delays much shows at both ends,
// and a third node's word tells which end is the sick one.
#include "cmd/pmsd/links.h"
#include "base/check.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/util.h"
#include "cmd/pmsd/local.h"

#include <stdlib.h>
#include <string.h>

#define LATE_MS  150
#define PULSE_MS 1000          // then the call is given up
#define NEWS_NS  3000000000ull // what a node said counts for so long
#define NEWEST   2             // pulses that may still be answered in time
#define COUNTED  8             // the ones before
#define OUT_MAX  12            // unanswered pulses of one node

struct link {
    uint64_t id;
    uint64_t sent;           // pulses so far
    uint32_t heard;          // bit i: the pulse before i others was answered in time
    unsigned out;            // calls without an end
    uint64_t news_ns;        // when it last said something; 0: never
    int told[PMS_NODES_MAX]; // how it hears the nodes of links[], and of this node at [n]; -1: nothing said
};

struct pms_links {
    struct pms_app *app;
    struct link links[PMS_NODES_MAX];
    unsigned n;
};

struct pulse {
    struct pms_app *app;
    uint64_t id, number, sent_ns;
};

struct pms_links *pms_links_create(struct pms_app *app)
{
    struct pms_links *l = calloc(1, sizeof(*l));

    PMS_CHECK_MSG(l != NULL, "out of memory");
    l->app = app;
    return l;
}

void pms_links_destroy(struct pms_links *links)
{
    free(links);
}

static struct link *link_of(struct pms_links *l, uint64_t id)
{
    for (unsigned i = 0; l != NULL && i < l->n; i++)
        if (l->links[i].id == id)
            return &l->links[i];
    return NULL;
}

// The list follows the state; what was known is forgotten when it changes, which is seldom.
static void links_sync(struct pms_links *l)
{
    struct pms_node_info node;
    unsigned n = 0;
    bool same = true;

    for (size_t c = 0; pms_state_node_next(l->app->state, &c, &node);)
        if (node.id != l->app->node.id)
            same = same && n < l->n && l->links[n].id == node.id, n++;
    if (same && n == l->n)
        return;
    memset(l->links, 0, sizeof(l->links));
    l->n = 0;
    for (size_t c = 0; pms_state_node_next(l->app->state, &c, &node) && l->n < PMS_NODES_MAX;)
        if (node.id != l->app->node.id)
            l->links[l->n++].id = node.id;
}

// Percent; of a node that is new here: well, until it is known.
static int score(const struct link *k)
{
    if (k->sent < COUNTED + NEWEST)
        return 100;
    return __builtin_popcount((k->heard >> NEWEST) & ((1u << COUNTED) - 1)) * 100 / COUNTED;
}

// ---- Pulses ----

static json_t *news_make(const struct pms_links *l)
{
    json_t *body = json_object(), *heard = json_object();
    char text[PMS_ID_TEXT_SIZE];

    for (unsigned i = 0; l != NULL && i < l->n; i++)
        json_object_set_new(heard, pms_id_format(l->links[i].id, text), json_integer(score(&l->links[i])));
    json_object_set_new(body, "heard", heard);
    return body;
}

static int told_get(const json_t *heard, uint64_t id)
{
    char text[PMS_ID_TEXT_SIZE];
    const json_t *v = json_object_get(heard, pms_id_format(id, text));

    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 100)
        return -1;
    return (int)json_integer_value(v);
}

static void news_take(struct pms_links *l, uint64_t from, const json_t *body)
{
    const json_t *heard = json_object_get(body, "heard");
    struct link *k = link_of(l, from);

    if (k == NULL || !json_is_object(heard))
        return;
    k->news_ns = pms_clock_boot_ns();
    for (unsigned i = 0; i < l->n; i++)
        k->told[i] = told_get(heard, l->links[i].id);
    k->told[l->n] = told_get(heard, l->app->node.id);
}

void pms_links_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct pms_app *app = data;
    json_t *news = news_make(app->links);

    news_take(app->links, from, body);
    pms_rpc_answer(request, 0, news);
    json_decref(news);
}

static void on_pulse(void *data, int status, const json_t *body)
{
    struct pulse *p = data;
    struct link *k = link_of(p->app->links, p->id);

    if (k != NULL && k->sent >= p->number) {
        uint64_t age = k->sent - p->number;

        k->out -= k->out > 0 ? 1 : 0;
        if (status == 0)
            news_take(p->app->links, p->id, body);
        if (status == 0 && age < 32 && pms_clock_boot_ns() - p->sent_ns <= LATE_MS * 1000000ull)
            k->heard |= 1u << age;
    }
    free(p);
}

static void pulse_send(struct pms_links *l, struct link *k, const json_t *news)
{
    struct pulse *p;

    k->sent++;
    k->heard <<= 1;
    if (k->out >= OUT_MAX)
        return; // counts as not heard
    p = calloc(1, sizeof(*p));
    PMS_CHECK_MSG(p != NULL, "out of memory");
    *p = (struct pulse){l->app, k->id, k->sent, pms_clock_boot_ns()};
    if (pms_rpc_call(l->app->rpc, k->id, "pulse", news, PULSE_MS, on_pulse, p) == 0)
        k->out++;
    else
        free(p);
}

// ---- The verdict ----

static bool is_doubtful(const struct pms_links *l, uint64_t id, uint64_t now)
{
    int mine[PMS_NODES_MAX], self[PMS_NODES_MAX], peer[PMS_NODES_MAX];
    unsigned n = 0, at = 0;

    while (at < l->n && l->links[at].id != id)
        at++;
    for (unsigned i = 0; i < l->n && at < l->n; i++) {
        const struct link *k = &l->links[i];

        if (i == at)
            continue;
        mine[n] = k->news_ns != 0 && now - k->news_ns < NEWS_NS ? score(k) : -1;
        self[n] = k->told[l->n];
        peer[n++] = k->told[at];
    }
    return pms_links_verdict(mine, self, peer, n);
}

static void array_judge(const struct pms_links *l, struct pms_local *a, uint64_t now)
{
    uint8_t slots = 0;

    for (unsigned i = 0; pms_local_is_primary(a) && i < a->info.n_slots; i++)
        if ((int)i != a->slot && a->info.slots[i].in_sync && is_doubtful(l, a->info.slots[i].node_id, now))
            slots |= (uint8_t)(1u << i);
    if (slots == 0 && a->doubt == 0)
        return;
    if (slots != a->doubt)
        pms_log(PMS_LOG_INFO, "array %s: %s", a->info.name,
                slots != 0 ? "other nodes hear each other well, but this node badly"
                           : "other nodes hear this node well again");
    a->doubt = slots;
    pms_loop_doubt(l->app->data, a->info.id, slots);
}

void pms_links_tick(struct pms_links *l)
{
    uint64_t now = pms_clock_boot_ns();
    json_t *news;

    links_sync(l);
    news = news_make(l);
    for (unsigned i = 0; i < l->n; i++)
        pulse_send(l, &l->links[i], news);
    json_decref(news);
    if (l->app->data == NULL)
        return;
    pms_list_for_each (it, &l->app->arrays) {
        array_judge(l, pms_list_entry(it, struct pms_local, link), now);
    }
}
