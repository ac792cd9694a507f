// SPDX-License-Identifier: GPL-2.0-or-later
// io_uring for one thread: each request embeds a pms_uring_op, whose done() runs once, from pms_uring_turn
// only.
#ifndef PMS_DATAPATH_IO_URING_H
#define PMS_DATAPATH_IO_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct pms_uring_op {
    /* res: as the kernel's, bytes or 0 or -errno. The op may be reused or freed from here on. */
    void (*done)(struct pms_uring_op *op, int res);
};

struct pms_uring {
    struct io_uring ring;
    unsigned inflight; /* requests whose done() has not run */
};

/* Call from the thread that will use it. 0 or -errno. */
int pms_uring_init(struct pms_uring *u);
/* Nothing may be in flight. */
void pms_uring_deinit(struct pms_uring *u);

/* A free submission entry, never NULL: fill it with io_uring_prep_*, then pms_uring_start. */
struct io_uring_sqe *pms_uring_sqe(struct pms_uring *u);
/* Hands the entry over; it is submitted by the next pms_uring_wait at the latest. */
void pms_uring_start(struct pms_uring *u, struct io_uring_sqe *sqe, struct pms_uring_op *op);
/* Asks for the end of a request in flight; its done() still runs (with -ECANCELED, or as if nothing had been
 * asked). */
void pms_uring_cancel(struct pms_uring *u, struct pms_uring_op *op);

/* Submits and waits for a completion, at most timeout_ns. 0 or -errno. */
int pms_uring_wait(struct pms_uring *u, uint64_t timeout_ns);
/* Runs done() of all requests that have completed. */
void pms_uring_complete(struct pms_uring *u);

#endif
