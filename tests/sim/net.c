// SPDX-License-Identifier: GPL-2.0-or-later
// Links: directed connections, FIFO each way, with delays, stalls, cuts (one-way too) and garbled frames.
#include "tests/sim/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/version.h"
#include "tests/sim/sim.h"

/*
 * A connection lives like one of TCP. A cut holds what is under way (it is sent again when the cut ends),
 * until one end has had enough and closes; the other end learns of it by a FIN if that gets through, else by
 * its own patience. Closing loses what was on its way to the closer, and sometimes what the closer had sent.
 */

enum msg_kind { MSG_ACCEPT, MSG_UP, MSG_FRAME, MSG_FIN };

struct net_msg {
    struct sim_event ev;
    struct conn *conn;
    int way;
    uint64_t number;
    enum msg_kind kind;
    uint8_t header[PMS_FRAME_HEADER_BYTES];
    struct pms_iobuf *buf; // the sender's memory, read when the message arrives
    uint32_t buf_off, len;
    bool garble;
};

// Something that happens to one end of a connection later on.
struct net_timer {
    struct sim_event ev;
    struct conn *conn;
    int end;
    unsigned healed; // as of the start of the timer
};

static void close_end(struct sim *sim, struct conn *c, int end, bool silent);
static void redial_later(struct sim *sim, struct node *n, int peer);

static int from_of(const struct conn *c, int way)
{
    return c->end[way == NET_FORTH ? 0 : 1];
}

static int to_of(const struct conn *c, int way)
{
    return c->end[way == NET_FORTH ? 1 : 0];
}

bool net_connected(const struct sim *sim, int a, int b)
{
    return sim->net.cuts[a][b] == 0 && sim->net.cuts[b][a] == 0;
}

static bool is_bad(const struct sim *sim, int a, int b)
{
    return !net_connected(sim, a, b) || sim->net.slow[a][b] > 20 || sim->net.slow[b][a] > 20;
}

static bool is_well(const struct sim *sim, int a, int b)
{
    return sim->nodes[a].up && !sim->nodes[a].paused && sim->nodes[b].up && !sim->nodes[b].paused &&
           !is_bad(sim, a, b);
}

uint8_t net_doubt(const struct sim *sim, const struct node *n)
{
    uint8_t mask = 0;

    for (unsigned i = 0; i < sim->n_nodes; i++) {
        const struct node *s = &sim->nodes[i];
        int votes = 0;

        for (unsigned k = 0; k < sim->n_nodes && s != n && s->slot >= 0; k++) {
            int t = (int)k;

            if (t == n->index || t == s->index || !net_connected(sim, t, n->index))
                continue; // no news of it
            if (!is_bad(sim, t, n->index))
                votes--;
            else if (is_well(sim, t, s->index))
                votes++;
        }
        if (votes > 0)
            mask |= (uint8_t)(1u << s->slot);
    }
    return mask;
}

static unsigned healed_both(const struct sim *sim, const struct conn *c)
{
    return sim->net.healed[c->end[0]][c->end[1]] + sim->net.healed[c->end[1]][c->end[0]];
}

// ---- Messages. ----

static void msg_free(struct net_msg *m)
{
    pms_iobuf_put(m->buf);
    free(m);
}

static void drop_msg(struct sim_event *ev)
{
    msg_free(pms_list_entry(ev, struct net_msg, ev));
}

static void drop_timer(struct sim_event *ev)
{
    free(pms_list_entry(ev, struct net_timer, ev));
}

static uint64_t delay(struct sim *sim, int from, int to)
{
    struct world *w = &sim->world;
    uint64_t us = sim->plan.net_us;

    us = us / 2 + world_below(w, us + 1);
    us *= sim->net.slow[from][to];
    if (world_chance(w, sim->plan.net_stalls, 10000))
        us += world_skewed(w, 1000, 700000);
    return us * SIM_US + world_below(w, SIM_US);
}

static void on_link_down(struct sim *sim, struct sim_event *ev)
{
    struct net_timer *t = pms_list_entry(ev, struct net_timer, ev);
    struct node *n = &sim->nodes[t->conn->end[0]];
    struct node *peer = &sim->nodes[t->conn->end[1]];
    bool up = t->conn->up;

    t->conn->up = false;
    free(t);
    if (up && n->dp != NULL)
        node_link_down(sim, n, peer);
    redial_later(sim, n, peer->index);
}

