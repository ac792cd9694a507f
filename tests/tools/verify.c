// SPDX-License-Identifier: GPL-2.0-or-later
// A verifying iSCSI client: writes stamped sectors, reads them back, and counts what is lost, stale or in
// error.
//
// Outcome: exit 0 and `verify: ... errors=0 lost=0 stale=0 ...` as the last line. Failures: a SCSI error that
// reaches the application (errors), an acknowledged write gone at the end or content never written there
// (lost), a read that went back in time (stale), the target not reached in time (errors). Exit 1 for these, 2
// for wrong usage.
#include "base/check.h"
#include "base/util.h"
#include "tests/tools/lib/initiator.h"
#include "tests/tools/lib/judge.h"
#include "tests/tools/lib/vlog.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS              UINT64_C(1000000)
#define SECTOR_BYTES    512u
#define FINAL_SECTORS   512u // 256 KiB a read
#define RECENT          64
#define QD_MAX          256
#define LONG_PAUSE_MS   UINT64_C(500)
#define REPORTS_MAX     20
#define LATENCY_BUCKETS (64 * 16)

struct config {
    const char *url;
    const char *initiator;
    const char *log;
    const char *stop_on_file;
    uint64_t seconds, ops, iops, limit_s, open_s;
    uint64_t span, offset;   // bytes
    uint64_t bs_min, bs_max; // side by side: set together
    uint64_t seed;
    uint64_t qd, read_pct, nop_ms;
    bool check_only, zeroed, libiscsi_reconnect, quiet;
};

struct slot {
    struct pms_io io;
    struct run *run;
    bool busy;
    uint64_t gen;
    uint64_t issued_ns;
    uint64_t *floor;
};

struct run {
    struct config cfg;
    struct pms_initiator *ini;
    struct pms_judge *judge;
    struct pms_vlog *log;
    struct slot slots[QD_MAX];
    uint64_t client, rng, gen;
    uint64_t lba, sectors; // the span
    uint32_t busy;
    bool final;
    struct {
        uint64_t lba;
        uint32_t sectors;
    } recent[RECENT];
    uint64_t recent_count;
    uint64_t ops, writes, reads, errors, reports;
    uint64_t last_done_ns, pause_ns;
    uint64_t latency[LATENCY_BUCKETS], latencies;
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
    (void)sig;
    stop_signal = 1;
}

