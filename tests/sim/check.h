// SPDX-License-Identifier: GPL-2.0-or-later
// Is a history of reads and writes of sectors one that a correct disk could have given (linearizable)?
#ifndef PMS_TESTS_SIM_CHECK_H
#define PMS_TESTS_SIM_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECK_NEVER UINT64_MAX

/* One command's effect on one sector. Values are unique: each is written at most once to a sector; 0 is what
 * every sector holds at time 0, so real values are nonzero and real times are positive. */
struct check_op {
    uint32_t sector;
    bool write;
    bool
        zeros; // a write of zeros (its value is unique all the same), or a read that saw zeros (it has no value)
    bool initial;  // a read that saw zeros: they may be what the sector held at time 0
    bool answered; // a write without an answer may have happened, before `end`, or never; such reads are left
                   // out
    uint64_t value; // written, or seen
    uint64_t start, end;
};

/* Sorts ops. True if there is, for each sector, an order of all its operations that respects real time (an
 * operation that ended before another began comes first; equal times are concurrent) in which each read sees
 * the last write before it. Otherwise false, with the reason in why. */
bool check_history(struct check_op *ops, size_t n, char *why, size_t why_len);

#endif
