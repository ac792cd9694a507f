// SPDX-License-Identifier: GPL-2.0-or-later
// Calls between two nodes over loopback, and the certainty of their outcomes.
#include "consensus/raft/rpc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/util.h"
#include "base/wire.h"
#include "tests/unit/loop_fixture.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct node {
    uint64_t id;
    struct pms_net *net;
    struct pms_rpc *rpc;
    uint16_t port;
    struct pms_rpc_request *held[8];
    size_t held_n;
    unsigned served;
};

static uv_loop_t loop;
static struct node nodes[2];

static int resolve(void *data, uint64_t id, struct sockaddr_storage *addr)
{
    (void)data;
    for (int i = 0; i < 2; i++)
        if (nodes[i].id == id)
            return pms_addr_parse("127.0.0.1", nodes[i].port, addr);
    return PMS_ENOTFOUND;
}

// {"do":"echo"} at once, {"do":"hold"} when the test says so, {"do":"fail"}.
static void on_request(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct node *n = data;
    const char *what = pms_json_str(body, "do", "");

    n->served++;
    assert_true(from == nodes[0].id || from == nodes[1].id);
    if (strcmp(what, "echo") == 0)
        pms_rpc_answer(request, 0, body);
    else if (strcmp(what, "hold") == 0)
        n->held[n->held_n++] = request;
    else
        pms_rpc_answer(request, PMS_EFULL, NULL);
}

