// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * WRITE SAME under verification: fills a range with a pattern, zeroes its inner part, and reads all of it back. First
 * it checks that UNMAP is not offered, and refused.
 *
 *   zeroer --seconds S [--initiator IQN] URL
 *
 * Each round has another range, of up to 8 MiB, and zeroes by WRITE SAME(10) with a block of zeros or by WRITE SAME(16)
 * without one (NDOB). A lost connection is made anew with the same ISID and the round begins again. Last line:
 * "zeroer: rounds=N reconnects=N wrong=N"; exit code 0 if wrong is 0 and no command failed for good.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define BLOCK        512u
#define INNER_MAX    16384u /* blocks */
#define READ_BLOCKS  512u
#define LOGIN_WAIT_S 30

static const char *initiator = "iqn.2026-11.io.pms.test:zeroer";
static const char *url_text;
static struct iscsi_context *iscsi;
static int lun;
static uint64_t seed = 88172645463325252ull;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static bool login(void)
{
    struct iscsi_url *url;
    bool ok;

    iscsi = iscsi_create_context(initiator);
    url = iscsi != NULL ? iscsi_parse_full_url(iscsi, url_text) : NULL;
    if (url == NULL) {
        fprintf(stderr, "zeroer: %s is no URL\n", url_text);
        exit(2);
    }
    lun = url->lun;
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_timeout(iscsi, 5);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_targetname(iscsi, url->target);
    iscsi_set_isid_random(iscsi, 0x2e40e5, 0x77);
    ok = iscsi_connect_sync(iscsi, url->portal) == 0 && iscsi_login_sync(iscsi) == 0;
    iscsi_destroy_url(url);
    return ok;
}

static void login_again(void)
{
    time_t until = time(NULL) + LOGIN_WAIT_S;

    for (;;) {
        if (iscsi != NULL)
            iscsi_destroy_context(iscsi);
        if (login())
            return;
        if (time(NULL) > until) {
            fprintf(stderr, "zeroer: no login for %d s: %s\n", LOGIN_WAIT_S, iscsi_get_error(iscsi));
            exit(1);
        }
        usleep(100000);
    }
}

/* The command's end. False: no answer, the connection is lost, or a UNIT ATTENTION: again. */
static bool over(struct scsi_task *task, const char *what)
{
    bool ok = task != NULL && task->status == SCSI_STATUS_GOOD;

    if (task != NULL && task->status == SCSI_STATUS_CHECK_CONDITION &&
        task->sense.key != SCSI_SENSE_UNIT_ATTENTION) {
        fprintf(stderr, "zeroer: %s: %s\n", what, iscsi_get_error(iscsi));
        exit(1);
    }
    if (!ok && task != NULL && task->status == SCSI_STATUS_CHECK_CONDITION)
        fprintf(stderr, "zeroer: %s: unit attention %04x\n", what, (unsigned)task->sense.ascq);
    if (task != NULL)
        scsi_free_scsi_task(task);
    return ok;
}

static bool fill(uint32_t lba, uint32_t blocks, uint8_t value)
{
    uint8_t block[BLOCK];

    memset(block, value, BLOCK);
    return over(iscsi_writesame10_sync(iscsi, lun, lba, block, BLOCK, (uint16_t)blocks, 0, 0, 0, 0),
                "WRITE SAME");
}

/* Counts the bytes that are not as they should be. */
static bool verify(uint32_t lba, uint32_t blocks, uint8_t value, uint64_t *wrong)
{
    for (uint32_t at = 0; at < blocks; at += READ_BLOCKS) {
        uint32_t n = blocks - at < READ_BLOCKS ? blocks - at : READ_BLOCKS;
        struct scsi_task *task = iscsi_read10_sync(iscsi, lun, lba + at, n * BLOCK, BLOCK, 0, 0, 0, 0, 0);

        if (task != NULL && task->status == SCSI_STATUS_GOOD) {
            *wrong += task->datain.size != (int)(n * BLOCK);
            for (int i = 0; i < task->datain.size; i++)
                *wrong += task->datain.data[i] != value;
        }
        if (!over(task, "READ"))
            return false;
    }
    return true;
}

