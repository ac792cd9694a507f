// SPDX-License-Identifier: GPL-2.0-or-later
// Raft nodes over real sockets and real logs: several in one process, on one loop, over loopback.
#include "consensus/raft/node.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/util.h"
#include "consensus/raft/recover.h"
#include "tests/unit/loop_fixture.h"
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES_MAX    6
#define APPLIED_MAX  4096
#define COMMAND_SIZE 32

struct node {
    bool up;
    uint64_t id;
    char dir[64];
    struct pms_net *net;
    struct pms_rpc *rpc;
    struct pms_raft *raft;
    bool closed;
    // the state machine: every command in order
    char applied[APPLIED_MAX][COMMAND_SIZE];
    size_t applied_n;
    uint64_t index;
    unsigned restores;
    // what was told
    uint64_t leader;
    bool self;
    unsigned readies;
    unsigned caught_ups;
    size_t applied_at_caught_up;
    char failure[512];
};

static uv_loop_t loop;
static char base[32];
static struct node nodes[NODES_MAX];

static int resolve(void *data, uint64_t id, struct sockaddr_storage *addr)
{
    (void)data;
    for (int i = 0; i < NODES_MAX; i++)
        if (nodes[i].up && nodes[i].id == id)
            return pms_addr_parse("127.0.0.1", pms_net_port(nodes[i].net), addr);
    return PMS_ENOTFOUND;
}

// ---- the state machine

#define POISON "poison" // a command that this node cannot apply

static int on_apply(void *data, const char *command, size_t len, uint64_t index, char **result)
{
    struct node *n = data;

    assert_true(len < COMMAND_SIZE && n->applied_n < APPLIED_MAX);
    assert_true(index > n->index);
    if (len == strlen(POISON) && memcmp(command, POISON, len) == 0)
        return PMS_EVERSION;
    n->index = index;
    memcpy(n->applied[n->applied_n], command, len);
    n->applied[n->applied_n++][len] = '\0';
    assert_true(asprintf(result, "%zu:%.*s", n->applied_n, (int)len, command) > 0);
    return 0;
}

static int on_snapshot(void *data, char **buf, size_t *len)
{
    struct node *n = data;

    *len = n->applied_n * COMMAND_SIZE;
    *buf = malloc(*len + 1);
    memcpy(*buf, n->applied, *len);
    return 0;
}

static int on_restore(void *data, const char *buf, size_t len)
{
    struct node *n = data;

    if (len % COMMAND_SIZE != 0)
        return PMS_ECORRUPT;
    memcpy(n->applied, buf, len);
    n->applied_n = len / COMMAND_SIZE;
    n->restores++;
    return 0;
}

static void on_leader(void *data, uint64_t leader, bool self)
{
    struct node *n = data;

    n->leader = leader;
    n->self = self;
}

static void on_ready(void *data)
{
    ((struct node *)data)->readies++;
}

static void on_caught_up(void *data)
{
    struct node *n = data;

    n->caught_ups++;
    n->applied_at_caught_up = n->applied_n;
}

static void on_fatal(void *data, const char *text)
{
    struct node *n = data;

    snprintf(n->failure, sizeof n->failure, "%s", text);
}

// ---- life

