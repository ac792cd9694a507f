// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Block commands to the ring and back: the reduction of SCSI's many commands to READ, WRITE, ZERO and FLUSH.
 *
 *   READ, WRITE, SYNCHRONIZE CACHE   one ring command, straight from and to the command's own buffer
 *   WRITE AND VERIFY                 WRITE with FUA, then (BYTCHK 1) compared
 *   VERIFY                           read into the scratch buffer, piece by piece, and (BYTCHK 1) compared
 *   WRITE SAME of zeros              ZERO, piece by piece: nothing but its range travels
 *   WRITE SAME of anything else      the scratch buffer filled with the block, written piece by piece
 *   PRE-FETCH                        nothing to do: there is no cache
 *
 * The scratch buffer belongs to one command at a time; the others wait. A command whose connection has closed
 * or that was aborted stops between its pieces.
 */
#include "target/plugin/plugin.h"

#include <string.h>

static uint64_t block_count(struct scsi_cmd *cmd)
{
    return scsi_rw_count(cmd->scb);
}

static void scratch_start(struct pms_task *t)
{
    struct scsi_cmd *cmd = t->cmd;
    uint32_t at, block = 1u << PMS_BLOCK_SHIFT, fill;

    plug.scratch_owner = t;
    t->waits = PMS_WAIT_NO;
    if (t->io == PMS_IO_FILL) {
        /* One block repeated. Not a copy of a payload: that is the one block. */
        fill = t->left < PMS_SCRATCH_BYTES ? (uint32_t)t->left : PMS_SCRATCH_BYTES;
        for (at = 0; at < fill; at += block)
            memcpy(plug.scratch + at, scsi_get_out_buffer(cmd), block);
    }
    pms_io_step(t);
}

static void scratch_want(struct pms_task *t)
{
    if (!plug.scratch_owner) {
        scratch_start(t);
        return;
    }
    t->waits = PMS_WAIT_SCRATCH;
    list_add_tail(&t->wait, &plug.scratch_wait);
}

void pms_io_scratch_drop(struct pms_task *t)
{
    struct pms_task *next;

    if (t->waits == PMS_WAIT_SCRATCH) {
        list_del_init(&t->wait);
        t->waits = PMS_WAIT_NO;
        return;
    }
    plug.scratch_owner = NULL;
    if (list_empty(&plug.scratch_wait))
        return;
    next = list_first_entry(&plug.scratch_wait, struct pms_task, wait);
    list_del_init(&next->wait);
    scratch_start(next);
}

/* Submits the command's next piece, or puts it in line if pmsd may not get it now. */
void pms_io_step(struct pms_task *t)
{
    enum pms_ring_op op = PMS_RING_READ;
    uint64_t arena_off = plug.scratch_off;
    unsigned flags = 0;
    int rc;

    switch (t->io) {
    case PMS_IO_ONE:
    case PMS_IO_WRITE_COMPARE:
        op = (enum pms_ring_op)t->ring_op;
        flags = t->ring_flags;
        arena_off = t->arena_off;
        t->chunk = (uint32_t)t->left;
        break;
    case PMS_IO_ZERO:
        op = PMS_RING_ZERO;
        arena_off = 0;
        t->chunk = PMS_RING_IO_MAX - (uint32_t)(t->offset % PMS_RING_IO_MAX);
        if (t->chunk > t->left)
            t->chunk = (uint32_t)t->left;
        break;
    case PMS_IO_FILL:
        op = PMS_RING_WRITE;
        flags = PMS_RING_FUA;
        /* fall through */
    default:
        t->chunk = t->left < PMS_SCRATCH_BYTES ? (uint32_t)t->left : PMS_SCRATCH_BYTES;
    }
    if (!plug.serve) {
        pms_gate_wait(t, PMS_WAIT_SLOT);
        return;
    }
    rc = pms_ring_submit(plug.ring, op, flags, op == PMS_RING_FLUSH ? 0 : t->offset, t->chunk, arena_off,
                         (uint64_t)(uintptr_t)t, NULL);
    if (rc == 0) {
        t->in_ring = true;
        return;
    }
    if (rc == -EAGAIN) {
        pms_gate_wait(t, PMS_WAIT_SLOT);
        return;
    }
    pms_plug_log("the ring refuses op %d at %llu, %u bytes: %d", op, (unsigned long long)t->offset, t->chunk,
                 rc);
    pms_gate_finish(t, SAM_STAT_CHECK_CONDITION, HARDWARE_ERROR, ASC_INTERNAL_TGT_FAILURE);
}

/* Begins a ring command (or a row of them) for cmd; the answer comes later. */
static void io_begin(struct scsi_cmd *cmd, enum pms_task_io io, uint64_t offset, uint64_t length)
{
    struct pms_task *t = pms_task_of_cmd(cmd);

    set_cmd_async(cmd);
    t->io = (uint8_t)io;
    t->offset = offset;
    t->left = length;
    t->done = 0;
    if (io == PMS_IO_ONE || io == PMS_IO_WRITE_COMPARE || io == PMS_IO_ZERO)
        pms_io_step(t);
    else
        scratch_want(t);
    pms_ring_submit_kick(plug.ring);
}

