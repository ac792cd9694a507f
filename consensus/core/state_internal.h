// SPDX-License-Identifier: GPL-2.0-or-later
// Private to consensus/core: the state's tree, the command being applied, and what the handlers share.
#ifndef PMS_CONSENSUS_CORE_STATE_INTERNAL_H
#define PMS_CONSENSUS_CORE_STATE_INTERNAL_H

#include "base/check.h"
#include "consensus/core/state.h"

// The sections of the tree: every one is a JSON object, always there.
#define PMS_STATE_SECTIONS(X) X(cluster) X(nodes) X(arrays) X(sessions) X(tokens) X(settings) X(dedup)

enum {
    PMS_TOKEN_ID_MAX = 32,
    PMS_TOKEN_SECRET_MAX = 128,
    PMS_ARRAY_MEMBERS = 16, // of an array's record
    PMS_LEVEL_LIMIT = 1000, // of feature levels, for what comes from outside
};

struct pms_state {
    json_t *root;                              // {"format": 1, "index": N, and the sections}
#define PMS_SECTION_MEMBER(name) json_t *name; // borrowed from root
    PMS_STATE_SECTIONS(PMS_SECTION_MEMBER)
#undef PMS_SECTION_MEMBER
};

// One command on its way. A handler validates everything first, then changes the tree, and returns 0 with the
// fields it put into result, or the negative code of pms_refuse with the tree unchanged.
struct pms_apply {
    struct pms_state *st;
    const json_t *cmd;
    uint64_t index;
    json_t *result;
};

typedef int pms_op_fn(struct pms_apply *a); // not a struct: only names the dispatch table's column

struct pms_op {
    const char *name;
    pms_op_fn *handler;
    unsigned level;       // feature level that knows the op
    bool without_cluster; // allowed before cluster_init
};

extern const struct pms_op pms_ops_next[]; // state_next.c
extern const size_t pms_ops_next_n;

pms_op_fn pms_on_cluster_upgrade, pms_on_node_level;
pms_op_fn pms_on_cluster_init, pms_on_node_join, pms_on_node_addr, pms_on_node_leave;
pms_op_fn pms_on_token_add, pms_on_token_use, pms_on_token_revoke;
pms_op_fn pms_on_settings_set;
pms_op_fn pms_on_array_create, pms_on_array_slot_zeroed, pms_on_array_commit, pms_on_array_replace;
pms_op_fn pms_on_array_set, pms_on_array_delete, pms_on_array_slot_removed, pms_on_array_forget;
pms_op_fn pms_on_array_transition, pms_on_cluster_recover, pms_on_array_recover;
pms_op_fn pms_on_session_login, pms_on_session_closed, pms_on_session_expire;

// ---- Refusals (state_fields.c) ----

// Makes the result {"ok": false, "error", "text"} and returns err. Bytes that are not printable ASCII become
// '?'.
__attribute__((format(printf, 3, 4))) int pms_refuse(struct pms_apply *a, int err, const char *fmt, ...);

// ---- Reading a command's fields: 0, or a refusal (PMS_EUSAGE) that names the field ----

int pms_field_id(struct pms_apply *a, const json_t *obj, const char *key, uint64_t *out); // nonzero
int pms_field_u64(struct pms_apply *a, const json_t *obj, const char *key, uint64_t min, uint64_t max,
                  uint64_t *out);
int pms_field_bool(struct pms_apply *a, const json_t *obj, const char *key, bool def, bool *out); // optional
int pms_field_text(struct pms_apply *a, const json_t *obj, const char *key, size_t max, const char **out);
int pms_field_name(struct pms_apply *a, const json_t *obj, const char *key, const char **out);
int pms_field_object(struct pms_apply *a, const json_t *obj, const char *key, const json_t **out);
int pms_field_list(struct pms_apply *a, const json_t *obj, const char *key, size_t max, const json_t **out);
int pms_field_addr(struct pms_apply *a, const json_t *obj, const char *key, char out[PMS_ADDR_TEXT_MAX + 1]);
// The array that the field "array" names by id or name; *json is its record, *info its copy.
int pms_field_array(struct pms_apply *a, json_t **json, struct pms_array_info *info);
// A slot number of the array; the slot may be vacant.
int pms_field_slot(struct pms_apply *a, const struct pms_array_info *info, unsigned *slot);
// The joined node with the id in the field.
int pms_field_node(struct pms_apply *a, const json_t *obj, const char *key, struct pms_node_info *node);

// A feature level, 1 if the field is not there.
int pms_field_level(struct pms_apply *a, const json_t *obj, const char *key, unsigned *out);
// 0, or the refusal (PMS_EVERSION) of a node that supports less than the cluster's feature level.
int pms_level_suffices(struct pms_apply *a, const char *name, unsigned supports);