static struct net_timer *timer_create(struct sim *sim, struct conn *c, int end,
                                      void (*run)(struct sim *, struct sim_event *), int node)
{
    struct net_timer *t = calloc(1, sizeof *t);

    PMS_CHECK(t != NULL);
    t->ev = (struct sim_event){.node = node, .run = run, .drop = drop_timer};
    if (node >= 0)
        t->ev.life = sim->nodes[node].life;
    t->conn = c;
    t->end = end;
    t->healed = healed_both(sim, c);
    return t;
}

static void flip_bit(struct sim *sim, uint8_t *data, size_t len)
{
    data[world_below(&sim->world, len)] ^= (uint8_t)(1u << world_below(&sim->world, 8));
}

// The garbled frame must be noticed by its checksums; every other one must come as it was sent.
static void on_frame(struct sim *sim, struct net_msg *m, struct node *n, struct node *from)
{
    struct pms_frame f;
    struct pms_iobuf *buf = NULL;
    bool in_payload = m->garble && m->len > 0 && world_chance(&sim->world, 1, 2);
    int rc;

    if (m->garble && !in_payload)
        flip_bit(sim, m->header, sizeof m->header);
    rc = pms_frame_decode(m->header, pms_node_versions.max, &f);
    if (rc == 0 && f.payload_len != m->len)
        rc = PMS_EPROTO;
    if (rc == 0 && m->len > 0) {
        buf = pms_iobuf_create(m->len);
        memcpy(buf->data, m->buf->data + m->buf_off, m->len);
        if (in_payload)
            flip_bit(sim, buf->data, m->len);
        if (pms_frame_sum(buf->data, m->len) != f.payload_sum)
            rc = PMS_EPROTO;
    }
    if (m->garble != (rc != 0))
        sim_violation(sim, "%s: a frame of %s %s", n->name, from->name,
                      m->garble ? "was garbled and passed its checks" : "did not come as it was sent");
    if (rc != 0) {
        story(sim, "%s < %s a garbled frame, link dropped", n->name, from->name);
        close_end(sim, m->conn, m->way == NET_FORTH ? 1 : 0, false);
    } else {
        story(sim, "%s < %s %s%s e%llu s%llu", n->name, from->name, pms_frame_name(f.type),
              f.status == PMS_FRAME_OK ? "" : story_frame_status(f.status), (unsigned long long)f.epoch,
              (unsigned long long)f.seq);
        rc = node_frame(sim, n, from, m->way == NET_FORTH ? m->conn->id : 0, &f, buf);
        if (rc != 0) {
            story(sim, "%s refused the frame (%s), link dropped", n->name, pms_err_name(rc));
            close_end(sim, m->conn, m->way == NET_FORTH ? 1 : 0, false);
        }
    }
    pms_iobuf_put(buf);
}

static void msg_send(struct sim *sim, struct conn *c, int way, struct net_msg *m);

static struct net_msg *msg_create(struct conn *c, int way, enum msg_kind kind)
{
    struct net_msg *m = calloc(1, sizeof *m);

    PMS_CHECK(m != NULL);
    m->ev.drop = drop_msg;
    m->conn = c;
    m->way = way;
    m->kind = kind;
    pms_list_init(&m->ev.link);
    return m;
}

// The message is in the hands of the receiving process.
static void on_receive(struct sim *sim, struct sim_event *ev)
{
    struct net_msg *m = pms_list_entry(ev, struct net_msg, ev);
    struct conn *c = m->conn, *old;
    struct node *n = &sim->nodes[to_of(c, m->way)], *from = &sim->nodes[from_of(c, m->way)];
    int end = m->way == NET_FORTH ? 1 : 0;

    if (n->dp == NULL || (m->kind != MSG_ACCEPT && !c->open[end])) {
        msg_free(m);
        return;
    }
    switch (m->kind) {
    case MSG_ACCEPT:
        old = sim->net.accepted[n->index][from->index];
        if (old != NULL && old->id > c->id)
            break;
        if (old != NULL)
            close_end(sim, old, 1, false);
        c->open[1] = true;
        sim->net.accepted[n->index][from->index] = c;
        msg_send(sim, c, NET_BACK, msg_create(c, NET_BACK, MSG_UP));
        break;
    case MSG_UP:
        c->up = true;
        sim->net.backoff[n->index][from->index] = 0;
        node_link_up(sim, n, from);
        break;
    case MSG_FRAME:
        on_frame(sim, m, n, from);
        break;
    case MSG_FIN:
        close_end(sim, c, end, true);
        break;
    }
    msg_free(m);
}

