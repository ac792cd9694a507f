// SPDX-License-Identifier: GPL-2.0-or-later
// One brick: completed writes are volatile until a flush issued after them; power loss keeps a random, torn
// part.
#include "tests/sim/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define LATENCY_MS_MAX 4000 // whatever is slow or stuck

struct disk_request {
    struct sim_event ev;
    struct disk *disk;
    enum pms_dp_disk_type type;
    uint64_t tag, offset;
    uint32_t length, buf_off;
    struct pms_iobuf *buf;
    uint64_t covers; // FLUSH: writes completed before it was issued
    uint64_t sum;    // WRITE: of the payload when issued
    int status;
    bool orphan; // the process that issued it is gone
    bool void_;  // orphan that never lands
};

struct disk_write {
    struct pms_list link;
    uint64_t number, offset;
    uint32_t length;
    uint8_t data[];
};

void disk_init(struct disk *d, struct node *node, uint64_t bytes)
{
    *d = (struct disk){.node = node, .bytes = bytes, .slow = 1};
    d->n_pages = (size_t)((bytes + DISK_PAGE - 1) / DISK_PAGE);
    d->now = calloc(d->n_pages, sizeof *d->now);
    d->stable = calloc(d->n_pages, sizeof *d->stable);
    PMS_CHECK(d->now != NULL && d->stable != NULL);
    pms_list_init(&d->in_flight);
    pms_list_init(&d->unflushed);
}

void disk_deinit(struct disk *d)
{
    if (d->now == NULL)
        return;
    for (size_t i = 0; i < d->n_pages; i++) {
        free(d->now[i]);
        free(d->stable[i]);
    }
    free(d->now);
    free(d->stable);
    pms_list_for_each_safe (it, &d->unflushed)
        free(pms_list_entry(it, struct disk_write, link));
    pms_list_init(&d->unflushed);
    d->now = d->stable = NULL;
}

static void image_put(struct disk *d, uint8_t **image, uint64_t offset, const uint8_t *data, uint32_t length)
{
    PMS_CHECK_MSG(offset + length <= d->bytes, "write beyond the brick: %llu+%u", (unsigned long long)offset,
                  length);
    while (length > 0) {
        size_t page = (size_t)(offset / DISK_PAGE);
        uint32_t at = (uint32_t)(offset % DISK_PAGE);
        uint32_t n = length < DISK_PAGE - at ? length : DISK_PAGE - at;

        if (image[page] == NULL) {
            image[page] = calloc(1, DISK_PAGE);
            PMS_CHECK(image[page] != NULL);
        }
        memcpy(image[page] + at, data, n);
        offset += n;
        data += n;
        length -= n;
    }
}

static void image_get(const struct disk *d, uint8_t *const *image, uint64_t offset, uint8_t *out,
                      uint32_t length)
{
    PMS_CHECK_MSG(offset + length <= d->bytes, "read beyond the brick: %llu+%u", (unsigned long long)offset,
                  length);
    while (length > 0) {
        size_t page = (size_t)(offset / DISK_PAGE);
        uint32_t at = (uint32_t)(offset % DISK_PAGE);
        uint32_t n = length < DISK_PAGE - at ? length : DISK_PAGE - at;

        if (image[page] != NULL)
            memcpy(out, image[page] + at, n);
        else
            memset(out, 0, n);
        offset += n;
        out += n;
        length -= n;
    }
}

void disk_replace(struct disk *d)
{
    for (size_t i = 0; i < d->n_pages; i++) {
        free(d->now[i]);
        free(d->stable[i]);
        d->now[i] = d->stable[i] = NULL;
    }
    pms_list_for_each_safe (it, &d->unflushed) {
        pms_list_del(it);
        free(pms_list_entry(it, struct disk_write, link));
    }
    d->broken = false;
}

void disk_fill(struct disk *d, uint64_t offset, const uint8_t *data, uint32_t length)
{
    image_put(d, d->now, offset, data, length);
    image_put(d, d->stable, offset, data, length);
}

void disk_peek(const struct disk *d, bool stable, uint64_t offset, uint8_t *out, uint32_t length)
{
    image_get(d, stable ? d->stable : d->now, offset, out, length);
}

static void request_free(struct disk_request *r)
{
    pms_list_del(&r->ev.link);
    pms_iobuf_put(r->buf);
    free(r);
}

static void drop_request(struct sim_event *ev)
{
    request_free(pms_list_entry(ev, struct disk_request, ev));
}

