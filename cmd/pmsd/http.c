// SPDX-License-Identifier: GPL-2.0-or-later
// HTTP on the local socket: libmicrohttpd driven by the control loop, one JSON answer for each request.
//
// A request goes: head, body (collected), dispatch to its route's handler, which answers at once, or later:
// then libmicrohttpd is told to wait (suspend) until the answer is there (resume). Everything on one thread.
#include "cmd/pmsd/http.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "cmd/pmsd/app.h"
#include "cmd/pmsd/route.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BODY_MAX (1u << 20) // bytes of a request's body

struct pms_http {
    struct pms_app *app;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_async_t wake; // something was resumed
    int open_handles;
    char path[108];
    struct pms_list requests;
};

struct pms_req {
    struct pms_list link;
    struct pms_http *http;
    struct MHD_Connection *conn;
    struct pms_buf upload;
    bool too_long;
    char arg[128];
    json_t *body;
    bool dispatched, suspended, answered;
    unsigned status;
    const char *type;
    char *text;
};

// ---- For the handlers ----

struct pms_app *pms_req_app(struct pms_req *req)
{
    return req->http->app;
}

const char *pms_req_arg(const struct pms_req *req)
{
    return req->arg;
}

const json_t *pms_req_body(const struct pms_req *req)
{
    return req->body;
}

// text is heap memory, taken over.
static void answer(struct pms_req *req, unsigned status, const char *type, char *text)
{
    PMS_CHECK_MSG(!req->answered, "a request is answered once");
    PMS_CHECK_MSG(text != NULL, "out of memory");
    req->answered = true;
    req->status = status;
    req->type = type;
    req->text = text;
    if (!req->suspended)
        return;
    req->suspended = false;
    MHD_resume_connection(req->conn);
    uv_async_send(&req->http->wake);
}

void pms_req_answer(struct pms_req *req, json_t *body)
{
    char *text = body != NULL ? pms_json_dump_compact(body) : strdup("{}");

    json_decref(body);
    answer(req, MHD_HTTP_OK, "application/json", text);
}

void pms_req_answer_text(struct pms_req *req, const char *type, const char *text)
{
    answer(req, MHD_HTTP_OK, type, strdup(text));
}

static unsigned status_of(int err)
{
    switch (err) {
    case PMS_EUSAGE:
    case PMS_EPROTO:
        return MHD_HTTP_BAD_REQUEST;
    case PMS_EAUTH:
        return MHD_HTTP_FORBIDDEN;
    case PMS_ENOTFOUND:
        return MHD_HTTP_NOT_FOUND;
    case PMS_EEXISTS:
    case PMS_EREFUSED:
    case PMS_EBUSY:
    case PMS_EFULL:
    case PMS_EIDENTITY:
    case PMS_ESTALE:
        return MHD_HTTP_CONFLICT;
    case PMS_ENOQUORUM:
    case PMS_ESHUTDOWN:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    case -ETIMEDOUT:
        return MHD_HTTP_GATEWAY_TIMEOUT;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

void pms_req_refuse(struct pms_req *req, int err, const char *fmt, ...)
{
    json_t *body = json_object();
    char text[1024], *dump;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pms_json_set_str(body, "error", pms_err_name(err));
    if (pms_json_set_str(body, "text", text) != 0)
        pms_json_set_str(body, "text", pms_err_text(err));
    dump = pms_json_dump_compact(body);
    json_decref(body);
    answer(req, status_of(err), "application/json", dump);
}

// ---- From libmicrohttpd ----

static void dispatch(struct pms_req *req, const char *method, const char *url)
{
    bool known_path = false;
    const struct pms_route *route = pms_api_find(method, url, req->arg, sizeof(req->arg), &known_path);
    json_error_t error;

    req->dispatched = true;
    if (route == NULL) {
        if (known_path)
            pms_req_refuse(req, PMS_EUSAGE, "%s does not take %s", url, method);
        else
            pms_req_refuse(req, PMS_ENOTFOUND, "there is nothing at %s", url);
        return;
    }
    if (req->too_long) {
        pms_req_refuse(req, PMS_EUSAGE, "the request is longer than %u bytes", BODY_MAX);
        return;
    }
    req->body = req->upload.len > 0 ? json_loadb((const char *)req->upload.data, req->upload.len,
                                                 JSON_REJECT_DUPLICATES, &error)
                                    : json_object();
    if (!json_is_object(req->body)) {
        pms_req_refuse(req, PMS_EUSAGE, "the body is no JSON object");
        return;
    }
    if (route->member && req->http->app->phase != PMS_APP_MEMBER) {
        pms_req_refuse(
            req, PMS_EREFUSED,
            "this node is in no cluster yet: run pmsctl cluster init, or pmsctl cluster join with a "
            "token from a node that is in one");
        return;
    }
    route->handler(req);
}

static enum MHD_Result reply(struct pms_req *req)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(req->text), req->text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rv;

    if (r == NULL)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, req->type);
    rv = MHD_queue_response(req->conn, req->status, r);
    MHD_destroy_response(r);
    return rv;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size,
                                  void **con_cls)
{
    struct pms_http *http = cls;
    struct pms_req *req = *con_cls;

    (void)version;
    if (req == NULL) {
        req = calloc(1, sizeof(*req));
        if (req == NULL)
            return MHD_NO;
        req->http = http;
        req->conn = conn;
        pms_list_add_tail(&http->requests, &req->link);
        *con_cls = req;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        if (req->upload.len + *upload_size > BODY_MAX)
            req->too_long = true;
        else if (pms_buf_append(&req->upload, upload, *upload_size) != 0)
            return MHD_NO;
        *upload_size = 0;
        return MHD_YES;
    }
    if (!req->dispatched)
        dispatch(req, method, url);
    if (req->answered)
        return reply(req);
    req->suspended = true;
    MHD_suspend_connection(conn);
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct pms_req *req = *con_cls;

    (void)cls;
    (void)conn;
    (void)code;
    if (req == NULL)
        return;
    PMS_CHECK_MSG(!req->dispatched || req->answered, "a request must not end before its answer");
    pms_list_del(&req->link);
    pms_buf_deinit(&req->upload);
    json_decref(req->body);
    free(req->text);
    free(req);
    *con_cls = NULL;
}

