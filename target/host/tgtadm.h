// SPDX-License-Identifier: GPL-2.0-or-later
// A client of tgtd's management socket (what tgtadm speaks), on the loop: one request, one answer, a
// deadline.
#ifndef PMS_TARGET_HOST_TGTADM_H
#define PMS_TARGET_HOST_TGTADM_H

#include <stdint.h>
#include <uv.h>

enum pms_tgtadm_op {
    PMS_TGTADM_TARGET_NEW,  // params: targetname=IQN
    PMS_TGTADM_LUN_NEW,     // params: path=..,bstype=..,bsopts=..
    PMS_TGTADM_TARGET_BIND, // params: initiator-address=ALL
    PMS_TGTADM_TARGET_SET,  // params: NAME=VALUE of an iSCSI parameter
    PMS_TGTADM_PING,        // asks for the drivers' state: any answer shows that the event loop runs
};

struct pms_tgtadm;
// err: 0, -ETIMEDOUT, -ECONNREFUSED and other -errno, PMS_EREFUSED if tgtd answered with an error.
typedef void (*pms_tgtadm_cb)(void *arg, int err);

// Connects to the socket at path and asks. 0: cb runs once, unless cancelled; then *call is gone. Else
// -errno.
int pms_tgtadm_call(uv_loop_t *loop, const char *path, enum pms_tgtadm_op op, uint64_t lun,
                    const char *params, unsigned timeout_ms, pms_tgtadm_cb cb, void *arg,
                    struct pms_tgtadm **call);
// The callback does not run any more. NULL is fine.
void pms_tgtadm_cancel(struct pms_tgtadm *call);

#endif
