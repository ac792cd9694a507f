// SPDX-License-Identifier: GPL-2.0-or-later
// The cluster's agreed state: a pure, deterministic machine fed with JSON commands in the order of the Raft
// log.
//
// The same commands in the same order give the same state, byte for byte, on every node: no clock, no
// randomness, no floats, no I/O in here. Times that matter (a token's expiry) are in the command, put there
// by its proposer.
//
// A command is one JSON object:
//     {"op": NAME, "client": 16 hex, "seq": N, "feature_level": L (default 1), ...the op's own fields}
// L is what the command needs: below it, it is refused. An op that needs more than the cluster's level is
// unknown, in every build.
// A result is one JSON object, at most a few hundred bytes:
//     {"ok": true, ...}   or   {"ok": false, "error": "PMS_E...", "text": "why, and what to do"}
//
// clang-format off
// Ids of nodes, arrays and incarnations are 16 lower-case hex digits, never zero. "array" names an array by id
// or by name, "node" a node by id (where a name is meant the field is called "name"). Addresses are numeric.
// The ops, their fields, and the result's (r:):
//
//   cluster_init       id (32 hex), name, node {id, name, addr, supports (feature level, default 1)}. The cluster
//                      begins at that level
//   cluster_upgrade    level. Raises the cluster's feature level; refused while a node supports less. r: from, to
//   node_level         id, supports. The node runs a build that supports this feature level
//   token_add          id (1..32 of [a-z0-9]), secret (1..128 printable), expires_s, by, now_s (optional)
//   token_use          id, node, now_s; one use. Again by the same node: ok. r: already
//   token_revoke       id
//   node_join          id, name, addr, role (data|witness), token, now_s, supports (default 1). Uses the token in the same step, or
//                      honours a token_use by this id. r: already, or replaced (the name's former id)
//   node_addr          id, addr
//   node_leave         name. Refused while it is primary somewhere or holds a last good copy. Its slots
//                      become vacant; one that was in sync is thereby ejected. r: arrays (number of those touched)
//   cluster_recover    lost (list of ids). After a permanent loss of quorum, by the only member left (pmsctl
//                      recover): these nodes are gone. Arrays go on with the in-sync slots that are left; those
//                      that have none keep their in-sync set, and wait. r: lost (number of arrays without one)
//   settings_set       key, value (null: the default again); or values {key: value, ...}: all or none
//   array_create       id, name, level, size_bytes, slots [{node, brick (absolute path or null)}],
//                      portal {addr, prefix, port}, iqn, serial, write_cache (optional).
//                      Phase creating, epoch 0
//   array_slot_zeroed  array, slot, incarnation. r: all (every slot is zeroed now)
//   array_commit       array. Phase ready, epoch 1, all in sync, primary slot 0. r: epoch
//   array_transition   array, kind, epoch (expected), primary (slot), in_sync [{slot, incarnation}]. r: epoch
//                      Another epoch: PMS_ESTALE, with the current epoch, primary and in_sync in the result
//   array_replace      array, slot, node, brick. Gives a stale or vacant slot a new, blank place. r: epoch
//   array_recover      array, epoch (expected), slot, incarnation, floor (both of its brick), lost (optional,
//                      list of ids). Makes a stale slot the only in-sync one and the primary, although what
//                      the in-sync slots hold is lost. They must be on no node, or on one of lost. r: epoch
//   array_set          array, write_cache
//   array_delete       array, force (optional). Phase deleting; refused while initiators are connected.
//                      r: epoch
//   array_slot_removed array, slot. Phase deleting. r: gone (it was the last: the array is forgotten)
//   array_forget       array, force (optional). Phase deleting, and only bricks of gone nodes remain
//   session_login      array, initiator, isid (12 hex), params {..}, peer (ip:port), node (the
//                      primary's). r: tsih, login (index), new, and evicted (a TSIH) if an orphan had to make room
//   session_closed     array, tsih, reason, login (optional: only if that is still its last login). An orphan
//                      from now on, r: disconnected (index); reason "logout": removed
//   session_expire     array, tsih, if_disconnected_index
//
// A takeover by another node makes all connected sessions of the array orphans; an unclean one (R6) forgets them, so
// that each initiator finds a new session with UNIT ATTENTION 29h. Whatever changes an array's
// slots, primary or in-sync set raises its epoch by one (design, section 4): also node_leave, array_replace and
// array_delete, which its primary does not propose; cluster_recover and array_recover raise it by more, beyond
// what their nodes may have promised or seen.
// clang-format on
#ifndef PMS_CONSENSUS_CORE_STATE_H
#define PMS_CONSENSUS_CORE_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

