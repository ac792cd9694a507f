// SPDX-License-Identifier: GPL-2.0-or-later
// The control channel: calls and their answers.
//
// A call's way: waiting (its peer is being connected) -> sent -> answered. A connection that ends decides by
// that: what was waiting was certainly not done, what was sent may have been. Calls to our own node take the
// same way without a connection.
#include "consensus/raft/rpc.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "consensus/raft/stream.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS          20 // grain of timeouts
#define SERVICE_NAME_MAX 31

struct service {
    char name[SERVICE_NAME_MAX + 1];
    pms_rpc_handler handler; // NULL: free
    void *data;
};

struct pms_rpc {
    uv_loop_t *loop;
    struct pms_net *net;
    struct service services[PMS_RPC_SERVICES_MAX];
    struct pms_list peers;        // struct peer: connections that we call over
    struct pms_list served;       // struct served: connections that we answer on
    struct pms_list local;        // struct call: to ourselves, not yet handed to the service
    struct pms_list own;          // struct call: to ourselves, being served
    struct pms_list own_requests; // struct pms_rpc_request: their other side
    uint64_t id_next;
    uv_timer_t timer;
    uv_idle_t idle;
    unsigned handles;
    bool closing;
    void (*close_cb)(void *data);
    void *close_data;
};

// The calling side of a node. Lives as long as struct pms_rpc once made (there are few nodes).
struct peer {
    struct pms_list list;
    struct pms_rpc *rpc;
    uint64_t node;
    struct pms_stream *stream; // NULL: not connected
    struct pms_net_dial *dial; // NULL: not connecting
    struct pms_list waiting;   // struct call
    struct pms_list sent;
};

struct call {
    struct pms_list list;
    uint64_t id;
    uint64_t deadline; // uv_now
    char service[SERVICE_NAME_MAX + 1];
    char *text; // the request; freed once sent (kept for our own node)
    size_t text_len;
    pms_rpc_cb cb;
    void *data;
};

// The answering side of one connection.
struct served {
    struct pms_list list;
    struct pms_rpc *rpc;
    uint64_t from;
    struct pms_stream *stream;
    struct pms_list requests; // struct pms_rpc_request, unanswered
    unsigned requests_n;
};

struct pms_rpc_request {
    struct pms_list list;
    struct served *served; // NULL: the connection is gone, or it is our own call
    struct pms_rpc *rpc;   // own call: where to look for it; NULL once closed
    uint64_t id;
};

// ---- calls

static void call_finish(struct call *call, int status, const json_t *body)
{
    pms_list_del(&call->list);
    call->cb(call->data, status, body);
    free(call->text);
    free(call);
}

// Those that are in the list now: callbacks may make new calls.
static void calls_finish(struct pms_list *calls, int status)
{
    struct pms_list now, *l;

    pms_list_init(&now);
    pms_list_splice_tail(&now, calls);
    while ((l = pms_list_pop(&now)) != NULL)
        call_finish(pms_list_entry(l, struct call, list), status, NULL);
}

static struct call *call_find(struct pms_list *calls, uint64_t id)
{
    pms_list_for_each (l, calls) {
        struct call *call = pms_list_entry(l, struct call, list);

        if (call->id == id)
            return call;
    }
    return NULL;
}

static void calls_expire(struct pms_list *calls, uint64_t now, int status)
{
    struct pms_list due;

    pms_list_init(&due);
    pms_list_for_each_safe (l, calls) {
        if (pms_list_entry(l, struct call, list)->deadline > now)
            continue;
        pms_list_del(l);
        pms_list_add_tail(&due, l);
    }
    calls_finish(&due, status);
}

static void on_timer(uv_timer_t *timer)
{
    struct pms_rpc *rpc = timer->data;
    uint64_t now = uv_now(rpc->loop);

    pms_list_for_each (l, &rpc->peers) {
        struct peer *peer = pms_list_entry(l, struct peer, list);

        calls_expire(&peer->waiting, now, -ETIMEDOUT);
        calls_expire(&peer->sent, now, PMS_EUNKNOWN);
    }
    calls_expire(&rpc->own, now, PMS_EUNKNOWN);
}

// ---- the calling side

