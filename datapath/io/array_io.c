// SPDX-License-Identifier: GPL-2.0-or-later
// One array on the data loop: gives its events to the pure core and carries out the core's actions on disk,
// links and ring.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "datapath/io/loop_internal.h"

void pms_array_emit(struct pms_array *a, enum pms_loop_event_type type, int status)
{
    struct pms_loop_event ev = {.type = type, .status = status, .array = a->id};

    pms_loop_emit(a->loop, &ev);
}

/* ---- actions ---- */

static void act_propose(struct pms_array *a, const struct pms_dp_action *act)
{
    struct pms_loop_event ev = {.type = PMS_LOOP_EV_PROPOSE, .array = a->id};

    ev.propose.kind = act->propose.kind;
    ev.propose.epoch = act->propose.epoch;
    ev.propose.primary = act->propose.primary;
    ev.propose.in_sync = act->propose.in_sync;
    memcpy(ev.propose.incarnation, act->propose.incarnation, sizeof ev.propose.incarnation);
    pms_loop_emit(a->loop, &ev);
}

static void act_status(struct pms_array *a)
{
    struct pms_loop_event ev = {.type = PMS_LOOP_EV_STATUS, .array = a->id};
    bool primary;

    pms_dp_status_get(a->dp, pms_clock_boot_ns(), &ev.dp);
    pms_loop_emit(a->loop, &ev);
    primary = ev.dp.role != PMS_DP_REPLICA && ev.dp.role != PMS_DP_CANDIDATE;
    if (a->primary && !primary)
        pms_aring_fence(a);
    a->primary = primary;
}

static void act(struct pms_array *a, const struct pms_dp_action *x)
{
    switch (x->type) {
    case PMS_DP_ACT_SEND:
        pms_peers_send(&a->loop->peers, x->send.node, x->send.conn, &x->send.frame, x->buf, x->buf_off);
        break;
    case PMS_DP_ACT_DISK:
        pms_disk_submit(&a->disk, x->disk.type, x->disk.tag, x->disk.offset, x->disk.length, x->buf,
                        x->buf_off);
        break;
    case PMS_DP_ACT_COMPLETE:
        pms_aring_complete(x->op.op, x->op.status);
        break;
    case PMS_DP_ACT_DROP:
        pms_aring_drop(x->op.op);
        break;
    case PMS_DP_ACT_PROPOSE:
        act_propose(a, x);
        break;
    case PMS_DP_ACT_LINK_RESET:
        pms_peers_reset(&a->loop->peers, x->node);
        break;
    case PMS_DP_ACT_STATUS:
        act_status(a);
        break;
    }
}

/* None of the actions calls back into the dp: what they lead to comes as a later event. */
void pms_array_run(struct pms_array *a)
{
    struct pms_dp_action x;

    while (pms_dp_action_next(a->dp, &x))
        act(a, &x);
}

/* ---- events ---- */

/* A failed flush is told once and forgotten by the kernel: the next life of this process must know (R6). It blocks
 * the loop for a moment, once in a brick's life. */
static void fault_note(const struct pms_array *a)
{
    uint64_t salt = pms_id_random();
    int rc;

    if (a->fault_path[0] == '\0')
        return;
    rc = pms_file_write_atomic(a->fault_path, &salt, sizeof salt, 0600);
    if (rc != 0)
        pms_log(PMS_LOG_ERROR, "brick of array %s: %s cannot be written: %s", pms_log_hexid(a->id),
                a->fault_path, pms_err_text(rc));
}

static void on_disk_done(void *user, uint64_t tag, int status)
{
    struct pms_array *a = user;

    if (status < 0 && !a->brick_error_told) {
        a->brick_error_told = true;
        fault_note(a);
        pms_log(PMS_LOG_ERROR, "brick of array %s: %s", pms_log_hexid(a->id), pms_err_text(status));
        pms_array_emit(a, PMS_LOOP_EV_BRICK_ERROR, status);
    }
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_disk_done(a->dp, pms_clock_boot_ns(), tag, status);
    pms_array_run(a);
}

/* The dp takes frames: it is there and knows its peers. */
bool pms_array_ready(const struct pms_array *a)
{
    return a->state == PMS_ARRAY_OPEN && a->conf_known && a->conf.epoch > 0;
}

