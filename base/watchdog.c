// SPDX-License-Identifier: GPL-2.0-or-later
// The list of pulses and the thread that looks at them.
#include "base/watchdog.h"

#include "base/log.h"
#include "base/util.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_MS     100
#define LOOK_NS     (LOOK_MS * 1000000ull)
#define LOOK_NS_MAX (2 * LOOK_NS) // what one look may count: the rest of a longer pause was not the loop's

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pms_list pulses = {&pulses, &pulses};
static pthread_t thread;
static atomic_bool ending;
static void (*on_well)(void);

void pms_pulse_begin(struct pms_pulse *p, const char *name, uint32_t limit_ms)
{
    p->name = name;
    p->limit_ns = limit_ms * 1000000ull;
    p->silent_ns = 0;
    p->seen = 0;
    pms_pulse_beat(p, "beginning");
    pthread_mutex_lock(&lock);
    pms_list_add_tail(&pulses, &p->link);
    pthread_mutex_unlock(&lock);
}

void pms_pulse_end(struct pms_pulse *p)
{
    pthread_mutex_lock(&lock);
    pms_list_del(&p->link);
    pthread_mutex_unlock(&lock);
}

bool pms_pulse_look(struct pms_pulse *p, uint64_t elapsed_ns)
{
    uint64_t turns = atomic_load_explicit(&p->turns, memory_order_relaxed);

    if (turns != p->seen) {
        p->seen = turns;
        p->silent_ns = 0;
        return false;
    }
    p->silent_ns += elapsed_ns < LOOK_NS_MAX ? elapsed_ns : LOOK_NS_MAX;
    return p->silent_ns > p->limit_ns;
}

static void look(uint64_t elapsed_ns)
{
    pthread_mutex_lock(&lock);
    pms_list_for_each (it, &pulses) {
        struct pms_pulse *p = pms_list_entry(it, struct pms_pulse, link);

        if (!pms_pulse_look(p, elapsed_ns))
            continue;
        pms_log(PMS_LOG_ERROR,
                "the %s loop is stuck: no turn for %llu ms; last seen with: %s. This process ends", p->name,
                (unsigned long long)(p->silent_ns / 1000000), atomic_load(&p->doing));
        abort();
    }
    pthread_mutex_unlock(&lock);
}

static void *watch(void *arg)
{
    struct timespec nap = {.tv_nsec = LOOK_NS};
    uint64_t last = pms_clock_boot_ns(), now;

    while (!atomic_load(&ending)) {
        nanosleep(&nap, NULL);
        now = pms_clock_boot_ns();
        look(now - last);
        last = now;
        if (on_well)
            on_well();
    }
    return arg;
}

int pms_watchdog_start(void (*well)(void))
{
    sigset_t all, old;
    int rc;

    on_well = well;
    atomic_store(&ending, false);
    sigfillset(&all); // signals are for others
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = -pthread_create(&thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

void pms_watchdog_stop(void)
{
    atomic_store(&ending, true);
    pthread_join(thread, NULL);
}
