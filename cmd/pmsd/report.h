// SPDX-License-Identifier: GPL-2.0-or-later
// What this node itself knows of its arrays, as JSON for the other nodes (service "local") and for metrics.
#ifndef PMS_CMD_PMSD_REPORT_H
#define PMS_CMD_PMSD_REPORT_H

#include "cmd/pmsd/app.h"
#include "consensus/raft/rpc.h"

#include <jansson.h>

// {"hypervisor": bool, "probe_reads": bool, "version": text, "protocol": {"min", "max"}, "mismatches":
// [{"node", "protocol"}] (with whom no version is common), "arrays": {array id: {...}}}; new reference.
//   brick            none, creating, made, opening, open, closing, deleting, gone
//   brick_error      name and text of what the last step failed with, if it did; brick_path
//   zero_done/total  bytes, while a device is being zeroed
//   epoch, serving, leased, target (down, starting, serving ...), target_error
//   resyncing, percent, eta_s, resync_slots (mask)
json_t *pms_report_make(struct pms_app *app);
void pms_report_serve(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body);

#endif
