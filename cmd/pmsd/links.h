// SPDX-License-Identifier: GPL-2.0-or-later
// How well the nodes hear each other, and what that says of this node.
#ifndef PMS_CMD_PMSD_LINKS_H
#define PMS_CMD_PMSD_LINKS_H

#include "cmd/pmsd/app.h"
#include "consensus/raft/rpc.h"

#define PMS_LINKS_BAD  50 // percent of pulses answered in time: below, a node is heard badly
#define PMS_LINKS_WELL 90 // from here on well

struct pms_links *pms_links_create(struct pms_app *app);
// Callbacks still out find it by the app and do nothing.
void pms_links_destroy(struct pms_links *links);

// From the tick: one pulse to each other node, and the verdict to the data loop.
void pms_links_tick(struct pms_links *links);

// Service "pulse": {"heard": {node id: percent}} both ways.
void pms_links_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body);

// True if others hear node well but this node badly, so that it must not blame that node. Pure.
//   mine[i]: how this node hears third node i, percent; -1: no news of it lately, it has no say
//   self[i], peer[i]: how i hears this node and the other one; -1: it said nothing of it
bool pms_links_verdict(const int *mine, const int *self, const int *peer, unsigned n);

#endif