// The process takes notice.
static void on_notice(struct sim *sim, struct sim_event *ev)
{
    struct disk_request *r = pms_list_entry(ev, struct disk_request, ev);
    struct node *n = r->disk->node;
    uint64_t tag = r->tag;
    int status = r->status;

    request_free(r);
    node_disk_done(sim, n, tag, status);
}

static void land_write(struct disk *d, uint64_t offset, const uint8_t *data, uint32_t length)
{
    struct disk_write *u = malloc(sizeof *u + length);

    PMS_CHECK(u != NULL);
    image_put(d, d->now, offset, data, length);
    u->number = ++d->written;
    u->offset = offset;
    u->length = length;
    memcpy(u->data, data, length);
    pms_list_add_tail(&d->unflushed, &u->link);
}

static void land_flush(struct disk *d, uint64_t covers)
{
    pms_list_for_each_safe (it, &d->unflushed) {
        struct disk_write *u = pms_list_entry(it, struct disk_write, link);

        if (u->number > covers)
            break;
        image_put(d, d->stable, u->offset, u->data, u->length);
        pms_list_del(&u->link);
        free(u);
    }
}

void disk_sync(struct disk *d)
{
    land_flush(d, d->written);
}

// What is left of one write: all, nothing, or some of its sectors.
static void survive(struct sim *sim, struct disk *d, uint64_t offset, const uint8_t *data, uint32_t length,
                    unsigned mode)
{
    struct world *w = &sim->world;
    uint64_t dice = world_below(w, 5);

    if (mode == 0 || (mode == 2 && dice < 2))
        return;
    if (mode == 1 || dice < 4) {
        image_put(d, d->stable, offset, data, length);
        return;
    }
    for (uint32_t at = 0; at < length; at += PMS_SECTOR_BYTES)
        if (world_chance(w, 1, 2))
            image_put(d, d->stable, offset + at, data + at, PMS_SECTOR_BYTES);
}

static void revert(struct disk *d, uint64_t offset, uint32_t length)
{
    uint8_t sector[PMS_SECTOR_BYTES];

    for (uint32_t at = 0; at < length; at += PMS_SECTOR_BYTES) {
        image_get(d, d->stable, offset + at, sector, PMS_SECTOR_BYTES);
        image_put(d, d->now, offset + at, sector, PMS_SECTOR_BYTES);
    }
}

static void lose_unflushed(struct sim *sim, struct disk *d)
{
    unsigned mode = (unsigned)world_below(&sim->world, 5); // 0: all is lost, 1: all survives, else a mixture

    if (mode > 2)
        mode = 2;
    pms_list_for_each (it, &d->unflushed) {
        struct disk_write *u = pms_list_entry(it, struct disk_write, link);

        survive(sim, d, u->offset, u->data, u->length, mode);
    }
    pms_list_for_each_safe (it, &d->unflushed) {
        struct disk_write *u = pms_list_entry(it, struct disk_write, link);

        revert(d, u->offset, u->length);
        pms_list_del(&u->link);
        free(u);
    }
}

// A failed write may have landed, and what a failed flush should have made stable may be gone from the cache.
static void fail_request(struct sim *sim, struct disk_request *r)
{
    struct disk *d = r->disk;

    r->status = -EIO;
    d->node->boots++; // pmsd notes it: what was not flushed may be gone
    d->node->power_lost = true;
    if (r->type == PMS_DP_DISK_WRITE && !r->void_ && world_chance(&sim->world, 1, 2))
        land_write(d, r->offset, r->buf->data + r->buf_off, r->length);
    if (r->type == PMS_DP_DISK_FLUSH && (d->flush_fails || world_chance(&sim->world, 1, 2)))
        lose_unflushed(sim, d);
}

// The device is done with the request.
static void on_request(struct sim *sim, struct sim_event *ev)
{
    struct disk_request *r = pms_list_entry(ev, struct disk_request, ev);
    struct disk *d = r->disk;

    if (d->stalled_until > sim->world.now) {
        world_add_at(&sim->world, ev, d->stalled_until + world_below(&sim->world, SIM_MS));
        return;
    }
    pms_list_del(&r->ev.link);
    if (d->broken || (d->flush_fails && r->type == PMS_DP_DISK_FLUSH && !r->orphan)) {
        fail_request(sim, r);
        d->flush_fails = false;
    } else if (r->type == PMS_DP_DISK_WRITE && !r->void_) {
        if (pms_frame_sum(r->buf->data + r->buf_off, r->length) != r->sum)
            sim_violation(sim, "%s: the buffer of a disk write at %llu changed while in flight",
                          d->node->name, (unsigned long long)r->offset);
        land_write(d, r->offset, r->buf->data + r->buf_off, r->length);
    } else if (r->type == PMS_DP_DISK_FLUSH) {
        land_flush(d, r->covers);
    } else if (r->type == PMS_DP_DISK_READ && !r->orphan) {
        image_get(d, d->now, r->offset, r->buf->data + r->buf_off, r->length);
    }
    if (r->orphan) {
        request_free(r);
        return;
    }
    ev->node = d->node->index;
    ev->life = d->node->life;
    ev->run = on_notice;
    node_deliver(sim, ev);
}

