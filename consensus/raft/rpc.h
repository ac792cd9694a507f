// SPDX-License-Identifier: GPL-2.0-or-later
// The control channel: JSON requests and answers between nodes, pipelined on one connection for each
// direction, opened when first needed. Frames are u32 length (little endian, at most 4 MiB) and JSON:
// {"id":N,"service":S,"body":B} one way, {"id":N,"status":0,"body":B} or {"id":N,"status":E} the other.
// Everything runs on the loop's thread. A body is any JSON object.
#ifndef PMS_CONSENSUS_RAFT_RPC_H
#define PMS_CONSENSUS_RAFT_RPC_H

#include "consensus/raft/net.h"
#include <jansson.h>
#include <stdint.h>

#define PMS_RPC_FRAME_MAX    (4u << 20) // bytes of JSON
#define PMS_RPC_SERVICES_MAX 8
#define PMS_RPC_SERVED_MAX   256 // unanswered requests of one peer; more are answered with PMS_EBUSY

struct pms_rpc;
struct pms_rpc_request;

int pms_rpc_open(uv_loop_t *loop, struct pms_net *net, struct pms_rpc **rpc);
// Ends every call with PMS_EUNKNOWN or -ECANCELED, drops connections, then cb and frees. Requests not yet
// answered may still be answered afterwards (that then does nothing), but must be.
void pms_rpc_close(struct pms_rpc *rpc, void (*cb)(void *data), void *data);

// status 0: body is the answer (borrowed, never NULL). Else body is NULL and status is
//   - the code that the peer's handler answered with,
//   - PMS_EUNKNOWN: sent, but no answer (connection lost or timeout): it may have been done or not,
//   - anything else: certainly not done by the peer (-ECONNREFUSED, -ETIMEDOUT before it was sent, PMS_EAUTH,
//     PMS_ENOTFOUND from resolve or for an unknown service, PMS_EBUSY, -ECANCELED ...).
typedef void (*pms_rpc_cb)(void *data, int status, const json_t *body);

// body is borrowed and may be NULL (an empty object). 0: cb runs once, later. Error (-ENOMEM, -EMSGSIZE,
// PMS_ESHUTDOWN): never. A call to our own node id is served by our own handler.
int pms_rpc_call(struct pms_rpc *rpc, uint64_t node, const char *service, const json_t *body,
                 unsigned timeout_ms, pms_rpc_cb cb, void *data);

// Ends the calls to a service of a node now, as if the connection had been lost: for a caller that knows
// better whom to ask.
void pms_rpc_abandon(struct pms_rpc *rpc, uint64_t node, const char *service);

// A request from a peer (authenticated id `from`). body is borrowed. The handler answers, now or later,
// exactly once, with pms_rpc_answer().
typedef void (*pms_rpc_handler)(void *data, uint64_t from, struct pms_rpc_request *request,
                                const json_t *body);

// name is copied (at most 31 bytes). "raft" is taken by struct pms_raft. handler NULL unregisters. 0,
// PMS_EEXISTS, PMS_EFULL.
int pms_rpc_serve(struct pms_rpc *rpc, const char *service, pms_rpc_handler handler, void *data);

// Ends the request. status 0 with a body (borrowed; NULL: empty object), or a negative code and no body.
void pms_rpc_answer(struct pms_rpc_request *request, int status, const json_t *body);

#endif
