// SPDX-License-Identifier: GPL-2.0-or-later
// The API's JSON of arrays, nodes, sessions and of the whole cluster, from the agreed state and what was
// gathered.
#ifndef PMS_CMD_PMSD_VIEW_H
#define PMS_CMD_PMSD_VIEW_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/gather.h"

#include <jansson.h>

// All are new references.
json_t *pms_view_array(const struct pms_app *app, const struct pms_gather *g,
                       const struct pms_array_info *info);
json_t *pms_view_arrays(const struct pms_app *app, const struct pms_gather *g); // a list
json_t *pms_view_nodes(const struct pms_app *app, const struct pms_gather *g);  // a list
json_t *pms_view_sessions(const struct pms_app *app);                           // a list
json_t *pms_view_status(const struct pms_app *app, const struct pms_gather *g);

// The node's name, or its id in hex; "none" for 0. Static storage, good for one use.
const char *pms_view_node_name(const struct pms_app *app, uint64_t id);

#endif
