// SPDX-License-Identifier: GPL-2.0-or-later
// Going on after a permanent loss of quorum (recover.h has the order of steps): what may be done, and doing it.
#include "cmd/pmsd/recover.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/util.h"
#include "base/version.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define PROBE_MS 1500
#define RAFT_MS  30000

__attribute__((format(printf, 4, 5))) static int failed(char *why, size_t why_len, int err, const char *fmt,
                                                        ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, why_len, fmt, ap);
    va_end(ap);
    return err;
}

// ---- Open: the directory, the log, the others ----

static int dir_take(const char *state_dir, struct pms_node_file *node, int *lock_fd, char *why,
                    size_t why_len)
{
    char path[4096];
    int rv;

    snprintf(path, sizeof(path), "%s/node.json", state_dir);
    if (access(path, F_OK) != 0)
        return failed(why, why_len, PMS_ENOTFOUND, "%s: %s: give this node's --state-dir", path,
                      strerror(errno));
    rv = pms_node_dir_open(state_dir, node, lock_fd, why, why_len);
    if (rv == PMS_EBUSY)
        return failed(why, why_len, rv, "pmsd runs on %s: stop it first; this is done offline", state_dir);
    if (rv == 0 && !node->member)
        return failed(why, why_len, PMS_EREFUSED, "this node is in no cluster: there is nothing to recover");
    return rv;
}

static int on_restore(void *data, const char *buf, size_t len)
{
    struct pms_state **state = data, *fresh;
    int rv = pms_state_decode(buf, len, &fresh);

    if (rv != 0)
        return rv;
    pms_state_destroy(*state);
    *state = fresh;
    return 0;
}

static int on_apply(void *data, const char *command, size_t len, uint64_t index, char **result)
{
    struct pms_state **state = data;

    *result = pms_state_apply(*state, command, len, index);
    return pms_state_feature_level(*state) > pms_feature_level_max ? PMS_EVERSION : 0;
}

static bool is_voter(const struct pms_raft_log_info *log, uint64_t id)
{
    for (unsigned i = 0; i < log->members_n; i++)
        if (log->members[i].id == id)
            return log->members[i].role == PMS_RAFT_VOTER;
    return false;
}

// All at once: a connection that is taken says that the node lives, a refused one that its host does.
static void nodes_probe(struct pms_recover *r)
{
    uint64_t end = pms_clock_boot_ns() + PROBE_MS * 1000000ull, now;
    struct pollfd fds[PMS_NODES_MAX];
    struct sockaddr_storage addr;

    for (unsigned i = 0; i < r->n_nodes; i++) {
        struct pms_recover_node *n = &r->nodes[i];

        fds[i] = (struct pollfd){.fd = -1, .events = POLLOUT};
        if (n->self || pms_addr_parse(n->info.addr, PMS_PORT_NODE, &addr) != 0)
            continue;
        fds[i].fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fds[i].fd >= 0 && connect(fds[i].fd, (struct sockaddr *)&addr, pms_addr_len(&addr)) != 0 &&
            errno != EINPROGRESS) {
            n->host_up = errno == ECONNREFUSED;
            close(fds[i].fd);
            fds[i].fd = -1;
        }
    }
    while ((now = pms_clock_boot_ns()) < end) {
        bool waiting = false;

        poll(fds, r->n_nodes, (int)((end - now) / 1000000) + 1);
        for (unsigned i = 0; i < r->n_nodes; i++) {
            int err = 0;
            socklen_t len = sizeof(err);

            if (fds[i].fd >= 0 && fds[i].revents != 0) {
                getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &err, &len);
                r->nodes[i].answers = err == 0;
                r->nodes[i].host_up = err == ECONNREFUSED;
                close(fds[i].fd);
                fds[i].fd = -1;
            }
            waiting |= fds[i].fd >= 0;
        }
        if (!waiting)
            return;
    }
    for (unsigned i = 0; i < r->n_nodes; i++)
        if (fds[i].fd >= 0)
            close(fds[i].fd);
}

