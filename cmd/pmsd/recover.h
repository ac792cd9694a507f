// SPDX-License-Identifier: GPL-2.0-or-later
// Going on after a permanent loss of quorum, on a node whose pmsd is stopped: what pmsctl recover does. It reads who
// this node is and its Raft log, says what would be given up, and makes this node the only member of the cluster.
//
//   node.json gets a new realm and "recovering"   from here on pmsd refuses to start until all is done
//   the log gets a membership of this node alone
//   cluster_recover is applied, by a Raft group of this node alone that nobody can reach
//   "recovering" goes
//
// Run again with the same nodes, it goes on where it was interrupted. The given-up nodes know only the former
// realm: they can connect to nobody of the recovered cluster, and are told why (handshake.h).
#ifndef PMS_CMD_PMSD_RECOVER_H
#define PMS_CMD_PMSD_RECOVER_H

#include "cmd/pmsd/node_file.h"
#include "consensus/core/state.h"
#include "consensus/raft/recover.h"

#include <jansson.h>

struct pms_recover_node {
    struct pms_node_info info;
    bool self, voter;
    bool answers; // something accepts connections at its address
    bool host_up; // nothing does, but its host says so
};

struct pms_recover {
    const char *state_dir, *brick_dir;
    int lock_fd;
    struct pms_node_file node;
    struct pms_raft_log_info log;
    struct pms_state *state; // as if all of the log were committed
    unsigned n_nodes;
    struct pms_recover_node nodes[PMS_NODES_MAX];
};

// Takes the state directory (it must be a member's, and no pmsd may use it), reads the log, asks who answers.
// 0, or a negative code with why. Close it in both cases.
int pms_recover_open(struct pms_recover *r, const char *state_dir, const char *brick_dir, char *why,
                     size_t why_len);
void pms_recover_close(struct pms_recover *r);

// Everything known, and what would become of it: {"cluster", "node", "raft" {term, index, index_term}, "nodes",
// "give_up" (names of those that do not answer), "arrays", "refused" (null, or why not)}. New reference.
json_t *pms_recover_report(const struct pms_recover *r);

// May these nodes be given up? 0, or PMS_EREFUSED / PMS_ENOTFOUND / PMS_EUSAGE with why. Names: "a,b".
int pms_recover_check(const struct pms_recover *r, const char *names, char *why, size_t why_len);

// Does it. id: what the other survivors need (pms_recover_follow).
int pms_recover_run(struct pms_recover *r, const char *names, char id[PMS_UUID_TEXT_SIZE], char *why,
                    size_t why_len);

// On another survivor: forgets its log, and joins what was recovered as `id` elsewhere, with its bricks.
int pms_recover_follow(const char *state_dir, const char *id, char *why, size_t why_len);

#endif