enum {
    PMS_STATE_COMMAND_BYTES_MAX = 65536, // a longer command is refused
    PMS_STATE_CLIENTS_MAX =
        256,               // clients whose results are remembered, the least recently heard is forgotten
    PMS_STATE_WINDOW = 64, // results remembered a client = commands it may have in flight
    PMS_STATE_TOKENS_MAX = 64,
    PMS_STATE_ARRAYS_MAX = 1024,
    PMS_BRICK_PATH_MAX = 255,
    PMS_SERIAL_MAX = 32,
    PMS_ADDR_TEXT_MAX = 63, // "ip:port" or "[v6]:port"
};

#define PMS_ARRAY_BYTES_MIN (1ull << 20) // sizes are multiples of it
#define PMS_ARRAY_BYTES_MAX (1ull << 50)

enum pms_array_level { PMS_ARRAY_RAID1 = 1, PMS_ARRAY_RAID5 = 5 };
enum pms_array_phase { PMS_ARRAY_CREATING, PMS_ARRAY_READY, PMS_ARRAY_DELETING };

struct pms_slot_info {
    uint64_t node_id;                   // 0: vacant (its node left)
    char brick[PMS_BRICK_PATH_MAX + 1]; // "": the default place below the node's brick directory
    bool zeroed;                        // verified zero at creation, or filled and admitted since
    bool in_sync;
    uint64_t incarnation; // as of its zeroing or last admission; 0: none yet
};

// A copy of an array's record: plain values, valid for as long as the caller keeps it.
struct pms_array_info {
    uint64_t id;
    char name[PMS_NAME_MAX + 1];
    enum pms_array_level level;
    uint64_t size_bytes;
    uint32_t region_bytes;
    bool write_cache; // acknowledged writes may be volatile until they are flushed (WCE=1)
    bool cache_used;  // it is on, or was at some time
    enum pms_array_phase phase;
    uint64_t epoch; // 0 while creating
    int primary;    // slot, -1 unless phase ready
    // The epoch in which this primary became it; later ones of the same primary leave it as it is. 0 unless
    // phase ready.
    uint64_t primary_since;
    unsigned n_slots; // slot numbers never change; a vacant slot is still counted
    struct pms_slot_info slots[PMS_SLOTS_MAX];
    uint32_t in_sync; // mask of slots; 0 unless phase ready
    char portal_addr[46];
    unsigned portal_prefix;
    uint16_t portal_port;
    char iqn[PMS_IQN_MAX + 1];
    char serial[PMS_SERIAL_MAX + 1];
};

struct pms_node_info {
    uint64_t id;
    char name[PMS_NAME_MAX + 1];
    char addr[PMS_ADDR_TEXT_MAX + 1];
    bool witness;
    unsigned feature_level; // that its pmsd supports
};

struct pms_state; // not thread-safe: one thread owns it (pmsd: the control loop)

// An empty state (no cluster yet). Never NULL: lack of memory stops the process.
struct pms_state *pms_state_create(void);
void pms_state_destroy(struct pms_state *st); // NULL is fine

// Apply one command. index must rise with every call (the Raft log's, or pms_state_index() + 1) and be the
// same on all nodes. Trailing spaces and NULs (padding) are ignored. Returns the result, to be freed by the
// caller, never NULL. Garbled or refused commands change nothing but the memory of (client, seq).
char *pms_state_apply(struct pms_state *st, const char *cmd, size_t len, uint64_t index);

