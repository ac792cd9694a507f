// SPDX-License-Identifier: GPL-2.0-or-later
// What all of pmsd's control side shares: the rooms that are open, the agreed state, the arrays of this node.
// Everything here belongs to the control loop's thread.
#ifndef PMS_CMD_PMSD_APP_H
#define PMS_CMD_PMSD_APP_H

#include "base/list.h"
#include "base/watchdog.h"
#include "cmd/pmsd/node_file.h"
#include "cmd/pmsd/options.h"
#include "consensus/core/state.h"
#include "consensus/raft/node.h"
#include "target/host/guard.h"
#include "target/host/tgtd.h"

#include <uv.h>

struct pms_loop;
struct pms_left;
struct pms_carrier;

enum pms_app_phase {
    PMS_APP_IDLE,     // in no cluster: waits for cluster init or join
    PMS_APP_MEMBER,   // the rooms below are open
    PMS_APP_STOPPING, // they are being closed
};

struct pms_app {
    uv_loop_t *loop;
    struct pms_options opt;
    struct pms_node_file node;
    int lock_fd;
    struct pms_tgtd_paths tgtd_paths;
    char run_dir[128];
    bool hypervisor;  // this machine is virtual: its clock may stop
    bool probe_reads; // reads wait for an answer of the other copies instead of relying on the clock
    int exit_status;
    bool raft_failed; // libraft's handles stay open: the loop does not end by itself
    int quit_stage;   // quit.c's; 0: not quitting
    uint64_t quit_deadline_ns;

    enum pms_app_phase phase;
    struct pms_state *state; // never NULL in MEMBER
    struct pms_net *net;
    struct pms_rpc *rpc;
    struct pms_raft *raft;
    struct pms_loop *data;       // NULL on a witness
    struct pms_guard *guard;     // NULL on a witness
    struct pms_carrier *carrier; // NULL on a witness, or if the kernel does not tell
    struct pms_left *left;       // left.c's
    unsigned n_left;
    uint64_t left_until_ns;
    uv_poll_t data_poll; // of the data loop's events
    bool caught_up;      // all that was committed at start is applied: what comes now is new
    uint64_t member_since_ns;
    bool level_reporting; // upgrade.c's
    uint64_t level_ns;

    struct pms_list arrays; // struct pms_local: every array with a slot here, or with a brick here still
    struct pms_list tasks;  // struct pms_task
    struct pms_req
        *left_req; // whoever asked this node to leave: answered when it has forgotten the cluster; NULL: none
    char left_name[PMS_NAME_MAX + 1];
    struct pms_list commands; // struct pms_command
    void (*data_stopped)(struct pms_app *app);
    void (*stopped)(struct pms_app *app); // pms_member_stop's, while STOPPING
    bool stop_closing;                    // targets are down, the rooms are being closed
    uv_async_t kick;                      // something changed: tasks look again
    struct pms_pulse pulse;               // of the control loop
    uv_timer_t tick;                      // every PMS_TICK_MS
    uv_signal_t sigterm, sigint;

    uint64_t command_client; // this run's identity towards the state machine
    uint64_t command_seq;

    struct pms_members *members; // membership.c's
    struct pms_links *links;     // links.c's
    struct pms_http *http;

    // Counters for /v1/metrics.
    uint64_t transitions_proposed, sessions_recorded, takeovers_seen;
};

#define PMS_TICK_MS 100

// Something changed: tasks and arrays look again, soon, once for any number of calls.
void pms_app_kick(struct pms_app *app);

// Ends the process cleanly (quit.c); the first status given wins. Status 0: what this node serves and leads is
// left to others first. Called again: at once.
void pms_app_quit(struct pms_app *app, int status);

#endif
