// SPDX-License-Identifier: GPL-2.0-or-later
// A hostile world for libraft: five nodes, of which three vote at first; a network that delays, loses,
// reorders and cuts; disks that lose what was not yet written, and fail (even seeds); nodes that crash,
// restart and stop for a while; members that come, go and change roles. One thread, one seed, no real clock
// or I/O: the same seed gives the same story. One world a process; nothing is freed that the process's end
// frees.
#ifndef PMS_TESTS_RAFT_SIM_H
#define PMS_TESTS_RAFT_SIM_H

#include "base/list.h"
#include "consensus/raft/guard.h"
#include <raft.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_NODES    5
#define SIM_VOTERS   3     // at first
#define SIM_COMMANDS 20000 // more than one run proposes

struct sim;
struct sim_node;

// ---- disk (disk.c): a log, a snapshot, term and vote, and a queue of writes not yet stable

struct sim_entry {
    raft_term term;
    unsigned short type;
    size_t len;
    void *data;
};

struct sim_snapshot {
    raft_index index;
    raft_term term;
    struct raft_configuration configuration;
    raft_index configuration_index;
    size_t len;
    void *data;
};

struct sim_disk {
    raft_term term;
    raft_id vote;
    raft_index start; // index of log[0]
    struct sim_entry *log;
    size_t n;
    struct sim_snapshot *snapshot;
    struct pms_list writes; // struct sim_write, in order
    bool broken;            // a write failed: none after it reaches the platter before the restart
};

void sim_disk_init(struct sim_disk *disk);
int sim_disk_bootstrap(struct sim_disk *disk, const struct raft_configuration *conf);
// What libraft finds at start.
void sim_disk_load(const struct sim_disk *disk, struct raft_snapshot **snapshot, struct raft_entry **entries);
struct raft_snapshot *sim_snapshot_copy(const struct sim_snapshot *from);
// These may fail with RAFT_IOERR, and then nothing was submitted.
int sim_disk_append(struct sim_node *node, struct raft_io_append *req, const struct raft_entry *entries,
                    unsigned n);
int sim_disk_truncate(struct sim_node *node, raft_index index);
int sim_disk_put(struct sim_node *node, unsigned trailing, struct raft_io_snapshot_put *req,
                 const struct raft_snapshot *snapshot);
int sim_disk_set_term(struct sim_node *node, raft_term term);
int sim_disk_set_vote(struct sim_node *node, raft_id id);
// Makes the next due write stable and tells libraft. False if none is due.
bool sim_disk_step(struct sim_node *node);
// Power loss: a random prefix of the queue has reached the platter, the rest is gone.
void sim_disk_crash(struct sim_node *node);
// Entries as libraft wants them: one block of memory for all payloads.
struct raft_entry *sim_entries_make(const struct sim_entry *from, size_t n);

// ---- network (net.c)

struct sim_net {
    struct pms_list messages; // struct sim_message
    uint64_t seq;
    unsigned delay_ms_max;
    unsigned loss_permille;
    bool cut[SIM_NODES][SIM_NODES]; // [from][to]
};

void sim_net_init(struct sim_net *net);
// Copies the message and queues it, or loses it.
void sim_net_send(struct sim_node *from, const struct raft_message *message);
// Delivers the oldest message that is due. False if none is.
bool sim_net_step(struct sim *sim);

// ---- nodes (node.c): struct raft with the guard, over the simulated I/O

struct sim_node {
    struct sim *sim;
    unsigned number; // 0..; its raft id is number + 1
    bool up;
    struct sim_disk disk;
    struct raft *raft;
    struct pms_guard *guard;
    struct raft_io *io; // the simulated one
    struct raft_fsm fsm;
    int state;            // raft_state() when last looked
    raft_term ready_term; // the term whose first barrier was applied here as leader
    bool disk_failed;     // the guard said so
    char address[8];

    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    unsigned tick_ms;
    uint64_t tick_at;
    struct pms_list sends; // struct sim_send: callbacks to be made
    struct pms_list gets;  // struct sim_get
    uint64_t paused_until; // SIGSTOP: no disk, tick or message is seen

    uint64_t applied[SIM_COMMANDS]; // the state machine: every command in order
    uint64_t applied_n;

    uint64_t up_at;         // scheduled restart, 0: none
    uint64_t isolate_at;    // scheduled isolation of a fresh leader ...
    uint64_t isolate_until; // ... and its end
    uint64_t isolated_crash_at;
};

void sim_node_init(struct sim *sim, unsigned number);
// Starts from what is on the disk; the first start bootstraps.
void sim_node_boot(struct sim_node *node, bool first);
void sim_node_crash(struct sim_node *node);
void sim_node_step(struct sim_node *node);
// Looks at what the last event changed: a new leader gets its barrier (guarded) and perhaps trouble; an
// instance that gave up is restarted.
void sim_node_look(struct sim_node *node);
// Makes the delayed callbacks of messages sent.
void sim_node_sends_finish(struct sim_node *node);

// Commands are proposed to whoever leads: the guard has to be safe without waiting for the leader's first
// barrier.
bool sim_node_leads(const struct sim_node *node);
// Changes of membership wait for it, as Raft demands.
bool sim_node_is_ready(const struct sim_node *node);

// ---- members (members.c)

// Has a leader begin a random change of membership, or hand leadership on.
void sim_members_change(struct sim *sim);
// The leader's configuration is what counts in the end: is the node in it, as voter or standby?
bool sim_members_has(const struct sim *sim, const struct sim_node *node);

// ---- world (world.c)

struct sim {
    uint64_t seed;
    uint64_t random;
    uint64_t now; // ms
    bool guarded;
    bool verbose;
    bool disks_fail;
    bool ambush; // isolate and crash fresh leaders
    struct sim_net net;
    struct sim_node nodes[SIM_NODES];

    // The truth: what the first node to get there applied at each position.
    uint64_t truth[SIM_COMMANDS];
    uint64_t truth_n;
    bool acked[SIM_COMMANDS]; // by command
    uint64_t acked_n;
    uint64_t command_next; // commands are numbered from 1
};

// 0 .. n-1
unsigned sim_random(struct sim *sim, unsigned n);
__attribute__((format(printf, 2, 3))) void sim_story(const struct sim *sim, const char *fmt, ...);
// Ends the process with status 1.
__attribute__((noreturn, format(printf, 2, 3))) void sim_fail(const struct sim *sim, const char *fmt, ...);
// The state machine at node applied command at position; everybody must agree.
void sim_check_applied(const struct sim_node *node, uint64_t position, uint64_t command);

// Runs one seed to its end; and does not return if something is wrong (sim_fail).
void sim_run(struct sim *sim, uint64_t seed, bool guarded, bool verbose);

#endif