static void receive_later(struct sim *sim, struct net_msg *m)
{
    int to = to_of(m->conn, m->way);

    m->ev.node = to;
    m->ev.life = sim->nodes[to].life;
    m->ev.run = on_receive;
    node_deliver(sim, &m->ev);
}

// A cut ended a while ago: what it held is sent again, in order.
static void on_release(struct sim *sim, struct sim_event *ev)
{
    struct net_timer *t = pms_list_entry(ev, struct net_timer, ev);
    struct conn *c = t->conn;
    int way = t->end;
    struct pms_list *l;

    free(t);
    if (sim->net.cuts[from_of(c, way)][to_of(c, way)] > 0)
        return;
    while ((l = pms_list_pop(&c->way[way].held)) != NULL) {
        struct net_msg *m = pms_list_entry(l, struct net_msg, ev.link);

        if (m->number < c->way[way].lost_below)
            msg_free(m);
        else
            receive_later(sim, m);
    }
}

// The message reached the receiving host.
static void on_arrive(struct sim *sim, struct sim_event *ev)
{
    struct net_msg *m = pms_list_entry(ev, struct net_msg, ev);
    struct conn *c = m->conn;
    struct conn_way *way = &c->way[m->way];
    int from = from_of(c, m->way), to = to_of(c, m->way);

    if (m->number < way->lost_below) {
        msg_free(m);
        return;
    }
    if (sim->net.cuts[from][to] > 0 || !pms_list_empty(&way->held)) {
        pms_list_add_tail(&way->held, &ev->link);
        return;
    }
    receive_later(sim, m);
}

static void msg_send(struct sim *sim, struct conn *c, int way, struct net_msg *m)
{
    struct conn_way *w = &c->way[way];
    uint64_t at = sim->world.now + delay(sim, from_of(c, way), to_of(c, way));

    if (at < w->last_at)
        at = w->last_at;
    w->last_at = at;
    m->number = w->number++;
    m->ev.node = -1;
    m->ev.run = on_arrive;
    world_add_at(&sim->world, &m->ev, at);
}

void net_send(struct sim *sim, struct node *n, const struct pms_dp_action *a)
{
    struct node *peer = node_by_id(sim, a->send.node);
    struct conn *c = NULL;
    int way = a->send.conn == 0 ? NET_FORTH : NET_BACK;
    struct net_msg *m;

    if (peer != NULL && way == NET_FORTH)
        c = sim->net.dialled[n->index][peer->index];
    else if (peer != NULL)
        c = sim->net.accepted[n->index][peer->index];
    if (peer == NULL || peer == n)
        sim_violation(sim, "%s sends to a node that is no peer", n->name);
    if (c == NULL || !c->open[way == NET_FORTH ? 0 : 1] || (way == NET_FORTH && !c->up) ||
        (way == NET_BACK && c->id != a->send.conn)) {
        pms_iobuf_put(a->buf);
        return;
    }
    story(sim, "%s > %s %s%s e%llu s%llu%s off=%llu len=%u pay=%u", n->name, peer->name,
          pms_frame_name(a->send.frame.type),
          a->send.frame.status == PMS_FRAME_OK ? "" : story_frame_status(a->send.frame.status),
          (unsigned long long)a->send.frame.epoch, (unsigned long long)a->send.frame.seq,
          way == NET_BACK ? " (answer)" : "", (unsigned long long)a->send.frame.offset, a->send.frame.length,
          a->send.frame.payload_len);
    m = msg_create(c, way, MSG_FRAME);
    pms_frame_encode(&a->send.frame, pms_node_versions.max, m->header);
    m->buf = a->buf;
    m->buf_off = a->buf_off;
    m->len = a->send.frame.payload_len;
    PMS_CHECK_MSG(m->len == 0 || (m->buf != NULL && m->buf_off + (uint64_t)m->len <= m->buf->len),
                  "payload of %u does not fit its buffer", m->len);
    m->garble = sim->plan.garbles > 0 && world_chance(&sim->world, sim->plan.garbles, 20000);
    sim->net.frames++;
    sim->net.bytes += m->len;
    msg_send(sim, c, way, m);
    faults_on_frame(sim, n, peer, a->send.frame.type);
}

