// SPDX-License-Identifier: GPL-2.0-or-later
// raft-sim: runs the hostile simulation for a range of seeds, each in a process of its own (libraft without
// the guard may crash). With the guard every seed must pass; without it (--stock) some must fail, or the
// simulation proves nothing.
#include "tests/raft/sim.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED_SECONDS_MAX 60 // a seed takes 20 ms; one that runs away is a failure

struct options {
    uint64_t seeds;
    uint64_t first;
    bool stock;
    bool verbose;
};

static void usage(FILE *out)
{
    fputs("Usage: raft-sim [--seeds N] [--first K] [--stock] [--verbose]\n"
          "Runs seeds K to K+N-1 (1 to 100) of the hostile Raft simulation.\n"
          "Without options: seeds 1 to 1000 with the guard, and 1 to 60 without it.\n"
          "  --stock    without the guard over libraft: passes only if some seed fails\n"
          "  --verbose  tell each seed's story\n",
          out);
}

static int number_parse(const char *text, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno != 0 || end == text || *end != '\0' ? -1 : 0;
}

static int options_parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"seeds", required_argument, NULL, 'n'}, {"first", required_argument, NULL, 'k'},
        {"stock", no_argument, NULL, 's'},       {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    int c;

    *o = (struct options){.seeds = 100, .first = 1};
    while ((c = getopt_long(argc, argv, "n:k:svh", longs, NULL)) != -1) {
        int rv = 0;

        if (c == 'n')
            rv = number_parse(optarg, &o->seeds);
        else if (c == 'k')
            rv = number_parse(optarg, &o->first);
        else if (c == 's')
            o->stock = true;
        else if (c == 'v')
            o->verbose = true;
        else if (c == 'h') {
            usage(stdout);
            exit(0);
        } else
            rv = -1;
        if (rv != 0)
            return -1;
    }
    return optind == argc && o->seeds > 0 ? 0 : -1;
}

static void child_run(const struct options *o, uint64_t seed)
{
    static struct sim sim;
    const struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core);
    alarm(SEED_SECONDS_MAX);
    sim_run(&sim, seed, !o->stock, o->verbose);
    fflush(stdout);
    _exit(0);
}

// True if the seed passed.
static bool seed_run(const struct options *o, uint64_t seed)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0 || (pid > 0 && waitpid(pid, &status, 0) != pid)) {
        perror("raft-sim");
        exit(1);
    }
    if (pid == 0)
        child_run(o, seed);
    if (WIFSIGNALED(status))
        printf("seed %llu: killed by signal %d (%s)\n", (unsigned long long)seed, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// True if the range came out as it must.
static bool range_run(const struct options *o)
{
    uint64_t failures = 0;

    for (uint64_t i = 0; i < o->seeds; i++)
        failures += seed_run(o, o->first + i) ? 0 : 1;
    printf("raft-sim: seeds=%llu failures=%llu guard=%s\n", (unsigned long long)o->seeds,
           (unsigned long long)failures, o->stock ? "off" : "on");
    return (failures > 0) == o->stock;
}

int main(int argc, char **argv)
{
    const struct options guarded = {.seeds = 1000, .first = 1},
                         stock = {.seeds = 60, .first = 1, .stock = true};
    struct options o;

    if (argc == 1)
        return range_run(&guarded) && range_run(&stock) ? 0 : 1;
    if (options_parse(argc, argv, &o) != 0) {
        usage(stderr);
        return 2;
    }
    return range_run(&o) ? 0 : 1;
}
