// SPDX-License-Identifier: GPL-2.0-or-later
// The simulator's command line: many seeds in forked batches, so that an abort names its seed and the rest
// goes on.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/sim.h"

enum { BATCH = 25, SECONDS_MAX = 120 }; // seeds a process; real time of one seed, after which it hangs

struct options {
    uint64_t seeds, first;
    bool single, verbose, quiet;
    const char *mutant;
    const char *self;
};

/* Written by the child, read by the parent. */
struct progress {
    volatile uint64_t current;    // seed being run
    volatile uint64_t violations; // found by this child
};

static void print_violation(const struct options *o, uint64_t seed, const char *what)
{
    if (o->quiet)
        return;
    printf("seed=%llu violation: %s\n", (unsigned long long)seed, what);
    printf("  replay: %s --seed %llu --verbose%s%s\n", o->self, (unsigned long long)seed,
           o->mutant != NULL ? " --mutant " : "", o->mutant != NULL ? o->mutant : "");
    fflush(stdout);
}

static bool run_seed(const struct options *o, uint64_t seed)
{
    static struct sim sim;
    bool ok;

    alarm(SECONDS_MAX);
    ok = sim_run(&sim, seed, o->verbose);
    alarm(0);
    if (!ok)
        print_violation(o, seed, sim.verdict);
    return ok;
}

// Runs [from, to) until the first violation if one is enough; the exit status does not matter, progress does.
static void child(const struct options *o, uint64_t from, uint64_t to, struct progress *p)
{
    if (o->quiet && freopen("/dev/null", "w", stderr) == NULL)
        _exit(1);
    for (uint64_t seed = from; seed < to; seed++) {
        p->current = seed;
        if (!run_seed(o, seed)) {
            p->violations++;
            if (o->mutant != NULL)
                break;
        }
    }
    fflush(stdout);
    _exit(0);
}

// Returns the seed to go on with.
static uint64_t run_batch(const struct options *o, uint64_t from, uint64_t to, struct progress *p)
{
    char what[128];
    pid_t pid;
    int status;

    *p = (struct progress){.current = from};
    fflush(stdout);
    pid = fork();
    PMS_CHECK(pid >= 0);
    if (pid == 0)
        child(o, from, to, p);
    while (waitpid(pid, &status, 0) < 0)
        PMS_CHECK(errno == EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return to;
    p->violations++;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(what, sizeof what, "no end after %d s", SECONDS_MAX);
    else if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "the process died of signal %d (its last words are above)",
                 WTERMSIG(status));
    else
        snprintf(what, sizeof what, "the process ended with status %d (its last words are above)",
                 WEXITSTATUS(status));
    print_violation(o, p->current, what);
    return p->current + 1;
}

static int run_all(const struct options *o)
{
    struct progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t violations = 0, end = o->first + o->seeds, seed = o->first;

    PMS_CHECK(p != MAP_FAILED);
    while (seed < end) {
        seed = run_batch(o, seed, seed + BATCH < end ? seed + BATCH : end, p);
        violations += p->violations;
        if (o->mutant != NULL && violations > 0) {
            printf("caught seed=%llu\n", (unsigned long long)p->current);
            return 0;
        }
    }
    printf("sim: seeds=%llu violations=%llu\n", (unsigned long long)o->seeds, (unsigned long long)violations);
    return o->mutant != NULL || violations > 0;
}

static int run_single(const struct options *o)
{
    bool ok = run_seed(o, o->first);

    printf("sim: seeds=1 violations=%d\n", !ok);
    return o->mutant != NULL ? ok : !ok;
}

#ifdef PMS_MUTANTS
static int list_mutants(void)
{
    for (int m = 1; m < PMS_MUTANT_END; m++)
        puts(pms_mutant_name(m));
    return 0;
}

static bool choose_mutant(const char *name)
{
    for (int m = 1; m < PMS_MUTANT_END; m++)
        if (strcmp(pms_mutant_name(m), name) == 0) {
            pms_mutant = m;
            return true;
        }
    return false;
}
#else
static int list_mutants(void)
{
    fputs("sim: no mutants in this build: use sim-mutants\n", stderr);
    return 2;
}

static bool choose_mutant(const char *name)
{
    (void)name;
    return false;
}
#endif

static int usage(FILE *to, int code)
{
    fputs(
        "usage: sim [--seeds N] [--first K]   runs N seeds (default 1000) from K (default 1)\n"
        "       sim --seed K [--verbose]      runs one; --verbose tells its story\n"
        "       --quiet                       only the last line\n"
        "       --mutant NAME                 with a planted bug (sim-mutants): exit 0 if a seed catches it\n"
        "       --list-mutants\n",
        to);
    return code;
}

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"seeds", required_argument, NULL, 'n'},
        {"first", required_argument, NULL, 'f'},
        {"seed", required_argument, NULL, 's'},
        {"verbose", no_argument, NULL, 'v'},
        {"quiet", no_argument, NULL, 'q'},
        {"mutant", required_argument, NULL, 'm'},
        {"list-mutants", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.seeds = 1000, .first = 1, .self = argv[0]};
    bool ok = true;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'n':
            ok = ok && parse_number(optarg, &o.seeds);
            break;
        case 'f':
            ok = ok && parse_number(optarg, &o.first);
            break;
        case 's':
            ok = ok && parse_number(optarg, &o.first);
            o.single = true;
            break;
        case 'v':
            o.verbose = true;
            break;
        case 'q':
            o.quiet = true;
            break;
        case 'm':
            o.mutant = optarg;
            break;
        case 'l':
            return list_mutants();
        case 'h':
            return usage(stdout, 0);
        default:
            return usage(stderr, 2);
        }
    }
    if (!ok || optind != argc)
        return usage(stderr, 2);
    if (o.mutant != NULL && !choose_mutant(o.mutant)) {
        fprintf(stderr, "sim: no mutant %s in this build (--list-mutants)\n", o.mutant);
        return 2;
    }
    return o.single ? run_single(&o) : run_all(&o);
}
