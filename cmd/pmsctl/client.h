// SPDX-License-Identifier: GPL-2.0-or-later
// A small HTTP/1.1 client for pmsd's Unix socket: one request a connection.
#ifndef PMS_CMD_PMSCTL_CLIENT_H
#define PMS_CMD_PMSCTL_CLIENT_H

#include <jansson.h>
#include <stddef.h>

struct pms_client {
    const char *socket;
    // While an answer is awaited: each second; NULL: never.
    void (*on_wait)(struct pms_client *client, void *data);
    void *data;
};

// Sends method path with body (borrowed; NULL: none). *answer: the JSON of the answer (new reference), *http
// its status. 0, or -errno of the socket (-ENOENT, -ECONNREFUSED: pmsd does not run), -ECONNRESET (it ended
// before it answered), PMS_EPROTO.
int pms_client_call(struct pms_client *client, const char *method, const char *path, const json_t *body,
                    unsigned *http, json_t **answer);

// Takes an answer apart: head's status and where the body starts. PMS_EPROTO. For whole answers only.
int pms_client_parse(const char *text, size_t len, unsigned *http, size_t *body_at);

#endif
