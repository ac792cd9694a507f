// SPDX-License-Identifier: GPL-2.0-or-later
// A small HTTP/1.1 client for pmsd's Unix socket. The request asks to close, so an answer ends with the
// connection.
#include "cmd/pmsctl/client.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (64u << 20) // bytes

static int connect_unix(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int fd, rv;

    if (strlen(path) >= sizeof(sun.sun_path))
        return -ENAMETOOLONG;
    strcpy(sun.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0) {
        rv = -errno;
        close(fd);
        return rv;
    }
    return fd;
}

static int send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int request_send(int fd, const char *method, const char *path, const json_t *body)
{
    char *text = body != NULL ? pms_json_dump_compact(body) : NULL;
    struct pms_buf b;
    int rv;

    pms_buf_init(&b);
    rv = pms_buf_printf(&b,
                        "%s %s HTTP/1.1\r\nHost: pms\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                        method, path, text != NULL ? strlen(text) : 0, text != NULL ? text : "");
    if (rv == 0)
        rv = send_all(fd, (const char *)b.data, b.len);
    pms_buf_deinit(&b);
    free(text);
    return rv;
}

static int answer_read(struct pms_client *client, int fd, struct pms_buf *b)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, client->on_wait != NULL ? 1000 : -1);
        ssize_t got;

        if (n == 0 && client->on_wait != NULL) {
            client->on_wait(client, client->data);
            continue;
        }
        if (b->len > ANSWER_MAX || pms_buf_reserve(b, 65536) != 0)
            return PMS_EPROTO;
        got = recv(fd, b->data + b->len, 65535, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return b->len > 0 ? 0 : -ECONNRESET;
        b->len += (size_t)got;
    }
}

int pms_client_parse(const char *text, size_t len, unsigned *http, size_t *body_at)
{
    const char *end = memmem(text, len, "\r\n\r\n", 4);
    char digits[4];

    if (end == NULL || len < 12 || strncmp(text, "HTTP/1.", 7) != 0 || text[8] != ' ')
        return PMS_EPROTO;
    memcpy(digits, text + 9, 3);
    digits[3] = '\0';
    if (strspn(digits, "0123456789") != 3)
        return PMS_EPROTO;
    *http = (unsigned)strtoul(digits, NULL, 10);
    *body_at = (size_t)(end - text) + 4;
    return 0;
}

int pms_client_call(struct pms_client *client, const char *method, const char *path, const json_t *body,
                    unsigned *http, json_t **answer)
{
    struct pms_buf b;
    size_t at = 0;
    int fd = connect_unix(client->socket), rv;

    if (fd < 0)
        return fd;
    pms_buf_init(&b);
    rv = request_send(fd, method, path, body);
    if (rv == 0)
        rv = answer_read(client, fd, &b);
    if (rv == 0)
        rv = pms_client_parse((const char *)b.data, b.len, http, &at);
    if (rv == 0) {
        *answer = json_loadb((const char *)b.data + at, b.len - at, 0, NULL);
        if (*answer == NULL)
            rv = PMS_EPROTO;
    }
    pms_buf_deinit(&b);
    close(fd);
    return rv;
}
