// SPDX-License-Identifier: GPL-2.0-or-later
// Membership configurations in the log: decoding, copying, what a log shows of them at start, and which one
// is the last committed.
//
// An entry's payload: u8 format (1), u64 count, and for each server u64 id, address with NUL, u8 role; zero
// padding.
#include "consensus/raft/guard_conf.h"
#include "base/wire.h"
#include <string.h>

#define FORMAT 1

int pms_conf_decode(const struct raft_buffer *buf, struct raft_configuration *conf)
{
    struct pms_rd r = pms_rd_over(buf->base, buf->len);
    uint8_t format = pms_rd_u8(&r);
    uint64_t n = pms_rd_u64(&r);
    int rv = format == FORMAT && r.err == 0 ? 0 : RAFT_MALFORMED;

    raft_configuration_init(conf);
    for (uint64_t i = 0; rv == 0 && i < n; i++) {
        uint64_t id = pms_rd_u64(&r);
        const char *address = (const char *)r.p;
        size_t len = strnlen(address, pms_rd_left(&r));
        uint8_t role;

        pms_rd_skip(&r, len + 1);
        role = pms_rd_u8(&r);
        rv = r.err == 0 ? raft_configuration_add(conf, id, address, role) : RAFT_MALFORMED;
    }
    if (rv != 0) {
        raft_configuration_close(conf);
        raft_configuration_init(conf);
    }
    return rv;
}

int pms_conf_copy(const struct raft_configuration *from, struct raft_configuration *to)
{
    int rv = 0;

    raft_configuration_init(to);
    for (unsigned i = 0; rv == 0 && i < from->n; i++)
        rv = raft_configuration_add(to, from->servers[i].id, from->servers[i].address, from->servers[i].role);
    if (rv != 0) {
        raft_configuration_close(to);
        raft_configuration_init(to);
    }
    return rv;
}

struct raft_server *pms_conf_server(struct raft_configuration *conf, raft_id id)
{
    for (unsigned i = 0; i < conf->n; i++)
        if (conf->servers[i].id == id)
            return &conf->servers[i];
    return NULL;
}

bool pms_conf_is_sole_voter(const struct raft_configuration *conf, raft_id id)
{
    bool self = false;

    for (unsigned i = 0; i < conf->n; i++) {
        if (conf->servers[i].role != RAFT_VOTER)
            continue;
        if (conf->servers[i].id != id)
            return false;
        self = true;
    }
    return self;
}

// Takes conf over as the newest one.
static void history_push(struct pms_conf_history *h, const struct raft_configuration *conf, raft_index index)
{
    raft_configuration_close(&h->before);
    h->before = h->last;
    h->before_index = h->last_index;
    h->last = *conf;
    h->last_index = index;
}

int pms_conf_history_read(const struct raft_snapshot *snapshot, raft_index start,
                          const struct raft_entry *entries, size_t n, struct pms_conf_history *h)
{
    struct raft_configuration conf;
    int rv = 0;

    memset(h, 0, sizeof *h);
    raft_configuration_init(&h->last);
    raft_configuration_init(&h->before);
    if (snapshot != NULL) {
        rv = pms_conf_copy(&snapshot->configuration, &conf);
        if (rv == 0)
            history_push(h, &conf, snapshot->configuration_index);
    }
    for (size_t i = 0; rv == 0 && i < n; i++) {
        if (entries[i].type != RAFT_CHANGE ||
            start + i <= h->last_index) // the snapshot's, or older than that
            continue;
        rv = pms_conf_decode(&entries[i].buf, &conf);
        if (rv == 0)
            history_push(h, &conf, start + i);
    }
    if (rv != 0)
        pms_conf_history_close(h);
    return rv;
}

void pms_conf_history_close(struct pms_conf_history *h)
{
    raft_configuration_close(&h->last);
    raft_configuration_close(&h->before);
    memset(h, 0, sizeof *h);
}

// ---- the log

