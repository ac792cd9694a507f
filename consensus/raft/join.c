// SPDX-License-Identifier: GPL-2.0-or-later
// Joining: a stranger with a token asks, over TLS with the token as key, and gets JSON back. Both sides.
//
// Served:  TLS -> request -> on_join ... pms_join_answer -> sent -> end
// Asking:  connect -> TLS -> request sent -> answer -> end
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "consensus/raft/net_internal.h"
#include "consensus/raft/socket.h"
#include "consensus/raft/tls.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_SEND_MS 5000

struct pms_join {
    struct pms_list list;
    struct pms_net *net;
    struct pms_tls *tls; // NULL once it ended
    struct sockaddr_storage peer;
    char token_id[PMS_TOKEN_ID_SIZE];
    bool half_open; // counts as such
    bool served;    // its one request came
    bool asked;     // the caller owes an answer
};

static void half_open_end(struct pms_join *join)
{
    if (join->half_open)
        join->net->half_open--;
    join->half_open = false;
}

// ---- served

static int on_psk(void *data, const char *identity, uint8_t psk[PMS_TOKEN_PSK_BYTES])
{
    struct pms_join *join = data;
    struct pms_net_config *config = &join->net->config;
    char secret[PMS_TOKEN_SECRET_SIZE];

    if (config->token_secret == NULL || strlen(identity) != PMS_TOKEN_ID_SIZE - 1)
        return PMS_ENOTFOUND;
    if (config->token_secret(config->data, identity, secret) != 0)
        return PMS_ENOTFOUND;
    memcpy(join->token_id, identity, sizeof join->token_id);
    pms_token_psk(secret, psk);
    return 0;
}

static void on_served_ready(void *data)
{
    (void)data;
}

static void on_request(void *data, const uint8_t *body, size_t len)
{
    struct pms_join *join = data;
    struct pms_net *net = join->net;
    json_t *request;

    if (join->served) {
        pms_tls_end(join->tls, PMS_EPROTO);
        return;
    }
    request = json_loadb((const char *)body, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(request) || net->closing || net->config.on_join == NULL) {
        json_decref(request);
        pms_tls_end(join->tls, PMS_EPROTO);
        return;
    }
    half_open_end(join);
    join->served = true;
    join->asked = true;
    pms_tls_deadline_set(join->tls, PMS_JOIN_SERVE_MS);
    net->config.on_join(net->config.data, join, join->token_id, request);
    json_decref(request);
}

static void on_answer_sent(void *data)
{
    struct pms_join *join = data;

    pms_tls_end(join->tls, 0);
}

static void on_served_end(void *data, int status)
{
    struct pms_join *join = data;
    struct pms_net *net = join->net;

    pms_list_del(&join->list);
    half_open_end(join);
    join->tls = NULL;
    join->net = NULL;
    if (status != 0 && status != -ECANCELED)
        pms_net_log_refused(net, &join->peer, "join", status);
    if (!join->asked)
        free(join);
    pms_net_close_advance(net);
}

static const struct pms_tls_events served_events = {.psk = on_psk,
                                                    .on_ready = on_served_ready,
                                                    .on_message = on_request,
                                                    .on_sent = on_answer_sent,
                                                    .on_end = on_served_end};

void pms_net_join_serve(struct pms_net *net, int fd, const struct sockaddr_storage *peer)
{
    struct pms_join *join = calloc(1, sizeof *join);
    struct pms_tls_config config = {.server = true,
                                    .message_max = PMS_JOIN_REQUEST_MAX,
                                    .timeout_ms = PMS_NET_HANDSHAKE_MS,
                                    .events = &served_events,
                                    .data = join};

    if (join == NULL) {
        net->half_open--;
        close(fd);
        return;
    }
    join->net = net;
    join->half_open = true;
    join->peer = *peer;
    if (pms_tls_start(net->loop, fd, &config, &join->tls) != 0) {
        net->half_open--;
        free(join);
        return;
    }
    pms_list_add_tail(&net->joins, &join->list);
}

void pms_net_joins_cancel(struct pms_net *net)
{
    pms_list_for_each (l, &net->joins)
        pms_tls_end(pms_list_entry(l, struct pms_join, list)->tls, -ECANCELED);
}

void pms_join_answer(struct pms_join *join, const json_t *answer)
{
    char *text;

    PMS_CHECK(join->asked);
    join->asked = false;
    if (join->tls == NULL) { // the stranger has gone
        free(join);
        return;
    }
    text = json_dumps(answer, JSON_COMPACT);
    pms_tls_deadline_set(join->tls, ANSWER_SEND_MS);
    if (text == NULL || pms_tls_send(join->tls, text, strlen(text)) != 0)
        pms_tls_end(join->tls, -ENOMEM);
    free(text);
}

const struct sockaddr_storage *pms_join_peer(const struct pms_join *join)
{
    return &join->peer;
}

// ---- asking

struct asking {
    struct pms_tls *tls;
    char *request;
    json_t *answer;
    bool sent; // the request may have arrived
    pms_join_cb cb;
    void *data;
};

static void on_asking_ready(void *data)
{
    struct asking *a = data;

    a->sent = true;
    if (pms_tls_send(a->tls, a->request, strlen(a->request)) != 0)
        pms_tls_end(a->tls, -ENOMEM);
}

static void on_request_sent(void *data)
{
    (void)data;
}

static void on_answer(void *data, const uint8_t *body, size_t len)
{
    struct asking *a = data;

    a->answer = json_loadb((const char *)body, len, JSON_REJECT_DUPLICATES, NULL);
    pms_tls_end(a->tls, json_is_object(a->answer) ? 0 : PMS_EPROTO);
}

static void on_asking_end(void *data, int status)
{
    struct asking *a = data;

    // Under TLS 1.3 the client's handshake ends before the server has checked anything of it... but with a
    // key shared beforehand the server checks it first of all; so whatever ends the connection now is no
    // refusal of the token.
    if (status != 0 && a->sent && status != PMS_EAUTH)
        status = PMS_EUNKNOWN;
    a->cb(a->data, status, status == 0 ? a->answer : NULL);
    json_decref(a->answer);
    free(a->request);
    free(a);
}

static const struct pms_tls_events asking_events = {.on_ready = on_asking_ready,
                                                    .on_message = on_answer,
                                                    .on_sent = on_request_sent,
                                                    .on_end = on_asking_end};

int pms_join_request(uv_loop_t *loop, const struct sockaddr_storage *peer, const struct pms_token *token,
                     const json_t *request, unsigned timeout_ms, pms_join_cb cb, void *data)
{
    struct asking *a = calloc(1, sizeof *a);
    struct pms_tls_config config = {.connecting = true,
                                    .token = token,
                                    .message_max = PMS_JOIN_ANSWER_MAX,
                                    .timeout_ms = timeout_ms,
                                    .events = &asking_events,
                                    .data = a};
    int rv = -ENOMEM;

    if (a == NULL)
        return -ENOMEM;
    a->cb = cb;
    a->data = data;
    a->request = json_dumps(request, JSON_COMPACT);
    if (a->request == NULL)
        goto out;
    rv = strlen(a->request) > PMS_JOIN_REQUEST_MAX ? -EMSGSIZE : pms_socket_connect(peer);
    if (rv < 0)
        goto out;
    rv = pms_tls_start(loop, rv, &config, &a->tls);
out:
    if (rv != 0) {
        free(a->request);
        free(a);
    }
    return rv;
}
