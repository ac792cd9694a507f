// SPDX-License-Identifier: GPL-2.0-or-later
// A thread that watches loops: one that does not turn any more ends the process, so that others can go on.
//
// A loop has a pulse and beats it in every turn, saying what it does next. The watchdog looks every 100 ms and takes no
// lock that a loop holds while it works. Only time counts in which the watchdog itself ran: a process that was
// stopped, or a machine that slept, has not been stuck.
#ifndef PMS_BASE_WATCHDOG_H
#define PMS_BASE_WATCHDOG_H

#include "base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pms_pulse {
    _Atomic uint64_t turns;
    _Atomic(const char *) doing;
    // The watchdog's.
    struct pms_list link;
    const char *name;
    uint64_t limit_ns, silent_ns, seen;
};

// From here on the loop is watched; name is kept. Silent for more than limit_ms: the watchdog logs name and doing, and aborts.
void pms_pulse_begin(struct pms_pulse *p, const char *name, uint32_t limit_ms);
void pms_pulse_end(struct pms_pulse *p);
// The loop turns; doing: a constant, for the log.
static inline void pms_pulse_beat(struct pms_pulse *p, const char *doing)
{
    atomic_store_explicit(&p->doing, doing, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->turns, 1, memory_order_relaxed);
}
// The same turn goes on with something else.
static inline void pms_pulse_doing(struct pms_pulse *p, const char *doing)
{
    atomic_store_explicit(&p->doing, doing, memory_order_relaxed);
}

// The watchdog's one look, elapsed_ns after its last one. True: stuck. (For it and for tests.)
bool pms_pulse_look(struct pms_pulse *p, uint64_t elapsed_ns);

// Starts the thread, once in a process. well (may be NULL) is called by it after every look that found nothing. 0 or -errno.
int pms_watchdog_start(void (*well)(void));
void pms_watchdog_stop(void);

#endif
