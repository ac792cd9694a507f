// SPDX-License-Identifier: GPL-2.0-or-later
// TCP sockets between nodes: no delay, and a dead peer noticed within PMS_NET_USER_TIMEOUT_MS.
#include "consensus/raft/socket.h"
#include "base/util.h"
#include "consensus/raft/net.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#define BACKLOG 128

static int options_set(int fd)
{
    int on = 1;
    unsigned timeout_ms = PMS_NET_USER_TIMEOUT_MS;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms) != 0)
        return -errno;
    return 0;
}

static int socket_new(const struct sockaddr_storage *addr)
{
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

    return fd < 0 ? -errno : fd;
}

int pms_socket_listen(const struct sockaddr_storage *addr)
{
    int fd = socket_new(addr);
    int on = 1;
    int rv;

    if (fd < 0)
        return fd;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)addr, pms_addr_len(addr)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    rv = -errno;
    close(fd);
    return rv;
}

int pms_socket_connect(const struct sockaddr_storage *addr)
{
    int fd = socket_new(addr);
    int rv;

    if (fd < 0)
        return fd;
    rv = options_set(fd);
    if (rv == 0 && connect(fd, (const struct sockaddr *)addr, pms_addr_len(addr)) != 0 &&
        errno != EINPROGRESS)
        rv = -errno;
    if (rv == 0)
        return fd;
    close(fd);
    return rv;
}

int pms_socket_accept(int listener, struct sockaddr_storage *peer)
{
    socklen_t len = sizeof *peer;
    int fd = accept4(listener, (struct sockaddr *)peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int rv;

    if (fd < 0)
        return -errno;
    rv = options_set(fd);
    if (rv == 0)
        return fd;
    close(fd);
    return rv;
}

int pms_socket_error(int fd)
{
    int err = 0;
    socklen_t len = sizeof err;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
        return -errno;
    return -err;
}