// The index of the last applied command, 0 for none. It is part of the snapshot.
uint64_t pms_state_index(const struct pms_state *st);

// The snapshot: JSON with sorted keys, NUL-terminated, to be freed by the caller; *len without the NUL. Equal
// states give equal bytes.
char *pms_state_encode(const struct pms_state *st, size_t *len);

// A state from a snapshot. PMS_ECORRUPT (not a valid state), PMS_EVERSION (of a newer feature level); *out is
// then untouched.
int pms_state_decode(const char *buf, size_t len, struct pms_state **out);

// The feature level that knows the op; 0: this build does not.
unsigned pms_state_op_level(const char *op);

// Check every invariant of the tree. 0, or PMS_ECORRUPT with the first violation in why.
int pms_state_check(const struct pms_state *st, char *why, size_t why_len);

// ---- Reading. Borrowed JSON is valid until the next apply. ----

const json_t *
pms_state_tree(const struct pms_state *st); // everything, with tokens' secrets: never show it to anyone
json_t *pms_state_public(const struct pms_state *st); // new reference: a copy without secrets and bookkeeping
bool pms_state_has_cluster(const struct pms_state *st);
const char *pms_state_cluster_id(const struct pms_state *st);   // 32 hex, NULL before cluster_init
const char *pms_state_cluster_name(const struct pms_state *st); // NULL before cluster_init
unsigned pms_state_feature_level(const struct pms_state *st);

const json_t *pms_state_array_json(const struct pms_state *st, uint64_t array_id);        // NULL: none
const json_t *pms_state_array_json_by_name(const struct pms_state *st, const char *name); // NULL: none
const json_t *pms_state_sessions_json(const struct pms_state *st,
                                      const char *array_name); // a JSON array, NULL: none
const json_t *pms_state_token_json(const struct pms_state *st,
                                   const char *token_id); // {secret, expires_s, used_by}

// Typed copies. 0 or PMS_ENOTFOUND (*out untouched).
int pms_state_array_get(const struct pms_state *st, uint64_t array_id, struct pms_array_info *out);
int pms_state_array_get_by_name(const struct pms_state *st, const char *name, struct pms_array_info *out);
int pms_state_node_get(const struct pms_state *st, uint64_t node_id, struct pms_node_info *out);
int pms_state_node_get_by_name(const struct pms_state *st, const char *name, struct pms_node_info *out);

// Iterate in the order of names: start with *cursor = 0, until false.
bool pms_state_array_next(const struct pms_state *st, size_t *cursor, struct pms_array_info *out);
bool pms_state_node_next(const struct pms_state *st, size_t *cursor, struct pms_node_info *out);

// The slot of an array on a node, -1 for none.
int pms_array_slot_of(const struct pms_array_info *array, uint64_t node_id);

// ---- Settings (all times in ms unless the name says otherwise) ----

enum pms_setting {
    PMS_SET_HEARTBEAT_MS,
    PMS_SET_PROMISE_MS,
    PMS_SET_LEASE_MS,
    PMS_SET_RAFT_ELECTION_MS,
    PMS_SET_RAFT_HEARTBEAT_MS,
    PMS_SET_EJECT_DEAD_MS,
    PMS_SET_EJECT_SLOW_MS,
    PMS_SET_ADDR_LIFETIME_S,
    PMS_SET_ORPHAN_S,
    PMS_SETTINGS
};

struct pms_setting_info {
    const char *name; // "heartbeat_ms", ...
    uint64_t value;   // what is set, or the default
    uint64_t def, min, max;
    bool is_set;
};
void pms_state_setting_get(const struct pms_state *st, enum pms_setting s, struct pms_setting_info *out);
// The longest promise_ms that ever was: a node that runs since then may still rely on promises of that length, so
// whoever starts keeps quiet for as long (R4).
uint64_t pms_state_promise_ms_longest(const struct pms_state *st);

const char *pms_setting_name(enum pms_setting s);                           // "heartbeat_ms", ...
uint64_t pms_state_setting(const struct pms_state *st, enum pms_setting s); // what is set, or the default

#endif
