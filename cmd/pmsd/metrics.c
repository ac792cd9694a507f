// SPDX-License-Identifier: GPL-2.0-or-later
// This node's counters as Prometheus text.
#include "cmd/pmsd/metrics.h"
#include "base/buf.h"
#include "base/check.h"
#include "cmd/pmsd/local.h"

#include <inttypes.h>
#include <string.h>

static void head(struct pms_buf *b, const char *name, const char *type, const char *help)
{
    pms_buf_printf(b, "# HELP pms_%s %s\n# TYPE pms_%s %s\n", name, help, name, type);
}

static void one(struct pms_buf *b, const char *name, const char *type, const char *help, uint64_t value)
{
    head(b, name, type, help);
    pms_buf_printf(b, "pms_%s %" PRIu64 "\n", name, value);
}

static void node_metrics(struct pms_buf *b, struct pms_app *app)
{
    struct pms_raft_status st;

    one(b, "member", "gauge", "1 while this node is in a cluster", app->phase == PMS_APP_MEMBER);
    if (app->phase != PMS_APP_MEMBER || app->raft == NULL)
        return;
    pms_raft_status_get(app->raft, &st);
    one(b, "raft_leader", "gauge", "1 while this node is Raft leader", st.is_leader);
    one(b, "raft_term", "counter", "Raft term", st.term);
    one(b, "raft_index_applied", "counter", "index of the last applied Raft entry", st.index_applied);
    one(b, "transitions_proposed_total", "counter", "array transitions that this node proposed",
        app->transitions_proposed);
    one(b, "takeovers_total", "counter", "times that an array's primary moved to this node",
        app->takeovers_seen);
    one(b, "sessions_recorded_total", "counter", "logins recorded by this node", app->sessions_recorded);
}

static void loop_metrics(struct pms_buf *b, struct pms_loop *loop)
{
    struct pms_loop_stats s;

    pms_loop_stats_get(loop, &s);
    one(b, "frames_sent_total", "counter", "datapath frames sent", s.frames_sent);
    one(b, "frames_received_total", "counter", "datapath frames received", s.frames_received);
    one(b, "bytes_sent_total", "counter", "datapath bytes sent", s.bytes_sent);
    one(b, "bytes_received_total", "counter", "datapath bytes received", s.bytes_received);
    one(b, "checksum_errors_total", "counter", "garbled frames", s.checksum_errors);
    one(b, "links_dropped_total", "counter", "links closed for a fault of the peer or network",
        s.links_dropped);
    one(b, "loop_turns_total", "counter", "turns of the data loop", s.turns);
    one(b, "loop_turn_max_ns", "gauge", "longest turn of the data loop in the last second", s.turn_ns_max);
    one(b, "buffer_bytes", "gauge", "received payload in memory", s.buffer_bytes);
}

// One family: its value in each open array.
struct family {
    const char *name, *type, *help;
    uint64_t (*value)(const struct pms_local *a, const struct pms_loop_array_stats *s);
};

#define FAMILY(fn, expr)                                                                                     \
    static uint64_t fn(const struct pms_local *a, const struct pms_loop_array_stats *s)                      \
    {                                                                                                        \
        (void)a;                                                                                             \
        (void)s;                                                                                             \
        return expr;                                                                                         \
    }

FAMILY(f_epoch, a->info.epoch)
FAMILY(f_serving, pms_local_is_serving(a))
FAMILY(f_leased, s->dp.leased)
FAMILY(f_reads, s->dp.reads)
FAMILY(f_writes, s->dp.writes)
FAMILY(f_flushes, s->disk_flushes)
FAMILY(f_takeovers, a->takeovers)
FAMILY(f_holds, a->holds)
FAMILY(f_held, s->dp.ops_held)
FAMILY(f_active, s->dp.ops_active)
FAMILY(f_dirty, s->dp.dirty_regions)
FAMILY(f_resync_done, s->dp.resync_done)
FAMILY(f_resync_total, s->dp.resync_total)
FAMILY(f_resync_sent, s->dp.resync_sent)
FAMILY(f_disk_read, s->disk_read_bytes)
FAMILY(f_disk_written, s->disk_written_bytes)
FAMILY(f_disk_errors, s->disk_errors)
FAMILY(f_ring_ops, s->ring_ops)
FAMILY(f_restarts, a->at != NULL ? pms_at_restarts(a->at) : 0)

static const struct family families[] = {
    {"array_epoch", "gauge", "applied epoch", f_epoch},
    {"array_serving", "gauge", "1 while this node serves the array", f_serving},
    {"array_leased", "gauge", "1 while all promises that a read needs are held", f_leased},
    {"array_reads_total", "counter", "reads executed as primary", f_reads},
    {"array_writes_total", "counter", "writes executed as primary", f_writes},
    {"array_flushes_total", "counter", "flushes of the brick", f_flushes},
    {"array_takeovers_total", "counter", "times that the primary moved to this node", f_takeovers},
    {"array_address_holds_total", "counter", "times that the portal went off for want of a lease", f_holds},
    {"array_ops_held", "gauge", "commands that wait", f_held},
    {"array_ops_active", "gauge", "commands being executed", f_active},
    {"array_dirty_regions", "gauge", "regions that may differ between the copies", f_dirty},
    {"array_resync_done_bytes", "gauge", "looked at in the running resync", f_resync_done},
    {"array_resync_total_bytes", "gauge", "to be looked at in the running resync", f_resync_total},
    {"array_resync_sent_bytes", "gauge",
     "that differed and travelled to other copies since the array was opened", f_resync_sent},
    {"array_disk_read_bytes_total", "counter", "read from the brick", f_disk_read},
    {"array_disk_written_bytes_total", "counter", "written to the brick", f_disk_written},
    {"array_disk_errors_total", "counter", "I/O errors of the brick", f_disk_errors},
    {"array_ring_ops_total", "counter", "commands taken from the target", f_ring_ops},
    {"array_target_restarts_total", "counter", "times that tgtd was started again", f_restarts},
};

static void array_metrics(struct pms_buf *b, struct pms_app *app)
{
    struct pms_loop_array_stats s;

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        head(b, families[i].name, families[i].type, families[i].help);
        pms_list_for_each (it, &app->arrays) {
            const struct pms_local *a = pms_list_entry(it, struct pms_local, link);

            if (pms_loop_array_stats_get(app->data, a->info.id, &s) == 0)
                pms_buf_printf(b, "pms_%s{array=\"%s\"} %" PRIu64 "\n", families[i].name, a->info.name,
                               families[i].value(a, &s));
        }
    }
}

char *pms_metrics_text(struct pms_app *app)
{
    struct pms_buf b;

    pms_buf_init(&b);
    node_metrics(&b, app);
    if (app->phase == PMS_APP_MEMBER && app->data != NULL) {
        loop_metrics(&b, app->data);
        array_metrics(&b, app);
    }
    PMS_CHECK_MSG(b.data != NULL, "out of memory");
    return (char *)b.data; // pms_buf_printf ends it with NUL
}