static void node_start(int i, bool bootstrap)
{
    struct node *n = &nodes[i];
    struct pms_net_config net = {.identity = {.node = n->id}, .data = n, .resolve = resolve};
    struct pms_raft_config raft = {.id = n->id,
                                   .dir = n->dir,
                                   .snapshot_threshold = 32,
                                   .data = n,
                                   .apply = on_apply,
                                   .snapshot = on_snapshot,
                                   .restore = on_restore,
                                   .on_leader = on_leader,
                                   .on_ready = on_ready,
                                   .on_caught_up = on_caught_up,
                                   .on_fatal = on_fatal};

    n->applied_n = 0;
    n->index = 0;
    n->restores = n->readies = n->caught_ups = 0;
    n->leader = 0;
    n->self = n->closed = false;
    assert_int_equal(pms_addr_parse("127.0.0.1", 0, &net.listen), 0);
    assert_int_equal(pms_net_open(&loop, &net, &n->net), 0);
    assert_int_equal(pms_rpc_open(&loop, n->net, &n->rpc), 0);
    raft.net = n->net;
    raft.rpc = n->rpc;
    assert_int_equal(pms_raft_open(&loop, &raft, &n->raft), 0);
    if (bootstrap)
        assert_int_equal(pms_raft_bootstrap(n->raft), 0);
    assert_int_equal(pms_raft_start(n->raft), 0);
    n->up = true;
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

static void node_stop(int i)
{
    struct node *n = &nodes[i];
    bool raft_closed = false, rpc_closed = false;

    n->up = false;
    pms_raft_close(n->raft, on_closed, &raft_closed);
    assert_true(loop_until(&loop, raft_closed, 5000));
    pms_rpc_close(n->rpc, on_closed, &rpc_closed);
    assert_true(loop_until(&loop, rpc_closed, 5000));
    pms_net_close(n->net, on_closed, &n->closed);
    assert_true(loop_until(&loop, n->closed, 5000));
}

static int file_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void node_new(int i)
{
    static unsigned serial;
    struct node *n = &nodes[i];

    n->id = pms_id_random();
    snprintf(n->dir, sizeof n->dir, "%s/%u", base, serial++);
}

static int setup(void **state)
{
    (void)state;
    strcpy(base, "/tmp/pms-test-node-XXXXXX");
    assert_non_null(mkdtemp(base));
    assert_int_equal(uv_loop_init(&loop), 0);
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < NODES_MAX; i++)
        node_new(i);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < NODES_MAX; i++)
        if (nodes[i].up)
            node_stop(i);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    return nftw(base, file_remove, 16, FTW_DEPTH | FTW_PHYS);
}

// ---- doing things and waiting for them

struct outcome {
    bool done;
    int status;
    uint64_t index;
    char result[64];
};

static void on_proposed(void *data, int status, uint64_t index, const char *result)
{
    struct outcome *o = data;

    assert_false(o->done);
    *o = (struct outcome){.done = true, .status = status, .index = index};
    if (result != NULL)
        snprintf(o->result, sizeof o->result, "%s", result);
}

static void on_done(void *data, int status)
{
    struct outcome *o = data;

    assert_false(o->done);
    *o = (struct outcome){.done = true, .status = status};
}

static struct outcome propose(int i, const char *command, unsigned timeout_ms)
{
    struct outcome o = {0};

    assert_int_equal(pms_raft_propose(nodes[i].raft, command, strlen(command), timeout_ms, on_proposed, &o),
                     0);
    assert_false(o.done);
    assert_true(loop_until(&loop, o.done, timeout_ms + 2000));
    return o;
}

static int read_barrier(int i, unsigned timeout_ms)
{
    struct outcome o = {0};

    assert_int_equal(pms_raft_read_barrier(nodes[i].raft, timeout_ms, on_done, &o), 0);
    assert_true(loop_until(&loop, o.done, timeout_ms + 2000));
    return o.status;
}

static int member_set(int leader, uint64_t id, enum pms_raft_role role, unsigned timeout_ms)
{
    struct outcome o = {0};

    assert_int_equal(pms_raft_member_set(nodes[leader].raft, id, role, timeout_ms, on_done, &o), 0);
    assert_true(loop_until(&loop, o.done, timeout_ms + 2000));
    return o.status;
}

static int ready_node(void)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (nodes[i].up && pms_raft_is_ready(nodes[i].raft))
            return i;
    return -1;
}

static int leader_wait(void)
{
    assert_true(loop_until(&loop, ready_node() >= 0, 10000));
    return ready_node();
}

static int follower_of(int leader)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (nodes[i].up && i != leader)
            return i;
    return -1;
}

static void cluster_start(int n)
{
    node_start(0, true);
    assert_int_equal(leader_wait(), 0);
    for (int i = 1; i < n; i++) {
        node_start(i, false);
        assert_int_equal(member_set(0, nodes[i].id, PMS_RAFT_VOTER, 10000), 0);
    }
}

static bool all_equal(size_t applied_n)
{
    const struct node *first = NULL;

    for (int i = 0; i < NODES_MAX; i++) {
        const struct node *n = &nodes[i];

        if (!n->up)
            continue;
        if (n->applied_n != applied_n)
            return false;
        if (first == NULL)
            first = n;
        if (memcmp(first->applied, n->applied, sizeof n->applied[0] * applied_n) != 0)
            return false;
    }
    return true;
}

