// SPDX-License-Identifier: GPL-2.0-or-later
// TLS with a pre-shared key over libuv: handshake, then messages both ways, all of it non-blocking.
//
//   CONNECTING --> HANDSHAKE --> OPEN --> (ending)
#include "consensus/raft/tls.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/wire.h"
#include "consensus/raft/socket.h"
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Both ends are pms, so there is nothing older to talk to. (EC)DHE: a token that leaks later opens no old
// record.
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:+DHE-PSK"

enum state { STATE_CONNECTING, STATE_HANDSHAKE, STATE_OPEN };

struct pms_tls {
    enum state state;
    bool server;
    bool ending;
    int status;
    int fd;
    gnutls_session_t session;
    gnutls_psk_server_credentials_t server_credentials;
    gnutls_psk_client_credentials_t client_credentials;
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles;
    struct pms_tls_events events;
    void *data;
    size_t message_max;
    struct pms_buf in;
    struct pms_buf out;
};

static void tls_free(struct pms_tls *tls)
{
    if (tls->session != NULL)
        gnutls_deinit(tls->session);
    if (tls->server_credentials != NULL)
        gnutls_psk_free_server_credentials(tls->server_credentials);
    if (tls->client_credentials != NULL)
        gnutls_psk_free_client_credentials(tls->client_credentials);
    pms_buf_deinit(&tls->in);
    pms_buf_deinit(&tls->out);
    close(tls->fd);
    free(tls);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pms_tls *tls = handle->data;

    if (--tls->handles > 0)
        return;
    tls->events.on_end(tls->data, tls->status);
    tls_free(tls);
}

void pms_tls_end(struct pms_tls *tls, int status)
{
    if (tls->ending)
        return;
    tls->ending = true;
    tls->status = status;
    if (tls->state == STATE_OPEN)
        gnutls_bye(tls->session, GNUTLS_SHUT_WR); // best effort
    uv_close((uv_handle_t *)&tls->poll, on_handle_closed);
    uv_close((uv_handle_t *)&tls->timer, on_handle_closed);
}

static void on_deadline(uv_timer_t *timer)
{
    pms_tls_end(timer->data, -ETIMEDOUT);
}

void pms_tls_deadline_set(struct pms_tls *tls, unsigned timeout_ms)
{
    if (!tls->ending)
        PMS_CHECK(uv_timer_start(&tls->timer, on_deadline, timeout_ms, 0) == 0);
}

// gnutls' answers to handshakes that fail are many; people need three.
static int handshake_error(const struct pms_tls *tls, int rv)
{
    switch (rv) {
    case GNUTLS_E_PREMATURE_TERMINATION:
    case GNUTLS_E_PULL_ERROR:
    case GNUTLS_E_PUSH_ERROR:
        return -ECONNRESET;
    case GNUTLS_E_FATAL_ALERT_RECEIVED: // the server refuses our token, or the client our knowledge of it
    case GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER: // the binder over the key does not fit
    case GNUTLS_E_DECRYPTION_FAILED:          // the keys differ
    case GNUTLS_E_ERROR_IN_FINISHED_PACKET:   // the same, later
    case GNUTLS_E_SRP_PWD_ERROR:              // no key for this identity
    case GNUTLS_E_NO_COMMON_KEY_SHARE:
    case GNUTLS_E_NO_CIPHER_SUITES: // a stranger's TLS, without a pre-shared key
    case GNUTLS_E_INSUFFICIENT_CREDENTIALS:
    case GNUTLS_E_MISSING_EXTENSION:
        return PMS_EAUTH;
    case GNUTLS_E_MEMORY_ERROR:
        return -ENOMEM;
    default:
        return tls->state == STATE_OPEN ? -ECONNRESET : PMS_EPROTO;
    }
}

