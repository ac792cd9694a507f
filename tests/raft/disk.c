// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated disk: writes become stable in order, some time after they were submitted; a crash loses the
// rest. Term and vote are written synchronously, as raft_uv does.
#include "base/check.h"
#include "tests/raft/sim.h"
#include <stdlib.h>
#include <string.h>

enum write_kind { WRITE_APPEND, WRITE_TRUNCATE, WRITE_SNAPSHOT };

struct sim_write {
    struct pms_list list;
    enum write_kind kind;
    uint64_t due;
    struct raft_io_append *append;
    struct sim_entry *entries;
    unsigned n;
    raft_index index; // truncation
    struct raft_io_snapshot_put *put;
    struct sim_snapshot *snapshot;
    unsigned trailing;
};

static void *copy_of(const void *data, size_t len)
{
    void *copy = malloc(len != 0 ? len : 1);

    PMS_CHECK(copy != NULL);
    if (len != 0)
        memcpy(copy, data, len);
    return copy;
}

static void configuration_copy(const struct raft_configuration *from, struct raft_configuration *to)
{
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n; i++)
        PMS_CHECK(raft_configuration_add(to, from->servers[i].id, from->servers[i].address,
                                         from->servers[i].role) == 0);
}

void sim_disk_init(struct sim_disk *disk)
{
    memset(disk, 0, sizeof *disk);
    disk->start = 1;
    disk->log = calloc(SIM_COMMANDS, sizeof *disk->log);
    PMS_CHECK(disk->log != NULL);
    pms_list_init(&disk->writes);
}

int sim_disk_bootstrap(struct sim_disk *disk, const struct raft_configuration *conf)
{
    struct raft_buffer buf;

    if (disk->term != 0)
        return RAFT_CANTBOOTSTRAP;
    PMS_CHECK(raft_configuration_encode(conf, &buf) == 0);
    disk->term = 1;
    disk->n = 1;
    disk->log[0] = (struct sim_entry){
        .term = 1, .type = RAFT_CHANGE, .len = buf.len, .data = copy_of(buf.base, buf.len)};
    raft_free(buf.base);
    return 0;
}

struct raft_entry *sim_entries_make(const struct sim_entry *from, size_t n)
{
    struct raft_entry *entries;
    size_t total = 0;
    char *batch;

    if (n == 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        total += from[i].len;
    entries = raft_malloc(n * sizeof *entries);
    batch = raft_malloc(total);
    PMS_CHECK(entries != NULL && batch != NULL);
    for (size_t i = 0, at = 0; i < n; at += from[i].len, i++) {
        entries[i].term = from[i].term;
        entries[i].type = from[i].type;
        entries[i].buf.base = batch + at;
        entries[i].buf.len = from[i].len;
        entries[i].batch = batch;
        memcpy(batch + at, from[i].data, from[i].len);
    }
    return entries;
}

struct raft_snapshot *sim_snapshot_copy(const struct sim_snapshot *from)
{
    struct raft_snapshot *to = raft_malloc(sizeof *to);

    PMS_CHECK(to != NULL);
    to->index = from->index;
    to->term = from->term;
    configuration_copy(&from->configuration, &to->configuration);
    to->configuration_index = from->configuration_index;
    to->n_bufs = 1;
    to->bufs = raft_malloc(sizeof *to->bufs);
    PMS_CHECK(to->bufs != NULL);
    to->bufs[0].len = from->len;
    to->bufs[0].base = raft_malloc(from->len);
    PMS_CHECK(to->bufs[0].base != NULL);
    memcpy(to->bufs[0].base, from->data, from->len);
    return to;
}

void sim_disk_load(const struct sim_disk *disk, struct raft_snapshot **snapshot, struct raft_entry **entries)
{
    *snapshot = disk->snapshot != NULL ? sim_snapshot_copy(disk->snapshot) : NULL;
    *entries = sim_entries_make(disk->log, disk->n);
}

// Most writes take a few ms after the one before; one in twenty stalls.
static void write_submit(struct sim_node *node, struct sim_write *w)
{
    struct sim *sim = node->sim;
    struct pms_list *writes = &node->disk.writes;
    uint64_t last = sim->now;
    unsigned takes = sim_random(sim, 20) == 0 ? 30 + sim_random(sim, 200) : 1 + sim_random(sim, 8);

    if (!pms_list_empty(writes)) {
        const struct sim_write *tail = pms_list_entry(writes->prev, struct sim_write, list);

        if (tail->due > last)
            last = tail->due;
    }
    w->due = last + takes;
    pms_list_add_tail(writes, &w->list);
}

static struct sim_write *write_new(enum write_kind kind)
{
    struct sim_write *w = calloc(1, sizeof *w);