static uint64_t random_next(struct run *r)
{
    uint64_t x = r->rng += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Log-linear histogram of microseconds: 16 steps for each power of two.
static unsigned latency_bucket(uint64_t us)
{
    if (us < 16)
        return (unsigned)us;
    unsigned top = 63 - (unsigned)__builtin_clzll(us);
    return (top - 3) * 16 + (unsigned)((us >> (top - 4)) & 15);
}

static uint64_t latency_percentile(const struct run *r, unsigned percent)
{
    uint64_t want = (r->latencies * percent + 99) / 100, seen = 0;
    for (unsigned b = 0; b < LATENCY_BUCKETS && want; b++) {
        seen += r->latency[b];
        if (seen >= want)
            return b < 16 ? b : (16ull + b % 16) << (b / 16 - 1);
    }
    return 0;
}

static void on_verdict(void *arg, const struct pms_verdict *v)
{
    static const char *const names[] = {"LOST", "STALE", "GARBAGE"};
    struct run *r = arg;
    if (r->reports++ < REPORTS_MAX)
        fprintf(stderr,
                "verify: %s at sector %" PRIu64 ": read generation %" PRIu64 ", allowed %" PRIu64 "..%" PRIu64
                "%s\n",
                names[v->kind], v->lba, v->gen, v->floor, v->latest, r->final ? " (final read)" : "");
}

static void log_add(struct run *r, enum pms_vlog_kind kind, uint64_t lba, uint32_t sectors, uint64_t gen)
{
    int rc = r->log ? pms_vlog_add(r->log, kind, lba, sectors, gen) : 0;
    PMS_CHECK_MSG(!rc, "cannot write the log: %s", strerror(-rc));
}

static void read_done(struct run *r, struct slot *s)
{
    uint32_t seen = 0;
    r->reads++;
    pms_judge_read_end(r->judge, s->io.lba, s->io.sectors, s->floor, s->io.buf, r->final, &seen);
    for (uint32_t i = 0; seen && r->log && i < s->io.sectors; i++) {
        uint64_t lba = s->io.lba + i, floor = pms_judge_floor(r->judge, lba);
        if (floor > pms_judge_acked(r->judge, lba))
            log_add(r, PMS_VLOG_SEEN, lba, 1, floor);
    }
}

static void write_done(struct run *r, struct slot *s, bool ok)
{
    int rc;
    if (ok) {
        r->writes++;
        rc = pms_judge_write_ack(r->judge, s->io.lba, s->io.sectors, s->gen);
    } else {
        rc = pms_judge_write_unknown(r->judge, s->io.lba, s->io.sectors, s->gen);
    }
    PMS_CHECK(!rc);
    log_add(r, ok ? PMS_VLOG_ACK : PMS_VLOG_UNKNOWN, s->io.lba, s->io.sectors, s->gen);
}

static void pause_note(struct run *r, uint64_t gap_ns)
{
    if (gap_ns > r->pause_ns)
        r->pause_ns = gap_ns;
    if (gap_ns < LONG_PAUSE_MS * MS || r->cfg.quiet)
        return;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    printf("verify: %02d:%02d:%02d.%03ld a pause of %" PRIu64 " ms has ended\n", (int)(t.tv_sec / 3600 % 24),
           (int)(t.tv_sec / 60 % 60), (int)(t.tv_sec % 60), t.tv_nsec / 1000000, gap_ns / MS);
    fflush(stdout);
}

static void on_io(struct pms_io *io, int error, const char *text)
{
    struct slot *s = io->arg;
    struct run *r = s->run;
    uint64_t now = pms_clock_boot_ns();
    s->busy = false;
    r->busy--;
    if (!error) {
        r->ops++;
        if (!r->final) {
            pause_note(r, now - r->last_done_ns);
            r->latency[latency_bucket((now - s->issued_ns) / 1000)]++;
            r->latencies++;
        }
        r->last_done_ns = now;
    } else {
        if (r->errors++ < REPORTS_MAX)
            fprintf(stderr, "verify: %s of %u sectors at %" PRIu64 " failed: %s\n",
                    io->write ? "write" : "read", io->sectors, io->lba, text);
    }
    if (io->write)
        write_done(r, s, !error);
    else if (!error)
        read_done(r, s);
}

static void submit(struct run *r, struct slot *s)
{
    s->issued_ns = pms_clock_boot_ns();
    if (!r->busy++)
        r->last_done_ns = s->issued_ns; // idle time is no pause
    s->busy = true;
    if (s->io.write) {
        s->gen = ++r->gen;
        pms_stamp_fill(s->io.buf, r->client, s->io.lba, s->io.sectors, s->gen);
        int rc = pms_judge_write_begin(r->judge, s->io.lba, s->io.sectors, s->gen);
        PMS_CHECK_MSG(!rc, "overlapping write");
        log_add(r, PMS_VLOG_BEGIN, s->io.lba, s->io.sectors, s->gen);
        r->recent[r->recent_count % RECENT].lba = s->io.lba;
        r->recent[r->recent_count++ % RECENT].sectors = s->io.sectors;
    } else {
        int rc = pms_judge_read_begin(r->judge, s->io.lba, s->io.sectors, s->floor);
        PMS_CHECK(!rc);
    }
    pms_initiator_submit(r->ini, &s->io);
}

static bool write_overlaps(const struct run *r, uint64_t lba, uint32_t sectors)
{
    for (uint32_t i = 0; i < r->cfg.qd; i++) {
        const struct slot *s = &r->slots[i];
        if (s->busy && s->io.write && lba < s->io.lba + s->io.sectors && s->io.lba < lba + sectors)
            return true;
    }
    return false;
}

static void place_random(struct run *r, struct pms_io *io)
{
    uint64_t unit = r->cfg.bs_min / SECTOR_BYTES, steps = r->cfg.bs_max / r->cfg.bs_min;
    io->sectors = (uint32_t)(unit * (1 + random_next(r) % steps));
    io->lba = r->lba + random_next(r) % ((r->sectors - io->sectors) / unit + 1) * unit;
}

static void issue_random(struct run *r, struct slot *s)
{
    s->io.write = random_next(r) % 100 >= r->cfg.read_pct;
    place_random(r, &s->io);
    for (int i = 0; s->io.write && write_overlaps(r, s->io.lba, s->io.sectors); i++) {
        if (i < 8)
            place_random(r, &s->io);
        else
            s->io.write = false;
    }
    if (!s->io.write && r->recent_count && random_next(r) % 2) { // where something has just changed
        uint64_t n = r->recent_count < RECENT ? r->recent_count : RECENT, k = random_next(r) % n;
        s->io.lba = r->recent[k].lba;
        s->io.sectors = r->recent[k].sectors;
    }
    submit(r, s);
}

static bool stop_wanted(const struct run *r, uint64_t start_ns, uint64_t issued)
{
    uint64_t now = pms_clock_boot_ns();
    if (stop_signal || (r->cfg.ops && issued >= r->cfg.ops))
        return true;
    if (r->cfg.seconds && now - start_ns > r->cfg.seconds * 1000 * MS)
        return true;
    return r->cfg.stop_on_file && access(r->cfg.stop_on_file, F_OK) == 0;
}

static void turn(struct run *r)
{
    if (r->log) {
        int rc = pms_vlog_flush(r->log); // before anything is sent
        PMS_CHECK_MSG(!rc, "cannot write the log: %s", strerror(-rc));
    }
    pms_initiator_turn(r->ini, 20);
}

// Until nothing is outstanding, or the time limit; then what is left counts as errors.
static void drain(struct run *r, uint64_t limit_ns)
{
    while (r->busy && pms_clock_boot_ns() < limit_ns)
        turn(r);
    if (r->busy) {
        fprintf(stderr, "verify: time limit reached, %u commands without an answer\n", r->busy);
        pms_initiator_abandon(r->ini);
    }
}

static void workload(struct run *r, uint64_t limit_ns)
{
    uint64_t start = pms_clock_boot_ns(), issued = 0;
    while (!stop_wanted(r, start, issued) && pms_clock_boot_ns() < limit_ns) {
        for (uint32_t i = 0; i < r->cfg.qd; i++) {
            uint64_t due =
                r->cfg.iops ? (pms_clock_boot_ns() - start) * r->cfg.iops / (1000 * MS) + 1 : UINT64_MAX;
            if (r->slots[i].busy || issued >= due || (r->cfg.ops && issued >= r->cfg.ops))
                continue;
            issue_random(r, &r->slots[i]);
            issued++;
        }
        turn(r);
    }
    drain(r, limit_ns);
}

static bool chunk_written(const struct run *r, uint64_t lba, uint32_t sectors)
{
    for (uint32_t i = 0; i < sectors; i++)
        if (pms_judge_written(r->judge, lba + i))
            return true;
    return false;
}

// Reads back everything that was ever written.
static void final_read(struct run *r, uint64_t limit_ns)
{
    uint64_t at = r->lba, end = r->lba + r->sectors;
    r->final = true;
    while (at < end && pms_clock_boot_ns() < limit_ns) {
        for (uint32_t i = 0; i < r->cfg.qd && at < end; i++) {
            struct slot *s = &r->slots[i];
            if (s->busy)
                continue;
            uint32_t n = end - at < FINAL_SECTORS ? (uint32_t)(end - at) : FINAL_SECTORS;
            if (chunk_written(r, at, n)) {
                s->io.write = false;
                s->io.lba = at;
                s->io.sectors = n;
                submit(r, s);
            }
            at += n;
        }
        turn(r);
    }
    if (at < end) {
        fprintf(stderr, "verify: time limit reached in the final read\n");
        r->errors++;
    }
    drain(r, limit_ns);
}

enum option_kind { FLAG, NUMBER, SIZE, TEXT, BLOCKS };

static const struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset; // of the field in struct config
    const char *help;
} option_rows[] = {
    {"url", TEXT, offsetof(struct config, url), "iscsi://HOST[:PORT]/IQN/LUN"},
    {"seconds", NUMBER, offsetof(struct config, seconds), "how long it works (default: 10 s)"},
    {"ops", NUMBER, offsetof(struct config, ops), "or: how many commands"},
    {"qd", NUMBER, offsetof(struct config, qd), "commands outstanding at once (8)"},
    {"bs", BLOCKS, offsetof(struct config, bs_min), "MIN:MAX, sizes, multiples of MIN (4k:64k)"},
    {"span", SIZE, offsetof(struct config, span), "how much of the disk is used (64M)"},
    {"offset", SIZE, offsetof(struct config, offset), "from where on (0)"},
    {"read-pct", NUMBER, offsetof(struct config, read_pct), "share of reads (30)"},
    {"iops", NUMBER, offsetof(struct config, iops), "at most so many commands a second"},
    {"seed", NUMBER, offsetof(struct config, seed), "of the random choices (1)"},
    {"zeroed", FLAG, offsetof(struct config, zeroed), "the span was never written and must read zero"},
    {"log", TEXT, offsetof(struct config, log), "file: what was begun and acknowledged"},
    {"check-only", FLAG, offsetof(struct config, check_only), "judge the disk by the log of an earlier run"},
    {"stop-on-file", TEXT, offsetof(struct config, stop_on_file), "stop when this file exists"},
    {"initiator", TEXT, offsetof(struct config, initiator), "initiator name"},
    {"libiscsi-reconnect", FLAG, offsetof(struct config, libiscsi_reconnect),
     "let libiscsi reconnect (with a new ISID each time)"},
    {"nop-ms", NUMBER, offsetof(struct config, nop_ms), "give up a connection silent for so long (3000)"},
    {"open-s", NUMBER, offsetof(struct config, open_s), "time for the first login (30)"},
    {"limit-s", NUMBER, offsetof(struct config, limit_s), "end everything after so long (seconds + 180)"},
    {"quiet", FLAG, offsetof(struct config, quiet), "no line for each reconnect"},
};
#define OPTION_COUNT (sizeof option_rows / sizeof option_rows[0])