int pms_array_frame(struct pms_array *a, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf)
{
    int rc;
    rc = pms_dp_frame(a->dp, pms_clock_boot_ns(), node, conn, f, buf);
    pms_array_run(a);
    return rc;
}

void pms_array_tick(struct pms_array *a, uint64_t now)
{
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_tick(a->dp, now);
    pms_array_run(a);
}

void pms_array_handover(struct pms_array *a, uint8_t slot)
{
    struct pms_loop_event ev = {
        .type = PMS_LOOP_EV_HANDOVER, .array = a->id, .slot = slot, .status = PMS_ENOTFOUND};

    if (a->state == PMS_ARRAY_OPEN)
        ev.status = pms_dp_handover(a->dp, pms_clock_boot_ns(), slot);
    pms_loop_emit(a->loop, &ev);
    if (a->state == PMS_ARRAY_OPEN)
        pms_array_run(a);
}

void pms_array_leave(struct pms_array *a)
{
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_leave(a->dp, pms_clock_boot_ns());
    pms_array_run(a);
}

void pms_array_doubt(struct pms_array *a, uint8_t slots)
{
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_doubt(a->dp, pms_clock_boot_ns(), slots);
    pms_array_run(a);
}

/* The dp hears of links only to nodes that its conf names. */
static bool conf_names(const struct pms_array *a, uint64_t node)
{
    for (unsigned i = 0; a->conf_known && i < a->conf.n_slots; i++) {
        if (a->conf.node[i] == node && node != a->loop->config.self_node)
            return true;
    }
    return false;
}

void pms_array_link(struct pms_array *a, uint64_t node, bool up)
{
    unsigned i, room = PMS_SLOTS_MAX;

    if (a->state != PMS_ARRAY_OPEN)
        return;
    for (i = 0; i < PMS_SLOTS_MAX && a->up[i] != node; i++) {
        if (a->up[i] == 0)
            room = i;
    }
    if (up && i == PMS_SLOTS_MAX && room < PMS_SLOTS_MAX && conf_names(a, node)) {
        a->up[room] = node;
        pms_dp_link_up(a->dp, pms_clock_boot_ns(), node);
    } else if (!up && i < PMS_SLOTS_MAX) {
        a->up[i] = 0;
        pms_dp_link_down(a->dp, pms_clock_boot_ns(), node);
    }
    pms_array_run(a);
}

static void links_tell(struct pms_array *a)
{
    for (unsigned i = 0; i < PMS_SLOTS_MAX; i++) {
        if (a->up[i] != 0 && !conf_names(a, a->up[i]))
            pms_array_link(a, a->up[i], false);
    }
    for (unsigned i = 0; i < a->conf.n_slots; i++) {
        if (pms_peers_is_up(&a->loop->peers, a->conf.node[i]))
            pms_array_link(a, a->conf.node[i], true);
    }
}

void pms_array_conf(struct pms_array *a, const struct pms_dp_conf *conf, bool live)
{
    if (a->conf_known && conf->epoch < a->conf.epoch)
        return; /* the control loop may repeat itself */
    a->conf = *conf;
    a->conf.n_slots = conf->n_slots < PMS_SLOTS_MAX ? conf->n_slots : PMS_SLOTS_MAX;
    a->live |= live;
    a->conf_known = true;
    pms_loop_peers_update(a->loop);
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_conf(a->dp, pms_clock_boot_ns(), &a->conf, live);
    pms_array_run(a);
    links_tell(a);
    if (pms_array_ready(a))
        pms_peers_lost_reset(&a->loop->peers, a->id);
}

/* ---- life ---- */

struct pms_array *pms_array_find(struct pms_loop *loop, uint64_t id)
{
    pms_list_for_each (it, &loop->arrays) {
        struct pms_array *a = pms_list_entry(it, struct pms_array, item);

        if (a->id == id)
            return a;
    }
    return NULL;
}

