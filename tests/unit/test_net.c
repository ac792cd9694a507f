// SPDX-License-Identifier: GPL-2.0-or-later
// Listener, dialer and join over loopback: good peers get through, all others are turned away and cost
// nothing.
#include "consensus/raft/net.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/unit/loop_fixture.h"
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 2

struct node {
    struct pms_net *net;
    uint64_t id;
    int data_fd; // last accepted on the data channel
    uint64_t data_peer;
    unsigned data_version;
    int accepted_fd; // on the control channel
    bool closed;
    struct pms_join *join;
    bool join_defer;
    unsigned joins;
};

static uv_loop_t loop;
static struct node nodes[NODES];
static struct pms_token token;

struct dialed {
    bool done;
    int status;
    int fd;
    unsigned version;
};

static void on_dialed(void *data, int status, int fd, unsigned version)
{
    struct dialed *d = data;

    *d = (struct dialed){.done = true, .status = status, .fd = fd, .version = version};
}

static void loopback(struct sockaddr_storage *addr, uint16_t port)
{
    assert_int_equal(pms_addr_parse("127.0.0.1", port, addr), 0);
}

static int resolve(void *data, uint64_t id, struct sockaddr_storage *addr)
{
    (void)data;
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].net == NULL || nodes[i].id != id)
            continue;
        loopback(addr, pms_net_port(nodes[i].net));
        return 0;
    }
    return PMS_ENOTFOUND;
}

static void on_data(void *data, uint64_t peer, int fd, unsigned version)
{
    struct node *n = data;

    n->data_version = version;

    n->data_fd = fd;
    n->data_peer = peer;
}

static void on_control(void *data, uint64_t peer, int fd)
{
    struct node *n = data;

    (void)peer;
    n->accepted_fd = fd;
}

static int token_secret(void *data, const char *id, char secret[PMS_TOKEN_SECRET_SIZE])
{
    (void)data;
    if (strcmp(id, token.id) != 0)
        return PMS_ENOTFOUND;
    memcpy(secret, token.secret, PMS_TOKEN_SECRET_SIZE);
    return 0;
}

static void answer(struct pms_join *join)
{
    json_t *a = json_pack("{s:s}", "cluster_key", "k");

    pms_join_answer(join, a);
    json_decref(a);
}

static void on_join(void *data, struct pms_join *join, const char *token_id, const json_t *request)
{
    struct node *n = data;

    assert_string_equal(token_id, token.id);
    assert_string_equal(json_string_value(json_object_get(request, "node")), "c");
    n->joins++;
    if (n->join_defer)
        n->join = join;
    else
        answer(join);
}

static void node_open_speaking(int i, uint8_t key, uint8_t cluster, struct pms_versions versions)
{
    struct node *n = &nodes[i];
    struct pms_net_config c = {
        .data = n, .resolve = resolve, .on_data = on_data, .token_secret = token_secret, .on_join = on_join};

    *n = (struct node){.id = (uint64_t)i + 1, .data_fd = -1, .accepted_fd = -1};
    c.identity.node = n->id;
    c.identity.versions = versions;
    memset(c.identity.key, key, sizeof c.identity.key);
    memset(c.identity.cluster.b, cluster, sizeof c.identity.cluster.b);
    loopback(&c.listen, 0);
    assert_int_equal(pms_net_open(&loop, &c, &n->net), 0);
}

static void node_open(int i, uint8_t key, uint8_t cluster)
{
    node_open_speaking(i, key, cluster, (struct pms_versions){0, 0});
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    pms_token_random(&token);
    node_open(0, 7, 1);
    node_open(1, 7, 1);
    return 0;
}

static void node_close(int i)
{
    struct node *n = &nodes[i];

    if (n->net == NULL)
        return;
    pms_net_close(n->net, on_closed, &n->closed);
    n->net = NULL;
    assert_true(loop_until(&loop, n->closed, 5000));
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++) {
        node_close(i);
        if (nodes[i].data_fd >= 0)
            close(nodes[i].data_fd);
        if (nodes[i].accepted_fd >= 0)
            close(nodes[i].accepted_fd);
    }
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 0); // no handle is left
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

static struct dialed dial(int from, uint64_t to, enum pms_channel channel)
{
    struct dialed d = {.fd = -1};

    assert_int_equal(pms_net_dial(nodes[from].net, to, channel, on_dialed, &d, NULL), 0);
    assert_false(d.done);
    assert_true(loop_until(&loop, d.done, 5000));
    return d;
}

