// SPDX-License-Identifier: GPL-2.0-or-later
// One array's portal on this node: the listening socket, and the address that comes and goes.
//
// The socket listens from open to close, bound although the address is elsewhere (IP_FREEBIND), and it
// belongs to pmsd and the guard; tgtd inherits it, and so does the next pmsd. So at no time is there an address here without a listener,
// and a connection that comes while tgtd starts or restarts waits in the socket's queue: it is never refused.
#ifndef PMS_TARGET_HOST_PORTAL_H
#define PMS_TARGET_HOST_PORTAL_H

#include <net/if.h>
#include <sys/socket.h>
#include <uv.h>
#include "target/host/guard.h"

struct pms_portal_conf {
    struct sockaddr_storage addr; // with the port
    unsigned prefix_len;          // of the subnet that the address is added with
    char ifname[IF_NAMESIZE];     // "": the interface whose subnet contains the address
};

// "ADDR/LEN" as in `array create --portal` (port may be in ADDR, else PMS_PORT_ISCSI). 0 or -EINVAL.
int pms_portal_conf_parse(const char *text, struct pms_portal_conf *conf);

struct pms_portal;
typedef void (*pms_portal_cb)(void *arg, int err);

// Opens the listening socket, or goes on with listen_fd (-1: none; taken over, also on failure), which must be a
// listener of this address (else -EINVAL). on_lost (may be NULL; err always 0) runs when the address went away by itself
// (see guard.h): the portal is down then. 0 or -errno (-EADDRINUSE: a listener of an earlier life is still
// closing).
int pms_portal_open(uv_loop_t *loop, struct pms_guard *guard, const struct pms_portal_conf *conf,
                    int listen_fd, pms_portal_cb on_lost, void *arg, struct pms_portal **portal);
// Takes the address off if it is up, stops all announcing, closes the socket, frees. cb (may be NULL) runs
// once when it is done; no other callback runs any more.
void pms_portal_close(struct pms_portal *portal, pms_portal_cb cb, void *arg);

// Puts the address up and announces it: gratuitous ARP or unsolicited neighbour advertisements, then a tickle
// on each of the peers' old connections (n addresses, copied). Up when up already: succeeds and announces
// again. Not while another up or down runs. 0: cb runs once, err 0 when the address is up; else -errno.
int pms_portal_up(struct pms_portal *portal, const struct sockaddr_storage *peers, unsigned n,
                  pms_portal_cb cb, void *arg);
// Takes the address off; the socket goes on listening. Down when down already: succeeds. A running up is
// given up: its callback does not run any more. Not while another down runs. cb runs once.
void pms_portal_down(struct pms_portal *portal, pms_portal_cb cb, void *arg);

// The listening socket, for tgtd to inherit; stays the portal's.
int pms_portal_listen_fd(const struct pms_portal *portal);
// "ADDR:PORT" or "[ADDR]:PORT"; lives as long as the portal.
const char *pms_portal_text(const struct pms_portal *portal);

#endif