static void usage(FILE *f)
{
    static const char *const values[] = {"", "N", "BYTES", "TEXT", "MIN:MAX"};
    fputs("usage: verify --url URL [options]\n"
          "Writes stamped sectors, reads them back and judges every answer; exit 0 only if "
          "errors=lost=stale=0.\n",
          f);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        fprintf(f, "  --%-19s %-8s %s\n", option_rows[i].name, values[option_rows[i].kind],
                option_rows[i].help);
}

static bool size_parse(const char *text, uint64_t *v)
{
    return !pms_size_parse(text, v) && *v % SECTOR_BYTES == 0;
}

static bool number_parse(const char *text, uint64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoull(text, &end, 10);
    return !errno && end != text && !*end && *text != '-';
}

static bool blocks_parse(const char *text, uint64_t v[2])
{
    char buf[64];
    snprintf(buf, sizeof buf, "%s", text);
    char *colon = strchr(buf, ':');
    if (colon)
        *colon = 0;
    return size_parse(buf, &v[0]) && size_parse(colon ? colon + 1 : buf, &v[1]);
}

static void config_set(struct config *c, const struct option_row *row, const char *text)
{
    void *field = (char *)c + row->offset;
    bool ok = true;
    if (row->kind == FLAG)
        *(bool *)field = true;
    else if (row->kind == TEXT)
        *(const char **)field = text;
    else if (row->kind == NUMBER)
        ok = number_parse(text, field);
    else if (row->kind == SIZE)
        ok = size_parse(text, field);
    else
        ok = blocks_parse(text, field);
    if (ok)
        return;
    fprintf(stderr, "verify: bad value for --%s: %s (see --help)\n", row->name, text);
    exit(2);
}

