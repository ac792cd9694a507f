// SPDX-License-Identifier: GPL-2.0-or-later
// One connection between two data loops: a stream socket that carries frames both ways, without copying
// payloads.
#ifndef PMS_DATAPATH_IO_LINK_H
#define PMS_DATAPATH_IO_LINK_H

/*
 * Receiving: header, then the payload straight into a buffer of the pool together with the next header (one
 * recvmsg); checked, then delivered. While the pool has no room nothing is read: the peer feels it through
 * TCP. Sending: frames queue up during a turn of the loop and leave in one sendmsg from where their payloads
 * lie. Heartbeats and their answers overtake queued frames (at a frame's boundary); all others keep their
 * order.
 *
 * What can go wrong, always reported once by on_failed and then final: the peer closes (-ECONNRESET), garbage
 * (PMS_EPROTO, PMS_EVERSION) or a wrong checksum (PMS_ECORRUPT), another cluster's frame (PMS_EIDENTITY), no
 * progress of a send for a second
 * (-ETIMEDOUT), a queue without end (-ENOBUFS), errors of the socket.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "datapath/core/frame.h"
#include "datapath/core/iobuf.h"
#include "datapath/io/pool.h"
#include "datapath/io/uring.h"

struct pms_link_stats {
    uint64_t frames_sent, frames_received, bytes_sent, bytes_received, checksum_errors;
};

/* Shared by the links of a loop. */
struct pms_link_env {
    struct pms_uring *uring;
    struct pms_pool *pool;
    struct pms_link_stats stats;
    uint64_t cluster;        /* pms_frame.cluster of all frames */
    struct pms_list dirty;   /* links with something to start or to report at the end of the turn */
    struct pms_list starved; /* links that wait for the pool */
    unsigned closing;        /* links closed whose requests are still in flight */
};

struct pms_link;

/* The callbacks may close the link. on_failed: the link is dead (nothing more is sent or delivered); close
 * it. */
struct pms_link_ops {
    void (*on_frame)(struct pms_link *link, void *user, const struct pms_frame *f, struct pms_iobuf *buf);
    void (*on_failed)(struct pms_link *link, void *user, int err);
};

void pms_link_env_init(struct pms_link_env *env, struct pms_uring *uring, struct pms_pool *pool,
                       uint64_t cluster);

/* Takes fd over (a connected stream socket; TCP options are set here) and starts to receive. version: of all
 * frames, both ways. NULL: memory is
 * out, fd closed. */
struct pms_link *pms_link_create(struct pms_link_env *env, int fd, unsigned version,
                                 const struct pms_link_ops *ops, void *user);
/* Closes: no callback runs from here on, what was queued is dropped; memory goes when the kernel lets go of
 * it. */
void pms_link_close(struct pms_link *link);

/* Queues one frame; payload f->payload_len bytes from buf->data + off. Takes the reference over. Never calls
 * back: failures are reported by pms_link_flush_all. */
void pms_link_send(struct pms_link *link, const struct pms_frame *f, struct pms_iobuf *buf, uint32_t off);

/* At the end of each turn: starts the sends of all links, retries the starved ones, reports failures. */
void pms_link_flush_all(struct pms_link_env *env);
/* Every some 100 ms: fails a link whose send made no progress for a second. now: any monotonic clock, ns. */
void pms_link_tick(struct pms_link *link, uint64_t now);

#endif
