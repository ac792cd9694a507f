// SPDX-License-Identifier: GPL-2.0-or-later
// What is measured beside operations: latencies in a histogram, processor time and memory of processes.
#ifndef PMS_BENCH_METER_H
#define PMS_BENCH_METER_H

#include <stdint.h>
#include <sys/types.h>

#define BENCH_PIDS_MAX 32

// Log-linear: 32 steps for each power of two, so within 3 %.
struct bench_histogram {
    uint64_t count;
    uint64_t bucket[60 * 32];
};

void bench_histogram_add(struct bench_histogram *h, uint64_t ns);
// The value in ns that `percent` of all do not exceed; 0 if there are none.
uint64_t bench_histogram_percentile(const struct bench_histogram *h, unsigned percent);

// The processes of one side.
struct bench_procs {
    unsigned n;
    pid_t pid[BENCH_PIDS_MAX];
};

// text: pids with commas between them. 0 or -EINVAL.
int bench_procs_parse(struct bench_procs *p, const char *text);
// Processor time in ns that they have used, all threads (ended ones and the kernel's io_uring workers among
// them), user and system. 0 or -errno: one of them is gone, and so is what is measured.
int bench_procs_cpu(const struct bench_procs *p, uint64_t *ns);
// Forgets the peak of memory so far.
int bench_procs_peak_reset(const struct bench_procs *p);
// The sum of their peaks of resident memory in KiB since the reset. What they share counts for each. 0 or
// -errno.
int bench_procs_peak(const struct bench_procs *p, uint64_t *kib);

#endif