// ---- Connecting and closing. ----

static void on_connect_timeout(struct sim *sim, struct sim_event *ev)
{
    struct net_timer *t = pms_list_entry(ev, struct net_timer, ev);
    struct conn *c = t->conn;

    free(t);
    if (c->open[0] && !c->up)
        close_end(sim, c, 0, false);
}

static void on_dial(struct sim *sim, struct sim_event *ev)
{
    struct net_timer *t = pms_list_entry(ev, struct net_timer, ev);
    int a = ev->node, b = t->end;
    struct net *net = &sim->net;
    struct conn *c;

    free(t);
    if (net->dialled[a][b] != NULL)
        return;
    if (!net_connected(sim, a, b) || sim->nodes[b].dp == NULL || sim->nodes[b].paused) {
        redial_later(sim, &sim->nodes[a], b);
        return;
    }
    c = calloc(1, sizeof *c);
    PMS_CHECK(c != NULL);
    c->id = net->next_id++;
    c->end[0] = a;
    c->end[1] = b;
    c->open[0] = true;
    for (int way = 0; way < 2; way++)
        pms_list_init(&c->way[way].held);
    pms_list_add_tail(&net->conns, &c->link);
    net->dialled[a][b] = c;
    msg_send(sim, c, NET_FORTH, msg_create(c, NET_FORTH, MSG_ACCEPT));
    t = timer_create(sim, c, 0, on_connect_timeout, a);
    world_add(&sim->world, &t->ev, world_range(&sim->world, 300 * SIM_MS, 800 * SIM_MS));
}

static void redial_later(struct sim *sim, struct node *n, int peer)
{
    uint64_t *backoff = &sim->net.backoff[n->index][peer];
    struct net_timer *t = calloc(1, sizeof *t);

    PMS_CHECK(t != NULL);
    *backoff = *backoff == 0 ? 5 * SIM_MS : *backoff * 2;
    if (*backoff > 300 * SIM_MS)
        *backoff = 300 * SIM_MS;
    t->ev = (struct sim_event){.node = n->index, .life = n->life, .run = on_dial, .drop = drop_timer};
    t->end = peer;
    world_add(&sim->world, &t->ev, *backoff / 2 + world_below(&sim->world, *backoff));
}

static void on_impatience(struct sim *sim, struct sim_event *ev)
{
    struct net_timer *t = pms_list_entry(ev, struct net_timer, ev);
    struct conn *c = t->conn;
    int end = t->end;
    bool peer_gone = !c->open[1 - end] && (end == 1 || c->up);
    bool cut = !net_connected(sim, c->end[0], c->end[1]) && healed_both(sim, c) == t->healed;

    free(t);
    if (c->open[end] && (peer_gone || cut))
        close_end(sim, c, end, false);
}

// One end will give the connection up after delay_ns unless the cut ends before.
static void lose_patience(struct sim *sim, struct conn *c, int end, uint64_t delay_ns)
{
    int node = c->end[end];

    world_add(&sim->world, &timer_create(sim, c, end, on_impatience, node)->ev, delay_ns);
}

