// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one tgtd for one array.
//
// Happy path: spawn, knock at the management socket until it answers, the steps of setup[] one after the
// other, then pings.
// Failures: a step is refused or takes too long: cb tells, the caller stops it. The process ends at any time:
// on_exit. It lives but its event loop does not turn: killed, which ends in on_exit too. tgtd ignores SIGTERM
// and has nothing to save: every stop is a SIGKILL.
#include "target/host/tgtd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/check.h"
#include "base/err.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/util.h"
#include "target/host/log_pipe.h"
#include "target/host/proc.h"
#include "target/host/tgtadm.h"
#include "target/plugin/proto.h"

#define KNOCK_MS   2   // between two attempts to reach a tgtd that is starting
#define PATH_BYTES 108 // of a Unix socket

#define LISTEN_FD_IN_CHILD 3

// What follows "new target". NULL: made from the configuration.
static const struct {
    enum pms_tgtadm_op op;
    uint64_t lun;
    const char *params;
} setup[] = {
    {PMS_TGTADM_TARGET_NEW, 0, NULL},
    {PMS_TGTADM_LUN_NEW, PMS_TGTD_LUN, "path=-,bstype=pms"},
    // Nobody waits before a new login, and large writes need few rounds.
    {PMS_TGTADM_TARGET_SET, 0, "DefaultTime2Wait=0"},
    {PMS_TGTADM_TARGET_SET, 0, "MaxRecvDataSegmentLength=262144"},
    {PMS_TGTADM_TARGET_SET, 0, "MaxXmitDataSegmentLength=262144"},
    {PMS_TGTADM_TARGET_SET, 0, "FirstBurstLength=262144"},
    {PMS_TGTADM_TARGET_SET, 0, "MaxBurstLength=1048576"},
    {PMS_TGTADM_TARGET_SET, 0, "InitialR2T=No"},
    {PMS_TGTADM_TARGET_BIND, 0, "initiator-address=ALL"},
};
#define SETUP_STEPS (sizeof(setup) / sizeof(setup[0]))

// What tgtd says at every start of ours. It is given a portal that cannot be bound, so that it listens only
// where we let it; and it may lack privileges that it does without.
static const char *const expected_lines[] = {
    "unable to bind server socket",
    "failed to create/bind to portal",
    "Failed to initialize RDMA",
    "can't adjust oom-killer's pardon",
    "can't adjust nr_open",
    "use timer_fd based scheduler",
    "use signalfd notification",
    "device_mgmt(",
    NULL,
};

struct pms_tgtd {
    uv_loop_t *loop;
    uv_timer_t timer; // knocking, pinging, then the deadline of stop
    struct pms_proc *proc;
    struct pms_guard_pid *guard_pid;
    struct pms_log_pipe *log;
    struct pms_tgtadm *call; // running
    char name[PMS_NAME_MAX + 1];
    char iqn[PMS_IQN_MAX + 1];
    char ipc_path[PATH_BYTES];
    unsigned deaf_ms;
    size_t step; // of setup, SETUP_STEPS: done
    uint64_t started_ns;
    uint64_t answered_ns;
    uint64_t pinged_ns;
    bool exited;
    bool stopping;
    int stop_err;
    pms_tgtd_cb cb;
    pms_tgtd_exit_cb on_exit;
    void *arg;
    pms_tgtd_cb stop_cb;
    void *stop_arg;
};

static void step_next(struct pms_tgtd *t);

static unsigned elapsed_ms(uint64_t since_ns)
{
    return (unsigned)((pms_clock_boot_ns() - since_ns) / 1000000);
}

