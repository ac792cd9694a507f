// SPDX-License-Identifier: GPL-2.0-or-later
// Frames over a libuv TCP stream.
#include "consensus/raft/stream.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/wire.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES   65536
#define QUEUED_BYTES (64u << 20) // a peer that does not read for so long is none

struct pms_stream {
    uv_tcp_t tcp;
    size_t frame_max;
    struct pms_stream_events events;
    void *data;
    struct pms_buf in;
    bool ending;
    int status;
};

struct outgoing {
    uv_write_t req;
    char bytes[];
};

static void on_closed(uv_handle_t *handle)
{
    struct pms_stream *s = handle->data;

    if (s->events.on_end != NULL)
        s->events.on_end(s->data, s->status);
    pms_buf_deinit(&s->in);
    free(s);
}

void pms_stream_end(struct pms_stream *s, int status)
{
    if (s->ending)
        return;
    s->ending = true;
    s->status = status;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pms_stream *s = handle->data;

    (void)suggested;
    if (pms_buf_reserve(&s->in, READ_BYTES) != 0)
        *buf = uv_buf_init(NULL, 0); // libuv then reports UV_ENOBUFS
    else
        *buf = uv_buf_init((char *)s->in.data + s->in.len, READ_BYTES);
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf)
{
    struct pms_stream *s = tcp->data;
    size_t used = 0;

    (void)buf;
    if (n < 0) {
        pms_stream_end(s, n == UV_EOF ? -ECONNRESET : (int)n);
        return;
    }
    s->in.len += (size_t)n;
    while (!s->ending && s->in.len - used >= 4) {
        uint32_t len = pms_get_u32(s->in.data + used);

        if (len > s->frame_max) {
            pms_stream_end(s, PMS_EPROTO);
            break;
        }
        if (s->in.len - used < 4 + (size_t)len)
            break;
        s->events.on_frame(s->data, s->in.data + used + 4, len);
        used += 4 + (size_t)len;
    }
    pms_buf_consume(&s->in, used);
}

static void on_written(uv_write_t *req, int status)
{
    struct pms_stream *s = req->handle->data;

    if (status != 0)
        pms_stream_end(s, status);
    free(req->data);
}

int pms_stream_send(struct pms_stream *s, const void *body, size_t len)
{
    struct outgoing *o;
    uv_buf_t buf;
    int rv;

    if (s->ending)
        return 0;
    if (uv_stream_get_write_queue_size((const uv_stream_t *)&s->tcp) > QUEUED_BYTES)
        return PMS_EBUSY;
    o = malloc(sizeof *o + 4 + len);
    if (o == NULL)
        return -ENOMEM;
    pms_put_u32((uint8_t *)o->bytes, (uint32_t)len);
    memcpy(o->bytes + 4, body, len);
    o->req.data = o;
    buf = uv_buf_init(o->bytes, (unsigned)(4 + len));
    rv = uv_write(&o->req, (uv_stream_t *)&s->tcp, &buf, 1, on_written);
    if (rv != 0) {
        free(o);
        pms_stream_end(s, rv);
    }
    return 0;
}

int pms_stream_open(uv_loop_t *loop, int fd, size_t frame_max, const struct pms_stream_events *events,
                    void *data, struct pms_stream **stream)
{
    struct pms_stream *s = calloc(1, sizeof *s);
    int rv = -ENOMEM;

    if (s == NULL || uv_tcp_init(loop, &s->tcp) != 0) {
        free(s);
        close(fd);
        return rv;
    }
    s->tcp.data = s;
    s->frame_max = frame_max;
    s->data = data;
    pms_buf_init(&s->in);
    rv = uv_tcp_open(&s->tcp, fd);
    if (rv != 0)
        close(fd);
    else
        rv = uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read);
    if (rv != 0) {
        pms_stream_end(s, rv); // without events: none is set yet
        return rv;
    }
    s->events = *events;
    *stream = s;
    return 0;
}