static void config_parse(struct config *c, int argc, char **argv)
{
    struct option long_options[OPTION_COUNT + 2] = {{"help", 0, NULL, 'h'}};
    int opt, index = 0;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        long_options[i + 1] =
            (struct option){.name = option_rows[i].name, .has_arg = option_rows[i].kind != FLAG, .val = 'o'};
    *c = (struct config){.qd = 8,
                         .bs_min = 4096,
                         .bs_max = 65536,
                         .span = 64 << 20,
                         .seed = 1,
                         .read_pct = 30,
                         .nop_ms = 3000,
                         .open_s = 30};
    while ((opt = getopt_long(argc, argv, "", long_options, &index)) != -1) {
        if (opt != 'o') {
            usage(opt == 'h' ? stdout : stderr);
            exit(opt == 'h' ? 0 : 2);
        }
        config_set(c, &option_rows[index - 1], optarg);
    }
    if (!c->url || optind != argc || (c->check_only && !c->log)) {
        fputs(c->check_only ? "verify: --check-only needs --log\n" : "verify: --url is needed\n", stderr);
        usage(stderr);
        exit(2);
    }
    if (!c->qd || c->qd > QD_MAX || c->read_pct > 100 || !c->bs_min || c->bs_max < c->bs_min ||
        c->bs_max > (4 << 20) || c->span < c->bs_max) {
        fprintf(stderr, "verify: qd 1..%d, read-pct 0..100, bs MIN<=MAX<=4M, span >= MAX\n", QD_MAX);
        exit(2);
    }
    if (!c->seconds && !c->ops && !c->stop_on_file)
        c->seconds = 10;
    if (!c->limit_s)
        c->limit_s = c->seconds + 180;
}

