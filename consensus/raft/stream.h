// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: frames of u32 length (little endian) and body over an authenticated socket.
#ifndef PMS_CONSENSUS_RAFT_STREAM_H
#define PMS_CONSENSUS_RAFT_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct pms_stream;

struct pms_stream_events {
    // One whole frame (borrowed). May end the stream.
    void (*on_frame)(void *data, const uint8_t *body, size_t len);
    // The end, once and always, not inside another call; the stream is freed after this returns.
    void (*on_end)(void *data, int status);
};

// Takes over fd. On error (-ENOMEM, libuv's) it is closed and no event comes.
int pms_stream_open(uv_loop_t *loop, int fd, size_t frame_max, const struct pms_stream_events *events,
                    void *data, struct pms_stream **stream);
// Copies body. 0, -ENOMEM, or PMS_EBUSY if too much is waiting to be sent; a stream that has ended takes it
// and does nothing.
int pms_stream_send(struct pms_stream *stream, const void *body, size_t len);
void pms_stream_end(struct pms_stream *stream, int status);

#endif
