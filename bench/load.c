// SPDX-License-Identifier: GPL-2.0-or-later
// The load generator: one kind of I/O against two targets in turn, and one line with what both did.
//
// Short slices alternate (ours, stock, ours, stock ...), so that whatever else happens on the machine hits
// both alike. A slice: keep --qd commands in flight until its time is over, wait for the rest, then a
// SYNCHRONIZE CACHE that counts for the processor but not for the clock: one side's leftovers must not burden
// the other. One round goes before that is not counted. Exit status: 0 measured, 1 an error (a command
// failed, a session or a process was lost), 2 usage.
#include "base/check.h"
#include "base/util.h"
#include "bench/meter.h"
#include "bench/session.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QD_MAX         256u
#define IO_BYTES_MAX   (4u << 20)
#define ANSWER_WAIT_NS 60000000000u
#define REPEATS_MAX    10u

enum op { OP_RANDREAD, OP_RANDWRITE, OP_READ, OP_WRITE, OP_COUNT };
static const char *const op_names[OP_COUNT] = {"randread", "randwrite", "read", "write"};

enum { OURS, STOCK, SIDES };
static const char *const side_names[SIDES] = {"ours", "stock"};

struct config {
    enum op op;
    const char *label; // printed in front
    const char *url[SIDES];
    struct bench_procs procs[SIDES];
    bool sync[SIDES]; // a SYNCHRONIZE CACHE after each write
    uint64_t qd, bytes, ms, slice_ms, span;
    bool fill;
};

struct side {
    struct bench_session *session;
    uint64_t blocks; // within which I/O happens
    uint64_t next;   // sequential: the block to go on at
    uint64_t done, errors, busy_ns, cpu_ns, peak_kib;
    unsigned repeats; // of slices in which the client's own library gave up
    struct bench_histogram latency;
};

struct place {
    struct bench_io io;
    uint64_t sent_ns;
};

struct run {
    struct config cfg;
    struct side side[SIDES];
    struct place place[QD_MAX];
    int now; // the side whose slice it is
    bool counted;
    uint64_t until_ns, last_ns, rng;
    unsigned flying;
};

static void submit(struct run *r, struct place *p);