static void propose_many(int at, int from, int n)
{
    for (int k = from; k < from + n; k++) {
        char command[COMMAND_SIZE];

        memset(command, 0, sizeof command);
        snprintf(command, sizeof command, "c%d", k);
        assert_int_equal(propose(at, command, 5000).status, 0);
    }
}

// ---- the tests

static void test_node_when_alone_then_leads_applies_and_answers(void **state)
{
    struct outcome o;

    (void)state;
    cluster_start(1);
    o = propose(0, "a", 2000);
    assert_int_equal(o.status, 0);
    assert_string_equal(o.result, "1:a");
    assert_int_equal(o.index, nodes[0].index);
    assert_true(nodes[0].self && nodes[0].leader == nodes[0].id);
    assert_int_equal(nodes[0].readies, 1);
    assert_true(loop_until(&loop, nodes[0].caught_ups == 1, 2000));
}

static void test_node_when_bootstrapped_twice_then_exists(void **state)
{
    struct pms_raft_config c = {.id = nodes[0].id,
                                .dir = nodes[0].dir,
                                .data = &nodes[0],
                                .apply = on_apply,
                                .snapshot = on_snapshot,
                                .restore = on_restore};
    bool closed = false;

    (void)state;
    cluster_start(1);
    c.net = nodes[0].net;
    c.rpc = nodes[0].rpc;
    pms_raft_close(nodes[0].raft, on_closed, &closed);
    assert_true(loop_until(&loop, closed, 5000));
    assert_int_equal(pms_raft_open(&loop, &c, &nodes[0].raft), 0);
    assert_int_equal(pms_raft_bootstrap(nodes[0].raft), PMS_EEXISTS);
}

static void test_node_when_restarted_then_has_applied_all_before_caught_up(void **state)
{
    (void)state;
    cluster_start(1);
    propose_many(0, 0, 20);
    node_stop(0);
    node_start(0, false);
    assert_true(loop_until(&loop, nodes[0].caught_ups == 1, 5000));
    assert_int_equal(nodes[0].applied_at_caught_up, 20);
    assert_int_equal(nodes[0].restores, 0);
    assert_string_equal(propose(0, "x", 2000).result, "21:x");
}

static void test_node_when_restarted_from_snapshot_then_has_all(void **state)
{
    (void)state;
    cluster_start(1);
    propose_many(0, 0, 200);
    node_stop(0);
    node_start(0, false);
    assert_true(loop_until(&loop, nodes[0].caught_ups == 1, 5000));
    assert_int_equal(nodes[0].applied_n, 200);
    assert_int_equal(nodes[0].restores, 1);
    assert_string_equal(nodes[0].applied[199], "c199");
}

static void test_cluster_when_proposed_at_follower_then_applied_everywhere(void **state)
{
    struct outcome o;

    (void)state;
    cluster_start(3);
    o = propose(1, "a", 5000);
    assert_int_equal(o.status, 0);
    assert_string_equal(o.result, "1:a");
    assert_int_equal(propose(2, "b", 5000).status, 0);
    assert_int_equal(propose(0, "c", 5000).status, 0);
    assert_true(loop_until(&loop, all_equal(3), 5000));
    assert_string_equal(nodes[1].applied[1], "b");
}

static void test_cluster_when_read_at_follower_then_sees_what_was_acknowledged(void **state)
{
    (void)state;
    cluster_start(3);
    for (int k = 0; k < 20; k++) {
        char command[COMMAND_SIZE];

        snprintf(command, sizeof command, "c%d", k);
        assert_int_equal(propose(0, command, 5000).status, 0);
        assert_int_equal(read_barrier(1 + k % 2, 5000), 0);
        assert_int_equal(nodes[1 + k % 2].applied_n, (size_t)k + 1);
    }
}

static void test_cluster_when_leader_goes_then_another_serves_and_old_one_returns(void **state)
{
    int leader;

    (void)state;
    cluster_start(3);
    propose_many(0, 0, 10);
    node_stop(0);
    assert_int_equal(propose(1, "after", 10000).status, 0);
    assert_int_equal(propose(2, "more", 10000).status, 0);
    leader = leader_wait();
    assert_int_not_equal(leader, 0);
    node_start(0, false);
    assert_true(loop_until(&loop, nodes[0].caught_ups == 1 && all_equal(12), 10000));
    assert_true(nodes[0].applied_at_caught_up == 12);
    assert_int_equal(propose(0, "again", 10000).status, 0);
}

