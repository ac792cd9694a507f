// SPDX-License-Identifier: GPL-2.0-or-later
// HTTP on the local socket: requests in, one JSON answer each, now or later. Runs on the control loop.
#ifndef PMS_CMD_PMSD_HTTP_H
#define PMS_CMD_PMSD_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct pms_app;
struct pms_http;
struct pms_req;

// Listens on path (0600; an old socket there is replaced, its folder is made if missing). 0 or -errno.
int pms_http_open(struct pms_app *app, const char *path, struct pms_http **http);
// Answers what is open with PMS_ESHUTDOWN, closes, removes the socket, frees.
void pms_http_close(struct pms_http *http);

// A request, as a route's handler sees it; valid until it is answered. Each is answered exactly once.
struct pms_app *pms_req_app(struct pms_req *req);
// The path's variable part (the "*" of the route), decoded; "" if it has none.
const char *pms_req_arg(const struct pms_req *req);
// The body, an object (empty if there was none); borrowed.
const json_t *pms_req_body(const struct pms_req *req);

// 200 with body (stolen; NULL: {}).
void pms_req_answer(struct pms_req *req, json_t *body);
// 200 with text (copied).
void pms_req_answer_text(struct pms_req *req, const char *type, const char *text);
// The status that fits err, and {"error": its name, "text": ...}.
__attribute__((format(printf, 3, 4))) void pms_req_refuse(struct pms_req *req, int err, const char *fmt, ...);

// The route for it (api.c). NULL: none, and *known_path says whether another method would have one. The
// path's variable element goes to arg (size bytes).
struct pms_route;
const struct pms_route *pms_api_find(const char *method, const char *path, char *arg, size_t size,
                                     bool *known_path);

#endif
