// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * More than a target can hold: several sessions send many writes at once.
 *
 *   overload URL SESSIONS EACH KIB
 *
 * SESSIONS initiators send EACH writes of KIB each, all at once, to places of their own. What is refused (TASK SET
 * FULL, BUSY) is sent again. Says "open" when all are logged in and begins at the next line of its input; says "full"
 * with the first TASK SET FULL. At the end all is read back.
 * Exit 0: every write ended GOOD, every block holds what was written, TASK SET FULL was seen.
 */
#include "base/util.h"
#include "tests/tools/lib/initiator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS_MAX 32
#define LIMIT_NS     UINT64_C(60000000000)
#define RETRY_MS     300

static struct session {
    struct pms_initiator *ini;
    struct pms_io *ios;
    uint8_t *wrote; // what every write of this session carries
    uint8_t *read;
} sessions[SESSIONS_MAX];
static uint32_t open_n, errors, wrong, sectors;

// Each sector says whose it is. Writes of one session carry the same: their places tell them apart.
static void fill(uint8_t *buf, uint32_t session)
{
    for (uint32_t i = 0; i < sectors * 128; i++)
        ((uint32_t *)buf)[i] = (session + 1) * 2654435761u + i;
}

static void on_done(struct pms_io *io, int error, const char *text)
{
    const struct session *s = io->arg;

    open_n--;
    if (error != 0) {
        errors++;
        printf("%s at %llu: %s\n", io->write ? "write" : "read", (unsigned long long)io->lba, text);
    } else if (!io->write && memcmp(s->read, s->wrote, sectors * 512u) != 0) {
        wrong++;
    }
}

static uint64_t full_count(unsigned n)
{
    uint64_t full = 0;

    for (unsigned k = 0; k < n; k++)
        full += pms_initiator_stats(sessions[k].ini).full;
    return full;
}

static void submit(unsigned k, unsigned i, unsigned each, bool write)
{
    struct session *s = &sessions[k];
    struct pms_io *io = &s->ios[i];

    *io = (struct pms_io){.write = write,
                          .lba = ((uint64_t)k * each + i) * sectors,
                          .sectors = sectors,
                          .buf = write ? s->wrote : s->read,
                          .done = on_done,
                          .arg = s};
    open_n++;
    pms_initiator_submit(s->ini, io);
}

static bool turns(unsigned n, uint64_t limit_ns)
{
    static bool said;

    while (open_n > 0 && pms_clock_boot_ns() < limit_ns) {
        for (unsigned k = 0; k < n; k++)
            pms_initiator_turn(sessions[k].ini, 1);
        if (!said && full_count(n) > 0) {
            said = true;
            printf("full\n");
            fflush(stdout);
        }
    }
    return open_n == 0;
}

static bool session_open(unsigned k, const char *url, unsigned each)
{
    char name[64];
    struct pms_initiator_opts opts = {.url = url,
                                      .name = name,
                                      .isid_seed = k + 1,
                                      .nop_timeout_ms = 30000,
                                      .open_timeout_ms = 10000,
                                      .busy_retry_ms = RETRY_MS};
    struct session *s = &sessions[k];

    snprintf(name, sizeof name, "iqn.2026-11.io.pms.test:overload%u", k);
    s->ios = calloc(each, sizeof *s->ios);
    s->wrote = malloc(sectors * 512u);
    s->read = malloc(sectors * 512u);
    if (!s->ios || !s->wrote || !s->read || pms_initiator_open(&s->ini, &opts) != 0)
        return false;
    fill(s->wrote, k);
    return true;
}

int main(int argc, char **argv)
{
    uint64_t full, limit_ns = pms_clock_boot_ns() + LIMIT_NS;
    unsigned n, each;
    bool ended;

    if (argc != 5) {
        fprintf(stderr, "usage: see the top of tests/tools/overload.c\n");
        return 2;
    }
    n = (unsigned)atoi(argv[2]);
    each = (unsigned)atoi(argv[3]);
    sectors = (uint32_t)atoi(argv[4]) * 2;
    if (n < 1 || n > SESSIONS_MAX || each < 1 || sectors < 2)
        return 2;
    for (unsigned k = 0; k < n; k++)
        if (!session_open(k, argv[1], each))
            return 1;
    printf("open\n");
    fflush(stdout);
    getchar();
    for (unsigned i = 0; i < each; i++)
        for (unsigned k = 0; k < n; k++)
            submit(k, i, each, true);
    ended = turns(n, limit_ns);
    full = full_count(n);
    for (unsigned i = 0; ended && i < each; i++) {
        for (unsigned k = 0; k < n; k++)
            submit(k, i, each, false);
        ended = turns(n, limit_ns);
    }
    printf("writes=%u full=%llu errors=%u wrong=%u unanswered=%u\n", n * each, (unsigned long long)full,
           errors, wrong, open_n);
    for (unsigned k = 0; k < n && ended; k++)
        pms_initiator_close(sessions[k].ini);
    return !(ended && full > 0 && errors == 0 && wrong == 0);
}
