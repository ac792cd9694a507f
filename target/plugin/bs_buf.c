// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tasks and data buffers: payloads live in the ring's arena from the socket on, so that nobody copies them.
 *
 * The length in a command's header is the initiator's word. Up to 4 MiB it gets an arena buffer. If the arena
 * is full, or its session holds too much of it (share.h), or the length is beyond what VPD B0 allows, the command
 * is refused (TASK SET FULL or BUSY, ILLEGAL REQUEST), but its Data-Out still arrives: it goes into the sink, one
 * small memfd mapped over and over across 2 GiB of addresses, which costs the same memory whatever is declared.
 * Data-Out positions are the initiator's word too: each read is checked.
 */
#include "target/plugin/plugin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SINK_WINDOW (2ull << 30)
#define SINK_BYTES  (4u << 20)

int pms_buf_init(void)
{
    uint8_t *base;
    uint64_t at;
    int rc = 0, fd = memfd_create("pms-sink", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, SINK_BYTES) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    base = mmap(NULL, SINK_WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        rc = -errno;
    for (at = 0; rc == 0 && at < SINK_WINDOW; at += SINK_BYTES)
        if (mmap(base + at, SINK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            rc = -errno;
    close(fd);
    if (rc == 0)
        plug.sink = base;
    else if (base != MAP_FAILED)
        munmap(base, SINK_WINDOW);
    return rc;
}

/* The task whose buffer tgtd asks for right after it asked for the task itself. */
static struct pms_task *task_new;

static void refuse_as(struct pms_task *t, enum pms_share_verdict verdict)
{
    t->refused = verdict == PMS_SHARE_BUSY ? SAM_STAT_BUSY : SAM_STAT_TASK_SET_FULL;
}

struct iscsi_task *pms_buf_task_alloc(struct iscsi_connection *conn, size_t ext_len)
{
    uint16_t who = conn->session->tsih;
    enum pms_share_verdict verdict;
    struct pms_task *t;

    /* tgtd does not check the command window: an initiator that ignores it would fill the memory. */
    verdict = pms_share_task_begin(&plug.shares, who);
    if (verdict == PMS_SHARE_CLOSE) {
        pms_plug_log("%u requests of initiator %s are unanswered, and %u in all: closing its connection",
                     plug.shares.of[who].tasks, conn->session->initiator, plug.shares.all.tasks);
        return NULL;
    }
    t = calloc(1, sizeof(*t) + sizeof(struct iscsi_task) + ext_len);
    if (!t) {
        pms_share_task_end(&plug.shares, who);
        return NULL;
    }
    INIT_LIST_HEAD(&t->wait);
    t->who = who;
    if (verdict != PMS_SHARE_OK)
        refuse_as(t, verdict);
    task_new = t;
    /* Abort requests are looked for once tgtd has executed them. */
    if ((conn->req.bhs.opcode & ISCSI_OPCODE_MASK) == ISCSI_OP_SCSI_TMFUNC)
        pms_gate_pump_soon();
    return (struct iscsi_task *)(t + 1);
}

/* tgtd frees a task's buffers right before the task. */
void pms_buf_task_free(struct iscsi_task *task)
{
    struct pms_task *t;

    /* NOP-In requests are allocated by tgtd's own function, whatever the transport says. */
    if (task_opcode(task) == ISCSI_OP_NOOP_IN) {
        plug.tcp_orig.free_task(task);
        return;
    }
    if (task_opcode(task) == ISCSI_OP_LOGOUT && task->conn && task->conn->state != STATE_CLOSE)
        plug.logout_conn = task->conn; /* its answer is out; conn_close follows in this same turn */
    t = pms_task_of(task);
    pms_share_arena_give(&plug.shares, t->who, t->arena_held);
    pms_share_control_give(&plug.shares, t->who, t->control_held);
    pms_share_task_end(&plug.shares, t->who);
    free(t);
}

static bool is_our_lun(struct iscsi_connection *conn)
{
    return plug.lu && scsi_get_devid(plug.lu->tgt->lid, conn->req.bhs.lun) == plug.lu->lun;
}

static void *control_alloc(struct iscsi_connection *conn, struct pms_task *t, size_t len)
{
    void *p = NULL;

    len = roundup(len, (size_t)16); /* tgtd forgets the padding of NOP-Out data, and reads it */
    if (len > PMS_CONTROL_BYTES || !pms_share_control_take(&plug.shares, t->who, (uint32_t)len)) {
        pms_plug_log("no buffer of %zu bytes for initiator %s, which holds %u: closing its connection", len,
                     conn->session->initiator, plug.shares.of[t->who].control);
        return NULL;
    }
    if (posix_memalign(&p, 4096, len) != 0) {
        pms_share_control_give(&plug.shares, t->who, (uint32_t)len);
        return NULL;
    }
    t->control_held += (uint32_t)len;
    memset(p, 0, len);
    return p;
}

/* A buffer of the arena, or the sink, and then the task is refused. */
static void *arena_alloc(struct pms_task *t, size_t len)
{
    uint32_t held = (uint32_t)roundup(len, (size_t)PMS_RING_PAGE);
    void *p = NULL;

    if (!t->refused && pms_share_arena_may(&plug.shares, t->who, held, plug.arena_bytes))
        p = pms_ring_buf_alloc(plug.ring, len);
    if (!p) {
        if (!t->refused)
            refuse_as(t, pms_share_refusal(&plug.shares, t->who));
        return plug.sink;
    }
    pms_share_arena_take(&plug.shares, t->who, held);
    t->arena_held += held;
    return p;
}

void *pms_buf_alloc(struct iscsi_connection *conn, size_t len)
{
    struct pms_task *t = conn->rx_task ? pms_task_of(conn->rx_task) : task_new;
    void *p;

    /* rx_task is set: the second buffer of a bidirectional command, none of which we support. */
    if (conn->rx_task || (conn->req.bhs.opcode & ISCSI_OPCODE_MASK) != ISCSI_OP_SCSI_CMD || !is_our_lun(conn))
        return control_alloc(conn, t, len);
    if (len > SINK_WINDOW)
        return NULL; /* the sum overflowed in tgtd: drop the connection */
    if (len > PMS_RING_IO_MAX)
        return plug.sink;
    p = arena_alloc(t, len);
    if (p == plug.sink)
        return p;
    /* Answers to commands such as INQUIRY are short; what an earlier command left there must not leak. */
    if (!scsi_is_io_opcode(((struct iscsi_cmd *)&conn->req.bhs)->cdb[0]))
        memset(p, 0, len < PMS_RING_PAGE ? len : PMS_RING_PAGE);
    return p;
}

void pms_buf_free(struct iscsi_connection *conn, void *buf)
{
    uint64_t off;

    (void)conn;
    if (!buf || buf == plug.sink)
        return;
    if (plug.ring && pms_ring_buf_offset(plug.ring, buf, &off))
        pms_ring_buf_free(plug.ring, buf);
    else
        free(buf);
}

/* The declared length of a task's buffer, as tgtd computed it. */
static size_t task_buf_len(struct iscsi_task *task)
{
    struct iscsi_cmd *req = (struct iscsi_cmd *)&task->req;
    size_t imm = roundup(ntoh24(req->dlength), 4u);
    size_t len = task_opcode(task) == ISCSI_OP_SCSI_CMD ? roundup((size_t)ntohl(req->data_length), 4u) : 0;

    return imm > len ? imm : len;
}

/* Do len bytes at p lie within size bytes at base? */
static bool inside(const void *p, size_t len, const void *base, size_t size)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)base;

    return base && at >= from && at - from <= size && len <= size - (at - from);
}

/*
 * tgtd puts Data-Out where the initiator says, and an additional header segment of any PDU where the last
 * one went, unchecked. While a task's PDU is read, bytes may go to the connection's own fields, to the task's
 * buffer, or to the room for its header segments; anything else is answered like an end of file, which closes
 * the connection.
 */
size_t pms_buf_read(struct iscsi_connection *conn, void *buf, size_t len)
{
    struct iscsi_task *task = conn->rx_task;

    if (conn->state == STATE_SCSI && task && !inside(buf, len, conn, sizeof(*conn)) &&
        !inside(buf, len, task->data, task_buf_len(task)) &&
        !inside(buf, len, task->ahs, (size_t)task->req.hlength * 4)) {
        pms_plug_log("initiator %s sent data outside its command's buffer: closing",
                     conn->session->initiator);
        return 0;
    }
    return plug.tcp_orig.ep_read(conn, buf, len);
}
