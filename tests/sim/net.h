// SPDX-License-Identifier: GPL-2.0-or-later
// Links: directed connections, FIFO each way, with delays, stalls, cuts (one-way too) and garbled frames.
#ifndef PMS_TESTS_SIM_NET_H
#define PMS_TESTS_SIM_NET_H

#include "datapath/core/dp.h"
#include "tests/sim/limits.h"
#include "tests/sim/world.h"

struct sim;
struct node;

enum { NET_FORTH, NET_BACK }; // dialler to acceptor, acceptor to dialler

struct conn {
    struct pms_list link;
    uint64_t id; // nonzero
    int end[2];  // nodes: dialler, acceptor
    bool open[2];
    bool up;      // the dialler's dp was told
    bool garbled; // a frame was damaged on its way: the receiver must notice
    struct conn_way {
        uint64_t last_at;     // FIFO: nothing arrives before
        uint64_t lost_below;  // messages of a lower number are lost
        uint64_t number;      // of the next message
        struct pms_list held; // net_msg that wait for the end of a cut
    } way[2];
};

struct net {
    struct pms_list conns; // all of this run
    uint64_t next_id;
    struct conn *dialled[SIM_NODES][SIM_NODES];  // [dialler][acceptor]
    struct conn *accepted[SIM_NODES][SIM_NODES]; // [acceptor][dialler]
    unsigned cuts[SIM_NODES][SIM_NODES];         // [from][to]: how many faults cut this way
    unsigned healed[SIM_NODES][SIM_NODES];       // how often a cut of this way ended
    uint64_t backoff[SIM_NODES][SIM_NODES];      // ns
    unsigned slow[SIM_NODES][SIM_NODES];         // factor on the delay
    uint64_t frames, bytes;
};

void net_init(struct sim *sim);
void net_deinit(struct sim *sim);
// A process came up, or went down (silent: its host lost power and sends no FIN).
void net_node_up(struct sim *sim, struct node *n);
void net_node_down(struct sim *sim, struct node *n, bool silent);
// The dp's SEND and LINK_RESET; takes over a->buf.
void net_send(struct sim *sim, struct node *n, const struct pms_dp_action *a);
void net_reset(struct sim *sim, struct node *n, uint64_t peer_id);
void net_cut(struct sim *sim, int from, int to);
void net_heal(struct sim *sim, int from, int to);
// Slots that others hear well, while they hear n badly: what pmsd makes of the nodes' pulses.
uint8_t net_doubt(const struct sim *sim, const struct node *n);
bool net_connected(const struct sim *sim, int a, int b); // no cut in either direction

#endif
