// SPDX-License-Identifier: GPL-2.0-or-later
// Histograms, and the kernel's books about processes.
#include "bench/meter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS   32u
#define BUCKETS (sizeof((struct bench_histogram *)0)->bucket / sizeof(uint64_t))

static unsigned bucket_of(uint64_t ns)
{
    unsigned top, b;

    if (ns < STEPS)
        return (unsigned)ns;
    top = 63 - (unsigned)__builtin_clzll(ns);
    b = (top - 4) * STEPS + (unsigned)((ns >> (top - 5)) & (STEPS - 1));
    return b < BUCKETS ? b : BUCKETS - 1;
}

static uint64_t bucket_end(unsigned b)
{
    if (b < STEPS)
        return b;
    return ((uint64_t)(STEPS + b % STEPS + 1) << (b / STEPS - 1)) - 1;
}

void bench_histogram_add(struct bench_histogram *h, uint64_t ns)
{
    h->bucket[bucket_of(ns)]++;
    h->count++;
}

uint64_t bench_histogram_percentile(const struct bench_histogram *h, unsigned percent)
{
    uint64_t want = (h->count * percent + 99) / 100, seen = 0;

    for (unsigned b = 0; b < BUCKETS && want > 0; b++) {
        seen += h->bucket[b];
        if (seen >= want)
            return bucket_end(b);
    }
    return 0;
}

int bench_procs_parse(struct bench_procs *p, const char *text)
{
    p->n = 0;
    while (*text != 0) {
        char *end;
        long pid = strtol(text, &end, 10);

        if (end == text || pid <= 0 || (*end != ',' && *end != 0) || p->n == BENCH_PIDS_MAX)
            return -EINVAL;
        p->pid[p->n++] = (pid_t)pid;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

int bench_procs_cpu(const struct bench_procs *p, uint64_t *ns)
{
    *ns = 0;
    for (unsigned i = 0; i < p->n; i++) {
        struct timespec t;
        clockid_t clock;
        int rc = clock_getcpuclockid(p->pid[i], &clock);

        if (rc != 0)
            return -rc;
        if (clock_gettime(clock, &t) != 0)
            return -errno;
        *ns += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    }
    return 0;
}

static FILE *proc_open(pid_t pid, const char *what, const char *mode)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    return fopen(path, mode);
}

int bench_procs_peak_reset(const struct bench_procs *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        FILE *f = proc_open(p->pid[i], "clear_refs", "w");

        if (f == NULL)
            return -errno;
        fputs("5\n", f);
        if (fclose(f) != 0)
            return -errno;
    }
    return 0;
}

int bench_procs_peak(const struct bench_procs *p, uint64_t *kib)
{
    *kib = 0;
    for (unsigned i = 0; i < p->n; i++) {
        FILE *f = proc_open(p->pid[i], "status", "r");
        char line[256];

        if (f == NULL)
            return -errno;
        while (fgets(line, sizeof line, f) != NULL)
            if (strncmp(line, "VmHWM:", 6) == 0)
                *kib += strtoull(line + 6, NULL, 10);
        fclose(f);
    }
    return 0;
}
