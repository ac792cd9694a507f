// SPDX-License-Identifier: GPL-2.0-or-later
// What of each format and protocol this build speaks, and what two builds have in common.
//
// The numbers are data of one object file, so that the tests' next version (make bumps) is this build with a few
// objects exchanged.
#ifndef PMS_BASE_VERSION_H
#define PMS_BASE_VERSION_H

#include <stdbool.h>
#include <stdint.h>

// Inclusive; versions begin at 1.
struct pms_versions {
    uint8_t min, max;
};

extern const struct pms_versions pms_node_versions; // what runs behind the handshake: Raft, control, frames
extern const struct pms_versions
    pms_ring_versions; // plugin and pmsd: the ring's layout, messages after HELLO
extern const struct pms_versions pms_brick_versions; // superblocks that can be read
extern const unsigned pms_feature_level_max; // the newest agreed state and commands that are understood

bool pms_versions_valid(struct pms_versions v);
bool pms_versions_has(struct pms_versions v, unsigned version);
// The highest version that both speak; 0: none. Both must be valid.
unsigned pms_versions_common(struct pms_versions a, struct pms_versions b);

// The superblock version that a cluster at this feature level (1 or more) writes: one that every node of it
// reads.
unsigned pms_brick_version_at(unsigned level);

#define PMS_VERSIONS_TEXT_SIZE 16
// "1" or "1 to 2".
const char *pms_versions_format(struct pms_versions v, char text[PMS_VERSIONS_TEXT_SIZE]);

#endif
