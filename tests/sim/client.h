// SPDX-License-Identifier: GPL-2.0-or-later
// Initiators: they read and write a few hot spots, resend what was not answered to the new primary, and
// record it all.
#ifndef PMS_TESTS_SIM_CLIENT_H
#define PMS_TESTS_SIM_CLIENT_H

#include "datapath/core/dp.h"
#include "tests/sim/limits.h"
#include "tests/sim/world.h"

struct sim;
struct node;
struct command;

/* One try of a command at one process. Attempts are kept until the end of the run: they are the history. */
struct attempt {
    struct pms_dp_op op;
    struct sim_event ev;  // its way to the node
    struct pms_list link; // node.attempts while the process has it
    struct attempt *next_try;
    struct command *command; // NULL once the client has given it up
    uint64_t value;          // what it writes into each sector, nonzero and unique; of ZERO a name only
    int node;
    uint32_t life;
    uint64_t start;  // when the dp got it; 0: never
    uint64_t end;    // when the dp answered; CHECK_NEVER: not
    uint64_t fenced; // when a later epoch's answer by another process came; CHECK_NEVER: not
    uint64_t epoch;  // configuration that the node had applied at start
    uint64_t *seen;  // READ: a value a sector
    bool durable;    // WRITE, ZERO: stable when answered
};

static inline bool attempt_is_write(const struct attempt *a)
{
    return a->op.type == PMS_DP_WRITE || a->op.type == PMS_DP_ZERO;
}

/* What the application wants; it lives until one attempt is answered. */
struct command {
    struct client *client;
    enum pms_dp_op_type type;
    uint32_t sector, count;
    bool fua;
    struct attempt *current, *last; // last: newest attempt, also after it failed
    bool final;                     // belongs to the reading at the end
};

struct client {
    unsigned index;
    unsigned depth;
    uint64_t think_us;
    unsigned open; // commands not answered
    bool active;   // issues new ones
    unsigned answered;
    struct command slots[8];
    bool used[8];
};

struct clients {
    struct client c[SIM_CLIENTS];
    unsigned n;
    struct attempt **attempts; // all, by value - 1
    size_t n_attempts, cap;
    uint32_t spot[4];                // sectors around which all I/O happens
    uint32_t final_next, final_done; // sectors of the reading at the end
    uint64_t reads, writes, zeroings, flushes, retries;
    struct world zero_dice; // a source of chance of its own
};

void client_init(struct sim *sim);
void client_deinit(struct sim *sim);
void client_complete(struct sim *sim, struct node *n, struct pms_dp_op *op, int status);
void client_dropped(struct sim *sim, struct node *n, struct pms_dp_op *op);
void client_node_down(struct sim *sim, struct node *n);
void client_stop(struct sim *sim); // no new commands
void client_resume(struct sim *sim);
unsigned client_open(const struct sim *sim);
// Reads every sector through the array; done when client_final_done().
void client_final_read(struct sim *sim);
bool client_final_done(const struct sim *sim);
// Judges the whole history.
void client_judge(struct sim *sim);
struct attempt *client_attempt(const struct sim *sim, uint64_t value); // NULL: none

// A sector's contents: all its bytes tell value and place.
void sector_fill(uint8_t *data, uint64_t value, uint32_t sector);
// False: it is not the contents of any one write of this sector. Value 0: untouched zeros.
bool sector_parse(const uint8_t *data, uint32_t sector, uint64_t *value);

#endif
