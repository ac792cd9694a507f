// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The gate: which command of the array's LUN may run now, and the one place where commands end.
 *
 *   arrives -> runs -> ends                            the gate is open and nobody waits
 *   arrives -> waits in line -> runs -> ends           the gate is closed, or others wait, or ORDERED
 *   arrives -> waits in line -> ends (TASK ABORTED)    aborted, or its connection closed, before it ran
 *
 * Every operation of the LUN is wrapped, so that commands are held, never failed, while pmsd is away or is
 * not the primary. tgtd sees SIMPLE commands only: its own queue of ORDERED ones frees an aborted command
 * that is still in the queue, so the order is kept here (an ORDERED command runs alone; HEAD OF QUEUE
 * overtakes).
 */
#include "target/plugin/plugin.h"

/* Runs the command's operation. If it answered at once (not cmd_async) that is the status returned. */
static int dispatch(struct pms_task *t)
{
    struct scsi_cmd *cmd = t->cmd;

    t->waits = PMS_WAIT_NO;
    t->running = true;
    plug.running++;
    if (t->attribute == MSG_ORDERED_TAG)
        plug.ordered_running = true;
    clear_cmd_async(cmd);
    return plug.ops[cmd->scb[0]](t->host_no, cmd);
}

static void not_running(struct pms_task *t)
{
    if (!t->running)
        return;
    t->running = false;
    plug.running--;
    if (t->attribute == MSG_ORDERED_TAG)
        plug.ordered_running = false;
}

static bool must_wait(const struct pms_task *t)
{
    if (!plug.serve || plug.ordered_running)
        return true;
    if (t->attribute == MSG_HEAD_TAG)
        return false;
    return !list_empty(&plug.wait) || (t->attribute == MSG_ORDERED_TAG && plug.running > 0);
}

void pms_gate_wait(struct pms_task *t, enum pms_task_wait why)
{
    set_cmd_async(t->cmd);
    t->waits = (uint8_t)why;
    if (t->attribute == MSG_HEAD_TAG)
        list_add(&t->wait, &plug.wait);
    else
        list_add_tail(&t->wait, &plug.wait);
    pms_ring_held_set(plug.ring, ++plug.waiting);
}

static void leave_line(struct pms_task *t)
{
    list_del_init(&t->wait);
    pms_ring_held_set(plug.ring, --plug.waiting);
}

/* A command for which there is no room (SAM-5 5.3.1), or that is too long: its data went into the sink. */
static int refuse(struct pms_task *t)
{
    struct scsi_cmd *cmd = t->cmd;

    scsi_set_in_resid_by_actual(cmd, 0);
    scsi_set_out_resid_by_actual(cmd, 0);
    if (t->refused)
        return t->refused;
    sense_data_build(cmd, ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_CDB);
    return SAM_STAT_CHECK_CONDITION;
}

/* Stands in the LUN's table for every operation that it supports. */
static int gate_perform(int host_no, struct scsi_cmd *cmd)
{
    struct pms_task *t = pms_task_of_cmd(cmd);
    int rc;

    t->cmd = cmd;
    t->host_no = host_no;
    if (t->refused || scsi_get_in_buffer(cmd) == plug.sink || scsi_get_out_buffer(cmd) == plug.sink)
        return refuse(t);
    if (must_wait(t)) {
        pms_gate_wait(t, PMS_WAIT_GATE);
        return SAM_STAT_GOOD;
    }
    rc = dispatch(t);
    if (!cmd_async(cmd)) {
        not_running(t);
        if (plug.waiting)
            pms_gate_pump_soon();
    }
    return rc;
}

/* Stands for target_cmd_perform: hides the task attribute from tgtd. */
static int lu_perform(int tid, struct scsi_cmd *cmd)
{
    pms_task_of_cmd(cmd)->attribute = cmd->attribute;
    cmd->attribute = MSG_SIMPLE_TAG;
    return plug.lu_perform(tid, cmd);
}

void pms_gate_finish(struct pms_task *t, int status, uint8_t key, uint16_t asc)
{
    struct scsi_cmd *cmd = t->cmd;

    if (plug.scratch_owner == t || t->waits == PMS_WAIT_SCRATCH)
        pms_io_scratch_drop(t);
    if (status != SAM_STAT_GOOD) {
        scsi_set_in_resid_by_actual(cmd, 0);
        if (status == SAM_STAT_CHECK_CONDITION && cmd->sense_len == 0)
            sense_data_build(cmd, key, asc);
    }
    not_running(t);
    target_cmd_io_done(cmd, status);
    /* t may be gone. */
    if (!list_empty(&plug.logins))
        pms_login_drained();
    if (plug.waiting)
        pms_gate_pump_soon();
}

