// SPDX-License-Identifier: GPL-2.0-or-later
// Dialling with back-off, replacing of accepted connections, routing of frames to and from links.
#include "datapath/io/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#define MS              1000000ull /* in ns */
#define BACKOFF_MIN_MS  20u
#define BACKOFF_MAX_MS  320u
#define STABLE_NS       (1000 * MS) /* a link that lived so long starts the back-off anew */
#define ANSWER_WAIT_NS  (5000 * MS) /* a dial that nobody answers for is asked for again */
#define LOST_MAX        16u
#define LOG_INTERVAL_NS (1000 * MS)

enum dial_state { DIAL_IDLE, DIAL_ASKED, DIAL_UP };

struct peer {
    struct pms_list item;
    struct pms_peers *peers;
    uint64_t node;
    struct pms_link *own, *accepted;
    uint64_t conn; /* of accepted */
    bool wanted, reset;
    enum dial_state dial;
    uint32_t backoff_ms;
    uint64_t next_ns; /* IDLE: ask then; ASKED: ask again then */
    uint64_t up_since_ns;
    uint64_t logged_ns;
    uint64_t unlogged;
    uint64_t lost[LOST_MAX]; /* arrays of which requests on `accepted` were lost; 0: free */
    bool lost_more;          /* and others, which found no place */
};

static const struct pms_link_ops own_ops, accepted_ops;

static struct peer *peer_find(const struct pms_peers *p, uint64_t node)
{
    pms_list_for_each (it, &p->peers) {
        struct peer *peer = pms_list_entry(it, struct peer, item);

        if (peer->node == node)
            return peer;
    }
    return NULL;
}

static struct peer *peer_get(struct pms_peers *p, uint64_t node)
{
    struct peer *peer = peer_find(p, node);

    if (peer != NULL)
        return peer;
    peer = calloc(1, sizeof *peer);
    PMS_CHECK_MSG(peer != NULL, "out of memory");
    peer->peers = p;
    peer->node = node;
    pms_list_add_tail(&p->peers, &peer->item);
    return peer;
}

/* A peer that sends garbage must not fill the log either. */
static void log_drop(struct peer *peer, const char *which, int err)
{
    uint64_t now = pms_clock_boot_ns();

    peer->peers->dropped++;
    if (peer->logged_ns != 0 && now - peer->logged_ns < LOG_INTERVAL_NS) {
        peer->unlogged++;
        return;
    }
    pms_log(PMS_LOG_WARN, "%s link of node %s dropped: %s (%llu more not logged)", which,
            pms_log_hexid(peer->node), pms_err_text(err), (unsigned long long)peer->unlogged);
    peer->logged_ns = now;
    peer->unlogged = 0;
}

static void backoff(struct peer *peer, uint64_t now)
{
    if (peer->up_since_ns != 0 && now - peer->up_since_ns >= STABLE_NS)
        peer->backoff_ms = 0;
    peer->backoff_ms = peer->backoff_ms == 0 ? BACKOFF_MIN_MS : peer->backoff_ms * 2;
    if (peer->backoff_ms > BACKOFF_MAX_MS)
        peer->backoff_ms = BACKOFF_MAX_MS;
    peer->up_since_ns = 0;
    peer->dial = DIAL_IDLE;
    peer->next_ns = now + peer->backoff_ms * MS;
}

static void own_down(struct peer *peer, int err)
{
    pms_link_close(peer->own);
    peer->own = NULL;
    peer->reset = false;
    backoff(peer, pms_clock_boot_ns());
    peer->peers->ops->on_down(peer->peers->user, peer->node, err);
}

static void accepted_down(struct peer *peer)
{
    pms_link_close(peer->accepted);
    peer->accepted = NULL;
    peer->conn = 0;
    memset(peer->lost, 0, sizeof peer->lost);
    peer->lost_more = false;
}

static void on_own_frame(struct pms_link *link, void *user, const struct pms_frame *f, struct pms_iobuf *buf)
{
    struct peer *peer = user;
    int rc = PMS_EPROTO;

    if (pms_frame_is_answer(f->type))
        rc = peer->peers->ops->on_frame(peer->peers->user, peer->node, 0, f, buf);
    if (rc != 0 && peer->own == link) {
        log_drop(peer, "own", rc);
        own_down(peer, rc);
    }
}

static void on_accepted_frame(struct pms_link *link, void *user, const struct pms_frame *f,
                              struct pms_iobuf *buf)
{
    struct peer *peer = user;
    int rc = PMS_EPROTO;

    if (!pms_frame_is_answer(f->type))
        rc = peer->peers->ops->on_frame(peer->peers->user, peer->node, peer->conn, f, buf);
    if (rc != 0 && peer->accepted == link) {
        log_drop(peer, "accepted", rc);
        accepted_down(peer);
    }
}

static void on_own_failed(struct pms_link *link, void *user, int err)
{
    struct peer *peer = user;

    PMS_CHECK(peer->own == link);
    log_drop(peer, "own", err);
    own_down(peer, err);
}

static void on_accepted_failed(struct pms_link *link, void *user, int err)
{
    struct peer *peer = user;

    PMS_CHECK(peer->accepted == link);
    log_drop(peer, "accepted", err);
    accepted_down(peer);
}

static const struct pms_link_ops own_ops = {on_own_frame, on_own_failed};
static const struct pms_link_ops accepted_ops = {on_accepted_frame, on_accepted_failed};

