// SPDX-License-Identifier: GPL-2.0-or-later
// Every limit, contract number and default timing in one place, with what must hold between them.
#ifndef PMS_BASE_LIMITS_H
#define PMS_BASE_LIMITS_H

#include "base/check.h"

// Cluster.
#define PMS_NODES_MAX    8
#define PMS_SLOTS_MAX    8
#define PMS_VOTERS_MAX   5
#define PMS_NAME_MAX     63  // bytes of a node's, array's or cluster's name, without NUL
#define PMS_IQN_MAX      223 // bytes of an iSCSI name (RFC 7143, 4.2.7.1), without NUL
#define PMS_SESSIONS_MAX 256 // of one array

// Data.
#define PMS_SECTOR_BYTES      512u
#define PMS_BLOCK_BYTES       4096u       // unit of direct I/O and of meta pages
#define PMS_REGION_BYTES      (1u << 20)  // unit of dirty tracking
#define PMS_BRICK_DATA_OFFSET (4u << 20)  // where array data starts in a brick
#define PMS_IO_BYTES_MAX      (4u << 20)  // one SCSI command's payload
#define PMS_ZERO_BYTES_MAX    (4u << 20)  // zeroed by one operation: more is split
#define PMS_VOLATILE_BYTES    (64u << 20) // with the write cache on: acknowledged, not yet stable, at most
#define PMS_VOLATILE_MS       1000        // and for so long at most

// Ports.
#define PMS_PORT_NODE  7470
#define PMS_PORT_WEB   7480
#define PMS_PORT_ISCSI 3260

// Default timings.
#define PMS_HEARTBEAT_MS        30
#define PMS_PROMISE_MS          300
#define PMS_LEASE_MS            250
#define PMS_RAFT_ELECTION_MS    200
#define PMS_RAFT_HEARTBEAT_MS   40
#define PMS_EJECT_DEAD_MS       1000
#define PMS_EJECT_SLOW_MS       5000
#define PMS_ADDR_LIFETIME_S     3
#define PMS_ORPHAN_S            300
#define PMS_WATCHDOG_DATA_MS    5000  // a data loop that has not turned for so long ends its pmsd
#define PMS_WATCHDOG_CONTROL_MS 10000 // a control loop
#define PMS_TGTD_DEAF_MS        5000  // a tgtd whose event loop is silent for so long is replaced

PMS_STATIC_ASSERT(PMS_SLOTS_MAX <= PMS_NODES_MAX, "no two slots of an array share a node");
PMS_STATIC_ASSERT(PMS_VOTERS_MAX <= PMS_NODES_MAX, "voters are nodes");
PMS_STATIC_ASSERT(PMS_BLOCK_BYTES % PMS_SECTOR_BYTES == 0, "blocks are whole sectors");
PMS_STATIC_ASSERT(PMS_REGION_BYTES % PMS_BLOCK_BYTES == 0, "regions are whole blocks");
PMS_STATIC_ASSERT((PMS_REGION_BYTES & (PMS_REGION_BYTES - 1)) == 0, "region lookup is a shift");
PMS_STATIC_ASSERT(PMS_BRICK_DATA_OFFSET % PMS_REGION_BYTES == 0, "data starts on a region boundary");
PMS_STATIC_ASSERT(PMS_IO_BYTES_MAX % PMS_BLOCK_BYTES == 0, "the largest command is whole blocks");
PMS_STATIC_ASSERT(PMS_LEASE_MS < PMS_PROMISE_MS,
                  "the primary stops reading before a replica may help a takeover");
PMS_STATIC_ASSERT(PMS_HEARTBEAT_MS * 4 < PMS_LEASE_MS, "a few lost heartbeats do not cost the lease");
PMS_STATIC_ASSERT(PMS_RAFT_HEARTBEAT_MS * 3 < PMS_RAFT_ELECTION_MS, "a lost heartbeat is no election");
PMS_STATIC_ASSERT(PMS_PROMISE_MS < PMS_EJECT_DEAD_MS, "nobody is ejected while its promise lives");
PMS_STATIC_ASSERT(PMS_EJECT_DEAD_MS < PMS_EJECT_SLOW_MS, "dead goes before slow");

#endif
