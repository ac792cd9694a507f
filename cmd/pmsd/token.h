// SPDX-License-Identifier: GPL-2.0-or-later
// Looking through the join tokens and revoking one.
#ifndef PMS_CMD_PMSD_TOKEN_H
#define PMS_CMD_PMSD_TOKEN_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/http.h"

// A list of {"id", "expires_s", "state", "node"}, by id; never a secret. now_s: Unix time. New reference.
json_t *pms_tokens_view(const struct pms_app *app, uint64_t now_s);

// DELETE /v1/tokens/ID.
void pms_token_revoke_route(struct pms_req *req);

#endif