static int io_one(struct scsi_cmd *cmd, enum pms_task_io io, enum pms_ring_op op, unsigned flags, void *buf,
                  uint64_t length)
{
    struct pms_task *t = pms_task_of_cmd(cmd);

    t->ring_op = (uint8_t)op;
    t->ring_flags = (uint8_t)flags;
    t->arena_off = 0;
    if (op != PMS_RING_FLUSH) {
        if (length == 0)
            return 0; /* nothing to transfer: GOOD at once */
        if (!pms_ring_buf_offset(plug.ring, buf, &t->arena_off))
            return -EINVAL;
    }
    io_begin(cmd, io, cmd->offset, length);
    return 0;
}

/* bs_cmd_submit: tgtd has checked range and residuals, and set cmd->offset and cmd->tl (bytes). */
int pms_io_submit(struct scsi_cmd *cmd)
{
    uint8_t op = cmd->scb[0];
    unsigned flags = op != READ_6 && op != WRITE_6 && (cmd->scb[1] & 0x08) ? PMS_RING_FUA : 0;
    uint64_t block = 1u << PMS_BLOCK_SHIFT, length;

    switch (op) {
    case READ_6:
    case READ_10:
    case READ_12:
    case READ_16:
        length = min_t(uint32_t, cmd->tl, scsi_get_in_length(cmd));
        return io_one(cmd, PMS_IO_ONE, PMS_RING_READ, flags, scsi_get_in_buffer(cmd), roundup(length, block));
    case WRITE_6:
    case WRITE_10:
    case WRITE_12:
    case WRITE_16:
        /* Only whole blocks are written if the initiator sends less than it says in the CDB. */
        length = min_t(uint32_t, cmd->tl, scsi_get_out_length(cmd)) & ~(block - 1);
        return io_one(cmd, PMS_IO_ONE, PMS_RING_WRITE, flags, scsi_get_out_buffer(cmd), length);
    case WRITE_VERIFY:
    case WRITE_VERIFY_12:
    case WRITE_VERIFY_16:
        length = min_t(uint32_t, cmd->tl, scsi_get_out_length(cmd)) & ~(block - 1);
        return io_one(cmd, (cmd->scb[1] & 0x06) == 0x02 ? PMS_IO_WRITE_COMPARE : PMS_IO_ONE, PMS_RING_WRITE,
                      PMS_RING_FUA, scsi_get_out_buffer(cmd), length);
    case SYNCHRONIZE_CACHE:
    case SYNCHRONIZE_CACHE_16:
        return io_one(cmd, PMS_IO_ONE, PMS_RING_FLUSH, 0, NULL, 0);
    case PRE_FETCH_10:
    case PRE_FETCH_16:
        return 0;
    default:
        return -EINVAL;
    }
}

static int illegal(struct scsi_cmd *cmd, uint16_t asc)
{
    scsi_set_in_resid_by_actual(cmd, 0);
    scsi_set_out_resid_by_actual(cmd, 0);
    sense_data_build(cmd, ILLEGAL_REQUEST, asc);
    return SAM_STAT_CHECK_CONDITION;
}

/* The range that the CDB names, checked. 0 blocks are allowed if the start is on the medium. */
static int range_check(struct scsi_cmd *cmd, uint64_t *offset, uint64_t *length)
{
    uint64_t lba = scsi_rw_offset(cmd->scb), n = block_count(cmd), size = plug.lu->size >> PMS_BLOCK_SHIFT;

    if (lba >= size || n > size - lba)
        return illegal(cmd, ASC_LBA_OUT_OF_RANGE);
    *offset = lba << PMS_BLOCK_SHIFT;
    *length = n << PMS_BLOCK_SHIFT;
    return SAM_STAT_GOOD;
}

/* READ, WRITE, WRITE AND VERIFY of any size: no longer than VPD B0 says; the rest is tgtd's own check. */
int pms_io_rw(int host_no, struct scsi_cmd *cmd)
{
    if (block_count(cmd) << PMS_BLOCK_SHIFT > plug.hello.io_bytes_max)
        return illegal(cmd, ASC_INVALID_FIELD_IN_CDB);
    return plug.sbc_rw(host_no, cmd);
}

/* VERIFY(10, 12, 16), SBC-4 5.36: tgtd's own answers GOOD without looking if BYTCHK is 0, and checks no
 * range. */