static uint64_t random_next(struct run *r)
{
    uint64_t x = r->rng += 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void on_done(struct bench_io *io, bool ok)
{
    struct run *r = io->arg;
    struct place *p = (struct place *)io;
    struct side *s = &r->side[r->now];
    uint64_t now = pms_clock_boot_ns();

    r->flying--;
    r->last_ns = now;
    if (!ok) {
        s->errors++;
        return;
    }
    if (r->counted) {
        s->done++;
        bench_histogram_add(&s->latency, now - p->sent_ns);
    }
    if (now < r->until_ns && s->errors == 0)
        submit(r, p);
}

static void submit(struct run *r, struct place *p)
{
    struct side *s = &r->side[r->now];
    uint64_t step = r->cfg.bytes / bench_session_block_bytes(s->session), n = s->blocks / step;
    bool sequential = r->cfg.op == OP_READ || r->cfg.op == OP_WRITE;
    uint64_t at = sequential ? s->next++ % n : random_next(r) % n;

    p->io.write = r->cfg.op == OP_RANDWRITE || r->cfg.op == OP_WRITE;
    p->io.then_sync = r->cfg.sync[r->now];
    p->io.lba = at * step;
    p->io.bytes = (uint32_t)r->cfg.bytes;
    p->io.done = on_done;
    p->io.arg = r;
    p->sent_ns = pms_clock_boot_ns();
    r->flying++;
    bench_session_submit(s->session, &p->io);
}

static int lost(int side, const char *what)
{
    fprintf(stderr, "bench-load: %s: %s\n", side_names[side], what);
    return -EIO;
}

static int drain(struct run *r)
{
    uint64_t give_up = r->until_ns + ANSWER_WAIT_NS;

    while (r->flying > 0) {
        if (!bench_session_turn(r->side[r->now].session, 1000))
            return bench_session_own_fault(r->side[r->now].session) ? -EIO
                                                                    : lost(r->now, "the connection is lost");
        if (pms_clock_boot_ns() > give_up)
            return lost(r->now, "no answer for 60 s");
    }
    if (bench_session_own_fault(r->side[r->now].session))
        return -EIO;
    return r->side[r->now].errors > 0 ? lost(r->now, "a command failed") : 0;
}

static int slice(struct run *r, int side)
{
    struct side *s = &r->side[side];
    uint64_t begun, cpu, cpu_end;

    r->now = side;
    if (bench_procs_cpu(&r->cfg.procs[side], &cpu) != 0)
        return lost(side, "a process is gone");
    begun = r->last_ns = pms_clock_boot_ns();
    r->until_ns = begun + r->cfg.slice_ms * 1000000;
    for (uint64_t i = 0; i < r->cfg.qd; i++)
        submit(r, &r->place[i]);
    if (drain(r) != 0)
        return -EIO;
    if (r->counted)
        s->busy_ns += r->last_ns - begun;
    if (!bench_session_sync(s->session))
        return lost(side, "SYNCHRONIZE CACHE failed");
    if (bench_procs_cpu(&r->cfg.procs[side], &cpu_end) != 0)
        return lost(side, "a process is gone");
    if (r->counted)
        s->cpu_ns += cpu_end - cpu;
    return 0;
}

static int session_open(struct run *r, int side)
{
    char name[64];

    snprintf(name, sizeof name, "iqn.2026-11.io.pms.bench:%s", side_names[side]);
    return bench_session_open(&r->side[side].session, r->cfg.url[side], name);
}

/* A slice spoilt by the client's own fault never was: all of it is done again. */
static int sure(struct run *r, int side, int (*part)(struct run *r, int side))
{
    struct side *s = &r->side[side], before = *s;

    for (;;) {
        int rc = part(r, side);

        if (rc == 0 || !bench_session_own_fault(s->session) || before.repeats++ == REPEATS_MAX)
            return rc;
        bench_session_close(s->session);
        r->flying = 0;
        *s = before;
        s->session = NULL;
        rc = session_open(r, side);
        if (rc != 0)
            return rc;
    }
}

static int measure(struct run *r)
{
    uint64_t rounds;

    if (r->cfg.slice_ms > r->cfg.ms)
        r->cfg.slice_ms = r->cfg.ms;
    rounds = (r->cfg.ms + r->cfg.slice_ms - 1) / r->cfg.slice_ms;
    for (int side = 0; side < SIDES; side++)
        if (bench_procs_peak_reset(&r->cfg.procs[side]) != 0)
            return lost(side, "a process is gone");
    for (uint64_t i = 0; i <= rounds; i++) {
        r->counted = i > 0;
        for (int side = 0; side < SIDES; side++)
            if (sure(r, side, slice) != 0)
                return -EIO;
    }
    for (int side = 0; side < SIDES; side++)
        if (bench_procs_peak(&r->cfg.procs[side], &r->side[side].peak_kib) != 0)
            return lost(side, "a process is gone");
    return 0;
}

/* One batch of --fill. */
static int batch(struct run *r, int side)
{
    struct side *s = &r->side[side];
    uint64_t n = s->blocks / (r->cfg.bytes / bench_session_block_bytes(s->session));

    r->now = side;
    r->until_ns = pms_clock_boot_ns();
    for (uint64_t k = 0; k < r->cfg.qd && s->next < n; k++)
        submit(r, &r->place[k]);
    return drain(r);
}

/* Writes all of both disks once: a block that was never written may cost more, or less, than any later one.
 */
static int fill(struct run *r)
{
    r->cfg.op = OP_WRITE;
    for (int side = 0; side < SIDES; side++) {
        struct side *s = &r->side[side];
        uint64_t n = s->blocks / (r->cfg.bytes / bench_session_block_bytes(s->session));

        while (s->next < n)
            if (sure(r, side, batch) != 0)
                return -EIO;
        if (!bench_session_sync(s->session))
            return lost(side, "SYNCHRONIZE CACHE failed");
    }
    return 0;
}

static double per_second(const struct side *s)
{
    return s->busy_ns > 0 ? (double)s->done * 1e9 / (double)s->busy_ns : 0;
}

static void report(const struct run *r)
{
    const struct side *o = &r->side[OURS], *k = &r->side[STOCK];
    double ours = per_second(o), stock = per_second(k);

    printf("bench: %s%sop=%s qd=%" PRIu64 " bytes=%" PRIu64 " ours=%.0f stock=%.0f ratio=%.2f", r->cfg.label,
           *r->cfg.label != 0 ? " " : "", op_names[r->cfg.op], r->cfg.qd, r->cfg.bytes, ours, stock,
           stock > 0 ? ours / stock : 0);
    for (int i = 0; i < SIDES; i++) {
        const struct side *s = &r->side[i];
        double gib = (double)s->done * (double)r->cfg.bytes / (1 << 30);

        printf(" %s_mb_s=%.1f", side_names[i], per_second(s) * (double)r->cfg.bytes / 1e6);
        printf(" %s_p50_us=%" PRIu64, side_names[i], bench_histogram_percentile(&s->latency, 50) / 1000);
        printf(" %s_p99_us=%" PRIu64, side_names[i], bench_histogram_percentile(&s->latency, 99) / 1000);
        printf(" %s_cpu_s_gib=%.2f", side_names[i], gib > 0 ? (double)s->cpu_ns / 1e9 / gib : 0);
        printf(" %s_rss_mib=%.0f", side_names[i], (double)s->peak_kib / 1024);
        printf(" %s_ops=%" PRIu64, side_names[i], s->done);
    }
    printf(" repeats=%u errors=%" PRIu64 "\n", o->repeats + k->repeats, o->errors + k->errors);
}

// ---- Command line ----

static void usage(FILE *f)
{
    fputs("usage: load --ours URL --stock URL --op randread|randwrite|read|write [options]\n"
          "       load --ours URL --stock URL --fill\n"
          "Drives two iSCSI targets in turn and prints one line that compares them.\n"
          "\n"
          "  --qd N              commands in flight (1)\n"
          "  --bytes N           of each command (4K)\n"
          "  --seconds S         for each of the two, a fraction is allowed (2)\n"
          "  --slice-ms N        how long one is driven before the other (200)\n"
          "  --span BYTES        only the first so many bytes of the disk\n"
          "  --ours-pids P,...   whose processor time and memory are counted; --stock-pids likewise\n"
          "  --ours-sync         a SYNCHRONIZE CACHE after each write; --stock-sync likewise\n"
          "  --label TEXT        what the line begins with\n"
          "  --fill              write both disks once instead of measuring\n",
          f);
}

static bool number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
    return pms_size_parse(text, v) == 0 && *v >= min && *v <= max;
}