static void test_cluster_when_disk_is_wiped_then_returns_under_new_id_by_snapshot(void **state)
{
    uint64_t old;

    (void)state;
    cluster_start(3);
    propose_many(0, 0, 10);
    old = nodes[2].id;
    node_stop(2);
    propose_many(0, 10, 150); // so that the log no longer reaches back to the start
    node_new(2);
    node_start(2, false);
    assert_int_equal(member_set(0, old, PMS_RAFT_GONE, 10000), 0);
    assert_int_equal(member_set(0, nodes[2].id, PMS_RAFT_VOTER, 20000), 0);
    assert_true(loop_until(&loop, all_equal(160), 10000));
    assert_int_equal(nodes[2].restores, 1);
    assert_true(loop_until(&loop, nodes[2].caught_ups == 1, 5000));
    node_stop(1); // the new one counts: without it there is no majority
    assert_int_equal(propose(0, "last", 10000).status, 0);
}

static void test_cluster_when_majority_is_gone_then_no_quorum_and_goes_on_when_back(void **state)
{
    struct outcome o;

    (void)state;
    cluster_start(3);
    propose_many(0, 0, 3);
    node_stop(1);
    node_stop(2);
    o = propose(0, "lost?", 300); // the leader may still believe in itself
    assert_true(o.status == PMS_EUNKNOWN || o.status == PMS_ENOQUORUM);
    assert_true(loop_until(&loop, nodes[0].leader == 0, 5000));
    assert_int_equal(propose(0, "no", 300).status, PMS_ENOQUORUM);
    assert_int_equal(read_barrier(0, 300), PMS_ENOQUORUM);
    node_start(1, false);
    assert_int_equal(propose(0, "yes", 10000).status, 0);
    assert_int_equal(read_barrier(1, 5000), 0);
    for (size_t i = 0; i < nodes[1].applied_n; i++)
        assert_string_not_equal(nodes[1].applied[i], "no"); // said to be not applied: never is
}

static void test_cluster_when_leadership_is_transferred_then_the_other_leads(void **state)
{
    struct outcome o = {0}, refused = {0};

    (void)state;
    cluster_start(3);
    assert_int_equal(pms_raft_transfer(nodes[1].raft, 0, on_done, &refused), 0);
    assert_true(loop_until(&loop, refused.done, 5000));
    assert_int_equal(refused.status, PMS_ENOTLEADER);
    // libraft gives up after one election timeout; on a busy machine the other one may not be that quick.
    for (int tries = 0; tries < 10 && (tries == 0 || o.status == -ETIMEDOUT); tries++) {
        assert_true(loop_until(&loop, nodes[0].leader == nodes[0].id, 5000));
        o = (struct outcome){0};
        assert_int_equal(pms_raft_transfer(nodes[0].raft, nodes[2].id, on_done, &o), 0);
        assert_true(loop_until(&loop, o.done, 5000));
    }
    assert_int_equal(o.status, 0);
    assert_true(loop_until(&loop, pms_raft_is_ready(nodes[2].raft), 5000));
    assert_int_equal(propose(0, "a", 5000).status, 0);
}

static void test_member_when_removed_then_no_longer_in_the_group(void **state)
{
    struct pms_raft_status s;

    (void)state;
    cluster_start(3);
    assert_int_equal(member_set(0, nodes[0].id, PMS_RAFT_GONE, 5000), PMS_EREFUSED);
    assert_int_equal(member_set(1, nodes[2].id, PMS_RAFT_GONE, 5000), PMS_ENOTLEADER);
    assert_int_equal(member_set(0, nodes[2].id, PMS_RAFT_GONE, 5000), 0);
    assert_int_equal(member_set(0, nodes[2].id, PMS_RAFT_GONE, 5000), 0); // is so already
    pms_raft_status_get(nodes[0].raft, &s);
    assert_int_equal(s.members_n, 2);
    node_stop(2);
    assert_int_equal(propose(1, "a", 5000).status, 0);
}

