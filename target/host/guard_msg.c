// SPDX-License-Identifier: GPL-2.0-or-later
// Sends and receives the guard's packets with their descriptors.
#include "target/host/guard_msg.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

union control {
    struct cmsghdr hdr;
    char space[CMSG_SPACE(PMS_GUARD_FDS * sizeof(int))];
};

int pms_guard_msg_send(int sock, struct pms_guard_msg *msg, const int *fds, int flags)
{
    union control control = {0};
    struct iovec iov = {.iov_base = msg, .iov_len = sizeof(*msg)};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    int out[PMS_GUARD_FDS];
    size_t n = 0;

    msg->version = PMS_GUARD_VERSION;
    msg->fds = 0;
    for (unsigned i = 0; fds && i < PMS_GUARD_FDS; i++) {
        if (fds[i] < 0)
            continue;
        msg->fds |= 1u << i;
        out[n++] = fds[i];
    }
    if (n > 0) {
        mh.msg_control = &control;
        mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
        control.hdr.cmsg_level = SOL_SOCKET;
        control.hdr.cmsg_type = SCM_RIGHTS;
        control.hdr.cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(&control.hdr), out, n * sizeof(int));
    }
    return sendmsg(sock, &mh, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void pms_guard_fds_close(int fds[PMS_GUARD_FDS])
{
    for (unsigned i = 0; i < PMS_GUARD_FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

int pms_guard_msg_receive(int sock, struct pms_guard_msg *msg, int fds[PMS_GUARD_FDS], int flags)
{
    union control control;
    struct iovec iov = {.iov_base = msg, .iov_len = sizeof(*msg)};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    // The padding of the control buffer is room for one more descriptor.
    int in[sizeof(control) / sizeof(int)];
    size_t n_fds = 0, at = 0;
    struct cmsghdr *cmsg;
    ssize_t n;

    for (unsigned i = 0; i < PMS_GUARD_FDS; i++)
        fds[i] = -1;
    n = recvmsg(sock, &mh, flags | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    cmsg = CMSG_FIRSTHDR(&mh);
    if (cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS) {
        n_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(in, CMSG_DATA(cmsg), n_fds * sizeof(int));
    }
    if (n == (ssize_t)sizeof(*msg) && msg->version == PMS_GUARD_VERSION)
        for (unsigned i = 0; i < PMS_GUARD_FDS && at < n_fds; i++)
            if (msg->fds & 1u << i)
                fds[i] = in[at++];
    for (size_t i = at; i < n_fds; i++)
        close(in[i]);
    if (n == 0)
        return 0;
    return n == (ssize_t)sizeof(*msg) && msg->version == PMS_GUARD_VERSION && at == n_fds ? 1 : -EBADMSG;
}