static void close_end(struct sim *sim, struct conn *c, int end, bool silent)
{
    struct net *net = &sim->net;
    int mine = c->end[end], peer = c->end[1 - end];
    int out = end == 0 ? NET_FORTH : NET_BACK;

    if (!c->open[end])
        return;
    c->open[end] = false;
    if (end == 0)
        net->dialled[mine][peer] = NULL;
    else if (net->accepted[mine][peer] == c)
        net->accepted[mine][peer] = NULL;
    if (end == 0 && sim->nodes[mine].up) {
        story(sim, "%s: own link to %s is down", sim->nodes[mine].name, sim->nodes[peer].name);
        node_deliver(sim, &timer_create(sim, c, 0, on_link_down, mine)->ev);
    }
    if (!silent) {
        if (world_chance(&sim->world, 1, 3))
            c->way[out].lost_below = c->way[out].number; // a reset overtakes what was sent
        msg_send(sim, c, out, msg_create(c, out, MSG_FIN));
    }
}

void net_reset(struct sim *sim, struct node *n, uint64_t peer_id)
{
    struct node *peer = node_by_id(sim, peer_id);
    struct conn *c = peer != NULL ? sim->net.dialled[n->index][peer->index] : NULL;

    if (c != NULL)
        close_end(sim, c, 0, false);
}

void net_node_up(struct sim *sim, struct node *n)
{
    for (unsigned i = 0; i < sim->n_nodes; i++) {
        struct node *peer = &sim->nodes[i];

        if (peer == n || peer->slot < 0)
            continue;
        sim->net.backoff[n->index][i] = 0;
        redial_later(sim, n, (int)i);
    }
    // A rebooted host answers packets of a connection it does not know with a reset.
    pms_list_for_each (it, &sim->net.conns) {
        struct conn *c = pms_list_entry(it, struct conn, link);

        for (int end = 0; end < 2; end++)
            if (c->end[1 - end] == n->index && c->open[end] && !c->open[1 - end])
                lose_patience(sim, c, end, world_range(&sim->world, SIM_MS, 60 * SIM_MS));
    }
}

void net_node_down(struct sim *sim, struct node *n, bool silent)
{
    pms_list_for_each (it, &sim->net.conns) {
        struct conn *c = pms_list_entry(it, struct conn, link);

        for (int end = 0; end < 2; end++) {
            if (c->end[end] != n->index || !c->open[end])
                continue;
            close_end(sim, c, end, silent);
            if (c->open[1 - end])
                lose_patience(sim, c, 1 - end, world_range(&sim->world, 200 * SIM_MS, 3 * SIM_S));
        }
    }
}

// ---- Cuts. ----

void net_cut(struct sim *sim, int from, int to)
{
    if (sim->net.cuts[from][to]++ > 0)
        return;
    pms_list_for_each (it, &sim->net.conns) {
        struct conn *c = pms_list_entry(it, struct conn, link);

        if (!(c->end[0] == from && c->end[1] == to) && !(c->end[0] == to && c->end[1] == from))
            continue;
        for (int end = 0; end < 2; end++)
            if (c->open[end])
                lose_patience(sim, c, end, world_range(&sim->world, 100 * SIM_MS, 3 * SIM_S));
    }
}

void net_heal(struct sim *sim, int from, int to)
{
    PMS_CHECK(sim->net.cuts[from][to] > 0);
    if (--sim->net.cuts[from][to] > 0)
        return;
    sim->net.healed[from][to]++;
    pms_list_for_each (it, &sim->net.conns) {
        struct conn *c = pms_list_entry(it, struct conn, link);

        for (int way = 0; way < 2; way++) {
            if (from_of(c, way) != from || to_of(c, way) != to || pms_list_empty(&c->way[way].held))
                continue;
            world_add(&sim->world, &timer_create(sim, c, way, on_release, -1)->ev, delay(sim, from, to));
        }
    }
}

void net_init(struct sim *sim)
{
    pms_list_init(&sim->net.conns);
    sim->net.next_id = 1;
    for (int a = 0; a < SIM_NODES; a++)
        for (int b = 0; b < SIM_NODES; b++)
            sim->net.slow[a][b] = 1;
}

void net_deinit(struct sim *sim)
{
    struct pms_list *l;

    while ((l = pms_list_pop(&sim->net.conns)) != NULL) {
        struct conn *c = pms_list_entry(l, struct conn, link);

        for (int way = 0; way < 2; way++)
            while ((l = pms_list_pop(&c->way[way].held)) != NULL)
                msg_free(pms_list_entry(l, struct net_msg, ev.link));
        free(c);
    }
}