int pms_recover_open(struct pms_recover *r, const char *state_dir, const char *brick_dir, char *why,
                     size_t why_len)
{
    struct pms_raft_log_reader reader = {&r->state, on_restore, on_apply};
    char dir[4096];
    int rv;

    *r = (struct pms_recover){.state_dir = state_dir, .brick_dir = brick_dir, .lock_fd = -1};
    rv = dir_take(state_dir, &r->node, &r->lock_fd, why, why_len);
    if (rv != 0)
        return rv;
    if (r->node.superseded)
        return failed(
            why, why_len, PMS_EREFUSED,
            "this node was itself given up by a recovery elsewhere: if it is a survivor all the same, "
            "run pmsctl recover --follow with the id that the recovery printed");
    pms_node_dir_log(state_dir, dir, sizeof(dir));
    if (!pms_node_dir_has_log(state_dir))
        return failed(why, why_len, PMS_ECORRUPT,
                      "this node has no Raft log in %s: it knows nothing of the cluster; recover on another",
                      dir);
    r->state = pms_state_create();
    rv = pms_raft_log_read(dir, r->node.id, &reader, &r->log);
    if (rv != 0)
        return failed(why, why_len, rv, "Raft's log in %s cannot be read: %s", dir, pms_err_text(rv));
    for (size_t c = 0; pms_state_node_next(r->state, &c, &r->nodes[r->n_nodes].info); r->n_nodes++) {
        struct pms_recover_node *n = &r->nodes[r->n_nodes];

        n->self = n->info.id == r->node.id;
        n->voter = is_voter(&r->log, n->info.id);
        if (r->n_nodes + 1 == PMS_NODES_MAX) {
            r->n_nodes++;
            break;
        }
    }
    nodes_probe(r);
    return 0;
}

void pms_recover_close(struct pms_recover *r)
{
    pms_state_destroy(r->state);
    explicit_bzero(&r->node, sizeof(r->node));
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    r->lock_fd = -1;
    r->state = NULL;
}

// ---- What may be done ----

static bool is_named(const char *names, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = names; *p != '\0'; p += *p == ',' ? 1 : 0) {
        size_t n = strcspn(p, ",");

        if (n == len && strncmp(p, name, n) == 0)
            return true;
        p += n;
    }
    return false;
}

static const struct pms_recover_node *node_find(const struct pms_recover *r, const char *name, size_t len)
{
    for (unsigned i = 0; i < r->n_nodes; i++)
        if (strlen(r->nodes[i].info.name) == len && strncmp(r->nodes[i].info.name, name, len) == 0)
            return &r->nodes[i];
    return NULL;
}

// What stands against any recovery on this node now; 0: nothing.
static int generally_refused(const struct pms_recover *r, char *why, size_t why_len)
{
    unsigned voters = 0, there = 0;
    bool member = false;

    for (unsigned i = 0; i < r->log.members_n; i++)
        voters += r->log.members[i].role == PMS_RAFT_VOTER ? 1 : 0;
    for (unsigned i = 0; i < r->n_nodes; i++) {
        const struct pms_recover_node *n = &r->nodes[i];

        member |= n->self;
        there += n->voter && (n->self || n->answers) ? 1 : 0;
    }
    if (!member)
        return failed(why, why_len, PMS_EREFUSED,
                      "by its own log this node has left the cluster: recover on another");
    if (r->node.recovering)
        return 0;
    if (there > voters / 2)
        return failed(
            why, why_len, PMS_EREFUSED,
            "%u of %u voters are there, which is a majority: the cluster can still recover by itself; "
            "start pmsd here",
            there, voters);
    return 0;
}

