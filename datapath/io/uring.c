// SPDX-License-Identifier: GPL-2.0-or-later
// Thin layer over liburing: entries never run out, completions find their op.
#include "datapath/io/uring.h"

#include <errno.h>

#include "base/check.h"

#define ENTRIES    512u
#define CQ_ENTRIES 8192u
#define CQE_BATCH  256u
#define WORKERS    256u /* of the kernel, for what cannot be done at once: one hung disk must not use up all */

int pms_uring_init(struct pms_uring *u)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        .cq_entries = CQ_ENTRIES,
    };
    unsigned workers[2] = {WORKERS, 0};
    int rc = io_uring_queue_init_params(ENTRIES, &u->ring, &params);

    if (rc == -EINVAL) { /* a kernel before 6.1 */
        params = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE, .cq_entries = CQ_ENTRIES};
        rc = io_uring_queue_init_params(ENTRIES, &u->ring, &params);
    }
    if (rc != 0)
        return rc;
    io_uring_register_iowq_max_workers(&u->ring, workers); /* best effort */
    u->inflight = 0;
    return 0;
}

void pms_uring_deinit(struct pms_uring *u)
{
    io_uring_queue_exit(&u->ring);
}

struct io_uring_sqe *pms_uring_sqe(struct pms_uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

    while (sqe == NULL) {
        int rc = io_uring_submit(&u->ring);

        /* EBUSY, EAGAIN: the kernel is short of memory or completions overflow; they wait in the ring
         * meanwhile. */
        PMS_CHECK_MSG(rc >= 0 || rc == -EBUSY || rc == -EAGAIN || rc == -EINTR, "io_uring_submit: %d", rc);
        sqe = io_uring_get_sqe(&u->ring);
    }
    return sqe;
}

void pms_uring_start(struct pms_uring *u, struct io_uring_sqe *sqe, struct pms_uring_op *op)
{
    PMS_CHECK(op->done != NULL);
    io_uring_sqe_set_data(sqe, op);
    u->inflight++;
}

void pms_uring_cancel(struct pms_uring *u, struct pms_uring_op *op)
{
    struct io_uring_sqe *sqe = pms_uring_sqe(u);

    io_uring_prep_cancel(sqe, op, 0);
    io_uring_sqe_set_data(sqe, NULL);
}

void pms_uring_complete(struct pms_uring *u)
{
    struct io_uring_cqe *cqes[CQE_BATCH];
    unsigned n;

    do {
        n = io_uring_peek_batch_cqe(&u->ring, cqes, CQE_BATCH);
        for (unsigned i = 0; i < n; i++) {
            struct pms_uring_op *op = io_uring_cqe_get_data(cqes[i]);
            int res = cqes[i]->res;

            io_uring_cqe_seen(&u->ring, cqes[i]);
            if (op == NULL)
                continue; /* of a cancel */
            PMS_CHECK(u->inflight > 0);
            u->inflight--;
            op->done(op, res);
        }
    } while (n == CQE_BATCH);
}

int pms_uring_wait(struct pms_uring *u, uint64_t timeout_ns)
{
    struct __kernel_timespec ts = {
        .tv_sec = (long long)(timeout_ns / 1000000000u),
        .tv_nsec = (long long)(timeout_ns % 1000000000u),
    };
    struct io_uring_cqe *cqe;
    int rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);

    return rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY ? rc : 0;
}
