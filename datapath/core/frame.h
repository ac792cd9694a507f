// SPDX-License-Identifier: GPL-2.0-or-later
// The datapath's frames between nodes: a fixed little-endian header, then a payload.
#ifndef PMS_DATAPATH_CORE_FRAME_H
#define PMS_DATAPATH_CORE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define PMS_FRAME_MAGIC        0x46534d50u /* "PMSF" */
#define PMS_FRAME_HEADER_BYTES 112
#define PMS_FRAME_PAYLOAD_MAX  (4u << 20)

/* A request goes out on the link that its sender dialled; its answer (the _ACK) comes back on that same link.
 */
enum pms_frame_type {
    PMS_FRAME_HB = 1, /* heartbeat of the primary; arg = sender's clock, ns; arg2 = incarnation it expects */
    PMS_FRAME_HB_ACK, /* arg echoed; arg2 = the slot's incarnation */
    PMS_FRAME_WRITE,  /* payload to offset; made stable before the answer, unless flagged VOLATILE */
    PMS_FRAME_WRITE_ACK, /* also of ZERO */
    PMS_FRAME_CLEAR,     /* payload: u32 region numbers that are equal and stable on all slots; no answer */
    PMS_FRAME_ASK, /* may I take over into epoch? raises no floor (R9); arg: 1 = the sender is unclean (R6) */
    PMS_FRAME_ASK_ACK,
    PMS_FRAME_PROMISE,     /* promise me epoch, durably */
    PMS_FRAME_PROMISE_ACK, /* payload: dirty bitmap; arg2 = incarnation */
    PMS_FRAME_MAP,         /* resync begins: fence to epoch, give me your dirty bitmap */
    PMS_FRAME_MAP_ACK,     /* payload: dirty bitmap; arg2 = incarnation */
    PMS_FRAME_SUMS,        /* checksums of [offset, offset+length) by chunks of arg bytes */
    PMS_FRAME_SUMS_ACK,    /* payload: 16 bytes (XXH3-128, canonical) a chunk */
    PMS_FRAME_GOODBYE,     /* I stop soon: eject me now, and do not take me back meanwhile; no answer */
    PMS_FRAME_FLUSH,       /* all that was acknowledged before is made stable before the answer */
    PMS_FRAME_FLUSH_ACK,
    PMS_FRAME_ZERO, /* a WRITE of zeros to [offset, offset+length), without payload; answered by WRITE_ACK */
    PMS_FRAME_TYPE_END
};

/* Answer's verdict. */
enum pms_frame_status {
    PMS_FRAME_OK = 0,
    PMS_FRAME_STALE,       /* the receiver's floor is higher: floor tells it */
    PMS_FRAME_INCARNATION, /* the slot is not the incarnation that the set names */
    PMS_FRAME_IO_ERROR,    /* the brick failed; it will not recover by itself */
    PMS_FRAME_VETO,        /* ASK, PROMISE: I hear the primary, or am not free to promise */
    PMS_FRAME_NOT_READY,   /* not now (just started, configuration not applied yet): ask again */
    PMS_FRAME_UNCLEAN,     /* the slot was the incarnation named, but may have lost what it held as volatile;
                              arg2 tells what it is now (R6) */
    PMS_FRAME_STATUS_END
};

#define PMS_FRAME_F_VOLATILE 1u /* WRITE, ZERO: answered when written, before it is stable (write cache on) */
#define PMS_FRAME_F_ALL      1u

struct pms_frame {
    uint8_t type;
    uint8_t status; /* answers */
    uint8_t from_slot, to_slot;
    uint16_t flags;   /* PMS_FRAME_F_... */
    uint64_t cluster; /* first 8 bytes of the cluster's uuid, little-endian */
    uint64_t array;
    uint64_t epoch;
    uint64_t seq;       /* per sender, never reused within an epoch; answers echo it */
    uint64_t completed; /* every write up to this seq is complete everywhere */
    uint64_t floor;     /* answers: the sender's durable floor */
    uint64_t offset;    /* bytes in the array */
    uint32_t length;    /* bytes */
    uint32_t payload_len;
    uint64_t arg, arg2;
    uint64_t payload_sum; /* XXH3-64 of the payload */
};

/* Writes the header of f (PMS_FRAME_HEADER_BYTES) to out, with its checksum. f->payload_sum must be set
 * before. version: what both ends of the connection agreed on, of pms_node_versions. */
void pms_frame_encode(const struct pms_frame *f, unsigned version, uint8_t *out);
/* Reads and checks a header: magic, checksum, version, type, status, flags, payload_len <= PMS_FRAME_PAYLOAD_MAX.
 * 0, PMS_EPROTO or PMS_EVERSION (of another version than the one agreed on); on error *f is unchanged. */
int pms_frame_decode(const uint8_t *in, unsigned version, struct pms_frame *f);
/* XXH3-64 of a payload; 0 length gives the fixed value of the empty string. */
uint64_t pms_frame_sum(const void *payload, uint32_t len);
/* An _ACK: it travels on the link that its request came on. */
bool pms_frame_is_answer(uint8_t type);
/* "WRITE", "HB_ACK" ... for stories and logs. */
const char *pms_frame_name(uint8_t type);

#endif
