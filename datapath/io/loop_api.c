// SPDX-License-Identifier: GPL-2.0-or-later
// What any thread may call: each function packs a message for the data loop, or copies a snapshot.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "datapath/io/loop_internal.h"

static const struct pms_dp_timing no_timing;

static struct pms_msg *msg_new(enum pms_msg_type type, uint64_t array, uint64_t node)
{
    struct pms_msg *m = calloc(1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->type = type;
    m->array = array;
    m->node = node;
    m->fd[0] = m->fd[1] = m->fd[2] = -1;
    return m;
}

static int push(struct pms_loop *loop, struct pms_msg *m)
{
    if (m == NULL)
        return -ENOMEM;
    pms_queue_push(&loop->in, &m->item);
    return 0;
}

/* A message with a copy of brick, completed with what the loop knows. */
static struct pms_msg *msg_brick(struct pms_loop *loop, enum pms_msg_type type,
                                 const struct pms_loop_brick *brick)
{
    struct pms_msg *m = msg_new(type, brick->init.array, 0);
    struct pms_dp_init *init;

    if (m == NULL)
        return NULL;
    m->brick = malloc(sizeof *m->brick);
    if (m->brick == NULL) {
        free(m);
        return NULL;
    }
    *m->brick = *brick;
    init = &m->brick->init;
    init->cluster = loop->cluster;
    init->self_node = loop->config.self_node;
    if (init->boot_id == 0)
        init->boot_id = pms_id_random();
    if (init->fresh_incarnation == 0)
        init->fresh_incarnation = pms_id_random();
    if (init->volatile_bytes == 0)
        init->volatile_bytes = PMS_VOLATILE_BYTES;
    if (memcmp(&init->timing, &no_timing, sizeof no_timing) == 0)
        init->timing = pms_dp_timing_default;
    return m;
}

int pms_loop_brick_create(struct pms_loop *loop, const struct pms_loop_brick *brick, uint64_t incarnation,
                          bool all_dirty)
{
    struct pms_msg *m = msg_brick(loop, PMS_MSG_BRICK_CREATE, brick);

    if (m != NULL) {
        m->incarnation = incarnation;
        m->flag = all_dirty;
    }
    return push(loop, m);
}

int pms_loop_brick_delete(struct pms_loop *loop, const struct pms_loop_brick *brick)
{
    return push(loop, msg_brick(loop, PMS_MSG_BRICK_DELETE, brick));
}

int pms_loop_array_open(struct pms_loop *loop, const struct pms_loop_brick *brick)
{
    return push(loop, msg_brick(loop, PMS_MSG_ARRAY_OPEN, brick));
}

int pms_loop_array_close(struct pms_loop *loop, uint64_t array)
{
    return push(loop, msg_new(PMS_MSG_ARRAY_CLOSE, array, 0));
}

int pms_loop_conf(struct pms_loop *loop, uint64_t array, const struct pms_dp_conf *conf, bool live)
{
    struct pms_msg *m = msg_new(PMS_MSG_CONF, array, 0);

    if (m != NULL) {
        m->conf = *conf;
        m->flag = live;
    }
    return push(loop, m);
}

int pms_loop_handover(struct pms_loop *loop, uint64_t array, uint8_t slot)
{
    struct pms_msg *m = msg_new(PMS_MSG_HANDOVER, array, 0);

    if (m != NULL)
        m->slot = slot;
    return push(loop, m);
}

int pms_loop_leave(struct pms_loop *loop, uint64_t array)
{
    return push(loop, msg_new(PMS_MSG_LEAVE, array, 0));
}

int pms_loop_doubt(struct pms_loop *loop, uint64_t array, uint8_t slots)
{
    struct pms_msg *m = msg_new(PMS_MSG_DOUBT, array, 0);

    if (m != NULL)
        m->slot = slots;
    return push(loop, m);
}

int pms_loop_link_dialled(struct pms_loop *loop, uint64_t node, int fd_or_error, unsigned version)
{
    struct pms_msg *m = msg_new(PMS_MSG_LINK_DIALLED, 0, node);

    if (m != NULL) {
        m->fd[0] = fd_or_error;
        m->version = version;
    }
    return push(loop, m);
}

int pms_loop_link_accepted(struct pms_loop *loop, uint64_t node, int fd, unsigned version)
{
    struct pms_msg *m = msg_new(PMS_MSG_LINK_ACCEPTED, 0, node);

    if (m != NULL) {
        m->fd[0] = fd;
        m->version = version;
    }
    return push(loop, m);
}

int pms_loop_ring_attach(struct pms_loop *loop, uint64_t array, int memfd, int efd_sq, int efd_cq)
{
    struct pms_msg *m = msg_new(PMS_MSG_RING_ATTACH, array, 0);

    if (m != NULL) {
        m->fd[0] = memfd;
        m->fd[1] = efd_sq;
        m->fd[2] = efd_cq;
    }
    return push(loop, m);
}

int pms_loop_ring_detach(struct pms_loop *loop, uint64_t array)
{
    return push(loop, msg_new(PMS_MSG_RING_DETACH, array, 0));
}

/* ---- snapshots ---- */

int pms_loop_array_stats_get(struct pms_loop *loop, uint64_t array, struct pms_loop_array_stats *out)
{
    int rc = PMS_ENOTFOUND;

    pthread_mutex_lock(&loop->snap_lock);
    pms_list_for_each (it, &loop->arrays) {
        struct pms_array *a = pms_list_entry(it, struct pms_array, item);

        if (a->id == array && a->snap_valid) {
            *out = a->snap;
            rc = 0;
        }
    }
    pthread_mutex_unlock(&loop->snap_lock);
    return rc;
}

void pms_loop_stats_get(struct pms_loop *loop, struct pms_loop_stats *out)
{
    pthread_mutex_lock(&loop->snap_lock);
    *out = loop->snap;
    pthread_mutex_unlock(&loop->snap_lock);
}

void pms_loop_link_get(struct pms_loop *loop, uint64_t node, bool *own, bool *accepted)
{
    *own = false;
    *accepted = false;
    pthread_mutex_lock(&loop->snap_lock);
    for (unsigned i = 0; i < loop->snap_peers_n; i++) {
        if (loop->snap_peers[i].node == node) {
            *own = loop->snap_peers[i].own;
            *accepted = loop->snap_peers[i].accepted;
        }
    }
    pthread_mutex_unlock(&loop->snap_lock);
}
