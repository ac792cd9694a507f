// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Messages between the plugin in tgtd (client) and pmsd (server) on a Unix SOCK_SEQPACKET socket; one struct
 * a packet.
 *
 * Both ends run on one machine: native byte order, fixed sizes, every string NUL-terminated inside its array
 * (a receiver checks that: pms_plug_valid). Rare messages only; SCSI commands go through datapath/io/ring.h.
 *
 *   plugin                                   pmsd
 *   HELLO + {memfd, efd_sq, efd_cq}  ----->
 *                                    <-----  HELLO_OK (or a refusal: status, text)
 *                                    <-----  IMPORT ...  IMPORT_END   sessions known to the cluster
 *   IMPORT_RSP                       ----->                           one, for the whole batch
 *                                    <-----  PORTAL add               only now does anything listen
 *   PORTAL_RSP                       ----->
 *                                    <-----  SERVE on                 commands flow into the ring
 *   SERVE_RSP                        ----->
 *   LOGIN_REQ                        ----->                           the last answer is held ...
 *                                    <-----  LOGIN_RSP                ... until this (committed in Raft)
 *   CLOSED                           ----->
 *
 * Until SERVE on, and after SERVE off, commands are held in the plugin, not failed. If the socket dies the
 * plugin holds everything, also answers that pmsd has posted, until the next SERVE on; it connects again every
 * PMS_PLUG_RECONNECT_MS, and starts over with HELLO and the same memfd; logins that were not answered are asked again with the same cookie. Open portals and live
 * sessions stay. After PMS_PLUG_ORPHAN_MS without pmsd it ends tgtd. Portals of tgtd's command line are
 * closed as the plugin is loaded: only PORTAL opens one.
 */
#ifndef PMS_TARGET_PLUGIN_PROTO_H
#define PMS_TARGET_PLUGIN_PROTO_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PMS_PLUG_MAGIC            0x50534d50u /* "PMSP" */
#define PMS_PLUG_HELLO_VERSION    1           /* of HELLO and HELLO_OK, whose layout never changes */
#define PMS_PLUG_RECONNECT_MS     20
#define PMS_PLUG_HELLO_TIMEOUT_MS 5000 /* bs_open waits at most this long for HELLO_OK */

/*
 * Versions (pms_ring_versions): HELLO tells which the plugin speaks, HELLO_OK the highest that pmsd speaks too; all
 * later messages are of that one. The ring is laid out in the plugin's newest; pmsd reads it if that is in its own
 * range. What does not fit is refused, and pmsd starts tgtd anew with the plugin that belongs to it.
 */

/* Environment of tgtd, set by its supervisor. */
#define PMS_PLUG_ENV_SOCK   "PMS_PLUGIN_SOCK"      /* socket path, used if the LUN's path argument is "-" */
#define PMS_PLUG_ENV_ARRAY  "PMS_PLUGIN_ARRAY"     /* array id, 16 hex digits */
#define PMS_PLUG_ENV_DIR    "PMS_PLUGIN_DIR"       /* for pms_redirect.so: the folder that holds bs_pms.so */
#define PMS_PLUG_ENV_LISTEN "PMS_PLUGIN_LISTEN_FD" /* for pms_redirect.so: the inherited listener */
#define PMS_PLUG_ENV_ARENA  "PMS_PLUGIN_ARENA"     /* arena size in bytes, optional */
#define PMS_PLUG_ENV_ORPHAN "PMS_PLUGIN_ORPHAN_MS" /* instead of PMS_PLUG_ORPHAN_MS, 0: never */

/* So long without pmsd the plugin holds everything; then it ends tgtd, which nobody wants any more. */
#define PMS_PLUG_ORPHAN_MS 5000

#define PMS_PLUG_IQN_LEN    224
#define PMS_PLUG_ADDR_LEN   64 /* "192.0.2.1:3260", "[2001:db8::1]:3260" */
#define PMS_PLUG_PARAMS_LEN 2048
#define PMS_PLUG_TEXT_LEN   160