static int names_refused(const struct pms_recover *r, const char *names, char *why, size_t why_len)
{
    for (const char *p = names; *p != '\0'; p += *p == ',' ? 1 : 0) {
        size_t n = strcspn(p, ",");
        const struct pms_recover_node *node = node_find(r, p, n);

        if (n == 0)
            return failed(why, why_len, PMS_EUSAGE, "name the lost nodes as NODE,NODE...");
        if (node == NULL)
            return failed(why, why_len, PMS_ENOTFOUND, "there is no node %.*s in this cluster", (int)n, p);
        if (node != NULL && node->self)
            return failed(why, why_len, PMS_EREFUSED, "%s is this node: run this on a survivor",
                          node->info.name);
        if (node != NULL && node->answers)
            return failed(why, why_len, PMS_EREFUSED,
                          "node %s answers at %s: it is not lost; make sure that it can never come back "
                          "before you give it up",
                          node->info.name, node->info.addr);
        p += n;
    }
    for (unsigned i = 0; i < r->n_nodes; i++) {
        const struct pms_recover_node *n = &r->nodes[i];

        if (!n->self && !n->answers && !is_named(names, n->info.name))
            return failed(
                why, why_len, PMS_EREFUSED,
                "node %s does not answer: give it up by name too, or, if it survived, start pmsd there "
                "first",
                n->info.name);
    }
    return 0;
}

static bool was_given_up(const struct pms_node_file *node, uint64_t id)
{
    for (unsigned i = 0; i < node->n_lost; i++)
        if (node->lost[i] == id)
            return true;
    return false;
}

// A recovery that was begun is finished with the nodes that it began with, whatever they do meanwhile: they know
// the former realm only.
static int other_names(const struct pms_recover *r, const char *names, char *why, size_t why_len)
{
    for (unsigned i = 0; i < r->n_nodes; i++) {
        const struct pms_node_info *n = &r->nodes[i].info;

        if (was_given_up(&r->node, n->id) != is_named(names, n->name))
            return failed(why, why_len, PMS_EREFUSED,
                          "a recovery of this node was begun, which %s %s: finish it with the same nodes",
                          is_named(names, n->name) ? "keeps" : "gives up", n->name);
    }
    return 0;
}

int pms_recover_check(const struct pms_recover *r, const char *names, char *why, size_t why_len)
{
    int rv = generally_refused(r, why, why_len);

    if (rv == 0)
        rv = r->node.recovering ? other_names(r, names, why, why_len) : names_refused(r, names, why, why_len);
    return rv;
}

// ---- The realm ----

// What holders of the former key can make from the recovery's id: other survivors need nothing else.
static void realm_derive(const struct pms_realm *former, const struct pms_uuid *id, struct pms_realm *next)
{
    static const char label[] = "pms recover";
    uint8_t text[sizeof(label) + sizeof(id->b)];
    int rv;

    memcpy(text, label, sizeof(label));
    memcpy(text + sizeof(label), id->b, sizeof(id->b));
    next->cluster = *id;
    rv = gnutls_hmac_fast(GNUTLS_MAC_SHA256, former->key, sizeof(former->key), text, sizeof(text), next->key);
    PMS_CHECK_MSG(rv == 0, "gnutls cannot compute HMAC-SHA256: %s", gnutls_strerror(rv));
}

PMS_STATIC_ASSERT(PMS_KEY_BYTES == 32, "a key is one HMAC-SHA256");

// ---- A Raft group of this node alone, for one command ----

struct alone {
    uv_loop_t loop;
    struct pms_net *net;
    struct pms_rpc *rpc;
    struct pms_raft *raft;
    struct pms_state *state;
    bool over;  // the outcome is known
    bool ended; // everything is closed
    int rv;
    char text[512];
};

static void alone_over(struct alone *a, int rv, const char *text)
{
    if (a->over)
        return;
    a->over = true;
    a->rv = rv;
    snprintf(a->text, sizeof(a->text), "%s", text);
}

static int alone_restore(void *data, const char *buf, size_t len)
{
    return on_restore(&((struct alone *)data)->state, buf, len);
}

static int alone_apply(void *data, const char *command, size_t len, uint64_t index, char **result)
{
    return on_apply(&((struct alone *)data)->state, command, len, index, result);
}

static int alone_snapshot(void *data, char **buf, size_t *len)
{
    *buf = pms_state_encode(((struct alone *)data)->state, len);
    return 0;
}

static void alone_fatal(void *data, const char *text)
{
    alone_over(data, -EIO, text);
}