// ---- What is well-formed, for commands and snapshots alike (state_fields.c) ----

bool pms_text_printable(const char *s, size_t max); // 1..max printable ASCII bytes, no blank at the ends
bool pms_text_in(const char *s, size_t max, const char *extra,
                 bool upper);             // 1..max of [a-z0-9], extra, [A-Z]
bool pms_name_valid(const char *s);       // node, cluster
bool pms_array_name_valid(const char *s); // fits into an iqn
bool pms_iqn_valid(const char *s);
bool pms_isid_valid(const char *s); // 12 lower-case hex digits
bool pms_brick_path_valid(const char *s);
bool pms_params_valid(const json_t *params); // a session's negotiated parameters
// "ip:port", numeric, port not 0; out gets the canonical spelling.
bool pms_addr_canonical(const char *text, char out[PMS_ADDR_TEXT_MAX + 1]);
// An address alone; *prefix_max: 32 or 128.
bool pms_ip_canonical(const char *text, unsigned *prefix_max, char out[46]);

// ---- Working with the tree ----

#define PMS_MUST(call) PMS_CHECK_MSG((call) == 0, "out of memory") // setting values already validated

json_t *pms_json_id_new(uint64_t id); // 16 hex digits, or null for 0
json_t *pms_must(json_t *j);          // not NULL: out of memory stops the process
// Sorted keys of an object: heap array (free it), NULL if empty. The keys belong to the object.
const char **pms_sorted_keys(const json_t *obj, size_t *n);

// NULL: no such array. The name belongs to the tree.
const char *pms_array_name_by_id(const struct pms_state *st, uint64_t id);
// A record as plain values; false: not a well-formed record.
bool pms_array_info_parse(const char *name, const json_t *json, struct pms_array_info *out);
bool pms_node_info_parse(const char *name, const json_t *json, struct pms_node_info *out);
// Write the node's record.
void pms_node_put(struct pms_state *st, const struct pms_node_info *n);
// A node's name for messages: its name, or its id if it is not in the cluster. buf holds the id.
const char *pms_node_label(const struct pms_state *st, uint64_t node_id, char buf[20]);

// Least number of in-sync slots that keeps all data (RAID1: 1, RAID5: n-1).
unsigned pms_array_copies_min(const struct pms_array_info *info);
// Write the epoch, primary and in-sync set of info (mask, and the incarnations of its slots) into the record.
void pms_array_set_layout(json_t *json, const struct pms_array_info *info);
// Give a slot to a node (0: nobody), blank: not zeroed, no incarnation. brick NULL: the default place.
void pms_array_set_slot(json_t *json, unsigned slot, uint64_t node_id, const char *brick);
// Mark all sessions of the array as orphans since index (their connections ended with the old primary).
void pms_sessions_forget_all(struct pms_state *st, const char *array_name);
void pms_sessions_orphan_all(struct pms_state *st, const char *array_name, uint64_t index);

// Why the node may not leave now: 0, or a code with the reason in why. primaries_moved: as if it were primary
// nowhere, which is what moving its primaries first will make true.
int pms_leave_check(const struct pms_state *st, const struct pms_node_info *node, bool primaries_moved,
                    char *why, size_t why_len);
// Forget an array none of whose slots is on a node. False: there is one.
bool pms_array_forget_if_vacant(struct pms_state *st, const char *name);
// No in-sync slot is on a node of the cluster: what they held was given up (cluster_recover).
bool pms_array_is_lost(const struct pms_state *st, const struct pms_array_info *array);
// PMS_ESTALE with the array's current epoch, primary and in_sync in the result.
int pms_refuse_stale(struct pms_apply *a, const struct pms_array_info *now);
// What a proposal about a served array counts on: this epoch, and the phase. 0, or refused.
int pms_array_expect(struct pms_apply *a, const struct pms_array_info *now, uint64_t epoch);
// True, and the node, if the portal address ip is a node's own.
bool pms_portal_is_node_addr(const struct pms_state *st, const char *ip, struct pms_node_info *node);

// Why these overrides cannot stand, or NULL.
const char *pms_settings_invalid(const json_t *overrides);

// 0, or the refusal of a token that does not admit this node now. Changes nothing; pms_token_spend does.
int pms_token_admits(struct pms_apply *a, const char *token_id, uint64_t node_id, uint64_t now_s);
void pms_token_spend(struct pms_apply *a, const char *token_id, uint64_t node_id);

// ---- Repeated commands (state_dedup.c) ----

// The stored result of (client, seq), borrowed; NULL if it was never seen. *forgotten: too old to know.
json_t *pms_dedup_find(const struct pms_state *st, const char *client, uint64_t seq, bool *forgotten);
void pms_dedup_store(struct pms_state *st, const char *client, uint64_t seq, uint64_t index, json_t *result);

#endif