static void node_open(int i)
{
    struct node *n = &nodes[i];
    struct pms_net_config c = {.resolve = resolve};

    *n = (struct node){.id = (uint64_t)i + 1};
    c.identity.node = n->id;
    assert_int_equal(pms_addr_parse("127.0.0.1", 0, &c.listen), 0);
    assert_int_equal(pms_net_open(&loop, &c, &n->net), 0);
    n->port = pms_net_port(n->net);
    assert_int_equal(pms_rpc_open(&loop, n->net, &n->rpc), 0);
    assert_int_equal(pms_rpc_serve(n->rpc, "test", on_request, n), 0);
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

static void node_close(int i)
{
    struct node *n = &nodes[i];
    bool rpc_closed = false, net_closed = false;

    if (n->rpc == NULL)
        return;
    pms_rpc_close(n->rpc, on_closed, &rpc_closed);
    assert_true(loop_until(&loop, rpc_closed, 5000));
    pms_net_close(n->net, on_closed, &net_closed);
    assert_true(loop_until(&loop, net_closed, 5000));
    n->rpc = NULL;
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    node_open(0);
    node_open(1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    node_close(0);
    node_close(1);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < nodes[i].held_n; k++)
            pms_rpc_answer(nodes[i].held[k], 0, NULL); // after the close: harmless
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

struct outcome {
    bool done;
    int status;
    int number;
};

static void on_answer(void *data, int status, const json_t *body)
{
    struct outcome *o = data;

    assert_false(o->done);
    assert_true((status == 0) == (body != NULL));
    *o = (struct outcome){
        .done = true, .status = status, .number = (int)json_integer_value(json_object_get(body, "number"))};
}

static int call(int from, uint64_t to, const char *service, const char *what, int number, unsigned timeout_ms,
                struct outcome *o)
{
    json_t *body = json_pack("{s:s, s:i}", "do", what, "number", number);
    int rv;

    *o = (struct outcome){0};
    rv = pms_rpc_call(nodes[from].rpc, to, service, body, timeout_ms, on_answer, o);
    json_decref(body);
    assert_false(o->done);
    return rv;
}

static void call_wait(int from, uint64_t to, const char *service, const char *what, unsigned timeout_ms,
                      struct outcome *o)
{
    assert_int_equal(call(from, to, service, what, 7, timeout_ms, o), 0);
    assert_true(loop_until(&loop, o->done, timeout_ms + 2000));
}

static void test_call_when_served_then_answered(void **state)
{
    struct outcome o;

    (void)state;
    call_wait(0, 2, "test", "echo", 1000, &o);
    assert_int_equal(o.status, 0);
    assert_int_equal(o.number, 7);
    call_wait(1, 1, "test", "echo", 1000, &o);
    assert_int_equal(o.status, 0);
}

static void test_call_when_handler_refuses_then_its_code(void **state)
{
    struct outcome o;

    (void)state;
    call_wait(0, 2, "test", "something else", 1000, &o);
    assert_int_equal(o.status, PMS_EFULL);
}

static void test_call_when_service_is_unknown_then_not_found(void **state)
{
    struct outcome o;

    (void)state;
    call_wait(0, 2, "nobody", "echo", 1000, &o);
    assert_int_equal(o.status, PMS_ENOTFOUND);
    assert_int_equal(nodes[1].served, 0);
}

static void test_call_when_to_ourselves_then_served_here(void **state)
{
    struct outcome o;

    (void)state;
    call_wait(0, 1, "test", "echo", 1000, &o);
    assert_int_equal(o.status, 0);
    assert_int_equal(o.number, 7);
    assert_int_equal(nodes[0].served, 1);
    call_wait(0, 1, "nobody", "echo", 1000, &o);
    assert_int_equal(o.status, PMS_ENOTFOUND);
    call_wait(0, 1, "test", "hold", 100, &o);
    assert_int_equal(o.status, PMS_EUNKNOWN);
}

static void test_calls_when_answered_out_of_order_then_each_gets_its_own(void **state)
{
    struct outcome o[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(call(0, 2, "test", "hold", i, 5000, &o[i]), 0);
    assert_true(loop_until(&loop, nodes[1].held_n == 8, 5000));
    for (int i = 7; i >= 0; i--) {
        json_t *body = json_pack("{s:i}", "number", 100 + i);

        pms_rpc_answer(nodes[1].held[i], 0, body);
        json_decref(body);
        assert_true(loop_until(&loop, o[i].done, 5000));
        assert_int_equal(o[i].number, 100 + i);
        assert_true(i == 0 || !o[i - 1].done);
    }
    nodes[1].held_n = 0;
}

static void test_call_when_sent_but_not_answered_then_unknown(void **state)
{
    struct outcome o;

    (void)state;
    call_wait(0, 2, "test", "hold", 100, &o);
    assert_int_equal(o.status, PMS_EUNKNOWN);
    call_wait(0, 2, "test", "echo", 1000, &o); // the connection lives
    assert_int_equal(o.status, 0);
}

static void test_call_when_peer_closes_then_unknown(void **state)
{
    struct outcome o;

    (void)state;
    assert_int_equal(call(0, 2, "test", "hold", 0, 5000, &o), 0);
    assert_true(loop_until(&loop, nodes[1].held_n == 1, 5000));
    node_close(1);
    assert_true(loop_until(&loop, o.done, 1000));
    assert_int_equal(o.status, PMS_EUNKNOWN);
}

static void test_call_when_peer_is_down_then_certainly_not_done_and_works_once_it_is_back(void **state)
{
    struct outcome o;

    (void)state;
    node_close(1);
    call_wait(0, 2, "test", "echo", 1000, &o);
    assert_int_equal(o.status, -ECONNREFUSED);
    node_open(1);
    call_wait(0, 2, "test", "echo", 1000, &o);
    assert_int_equal(o.status, 0);
}

static void test_call_when_node_has_no_address_then_not_found_at_once(void **state)
{
    struct outcome o;

    (void)state;
    assert_int_equal(call(0, 99, "test", "echo", 0, 1000, &o), PMS_ENOTFOUND);
}

static void test_call_when_too_long_then_refused_at_once(void **state)
{
    struct outcome o = {0};
    char *text = malloc(PMS_RPC_FRAME_MAX + 1);
    json_t *body;

    (void)state;
    memset(text, 'x', PMS_RPC_FRAME_MAX);
    text[PMS_RPC_FRAME_MAX] = '\0';
    body = json_pack("{s:s}", "text", text);
    assert_int_equal(pms_rpc_call(nodes[0].rpc, 2, "test", body, 1000, on_answer, &o), -EMSGSIZE);
    json_decref(body);
    free(text);
}

static void test_call_when_closed_then_cancelled_or_unknown(void **state)
{
    struct outcome sent, waiting;

    (void)state;
    assert_int_equal(call(0, 2, "test", "hold", 0, 5000, &sent), 0);
    assert_true(loop_until(&loop, nodes[1].held_n == 1, 5000));
    assert_int_equal(call(1, 1, "test", "echo", 0, 5000, &waiting), 0); // still connecting
    node_close(0);
    assert_true(sent.done);
    assert_int_equal(sent.status, PMS_EUNKNOWN);
    node_close(1);
    assert_true(waiting.done);
    assert_int_not_equal(waiting.status, 0);
    assert_int_equal(nodes[0].served, 0);
}

// ---- a node with the key that sends nonsense

static void on_dialed(void *data, int status, int fd, unsigned version)
{
    assert_int_equal(status, 0);
    assert_int_equal(version, pms_node_versions.max);
    *(int *)data = fd;
}

static void test_server_when_fed_nonsense_then_drops_it_and_serves_on(void **state)
{
    static const char *const texts[] = {"",          "x",       "[]", "{}", "{\"id\":-1}", "{\"id\":\"1\"}",
                                        "{\"id\":1", "\xff\xfe"};
    struct outcome o;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint8_t frame[64];
        char byte;
        int fd = -1;

        assert_int_equal(pms_net_dial(nodes[0].net, 2, PMS_CHANNEL_CONTROL, on_dialed, &fd, NULL), 0);
        assert_true(loop_until(&loop, fd >= 0, 1000));
        pms_put_u32(frame, (uint32_t)strlen(texts[i]));
        memcpy(frame + 4, texts[i], strlen(texts[i]));
        assert_true(send(fd, frame, 4 + strlen(texts[i]), MSG_NOSIGNAL) > 0);
        assert_true(loop_until(&loop, recv(fd, &byte, 1, MSG_DONTWAIT) == 0, 1000));
        close(fd);
    }
    call_wait(0, 2, "test", "echo", 1000, &o);
    assert_int_equal(o.status, 0);
}

static void test_server_when_frame_is_too_long_then_drops_it_at_its_head(void **state)
{
    uint8_t head[4];
    char byte;
    int fd = -1;

    (void)state;
    assert_int_equal(pms_net_dial(nodes[0].net, 2, PMS_CHANNEL_CONTROL, on_dialed, &fd, NULL), 0);
    assert_true(loop_until(&loop, fd >= 0, 1000));
    pms_put_u32(head, PMS_RPC_FRAME_MAX + 1);
    assert_int_equal(send(fd, head, 4, MSG_NOSIGNAL), 4);
    assert_true(loop_until(&loop, recv(fd, &byte, 1, MSG_DONTWAIT) == 0, 1000));
    close(fd);
}

static void test_serve_when_name_is_taken_then_exists(void **state)
{
    (void)state;
    assert_int_equal(pms_rpc_serve(nodes[0].rpc, "test", on_request, NULL), PMS_EEXISTS);
    assert_int_equal(pms_rpc_serve(nodes[0].rpc, "test", NULL, NULL), 0);
    assert_int_equal(pms_rpc_serve(nodes[0].rpc, "test", on_request, &nodes[0]), 0);
}

#define rpc_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rpc_test(test_call_when_served_then_answered),
        rpc_test(test_call_when_handler_refuses_then_its_code),
        rpc_test(test_call_when_service_is_unknown_then_not_found),
        rpc_test(test_call_when_to_ourselves_then_served_here),
        rpc_test(test_calls_when_answered_out_of_order_then_each_gets_its_own),
        rpc_test(test_call_when_sent_but_not_answered_then_unknown),
        rpc_test(test_call_when_peer_closes_then_unknown),
        rpc_test(test_call_when_peer_is_down_then_certainly_not_done_and_works_once_it_is_back),
        rpc_test(test_call_when_node_has_no_address_then_not_found_at_once),
        rpc_test(test_call_when_too_long_then_refused_at_once),
        rpc_test(test_call_when_closed_then_cancelled_or_unknown),
        rpc_test(test_server_when_fed_nonsense_then_drops_it_and_serves_on),
        rpc_test(test_server_when_frame_is_too_long_then_drops_it_at_its_head),
        rpc_test(test_serve_when_name_is_taken_then_exists),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