static void test_member_when_standby_then_follows_without_a_vote(void **state)
{
    struct pms_raft_status s;

    (void)state;
    cluster_start(1);
    node_start(1, false);
    assert_int_equal(member_set(0, nodes[1].id, PMS_RAFT_STANDBY, 5000), 0);
    propose_many(0, 0, 5);
    assert_true(loop_until(&loop, all_equal(5), 5000));
    pms_raft_status_get(nodes[0].raft, &s);
    assert_int_equal(s.members_n, 2);
    assert_int_equal(s.members[1].role, PMS_RAFT_STANDBY);
    node_stop(1);
    assert_int_equal(propose(0, "alone", 5000).status, 0); // needs no second node
}

static void test_member_when_five_vote_then_a_sixth_is_refused(void **state)
{
    (void)state;
    cluster_start(5);
    node_start(5, false);
    assert_int_equal(member_set(0, nodes[5].id, PMS_RAFT_VOTER, 10000), PMS_EFULL);
    assert_int_equal(member_set(0, nodes[5].id, PMS_RAFT_STANDBY, 10000), 0);
    propose_many(4, 0, 3);
    assert_true(loop_until(&loop, all_equal(3), 5000));
}

static void test_member_when_unreachable_then_unknown_at_the_deadline_and_others_go_on(void **state)
{
    (void)state;
    cluster_start(2);
    assert_int_equal(member_set(0, 0xdead, PMS_RAFT_VOTER, 1000), PMS_EUNKNOWN);
    assert_int_equal(propose(1, "a", 5000).status, 0);
    assert_int_equal(member_set(0, 0xdead, PMS_RAFT_GONE, 10000), 0);
}

// Many at a time, from everywhere, with a node closed while they are under way: each is answered once, and
// what was acknowledged is there in the end.
static void test_cluster_when_closed_under_load_then_each_is_answered_and_none_lost(void **state)
{
    enum { N = 600 };
    static struct outcome o[N];
    size_t done = 0, acked = 0;
    int other;

    (void)state;
    memset(o, 0, sizeof o);
    cluster_start(3);
    for (int k = 0; k < N; k++) {
        char command[COMMAND_SIZE];
        int len = snprintf(command, sizeof command, "c%d", k);

        assert_int_equal(pms_raft_propose(nodes[k % 3].raft, command, (size_t)len, 10000, on_proposed, &o[k]),
                         0);
        if (k == N / 2)
            assert_true(loop_until(&loop, nodes[0].applied_n > 20, 10000));
    }
    loop_until(&loop, nodes[0].applied_n > 320, 10000);
    node_stop(0);
    for (int k = 0; k < N; k++)
        assert_true(loop_until(&loop, o[k].done, 15000));
    other = leader_wait();
    assert_int_equal(read_barrier(follower_of(other), 10000), 0);
    for (int k = 0; k < N; k++) {
        const struct node *n = &nodes[follower_of(other)];
        unsigned times = 0;
        char command[COMMAND_SIZE];

        snprintf(command, sizeof command, "c%d", k);
        for (size_t i = 0; i < n->applied_n; i++)
            times += strcmp(n->applied[i], command) == 0 ? 1 : 0;
        done++;
        acked += o[k].status == 0 ? 1 : 0;
        assert_true(times <= 1); // never tried twice
        if (o[k].status == 0)
            assert_int_equal(times, 1);
        else if (o[k].status != PMS_EUNKNOWN)
            assert_int_equal(times, 0);
    }
    assert_int_equal(done, N);
    assert_true(acked > N / 3);
}

static void test_open_when_folder_is_no_folder_then_refused(void **state)
{
    struct pms_raft_config c = {.id = 1, .apply = on_apply, .snapshot = on_snapshot, .restore = on_restore};
    struct pms_raft *raft = NULL;
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/file", base);
    assert_int_equal(pms_file_write_atomic(path, "x", 1, 0600), 0);
    c.dir = path;
    assert_int_equal(pms_raft_open(&loop, &c, &raft), -ENOTDIR);
    c.dir = "/nonexistent/folder";
    assert_int_equal(pms_raft_open(&loop, &c, &raft), -ENOENT);
    assert_null(raft);
}