struct pms_array *pms_array_create(struct pms_loop *loop, struct pms_loop_brick *brick)
{
    struct pms_array *a = calloc(1, sizeof *a);
    PMS_CHECK_MSG(a != NULL, "out of memory");
    a->loop = loop;
    a->id = brick->init.array;
    a->size_bytes = brick->init.size_bytes;
    memcpy(a->fault_path, brick->fault_path, sizeof a->fault_path);
    a->fd = -1;
    pms_list_init(&a->old_rings);
    pthread_mutex_lock(&loop->snap_lock);
    pms_list_add_tail(&loop->arrays, &a->item);
    pthread_mutex_unlock(&loop->snap_lock);
    a->job = pms_job_start(loop, PMS_JOB_OPEN, brick, 0, false, &a->open_status);
    if (a->job == NULL)
        a->state = PMS_ARRAY_DEAD;
    return a;
}

void pms_array_opened(struct pms_array *a, struct pms_job *job)
{
    struct pms_loop_event ev = {.type = PMS_LOOP_EV_ARRAY_OPEN, .array = a->id};
    struct pms_dp_status status;

    PMS_CHECK(a->job == job && (a->state == PMS_ARRAY_OPENING || a->state == PMS_ARRAY_CLOSING));
    a->job = NULL;
    if (job->status != 0) {
        a->state = PMS_ARRAY_DEAD;
        a->open_status = job->status;
        return;
    }
    a->dp = job->dp;
    a->fd = job->file.fd;
    a->direct = job->file.direct;
    pms_disk_init(&a->disk, &a->loop->uring, a->fd, on_disk_done, a);
    if (a->state == PMS_ARRAY_CLOSING)
        return;
    a->state = PMS_ARRAY_OPEN;
    pms_dp_status_get(a->dp, pms_clock_boot_ns(), &status);
    ev.incarnation = status.incarnation; /* of an unclean brick another one than the superblock's */
    pms_loop_emit(a->loop, &ev);
    pms_array_run(a);
    if (a->conf_known) {
        struct pms_dp_conf conf = a->conf;

        pms_array_conf(a, &conf, a->live);
    }
}

void pms_array_close(struct pms_array *a)
{
    a->close_told = true;
    if (a->state == PMS_ARRAY_OPENING)
        atomic_store(&a->job->cancel, true);
    if (a->state == PMS_ARRAY_OPENING || a->state == PMS_ARRAY_OPEN)
        a->state = PMS_ARRAY_CLOSING;
    if (a->ring != NULL || a->attach_pending)
        pms_aring_detach(a);
}

static void array_free(struct pms_array *a)
{
    struct pms_loop *loop = a->loop;

    pthread_mutex_lock(&loop->snap_lock);
    pms_list_del(&a->item);
    pthread_mutex_unlock(&loop->snap_lock);
    if (a->open_status != 0)
        pms_array_emit(a, PMS_LOOP_EV_ARRAY_OPEN, a->open_status);
    if (a->close_told)
        pms_array_emit(a, PMS_LOOP_EV_ARRAY_CLOSED, 0);
    free(a);
    pms_loop_peers_update(loop);
}

void pms_array_settle(struct pms_array *a)
{
    if (a->state == PMS_ARRAY_CLOSING && a->job == NULL && a->disk.inflight == 0) {
        if (a->dp != NULL) {
            pms_dp_destroy(a->dp);
            pms_aring_abandon(a);
            close(a->fd);
        }
        a->dp = NULL;
        a->state = PMS_ARRAY_DEAD;
    }
    pms_aring_settle(a);
    if (a->state == PMS_ARRAY_DEAD && pms_aring_idle(a))
        array_free(a);
}

void pms_array_snap(struct pms_array *a, uint64_t now)
{
    struct pms_loop_array_stats *s = &a->snap;

    memset(s, 0, sizeof *s);
    a->snap_valid = a->state == PMS_ARRAY_OPEN;
    if (a->state != PMS_ARRAY_OPEN)
        return;
    pms_dp_status_get(a->dp, now, &s->dp);
    s->conf = *pms_dp_conf_get(a->dp);
    s->direct = a->direct;
    s->disk_reads = a->disk.reads;
    s->disk_writes = a->disk.writes;
    s->disk_flushes = a->disk.flushes;
    s->disk_read_bytes = a->disk.read_bytes;
    s->disk_written_bytes = a->disk.written_bytes;
    s->disk_errors = a->disk.errors;
    s->ring_ops = a->ring_ops;
    pms_aring_snap(a, s);
}
