// SPDX-License-Identifier: GPL-2.0-or-later
// What array_target.c (orders, the way down) and array_target_up.c (the way up) share; for nobody else.
#ifndef PMS_TARGET_HOST_ARRAY_TARGET_INTERNAL_H
#define PMS_TARGET_HOST_ARRAY_TARGET_INTERNAL_H

#include "base/limits.h"
#include "base/list.h"
#include "target/host/array_target.h"

#define PAUSE_MS_MAX 2000 // between two starts of tgtd

enum step {
    STEP_IDLE,
    STEP_LISTENER,
    STEP_TGTD,
    STEP_STANDBY,
    STEP_IMPORT,
    STEP_PORTAL,
    STEP_ADDRESS,
    STEP_SERVE,
    STEP_SERVING,
    STEP_DRAIN,
    STEP_STOP_ADDRESS,
    STEP_STOP_TGTD,
};

enum goal { GOAL_DOWN, GOAL_STANDBY, GOAL_SERVE }; // the last word of pmsd

enum ring_state { RING_NONE, RING_ATTACHING, RING_ATTACHED, RING_RELEASING };

struct waiter {
    struct pms_list link;
    pms_at_cb cb;
    void *arg;
};

struct pms_at {
    uv_loop_t *loop;
    struct pms_guard *guard;
    const struct pms_tgtd_paths *paths;
    struct pms_portal_conf portal_conf;
    uint64_t array_id;
    bool write_cache;
    char name[PMS_NAME_MAX + 1];
    char iqn[PMS_IQN_MAX + 1];
    char plugin_sock[108];
    struct pms_at_cbs cbs;
    void *arg;

    enum step step;
    enum pms_at_state state;
    enum goal goal;
    uint64_t tenure;
    struct pms_guard_child left; // of an earlier pmsd, to go on with; pid 0: none
    bool adopted;                // tgtd is such a one
    bool open;                   // its gate
    bool leaving;                // what serves shall outlive us
    unsigned deaf_ms;
    bool addr_up;      // or rising
    bool addr_falling; // for a hold
    bool held;
    uv_timer_t timer; // the current step's deadline, pause or next try
    struct pms_session_server *server;
    struct pms_portal *portal;
    struct pms_tgtd *tgtd;
    bool tgtd_stopping;
    enum ring_state ring;
    unsigned starts;
    unsigned failures;        // since it was steady
    uint64_t steady_since_ns; // serving, or on standby
    int stop_err;
    struct pms_list waiters;
};

// Enters a step, with a timer for its deadline, its pause or its next try (NULL: none).
void pms_at_step_enter(struct pms_at *at, enum step step, uv_timer_cb on_timer, unsigned ms);
// Tells pmsd of a new state or of an error. May end in pmsd's deactivate: afterwards look at the step again.
void pms_at_state_set(struct pms_at *at, enum pms_at_state state, int err);
// Something of tgtd's life failed: all of it again. Harmless in a step without tgtd.
void pms_at_fail(struct pms_at *at, int err);
static inline bool pms_at_stopping(const struct pms_at *at)
{
    return at->step == STEP_STOP_ADDRESS || at->step == STEP_STOP_TGTD;
}

// The way up's beginning: opens the listener if there is none, then starts tgtd, or goes on with what was left.
void pms_at_on_start_time(uv_timer_t *t);
// From a tgtd that is set up to serving.
void pms_at_serve_begin(struct pms_at *at);
// What waits to be adopted is killed.
void pms_at_left_kill(struct pms_at *at);
// tgtd is set up.
void pms_at_on_tgtd_ready(void *arg, int err);
// In STEP_ADDRESS: tries to raise the address.
void pms_at_on_address_time(uv_timer_t *t);
extern const struct pms_session_cbs pms_at_session_cbs;

#endif