int pms_io_verify(int host_no, struct scsi_cmd *cmd)
{
    unsigned bytchk = cmd->scb[1] & 0x06;
    uint64_t offset, length;
    int status;

    (void)host_no;
    if (device_reserved(cmd))
        return SAM_STAT_RESERVATION_CONFLICT;
    if ((cmd->scb[1] & 0xe0) || bytchk > 0x02)
        return illegal(cmd, ASC_INVALID_FIELD_IN_CDB);
    status = range_check(cmd, &offset, &length);
    if (status != SAM_STAT_GOOD)
        return status;
    if (length > plug.hello.io_bytes_max)
        return illegal(cmd, ASC_INVALID_FIELD_IN_CDB);
    if (bytchk) {
        if (length != scsi_get_out_length(cmd))
            scsi_set_out_resid_by_actual(cmd, (uint32_t)length);
        length = min_t(uint64_t, length, scsi_get_out_length(cmd)) & ~((1ull << PMS_BLOCK_SHIFT) - 1);
    }
    if (length)
        io_begin(cmd, bytchk ? PMS_IO_COMPARE : PMS_IO_VERIFY, offset, length);
    return SAM_STAT_GOOD;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* WRITE SAME(10, 16), SBC-4 5.48: no UNMAP, ANCHOR, protection, LBDATA; at most PMS_SAME_BLOCKS, never 0
 * (WSNZ). */
int pms_io_write_same(int host_no, struct scsi_cmd *cmd)
{
    bool ndob = cmd->scb[0] == WRITE_SAME_16 && (cmd->scb[1] & 0x01);
    uint32_t block = 1u << PMS_BLOCK_SHIFT, out = scsi_get_out_length(cmd);
    uint64_t n = block_count(cmd), offset, length;
    int status;

    (void)host_no;
    if (device_reserved(cmd))
        return SAM_STAT_RESERVATION_CONFLICT;
    if ((cmd->scb[1] & 0xfe) || n == 0 || n > PMS_SAME_BLOCKS)
        return illegal(cmd, ASC_INVALID_FIELD_IN_CDB);
    if (out != (ndob ? 0 : block))
        return illegal(cmd, ASC_PARAMETER_LIST_LENGTH_ERR);
    if (plug.lu->attrs.swp || plug.lu->attrs.readonly) {
        sense_data_build(cmd, DATA_PROTECT, ASC_WRITE_PROTECT);
        return SAM_STAT_CHECK_CONDITION;
    }
    status = range_check(cmd, &offset, &length);
    if (status == SAM_STAT_GOOD)
        io_begin(cmd, ndob || is_zero(scsi_get_out_buffer(cmd), block) ? PMS_IO_ZERO : PMS_IO_FILL, offset,
                 length);
    return status;
}

/* A piece has been read into the scratch buffer: is it what the initiator sent? */
static bool compare(struct pms_task *t)
{
    const uint8_t *want = (uint8_t *)scsi_get_out_buffer(t->cmd) + t->done;
    uint32_t i;

    if (memcmp(want, plug.scratch, t->chunk) == 0)
        return true;
    for (i = 0; want[i] == plug.scratch[i]; i++)
        ;
    sense_data_build_with_info(t->cmd, MISCOMPARE, ASC_MISCOMPARE_DURING_VERIFY_OPERATION, t->done + i);
    return false;
}

static void on_completion(const struct pms_ring_cpl *cpl)
{
    struct pms_task *t = (struct pms_task *)(uintptr_t)cpl->cookie;

    t->in_ring = false;
    if (cpl->status != SAM_STAT_GOOD) {
        pms_gate_finish(t, cpl->status, cpl->key, (uint16_t)(cpl->asc << 8 | cpl->ascq));
        return;
    }
    if (t->io == PMS_IO_COMPARE && !compare(t)) {
        pms_gate_finish(t, SAM_STAT_CHECK_CONDITION, MISCOMPARE, ASC_MISCOMPARE_DURING_VERIFY_OPERATION);
        return;
    }
    if (t->io == PMS_IO_WRITE_COMPARE) {
        t->io = PMS_IO_COMPARE;
        if (pms_task_dead(t))
            pms_gate_finish(t, SAM_STAT_TASK_ABORTED, 0, 0);
        else
            scratch_want(t);
        return;
    }
    t->done += t->chunk;
    t->offset += t->chunk;
    t->left -= t->chunk;
    if (t->left == 0)
        pms_gate_finish(t, SAM_STAT_GOOD, 0, 0);
    else if (pms_task_dead(t))
        pms_gate_finish(t, SAM_STAT_TASK_ABORTED, 0, 0);
    else
        pms_io_step(t);
}

void pms_io_reap(void)
{
    struct pms_ring_cpl cpl[64];
    int n, i;

    if (plug.answers_held)
        return;
    do {
        n = pms_ring_reap(plug.ring, cpl, (int)(sizeof(cpl) / sizeof(cpl[0])));
        for (i = 0; i < n; i++)
            on_completion(&cpl[i]);
    } while (n > 0 || (n == 0 && pms_ring_reap_arm(plug.ring)));
    if (n < 0)
        pms_plug_log("the ring is broken by pmsd: commands stay unanswered until this tgtd is replaced");
    if (plug.waiting)
        pms_gate_pump();
    pms_ring_submit_kick(plug.ring);
}