static void result_print(const struct run *r)
{
    struct pms_judge_counts n = r->judge ? pms_judge_counts(r->judge) : (struct pms_judge_counts){0};
    struct pms_initiator_stats st = r->ini ? pms_initiator_stats(r->ini) : (struct pms_initiator_stats){0};
    printf("verify: detail: unit_attentions=%" PRIu64 " busy=%" PRIu64 " resent=%" PRIu64 " garbage=%" PRIu64
           "\n",
           st.unit_attentions, st.busy, st.resent, n.garbage);
    printf("verify: ops=%" PRIu64 " writes=%" PRIu64 " reads=%" PRIu64 " errors=%" PRIu64 " lost=%" PRIu64
           " stale=%" PRIu64 " reconnects=%" PRIu64 " pause_ms=%" PRIu64 " p50_us=%" PRIu64 " p99_us=%" PRIu64
           "\n",
           r->ops, r->writes, r->reads, r->errors, n.lost + n.garbage, n.stale, st.reconnects,
           r->pause_ns / MS, latency_percentile(r, 50), latency_percentile(r, 99));
    fflush(stdout);
}

// The judge, from the log or new, and the log of this run. 0 or a negative error, printed.
static int history_open(struct run *r)
{
    struct config *c = &r->cfg;
    struct pms_vlog_head head = {
        .lba = c->offset / SECTOR_BYTES, .sectors = c->span / SECTOR_BYTES, .zeroed = c->zeroed};
    int rc = 0;
    if (c->check_only) {
        rc = pms_vlog_replay(c->log, &head, &r->judge, &r->writes);
        r->client = head.client;
    } else {
        head.client = r->client = random_next(r) ^ (uint64_t)getpid() << 32 ^ pms_clock_boot_ns();
        rc = pms_judge_create(&r->judge, r->client, head.lba, head.sectors, c->zeroed);
        if (!rc && c->log)
            rc = pms_vlog_create(&r->log, c->log, &head);
    }
    if (rc) {
        fprintf(stderr, "verify: cannot use the log %s (error %d)\n", c->log ? c->log : "", rc);
        return rc;
    }
    r->lba = head.lba;
    r->sectors = head.sectors;
    pms_judge_on_verdict(r->judge, on_verdict, r);
    return 0;
}

static int session_open(struct run *r)
{
    char name[224];
    snprintf(name, sizeof name, "iqn.2026-11.io.pms.test:verify-%08x", (unsigned)(r->client >> 32));
    struct pms_initiator_opts opts = {.url = r->cfg.url,
                                      .name = r->cfg.initiator ? r->cfg.initiator : name,
                                      .isid_seed = r->client,
                                      .libiscsi_reconnect = r->cfg.libiscsi_reconnect,
                                      .verbose = !r->cfg.quiet,
                                      .nop_timeout_ms = (uint32_t)r->cfg.nop_ms,
                                      .open_timeout_ms = (uint32_t)r->cfg.open_s * 1000};
    int rc = pms_initiator_open(&r->ini, &opts);
    if (!rc && r->lba + r->sectors > pms_initiator_sectors(r->ini)) {
        fprintf(stderr, "verify: the span ends beyond the disk of %" PRIu64 " sectors\n",
                pms_initiator_sectors(r->ini));
        return -EINVAL;
    }
    return rc;
}

static void slots_init(struct run *r)
{
    uint64_t bytes =
        r->cfg.bs_max > FINAL_SECTORS * SECTOR_BYTES ? r->cfg.bs_max : FINAL_SECTORS * SECTOR_BYTES;
    for (uint32_t i = 0; i < r->cfg.qd; i++) {
        struct slot *s = &r->slots[i];
        s->run = r;
        s->io.arg = s;
        s->io.done = on_io;
        s->io.buf = malloc(bytes);
        s->floor = calloc(bytes / SECTOR_BYTES, sizeof *s->floor);
        PMS_CHECK_MSG(s->io.buf && s->floor, "out of memory");
    }
}

int main(int argc, char **argv)
{
    static struct run r;
    uint64_t start = pms_clock_boot_ns();
    config_parse(&r.cfg, argc, argv);
    r.rng = r.cfg.seed;
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    slots_init(&r);
    if (history_open(&r) || session_open(&r)) {
        r.errors++;
    } else {
        uint64_t limit = start + r.cfg.limit_s * 1000 * MS;
        if (!r.cfg.check_only)
            workload(&r, limit);
        final_read(&r, limit);
    }
    int rc = r.log ? pms_vlog_close(r.log) : 0;
    if (rc) {
        fprintf(stderr, "verify: cannot write the log: %s\n", strerror(-rc));
        r.errors++;
    }
    result_print(&r);
    struct pms_judge_counts n = r.judge ? pms_judge_counts(r.judge) : (struct pms_judge_counts){0};
    if (r.ini)
        pms_initiator_close(r.ini);
    pms_judge_destroy(r.judge);
    for (uint32_t i = 0; i < r.cfg.qd; i++) {
        free(r.slots[i].io.buf);
        free(r.slots[i].floor);
    }
    return r.errors || n.lost || n.stale || n.garbage;
}