void pms_tgtd_paths_default(struct pms_tgtd_paths *paths)
{
    static char dir[PATH_MAX], tgtd[PATH_MAX + 32], redirect[PATH_MAX + 32];
    char plugin[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    char *slash;

    dir[n > 0 ? n : 0] = 0;
    slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    snprintf(plugin, sizeof(plugin), "%s/bs_pms.so", dir);
    if (access(plugin, R_OK) != 0)
        snprintf(dir, sizeof(dir), "/usr/lib/pms");
    snprintf(tgtd, sizeof(tgtd), "%s/tgtd", dir);
    snprintf(redirect, sizeof(redirect), "%s/pms_redirect.so", dir);
    *paths = (struct pms_tgtd_paths){
        .tgtd = tgtd, .plugin_dir = dir, .redirect = redirect, .run_dir = paths->run_dir};
}

static void on_ping(void *arg, int err)
{
    struct pms_tgtd *t = arg;

    t->call = NULL;
    if (err == 0 || err == PMS_EREFUSED)
        t->answered_ns = pms_clock_boot_ns();
}

static unsigned ping_ms(const struct pms_tgtd *t)
{
    return t->deaf_ms / 10;
}

static void on_ping_time(uv_timer_t *timer)
{
    struct pms_tgtd *t = timer->data;

    // If it was this process that stood still, tgtd had nothing to answer.
    if (elapsed_ms(t->pinged_ns) > 3 * ping_ms(t))
        t->answered_ns = pms_clock_boot_ns();
    t->pinged_ns = pms_clock_boot_ns();
    if (elapsed_ms(t->answered_ns) > t->deaf_ms) {
        pms_log(PMS_LOG_ERROR, "array %s: tgtd has not answered for %u ms: killed", t->name, t->deaf_ms);
        pms_proc_kill(t->proc);
        return;
    }
    if (!t->call)
        pms_tgtadm_call(t->loop, t->ipc_path, PMS_TGTADM_PING, 0, NULL, t->deaf_ms, on_ping, t, &t->call);
}

static void watch(struct pms_tgtd *t)
{
    t->answered_ns = t->pinged_ns = pms_clock_boot_ns();
    uv_timer_start(&t->timer, on_ping_time, ping_ms(t), ping_ms(t));
}

static void on_step(void *arg, int err)
{
    struct pms_tgtd *t = arg;

    t->call = NULL;
    if (err) {
        pms_log(PMS_LOG_ERROR, "array %s: tgtd cannot be set up (step %zu): %s", t->name, t->step,
                pms_err_text(err));
        t->cb(t->arg, err);
        return;
    }
    t->step++;
    step_next(t);
}

// 0, or what pms_tgtadm_call returned.
static int step_call(struct pms_tgtd *t)
{
    const char *params = setup[t->step].params;
    char target[PMS_IQN_MAX + 32];

    snprintf(target, sizeof(target), "targetname=%s", t->iqn);
    return pms_tgtadm_call(t->loop, t->ipc_path, setup[t->step].op, setup[t->step].lun,
                           params ? params : target, PMS_TGTD_START_MS, on_step, t, &t->call);
}

static void step_next(struct pms_tgtd *t)
{
    int err;

    if (t->step == SETUP_STEPS) {
        pms_log(PMS_LOG_INFO, "array %s: tgtd (pid %d) is set up after %u ms", t->name, (int)pms_tgtd_pid(t),
                elapsed_ms(t->started_ns));
        watch(t);
        t->cb(t->arg, 0);
        return;
    }
    err = step_call(t);
    if (err)
        on_step(t, err);
}

// The first step doubles as the knock: nothing listens yet, or the step is under way.
static void on_knock(uv_timer_t *timer)
{
    struct pms_tgtd *t = timer->data;
    int err = step_call(t);

    if (err == 0) {
        uv_timer_stop(timer);
        return;
    }
    if ((err == -ENOENT || err == -ECONNREFUSED) && elapsed_ms(t->started_ns) < PMS_TGTD_START_MS)
        return;
    uv_timer_stop(timer);
    on_step(t, err);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct pms_tgtd *t = h->data;

    if (t->stop_cb)
        t->stop_cb(t->stop_arg, t->stop_err);
    free(t);
}

static void ipc_unlink(const struct pms_tgtd *t)
{
    char lock[PATH_BYTES + 8];

    snprintf(lock, sizeof(lock), "%s.lock", t->ipc_path);
    unlink(t->ipc_path);
    unlink(lock);
}

static void stop_finish(struct pms_tgtd *t, int err)
{
    t->stop_err = err;
    pms_guard_pid_del(t->guard_pid);
    pms_proc_close(t->proc);
    pms_log_pipe_close(t->log);
    ipc_unlink(t);
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void on_proc_exit(void *arg, int status)
{
    struct pms_tgtd *t = arg;

    t->exited = true;
    if (t->stopping) {
        stop_finish(t, 0);
        return;
    }
    pms_log(PMS_LOG_WARN, "array %s: tgtd ended (status 0x%x)", t->name, (unsigned)status);
    uv_timer_stop(&t->timer);
    pms_tgtadm_cancel(t->call);
    t->call = NULL;
    t->on_exit(t->arg, status);
}

static void on_stop_deadline(uv_timer_t *timer)
{
    struct pms_tgtd *t = timer->data;

    if (!t->exited)
        pms_log(PMS_LOG_ERROR, "array %s: tgtd (pid %d) does not die", t->name, (int)pms_tgtd_pid(t));
    stop_finish(t, t->exited ? 0 : -ETIMEDOUT);
}

void pms_tgtd_stop(struct pms_tgtd *t, pms_tgtd_cb cb, void *arg)
{
    PMS_CHECK(!t->stopping);
    t->stopping = true;
    t->stop_cb = cb;
    t->stop_arg = arg;
    pms_tgtadm_cancel(t->call);
    t->call = NULL;
    pms_proc_kill(t->proc);
    uv_update_time(t->loop);
    uv_timer_start(&t->timer, on_stop_deadline, t->exited ? 0 : PMS_TGTD_KILL_MS, 0);
}

void pms_tgtd_tenure(struct pms_tgtd *t, uint64_t tenure)
{
    pms_guard_pid_tenure(t->guard_pid, tenure);
}

void pms_tgtd_leave(struct pms_tgtd *t)
{
    pms_tgtadm_cancel(t->call);
    pms_proc_forget(t->proc);
    pms_log_pipe_close(t->log);
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

// tgtd tries to load every file of its plugin folder: one that holds the plugin alone. 0 or -errno.
static int plugin_dir_make(const struct pms_tgtd_paths *paths, char dir[PATH_MAX])
{
    char link[PATH_MAX + 16], plugin[PATH_MAX + 16];

    snprintf(plugin, sizeof(plugin), "%s/bs_pms.so", paths->plugin_dir);
    if (snprintf(dir, PATH_MAX, "%s/plugins", paths->run_dir) >= PATH_MAX)
        return -ENAMETOOLONG;
    snprintf(link, sizeof(link), "%s/bs_pms.so", dir);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return -errno;
    // Made anew each time: an earlier pmsd may have lain elsewhere.
    unlink(link);
    return symlink(plugin, link) != 0 && errno != EEXIST ? -errno : 0;
}

// No parent-death signal: when pmsd dies the guard takes the address off first and kills tgtd then. The other
// way round the initiator would see its connection end, come back at once, and hang in a queue that nobody
// serves.
static int spawn(struct pms_tgtd *t, const struct pms_tgtd_paths *paths, const struct pms_tgtd_conf *conf,
                 const char *ipc_base, int output_fd)
{
    char *argv[] = {(char[]){"tgtd"},
                    (char[]){"-f"},
                    (char[]){"-C"},
                    (char[]){"0"},
                    (char[]){"--iscsi"},
                    (char[]){"portal=127.0.0.1:1"},
                    NULL};
    char env[7][PATH_MAX + 32];
    char *envp[] = {env[0], env[1], env[2], env[3], env[4], env[5], env[6], NULL};
    struct pms_proc_conf proc = {.exe = paths->tgtd,
                                 .argv = argv,
                                 .env = envp,
                                 .fds = &conf->listen_fd,
                                 .fds_count = 1,
                                 .output_fd = output_fd,
                                 .own_session = true};
    char id[PMS_ID_TEXT_SIZE];
    char plugin_dir[PATH_MAX];
    int err = plugin_dir_make(paths, plugin_dir);

    if (err)
        return err;
    // The portal in argv is refused by the redirect library, like every address but the inherited listener's:
    // without an argument tgtd would try the wildcard.
    snprintf(env[0], sizeof(env[0]), "PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    snprintf(env[1], sizeof(env[1]), "LD_PRELOAD=%s", paths->redirect);
    snprintf(env[2], sizeof(env[2]), "TGT_IPC_SOCKET=%s", ipc_base);
    snprintf(env[3], sizeof(env[3]), "%s=%s", PMS_PLUG_ENV_DIR, plugin_dir);
    snprintf(env[4], sizeof(env[4]), "%s=%s", PMS_PLUG_ENV_SOCK, conf->plugin_sock);
    snprintf(env[5], sizeof(env[5]), "%s=%s", PMS_PLUG_ENV_ARRAY, pms_id_format(conf->array_id, id));
    snprintf(env[6], sizeof(env[6]), "%s=%d", PMS_PLUG_ENV_LISTEN, LISTEN_FD_IN_CHILD);
    return pms_proc_open(t->loop, &proc, on_proc_exit, t, &t->proc);
}

static struct pms_tgtd *tgtd_new(uv_loop_t *loop, const struct pms_tgtd_conf *conf, pms_tgtd_cb cb,
                                 pms_tgtd_exit_cb on_exit, void *arg)
{
    struct pms_tgtd *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->loop = loop;
    t->cb = cb;
    t->on_exit = on_exit;
    t->arg = arg;
    t->deaf_ms = conf->deaf_ms;
    snprintf(t->name, sizeof(t->name), "%s", conf->name);
    snprintf(t->iqn, sizeof(t->iqn), "%s", conf->iqn);
    t->started_ns = pms_clock_boot_ns();
    return t;
}

// Has the guard mind it and makes the timer.
static int mind(struct pms_tgtd *t, struct pms_guard *guard, const struct pms_tgtd_conf *conf,
                uint64_t tenure)
{
    struct pms_guard_child child = {.pid = pms_proc_pid(t->proc),
                                    .pidfd = pms_proc_pidfd(t->proc),
                                    .listen_fd = conf->listen_fd,
                                    .log_fd = pms_log_pipe_fd(t->log),
                                    .array_id = conf->array_id,
                                    .tenure = tenure};
    int err;

    memcpy(child.ipc_path, t->ipc_path, sizeof(t->ipc_path));
    err = pms_guard_pid_add(guard, &child, &t->guard_pid);
    if (err) {
        pms_proc_kill(t->proc);
        pms_proc_close(t->proc);
        return err;
    }
    uv_timer_init(t->loop, &t->timer);
    t->timer.data = t;
    return 0;
}

static void log_name_make(const struct pms_tgtd_conf *conf, char *out, size_t size)
{
    snprintf(out, size, "tgtd %s", conf->name);
}

int pms_tgtd_start(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_paths *paths,
                   const struct pms_tgtd_conf *conf, pms_tgtd_cb cb, pms_tgtd_exit_cb on_exit, void *arg,
                   struct pms_tgtd **tgtd)
{
    static unsigned serial; // one that would not die, or was left by an earlier pmsd, may hold another path
    struct pms_tgtd *t;
    char ipc_base[PATH_BYTES];
    char log_name[PMS_NAME_MAX + 8];
    int output_fd;
    int n;
    int err;

    n = snprintf(ipc_base, sizeof(ipc_base), "%s/tgtd-%s-%d-%u", paths->run_dir,
                 pms_log_hexid(conf->array_id), (int)getpid(), ++serial);
    if (n < 0 || (size_t)n >= sizeof(ipc_base) - 2)
        return -ENAMETOOLONG;
    if (strlen(conf->name) > PMS_NAME_MAX || strlen(conf->iqn) > PMS_IQN_MAX)
        return -EINVAL;
    t = tgtd_new(loop, conf, cb, on_exit, arg);
    if (!t)
        return -ENOMEM;
    snprintf(t->ipc_path, sizeof(t->ipc_path), "%.*s.0", (int)sizeof(t->ipc_path) - 3, ipc_base);
    log_name_make(conf, log_name, sizeof(log_name));
    err = pms_log_pipe_open(loop, log_name, expected_lines, &t->log, &output_fd);
    if (err)
        goto out;
    err = spawn(t, paths, conf, ipc_base, output_fd);
    close(output_fd);
    if (!err)
        err = mind(t, guard, conf, 0);
    if (err)
        goto out;
    uv_timer_start(&t->timer, on_knock, KNOCK_MS, KNOCK_MS);
    *tgtd = t;
    return 0;
out:
    pms_log_pipe_close(t->log);
    free(t);
    return err;
}

int pms_tgtd_adopt(uv_loop_t *loop, struct pms_guard *guard, const struct pms_tgtd_conf *conf,
                   struct pms_guard_child *child, pms_tgtd_exit_cb on_exit, void *arg, struct pms_tgtd **tgtd)
{
    struct pms_tgtd *t = tgtd_new(loop, conf, NULL, on_exit, arg);
    char log_name[PMS_NAME_MAX + 8];
    int err = -ENOMEM;

    if (!t)
        goto out;
    memcpy(t->ipc_path, child->ipc_path, sizeof(t->ipc_path));
    t->step = SETUP_STEPS;
    log_name_make(conf, log_name, sizeof(log_name));
    err = child->log_fd < 0 ? -EBADF
                            : pms_log_pipe_adopt(loop, log_name, expected_lines, child->log_fd, &t->log);
    child->log_fd = -1;
    if (err)
        goto out;
    err = pms_proc_adopt(loop, child->pid, child->pidfd, on_proc_exit, t, &t->proc);
    child->pidfd = -1;
    if (!err)
        err = mind(t, guard, conf, child->tenure);
    if (err)
        goto out;
    watch(t);
    *tgtd = t;
    return 0;
out:
    if (t)
        pms_log_pipe_close(t->log);
    free(t);
    if (child->pidfd >= 0)
        pidfd_send_signal(child->pidfd, SIGKILL, NULL, 0);
    pms_guard_child_close(child);
    return err;
}

pid_t pms_tgtd_pid(const struct pms_tgtd *t)
{
    return pms_proc_pid(t->proc);
}