enum pms_plug_type {
    PMS_PLUG_HELLO = 1,
    PMS_PLUG_HELLO_OK,
    PMS_PLUG_IMPORT,
    PMS_PLUG_IMPORT_END,
    PMS_PLUG_IMPORT_RSP,
    PMS_PLUG_PORTAL,
    PMS_PLUG_PORTAL_RSP,
    PMS_PLUG_SERVE,
    PMS_PLUG_SERVE_RSP,
    PMS_PLUG_LOGIN_REQ,
    PMS_PLUG_LOGIN_RSP,
    PMS_PLUG_CLOSED,
    PMS_PLUG_EXPIRE,
    PMS_PLUG_RESIZE, /* reserved */
    PMS_PLUG_CACHE,
    PMS_PLUG_TYPE_MAX,
};

struct pms_plug_hdr {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum pms_plug_type */
    uint32_t length; /* of the whole packet in bytes */
    uint32_t zero;
};

/* plugin -> pmsd, with three descriptors by SCM_RIGHTS: memfd, efd_sq, efd_cq (see pms_ring_attach). */
struct pms_plug_hello {
    struct pms_plug_hdr hdr;
    uint64_t array_id;
    uint32_t pid;
    uint32_t ring_slots;
    uint32_t arena_bytes;
    uint32_t
        connects; /* 1 at first; more: the plugin lived on while pmsd died, sessions and portals are there */
    uint32_t sessions;    /* that tgtd has now */
    uint32_t outstanding; /* commands in the ring without a reaped answer */
    uint16_t version_min, version_max;
    uint32_t zero;
    char build_id[48]; /* of tgtd, hex */
};

/* pmsd -> plugin. status 0: served as described; else refused for the reason in text, the plugin closes. */
struct pms_plug_hello_ok {
    struct pms_plug_hdr hdr;
    int32_t status;
    uint32_t nop_interval_s; /* seconds between NOP-Ins on an idle connection, 0: none */
    uint32_t nop_count;      /* unanswered ones before the connection is closed */
    uint32_t block_bytes;    /* logical block: 512 */
    uint32_t phys_bytes;     /* physical block: 4096 */
    uint32_t io_bytes_max;   /* MAXIMUM TRANSFER LENGTH, at most PMS_RING_IO_MAX */
    uint64_t array_id;
    uint64_t size_bytes;
    uint8_t wce;     /* 1: write cache on, shown in the caching mode page; not changeable by the initiator */
    uint8_t naa[16]; /* NAA-6 designator for VPD 83: naa[0] >> 4 == 6 */
    uint8_t pad[1];
    uint16_t version; /* of all messages from here on */
    uint8_t pad2[4];
    char vendor[12];  /* at most 8 characters, "PMS" */
    char product[20]; /* at most 16 */
    char revision[8]; /* at most 4 */
    char serial[40];  /* at most 36, VPD 80 */
    char t10_id[40];  /* at most 36, T10 vendor designator of VPD 83 */
    char text[PMS_PLUG_TEXT_LEN];
};

/* A session. params: "Key=value;Key=value;..." with tgtd's key names and numeric values; pmsd need not
 * understand it. */
struct pms_plug_session {
    char initiator[PMS_PLUG_IQN_LEN];
    uint8_t isid[6];
    uint16_t tsih; /* host order of the number on the wire, never 0 in a session that exists */
    uint32_t exp_cmd_sn;
    char params[PMS_PLUG_PARAMS_LEN];
};

/* pmsd -> plugin: one session that another node (or an earlier tgtd) had. It exists afterwards without
 * connection. */
struct pms_plug_import {
    struct pms_plug_hdr hdr;
    uint32_t zero;
    struct pms_plug_session session;
};
struct pms_plug_import_end {
    struct pms_plug_hdr hdr;
    uint32_t count; /* IMPORTs sent before */
    uint32_t zero;
};
/* plugin -> pmsd: answer to IMPORT_END. status 0, or -errno of the first that failed. */
struct pms_plug_import_rsp {
    struct pms_plug_hdr hdr;
    int32_t status;
    uint32_t imported; /* made now or already there */
};

/* pmsd -> plugin: listen on (add 1) or leave (add 0) an address. Several may be open. Adding one twice is no
 * error. */
struct pms_plug_portal {
    struct pms_plug_hdr hdr;
    uint32_t add;
    uint32_t port;
    char addr[PMS_PLUG_ADDR_LEN]; /* numeric, without port and brackets */
};
struct pms_plug_portal_rsp {
    struct pms_plug_hdr hdr;
    int32_t status; /* 0 or -errno */
    uint32_t zero;
};

