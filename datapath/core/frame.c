// SPDX-License-Identifier: GPL-2.0-or-later
// Encoding of the datapath's frame headers.
#include "datapath/core/frame.h"

#include <xxhash.h>

#include "base/check.h"
#include "base/err.h"
#include "base/wire.h"

/*
 * Offset  bytes  field
 *      0      4  magic            48  8  epoch          96  8  payload checksum
 *      4      2  version          56  8  seq           104  8  header checksum (XXH3-64 of bytes 0..103)
 *      6      1  type             64  8  completed
 *      7      1  status           72  8  floor
 *      8      1  from slot        80  8  offset
 *      9      1  to slot          88  4  length
 *     10      2  flags            92  4  payload length
 *     12      4  zero
 *     16      8  cluster
 *     24      8  array
 *     32      8  arg
 *     40      8  arg2
 */
#define SUM_OFFSET 104

void pms_frame_encode(const struct pms_frame *f, unsigned version, uint8_t *out)
{
    struct pms_wr w = {out, out + PMS_FRAME_HEADER_BYTES, 0};

    pms_wr_u32(&w, PMS_FRAME_MAGIC);
    pms_wr_u16(&w, (uint16_t)version);
    pms_wr_u8(&w, f->type);
    pms_wr_u8(&w, f->status);
    pms_wr_u8(&w, f->from_slot);
    pms_wr_u8(&w, f->to_slot);
    pms_wr_u16(&w, f->flags);
    pms_wr_u32(&w, 0);
    pms_wr_u64(&w, f->cluster);
    pms_wr_u64(&w, f->array);
    pms_wr_u64(&w, f->arg);
    pms_wr_u64(&w, f->arg2);
    pms_wr_u64(&w, f->epoch);
    pms_wr_u64(&w, f->seq);
    pms_wr_u64(&w, f->completed);
    pms_wr_u64(&w, f->floor);
    pms_wr_u64(&w, f->offset);
    pms_wr_u32(&w, f->length);
    pms_wr_u32(&w, f->payload_len);
    pms_wr_u64(&w, f->payload_sum);
    pms_wr_u64(&w, XXH3_64bits(out, SUM_OFFSET));
    PMS_CHECK(!w.err && w.p == w.end);
}

int pms_frame_decode(const uint8_t *in, unsigned version, struct pms_frame *f)
{
    struct pms_rd r = {in, in + PMS_FRAME_HEADER_BYTES, 0};
    struct pms_rd sum = {in + SUM_OFFSET, in + PMS_FRAME_HEADER_BYTES, 0};
    struct pms_frame o;

    if (pms_rd_u32(&r) != PMS_FRAME_MAGIC)
        return PMS_EPROTO;
    if (pms_rd_u16(&r) != version)
        return PMS_EVERSION;
    if (pms_rd_u64(&sum) != XXH3_64bits(in, SUM_OFFSET))
        return PMS_EPROTO;
    o.type = pms_rd_u8(&r);
    o.status = pms_rd_u8(&r);
    o.from_slot = pms_rd_u8(&r);
    o.to_slot = pms_rd_u8(&r);
    o.flags = pms_rd_u16(&r);
    pms_rd_u32(&r);
    o.cluster = pms_rd_u64(&r);
    o.array = pms_rd_u64(&r);
    o.arg = pms_rd_u64(&r);
    o.arg2 = pms_rd_u64(&r);
    o.epoch = pms_rd_u64(&r);
    o.seq = pms_rd_u64(&r);
    o.completed = pms_rd_u64(&r);
    o.floor = pms_rd_u64(&r);
    o.offset = pms_rd_u64(&r);
    o.length = pms_rd_u32(&r);
    o.payload_len = pms_rd_u32(&r);
    o.payload_sum = pms_rd_u64(&r);
    if (o.type == 0 || o.type >= PMS_FRAME_TYPE_END || o.status >= PMS_FRAME_STATUS_END ||
        (o.flags & ~PMS_FRAME_F_ALL) != 0 || o.payload_len > PMS_FRAME_PAYLOAD_MAX)
        return PMS_EPROTO;
    *f = o;
    return 0;
}

uint64_t pms_frame_sum(const void *payload, uint32_t len)
{
    return XXH3_64bits(payload, len);
}

const char *pms_frame_name(uint8_t type)
{
    static const char *const names[PMS_FRAME_TYPE_END] = {
        [PMS_FRAME_HB] = "HB",
        [PMS_FRAME_HB_ACK] = "HB_ACK",
        [PMS_FRAME_WRITE] = "WRITE",
        [PMS_FRAME_WRITE_ACK] = "WRITE_ACK",
        [PMS_FRAME_CLEAR] = "CLEAR",
        [PMS_FRAME_ASK] = "ASK",
        [PMS_FRAME_ASK_ACK] = "ASK_ACK",
        [PMS_FRAME_PROMISE] = "PROMISE",
        [PMS_FRAME_MAP] = "MAP",
        [PMS_FRAME_PROMISE_ACK] = "PROMISE_ACK",
        [PMS_FRAME_SUMS] = "SUMS",
        [PMS_FRAME_MAP_ACK] = "MAP_ACK",
        [PMS_FRAME_SUMS_ACK] = "SUMS_ACK",
        [PMS_FRAME_GOODBYE] = "GOODBYE",
        [PMS_FRAME_FLUSH] = "FLUSH",
        [PMS_FRAME_FLUSH_ACK] = "FLUSH_ACK",
        [PMS_FRAME_ZERO] = "ZERO",
    };
    return type < PMS_FRAME_TYPE_END && names[type] != NULL ? names[type] : "?";
}

bool pms_frame_is_answer(uint8_t type)
{
    switch (type) {
    case PMS_FRAME_HB_ACK:
    case PMS_FRAME_WRITE_ACK:
    case PMS_FRAME_ASK_ACK:
    case PMS_FRAME_PROMISE_ACK:
    case PMS_FRAME_MAP_ACK:
    case PMS_FRAME_SUMS_ACK:
    case PMS_FRAME_FLUSH_ACK:
        return true;
    default:
        return false;
    }
}