static bool seconds_parse(const char *text, uint64_t *ms)
{
    char *end;
    double s = strtod(text, &end);

    if (end == text || *end != 0 || !(s >= 0.01 && s <= 86400))
        return false;
    *ms = (uint64_t)(s * 1000);
    return true;
}

static bool op_parse(const char *text, enum op *op)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(text, op_names[i]) == 0) {
            *op = (enum op)i;
            return true;
        }
    return false;
}

static const struct option options[] = {
    {"help", 0, NULL, 'h'},       {"ours", 1, NULL, 'o'},       {"stock", 1, NULL, 's'},
    {"op", 1, NULL, 'p'},         {"qd", 1, NULL, 'q'},         {"bytes", 1, NULL, 'b'},
    {"seconds", 1, NULL, 't'},    {"slice-ms", 1, NULL, 'm'},   {"span", 1, NULL, 'n'},
    {"ours-pids", 1, NULL, 'O'},  {"stock-pids", 1, NULL, 'S'}, {"ours-sync", 0, NULL, 'y'},
    {"stock-sync", 0, NULL, 'Y'}, {"label", 1, NULL, 'l'},      {"fill", 0, NULL, 'f'},
    {NULL, 0, NULL, 0},
};

/* False: not an option, or a bad value. */
static bool option_take(struct config *c, int opt, const char *text)
{
    switch (opt) {
    case 'o':
        c->url[OURS] = text;
        return true;
    case 's':
        c->url[STOCK] = text;
        return true;
    case 'p':
        return op_parse(text, &c->op);
    case 'q':
        return number_parse(text, 1, QD_MAX, &c->qd);
    case 'b':
        return number_parse(text, 512, IO_BYTES_MAX, &c->bytes) && c->bytes % 512 == 0;
    case 't':
        return seconds_parse(text, &c->ms);
    case 'm':
        return number_parse(text, 1, 60000, &c->slice_ms);
    case 'n':
        return number_parse(text, 512, UINT64_MAX, &c->span);
    case 'O':
        return bench_procs_parse(&c->procs[OURS], text) == 0;
    case 'S':
        return bench_procs_parse(&c->procs[STOCK], text) == 0;
    case 'y':
        return c->sync[OURS] = true;
    case 'Y':
        return c->sync[STOCK] = true;
    case 'l':
        c->label = text;
        return true;
    case 'f':
        return c->fill = true;
    default:
        return false;
    }
}