static void rpc_close_advance(struct pms_rpc *rpc);

// An answer's status is 0 or a negative code; anything else is nonsense.
static int answer_status(const json_t *answer)
{
    const json_t *status = json_object_get(answer, "status");
    json_int_t value = json_integer_value(status);

    if (!json_is_integer(status) || value > 0 || value < -100000)
        return PMS_EUNKNOWN;
    if (value == 0 && !json_is_object(json_object_get(answer, "body")))
        return PMS_EUNKNOWN;
    return (int)value;
}

static void on_answer_frame(void *data, const uint8_t *text, size_t len)
{
    struct peer *peer = data;
    json_t *answer = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, NULL);
    struct call *call;
    uint64_t id;
    int status;

    if (pms_json_u64(answer, "id", &id) != 0) {
        json_decref(answer);
        pms_log(PMS_LOG_WARN, "node %s sent a garbled answer", pms_log_hexid(peer->node));
        pms_stream_end(peer->stream, PMS_EPROTO);
        return;
    }
    call = call_find(&peer->sent, id);
    if (call != NULL) { // else it has timed out
        status = answer_status(answer);
        call_finish(call, status, status == 0 ? json_object_get(answer, "body") : NULL);
    }
    json_decref(answer);
}

static void on_peer_end(void *data, int status)
{
    struct peer *peer = data;

    (void)status;
    peer->stream = NULL;
    calls_finish(&peer->sent, PMS_EUNKNOWN);
    calls_finish(&peer->waiting, peer->rpc->closing ? -ECANCELED : -ECONNRESET);
    rpc_close_advance(peer->rpc);
}

static const struct pms_stream_events peer_events = {.on_frame = on_answer_frame, .on_end = on_peer_end};

static void waiting_send(struct peer *peer)
{
    struct pms_list *l;

    while ((l = pms_list_pop(&peer->waiting)) != NULL) {
        struct call *call = pms_list_entry(l, struct call, list);
        int rv = pms_stream_send(peer->stream, call->text, call->text_len);

        if (rv != 0) {
            call_finish(call, rv, NULL);
            continue;
        }
        free(call->text);
        call->text = NULL;
        pms_list_add_tail(&peer->sent, &call->list);
    }
}

static void on_dialed(void *data, int status, int fd, unsigned version)
{
    struct peer *peer = data;
    struct pms_rpc *rpc = peer->rpc;

    (void)version;
    peer->dial = NULL;
    if (status == 0)
        status = pms_stream_open(rpc->loop, fd, PMS_RPC_FRAME_MAX, &peer_events, peer, &peer->stream);
    if (status == 0 && rpc->closing)
        pms_stream_end(peer->stream, -ECANCELED);
    else if (status == 0)
        waiting_send(peer);
    else
        calls_finish(&peer->waiting, status);
    rpc_close_advance(rpc);
}

static struct peer *peer_get(struct pms_rpc *rpc, uint64_t node)
{
    struct peer *peer;

    pms_list_for_each (l, &rpc->peers) {
        peer = pms_list_entry(l, struct peer, list);
        if (peer->node == node)
            return peer;
    }
    peer = calloc(1, sizeof *peer);
    if (peer == NULL)
        return NULL;
    peer->rpc = rpc;
    peer->node = node;
    pms_list_init(&peer->waiting);
    pms_list_init(&peer->sent);
    pms_list_add_tail(&rpc->peers, &peer->list);
    return peer;
}

static int call_new(struct pms_rpc *rpc, const char *service, const json_t *body, unsigned timeout_ms,
                    pms_rpc_cb cb, void *data, struct call **out)
{
    struct call *call = calloc(1, sizeof *call);
    json_t *frame = json_pack("{s:I, s:s, s:o}", "id", (json_int_t)rpc->id_next, "service", service, "body",
                              body != NULL ? json_incref((json_t *)body) : json_object());
    int rv = -ENOMEM;

    PMS_CHECK(strlen(service) <= SERVICE_NAME_MAX);
    if (call == NULL || frame == NULL)
        goto out;
    strcpy(call->service, service);
    pms_list_init(&call->list);
    call->text = json_dumps(frame, JSON_COMPACT);
    if (call->text == NULL)
        goto out;
    call->text_len = strlen(call->text);
    if (call->text_len > PMS_RPC_FRAME_MAX) {
        rv = -EMSGSIZE;
        goto out;
    }
    call->id = rpc->id_next++;
    call->deadline = uv_now(rpc->loop) + timeout_ms;
    call->cb = cb;
    call->data = data;
    *out = call;
    rv = 0;
out:
    json_decref(frame);
    if (rv != 0 && call != NULL) {
        free(call->text);
        free(call);
    }
    return rv;
}

