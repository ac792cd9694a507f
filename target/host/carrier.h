// SPDX-License-Identifier: GPL-2.0-or-later
// Does the interface of a portal have carrier? Told by the kernel, never asked for: nothing here blocks.
#ifndef PMS_TARGET_HOST_CARRIER_H
#define PMS_TARGET_HOST_CARRIER_H

#include <sys/socket.h>
#include <uv.h>

enum pms_carrier_state {
    PMS_CARRIER_UNKNOWN, // no interface is in that subnet, or the kernel has not answered yet
    PMS_CARRIER_LOST,
    PMS_CARRIER_UP,
};

struct pms_carrier;

// changed (may be NULL) runs when an interface has changed. 0 or -errno.
int pms_carrier_open(uv_loop_t *loop, void (*changed)(void *arg), void *arg, struct pms_carrier **out);
// No callback runs any more; the memory goes with the loop's next turn. NULL is allowed.
void pms_carrier_close(struct pms_carrier *carrier);

// Of the interface whose subnet contains addr (longest prefix first; addr itself, loopback and host prefixes do not
// count): where the guard puts a portal's address.
enum pms_carrier_state pms_carrier_get(const struct pms_carrier *carrier,
                                       const struct sockaddr_storage *addr);

#endif
