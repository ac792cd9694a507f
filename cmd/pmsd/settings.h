// SPDX-License-Identifier: GPL-2.0-or-later
// The agreed settings, over the API.
#ifndef PMS_CMD_PMSD_SETTINGS_H
#define PMS_CMD_PMSD_SETTINGS_H

#include "cmd/pmsd/http.h"

#include <jansson.h>

// A list of {"name", "value", "default", "min", "max", "set", "takes_effect"}. New reference.
json_t *pms_settings_view(const struct pms_app *app);
// POST /v1/settings {"values": {name: value or null}}: all or none; null is the default again.
void pms_settings_set_route(struct pms_req *req);

#endif
