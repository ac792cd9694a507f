// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the plugin's files share: one tgtd serves one array, so there is one struct pms_plug.
 *
 * Everything runs in tgtd's single thread, inside its event loop; there are no locks and no threads, and
 * nothing here blocks except the first HELLO, which has a timeout. Files: bs_pms.c (loading, hooks), bs_buf.c
 * (tasks and data buffers), bs_gate.c (which command may run now), bs_io.c (commands to the ring and back),
 * bs_session.c and bs_login.c (sessions, logins), bs_link.c (the socket to pmsd), bs_identity.c (what the LUN
 * says of itself).
 */
#ifndef PMS_TARGET_PLUGIN_PLUGIN_H
#define PMS_TARGET_PLUGIN_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <list.h>
#include <util.h>
#include <tgtd.h>
#include <target.h>
#include <driver.h>
#include <scsi.h>
#include <spc.h>
#include <iscsid.h>

#include "datapath/io/ring.h"
#include "target/plugin/proto.h"
#include "target/plugin/share.h"

#define PMS_SESSIONS_LIMIT 512          /* sessions here; pmsd's own limit is lower */
#define PMS_SCRATCH_BYTES  (256u << 10) /* for VERIFY and WRITE SAME, one command at a time */
#define PMS_SAME_BLOCKS    65536u       /* MAXIMUM WRITE SAME LENGTH in blocks */
#define PMS_CONTROL_BYTES  (256u << 10) /* longest buffer outside the arena: other LUNs, NOP-Out */
#define PMS_BLOCK_SHIFT    9

#define pms_plug_log(fmt, ...) fprintf(stderr, "bs_pms: " fmt "\n", ##__VA_ARGS__)

enum pms_task_wait { PMS_WAIT_NO = 0, PMS_WAIT_GATE, PMS_WAIT_SLOT, PMS_WAIT_SCRATCH };
enum pms_task_io {
    PMS_IO_ONE,
    PMS_IO_WRITE_COMPARE,
    PMS_IO_COMPARE,
    PMS_IO_VERIFY,
    PMS_IO_FILL,
    PMS_IO_ZERO
};

/* Ours, in front of every iscsi_task that tgtd allocates. */
struct pms_task {
    struct list_head wait; /* on plug.wait or plug.scratch_wait */
    struct scsi_cmd *cmd;
    int host_no;
    int attribute;   /* the initiator's task attribute; tgtd itself sees SIMPLE only */
    uint8_t waits;   /* enum pms_task_wait */
    uint8_t io;      /* enum pms_task_io */
    uint8_t ring_op; /* of PMS_IO_ONE */
    uint8_t ring_flags;
    uint8_t refused; /* SAM status that it ends with at once; 0: none */
    bool running;    /* counted in plug.running */
    bool in_ring;
    uint16_t who;          /* its session in plug.shares */
    uint32_t arena_held;   /* bytes counted there */
    uint32_t control_held; /* bytes counted there */
    uint64_t offset;       /* next byte on the medium */
    uint64_t left;         /* bytes to go */
    uint64_t done;         /* bytes gone, position in the Data-Out buffer for compare */
    uint64_t arena_off;    /* of the command's own buffer */
    uint32_t chunk;        /* bytes of the ring command in flight */
} __attribute__((aligned(16)));

struct pms_sess {
    struct list_head siblings;
    struct iscsi_session *session; /* we hold one reference: it outlives its connections */
    bool committed;                /* pmsd has said so: it is in Raft */
    uint32_t ping_cmd_sn;          /* ExpCmdSN when tgtd last wanted to send a NOP-In */
    char peer[PMS_PLUG_ADDR_LEN];  /* of its last connection */
};

struct pms_login {
    struct list_head siblings;
    struct iscsi_connection *conn; /* NULL: gone while we waited */
    struct pms_sess *sess;
    uint64_t cookie;
    uint16_t req_tsih; /* host order, as the initiator sent it */
    bool known;
    bool answered; /* LOGIN_RSP is there; the login may still wait for old commands to end */
    uint16_t status, tsih;
    char peer[PMS_PLUG_ADDR_LEN], local[PMS_PLUG_ADDR_LEN];
};

enum pms_link_state { PMS_LINK_OFF, PMS_LINK_DOWN, PMS_LINK_HELLO, PMS_LINK_UP };

struct pms_plug {
    /* tgtd's own, and copies of what we replaced */
    struct iscsi_transport *tcp, tcp_orig;
    struct tgt_driver *driver;
    int (*lu_perform)(int tid, struct scsi_cmd *cmd);
    int (*ops[256])(int host_no, struct scsi_cmd *cmd); /* what runs behind the gate */
    int (*sbc_rw)(int host_no, struct scsi_cmd *cmd);   /* tgtd's checks of range and residuals */
    struct service_action service_in16[2];

    struct scsi_lu *lu; /* the array; NULL: not open */
    int tid;
    struct pms_ring *ring;
    uint64_t array_id;
    uint32_t arena_bytes;
    struct pms_plug_hello_ok hello; /* as last accepted */
    uint8_t *sink;                  /* where refused Data-Out goes */