// In a child: after a fatal error libraft's memory is left alone on purpose, which a leak checker would
// report.
static void full_disk_child(void)
{
    struct rlimit limit = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    struct outcome o = {0};
    bool closed = false;

    signal(SIGXFSZ, SIG_IGN);
    cluster_start(1);
    propose_many(0, 0, 5);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(pms_raft_propose(nodes[0].raft, "x", 1, 20000, on_proposed, &o), 0);
    assert_true(loop_until(&loop, o.done && nodes[0].failure[0] != '\0', 10000));
    assert_int_equal(o.status, PMS_EUNKNOWN);
    assert_non_null(strstr(nodes[0].failure, "cannot be written"));
    assert_int_equal(pms_raft_propose(nodes[0].raft, "y", 1, 1000, on_proposed, &o), PMS_ESHUTDOWN);
    assert_false(pms_raft_is_ready(nodes[0].raft));
    loop_until(&loop, false, 500); // nothing stirs
    pms_raft_close(nodes[0].raft, on_closed, &closed);
    assert_true(loop_until(&loop, closed, 5000));
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
}

// In a child, likewise. What comes after the command that cannot be applied is not applied either.
static void poison_child(void)
{
    struct outcome o[3] = {{0}};

    cluster_start(1);
    propose_many(0, 0, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pms_raft_propose(nodes[0].raft, i == 1 ? POISON : "x", i == 1 ? strlen(POISON) : 1,
                                          20000, on_proposed, &o[i]),
                         0);
    assert_true(loop_until(&loop, o[1].done && o[2].done && nodes[0].failure[0] != '\0', 10000));
    assert_non_null(strstr(nodes[0].failure, "cannot be applied here: version not supported"));
    assert_int_not_equal(o[1].status, 0);
    assert_int_not_equal(o[2].status, 0);
    assert_int_equal(nodes[0].applied_n, 6);
    assert_false(pms_raft_is_ready(nodes[0].raft));
    loop_until(&loop, false, 300);
    assert_int_equal(nodes[0].applied_n, 6);
}

// For what ends with a process.
static void in_child(void (*story)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        uv_loop_fork(&loop);
        story();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_node_when_a_command_cannot_be_applied_then_stops_before_the_next(void **state)
{
    (void)state;
    in_child(poison_child);
}

static void test_node_when_disk_cannot_be_written_then_stops_cleanly(void **state)
{
    (void)state;
    in_child(full_disk_child);
}

// A child that proposes as fast as it can and writes each acknowledged number to the pipe, until it is
// killed.
static void killed_child(int out, bool first)
{
    struct node *n = &nodes[0];

    node_start(0, first);
    if (!loop_until(&loop, n->caught_ups == 1, 10000))
        _exit(1);
    for (uint32_t k = (uint32_t)n->applied_n;; k++) {
        char command[COMMAND_SIZE];

        memset(command, 0, sizeof command);
        snprintf(command, sizeof command, "%u", k);
        if (k >= APPLIED_MAX - 1 || propose(0, command, 5000).status != 0 ||
            write(out, &n->applied_n, sizeof n->applied_n) != (ssize_t)sizeof n->applied_n)
            _exit(2);
    }
}

// Lets the child acknowledge something, kills it a moment later, and returns the last number that it
// acknowledged.
static size_t run_and_kill(bool first, unsigned moment_us)
{
    size_t last = 0, n;
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        uv_loop_fork(&loop);
        killed_child(fds[1], first);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &last, sizeof last), (ssize_t)sizeof last);
    usleep(moment_us);
    kill(pid, SIGKILL);
    while (read(fds[0], &n, sizeof n) == (ssize_t)sizeof n)
        last = n;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); // not gone by itself
    return last;
}

static void test_node_when_killed_in_mid_write_then_starts_again_and_has_all(void **state)
{
    size_t acknowledged = 0;

    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        size_t last = run_and_kill(round == 0, 7919 * round);

        assert_true(last > acknowledged); // numbers go on from what was applied: none is lost
        acknowledged = last;
    }
    node_start(0, false);
    assert_true(loop_until(&loop, nodes[0].caught_ups == 1, 10000));
    assert_true(nodes[0].applied_n >= acknowledged);
    for (size_t i = 0; i < nodes[0].applied_n; i++)
        assert_int_equal(atoi(nodes[0].applied[i]), (int)i);
}