static void on_idle(uv_idle_t *idle);

int pms_rpc_call(struct pms_rpc *rpc, uint64_t node, const char *service, const json_t *body,
                 unsigned timeout_ms, pms_rpc_cb cb, void *data)
{
    struct peer *peer;
    struct call *call;
    int rv;

    if (rpc->closing)
        return PMS_ESHUTDOWN;
    rv = call_new(rpc, service, body, timeout_ms, cb, data, &call);
    if (rv != 0)
        return rv;
    if (node == pms_net_node(rpc->net)) {
        pms_list_add_tail(&rpc->local, &call->list);
        PMS_CHECK(uv_idle_start(&rpc->idle, on_idle) == 0);
        return 0;
    }
    peer = peer_get(rpc, node);
    rv = peer == NULL ? -ENOMEM : 0;
    if (rv == 0 && peer->stream == NULL && peer->dial == NULL)
        rv = pms_net_dial(rpc->net, node, PMS_CHANNEL_CONTROL, on_dialed, peer, &peer->dial);
    if (rv != 0) {
        free(call->text);
        free(call);
        return rv;
    }
    pms_list_add_tail(&peer->waiting, &call->list);
    if (peer->stream != NULL)
        PMS_CHECK(uv_idle_start(&rpc->idle, on_idle) == 0); // sends; not now, as it may call back
    return 0;
}

static void calls_abandon(struct pms_list *calls, const char *service, int status)
{
    struct pms_list abandoned;

    pms_list_init(&abandoned);
    pms_list_for_each_safe (l, calls) {
        if (strcmp(pms_list_entry(l, struct call, list)->service, service) != 0)
            continue;
        pms_list_del(l);
        pms_list_add_tail(&abandoned, l);
    }
    calls_finish(&abandoned, status);
}

void pms_rpc_abandon(struct pms_rpc *rpc, uint64_t node, const char *service)
{
    pms_list_for_each (l, &rpc->peers) {
        struct peer *peer = pms_list_entry(l, struct peer, list);

        if (peer->node != node)
            continue;
        calls_abandon(&peer->sent, service, PMS_EUNKNOWN);
        calls_abandon(&peer->waiting, service, -ECONNRESET);
        return;
    }
}

// ---- the answering side

static void request_answer(struct pms_rpc_request *request, int status, const json_t *body)
{
    struct served *served = request->served;
    json_t *frame = json_pack("{s:I, s:i}", "id", (json_int_t)request->id, "status", status);
    char *text = NULL;

    if (frame != NULL && status == 0)
        json_object_set_new(frame, "body", body != NULL ? json_incref((json_t *)body) : json_object());
    if (frame != NULL)
        text = json_dumps(frame, JSON_COMPACT);
    json_decref(frame);
    if (text == NULL || strlen(text) > PMS_RPC_FRAME_MAX ||
        pms_stream_send(served->stream, text, strlen(text)) != 0)
        pms_stream_end(served->stream, -ENOMEM); // the caller then knows that the outcome is unknown
    free(text);
}

void pms_rpc_answer(struct pms_rpc_request *request, int status, const json_t *body)
{
    struct call *call;
    json_t *empty = NULL;

    PMS_CHECK(status <= 0);
    pms_list_del(&request->list);
    if (request->served != NULL) {
        request->served->requests_n--;
        request_answer(request, status, body);
    } else if (request->rpc != NULL && (call = call_find(&request->rpc->own, request->id)) != NULL) {
        if (status == 0 && body == NULL)
            body = empty = json_object();
        call_finish(call, status, status == 0 ? body : NULL);
        json_decref(empty);
    }
    free(request);
}