static void config_parse(struct config *c, int argc, char **argv)
{
    int opt, index = 0;

    *c = (struct config){.op = OP_COUNT, .label = "", .qd = 1, .bytes = 4096, .ms = 2000, .slice_ms = 200};
    while ((opt = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (opt == 'h') {
            usage(stdout);
            exit(0);
        }
        if (option_take(c, opt, optarg))
            continue;
        if (opt != '?')
            fprintf(stderr, "bench-load: bad value for --%s: %s\n", options[index].name, optarg);
        usage(stderr);
        exit(2);
    }
    if (c->url[OURS] == NULL || c->url[STOCK] == NULL || optind != argc || (c->op == OP_COUNT && !c->fill)) {
        usage(stderr);
        exit(2);
    }
    if (c->fill) {
        c->bytes = 1 << 20;
        c->qd = 8;
    }
}

static int side_open(struct run *r, int side)
{
    struct side *s = &r->side[side];
    int rc = session_open(r, side);

    if (rc != 0)
        return rc;
    s->blocks = bench_session_blocks(s->session);
    if (r->cfg.span != 0 && r->cfg.span / bench_session_block_bytes(s->session) < s->blocks)
        s->blocks = r->cfg.span / bench_session_block_bytes(s->session);
    if (r->cfg.bytes % bench_session_block_bytes(s->session) != 0 ||
        s->blocks < r->cfg.bytes / bench_session_block_bytes(s->session))
        return lost(side, "--bytes does not fit the disk");
    return 0;
}

int main(int argc, char **argv)
{
    static struct run r;
    int rc = 0;

    config_parse(&r.cfg, argc, argv);
    signal(SIGPIPE, SIG_IGN);
    r.rng = 1;
    for (uint64_t i = 0; i < r.cfg.qd; i++) {
        r.place[i].io.buf = aligned_alloc(4096, (r.cfg.bytes + 4095) / 4096 * 4096);
        PMS_CHECK_MSG(r.place[i].io.buf != NULL, "out of memory");
        for (uint64_t k = 0; k < r.cfg.bytes; k += 8) {
            uint64_t x = random_next(&r);

            memcpy(r.place[i].io.buf + k, &x, 8);
        }
    }
    for (int side = 0; side < SIDES && rc == 0; side++)
        rc = side_open(&r, side);
    if (rc == 0)
        rc = r.cfg.fill ? fill(&r) : measure(&r);
    if (rc == 0 && !r.cfg.fill)
        report(&r);
    /* After an error requests may be outstanding: the end of the process ends them too. */
    for (int side = 0; side < SIDES && rc == 0; side++)
        bench_session_close(r.side[side].session);
    for (uint64_t i = 0; i < r.cfg.qd && rc == 0; i++)
        free(r.place[i].io.buf);
    return rc != 0;
}