static int alone_resolve(void *data, uint64_t node, struct sockaddr_storage *addr)
{
    (void)data;
    (void)node;
    (void)addr;
    return PMS_ENOTFOUND;
}

static void on_proposed(void *data, int status, uint64_t index, const char *result)
{
    struct alone *a = data;
    json_t *answer;

    (void)index;
    if (status != 0) {
        alone_over(a, status, pms_err_text(status));
        return;
    }
    answer = json_loads(result, 0, NULL);
    if (pms_json_bool(answer, "ok", false))
        alone_over(a, 0, "");
    else
        alone_over(a, pms_err_from_name(pms_json_str(answer, "error", "")),
                   pms_json_str(answer, "text", "?"));
    json_decref(answer);
}

static void on_net_closed(void *data)
{
    ((struct alone *)data)->ended = true;
}

static void on_rpc_closed(void *data)
{
    struct alone *a = data;

    if (a->net != NULL)
        pms_net_close(a->net, on_net_closed, a);
    else
        on_net_closed(a);
}

static void on_raft_closed(void *data)
{
    struct alone *a = data;

    if (a->rpc != NULL)
        pms_rpc_close(a->rpc, on_rpc_closed, a);
    else
        on_rpc_closed(a);
}

static int alone_start(struct alone *a, const struct pms_recover *r)
{
    char dir[4096];
    struct pms_net_config net = {.identity = {.cluster = r->node.realm.cluster, .node = r->node.id},
                                 .data = a,
                                 .resolve = alone_resolve};
    struct pms_raft_config raft = {.id = r->node.id,
                                   .dir = dir,
                                   .data = a,
                                   .apply = alone_apply,
                                   .snapshot = alone_snapshot,
                                   .restore = alone_restore,
                                   .on_fatal = alone_fatal};
    int rv;

    pms_node_dir_log(r->state_dir, dir, sizeof(dir));
    pms_random_bytes(net.identity.key, sizeof(net.identity.key)); // nobody has it
    PMS_CHECK(pms_addr_parse("127.0.0.1", 0, &net.listen) == 0);
    rv = pms_net_open(&a->loop, &net, &a->net);
    if (rv == 0)
        rv = pms_rpc_open(&a->loop, a->net, &a->rpc);
    raft.net = a->net;
    raft.rpc = a->rpc;
    if (rv == 0)
        rv = pms_raft_open(&a->loop, &raft, &a->raft);
    if (rv == 0)
        rv = pms_raft_start(a->raft);
    return rv;
}

static int alone_command(const struct pms_recover *r, json_t *cmd, char *why, size_t why_len)
{
    struct alone a = {.state = pms_state_create()};
    char *text;
    int rv;

    pms_json_set_id(cmd, "client", pms_id_random());
    pms_json_set_u64(cmd, "seq", 1);
    text = pms_json_dump_compact(cmd);
    PMS_CHECK_MSG(text != NULL, "out of memory");
    PMS_CHECK(uv_loop_init(&a.loop) == 0);
    rv = alone_start(&a, r);
    if (rv == 0)
        rv = pms_raft_propose(a.raft, text, strlen(text), RAFT_MS, on_proposed, &a);
    if (rv != 0)
        alone_over(&a, rv, pms_err_text(rv));
    while (!a.over)
        uv_run(&a.loop, UV_RUN_ONCE);
    if (a.raft != NULL)
        pms_raft_close(a.raft, on_raft_closed, &a);
    else
        on_raft_closed(&a);
    while (!a.ended)
        uv_run(&a.loop, UV_RUN_ONCE);
    uv_run(&a.loop, UV_RUN_DEFAULT);
    uv_loop_close(&a.loop);
    pms_state_destroy(a.state);
    free(text);
    if (a.rv != 0)
        failed(why, why_len, a.rv, "the recovered membership could not be recorded: %s", a.text);
    return a.rv;
}

// ---- Doing it ----

