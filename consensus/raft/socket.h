// SPDX-License-Identifier: GPL-2.0-or-later
// Private to this room: TCP sockets set up the one way that all connections between nodes are.
#ifndef PMS_CONSENSUS_RAFT_SOCKET_H
#define PMS_CONSENSUS_RAFT_SOCKET_H

#include <sys/socket.h>

// All: O_NONBLOCK, FD_CLOEXEC. They return a descriptor or -errno.

// Bound with SO_REUSEADDR and listening.
int pms_socket_listen(const struct sockaddr_storage *addr);
// A connection attempt is under way (or done): wait for writable, then ask pms_socket_error.
int pms_socket_connect(const struct sockaddr_storage *addr);
// Next connection from a listener's queue, -EAGAIN if there is none. Its options are set.
int pms_socket_accept(int listener, struct sockaddr_storage *peer);

// 0, or why the attempt, or the connection since, failed.
int pms_socket_error(int fd);

#endif
