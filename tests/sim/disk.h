// SPDX-License-Identifier: GPL-2.0-or-later
// One brick: completed writes are volatile until a flush issued after them; power loss keeps a random, torn
// part.
#ifndef PMS_TESTS_SIM_DISK_H
#define PMS_TESTS_SIM_DISK_H

#include "datapath/core/dp.h"
#include "tests/sim/world.h"

struct sim;
struct node;

#define DISK_PAGE 4096u

struct disk {
    struct node *node;
    uint64_t bytes;
    size_t n_pages;
    uint8_t **now;             // what a read sees; NULL pages are zero
    uint8_t **stable;          // what is sure to survive a power loss
    struct pms_list in_flight; // disk_request
    struct pms_list unflushed; // disk_write, in order of completion
    uint64_t written;          // completed writes so far
    unsigned slow;             // factor on every latency
    uint64_t stalled_until;    // nothing completes before
    bool broken;               // every request fails
    bool flush_fails;          // the next flush does, once, and what it should have made stable is lost
    uint64_t write_sticks;     // the next write of data takes so much longer, alone
};

void disk_init(struct disk *d, struct node *node, uint64_t bytes);
void disk_deinit(struct disk *d);
// A new, blank disk in place of the old one.
void disk_replace(struct disk *d);
// Puts bytes onto the medium, stable: formatting, before time begins.
void disk_fill(struct disk *d, uint64_t offset, const uint8_t *data, uint32_t length);
void disk_peek(const struct disk *d, bool stable, uint64_t offset, uint8_t *out, uint32_t length);
// All that was completed becomes stable: what a driver does before it believes what it reads from a brick.
void disk_sync(struct disk *d);
// The dp's disk action; takes over a->buf. The answer reaches the node's process as node_disk_done().
void disk_submit(struct sim *sim, struct disk *d, const struct pms_dp_action *a);
// The process died: its requests in flight land or not, and nobody is told. disk_busy() until they are over.
void disk_abandon(struct sim *sim, struct disk *d);
bool disk_busy(const struct disk *d);
// The power went: requests in flight end at once, a random part of what was not flushed is lost.
void disk_power_loss(struct sim *sim, struct disk *d);

#endif
