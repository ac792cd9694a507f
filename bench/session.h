// SPDX-License-Identifier: GPL-2.0-or-later
// An iSCSI session of the load generator: one connection, many commands at once, as little work as can be.
//
// Unlike tests/tools/lib/initiator.h it neither reconnects nor retries: what is measured must not be mended
// on the way. One thread; a request and its buffer belong to the session from submit to done.
#ifndef PMS_BENCH_SESSION_H
#define PMS_BENCH_SESSION_H

#include <stdbool.h>
#include <stdint.h>

struct bench_session;
struct scsi_task;

struct bench_io {
    // Set by the caller.
    bool write;
    bool then_sync; // a write is done when a SYNCHRONIZE CACHE sent after its answer is answered too
    uint64_t lba;
    uint32_t bytes; // a multiple of the block length
    uint8_t *buf;
    void (*done)(struct bench_io *io, bool ok);
    void *arg;
    // The session's own.
    struct bench_session *session;
    struct scsi_task *task;
};

// Logs in at url (iscsi://HOST[:PORT]/IQN/LUN) as initiator `name` and asks for the capacity. 0 or -errno,
// the reason on stderr.
int bench_session_open(struct bench_session **out, const char *url, const char *name);
// No request may be outstanding. NULL is allowed.
void bench_session_close(struct bench_session *s);

uint32_t bench_session_block_bytes(const struct bench_session *s);
uint64_t bench_session_blocks(const struct bench_session *s);

// Sends; `done` runs once, within bench_session_turn, or at once with ok false if it cannot be sent.
void bench_session_submit(struct bench_session *s, struct bench_io *io);
// SYNCHRONIZE CACHE of everything, waited for. False: refused or lost.
bool bench_session_sync(struct bench_session *s);
// Waits at most timeout_ms for answers and delivers them. False: the connection is lost, and every
// outstanding request was answered with ok false.
bool bench_session_turn(struct bench_session *s, int timeout_ms);
// Was the connection lost by a fault of libiscsi (see session.c) and not of the target? It is of no more use.
bool bench_session_own_fault(const struct bench_session *s);

#endif