// ---- On the control loop ----

static void on_timer(uv_timer_t *t);

static void http_run(struct pms_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;

    MHD_run(http->daemon);
    if (MHD_get_timeout(http->daemon, &ms) == MHD_YES)
        uv_timer_start(&http->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&http->timer);
}

static void on_timer(uv_timer_t *t)
{
    http_run(t->data);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    http_run(p->data);
}

static void on_wake(uv_async_t *a)
{
    http_run(a->data);
}

static int make_parent(const char *path)
{
    char dir[108];
    char *slash;

    snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    if (slash == NULL || slash == dir)
        return 0;
    *slash = '\0';
    return mkdir(dir, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd, rv;

    if (strlen(path) >= sizeof(sun.sun_path))
        return -ENAMETOOLONG;
    strcpy(sun.sun_path, path);
    rv = make_parent(path);
    if (rv != 0)
        return rv;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    // The state directory's lock says that no other pmsd of this node runs; another one's socket is left
    // alone.
    if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0) {
        close(fd);
        return -EADDRINUSE;
    }
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    unlink(path);
    mask = umask(0177);
    rv = bind(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0 && listen(fd, 512) == 0 ? fd : -errno;
    umask(mask);
    if (rv < 0)
        close(fd);
    return rv;
}

int pms_http_open(struct pms_app *app, const char *path, struct pms_http **out)
{
    struct pms_http *http;
    const union MHD_DaemonInfo *info;
    int fd = listen_unix(path);

    if (fd < 0)
        return fd;
    http = calloc(1, sizeof(*http));
    PMS_CHECK_MSG(http != NULL, "out of memory");
    http->app = app;
    strcpy(http->path, path);
    pms_list_init(&http->requests);
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
                                    MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                                    NULL, MHD_OPTION_CONNECTION_LIMIT, 256u, MHD_OPTION_CONNECTION_TIMEOUT,
                                    60u, MHD_OPTION_END);
    info = http->daemon != NULL ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL) {
        close(fd);
        free(http);
        return -ENOMEM;
    }
    PMS_CHECK(uv_poll_init(app->loop, &http->poll, info->epoll_fd) == 0);
    PMS_CHECK(uv_timer_init(app->loop, &http->timer) == 0);
    PMS_CHECK(uv_async_init(app->loop, &http->wake, on_wake) == 0);
    http->open_handles = 3;
    http->poll.data = http->timer.data = http->wake.data = http;
    uv_poll_start(&http->poll, UV_READABLE, on_poll);
    *out = http;
    return 0;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct pms_http *http = h->data;

    if (--http->open_handles > 0)
        return;
    MHD_stop_daemon(http->daemon);
    free(http);
}

void pms_http_close(struct pms_http *http)
{
    pms_list_for_each_safe (it, &http->requests) {
        struct pms_req *req = pms_list_entry(it, struct pms_req, link);

        if (req->dispatched && !req->answered)
            pms_req_refuse(req, PMS_ESHUTDOWN, "pmsd is stopping");
    }
    // What was answered just now still goes out.
    for (int i = 0; i < 4; i++)
        MHD_run(http->daemon);
    unlink(http->path);
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->timer, on_handle_closed);
    uv_close((uv_handle_t *)&http->wake, on_handle_closed);
}