static struct service *service_find(struct pms_rpc *rpc, const char *name)
{
    for (size_t i = 0; i < PMS_RPC_SERVICES_MAX; i++)
        if (rpc->services[i].handler != NULL && strcmp(rpc->services[i].name, name) == 0)
            return &rpc->services[i];
    return NULL;
}

// The request is in its list already; whatever is wrong with it is answered here.
static void request_serve(struct pms_rpc *rpc, uint64_t from, struct pms_rpc_request *request,
                          const json_t *frame)
{
    const struct service *service = service_find(rpc, pms_json_str(frame, "service", ""));
    const json_t *body = json_object_get(frame, "body");

    if (service == NULL)
        pms_rpc_answer(request, PMS_ENOTFOUND, NULL);
    else if (!json_is_object(body))
        pms_rpc_answer(request, PMS_EPROTO, NULL);
    else
        service->handler(service->data, from, request, body);
}

static void on_request_frame(void *data, const uint8_t *text, size_t len)
{
    struct served *served = data;
    json_t *frame = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, NULL);
    struct pms_rpc_request *request;
    uint64_t id;

    if (pms_json_u64(frame, "id", &id) != 0) {
        json_decref(frame);
        pms_log(PMS_LOG_WARN, "node %s sent a garbled request", pms_log_hexid(served->from));
        pms_stream_end(served->stream, PMS_EPROTO);
        return;
    }
    request = calloc(1, sizeof *request);
    if (request == NULL) {
        json_decref(frame);
        pms_stream_end(served->stream, -ENOMEM);
        return;
    }
    request->served = served;
    request->id = id;
    pms_list_add_tail(&served->requests, &request->list);
    served->requests_n++;
    if (served->requests_n > PMS_RPC_SERVED_MAX)
        pms_rpc_answer(request, PMS_EBUSY, NULL);
    else
        request_serve(served->rpc, served->from, request, frame);
    json_decref(frame);
}

static void on_served_end(void *data, int status)
{
    struct served *served = data;
    struct pms_rpc *rpc = served->rpc;
    struct pms_list *l;

    (void)status;
    while ((l = pms_list_pop(&served->requests)) != NULL)
        pms_list_entry(l, struct pms_rpc_request, list)->served = NULL; // freed when answered
    pms_list_del(&served->list);
    free(served);
    rpc_close_advance(rpc);
}

static const struct pms_stream_events served_events = {.on_frame = on_request_frame, .on_end = on_served_end};

static void on_accept(void *data, uint64_t from, int fd)
{
    struct pms_rpc *rpc = data;
    struct served *served = calloc(1, sizeof *served);

    if (served == NULL) {
        close(fd);
        return;
    }
    served->rpc = rpc;
    served->from = from;
    pms_list_init(&served->requests);
    if (pms_stream_open(rpc->loop, fd, PMS_RPC_FRAME_MAX, &served_events, served, &served->stream) != 0)
        free(served);
    else
        pms_list_add_tail(&rpc->served, &served->list);
}

// ---- our own node, and what must not happen inside pms_rpc_call

static void local_serve(struct pms_rpc *rpc, struct call *call)
{
    struct pms_rpc_request *request = calloc(1, sizeof *request);
    json_t *frame = json_loadb(call->text, call->text_len, 0, NULL);

    if (request == NULL || frame == NULL) {
        free(request);
        json_decref(frame);
        call_finish(call, -ENOMEM, NULL);
        return;
    }
    pms_list_add_tail(&rpc->own, &call->list);
    pms_list_add_tail(&rpc->own_requests, &request->list);
    request->rpc = rpc;
    request->id = call->id;
    request_serve(rpc, pms_net_node(rpc->net), request, frame);
    json_decref(frame);
}

static void on_idle(uv_idle_t *idle)
{
    struct pms_rpc *rpc = idle->data;
    struct pms_list *l;

    uv_idle_stop(idle);
    pms_list_for_each (p, &rpc->peers) {
        struct peer *peer = pms_list_entry(p, struct peer, list);

        if (peer->stream != NULL)
            waiting_send(peer);
    }
    while ((l = pms_list_pop(&rpc->local)) != NULL)
        local_serve(rpc, pms_list_entry(l, struct call, list));
}

