// SPDX-License-Identifier: GPL-2.0-or-later
// The control loop's end of the data loop: its events, and the connections that it wants.
#include "cmd/pmsd/data.h"
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd/pmsd/local.h"

#include <stdlib.h>
#include <unistd.h>

// ---- Connections ----

struct dial {
    struct pms_app *app;
    uint64_t node;
};

static void on_dialled(void *data, int status, int fd, unsigned version)
{
    struct dial *d = data;

    if (status == 0)
        pms_log(PMS_LOG_INFO, "node %s is reached: version %u of the protocol between nodes",
                pms_log_hexid(d->node), version);
    if (d->app->data != NULL)
        pms_loop_link_dialled(d->app->data, d->node, status == 0 ? fd : status, version);
    free(d);
}

static void link_want(struct pms_app *app, uint64_t node)
{
    struct dial *d = calloc(1, sizeof(*d));
    int rv;

    PMS_CHECK_MSG(d != NULL, "out of memory");
    *d = (struct dial){app, node};
    rv = pms_net_dial(app->net, node, PMS_CHANNEL_DATA, on_dialled, d, NULL);
    if (rv != 0) {
        free(d);
        pms_loop_link_dialled(app->data, node, rv, 0);
    }
}

void pms_data_accept(void *data, uint64_t peer, int fd, unsigned version)
{
    struct pms_app *app = data;

    if (app->data != NULL)
        pms_loop_link_accepted(app->data, peer, fd, version);
    else
        close(fd); // stopping
}

// ---- Events ----

static void on_event(struct pms_app *app, const struct pms_loop_event *ev)
{
    struct pms_local *a;

    switch (ev->type) {
    case PMS_LOOP_EV_LINK_WANT:
        link_want(app, ev->node);
        break;
    case PMS_LOOP_EV_LINK_UP:
        pms_log(PMS_LOG_INFO, "data link to node %s is up", pms_log_hexid(ev->node));
        break;
    case PMS_LOOP_EV_LINK_LOST:
        pms_log(PMS_LOG_INFO, "data link to node %s is lost: %s", pms_log_hexid(ev->node),
                pms_err_text(ev->status));
        break;
    default:
        a = pms_local_find(app, ev->array);
        if (a != NULL)
            pms_local_on_event(a, ev);
        break;
    }
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct pms_app *app = p->data;
    struct pms_loop_event ev;

    (void)status;
    (void)events;
    pms_pulse_doing(&app->pulse, "what the data loop said");
    while (app->data != NULL && pms_loop_event_next(app->data, &ev))
        on_event(app, &ev);
    pms_app_kick(app);
}

int pms_data_start(struct pms_app *app)
{
    struct pms_loop_config config = {.cluster_uuid = app->node.cluster, .self_node = app->node.id};
    int rv = pms_loop_start(&config, &app->data);

    if (rv != 0)
        return rv;
    PMS_CHECK(uv_poll_init(app->loop, &app->data_poll, pms_loop_event_fd(app->data)) == 0);
    app->data_poll.data = app;
    uv_poll_start(&app->data_poll, UV_READABLE, on_readable);
    return 0;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct pms_app *app = h->data;

    pms_loop_stop(app->data);
    app->data = NULL;
    app->data_stopped(app);
}

void pms_data_stop(struct pms_app *app, void (*cb)(struct pms_app *app))
{
    app->data_stopped = cb;
    uv_close((uv_handle_t *)&app->data_poll, on_poll_closed);
}