static void test_dial_when_peer_is_good_then_bytes_flow_both_ways(void **state)
{
    struct dialed d = dial(0, 2, PMS_CHANNEL_DATA);
    char got[8] = "";

    (void)state;
    assert_int_equal(d.status, 0);
    assert_true(loop_until(&loop, nodes[1].data_fd >= 0, 5000));
    assert_int_equal(nodes[1].data_peer, 1);
    assert_int_equal(write(d.fd, "ping", 4), 4);
    assert_int_equal(write(nodes[1].data_fd, "pong", 4), 4);
    usleep(20000);
    assert_int_equal(read(nodes[1].data_fd, got, 8), 4);
    assert_memory_equal(got, "ping", 4);
    assert_int_equal(read(d.fd, got, 8), 4);
    assert_memory_equal(got, "pong", 4);
    assert_true(read(d.fd, got, 8) < 0 && errno == EAGAIN); // non-blocking
    close(d.fd);
}

static void test_dial_when_versions_are_mixed_then_both_are_told_the_common_one(void **state)
{
    struct dialed d;

    (void)state;
    node_close(0);
    node_open_speaking(0, 7, 1, (struct pms_versions){1, 3});
    node_close(1);
    node_open_speaking(1, 7, 1, (struct pms_versions){2, 6});
    d = dial(0, 2, PMS_CHANNEL_DATA);
    assert_int_equal(d.status, 0);
    assert_int_equal(d.version, 3);
    assert_true(loop_until(&loop, nodes[1].data_fd >= 0, 5000));
    assert_int_equal(nodes[1].data_version, 3);
    close(d.fd);
}

static unsigned log_lines_with(const char *text, FILE *log)
{
    char line[1024];
    unsigned n = 0;

    fflush(stderr);
    rewind(log);
    while (fgets(line, sizeof line, log) != NULL)
        n += strstr(line, text) != NULL ? 1 : 0;
    return n;
}

// Tried again and again, known at both ends, logged once at each; over as soon as one is upgraded.
static void test_dial_when_no_version_is_common_then_both_say_so_once(void **state)
{
    struct pms_net_mismatch m[4];
    FILE *log = tmpfile();
    int old = dup(STDERR_FILENO);

    (void)state;
    assert_non_null(log);
    node_close(0);
    node_open_speaking(0, 7, 1, (struct pms_versions){1, 1});
    node_close(1);
    node_open_speaking(1, 7, 1, (struct pms_versions){2, 3});
    dup2(fileno(log), STDERR_FILENO);
    for (int i = 0; i < 5; i++) {
        struct dialed d = dial(0, 2, i % 2 == 0 ? PMS_CHANNEL_DATA : PMS_CHANNEL_CONTROL);

        assert_int_equal(d.status, PMS_EVERSION);
        assert_int_equal(d.version, 0);
    }
    assert_true(loop_until(&loop, pms_net_mismatches(nodes[1].net, m, 4) == 1, 5000));
    dup2(old, STDERR_FILENO);
    close(old);
    assert_int_equal(m[0].node, 1);
    assert_int_equal(m[0].versions.max, 1);
    assert_int_equal(pms_net_mismatches(nodes[0].net, m, 4), 1);
    assert_int_equal(m[0].node, 2);
    assert_int_equal(m[0].versions.min, 2);
    assert_int_equal(m[0].versions.max, 3);
    assert_int_equal(log_lines_with("speaks version 2 to 3 of", log), 1);
    assert_int_equal(log_lines_with("upgrade pms on this node", log), 1);
    assert_int_equal(log_lines_with("speaks version 1 of", log), 1);
    assert_int_equal(log_lines_with("upgrade pms on that node", log), 1);
    fclose(log);

    node_close(0);
    node_open_speaking(0, 7, 1, (struct pms_versions){1, 2});
    assert_int_equal(dial(0, 2, PMS_CHANNEL_CONTROL).version, 2);
    assert_true(loop_until(&loop, pms_net_mismatches(nodes[1].net, m, 4) == 0, 5000));
}

static void test_dial_when_channel_is_not_served_then_closed(void **state)
{
    struct dialed d = dial(0, 2, PMS_CHANNEL_CONTROL);
    char byte;

    (void)state;
    assert_int_equal(d.status, 0);
    assert_true(loop_until(&loop, recv(d.fd, &byte, 1, MSG_DONTWAIT) == 0, 2000));
    close(d.fd);
}