// The majority is lost for ever: one survivor goes on alone with all that it has, and takes in new nodes.
static void test_recover_when_majority_is_lost_then_the_survivor_goes_on_with_all(void **state)
{
    static struct node reader;
    const struct pms_raft_log_reader r = {&reader, on_restore, on_apply};
    struct pms_raft_log_info info;
    uint64_t index;

    (void)state;
    cluster_start(3);
    propose_many(0, 0, 100); // beyond a snapshot
    assert_true(loop_until(&loop, all_equal(100), 5000));
    index = nodes[1].index;
    for (int i = 0; i < 3; i++)
        node_stop(i);

    memset(&reader, 0, sizeof reader);
    assert_int_equal(pms_raft_log_read(nodes[1].dir, nodes[1].id, &r, &info), 0);
    assert_int_equal(info.members_n, 3);
    assert_int_equal(info.members[1].role, PMS_RAFT_VOTER);
    assert_int_equal(reader.applied_n, 100);
    assert_string_equal(reader.applied[99], "c99");
    assert_true(info.index_last >= index);
    assert_true(info.term >= info.term_last && info.term_last > 0);

    assert_int_equal(pms_raft_log_recover(nodes[1].dir, nodes[1].id), 0);
    memset(&reader, 0, sizeof reader);
    assert_int_equal(pms_raft_log_read(nodes[1].dir, nodes[1].id, &r, &info), 0);
    assert_int_equal(info.members_n, 1);
    assert_int_equal(info.members[0].id, nodes[1].id);
    node_start(1, false);
    assert_int_equal(leader_wait(), 1);
    assert_string_equal(propose(1, "x", 5000).result, "101:x");
    node_start(4, false); // new ones come in, and all of it survives restarts
    assert_int_equal(member_set(1, nodes[4].id, PMS_RAFT_VOTER, 10000), 0);
    assert_true(loop_until(&loop, all_equal(101), 5000));
    propose_many(1, 200, 60); // and another snapshot
    assert_true(loop_until(&loop, all_equal(161), 5000));
    node_stop(1);
    node_stop(4);
    node_start(4, false);
    node_start(1, false);
    leader_wait();
    assert_true(loop_until(&loop, all_equal(161), 5000));
}

static void test_recover_when_there_is_no_log_then_an_error_and_nothing_is_made(void **state)
{
    static struct node reader;
    const struct pms_raft_log_reader r = {&reader, on_restore, on_apply};
    struct pms_raft_log_info info;
    struct stat st;

    (void)state;
    assert_true(pms_raft_log_read(nodes[0].dir, nodes[0].id, &r, &info) < 0);
    assert_int_equal(stat(nodes[0].dir, &st), -1);
}

#define node_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        node_test(test_node_when_alone_then_leads_applies_and_answers),
        node_test(test_node_when_bootstrapped_twice_then_exists),
        node_test(test_node_when_restarted_then_has_applied_all_before_caught_up),
        node_test(test_node_when_restarted_from_snapshot_then_has_all),
        node_test(test_cluster_when_proposed_at_follower_then_applied_everywhere),
        node_test(test_cluster_when_read_at_follower_then_sees_what_was_acknowledged),
        node_test(test_cluster_when_leader_goes_then_another_serves_and_old_one_returns),
        node_test(test_cluster_when_disk_is_wiped_then_returns_under_new_id_by_snapshot),
        node_test(test_cluster_when_majority_is_gone_then_no_quorum_and_goes_on_when_back),
        node_test(test_cluster_when_leadership_is_transferred_then_the_other_leads),
        node_test(test_member_when_removed_then_no_longer_in_the_group),
        node_test(test_member_when_standby_then_follows_without_a_vote),
        node_test(test_member_when_five_vote_then_a_sixth_is_refused),
        node_test(test_member_when_unreachable_then_unknown_at_the_deadline_and_others_go_on),
        node_test(test_cluster_when_closed_under_load_then_each_is_answered_and_none_lost),
        node_test(test_node_when_killed_in_mid_write_then_starts_again_and_has_all),
        node_test(test_recover_when_majority_is_lost_then_the_survivor_goes_on_with_all),
        node_test(test_recover_when_there_is_no_log_then_an_error_and_nothing_is_made),
        node_test(test_open_when_folder_is_no_folder_then_refused),
        node_test(test_node_when_a_command_cannot_be_applied_then_stops_before_the_next),
        node_test(test_node_when_disk_cannot_be_written_then_stops_cleanly),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
