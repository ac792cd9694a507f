// SPDX-License-Identifier: GPL-2.0-or-later
// What an earlier pmsd left running here: targets that still hold their initiators' connections and commands.
// One is of use only to a primary of the same tenure: nobody else has written since.
#ifndef PMS_CMD_PMSD_LEFT_H
#define PMS_CMD_PMSD_LEFT_H

#include "cmd/pmsd/app.h"

struct pms_left {
    struct pms_guard_child child;
    struct pms_guard_pid *guarded; // NULL: not yet
};

// Asks the earlier pmsd's guard, before there is one of our own. Blocks shortly.
void pms_left_open(struct pms_app *app);
// Has our own guard keep it, so that it is not lost if this pmsd ends as well before it has gone on with it.
void pms_left_guard(struct pms_app *app);
// That of the array if it is of this tenure: in *child, whose descriptors are the caller's now. Any other of the
// array is killed.
bool pms_left_take(struct pms_app *app, uint64_t array_id, uint64_t tenure, struct pms_guard_child *child);
// This node does not serve the array: what is left of it is killed.
void pms_left_drop(struct pms_app *app, uint64_t array_id);
// Kills what nobody has wanted for long.
void pms_left_tick(struct pms_app *app, uint64_t now_ns);
// Before the guard is closed: when pmsd quits it goes on keeping them, for the next; else all are killed.
void pms_left_close(struct pms_app *app);

#endif
