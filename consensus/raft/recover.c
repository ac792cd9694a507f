// SPDX-License-Identifier: GPL-2.0-or-later
// The Raft log of a node that is stopped, through libraft's own I/O table, without a struct raft.
//
// libraft writes the configuration as an entry of term 1, whatever terms are before it. That is no harm here:
// the guard begins a new term for a node that is the only voter, before it writes anything, and other nodes get
// this log from its beginning or by a snapshot, never by comparing it with one of their own (pmsctl recover
// --follow empties theirs).
#include "consensus/raft/recover.h"
#include "base/check.h"
#include "base/err.h"
#include "base/id.h"
#include "base/log.h"
#include "consensus/raft/guard_internal.h"
#include "consensus/raft/node_internal.h"
#include <stdlib.h>

struct offline {
    uv_loop_t loop;
    struct raft_uv_transport transport;
    struct raft_io io;
    bool closed;
};

// ---- A transport that goes nowhere.

static int nowhere_init(struct raft_uv_transport *t, raft_id id, const char *address)
{
    (void)t;
    (void)id;
    (void)address;
    return 0;
}

static int nowhere_listen(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
    (void)t;
    (void)cb;
    return 0;
}

static int nowhere_connect(struct raft_uv_transport *t, struct raft_uv_connect *req, raft_id id,
                           const char *address, raft_uv_connect_cb cb)
{
    (void)t;
    (void)req;
    (void)id;
    (void)address;
    (void)cb;
    return RAFT_NOCONNECTION;
}

static void nowhere_close(struct raft_uv_transport *t, raft_uv_transport_close_cb cb)
{
    cb(t);
}

// ---- Open and close.

static int fail(const struct offline *o, const char *dir, int rv)
{
    pms_log(PMS_LOG_ERROR, "the Raft log in %s: %s", dir,
            o->io.errmsg[0] != '\0' ? o->io.errmsg : raft_strerror(rv));
    return pms_raft_err(rv);
}

static void on_closed(struct raft_io *io)
{
    struct offline *o = io->data;

    o->closed = true;
}

static void offline_close(struct offline *o)
{
    o->io.data = o;
    o->io.close(&o->io, on_closed);
    while (!o->closed)
        uv_run(&o->loop, UV_RUN_ONCE);
    raft_uv_close(&o->io);
    uv_run(&o->loop, UV_RUN_DEFAULT);
    PMS_CHECK_MSG(uv_loop_close(&o->loop) == 0, "a handle was left open");
}

static int offline_open(struct offline *o, const char *dir, uint64_t id)
{
    char address[PMS_ID_TEXT_SIZE];
    int rv;

    *o = (struct offline){.transport = {.init = nowhere_init,
                                        .listen = nowhere_listen,
                                        .connect = nowhere_connect,
                                        .close = nowhere_close}};
    rv = uv_loop_init(&o->loop);
    if (rv != 0)
        return rv;
    rv = raft_uv_init(&o->io, &o->loop, dir, &o->transport);
    if (rv != 0) {
        uv_loop_close(&o->loop);
        return fail(o, dir, rv);
    }
    raft_uv_set_auto_recovery(&o->io, false);
    rv = o->io.init(&o->io, id, pms_id_format(id, address));
    if (rv != 0) {
        rv = fail(o, dir, rv);
        offline_close(o);
    }
    return rv;
}

// ---- Reading.

struct loaded {
    raft_term term;
    raft_id voted_for;
    struct raft_snapshot *snapshot;
    raft_index start;
    struct raft_entry *entries;
    size_t n;
};

static int members_read(const struct loaded *l, struct pms_raft_log_info *info)
{
    struct pms_conf_history h;
    int rv = pms_conf_history_read(l->snapshot, l->start, l->entries, l->n, &h);

    for (unsigned i = 0; rv == 0 && i < h.last.n; i++) {
        if (i == sizeof info->members / sizeof info->members[0]) {
            rv = RAFT_MALFORMED;
            break;
        }
        info->members[i].id = h.last.servers[i].id;
        info->members[i].role = pms_raft_role_of(h.last.servers[i].role);
        info->members_n = i + 1;
    }
    if (rv == 0)
        pms_conf_history_close(&h);
    return pms_raft_err(rv);
}

static int replay(const struct loaded *l, const struct pms_raft_log_reader *reader)
{
    const char *data;
    size_t len;
    int rv = 0;

    if (l->snapshot != NULL) {
        rv = l->snapshot->n_bufs == 1 ? pms_raft_payload_unwrap(&l->snapshot->bufs[0], &data, &len)
                                      : PMS_ECORRUPT;
        if (rv == 0)
            rv = reader->restore(reader->data, data, len);
    }
    for (size_t i = 0; rv == 0 && i < l->n; i++) {
        uint64_t index = l->start + i;
        char *result = NULL;

        if (l->entries[i].type != RAFT_COMMAND || (l->snapshot != NULL && index <= l->snapshot->index))
            continue;
        rv = pms_raft_payload_unwrap(&l->entries[i].buf, &data, &len);
        if (rv == 0)
            rv = reader->apply(reader->data, data, len, index, &result);
        free(result);
    }
    return rv;
}

int pms_raft_log_read(const char *dir, uint64_t id, const struct pms_raft_log_reader *reader,
                      struct pms_raft_log_info *info)
{
    struct loaded l = {0};
    struct offline o;
    int rv = offline_open(&o, dir, id);

    if (rv != 0)
        return rv;
    rv = o.io.load(&o.io, &l.term, &l.voted_for, &l.snapshot, &l.start, &l.entries, &l.n);
    if (rv != 0) {
        rv = fail(&o, dir, rv);
        goto out;
    }
    *info = (struct pms_raft_log_info){.term = l.term, .index_last = l.start + l.n - 1};
    if (l.n > 0)
        info->term_last = l.entries[l.n - 1].term;
    else if (l.snapshot != NULL)
        info->term_last = l.snapshot->term;
    rv = members_read(&l, info);
    if (rv == 0)
        rv = replay(&l, reader);
    if (rv != 0)
        pms_log(PMS_LOG_ERROR, "the Raft log in %s cannot be used: %s", dir, pms_err_text(rv));
    pms_guard_loaded_free(&l.snapshot, &l.entries, &l.n);
out:
    offline_close(&o);
    return rv;
}

int pms_raft_log_recover(const char *dir, uint64_t id)
{
    struct raft_configuration conf;
    char address[PMS_ID_TEXT_SIZE];
    struct offline o;
    int rv = offline_open(&o, dir, id);

    if (rv != 0)
        return rv;
    raft_configuration_init(&conf);
    rv = raft_configuration_add(&conf, id, pms_id_format(id, address), RAFT_VOTER);
    if (rv == 0)
        rv = o.io.recover(&o.io, &conf);
    raft_configuration_close(&conf);
    if (rv != 0)
        rv = fail(&o, dir, rv);
    offline_close(&o);
    return rv;
}