const struct raft_entry *pms_log_entry_at(const struct raft_log *log, raft_index index)
{
    size_t n;

    if (log->size == 0)
        return NULL;
    n = (log->back + log->size - log->front) % log->size;
    if (index <= log->offset || index > log->offset + n)
        return NULL;
    return &log->entries[(log->front + (size_t)(index - log->offset - 1)) % log->size];
}

raft_term pms_log_term_at(const struct raft_log *log, raft_index index)
{
    const struct raft_entry *entry = pms_log_entry_at(log, index);

    if (entry != NULL)
        return entry->term;
    return index != 0 && index == log->snapshot.last_index ? log->snapshot.last_term : 0;
}

// ---- the committed configuration

static void committed_set(struct pms_conf_track *t, const struct raft_configuration *conf, raft_index index)
{
    raft_configuration_close(&t->committed);
    t->committed = *conf;
    t->committed_index = index;
}

void pms_conf_track_load(struct pms_conf_track *t, struct pms_conf_history *h, raft_index surely_committed)
{
    if (h->last_index > surely_committed && h->before_index != 0) {
        t->restart_uncommitted = h->last_index;
        committed_set(t, &h->before, h->before_index);
        raft_configuration_init(&h->before);
    } else if (h->last_index != 0) {
        committed_set(t, &h->last, h->last_index);
        raft_configuration_init(&h->last);
    }
}

void pms_conf_track_started(struct pms_conf_track *t, struct raft *r)
{
    raft_index index = t->restart_uncommitted;

    t->restart_uncommitted = 0;
    if (index == 0 || r->configuration_index != index || r->last_applied >= index)
        return;
    r->configuration_uncommitted_index = index;
    r->configuration_index = t->committed_index;
}

void pms_conf_track_follow(struct pms_conf_track *t, struct raft *r)
{
    const struct raft_entry *entry;
    struct raft_configuration conf;

    // A snapshot that was installed covers what was uncommitted.
    if (r->configuration_uncommitted_index != 0 && r->configuration_uncommitted_index <= r->last_applied)
        r->configuration_uncommitted_index = 0;
    if (r->configuration_index == t->committed_index || r->configuration_index == 0)
        return;
    if (r->configuration_uncommitted_index == 0) {
        if (pms_conf_copy(&r->configuration, &conf) == 0)
            committed_set(t, &conf, r->configuration_index);
        return;
    }
    entry = pms_log_entry_at(&r->log, r->configuration_index);
    if (entry != NULL && pms_conf_decode(&entry->buf, &conf) == 0)
        committed_set(t, &conf, r->configuration_index);
}

// The index from which on these entries make libraft truncate its log, 0 if they do not.
static raft_index truncation_by(const struct raft *r, const struct raft_append_entries *a)
{
    if (a->term < r->current_term)
        return 0;
    if (a->prev_log_index != 0 && pms_log_term_at(&r->log, a->prev_log_index) != a->prev_log_term)
        return 0;
    for (unsigned i = 0; i < a->n_entries; i++) {
        raft_term term = pms_log_term_at(&r->log, a->prev_log_index + 1 + i);

        if (term == 0)
            return 0;
        if (term != a->entries[i].term)
            return a->prev_log_index + 1 + i;
    }
    return 0;
}

int pms_conf_track_rollback(struct pms_conf_track *t, struct raft *r, const struct raft_append_entries *a)
{
    struct raft_configuration conf;
    raft_index from = r->configuration_uncommitted_index != 0 ? truncation_by(r, a) : 0;
    int rv;

    if (from == 0 || from > r->configuration_uncommitted_index || from <= r->commit_index)
        return 0;
    if (pms_log_entry_at(&r->log, r->configuration_index) != NULL)
        return 0;
    if (t->committed_index != r->configuration_index)
        return RAFT_NOTFOUND;
    rv = pms_conf_copy(&t->committed, &conf);
    if (rv != 0)
        return rv;
    raft_configuration_close(&r->configuration);
    r->configuration = conf;
    r->configuration_uncommitted_index = 0;
    return 0;
}

void pms_conf_track_close(struct pms_conf_track *t)
{
    raft_configuration_close(&t->committed);
    memset(t, 0, sizeof *t);
}
