// SPDX-License-Identifier: GPL-2.0-or-later
// Is a history of reads and writes of sectors one that a correct disk could have given (linearizable)?
#include "tests/sim/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/*
 * With unique values this is decided without search (Gibbons and Korach, Testing shared memories, 1997). All
 * operations of one value form a cluster: its write, then its reads, with no other write in between. Let f be
 * the earliest end and s the latest start in the cluster. One cluster must come before another as a whole if
 * f of the first < s of the second for some pair of their operations; so two clusters contradict each other
 * exactly if f1 < s2 and f2 < s1. There is an order if no read ends before its write begins and no two
 * clusters contradict. A contradiction needs at least one cluster with f < s (a forward zone), and forward
 * zones must be disjoint: one sort finds them all.
 */
struct cluster {
    uint64_t value;
    uint64_t f, s;
    bool zeros;
};

static bool saw_zeros(const struct check_op *op)
{
    return op->zeros && !op->write;
}

/*
 * Zeros tell not which write they are of, so the method does not hold for the reads that saw them. A history without
 * these reads is linearizable if the whole is: writes of zeros are judged as writes that nobody has read. And each
 * such read alone must have a write of zeros, or the initial value, that no other write has certainly replaced before
 * the read began.
 */
static int by_sector_and_value(const void *a, const void *b)
{
    const struct check_op *x = a, *y = b;

    if (x->sector != y->sector)
        return x->sector < y->sector ? -1 : 1;
    if (saw_zeros(x) != saw_zeros(y))
        return saw_zeros(x) ? 1 : -1;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    if (x->write != y->write)
        return x->write ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

// Forward zones first, in the order of their lower bounds.
static int by_zone(const void *a, const void *b)
{
    const struct cluster *x = a, *y = b;
    bool xf = x->f < x->s, yf = y->f < y->s;

    if (xf != yf)
        return xf ? -1 : 1;
    if (x->f != y->f)
        return x->f < y->f ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

// The operations of one value. False: they contradict each other. *counts: false for a write that nobody need
// believe in.
static bool cluster_make(const struct check_op *ops, size_t n, struct cluster *c, bool *counts, char *why,
                         size_t why_len)
{
    struct check_op initial = {.sector = ops->sector, .write = true, .answered = true};
    const struct check_op *write = &ops[0];
    size_t reads = 1;

    if (ops[0].value == 0) {
        PMS_CHECK(!ops[0].write);
        write = &initial;
        reads = 0;
    }
    *counts = true;
    if (!write->write) {
        snprintf(why, why_len, "sector %u: a read at %llu saw value %llu, which nobody wrote there",
                 ops->sector, (unsigned long long)ops->end, (unsigned long long)ops->value);
        return false;
    }
    if (reads < n && ops[reads].write) {
        snprintf(why, why_len, "sector %u: value %llu is written twice", ops->sector,
                 (unsigned long long)ops->value);
        return false;
    }
    *c = (struct cluster){.value = write->value, .f = write->end, .s = write->start, .zeros = write->zeros};
    *counts = write->answered || reads < n;
    for (size_t i = reads; i < n; i++) {
        if (ops[i].end < write->start) {
            snprintf(why, why_len, "sector %u: a read at %llu saw value %llu before it was written",
                     ops->sector, (unsigned long long)ops[i].end, (unsigned long long)ops[i].value);
            return false;
        }
        if (ops[i].end < c->f)
            c->f = ops[i].end;
        if (ops[i].start > c->s)
            c->s = ops[i].start;
    }
    return true;
}

static void explain(uint32_t sector, const struct cluster *a, const struct cluster *b, char *why,
                    size_t why_len)
{
    snprintf(why, why_len,
             "sector %u: values %llu and %llu contradict each other: the first was there by %llu and still "
             "at %llu, the "
             "second by %llu and still at %llu (0 is the initial value)",
             sector, (unsigned long long)a->value, (unsigned long long)b->value, (unsigned long long)a->f,
             (unsigned long long)a->s, (unsigned long long)b->f, (unsigned long long)b->s);
}

static bool zones_agree(uint32_t sector, struct cluster *c, size_t n, char *why, size_t why_len)
{
    size_t forward = 0;

    qsort(c, n, sizeof *c, by_zone);
    while (forward < n && c[forward].f < c[forward].s)
        forward++;
    for (size_t i = 1; i < forward; i++)
        if (c[i].f < c[i - 1].s) {
            explain(sector, &c[i - 1], &c[i], why, why_len);
            return false;
        }
    for (size_t i = forward; i < n; i++) {
        size_t lo = 0, hi = forward;

        // The last forward zone that begins before this cluster's last operation does.
        while (lo < hi) {
            size_t mid = (lo + hi) / 2;

            if (c[mid].f < c[i].s)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo > 0 && c[i].f < c[lo - 1].s) {
            explain(sector, &c[lo - 1], &c[i], why, why_len);
            return false;
        }
    }
    return true;
}

// Can the read be of these zeros, written (or there) from start to end? Never if a value must lie between.
static bool explains(const struct check_op *read, uint64_t start, uint64_t end, const struct cluster *c,
                     size_t n)
{
    uint64_t f = end < read->end ? end : read->end, s = start > read->start ? start : read->start;

    if (read->end < start)
        return false;
    for (size_t i = 0; i < n; i++)
        if (c[i].value != 0 && !c[i].zeros && f < c[i].s && c[i].f < s)
            return false;
    return true;
}

static bool zeros_explained(const struct check_op *read, const struct check_op *ops, size_t n,
                            const struct cluster *c, size_t n_clusters, char *why, size_t why_len)
{
    if (read->initial && explains(read, 0, 0, c, n_clusters))
        return true;
    for (size_t i = 0; i < n; i++)
        if (ops[i].write && ops[i].zeros && explains(read, ops[i].start, ops[i].end, c, n_clusters))
            return true;
    snprintf(why, why_len, "sector %u: a read from %llu to %llu saw zeros, which something else had replaced",
             read->sector, (unsigned long long)read->start, (unsigned long long)read->end);
    return false;
}

// All operations of one sector.
static bool sector_judge(const struct check_op *ops, size_t n, struct cluster *clusters, char *why,
                         size_t why_len)
{
    size_t plain = 0, count = 0;
    bool ok = true;

    while (plain < n && !saw_zeros(&ops[plain]))
        plain++;
    if (plain == 0 || ops[0].value != 0)
        clusters[count++] = (struct cluster){0}; // the initial value, never seen
    for (size_t i = 0; ok && i < plain;) {
        size_t m = i + 1;
        bool counts;

        while (m < plain && ops[m].value == ops[i].value)
            m++;
        ok = cluster_make(ops + i, m - i, &clusters[count], &counts, why, why_len);
        count += counts;
        i = m;
    }
    ok = ok && zones_agree(ops[0].sector, clusters, count, why, why_len);
    for (size_t i = plain; ok && i < n; i++)
        ok = zeros_explained(&ops[i], ops, plain, clusters, count, why, why_len);
    return ok;
}

bool check_history(struct check_op *ops, size_t n, char *why, size_t why_len)
{
    struct cluster *clusters = calloc(n + 2, sizeof *clusters);
    bool ok = true;

    PMS_CHECK(clusters != NULL);
    if (n > 0)
        qsort(ops, n, sizeof *ops, by_sector_and_value);
    for (size_t i = 0; ok && i < n;) {
        size_t end = i;

        while (end < n && ops[end].sector == ops[i].sector)
            end++;
        ok = sector_judge(ops + i, end - i, clusters, why, why_len);
        i = end;
    }
    free(clusters);
    return ok;
}
