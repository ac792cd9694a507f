// SPDX-License-Identifier: GPL-2.0-or-later
// Datapath frames from a peer that authenticated itself but is out of its mind: nothing may crash, read beyond a
// payload, or break an invariant of the array's state machine.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "datapath/core/dp.h"

#define REGION 8192u
#define SIZE   (4u * REGION)
#define META   (64u << 10) /* as much of the metadata area as so small a brick uses */

static const uint8_t cluster[16] = {7};
static uint8_t *pristine, *disk;

static struct pms_dp_init init_of(void)
{
    struct pms_dp_init init = {.cluster = 7,
                               .array = 2,
                               .self_node = 100,
                               .self_slot = 0,
                               .size_bytes = SIZE,
                               .region_bytes = REGION,
                               .boot_id = 1,
                               .fresh_incarnation = 502,
                               .volatile_bytes = 4096};

    init.timing = pms_dp_timing_default;
    return init;
}

static void set_up(void)
{
    struct pms_dp_init init = init_of();

    pristine = calloc(1, PMS_BRICK_DATA_OFFSET + SIZE);
    disk = calloc(1, PMS_BRICK_DATA_OFFSET + SIZE);
    PMS_CHECK(pristine != NULL && disk != NULL);
    PMS_CHECK(pms_dp_brick_format(pristine, cluster, &init, 500, false) == 0);
}

struct run {
    struct pms_dp *dp;
    struct pms_dp_conf conf;
    uint64_t now;
};

static void disk_do(struct run *r, const struct pms_dp_action *a)
{
    if (a->disk.type != PMS_DP_DISK_FLUSH) {
        PMS_CHECK(a->disk.offset + a->disk.length <= PMS_BRICK_DATA_OFFSET + SIZE);
        PMS_CHECK(a->disk.type == PMS_DP_DISK_ZERO || a->buf_off + a->disk.length <= a->buf->len);
    }
    if (a->disk.type == PMS_DP_DISK_WRITE)
        memcpy(disk + a->disk.offset, a->buf->data + a->buf_off, a->disk.length);
    else if (a->disk.type == PMS_DP_DISK_READ)
        memcpy(a->buf->data + a->buf_off, disk + a->disk.offset, a->disk.length);
    else if (a->disk.type == PMS_DP_DISK_ZERO)
        memset(disk + a->disk.offset, 0, a->disk.length);
    pms_dp_disk_done(r->dp, r->now, a->disk.tag, 0);
}

static void propose_do(struct run *r, const struct pms_dp_action *a)
{
    if (a->propose.epoch != r->conf.epoch)
        return;
    r->conf.epoch++;
    r->conf.primary = a->propose.primary;
    r->conf.in_sync = a->propose.in_sync;
    memcpy(r->conf.incarnation, a->propose.incarnation, sizeof r->conf.incarnation);
    pms_dp_conf(r->dp, r->now, &r->conf, true);
}

static void drain(struct run *r)
{
    struct pms_dp_action a;

    while (pms_dp_action_next(r->dp, &a)) {
        if (a.type == PMS_DP_ACT_DISK)
            disk_do(r, &a);
        else if (a.type == PMS_DP_ACT_PROPOSE)
            propose_do(r, &a);
        else if (a.type == PMS_DP_ACT_SEND && a.send.frame.payload_len > 0)
            PMS_CHECK(a.buf_off + a.send.frame.payload_len <= a.buf->len);
        pms_iobuf_put(a.buf);
    }
    pms_dp_check(r->dp);
}

/* Small numbers, so that epochs, sequences and regions meet what is there. */
static void frame_do(struct run *r, const uint8_t *b)
{
    struct pms_frame f = {.type = (uint8_t)(1 + b[0] % (PMS_FRAME_TYPE_END - 1)),
                          .status = b[1] % PMS_FRAME_STATUS_END,
                          .flags = b[1] >> 7 ? PMS_FRAME_F_ALL : 0,
                          .from_slot = 1,
                          .cluster = 7,
                          .array = 2,
                          .epoch = b[2] % 8,
                          .seq = b[3],
                          .floor = b[4] % 8,
                          .offset = (uint64_t)b[5] * 512,
                          .length = (uint32_t)b[6] * 512,
                          .arg = (b[7] & 1) ? REGION / 16 : b[7],
                          .arg2 = (b[8] & 1) ? 500u + (b[8] >> 7) : b[8]};
    struct pms_iobuf *buf = NULL;

    switch (b[9] % 4) {
    case 1:
        f.payload_len = f.length;
        break;
    case 2:
        f.payload_len = 1 + b[9] / 4;
        break;
    case 3:
        f.payload_len = 16u * (1 + b[9] / 4);
        break;
    }
    if (f.payload_len > 0) {
        buf = pms_iobuf_create(f.payload_len);
        memset(buf->data, b[10], f.payload_len);
    }
    (void)pms_dp_frame(r->dp, r->now, 101, (b[11] & 1) ? 9 : 0, &f, buf);
    pms_iobuf_put(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pms_dp_init init = init_of();
    struct run r = {.now = 1000000000u};

    if (pristine == NULL)
        set_up();
    memcpy(disk, pristine, META);
    PMS_CHECK(pms_dp_create(&init, cluster, disk, r.now, &r.dp) == 0);
    r.conf = (struct pms_dp_conf){.epoch = 1, .n_slots = 2, .in_sync = 3};
    r.conf.node[0] = 100;
    r.conf.node[1] = 101;
    r.conf.incarnation[0] = 500;
    r.conf.incarnation[1] = 501;
    for (; size >= 12; data += 12, size -= 12) {
        r.now += (uint64_t)(data[11] >> 4) * 20000000u;
        switch (data[11] >> 1 & 7) {
        case 0:
            pms_dp_link_up(r.dp, r.now, 101);
            break;
        case 1:
            r.conf.write_cache = data[0] & 1;
            r.conf.cache_used |= r.conf.write_cache;
            pms_dp_conf(r.dp, r.now, &r.conf, true);
            break;
        case 2:
            pms_dp_tick(r.dp, r.now);
            break;
        case 3:
            pms_dp_link_down(r.dp, r.now, 101);
            break;
        default:
            frame_do(&r, data);
            break;
        }
        drain(&r);
    }
    pms_dp_destroy(r.dp);
    return 0;
}
