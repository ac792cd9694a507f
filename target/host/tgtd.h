// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one tgtd for one array: start, configure, watch, kill.
#ifndef PMS_TARGET_HOST_TGTD_H
#define PMS_TARGET_HOST_TGTD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include "target/host/guard.h"

#define PMS_TGTD_LUN 1

// Where the programs are; the same for all arrays of a node. Strings must outlive every user.
struct pms_tgtd_paths {
    const char *tgtd;       // the private copy of the packaged binary
    const char *plugin_dir; // where bs_pms.so is, among other files
    const char *redirect;   // pms_redirect.so, preloaded
    const char *run_dir;    // for sockets, 0700; at most 60 bytes long (a Unix socket's path is short)
};

// Fills paths from this program's own folder if bs_pms.so is there (build tree, /usr/lib/pms), else with
// /usr/lib/pms. Static strings; run_dir is the caller's matter.
void pms_tgtd_paths_default(struct pms_tgtd_paths *paths);

struct pms_tgtd_conf {
    uint64_t array_id;
    const char *name; // for log lines
    const char *iqn;
    int listen_fd;           // inherited; the only address that the redirect library lets it bind
    const char *plugin_sock; // path of the session socket, see session.h
    unsigned deaf_ms;        // event loop silent for so long: dead
};

struct pms_tgtd;
typedef void (*pms_tgtd_cb)(void *arg, int err);
// status: as from waitpid.
typedef void (*pms_tgtd_exit_cb)(void *arg, int status);

// Starts the process and, once its management socket answers, creates target, LUN (meanwhile the plugin says
// hello and waits for its answer) and ACL; no portal: that is the plugin's matter. conf's strings are copied.
// cb runs once with the outcome, unless on_exit or stop comes first; after an error only stop is left.
// on_exit: the process died, or was killed because it gave no answer for conf's deaf_ms; only stop is left.
// 0: *tgtd is valid and its pid known; else -errno.
int pms_tgtd_start(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_paths *paths,
                   const struct pms_tgtd_conf *conf, pms_tgtd_cb cb, pms_tgtd_exit_cb on_exit, void *arg,
                   struct pms_tgtd **tgtd);
// Goes on with a tgtd that an earlier pmsd has set up; child's descriptors are taken over. There is no cb: it is
// set up. Else as start. On failure the process is killed.
int pms_tgtd_adopt(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_conf *conf,
                   struct pms_guard_child *child, pms_tgtd_exit_cb on_exit, void *arg,
                   struct pms_tgtd **tgtd);
// See struct pms_guard_child: with a tenure, the next pmsd may go on with it.
void pms_tgtd_tenure(struct pms_tgtd *tgtd, uint64_t tenure);
// Lets go of a running one, for the next pmsd to find; the guard minds it. Frees. Its callbacks do not run.
void pms_tgtd_leave(struct pms_tgtd *tgtd);
// SIGKILL, wait until it is gone, free. -ETIMEDOUT after PMS_TGTD_KILL_MS: it is reaped whenever it ends.
// No other callback runs any more. cb (may be NULL) runs once, never before the return.
void pms_tgtd_stop(struct pms_tgtd *tgtd, pms_tgtd_cb cb, void *arg);
pid_t pms_tgtd_pid(const struct pms_tgtd *tgtd);

#define PMS_TGTD_KILL_MS  2000 // a killed process should be gone by then
#define PMS_TGTD_START_MS 5000 // from exec to the first answer, and for each configuring step

#endif
