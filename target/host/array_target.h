// SPDX-License-Identifier: GPL-2.0-or-later
// One array's iSCSI target on one node: the whole sequence from "you are primary" to "initiators are served",
// and back. pmsd's policy calls activate and deactivate; everything between is here. The drawing is in the
// .c.
#ifndef PMS_TARGET_HOST_ARRAY_TARGET_H
#define PMS_TARGET_HOST_ARRAY_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "target/host/guard.h"
#include "target/host/portal.h"
#include "target/host/session.h"
#include "target/host/tgtd.h"

enum pms_at_state {
    PMS_AT_DOWN,       // nothing runs, no address
    PMS_AT_STARTING,   // on the way up (also: waiting to start again)
    PMS_AT_STANDBY,    // tgtd is set up and waits; it answers nobody, its address is not here
    PMS_AT_SERVING,    // address up, sessions restored
    PMS_AT_RESTARTING, // tgtd died: the address stays, connections wait in the listener's queue
    PMS_AT_HELD,       // all as when serving, but the address is off (pms_at_address_hold)
    PMS_AT_STOPPING,
};
const char *pms_at_state_name(enum pms_at_state state);

// Strings are copied.
struct pms_at_conf {
    uint64_t array_id;
    const char *name;
    const char *iqn;
    const char *serial;       // VPD 80, at most 36 characters
    uint8_t cluster_uuid[16]; // for VPD 83
    uint64_t size_bytes;
    bool write_cache;
    struct pms_portal_conf portal;
    unsigned tgtd_deaf_ms; // a tgtd silent for so long is replaced; 0: PMS_TGTD_DEAF_MS
};

// All run on the control loop, and never from inside a call of this header (but state may run inside activate
// and deactivate). They may call activate, standby and deactivate and the answers below, not close.
struct pms_at_cbs {
    // A ring to serve: hand it to the data loop, then call pms_at_ring_attached. Takes over the descriptors.
    void (*ring_attach)(void *arg, const struct pms_session_fds *fds);
    // The ring's tgtd is being killed: let what is in flight end, answer nobody, detach, then call
    // pms_at_ring_released. Until then no new tgtd is started: so an old write never lands after a new
    // session's.
    void (*ring_release)(void *arg);
    // May this node serve the array now (it holds the lease)? Asked before each raising of the address, until
    // yes. NULL: always.
    bool (*may_serve)(void *arg);
    // The sessions as the cluster state has them now: fills recs and returns how many. Called at each import.
    unsigned (*sessions_get)(void *arg, struct pms_session_rec *recs, unsigned max);
    // Record the login in Raft, then call pms_at_login_done. See on_login and on_closed in session.h.
    void (*login)(void *arg, uint64_t login_id, const struct pms_session_rec *rec, uint16_t requested_tsih,
                  bool known);
    void (*closed)(void *arg, const struct pms_session_rec *rec, enum pms_session_end how);
    // The state changed; err tells why, if something failed (it goes on trying by itself).
    void (*state)(void *arg, enum pms_at_state state, int err);
};

struct pms_at;

// 0 or -errno. guard and paths (with paths->run_dir, which must exist) must outlive it.
int pms_at_open(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_paths *paths,
                const struct pms_at_conf *conf, const struct pms_at_cbs *cbs, void *arg, struct pms_at **at);
// Must be down. Frees it when its handles are closed.
void pms_at_close(struct pms_at *at);

// Go up, and stay up through tgtd's deaths until deactivate. Does nothing if that is under way or done; a
// standby goes on from where it is. tenure (not 0): names this node's time as the array's primary; a pmsd that
// is started in the same tenure may go on with what this one leaves. left (NULL: none): what an earlier pmsd
// left in this tenure; taken over. It keeps its connections and its ring; if that fails it is killed, and
// another is started.
void pms_at_activate(struct pms_at *at, uint64_t tenure, struct pms_guard_child *left);
// Have a tgtd ready, through its deaths, until activate or deactivate. Does nothing unless down.
void pms_at_standby(struct pms_at *at);
// Address off, then SIGKILL to tgtd, then wait for its end and for ring_released. cb (may be NULL) runs once,
// at most PMS_AT_STOP_MS_MAX later plus the time that pmsd takes for ring_released. err -ETIMEDOUT: the
// address or the process would not go in time; the kernel drops the one within PMS_ADDR_LIFETIME_S, and
// nothing that the other does reaches the array. When down already, or called twice: every call's cb runs; it
// may close at.
typedef void (*pms_at_cb)(void *arg, int err);
void pms_at_deactivate(struct pms_at *at, pms_at_cb cb, void *arg);
#define PMS_AT_STOP_MS_MAX 3000
// As deactivate, but a tgtd that serves is left running, for the next pmsd: it holds all that comes.
void pms_at_leave(struct pms_at *at, pms_at_cb cb, void *arg);

// While held, the address is off; tgtd, sessions and the ring stay. For a primary that has had no lease for a
// while: it may have been deposed without knowing it. Afterwards the address comes back as at the start
// (may_serve, ARP, tickles). Forgotten at the next activate.
void pms_at_address_hold(struct pms_at *at, bool hold);

void pms_at_ring_attached(struct pms_at *at, int err);
void pms_at_ring_released(struct pms_at *at);
void pms_at_login_done(struct pms_at *at, uint64_t login_id, int err, uint16_t tsih);
// An orphan was removed from the cluster state.
void pms_at_session_expire(struct pms_at *at, uint16_t tsih);

// The write cache is on or off from now on (nothing happens if it is so already).
void pms_at_write_cache_set(struct pms_at *at, bool on);

enum pms_at_state pms_at_state_get(const struct pms_at *at);
pid_t pms_at_tgtd_pid(const struct pms_at *at);    // 0: none
unsigned pms_at_restarts(const struct pms_at *at); // tgtd starts after the first, since open

#endif