static void test_dial_when_channel_is_served_then_handed_over(void **state)
{
    struct dialed d;

    (void)state;
    pms_net_accept_set(nodes[1].net, PMS_CHANNEL_CONTROL, on_control, &nodes[1]);
    d = dial(0, 2, PMS_CHANNEL_CONTROL);
    assert_int_equal(d.status, 0);
    assert_true(loop_until(&loop, nodes[1].accepted_fd >= 0, 2000));
    close(d.fd);
}

static void test_dial_when_key_is_wrong_then_auth_error(void **state)
{
    (void)state;
    node_close(0);
    node_open(0, 8, 1);
    assert_int_equal(dial(0, 2, PMS_CHANNEL_DATA).status, PMS_EAUTH);
    assert_int_equal(nodes[1].data_fd, -1);
}

static void test_dial_when_cluster_is_another_then_identity_error(void **state)
{
    (void)state;
    node_close(0);
    node_open(0, 7, 2);
    assert_int_equal(dial(0, 2, PMS_CHANNEL_DATA).status, PMS_EIDENTITY);
    assert_int_equal(nodes[1].data_fd, -1);
}

static void test_dial_when_node_is_unknown_then_not_found_at_once(void **state)
{
    struct dialed d;

    (void)state;
    assert_int_equal(pms_net_dial(nodes[0].net, 99, PMS_CHANNEL_DATA, on_dialed, &d, NULL), PMS_ENOTFOUND);
}

static void test_dial_when_cancelled_then_called_back_later(void **state)
{
    struct dialed d = {.fd = -1};
    struct pms_net_dial *handle;

    (void)state;
    assert_int_equal(pms_net_dial(nodes[0].net, 2, PMS_CHANNEL_DATA, on_dialed, &d, &handle), 0);
    pms_net_dial_cancel(handle);
    assert_false(d.done);
    assert_true(loop_until(&loop, d.done, 1000));
    assert_int_equal(d.status, -ECANCELED);
}

static void test_dial_when_net_closes_then_cancelled(void **state)
{
    struct dialed d = {.fd = -1};

    (void)state;
    assert_int_equal(pms_net_dial(nodes[0].net, 2, PMS_CHANNEL_DATA, on_dialed, &d, NULL), 0);
    node_close(0);
    assert_true(d.done);
    assert_int_equal(d.status, -ECANCELED);
}

static int stranger(void)
{
    struct sockaddr_storage addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    loopback(&addr, pms_net_port(nodes[0].net));
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, pms_addr_len(&addr)), 0);
    return fd;
}

static bool is_dropped(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void test_listener_when_fed_garbage_then_drops_it_and_serves_on(void **state)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n",
                                          "\x16\x03\x01 is this TLS? no, it is not at all", "PMS1\x01",
                                          "PMS1\x03zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "\xff\xff\xff\xff"};

    (void)state;
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int fd = stranger();

        assert_true(send(fd, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL) > 0);
        assert_true(
            loop_until(&loop, is_dropped(fd), 2 * PMS_NET_HANDSHAKE_MS)); // the third: at the deadline
        close(fd);
    }
    test_dial_when_peer_is_good_then_bytes_flow_both_ways(state);
}

static void test_listener_when_many_say_nothing_then_the_rest_is_dropped_and_all_end(void **state)
{
    int fds[PMS_NET_HANDSHAKES_MAX + 10];
    size_t n = sizeof fds / sizeof fds[0], dropped = 0;

    (void)state;
    for (size_t i = 0; i < n; i++)
        fds[i] = stranger();
    assert_true(loop_until(&loop, is_dropped(fds[n - 1]), 1000));
    for (size_t i = 0; i < n; i++)
        dropped += is_dropped(fds[i]) ? 1 : 0;
    assert_int_equal(dropped, 10);
    assert_true(loop_until(&loop, is_dropped(fds[0]), 2 * PMS_NET_HANDSHAKE_MS));
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    test_dial_when_peer_is_good_then_bytes_flow_both_ways(state);
}

static void test_open_when_port_is_taken_then_in_use(void **state)
{
    struct pms_net_config c = {.identity = {.node = 9}, .resolve = resolve};
    struct pms_net *net = NULL;

    (void)state;
    loopback(&c.listen, pms_net_port(nodes[0].net));
    assert_int_equal(pms_net_open(&loop, &c, &net), -EADDRINUSE);
    assert_null(net);
}

// ---- join

struct asked {
    bool done;
    int status;
    bool has_key;
};

static void on_answer(void *data, int status, const json_t *a)
{
    struct asked *asked = data;

    asked->done = true;
    asked->status = status;
    asked->has_key = json_is_string(json_object_get(a, "cluster_key"));
}

