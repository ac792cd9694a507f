// SPDX-License-Identifier: GPL-2.0-or-later
// Packets between pmsd and its guard over a SEQPACKET pair, and between a guard and the next pmsd over a
// SEQPACKET socket in the run folder.
#ifndef PMS_TARGET_HOST_GUARD_MSG_H
#define PMS_TARGET_HOST_GUARD_MSG_H

#include <net/if.h>
#include <stdint.h>
#include <sys/socket.h>

// Raised with every change of the struct: a guard may be left by a pmsd of another build.
#define PMS_GUARD_VERSION 1

enum pms_guard_op {
    PMS_GUARD_ADDR_ADD = 1, // may carry the listener; answered
    PMS_GUARD_ADDR_DEL,     // answered
    PMS_GUARD_ANNOUNCE,     // an address that is up, once more
    PMS_GUARD_PID_ADD,      // carries the process's descriptors; of a known id: its tenure changed
    PMS_GUARD_PID_DEL,
    PMS_GUARD_RENEW,     // every second: all addresses get their lifetime again
    PMS_GUARD_ADDR_LOST, // guard to pmsd: the address went away by itself (lifetime, operator, link)
    PMS_GUARD_LEFT,      // guard to the next pmsd: as PID_ADD
    PMS_GUARD_LEFT_END,  // guard to the next pmsd: that was all (id: how many)
    PMS_GUARD_TAKEN,     // the next pmsd to the guard: they are mine
};

enum { PMS_GUARD_FD_FIRST, PMS_GUARD_FD_LISTEN, PMS_GUARD_FD_LOG, PMS_GUARD_FDS }; // first: listener or pidfd

struct pms_guard_msg {
    uint16_t version;
    uint16_t op;
    uint32_t id;  // of the address or pid entry, given by pmsd
    int32_t err;  // in answers
    uint32_t fds; // mask: which of the descriptors come along
    uint32_t ifindex;
    uint32_t prefix_len;
    uint32_t lifetime_s; // in ADDR_ADD and RENEW
    char ifname[IF_NAMESIZE];
    struct sockaddr_storage addr;
    // Of a process.
    uint64_t array_id;
    uint64_t tenure;
    int64_t pid;
    char ipc_path[108];
};

// fds: PMS_GUARD_FDS places, -1: none; NULL: none at all. They stay the caller's. Sets version and mask of
// *msg. flags: MSG_DONTWAIT or 0. 0 or -errno.
int pms_guard_msg_send(int sock, struct pms_guard_msg *msg, const int *fds, int flags);
// fds: filled, -1: none; the caller closes them, whatever is returned. 1, 0 at the end of file, or -errno
// (-EBADMSG: not such a packet).
int pms_guard_msg_receive(int sock, struct pms_guard_msg *msg, int fds[PMS_GUARD_FDS], int flags);
void pms_guard_fds_close(int fds[PMS_GUARD_FDS]);

#endif
