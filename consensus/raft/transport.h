// SPDX-License-Identifier: GPL-2.0-or-later
// libraft's stream transport (raft_uv_transport) over struct pms_net. To libraft a node's address is its id
// in 16 hex digits; where that node listens is struct pms_net's matter at each attempt, so nodes may be
// renumbered.
#ifndef PMS_CONSENSUS_RAFT_TRANSPORT_H
#define PMS_CONSENSUS_RAFT_TRANSPORT_H

#include "consensus/raft/net.h"
#include <raft/uv.h>

// Fills in the table; net and loop outlive it. 0 or -ENOMEM.
int pms_transport_init(struct raft_uv_transport *transport, uv_loop_t *loop, struct pms_net *net);
// Frees; only after libraft closed the transport (raft_close's callback), or if libraft never initialized it.
void pms_transport_deinit(struct raft_uv_transport *transport);

// For an instance that must not be closed (after a fatal error: libraft's objects then stay until the process
// ends): stops connecting and accepting, and lets go of net.
void pms_transport_detach(struct raft_uv_transport *transport);

#endif