static bool round_run(uint32_t lba, uint32_t inner, uint8_t value, bool ndob, uint64_t *wrong)
{
    bool ok = fill(lba, inner + 2, value);

    if (ok && ndob)
        ok = over(iscsi_writesame16_sync(iscsi, lun, lba + 1, NULL, 0, inner, 0, 0, 0, 0),
                  "WRITE SAME(16), NDOB");
    else if (ok)
        ok = fill(lba + 1, inner, 0);
    return ok && verify(lba, 1, value, wrong) && verify(lba + 1, inner, 0, wrong) &&
           verify(lba + 1 + inner, 1, value, wrong);
}

static uint32_t capacity(void)
{
    struct scsi_task *task = NULL;
    struct scsi_readcapacity10 *rc = NULL;

    for (int i = 0; i < 5 && rc == NULL; i++) { /* UNIT ATTENTIONs of a new session */
        task = iscsi_readcapacity10_sync(iscsi, lun, 0, 0);
        if (task != NULL && task->status == SCSI_STATUS_GOOD)
            rc = scsi_datain_unmarshall(task);
    }
    if (rc == NULL || rc->lba < 2 * INNER_MAX) {
        fprintf(stderr, "zeroer: READ CAPACITY: %s\n", iscsi_get_error(iscsi));
        exit(1);
    }
    return rc->lba + 1;
}

/* An array whose space is reserved says that it does not unmap, and does not. */
static void expect_no_unmap(void)
{
    struct unmap_list list = {.lba = 0, .num = 8};
    struct scsi_task *task = iscsi_readcapacity16_sync(iscsi, lun);
    struct scsi_readcapacity16 *rc = task != NULL ? scsi_datain_unmarshall(task) : NULL;
    bool ok = rc != NULL && !rc->lbpme;

    if (task != NULL)
        scsi_free_scsi_task(task);
    task = iscsi_unmap_sync(iscsi, lun, 0, 0, &list, 1);
    ok = ok && task != NULL && task->status == SCSI_STATUS_CHECK_CONDITION &&
         task->sense.key == SCSI_SENSE_ILLEGAL_REQUEST &&
         task->sense.ascq == SCSI_SENSE_ASCQ_INVALID_OPERATION_CODE;
    if (task != NULL)
        scsi_free_scsi_task(task);
    if (!ok) {
        fprintf(stderr, "zeroer: UNMAP: neither offered nor refused, or both: %s\n", iscsi_get_error(iscsi));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seconds", required_argument, NULL, 's'}, {"initiator", required_argument, NULL, 'i'}, {0}};
    uint64_t rounds = 0, reconnects = 0, wrong = 0;
    unsigned seconds = 5;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 's')
            seconds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'i')
            initiator = optarg;
        else
            return 2;
    }
    if (optind != argc - 1)
        return 2;
    url_text = argv[optind];
    login_again();
    uint32_t blocks = capacity();

    expect_no_unmap();
    for (time_t until = time(NULL) + seconds; time(NULL) < until && wrong == 0; rounds++) {
        uint32_t inner = 1 + (uint32_t)draw(rounds % 2 ? 64 : INNER_MAX);
        uint32_t lba = (uint32_t)draw(blocks - inner - 1);
        uint8_t value = (uint8_t)(1 + rounds % 255);
        bool ndob = draw(2) == 0;

        while (!round_run(lba, inner, value, ndob, &wrong)) {
            reconnects++;
            login_again();
        }
    }
    iscsi_logout_sync(iscsi);
    iscsi_destroy_context(iscsi);
    printf("zeroer: rounds=%llu reconnects=%llu wrong=%llu\n", (unsigned long long)rounds,
           (unsigned long long)reconnects, (unsigned long long)wrong);
    return wrong == 0 ? 0 : 1;
}