static int handshake_advance(struct pms_tls *tls)
{
    int rv;

    do
        rv = gnutls_handshake(tls->session);
    while (rv == GNUTLS_E_INTERRUPTED || rv == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (rv == GNUTLS_E_AGAIN)
        return -EAGAIN;
    if (rv != GNUTLS_E_SUCCESS) {
        if (rv != GNUTLS_E_FATAL_ALERT_RECEIVED)
            gnutls_alert_send_appropriate(tls->session, rv);
        return handshake_error(tls, rv);
    }
    tls->state = STATE_OPEN;
    tls->events.on_ready(tls->data);
    return 0;
}

static int out_flush(struct pms_tls *tls)
{
    if (tls->out.len == 0)
        return 0;
    while (tls->out.len > 0) {
        ssize_t n = gnutls_record_send(tls->session, tls->out.data, tls->out.len);

        if (n == GNUTLS_E_INTERRUPTED)
            continue;
        if (n == GNUTLS_E_AGAIN)
            return -EAGAIN;
        if (n < 0)
            return -ECONNRESET;
        pms_buf_consume(&tls->out, (size_t)n);
    }
    tls->events.on_sent(tls->data);
    return 0;
}

// Hands over each whole message in the buffer.
static int messages_take(struct pms_tls *tls)
{
    while (!tls->ending && tls->in.len >= 4) {
        uint32_t len = pms_get_u32(tls->in.data);

        if (len > tls->message_max)
            return PMS_EPROTO;
        if (tls->in.len < 4 + (size_t)len)
            return 0;
        tls->events.on_message(tls->data, tls->in.data + 4, len);
        pms_buf_consume(&tls->in, 4 + (size_t)len);
    }
    return 0;
}

static int in_drain(struct pms_tls *tls)
{
    while (!tls->ending) {
        ssize_t n;
        int rv = pms_buf_reserve(&tls->in, 4096);

        if (rv != 0)
            return rv;
        n = gnutls_record_recv(tls->session, tls->in.data + tls->in.len, 4096);
        if (n == GNUTLS_E_INTERRUPTED)
            continue;
        if (n == GNUTLS_E_AGAIN)
            return -EAGAIN;
        if (n == 0)
            return -ECONNRESET;
        if (n < 0 && gnutls_error_is_fatal((int)n) == 0)
            continue;
        if (n < 0)
            return handshake_error(tls, (int)n);
        tls->in.len += (size_t)n;
        rv = messages_take(tls);
        if (rv != 0)
            return rv;
    }
    return 0;
}

static int advance(struct pms_tls *tls)
{
    int rv;

    if (tls->state == STATE_CONNECTING)
        tls->state = STATE_HANDSHAKE;
    if (tls->state == STATE_HANDSHAKE) {
        rv = handshake_advance(tls);
        if (rv != 0)
            return rv;
    }
    if (tls->ending)
        return 0;
    rv = out_flush(tls);
    if (rv != 0 && rv != -EAGAIN)
        return rv;
    return tls->ending ? 0 : in_drain(tls);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static int interest_set(struct pms_tls *tls)
{
    int events = UV_READABLE;

    if (tls->state == STATE_CONNECTING ||
        (tls->state == STATE_HANDSHAKE && gnutls_record_get_direction(tls->session) == 1))
        events = UV_WRITABLE;
    else if (tls->out.len > 0)
        events |= UV_WRITABLE;
    return uv_poll_start(&tls->poll, events, on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pms_tls *tls = poll->data;
    int rv = pms_socket_error(tls->fd); // libuv's own status for any socket error is UV_EBADF

    (void)events;
    if (rv == 0)
        rv = status;
    if (rv == 0)
        rv = advance(tls);
    if (tls->ending)
        return;
    if (rv == 0 || rv == -EAGAIN)
        rv = interest_set(tls);
    if (rv != 0)
        pms_tls_end(tls, rv);
}

int pms_tls_send(struct pms_tls *tls, const void *body, size_t len)
{
    uint8_t head[4];

    PMS_CHECK(tls->state == STATE_OPEN);
    if (tls->ending)
        return 0;
    if (pms_buf_reserve(&tls->out, sizeof head + len) != 0)
        return -ENOMEM;
    pms_put_u32(head, (uint32_t)len);
    PMS_CHECK(pms_buf_append(&tls->out, head, sizeof head) == 0);
    PMS_CHECK(pms_buf_append(&tls->out, body, len) == 0);
    return interest_set(tls);
}

// gnutls: 0 found, 1 unknown (it then goes on with a random key, so that both cases look alike from outside).
static int on_server_psk(gnutls_session_t session, const char *username, gnutls_datum_t *key)
{
    struct pms_tls *tls = gnutls_session_get_ptr(session);
    uint8_t psk[PMS_TOKEN_PSK_BYTES];

    if (tls->events.psk(tls->data, username, psk) != 0)
        return 1;
    key->data = gnutls_malloc(sizeof psk);
    if (key->data == NULL)
        return -1;
    memcpy(key->data, psk, sizeof psk);
    key->size = sizeof psk;
    gnutls_memset(psk, 0, sizeof psk);
    return 0;
}

static int credentials_set(struct pms_tls *tls, const struct pms_token *token)
{
    uint8_t psk[PMS_TOKEN_PSK_BYTES];
    gnutls_datum_t key = {.data = psk, .size = sizeof psk};
    int rv;

    if (tls->server) {
        rv = gnutls_psk_allocate_server_credentials(&tls->server_credentials);
        if (rv != 0)
            return rv;
        gnutls_psk_set_server_credentials_function(tls->server_credentials, on_server_psk);
        return gnutls_credentials_set(tls->session, GNUTLS_CRD_PSK, tls->server_credentials);
    }
    rv = gnutls_psk_allocate_client_credentials(&tls->client_credentials);
    if (rv != 0)
        return rv;
    pms_token_psk(token->secret, psk);
    rv = gnutls_psk_set_client_credentials(tls->client_credentials, token->id, &key, GNUTLS_PSK_KEY_RAW);
    gnutls_memset(psk, 0, sizeof psk);
    if (rv != 0)
        return rv;
    return gnutls_credentials_set(tls->session, GNUTLS_CRD_PSK, tls->client_credentials);
}

static int session_set(struct pms_tls *tls, const struct pms_tls_config *config)
{
    unsigned flags = (config->server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL |
                     GNUTLS_NO_TICKETS;
    int rv = gnutls_init(&tls->session, flags);

    if (rv == 0)
        rv = gnutls_priority_set_direct(tls->session, PRIORITIES, NULL);
    if (rv == 0)
        rv = credentials_set(tls, config->token);
    if (rv != 0)
        return rv == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EINVAL;
    gnutls_session_set_ptr(tls->session, tls);
    gnutls_transport_set_int(tls->session, tls->fd);
    gnutls_handshake_set_timeout(tls->session, GNUTLS_INDEFINITE_TIMEOUT); // the deadline is ours
    return 0;
}

int pms_tls_start(uv_loop_t *loop, int fd, const struct pms_tls_config *config, struct pms_tls **out)
{
    struct pms_tls *tls = calloc(1, sizeof *tls);
    int rv;

    if (tls == NULL) {
        close(fd);
        return -ENOMEM;
    }
    tls->fd = fd;
    tls->server = config->server;
    tls->state = config->connecting ? STATE_CONNECTING : STATE_HANDSHAKE;
    tls->events = *config->events;
    tls->data = config->data;
    tls->message_max = config->message_max;
    pms_buf_init(&tls->in);
    pms_buf_init(&tls->out);
    rv = session_set(tls, config);
    if (rv == 0)
        rv = uv_poll_init(loop, &tls->poll, fd);
    if (rv != 0) {
        tls_free(tls);
        return rv;
    }
    PMS_CHECK(uv_timer_init(loop, &tls->timer) == 0);
    tls->poll.data = tls;
    tls->timer.data = tls;
    tls->handles = 2;
    PMS_CHECK(uv_timer_start(&tls->timer, on_deadline, config->timeout_ms, 0) == 0);
    // The client speaks first; a server that took over a readable socket is woken at once (level-triggered).
    PMS_CHECK(uv_poll_start(&tls->poll, config->server ? UV_READABLE : UV_WRITABLE, on_poll) == 0);
    *out = tls;
    return 0;
}