/* pmsd -> plugin: the gate. The answer follows all earlier submissions: after SERVE_RSP to "off" nothing new
 * comes. */
struct pms_plug_serve {
    struct pms_plug_hdr hdr;
    uint32_t on;
    uint32_t zero;
};
struct pms_plug_serve_rsp {
    struct pms_plug_hdr hdr;
    uint32_t on;
    uint32_t outstanding; /* commands in the ring without a reaped answer */
    uint64_t held;        /* commands waiting in the plugin */
};

/*
 * plugin -> pmsd: a login has passed negotiation; its last answer is held. session.tsih: the number proposed:
 * that of the existing session (known 1), else a free one. req_tsih: what the initiator sent, 0: it asks for
 * a (re)new one.
 */
struct pms_plug_login_req {
    struct pms_plug_hdr hdr;
    uint64_t cookie;
    uint16_t cid;
    uint16_t req_tsih;
    uint32_t known; /* 1: this initiator port already has a session here (same I_T nexus) */
    char peer[PMS_PLUG_ADDR_LEN];
    char local[PMS_PLUG_ADDR_LEN];
    struct pms_plug_session session;
};
/* pmsd -> plugin. status 0: committed, session has this tsih. Else a login status class << 8 | detail, as
 * 0x0301. */
struct pms_plug_login_rsp {
    struct pms_plug_hdr hdr;
    uint64_t cookie;
    uint16_t status;
    uint16_t tsih;
    uint32_t zero;
};
#define PMS_PLUG_LOGIN_UNAVAILABLE  0x0301 /* RFC 7143 11.13.5: service unavailable */
#define PMS_PLUG_LOGIN_NO_RESOURCES 0x0302

enum pms_plug_reason {
    PMS_PLUG_REASON_LOSS = 1,   /* connection lost: the session stays */
    PMS_PLUG_REASON_LOGOUT = 2, /* session ended by the initiator: it is gone in tgtd */
    PMS_PLUG_REASON_MOVED = 3,  /* the same port logged in again on another connection: the session stays */
};
/* plugin -> pmsd: a connection of a committed session is closed. */
struct pms_plug_closed {
    struct pms_plug_hdr hdr;
    uint16_t tsih;
    uint8_t isid[6];
    uint32_t reason; /* enum pms_plug_reason */
    uint32_t zero;
    char initiator[PMS_PLUG_IQN_LEN];
    char peer[PMS_PLUG_ADDR_LEN]; /* of the connection that closed */
};

/* pmsd -> plugin: forget a session without connection (orphan). Ignored if it has one. */
struct pms_plug_expire {
    struct pms_plug_hdr hdr;
    uint16_t tsih;
    uint16_t zero[3];
};

struct pms_plug_resize {
    struct pms_plug_hdr hdr;
    uint64_t size_bytes;
};

/* pmsd -> plugin: the write cache is on (1) or off (0) from now on; the initiators are told by UNIT ATTENTION 2A/01. */
struct pms_plug_cache {
    struct pms_plug_hdr hdr;
    uint32_t wce;
    uint32_t zero;
};

/* Big enough for any packet. */
union pms_plug_any {
    struct pms_plug_hdr hdr;
    struct pms_plug_hello hello;
    struct pms_plug_hello_ok hello_ok;
    struct pms_plug_import import;
    struct pms_plug_import_end import_end;
    struct pms_plug_import_rsp import_rsp;
    struct pms_plug_portal portal;
    struct pms_plug_portal_rsp portal_rsp;
    struct pms_plug_serve serve;
    struct pms_plug_serve_rsp serve_rsp;
    struct pms_plug_login_req login_req;
    struct pms_plug_login_rsp login_rsp;
    struct pms_plug_closed closed;
    struct pms_plug_expire expire;
    struct pms_plug_resize resize;
    struct pms_plug_cache cache;
};

