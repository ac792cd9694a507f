// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl recover: going on after a permanent loss of quorum, offline. Without --yes-give-up it only tells.
#include "cmd/pmsd/recover.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/pmsctl/ctl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void join_names(const json_t *list, char *out, size_t len)
{
    const json_t *name;
    size_t i;

    out[0] = '\0';
    json_array_foreach (list, i, name) {
        size_t n = strlen(out);

        snprintf(out + n, len - n, "%s%s", i > 0 ? "," : "", json_string_value(name));
    }
}

static void nodes_print(const json_t *report)
{
    struct pms_table t = {0};
    const json_t *node;
    size_t i;

    pms_table_add(&t, 5, (const char *const[]){"NODE", "ROLE", "RAFT", "ADDRESS", "NOW"});
    json_array_foreach (json_object_get(report, "nodes"), i, node) {
        pms_table_add(&t, 5,
                      (const char *const[]){pms_json_str(node, "name", "?"), pms_json_str(node, "role", "?"),
                                            pms_json_bool(node, "voter", false) ? "voter" : "",
                                            pms_json_str(node, "addr", "?"),
                                            pms_json_str(node, "state", "?")});
    }
    pms_table_print(&t);
}

static void array_print(const json_t *a)
{
    const char *then = pms_json_str(a, "then", ""), *name = pms_json_str(a, "name", "?");
    char in_sync[600], left[600], stale[600];
    uint64_t epoch = 0;

    pms_json_u64(a, "epoch", &epoch);
    join_names(json_object_get(a, "in_sync"), in_sync, sizeof(in_sync));
    join_names(json_object_get(a, "in_sync_left"), left, sizeof(left));
    join_names(json_object_get(a, "stale_left"), stale, sizeof(stale));
    printf("array %s: epoch %llu, primary %s, in sync %s; here: %s\n", name, (unsigned long long)epoch,
           pms_json_str(a, "primary", "none"), in_sync[0] != '\0' ? in_sync : "none",
           pms_json_str(a, "here", "?"));
    if (strcmp(then, "serves") == 0)
        printf("  goes on with the in-sync copy on %s\n", left);
    else if (strcmp(then, "waits") == 0)
        printf(
            "  NO GOOD COPY IS LEFT. It waits until its stale copy is taken for good, which loses what was "
            "written since that fell out of sync (pmsctl array recover %s --slot %s), or it is deleted\n",
            name, stale);
    else if (strcmp(then, "lost") == 0)
        printf("  NO COPY IS LEFT: its data is lost\n");
    else
        printf("  was being made or deleted, and is removed\n");
    if (pms_json_str(a, "doubt", NULL) != NULL)
        printf("  DOUBT: %s\n", pms_json_str(a, "doubt", ""));
}

static void report_print(const json_t *report)
{
    const json_t *raft = json_object_get(report, "raft"), *array;
    uint64_t term = 0, index = 0, index_term = 0;
    size_t i;

    pms_json_u64(raft, "term", &term);
    pms_json_u64(raft, "index", &index);
    pms_json_u64(raft, "index_term", &index_term);
    printf("cluster %s, node %s; its last known term is %llu, its log ends at index %llu of term %llu\n"
           "(of several survivors, recover the one with the highest term of the last index, then the highest "
           "index)\n\n",
           pms_json_str(report, "cluster", "?"), pms_json_str(report, "node", "?"), (unsigned long long)term,
           (unsigned long long)index, (unsigned long long)index_term);
    if (pms_json_bool(report, "interrupted", false))
        puts("A recovery of this node was begun and is not finished: run it again with the nodes that it "
             "gives up.\n");
    nodes_print(report);
    putchar('\n');
    json_array_foreach (json_object_get(report, "arrays"), i, array)
        array_print(array);
}

// What it costs, before it is done.
static void consequences_print(const char *names)
{
    printf("\nThis gives up %s for ever:\n"
           "* What only they had agreed on or acknowledged after this node's log ends is gone.\n"
           "* They must never serve again. Wipe their state directories. Should one come back with it, the "
           "recovered "
           "cluster lets it in nowhere and tells it to stop, if it can reach it.\n"
           "* Their copies are no copies any more; a returned node joins anew, with a new token.\n"
           "To do it: pmsctl recover --yes-give-up %s (and the same --state-dir and --brick-dir)\n",
           names, names);
}

