// SPDX-License-Identifier: GPL-2.0-or-later
// Proposing a command to the cluster state, from any node, and its result as a code and a text.
//
// Goes well: propose, the result comes back, ok. Goes wrong: the state machine refuses (its code and text are
// the answer); no leader takes it (no quorum, not applied); the leader is lost meanwhile (unknown: the same
// {client, seq} is proposed again, and the state machine answers as it did the first time).
#include "cmd/pmsd/command.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

struct pms_command {
    struct pms_list link; // in app->commands
    struct pms_app *app;
    char *text;
    uint64_t deadline_ns;
    unsigned flags;
    uint64_t index; // of the result that waits to be applied here too; 0: none
    char *result;
    bool too_new; // some node may not know such a command
    int early;    // could not even be proposed
    pms_command_cb cb;
    void *data;
    uv_timer_t later; // for early errors: the callback never runs before the return
};

json_t *pms_command_new(const char *op)
{
    json_t *cmd = json_object();

    PMS_CHECK_MSG(cmd != NULL && pms_json_set_str(cmd, "op", op) == 0, "out of memory");
    return cmd;
}

static void command_end(struct pms_command *c, int err, const char *text, const json_t *result)
{
    json_t *none = json_object();

    pms_list_del(&c->link);
    c->cb(c->data, err, text, result != NULL ? result : none);
    json_decref(none);
    pms_app_kick(c->app);
    free(c->text);
    free(c->result);
    free(c);
}

static void command_result(struct pms_command *c, const char *text)
{
    json_t *result = json_loads(text, 0, NULL);

    if (pms_json_bool(result, "ok", false))
        command_end(c, 0, "", result);
    else if (json_is_object(result))
        command_end(c, pms_err_from_name(pms_json_str(result, "error", "")),
                    pms_json_str(result, "text", "refused"), result);
    else
        command_end(c, PMS_EPROTO, "the cluster state answered with something unreadable", NULL);
    json_decref(result);
}

static const char *failure_text(int err)
{
    switch (err) {
    case PMS_ENOQUORUM:
        return "no quorum: too few voting nodes reach each other, so nothing can be agreed; start the "
               "missing "
               "nodes or mend the network (pmsctl cluster status names them)";
    case PMS_EUNKNOWN:
        return "the outcome is unknown, because the leader was lost meanwhile: look at the state before you "
               "try "
               "again";
    case PMS_EVERSION:
        return "the cluster's feature level is too low for that: install the newer pms on every node, then "
               "run "
               "pmsctl cluster upgrade";
    default:
        return pms_err_text(err);
    }
}

static void command_send(struct pms_command *c);

static void on_result(void *data, int status, uint64_t index, const char *result)
{
    struct pms_command *c = data;

    if (status == 0 && (c->flags & PMS_COMMAND_HERE) && c->app->phase == PMS_APP_MEMBER &&
        pms_state_index(c->app->state) < index) {
        c->index = index;
        c->result = strdup(result);
        PMS_CHECK_MSG(c->result != NULL, "out of memory");
    } else if (status == 0)
        command_result(c, result);
    else if (status == PMS_EUNKNOWN && !(c->flags & PMS_COMMAND_ONCE) && c->app->phase == PMS_APP_MEMBER &&
             pms_clock_boot_ns() < c->deadline_ns)
        command_send(c);
    else
        command_end(c, status, failure_text(status), NULL);
}

static void on_closed_early(uv_handle_t *h)
{
    struct pms_command *c = h->data;

    command_end(c, c->early, failure_text(c->early), NULL);
}

static void on_early(uv_timer_t *t)
{
    uv_close((uv_handle_t *)t, on_closed_early);
}

static void command_fail_later(struct pms_command *c, int err)
{
    c->early = err;
    uv_timer_init(c->app->loop, &c->later);
    c->later.data = c;
    uv_timer_start(&c->later, on_early, 0, 0);
}

static void command_send(struct pms_command *c)
{
    uint64_t now = pms_clock_boot_ns();
    uint64_t left_ms = now < c->deadline_ns ? (c->deadline_ns - now) / 1000000 : 0;
    int rv = PMS_ESHUTDOWN;

    if (c->too_new)
        rv = PMS_EVERSION;
    else if (c->app->raft != NULL && c->app->phase == PMS_APP_MEMBER)
        rv = pms_raft_propose(c->app->raft, c->text, strlen(c->text), (unsigned)left_ms + 1, on_result, c);
    if (rv != 0)
        command_fail_later(c, rv);
}

void pms_command_propose(struct pms_app *app, json_t *cmd, unsigned timeout_ms, unsigned flags,
                         pms_command_cb cb, void *data)
{
    struct pms_command *c = calloc(1, sizeof(*c));

    PMS_CHECK_MSG(c != NULL, "out of memory");
    PMS_CHECK(pms_json_set_id(cmd, "client", app->command_client) == 0);
    PMS_CHECK(pms_json_set_u64(cmd, "seq", ++app->command_seq) == 0);
    *c = (struct pms_command){.app = app,
                              .text = pms_json_dump_compact(cmd),
                              .deadline_ns = pms_clock_boot_ns() + timeout_ms * 1000000ull,
                              .flags = flags,
                              .too_new = app->state != NULL && pms_state_has_cluster(app->state) &&
                                         pms_state_op_level(pms_json_str(cmd, "op", NULL)) >
                                             pms_state_feature_level(app->state),
                              .cb = cb,
                              .data = data};
    PMS_CHECK_MSG(c->text != NULL, "out of memory");
    json_decref(cmd);
    pms_list_add_tail(&app->commands, &c->link);
    command_send(c);
}

void pms_commands_applied(struct pms_app *app)
{
    bool all = app->phase != PMS_APP_MEMBER;
    uint64_t index = all ? UINT64_MAX : pms_state_index(app->state);

    pms_list_for_each_safe (it, &app->commands) {
        struct pms_command *c = pms_list_entry(it, struct pms_command, link);

        if (c->index != 0 && c->index <= index)
            command_result(c, c->result);
    }
}
