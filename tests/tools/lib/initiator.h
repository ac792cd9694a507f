// SPDX-License-Identifier: GPL-2.0-or-later
// An iSCSI session for the test tools that survives a failover: requests wait while the target is away.
//
// libiscsi carries the protocol. Its own reconnect draws a new ISID every time (another I_T nexus); here the
// session by default logs in again with the same ISID as soon as the target answers, and sends what was
// outstanding again, in order. One thread; a request's buffer belongs to the session from submit to done.
#ifndef PMS_TESTS_TOOLS_INITIATOR_H
#define PMS_TESTS_TOOLS_INITIATOR_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct scsi_task;
struct pms_initiator;
struct pms_io;

// error: 0, or a negative errno; `text` says what the target answered (valid during the call).
typedef void (*pms_io_done)(struct pms_io *io, int error, const char *text);

struct pms_io {
    // Set by the caller.
    bool write;
    uint64_t lba;
    uint32_t sectors; // of 512 bytes
    uint8_t *buf;     // sectors * 512 bytes
    pms_io_done done;
    void *arg;
    // The session's own.
    struct pms_list link; // outstanding, in the order of submission
    struct pms_initiator *ini;
    struct scsi_task *task; // while sent on the present connection
    bool answered;          // status holds the answer; told at the end of the turn
    int status;
    uint32_t sends;
    uint32_t busy_answers;
    uint64_t retry_at_ns;
};

struct pms_initiator_opts {
    const char *url;          // iscsi://HOST[:PORT]/IQN/LUN
    const char *name;         // initiator name
    uint64_t isid_seed;       // the ISID is made of it
    bool libiscsi_reconnect;  // let the library reconnect by itself
    bool verbose;             // a line on stdout for each connection lost and found
    uint32_t nop_timeout_ms;  // without any answer for so long, the connection is given up
    uint32_t open_timeout_ms; // for the first login
    uint32_t busy_retry_ms;   // a refused command is sent again after so long; 0: 50 ms
};

struct pms_initiator_stats {
    uint64_t reconnects;      // sessions established again
    uint64_t unit_attentions; // 29h seen after a reconnect, and retried
    uint64_t mode_changes;    // 2A/01 seen (the write cache was switched), and retried
    uint64_t busy;            // BUSY and TASK SET FULL, retried
    uint64_t full;            // the latter alone
    uint64_t resent;          // commands sent more than once
};

// First login (repeated until open_timeout_ms), capacity. 0, -EINVAL (URL, name), -ETIMEDOUT, or another
// -errno; the reason is printed to stderr.
int pms_initiator_open(struct pms_initiator **out, const struct pms_initiator_opts *opts);
// Logs out if it can within a second, and frees. No request may be outstanding.
void pms_initiator_close(struct pms_initiator *ini);

uint64_t pms_initiator_sectors(const struct pms_initiator *ini);
struct pms_initiator_stats pms_initiator_stats(const struct pms_initiator *ini);

// Queues; it is sent in the next turn. `done` runs once, within pms_initiator_turn or _abandon.
void pms_initiator_submit(struct pms_initiator *ini, struct pms_io *io);
// One turn of the loop, at most timeout_ms long.
void pms_initiator_turn(struct pms_initiator *ini, int timeout_ms);
// Ends every outstanding request with -ETIMEDOUT.
void pms_initiator_abandon(struct pms_initiator *ini);

#endif