/* What waits for nobody any more ends here, without having run (or without running on). */
static void drop_dead(void)
{
    struct pms_task *t, *next;

    list_for_each_entry_safe(t, next, &plug.wait, wait)
    {
        if (!pms_task_dead(t))
            continue;
        leave_line(t);
        pms_gate_finish(t, SAM_STAT_TASK_ABORTED, 0, 0);
    }
    list_for_each_entry_safe(t, next, &plug.scratch_wait, wait)
    {
        if (pms_task_dead(t))
            pms_gate_finish(t, SAM_STAT_TASK_ABORTED, 0, 0);
    }
}

void pms_gate_pump(void)
{
    struct pms_task *t;
    struct scsi_cmd *cmd;
    int rc;

    drop_dead();
    while (plug.serve && !list_empty(&plug.wait)) {
        t = list_first_entry(&plug.wait, struct pms_task, wait);
        cmd = t->cmd;
        if (t->waits == PMS_WAIT_SLOT) {
            if (pms_ring_outstanding(plug.ring) >= PMS_RING_SLOTS_DEFAULT)
                break; /* a reaped answer brings us back */
            leave_line(t);
            t->waits = PMS_WAIT_NO;
            pms_io_step(t);
            continue;
        }
        if (plug.ordered_running || (t->attribute == MSG_ORDERED_TAG && plug.running > 0))
            break;
        leave_line(t);
        rc = dispatch(t);
        if (!cmd_async(cmd))
            pms_gate_finish(t, rc, 0, 0);
    }
    if (plug.ring)
        pms_ring_submit_kick(plug.ring);
}

static void on_pump(struct event_data *event)
{
    (void)event;
    if (!plug.lu)
        return;
    pms_login_closed_flush();
    pms_gate_pump();
}

void pms_gate_pump_soon(void)
{
    if (!plug.pump_event.sched_handler)
        tgt_init_sched_event(&plug.pump_event, on_pump, NULL);
    tgt_add_sched_event(&plug.pump_event);
}

void pms_gate_serve(bool on)
{
    plug.serve = on;
    if (on)
        pms_gate_pump();
}

/* Writes that tgtd's own table forgets in its check against a Write Exclusive reservation. */
static void conflict_bits(struct device_type_operations *ops)
{
    static const uint8_t writes[] = {WRITE_SAME,   WRITE_SAME_16,   UNMAP,
                                     WRITE_VERIFY, WRITE_VERIFY_12, WRITE_VERIFY_16};
    size_t i;

    for (i = 0; i < sizeof(writes); i++)
        ops[writes[i]].pr_conflict_bits = ops[WRITE_16].pr_conflict_bits;
}

void pms_gate_install(struct scsi_lu *lu)
{
    /* FORMAT UNIT does nothing in tgtd yet answers GOOD; ORWRITE and COMPARE AND WRITE are not atomic here.
     */
    static const uint8_t off[] = {FORMAT_UNIT, UNMAP, ORWRITE_16, COMPARE_AND_WRITE};
    static const uint8_t verify[] = {VERIFY_10, VERIFY_12, VERIFY_16};
    static const uint8_t rw[] = {READ_6,   READ_10,  READ_12,      READ_16,         WRITE_6,        WRITE_10,
                                 WRITE_12, WRITE_16, WRITE_VERIFY, WRITE_VERIFY_12, WRITE_VERIFY_16};
    struct device_type_operations *ops = lu->dev_type_template.ops;
    struct service_action *in16;
    int i;

    for (i = 0; i < (int)sizeof(off); i++)
        ops[off[i]].cmd_perform = spc_illegal_op;
    conflict_bits(ops);
    /* GET LBA STATUS seeks in a file that is not there: READ CAPACITY(16) is all that stays. */
    in16 = find_service_action(ops[SERVICE_ACTION_IN].service_actions, SAI_READ_CAPACITY_16);
    if (in16) {
        plug.service_in16[0] = *in16;
        plug.service_in16[1] = (struct service_action){0, NULL};
        ops[SERVICE_ACTION_IN].service_actions = plug.service_in16;
    }
    for (i = 0; i < NR_SCSI_OPCODES; i++) {
        plug.ops[i] = ops[i].cmd_perform;
        if (ops[i].cmd_perform != spc_illegal_op)
            ops[i].cmd_perform = gate_perform;
    }
    plug.sbc_rw = plug.ops[WRITE_16];
    for (i = 0; i < (int)sizeof(rw); i++)
        if (plug.ops[rw[i]] == plug.sbc_rw) /* the others are not supported by this tgtd */
            plug.ops[rw[i]] = pms_io_rw;
    for (i = 0; i < (int)sizeof(verify); i++)
        plug.ops[verify[i]] = pms_io_verify;
    plug.ops[WRITE_SAME] = plug.ops[WRITE_SAME_16] = pms_io_write_same;
    plug.lu_perform = lu->cmd_perform;
    lu->cmd_perform = lu_perform;
}