    /* gate */
    bool serve;
    bool answers_held;     /* pmsd was lost and has not opened the gate since: nothing may be answered */
    struct list_head wait; /* struct pms_task in order of arrival */
    uint64_t waiting;
    unsigned running;     /* commands between dispatch and answer */
    bool ordered_running; /* an ORDERED command is alone */
    struct event_data pump_event;

    /* I/O */
    uint8_t *scratch;
    uint64_t scratch_off;
    struct pms_task *scratch_owner;
    struct list_head scratch_wait;

    struct pms_shares shares;

    /* sessions */
    struct list_head sessions, logins, closed;
    unsigned sessions_n;
    uint64_t cookie_next;
    struct iscsi_connection *logout_conn;
    int import_status;
    unsigned imported;

    /* link */
    enum pms_link_state link;
    int sock, timer;
    unsigned hello_ticks, lost_ticks; /* turns of the timer since the last HELLO, since pmsd was lost */
    unsigned orphan_ms;
    uint32_t connects;
    char sock_path[108];
    char build_id[48];
};

extern struct pms_plug plug;

static inline struct iscsi_task *pms_iscsi_task(struct scsi_cmd *cmd)
{
    return container_of(cmd, struct iscsi_task, scmd);
}
static inline struct pms_task *pms_task_of(struct iscsi_task *task)
{
    return (struct pms_task *)task - 1;
}
static inline struct pms_task *pms_task_of_cmd(struct scsi_cmd *cmd)
{
    return pms_task_of(pms_iscsi_task(cmd));
}
/* Nobody will read the answer, or the initiator has asked to abort it: what has not begun must not begin. */
static inline bool pms_task_dead(struct pms_task *t)
{
    return t->cmd->mreq || pms_iscsi_task(t->cmd)->conn->state == STATE_CLOSE;
}

/* bs_buf.c */
int pms_buf_init(void); /* makes the sink; 0 or -errno */
struct iscsi_task *pms_buf_task_alloc(struct iscsi_connection *conn, size_t ext_len);
void pms_buf_task_free(struct iscsi_task *task);
void *pms_buf_alloc(struct iscsi_connection *conn, size_t len);
void pms_buf_free(struct iscsi_connection *conn, void *buf);
size_t pms_buf_read(struct iscsi_connection *conn, void *buf, size_t len);

/* bs_gate.c */
void pms_gate_install(struct scsi_lu *lu);
void pms_gate_serve(bool on);
void pms_gate_pump(void);
void pms_gate_pump_soon(void);
void pms_gate_wait(struct pms_task *t, enum pms_task_wait why);
/* The command's end: answers it; t may be gone afterwards. asc is ASC << 8 | ASCQ, used with CHECK CONDITION.
 */
void pms_gate_finish(struct pms_task *t, int status, uint8_t key, uint16_t asc);

/* bs_io.c */
int pms_io_submit(struct scsi_cmd *cmd); /* bs_cmd_submit */
int pms_io_rw(int host_no, struct scsi_cmd *cmd);
int pms_io_verify(int host_no, struct scsi_cmd *cmd);
int pms_io_write_same(int host_no, struct scsi_cmd *cmd);
void pms_io_step(struct pms_task *t); /* goes on with a command that waited for a slot */
void pms_io_reap(void);
void pms_io_scratch_drop(struct pms_task *t);

/* bs_session.c: tgtd's sessions, kept beyond their connections and made from nothing */
struct pms_sess *pms_sess_of(const struct iscsi_session *session);
struct pms_sess *pms_sess_keep(struct iscsi_session *session); /* ours from now on; NULL: no memory */
void pms_sess_drop(struct pms_sess *sess);
bool pms_sess_connected(const struct iscsi_session *session);
/* Gives a session without commands this TSIH (host order). 0, -EBUSY: commands run, -EEXIST: another has it.
 */
int pms_sess_tsih_set(struct pms_sess *sess, uint16_t tsih);
bool pms_sess_drained(const struct pms_sess *sess);
void pms_sess_import(const struct pms_plug_session *in);
void pms_sess_expire(uint16_t tsih);
void pms_sess_params_write(const struct param *params, char *out, size_t size);

/* bs_login.c */
int pms_login_complete(struct iscsi_connection *conn);
size_t pms_login_close(struct iscsi_connection *conn);
void pms_login_event_modify(struct iscsi_connection *conn, int events);
void pms_login_answer(const struct pms_plug_login_rsp *rsp);
void pms_login_drained(void);      /* some command ended: may a held login go on? */
void pms_login_closed_flush(void); /* tells pmsd of connections that closed */
void pms_login_ask_again(void);    /* after a new HELLO_OK */

/* bs_link.c */
int pms_link_open(const char *path);
void pms_link_close(void);
bool pms_link_send(void *msg); /* false: not connected, or it just broke */

/* bs_identity.c */
int pms_identity_apply(struct scsi_lu *lu, const struct pms_plug_hello_ok *hello);
/* The write cache was switched: shown in the caching mode page, and told to every nexus. */
void pms_identity_cache(bool on);

#endif