void pms_peers_init(struct pms_peers *p, struct pms_link_env *env, const struct pms_peer_ops *ops, void *user)
{
    *p = (struct pms_peers){.env = env, .ops = ops, .user = user};
    pms_list_init(&p->peers);
}

void pms_peers_close(struct pms_peers *p)
{
    struct pms_list *it;

    while ((it = pms_list_pop(&p->peers)) != NULL) {
        struct peer *peer = pms_list_entry(it, struct peer, item);

        if (peer->own != NULL)
            pms_link_close(peer->own);
        if (peer->accepted != NULL)
            pms_link_close(peer->accepted);
        free(peer);
    }
}

void pms_peers_want(struct pms_peers *p, const uint64_t *nodes, unsigned n)
{
    pms_list_for_each (it, &p->peers)
        pms_list_entry(it, struct peer, item)->wanted = false;
    for (unsigned i = 0; i < n; i++)
        peer_get(p, nodes[i])->wanted = true;
}

void pms_peers_dialled(struct pms_peers *p, uint64_t node, int fd_or_error, unsigned version)
{
    struct peer *peer = peer_get(p, node);
    uint64_t now = pms_clock_boot_ns();

    if (fd_or_error < 0) {
        if (peer->dial == DIAL_ASKED)
            backoff(peer, now);
        return;
    }
    if (peer->own != NULL) /* asked twice and answered twice: the newer one counts */
        own_down(peer, -ECONNRESET);
    peer->own = pms_link_create(p->env, fd_or_error, version, &own_ops, peer);
    if (peer->own == NULL) {
        backoff(peer, now);
        return;
    }
    peer->dial = DIAL_UP;
    peer->up_since_ns = now;
    p->ops->on_up(p->user, node);
}

void pms_peers_accepted(struct pms_peers *p, uint64_t node, int fd, unsigned version)
{
    struct peer *peer = peer_get(p, node);

    if (peer->accepted != NULL)
        accepted_down(peer);
    peer->accepted = pms_link_create(p->env, fd, version, &accepted_ops, peer);
    if (peer->accepted != NULL)
        peer->conn = ++p->conn_last;
}

bool pms_peers_is_up(const struct pms_peers *p, uint64_t node)
{
    const struct peer *peer = peer_find(p, node);

    return peer != NULL && peer->own != NULL;
}

void pms_peers_send(struct pms_peers *p, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf, uint32_t off)
{
    struct peer *peer = peer_find(p, node);
    struct pms_link *link = NULL;

    if (peer != NULL && conn == 0)
        link = peer->own;
    else if (peer != NULL && peer->conn == conn)
        link = peer->accepted;
    if (link != NULL)
        pms_link_send(link, f, buf, off);
    else
        pms_iobuf_put(buf);
}

void pms_peers_lost_mark(struct pms_peers *p, uint64_t node, uint64_t array)
{
    struct peer *peer = peer_find(p, node);

    if (peer == NULL || peer->accepted == NULL)
        return;
    for (unsigned i = 0; i < LOST_MAX; i++) {
        if (peer->lost[i] == array)
            return;
        if (peer->lost[i] == 0) {
            peer->lost[i] = array;
            return;
        }
    }
    peer->lost_more = true;
}

void pms_peers_lost_reset(struct pms_peers *p, uint64_t array)
{
    pms_list_for_each (it, &p->peers) {
        struct peer *peer = pms_list_entry(it, struct peer, item);
        bool lost = peer->lost_more;

        for (unsigned i = 0; i < LOST_MAX; i++)
            lost |= array != 0 && peer->lost[i] == array;
        if (lost && peer->accepted != NULL)
            accepted_down(peer);
    }
}

void pms_peers_reset(struct pms_peers *p, uint64_t node)
{
    struct peer *peer = peer_find(p, node);

    if (peer == NULL || peer->own == NULL)
        return;
    peer->reset = true;
    p->reset_due = true;
}

void pms_peers_flush(struct pms_peers *p)
{
    while (p->reset_due) {
        p->reset_due = false;
        pms_list_for_each (it, &p->peers) {
            struct peer *peer = pms_list_entry(it, struct peer, item);

            if (peer->reset && peer->own != NULL)
                own_down(peer, -ECONNRESET);
        }
    }
    pms_link_flush_all(p->env);
}

void pms_peers_tick(struct pms_peers *p, uint64_t now)
{
    pms_list_for_each (it, &p->peers) {
        struct peer *peer = pms_list_entry(it, struct peer, item);

        if (peer->own != NULL)
            pms_link_tick(peer->own, now);
        if (peer->accepted != NULL)
            pms_link_tick(peer->accepted, now);
        if (peer->wanted && peer->dial != DIAL_UP && now >= peer->next_ns) {
            peer->dial = DIAL_ASKED;
            peer->next_ns = now + ANSWER_WAIT_NS;
            p->ops->on_want(p->user, peer->node);
        }
    }
}

unsigned pms_peers_states(const struct pms_peers *p, struct pms_peer_state *out, unsigned n)
{
    unsigned i = 0;

    pms_list_for_each (it, &p->peers) {
        const struct peer *peer = pms_list_entry(it, struct peer, item);

        if (i < n)
            out[i++] = (struct pms_peer_state){peer->node, peer->own != NULL, peer->accepted != NULL};
    }
    return i;
}