/* Size of a packet of that type in bytes, 0: no such type. */
static inline size_t pms_plug_size(unsigned type)
{
    switch (type) {
    case PMS_PLUG_HELLO:
        return sizeof(struct pms_plug_hello);
    case PMS_PLUG_HELLO_OK:
        return sizeof(struct pms_plug_hello_ok);
    case PMS_PLUG_IMPORT:
        return sizeof(struct pms_plug_import);
    case PMS_PLUG_IMPORT_END:
        return sizeof(struct pms_plug_import_end);
    case PMS_PLUG_IMPORT_RSP:
        return sizeof(struct pms_plug_import_rsp);
    case PMS_PLUG_PORTAL:
        return sizeof(struct pms_plug_portal);
    case PMS_PLUG_PORTAL_RSP:
        return sizeof(struct pms_plug_portal_rsp);
    case PMS_PLUG_SERVE:
        return sizeof(struct pms_plug_serve);
    case PMS_PLUG_SERVE_RSP:
        return sizeof(struct pms_plug_serve_rsp);
    case PMS_PLUG_LOGIN_REQ:
        return sizeof(struct pms_plug_login_req);
    case PMS_PLUG_LOGIN_RSP:
        return sizeof(struct pms_plug_login_rsp);
    case PMS_PLUG_CLOSED:
        return sizeof(struct pms_plug_closed);
    case PMS_PLUG_EXPIRE:
        return sizeof(struct pms_plug_expire);
    case PMS_PLUG_RESIZE:
        return sizeof(struct pms_plug_resize);
    case PMS_PLUG_CACHE:
        return sizeof(struct pms_plug_cache);
    default:
        return 0;
    }
}

/* Zeroes the message and fills its header in; who sends it puts the agreed version in. */
static inline void pms_plug_init(void *msg, unsigned type)
{
    struct pms_plug_hdr *hdr = msg;

    memset(msg, 0, pms_plug_size(type));
    hdr->magic = PMS_PLUG_MAGIC;
    hdr->version = PMS_PLUG_HELLO_VERSION;
    hdr->type = (uint16_t)type;
    hdr->length = (uint32_t)pms_plug_size(type);
}

#define PMS_PLUG_STR_OK(field) (memchr((field), 0, sizeof(field)) != NULL)

/* Is what was received (len bytes) a whole message with terminated strings? 1 yes, 0 no. Later messages than HELLO_OK
 * must also be of the agreed version: pms_plug_fits. */
static inline int pms_plug_valid(const union pms_plug_any *msg, size_t len)
{
    if (len < sizeof(msg->hdr) || msg->hdr.magic != PMS_PLUG_MAGIC)
        return 0;
    if ((msg->hdr.type == PMS_PLUG_HELLO || msg->hdr.type == PMS_PLUG_HELLO_OK) &&
        msg->hdr.version != PMS_PLUG_HELLO_VERSION)
        return 0;
    if (pms_plug_size(msg->hdr.type) == 0 || msg->hdr.length != len || len != pms_plug_size(msg->hdr.type))
        return 0;
    switch (msg->hdr.type) {
    case PMS_PLUG_HELLO:
        return PMS_PLUG_STR_OK(msg->hello.build_id);
    case PMS_PLUG_HELLO_OK:
        return PMS_PLUG_STR_OK(msg->hello_ok.vendor) && PMS_PLUG_STR_OK(msg->hello_ok.product) &&
               PMS_PLUG_STR_OK(msg->hello_ok.revision) && PMS_PLUG_STR_OK(msg->hello_ok.serial) &&
               PMS_PLUG_STR_OK(msg->hello_ok.t10_id) && PMS_PLUG_STR_OK(msg->hello_ok.text);
    case PMS_PLUG_IMPORT:
        return PMS_PLUG_STR_OK(msg->import.session.initiator) && PMS_PLUG_STR_OK(msg->import.session.params);
    case PMS_PLUG_PORTAL:
        return PMS_PLUG_STR_OK(msg->portal.addr);
    case PMS_PLUG_LOGIN_REQ:
        return PMS_PLUG_STR_OK(msg->login_req.peer) && PMS_PLUG_STR_OK(msg->login_req.local) &&
               PMS_PLUG_STR_OK(msg->login_req.session.initiator) &&
               PMS_PLUG_STR_OK(msg->login_req.session.params);
    case PMS_PLUG_CLOSED:
        return PMS_PLUG_STR_OK(msg->closed.initiator) && PMS_PLUG_STR_OK(msg->closed.peer);
    default:
        return 1;
    }
}

static inline int pms_plug_fits(const union pms_plug_any *msg, unsigned version)
{
    return msg->hdr.type == PMS_PLUG_HELLO || msg->hdr.type == PMS_PLUG_HELLO_OK ||
           (version != 0 && msg->hdr.version == version);
}

#endif
