// SPDX-License-Identifier: GPL-2.0-or-later
// Growing the cluster: the first node (init), tokens, joining one and being joined by one.
#ifndef PMS_CMD_PMSD_JOIN_H
#define PMS_CMD_PMSD_JOIN_H

#include "cmd/pmsd/app.h"
#include "cmd/pmsd/http.h"
#include "base/version.h"
#include "consensus/raft/net.h"

#include <jansson.h>

// pms_net's questions about strangers who come with a token.
int pms_join_token_secret(void *data, const char *token_id, char secret[PMS_TOKEN_SECRET_SIZE]);
void pms_join_serve(void *data, struct pms_join *join, const char *token_id, const json_t *request);

// Routes POST /v1/cluster/init, /v1/cluster/join, /v1/tokens.
void pms_init_route(struct pms_req *req);
void pms_join_route(struct pms_req *req);
void pms_token_route(struct pms_req *req);

// What init, join and token have in common: join_common.c.

// "node" and "addr" of a request's body. 0, or PMS_EUSAGE answered to req.
int pms_join_node_fields(struct pms_req *req, char name[PMS_NAME_MAX + 1], struct sockaddr_storage *addr);
// Can this address be listened on here? 0 or -errno.
int pms_join_addr_try(const struct sockaddr_storage *addr);
// A token_add command for a fresh token.
json_t *pms_token_command(const struct pms_app *app, struct pms_token *token);
// {"token", "join": the command to type, "expires_s"}; new reference.
json_t *pms_token_answer(const struct pms_app *app, const struct pms_token *token);

// {"min", "max"}; new reference.
json_t *pms_versions_to_json(struct pms_versions v);
// Of such an object; anything else: version 1, which is what was spoken before ranges were told.
struct pms_versions pms_versions_from_json(const json_t *obj);

#endif
