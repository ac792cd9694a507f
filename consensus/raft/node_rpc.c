// SPDX-License-Identifier: GPL-2.0-or-later
// What other nodes ask of this one as their leader: {"op":"propose","command":S,"timeout_ms":N} and
// {"op":"read_index","timeout_ms":N}. PMS_ENOTLEADER if it is none: the asker then looks for another.
#include "base/err.h"
#include "base/json.h"
#include "consensus/raft/node_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS_MAX 600000

struct asked {
    struct pms_raft *raft;
    struct pms_rpc_request *request;
};

static void on_proposed(void *data, int status, uint64_t index, const char *result)
{
    struct pms_rpc_request *request = data;
    json_t *body = NULL;

    if (status == 0) {
        body = json_pack("{s:I, s:s}", "index", (json_int_t)index, "result", result);
        if (body == NULL) // a result that is no UTF-8 cannot travel: the command is applied all the same
            body = json_pack("{s:I, s:s}", "index", (json_int_t)index, "result", "");
    }
    if (status == 0 && body == NULL)
        status = PMS_EUNKNOWN;
    pms_rpc_answer(request, status, body);
    json_decref(body);
}

static void on_barrier(void *data, int status)
{
    struct asked *asked = data;
    json_t *body = NULL;

    if (status == 0) {
        body = json_pack("{s:I}", "index", (json_int_t)raft_last_applied(&asked->raft->raft));
        status = body != NULL ? 0 : -ENOMEM;
    }
    pms_rpc_answer(asked->request, status, body);
    json_decref(body);
    free(asked);
}

static int read_index(struct pms_raft *r, struct pms_rpc_request *request, unsigned timeout_ms)
{
    struct asked *asked = malloc(sizeof *asked);
    int rv;

    if (asked == NULL)
        return -ENOMEM;
    *asked = (struct asked){.raft = r, .request = request};
    rv = pms_raft_barrier(r, timeout_ms, on_barrier, asked);
    if (rv != 0)
        free(asked);
    return rv;
}

void pms_raft_on_request(void *data, uint64_t from, struct pms_rpc_request *request, const json_t *body)
{
    struct pms_raft *r = data;
    const char *op = pms_json_str(body, "op", "");
    const json_t *command = json_object_get(body, "command");
    uint64_t timeout_ms = 0;
    int rv = PMS_EPROTO;

    (void)from;
    if (pms_json_u64(body, "timeout_ms", &timeout_ms) != 0 || timeout_ms > TIMEOUT_MS_MAX)
        rv = PMS_EPROTO;
    else if (strcmp(op, "propose") == 0 && json_is_string(command))
        rv = pms_raft_propose_local(r, json_string_value(command), json_string_length(command),
                                    (unsigned)timeout_ms, on_proposed, request);
    else if (strcmp(op, "read_index") == 0)
        rv = read_index(r, request, (unsigned)timeout_ms);
    if (rv != 0)
        pms_rpc_answer(request, rv, NULL);
}
