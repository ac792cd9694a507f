// SPDX-License-Identifier: GPL-2.0-or-later
// The verifying client's log: what was begun and what was acknowledged, so that a later run can judge the
// disk.
//
// A write's begin record is in the file before the write is sent, its ack record after it was acknowledged:
// whatever moment the client is killed at, the log never claims more than the target promised. Little-endian,
// 32 bytes a record.
#ifndef PMS_TESTS_TOOLS_VLOG_H
#define PMS_TESTS_TOOLS_VLOG_H

#include "tests/tools/lib/judge.h"

struct pms_vlog;

enum pms_vlog_kind { PMS_VLOG_BEGIN = 1, PMS_VLOG_ACK = 2, PMS_VLOG_UNKNOWN = 3, PMS_VLOG_SEEN = 4 };

struct pms_vlog_head {
    uint64_t client;
    uint64_t lba;     // first sector of the span
    uint64_t sectors; // its length
    bool zeroed;
};

// A new, empty log; an old file is replaced. 0 or -errno.
int pms_vlog_create(struct pms_vlog **out, const char *path, const struct pms_vlog_head *head);
// Adds a record to the buffer; pms_vlog_flush writes the buffer out. 0 or -errno.
int pms_vlog_add(struct pms_vlog *log, enum pms_vlog_kind kind, uint64_t lba, uint32_t sectors, uint64_t gen);
int pms_vlog_flush(struct pms_vlog *log);
int pms_vlog_close(struct pms_vlog *log); // flushes

// Reads a log into a new judge; writes that were in flight at its end may have happened or not. A torn last
// record is left out. 0, -errno, or PMS_ECORRUPT. *judge belongs to the caller; *writes (may be NULL) counts
// the acknowledged.
int pms_vlog_replay(const char *path, struct pms_vlog_head *head, struct pms_judge **judge, uint64_t *writes);

#endif
