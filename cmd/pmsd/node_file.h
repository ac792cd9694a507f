// SPDX-License-Identifier: GPL-2.0-or-later
// The state directory: whose it is, and who this node is (node.json, 0600: it holds the cluster key).
#ifndef PMS_CMD_PMSD_NODE_FILE_H
#define PMS_CMD_PMSD_NODE_FILE_H

#include "base/id.h"
#include "base/limits.h"
#include "base/util.h"
#include "consensus/raft/handshake.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

// A node as it was known when the file was written: how to reach the cluster before its state is known.
struct pms_node_peer {
    uint64_t id;
    struct sockaddr_storage addr;
};

#define PMS_NODE_PEERS_MAX  32
#define PMS_NODE_FORMER_MAX 8

struct pms_node_file {
    uint64_t id;             // of this node, never 0; a new one after it left a cluster
    bool member;             // the rest is set
    struct pms_uuid cluster; // the same for ever: bricks and LUNs bear it
    struct pms_realm
        realm; // what nodes know each other by; a recovery gives a new one (first: cluster's uuid)
    unsigned n_former;
    struct pms_realm former[PMS_NODE_FORMER_MAX]; // before recoveries, the oldest first
    bool superseded;                              // given up by a recovery elsewhere: must never run again
    bool recovering;                              // a recovery here was begun and is not finished
    unsigned n_lost;                              // ... that gives up these nodes
    uint64_t lost[PMS_NODES_MAX];
    char name[PMS_NAME_MAX + 1];
    struct sockaddr_storage addr; // where we listen
    bool witness;
    unsigned feature_level;                       // the cluster's, as last known here
    unsigned raft_election_ms, raft_heartbeat_ms; // as last agreed, for the next start; 0: the defaults
    bool settled;     // has been up to date once: without its log it must not go on under this id
    unsigned n_peers; // other nodes, former ones too (the latest known address of each)
    struct pms_node_peer peers[PMS_NODE_PEERS_MAX];
};

// Takes the directory: makes it (0700) if missing, locks it against another pmsd, refuses a foreign or full
// one, reads node.json or makes a first one. *lock_fd is the lock, for as long as the process lives.
// 0 or a negative code; then why says what and what to do.
int pms_node_dir_open(const char *dir, struct pms_node_file *node, int *lock_fd, char *why, size_t why_len);

// Why this pmsd cannot be in a cluster at this feature level, in words.
void pms_node_level_text(unsigned level, char *why, size_t why_len);

// Writes node.json, durably. 0 or -errno.
int pms_node_file_save(const char *dir, const struct pms_node_file *node);

// Adds or updates a peer's address; the oldest is forgotten when there is no room. True: something changed.
bool pms_node_file_peer(struct pms_node_file *node, uint64_t id, const struct sockaddr_storage *addr);

// The cluster was recovered: `next` is the realm now, what was is former. The oldest is forgotten.
void pms_node_file_realm_next(struct pms_node_file *node, const struct pms_realm *next);

// Realms as JSON and back, for node.json and for a node that joins. 0 or PMS_EPROTO.
json_t *pms_realm_to_json(const struct pms_realm *realm);
int pms_realm_from_json(const json_t *json, struct pms_realm *realm);

// Removes Raft's log (the folder "log" in dir). 0 or -errno; 0 too if there is none.
int pms_node_dir_wipe_log(const char *dir);

// Is there a log at all?
bool pms_node_dir_has_log(const char *dir);

// "dir/log" into out.
void pms_node_dir_log(const char *dir, char *out, size_t len);

#endif