static uint64_t latency(struct sim *sim, struct disk *d, enum pms_dp_disk_type type)
{
    struct world *w = &sim->world;
    const struct plan *p = &sim->plan;
    uint64_t us = type == PMS_DP_DISK_FLUSH ? p->flush_us : p->disk_us;

    us = us / 2 + world_below(w, us + 1);
    if (world_chance(w, p->disk_tail, 1000))
        us = us * (5 + world_below(w, 60));
    us *= d->slow;
    if (world_chance(w, p->disk_stuck, 10000))
        us += 1000 * world_skewed(w, 50, 2500);
    if (us > LATENCY_MS_MAX * 1000)
        us = LATENCY_MS_MAX * 1000;
    return us * SIM_US + world_below(w, SIM_US);
}

void disk_submit(struct sim *sim, struct disk *d, const struct pms_dp_action *a)
{
    struct disk_request *r = calloc(1, sizeof *r);
    uint64_t sticks;

    PMS_CHECK(r != NULL);
    r->ev = (struct sim_event){.node = -1, .run = on_request, .drop = drop_request};
    r->disk = d;
    r->type = a->disk.type;
    r->tag = a->disk.tag;
    r->offset = a->disk.offset;
    r->length = a->disk.length;
    r->buf = a->buf;
    r->buf_off = a->buf_off;
    r->covers = d->written;
    if (r->type == PMS_DP_DISK_ZERO) { // here no more than a write
        PMS_CHECK(r->buf == NULL);
        r->type = PMS_DP_DISK_WRITE;
        r->buf = pms_iobuf_create(r->length);
        r->buf_off = 0;
        memset(r->buf->data, 0, r->length);
    }
    if (r->type != PMS_DP_DISK_FLUSH) {
        PMS_CHECK_MSG(r->buf != NULL && r->buf_off + (uint64_t)r->length <= r->buf->len && r->length > 0,
                      "disk request at %llu+%u does not fit its buffer", (unsigned long long)r->offset,
                      r->length);
        PMS_CHECK_MSG(r->offset + r->length <= d->bytes, "disk request at %llu+%u is beyond the brick",
                      (unsigned long long)r->offset, r->length);
        PMS_CHECK_MSG(r->offset % 512 == 0 && r->length % 512 == 0,
                      "disk request at %llu+%u is not whole sectors", (unsigned long long)r->offset,
                      r->length);
    }
    if (r->type == PMS_DP_DISK_WRITE)
        r->sum = pms_frame_sum(r->buf->data + r->buf_off, r->length);
    pms_list_add_tail(&d->in_flight, &r->ev.link);
    sticks = r->type == PMS_DP_DISK_WRITE && r->offset >= PMS_BRICK_DATA_OFFSET ? d->write_sticks : 0;
    if (sticks > 0)
        d->write_sticks = 0;
    world_add(&sim->world, &r->ev, latency(sim, d, r->type) + sticks);
}

void disk_abandon(struct sim *sim, struct disk *d)
{
    pms_list_for_each_safe (it, &d->in_flight) {
        struct disk_request *r = pms_list_entry(it, struct disk_request, ev.link);

        r->orphan = true;
        r->void_ = r->void_ || world_chance(&sim->world, 1, 4);
    }
    if (d->stalled_until > sim->world.now + 200 * SIM_MS)
        d->stalled_until = sim->world.now + 200 * SIM_MS;
}

bool disk_busy(const struct disk *d)
{
    return !pms_list_empty(&d->in_flight);
}

void disk_power_loss(struct sim *sim, struct disk *d)
{
    // What was in flight joins what was completed, behind it.
    pms_list_for_each_safe (it, &d->in_flight) {
        struct disk_request *r = pms_list_entry(it, struct disk_request, ev.link);

        if (r->type == PMS_DP_DISK_WRITE && !r->void_)
            land_write(d, r->offset, r->buf->data + r->buf_off, r->length);
        r->orphan = r->void_ = true;
        r->type = PMS_DP_DISK_READ; // an empty shell, until its event comes up
        pms_list_del(&r->ev.link);
    }
    lose_unflushed(sim, d);
    d->stalled_until = 0;
}