static void ask(const struct pms_token *with, unsigned timeout_ms, struct asked *asked)
{
    struct sockaddr_storage addr;
    json_t *request = json_pack("{s:s}", "node", "c");

    *asked = (struct asked){0};
    loopback(&addr, pms_net_port(nodes[0].net));
    assert_int_equal(pms_join_request(&loop, &addr, with, request, timeout_ms, on_answer, asked), 0);
    json_decref(request);
}

static void test_join_when_token_is_good_then_answered(void **state)
{
    struct asked asked;

    (void)state;
    ask(&token, 5000, &asked);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, 0);
    assert_true(asked.has_key);
    assert_int_equal(nodes[0].joins, 1);
}

static void test_join_when_answered_later_then_answered(void **state)
{
    struct asked asked;

    (void)state;
    nodes[0].join_defer = true;
    ask(&token, 5000, &asked);
    assert_true(loop_until(&loop, nodes[0].join != NULL, 5000));
    assert_false(asked.done);
    answer(nodes[0].join);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, 0);
}

static void test_join_when_secret_is_wrong_then_auth_error_and_nothing_asked(void **state)
{
    struct pms_token wrong = token;
    struct asked asked;

    (void)state;
    wrong.secret[0] = wrong.secret[0] == '0' ? '1' : '0';
    ask(&wrong, 5000, &asked);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, PMS_EAUTH);
    assert_int_equal(nodes[0].joins, 0);
}

static void test_join_when_token_is_unknown_then_the_same_error(void **state)
{
    struct pms_token wrong;
    struct asked asked;

    (void)state;
    pms_token_random(&wrong);
    ask(&wrong, 5000, &asked);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, PMS_EAUTH);
    assert_int_equal(nodes[0].joins, 0);
}

static void test_join_when_no_answer_comes_then_outcome_unknown_and_late_answer_harmless(void **state)
{
    struct asked asked;

    (void)state;
    nodes[0].join_defer = true;
    ask(&token, 300, &asked);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, PMS_EUNKNOWN);
    assert_true(loop_until(&loop, nodes[0].join != NULL, 1000));
    loop_until(&loop, false, 100); // the server notices
    answer(nodes[0].join);
}

static void test_join_when_net_closes_then_late_answer_harmless(void **state)
{
    struct asked asked;

    (void)state;
    nodes[0].join_defer = true;
    ask(&token, 5000, &asked);
    assert_true(loop_until(&loop, nodes[0].join != NULL, 5000));
    node_close(0);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, PMS_EUNKNOWN);
    answer(nodes[0].join);
}

static void test_join_when_nobody_listens_then_refused(void **state)
{
    struct sockaddr_storage addr;
    struct asked asked = {0};
    json_t *request = json_object();

    (void)state;
    loopback(&addr, pms_net_port(nodes[0].net));
    node_close(0);
    assert_int_equal(pms_join_request(&loop, &addr, &token, request, 5000, on_answer, &asked), 0);
    json_decref(request);
    assert_true(loop_until(&loop, asked.done, 5000));
    assert_int_equal(asked.status, -ECONNREFUSED);
}

#define net_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        net_test(test_dial_when_peer_is_good_then_bytes_flow_both_ways),
        net_test(test_dial_when_versions_are_mixed_then_both_are_told_the_common_one),
        net_test(test_dial_when_no_version_is_common_then_both_say_so_once),
        net_test(test_dial_when_channel_is_not_served_then_closed),
        net_test(test_dial_when_channel_is_served_then_handed_over),
        net_test(test_dial_when_key_is_wrong_then_auth_error),
        net_test(test_dial_when_cluster_is_another_then_identity_error),
        net_test(test_dial_when_node_is_unknown_then_not_found_at_once),
        net_test(test_dial_when_cancelled_then_called_back_later),
        net_test(test_dial_when_net_closes_then_cancelled),
        net_test(test_listener_when_fed_garbage_then_drops_it_and_serves_on),
        net_test(test_listener_when_many_say_nothing_then_the_rest_is_dropped_and_all_end),
        net_test(test_open_when_port_is_taken_then_in_use),
        net_test(test_join_when_token_is_good_then_answered),
        net_test(test_join_when_answered_later_then_answered),
        net_test(test_join_when_secret_is_wrong_then_auth_error_and_nothing_asked),
        net_test(test_join_when_token_is_unknown_then_the_same_error),
        net_test(test_join_when_no_answer_comes_then_outcome_unknown_and_late_answer_harmless),
        net_test(test_join_when_net_closes_then_late_answer_harmless),
        net_test(test_join_when_nobody_listens_then_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
