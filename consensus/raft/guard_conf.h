// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: the membership configuration as it lies in log entries. libraft has these functions
// too, but keeps them to itself.
#ifndef PMS_CONSENSUS_RAFT_GUARD_CONF_H
#define PMS_CONSENSUS_RAFT_GUARD_CONF_H

#include <raft.h>
#include <stdbool.h>

// Entry payload to configuration. 0, RAFT_MALFORMED or RAFT_NOMEM; on error conf is empty.
int pms_conf_decode(const struct raft_buffer *buf, struct raft_configuration *conf);
// 0 or RAFT_NOMEM; on error `to` is empty.
int pms_conf_copy(const struct raft_configuration *from, struct raft_configuration *to);
struct raft_server *pms_conf_server(struct raft_configuration *conf, raft_id id);
// id is the one and only voter.
bool pms_conf_is_sole_voter(const struct raft_configuration *conf, raft_id id);

// What a log shows at start: the last configuration, and the one before it in case that was never committed.
struct pms_conf_history {
    struct raft_configuration last;
    raft_index last_index; // 0: there is none
    struct raft_configuration before;
    raft_index before_index; // 0: there is none
};
// From what raft_io->load() gave. 0 or an error (then history is empty). Release with pms_conf_history_close.
int pms_conf_history_read(const struct raft_snapshot *snapshot, raft_index start,
                          const struct raft_entry *entries, size_t n, struct pms_conf_history *history);
void pms_conf_history_close(struct pms_conf_history *history);

// Our entry at index, NULL if the log does not hold it; and its term (that of the snapshot's last entry is
// known too), 0 if not known. (struct raft_log is public, its accessors are not.)
const struct raft_entry *pms_log_entry_at(const struct raft_log *log, raft_index index);
raft_term pms_log_term_at(const struct raft_log *log, raft_index index);

// The last committed configuration, followed from start on. All zero at first.
struct pms_conf_track {
    struct raft_configuration committed;
    raft_index committed_index; // 0: not known
    raft_index
        restart_uncommitted; // index of the log's last configuration, if it may be uncommitted; until handled
};

// From the history at start (takes the configurations out of it). surely_committed: the index up to which all
// is.
void pms_conf_track_load(struct pms_conf_track *t, struct pms_conf_history *history,
                         raft_index surely_committed);
// Before the first event after start: libraft takes the log's last configuration for committed; corrects
// that.
void pms_conf_track_started(struct pms_conf_track *t, struct raft *r);
// After each event.
void pms_conf_track_follow(struct pms_conf_track *t, struct raft *r);
// Before these entries are given to libraft: if it will roll back an uncommitted configuration and the
// committed one is not in its log any more, that is done here instead. 0, or RAFT_NOTFOUND / RAFT_NOMEM:
// libraft would crash.
int pms_conf_track_rollback(struct pms_conf_track *t, struct raft *r, const struct raft_append_entries *a);
void pms_conf_track_close(struct pms_conf_track *t);

#endif