    PMS_CHECK(w != NULL);
    w->kind = kind;
    return w;
}

static bool fails(struct sim_node *node)
{
    return node->sim->disks_fail && sim_random(node->sim, 4000) == 0;
}

int sim_disk_set_term(struct sim_node *node, raft_term term)
{
    if (fails(node))
        return RAFT_IOERR;
    node->disk.term = term;
    node->disk.vote = 0;
    return 0;
}

int sim_disk_set_vote(struct sim_node *node, raft_id id)
{
    if (fails(node))
        return RAFT_IOERR;
    node->disk.vote = id;
    return 0;
}

int sim_disk_append(struct sim_node *node, struct raft_io_append *req, const struct raft_entry *entries,
                    unsigned n)
{
    struct sim_write *w;

    if (fails(node))
        return RAFT_IOERR;
    w = write_new(WRITE_APPEND);
    w->append = req;
    w->n = n;
    w->entries = calloc(n, sizeof *w->entries);
    PMS_CHECK(w->entries != NULL);
    for (unsigned i = 0; i < n; i++)
        w->entries[i] = (struct sim_entry){.term = entries[i].term,
                                           .type = entries[i].type,
                                           .len = entries[i].buf.len,
                                           .data = copy_of(entries[i].buf.base, entries[i].buf.len)};
    write_submit(node, w);
    return 0;
}

int sim_disk_truncate(struct sim_node *node, raft_index index)
{
    struct sim_write *w;

    if (fails(node))
        return RAFT_IOERR;
    w = write_new(WRITE_TRUNCATE);
    w->index = index;
    write_submit(node, w);
    return 0;
}

int sim_disk_put(struct sim_node *node, unsigned trailing, struct raft_io_snapshot_put *req,
                 const struct raft_snapshot *snapshot)
{
    struct sim_write *w;
    struct sim_snapshot *s;
    char *at;

    if (fails(node))
        return RAFT_IOERR;
    w = write_new(WRITE_SNAPSHOT);
    s = calloc(1, sizeof *s);
    PMS_CHECK(s != NULL);
    s->index = snapshot->index;
    s->term = snapshot->term;
    configuration_copy(&snapshot->configuration, &s->configuration);
    s->configuration_index = snapshot->configuration_index;
    for (unsigned i = 0; i < snapshot->n_bufs; i++)
        s->len += snapshot->bufs[i].len;
    s->data = at = malloc(s->len);
    PMS_CHECK(at != NULL);
    for (unsigned i = 0; i < snapshot->n_bufs; at += snapshot->bufs[i].len, i++)
        memcpy(at, snapshot->bufs[i].base, snapshot->bufs[i].len);
    w->put = req;
    w->snapshot = s;
    w->trailing = trailing;
    write_submit(node, w);
    return 0;
}

// A snapshot that we took leaves `trailing` entries before its index; one from a leader replaces everything.
static void snapshot_stable(struct sim_disk *disk, const struct sim_write *w)
{
    raft_index index = w->snapshot->index;
    raft_index keep;
    size_t drop;

    disk->snapshot = w->snapshot;
    if (w->trailing == 0) {
        disk->n = 0;
        disk->start = index + 1;
        return;
    }
    keep = index > w->trailing ? index - w->trailing + 1 : 1;
    if (keep <= disk->start)
        return;
    drop = keep - disk->start < disk->n ? (size_t)(keep - disk->start) : disk->n;
    memmove(disk->log, disk->log + drop, (disk->n - drop) * sizeof *disk->log);
    disk->n -= drop;
    disk->start += drop;
}

static void write_stable(struct sim_node *node, const struct sim_write *w)
{
    struct sim_disk *disk = &node->disk;

    switch (w->kind) {
    case WRITE_APPEND:
        if (disk->n + w->n > SIM_COMMANDS)
            sim_fail(node->sim, "the simulated log is full");
        memcpy(disk->log + disk->n, w->entries, w->n * sizeof *w->entries);
        disk->n += w->n;
        break;
    case WRITE_TRUNCATE:
        if (w->index < disk->start)
            disk->n = 0;
        else if (w->index - disk->start < disk->n)
            disk->n = (size_t)(w->index - disk->start);
        break;
    case WRITE_SNAPSHOT:
        snapshot_stable(disk, w);
        break;
    }
}

bool sim_disk_step(struct sim_node *node)
{
    struct pms_list *writes = &node->disk.writes;
    struct sim_write *w;
    int status;

    if (pms_list_empty(writes))
        return false;
    w = pms_list_entry(writes->next, struct sim_write, list);
    if (w->due > node->sim->now)
        return false;
    pms_list_del(&w->list);
    status = node->disk.broken || (w->kind != WRITE_TRUNCATE && fails(node)) ? RAFT_IOERR : 0;
    if (status == 0 && !node->disk.broken)
        write_stable(node, w);
    else
        node->disk.broken = true;
    if (w->kind == WRITE_APPEND)
        w->append->cb(w->append, status);
    else if (w->kind == WRITE_SNAPSHOT)
        w->put->cb(w->put, status);
    free(w);
    return true;
}

void sim_disk_crash(struct sim_node *node)
{
    struct pms_list *writes = &node->disk.writes;

    while (!node->disk.broken && !pms_list_empty(writes) && sim_random(node->sim, 3) != 0)
        write_stable(node, pms_list_entry(pms_list_pop(writes), struct sim_write, list));
    pms_list_init(writes);
    node->disk.broken = false;
}