// ---- open and close

int pms_rpc_serve(struct pms_rpc *rpc, const char *name, pms_rpc_handler handler, void *data)
{
    struct service *service = service_find(rpc, name);

    PMS_CHECK(strlen(name) <= SERVICE_NAME_MAX);
    if (handler == NULL) {
        if (service != NULL)
            service->handler = NULL;
        return 0;
    }
    if (service != NULL)
        return PMS_EEXISTS;
    for (size_t i = 0; i < PMS_RPC_SERVICES_MAX; i++) {
        service = &rpc->services[i];
        if (service->handler != NULL)
            continue;
        strcpy(service->name, name);
        service->handler = handler;
        service->data = data;
        return 0;
    }
    return PMS_EFULL;
}

int pms_rpc_open(uv_loop_t *loop, struct pms_net *net, struct pms_rpc **out)
{
    struct pms_rpc *rpc = calloc(1, sizeof *rpc);

    if (rpc == NULL)
        return -ENOMEM;
    rpc->loop = loop;
    rpc->net = net;
    rpc->id_next = 1;
    pms_list_init(&rpc->peers);
    pms_list_init(&rpc->served);
    pms_list_init(&rpc->local);
    pms_list_init(&rpc->own);
    pms_list_init(&rpc->own_requests);
    PMS_CHECK(uv_timer_init(loop, &rpc->timer) == 0 && uv_idle_init(loop, &rpc->idle) == 0);
    rpc->timer.data = rpc;
    rpc->idle.data = rpc;
    rpc->handles = 2;
    PMS_CHECK(uv_timer_start(&rpc->timer, on_timer, TICK_MS, TICK_MS) == 0);
    pms_net_accept_set(net, PMS_CHANNEL_CONTROL, on_accept, rpc);
    *out = rpc;
    return 0;
}

static bool rpc_is_idle(const struct pms_rpc *rpc)
{
    pms_list_for_each (l, &rpc->peers) {
        const struct peer *peer = pms_list_entry(l, struct peer, list);

        if (peer->stream != NULL || peer->dial != NULL)
            return false;
    }
    return rpc->handles == 0 && pms_list_empty(&rpc->served);
}

static void rpc_close_advance(struct pms_rpc *rpc)
{
    struct pms_list *l;
    void (*cb)(void *data) = rpc->close_cb;
    void *data = rpc->close_data;

    if (!rpc->closing || !rpc_is_idle(rpc))
        return;
    while ((l = pms_list_pop(&rpc->peers)) != NULL)
        free(pms_list_entry(l, struct peer, list));
    free(rpc);
    if (cb != NULL)
        cb(data);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pms_rpc *rpc = handle->data;

    rpc->handles--;
    rpc_close_advance(rpc);
}

void pms_rpc_close(struct pms_rpc *rpc, void (*cb)(void *data), void *data)
{
    struct pms_list *own;

    PMS_CHECK(!rpc->closing);
    rpc->closing = true;
    rpc->close_cb = cb;
    rpc->close_data = data;
    pms_net_accept_set(rpc->net, PMS_CHANNEL_CONTROL, NULL, NULL);
    calls_finish(&rpc->local, -ECANCELED);
    calls_finish(&rpc->own, PMS_EUNKNOWN);
    while ((own = pms_list_pop(&rpc->own_requests)) != NULL)
        pms_list_entry(own, struct pms_rpc_request, list)->rpc = NULL; // freed when answered
    pms_list_for_each (l, &rpc->peers) {
        struct peer *peer = pms_list_entry(l, struct peer, list);

        if (peer->stream != NULL)
            pms_stream_end(peer->stream, -ECANCELED);
        else if (peer->dial != NULL)
            pms_net_dial_cancel(peer->dial);
    }
    pms_list_for_each (l, &rpc->served) {
        pms_stream_end(pms_list_entry(l, struct served, list)->stream, -ECANCELED);
    }
    uv_close((uv_handle_t *)&rpc->timer, on_handle_closed);
    uv_close((uv_handle_t *)&rpc->idle, on_handle_closed);
}
