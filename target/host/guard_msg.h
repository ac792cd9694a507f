// SPDX-License-Identifier: GPL-2.0-or-later
// Packets between pmsd and its guard, over a SEQPACKET pair. Both are the same program: no versions.
#ifndef PMS_TARGET_HOST_GUARD_MSG_H
#define PMS_TARGET_HOST_GUARD_MSG_H

#include <net/if.h>
#include <stdint.h>
#include <sys/socket.h>

enum pms_guard_op {
    PMS_GUARD_ADDR_ADD = 1, // may carry the listener; answered
    PMS_GUARD_ADDR_DEL,     // answered
    PMS_GUARD_ANNOUNCE,     // an address that is up, once more
    PMS_GUARD_PID_ADD,      // carries the pidfd
    PMS_GUARD_PID_DEL,
    PMS_GUARD_RENEW,     // every second: all addresses get their lifetime again
    PMS_GUARD_ADDR_LOST, // guard to pmsd: the address went away by itself (lifetime, operator, link)
};

struct pms_guard_msg {
    uint32_t op;
    uint32_t id; // of the address or pid entry, given by pmsd
    int32_t err; // in answers
    uint32_t ifindex;
    uint32_t prefix_len;
    uint32_t lifetime_s; // in ADDR_ADD and RENEW
    char ifname[IF_NAMESIZE];
    struct sockaddr_storage addr;
};

#endif