static int fail(int err, const char *why)
{
    pms_ctl_complain(err, "%s", why);
    return err == PMS_EUSAGE ? PMS_EXIT_USAGE : PMS_EXIT_FAILED;
}

static int follow(struct pms_ctl *ctl, const char *state_dir, const char *id)
{
    json_t *answer;
    char why[5000];
    int rv = pms_recover_follow(state_dir, id, why, sizeof(why));

    if (rv != 0)
        return fail(rv, why);
    if (ctl->json) {
        answer = json_object();
        pms_json_set_str(answer, "followed", id);
        pms_ctl_print_json(answer);
        json_decref(answer);
    } else {
        puts("this node follows the recovered cluster: start pmsd here");
    }
    return PMS_EXIT_DONE;
}

static int recover(struct pms_ctl *ctl, struct pms_recover *r, json_t *report, const char *names)
{
    char why[5000], id[PMS_UUID_TEXT_SIZE];
    int rv = pms_recover_check(r, names, why, sizeof(why));

    if (rv == 0)
        rv = pms_recover_run(r, names, id, why, sizeof(why));
    if (rv != 0)
        return fail(rv, why);
    pms_json_set_bool(report, "done", true);
    pms_json_set_str(report, "recovery", id);
    if (ctl->json)
        pms_ctl_print_json(report);
    else
        printf("\nDone: this node is the cluster now. Start pmsd here.\nOn each other survivor, with pmsd "
               "stopped: "
               "pmsctl recover --follow %s\n",
               id);
    return PMS_EXIT_DONE;
}

static int run_recover(struct pms_ctl *ctl, const struct pms_ctl_command *c, const struct pms_ctl_values *v)
{
    const char *state_dir = pms_ctl_value(c, v, "state-dir"), *brick_dir = pms_ctl_value(c, v, "brick-dir");
    const char *names = pms_ctl_value(c, v, "yes-give-up"), *id = pms_ctl_value(c, v, "follow");
    char why[5000], lost[600];
    const char *refused;
    struct pms_recover r;
    json_t *report = NULL;
    int rv;

    if (state_dir == NULL)
        state_dir = "/var/lib/pms/raft";
    if (brick_dir == NULL)
        brick_dir = "/var/lib/pms/bricks";
    if (id != NULL && names != NULL)
        return pms_ctl_usage("--yes-give-up is for the survivor that is recovered, --follow for the others");
    pms_log_init("pmsctl", PMS_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    umask(0077);
    if (id != NULL)
        return follow(ctl, state_dir, id);
    rv = pms_recover_open(&r, state_dir, brick_dir, why, sizeof(why));
    if (rv != 0) {
        rv = fail(rv, why);
        goto out;
    }
    report = pms_recover_report(&r);
    pms_json_set_bool(report, "done", false);
    if (!ctl->json)
        report_print(report);
    if (names != NULL) {
        rv = recover(ctl, &r, report, names);
        goto out;
    }
    refused = pms_json_str(report, "refused", NULL);
    join_names(json_object_get(report, "give_up"), lost, sizeof(lost));
    if (ctl->json)
        pms_ctl_print_json(report);
    else if (refused == NULL)
        consequences_print(lost);
    if (refused != NULL)
        rv = fail(PMS_EREFUSED, refused);
out:
    json_decref(report);
    pms_recover_close(&r);
    return rv;
}

const struct pms_ctl_command pms_ctl_recover[] = {
    {"recover",
     "",
     "",
     0,
     0,
     "after a permanent loss of quorum, with pmsd stopped: makes this node the cluster; without options it "
     "only tells",
     {{"state-dir", "D", false, false, "this node's (default /var/lib/pms/raft)"},
      {"brick-dir", "D", false, false, "this node's (default /var/lib/pms/bricks)"},
      {"yes-give-up", "NODE,...", false, false, "does it: exactly the nodes that are lost for ever"},
      {"follow", "ID", false, false, "on another survivor: joins what was recovered as ID, with its bricks"}},
     run_recover},
    {0},
};
