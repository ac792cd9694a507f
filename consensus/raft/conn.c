// SPDX-License-Identifier: GPL-2.0-or-later
// Drives one handshake: connects, moves the bytes, minds the deadline, and gives the socket on.
//
// Never more is read than the handshake asks for, so that what follows it is still in the socket.
#include "consensus/raft/conn.h"
#include "base/check.h"
#include "base/err.h"
#include "consensus/raft/socket.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define TLS_FIRST_BYTE 0x16 // a TLS record of type handshake

static void on_handle_closed(uv_handle_t *handle)
{
    struct pms_conn *conn = handle->data;

    if (--conn->handles > 0)
        return;
    if (conn->status < 0) {
        close(conn->fd);
        conn->fd = -1;
    }
    conn->cb(conn->data, conn, conn->status, conn->fd);
    free(conn);
}

static void end(struct pms_conn *conn, int status)
{
    if (conn->ending)
        return;
    conn->ending = true;
    conn->status = status;
    uv_close((uv_handle_t *)&conn->poll, on_handle_closed);
    uv_close((uv_handle_t *)&conn->timer, on_handle_closed);
}

static void on_deadline(uv_timer_t *timer)
{
    end(timer->data, -ETIMEDOUT);
}

// Sends what is in out: 0 once all is sent, -EAGAIN, or an error.
static int out_flush(struct pms_conn *conn)
{
    struct pms_handshake *hs = &conn->hs;

    while (conn->out_sent < hs->out_len) {
        ssize_t n = send(conn->fd, hs->out + conn->out_sent, hs->out_len - conn->out_sent, MSG_NOSIGNAL);

        if (n < 0)
            return errno == EINTR ? -EAGAIN : -errno;
        conn->out_sent += (size_t)n;
    }
    hs->out_len = 0;
    conn->out_sent = 0;
    return 0;
}

// Reads one piece: 0, -EAGAIN, or an error (also the handshake's).
static int in_take(struct pms_conn *conn)
{
    uint8_t buf[PMS_HANDSHAKE_BYTES_MAX];
    ssize_t n = recv(conn->fd, buf, pms_handshake_want(&conn->hs), 0);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return -ECONNRESET;
    return pms_handshake_feed(&conn->hs, buf, (size_t)n);
}

// Is it TLS? 0: no, PMS_CONN_TLS, -EAGAIN, or an error.
static int sniff(struct pms_conn *conn)
{
    uint8_t first;
    ssize_t n = recv(conn->fd, &first, 1, MSG_PEEK);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return -ECONNRESET;
    conn->sniffing = false;
    return first == TLS_FIRST_BYTE ? PMS_CONN_TLS : 0;
}

// As far as it goes without blocking: 0 when done, PMS_CONN_TLS, -EAGAIN, or an error.
static int advance(struct pms_conn *conn)
{
    int rv = 0;

    if (conn->sniffing) {
        rv = sniff(conn);
        if (rv != 0)
            return rv;
    }
    for (;;) {
        rv = out_flush(conn);
        if (rv != 0)
            return rv;
        if (conn->hs.state == PMS_HANDSHAKE_DONE)
            return 0;
        rv = in_take(conn);
        if (rv != 0 && rv != -EAGAIN)
            out_flush(conn); // a last word, if it can be had for nothing
        if (rv != 0)
            return rv;
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pms_conn *conn = poll->data;
    int rv = pms_socket_error(conn->fd); // libuv's own status for any socket error is UV_EBADF

    (void)events;
    if (rv == 0)
        rv = status;
    if (rv == 0)
        rv = advance(conn);
    if (rv == -EAGAIN)
        rv = uv_poll_start(&conn->poll, conn->hs.out_len > 0 ? UV_WRITABLE : UV_READABLE, on_poll);
    else {
        end(conn, rv);
        return;
    }
    if (rv != 0)
        end(conn, rv);
}

int pms_conn_start(struct pms_conn *conn, uv_loop_t *loop, int fd, bool connecting, unsigned timeout_ms,
                   pms_conn_cb cb, void *data)
{
    int rv;

    conn->fd = fd;
    conn->sniffing = !conn->hs.dialer;
    conn->cb = cb;
    conn->data = data;
    rv = uv_poll_init(loop, &conn->poll, fd);
    if (rv != 0) {
        close(fd);
        free(conn);
        return rv;
    }
    // From here on nothing fails: epoll knows the descriptor can be polled, timers are only memory.
    PMS_CHECK(uv_timer_init(loop, &conn->timer) == 0);
    conn->poll.data = conn;
    conn->timer.data = conn;
    conn->handles = 2;
    PMS_CHECK(uv_timer_start(&conn->timer, on_deadline, timeout_ms, 0) == 0);
    PMS_CHECK(uv_poll_start(&conn->poll, connecting ? UV_WRITABLE : UV_READABLE, on_poll) == 0);
    return 0;
}

void pms_conn_cancel(struct pms_conn *conn, int status)
{
    end(conn, status);
}
