// SPDX-License-Identifier: GPL-2.0-or-later
// The Raft log of a node that is stopped: reading it whole, and making its node the only member of the group. For
// `pmsctl recover`, when the majority is lost for ever; never while anything else has the folder open.
#ifndef PMS_CONSENSUS_RAFT_RECOVER_H
#define PMS_CONSENSUS_RAFT_RECOVER_H

#include "consensus/raft/node.h"

struct pms_raft_log_info {
    uint64_t term;       // the newest that this node knew
    uint64_t index_last; // of the last entry; it may never have been committed
    uint64_t term_last;  // of that entry, or of the snapshot; 1 for what a recovery wrote
    unsigned members_n;  // of the last configuration, committed or not
    struct pms_raft_member members[2 * PMS_NODES_MAX]; // id and role count
};

struct pms_raft_log_reader {
    void *data;
    // As in struct pms_raft_config: the snapshot, if there is one, then each command after it, whether it was
    // ever committed or not: a recovery makes all of them count. Results are freed by the caller of apply.
    int (*restore)(void *data, const char *buf, size_t len);
    int (*apply)(void *data, const char *command, size_t len, uint64_t index, char **result);
};

// 0; PMS_ECORRUPT or -errno with the reason logged. Completes a segment that was open, as a start would.
int pms_raft_log_read(const char *dir, uint64_t id, const struct pms_raft_log_reader *reader,
                      struct pms_raft_log_info *info);

// Appends a configuration in which id is the only member. Durable on return. At its next start the node leads
// at once, and all that is in its log counts.
int pms_raft_log_recover(const char *dir, uint64_t id);

#endif