static int log_recover(const struct pms_recover *r, char *why, size_t why_len)
{
    char dir[4096];
    int rv;

    if (r->log.members_n == 1 && r->log.members[0].id == r->node.id && is_voter(&r->log, r->node.id))
        return 0;
    pms_node_dir_log(r->state_dir, dir, sizeof(dir));
    rv = pms_raft_log_recover(dir, r->node.id);
    return rv == 0
               ? 0
               : failed(why, why_len, rv, "Raft's log in %s cannot be written: %s", dir, pms_err_text(rv));
}

static void peer_forget(struct pms_node_file *node, uint64_t id)
{
    for (unsigned i = 0; i < node->n_peers; i++)
        if (node->peers[i].id == id)
            node->peers[i--] = node->peers[--node->n_peers];
}

int pms_recover_run(struct pms_recover *r, const char *names, char id[PMS_UUID_TEXT_SIZE], char *why,
                    size_t why_len)
{
    json_t *cmd = json_object(), *lost = json_array();
    struct pms_realm next;
    struct pms_uuid uuid;
    int rv = 0;

    for (unsigned i = 0; i < r->n_nodes; i++) {
        char text[PMS_ID_TEXT_SIZE];

        if (!is_named(names, r->nodes[i].info.name))
            continue;
        json_array_append_new(lost, json_string(pms_id_format(r->nodes[i].info.id, text)));
        if (!r->node.recovering)
            r->node.lost[r->node.n_lost++] = r->nodes[i].info.id;
    }
    pms_json_set_str(cmd, "op", "cluster_recover");
    json_object_set(cmd, "lost", lost);
    if (!r->node.recovering) {
        pms_uuid_random(&uuid);
        realm_derive(&r->node.realm, &uuid, &next);
        pms_node_file_realm_next(&r->node, &next);
        r->node.recovering = true;
        rv = pms_node_file_save(r->state_dir, &r->node);
        if (rv != 0) {
            failed(why, why_len, rv, "node.json cannot be written: %s", pms_err_text(rv));
            goto out;
        }
    }
    pms_uuid_format(&r->node.realm.cluster, id);
    rv = log_recover(r, why, why_len);
    if (rv == 0 && json_array_size(lost) > 0) // else an earlier run got beyond this
        rv = alone_command(r, cmd, why, why_len);
    if (rv != 0)
        goto out;
    for (unsigned i = 0; i < r->node.n_lost; i++)
        peer_forget(&r->node, r->node.lost[i]);
    r->node.recovering = false;
    r->node.n_lost = 0;
    rv = pms_node_file_save(r->state_dir, &r->node);
    if (rv != 0)
        failed(why, why_len, rv, "node.json cannot be written: %s", pms_err_text(rv));
out:
    json_decref(cmd);
    json_decref(lost);
    return rv;
}

int pms_recover_follow(const char *state_dir, const char *id, char *why, size_t why_len)
{
    struct pms_node_file node = {0};
    struct pms_realm next;
    struct pms_uuid uuid;
    int lock_fd = -1, rv;

    if (pms_uuid_parse(id, &uuid) != 0)
        return failed(why, why_len, PMS_EUSAGE,
                      "--follow takes the id that pmsctl recover printed on the node that was recovered");
    rv = dir_take(state_dir, &node, &lock_fd, why, why_len);
    if (rv != 0)
        goto out;
    if (memcmp(node.realm.cluster.b, uuid.b, sizeof(uuid.b)) == 0)
        goto out; // done already
    // First the log: without it, and with the old identity, pmsd does not start.
    rv = pms_node_dir_wipe_log(state_dir);
    if (rv == 0) {
        realm_derive(&node.realm, &uuid, &next);
        pms_node_file_realm_next(&node, &next);
        node.superseded = node.recovering = node.settled = false;
        node.n_lost = 0;
        rv = pms_node_file_save(state_dir, &node);
    }
    if (rv != 0)
        failed(why, why_len, rv, "the state directory %s cannot be written: %s", state_dir, pms_err_text(rv));
out:
    explicit_bzero(&node, sizeof(node));
    if (lock_fd >= 0)
        close(lock_fd);
    return rv;
}
