// SPDX-License-Identifier: GPL-2.0-or-later
// The whole way up and down with the real tgtd and the real plugin; this test stands for pmsd, its memory for
// the bricks. In a network namespace that ends with this process. Needs root and the build's bs_pms.so.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>
#include "base/limits.h"
#include "base/util.h"
#include "datapath/io/ring.h"
#include "target/host/array_target.h"
#include "target/host/netlink.h"
#include "tests/tools/lib/initiator.h"

#define ARRAY_BYTES (16u << 20)
#define PORTAL      "10.8.0.50"
#define IQN         "iqn.2026-11.io.pms:0123abcd:t1"
#define URL         "iscsi://" PORTAL "/" IQN "/1"
#define URL6        "iscsi://[fd08::50]:3260/" IQN "/1"

#define TENURE 7

static char run_dir[] = "/tmp/pms-test-XXXXXX"; // both nodes' when there are two
static char guard_path[64];
static struct pms_tgtd_paths paths;
static bool usable;

// ---- A pmsd in small: one array in memory, sessions in a table ----

struct pmsd {
    uv_loop_t loop;
    uv_timer_t tick;
    struct pms_guard *guard;
    struct pms_at *at;
    struct pms_ring *ring;
    uv_poll_t ring_poll;
    bool ring_polled;
    struct pms_session_rec sessions[8];
    unsigned sessions_count;
    unsigned attaches, releases, logins, known_logins, orphans;
    int states[PMS_AT_STOPPING + 1]; // how often each was entered
    int stopped;                     // deactivate callbacks
    int stop_err;
    bool may_serve;
    bool closed;
    // What happens with the ring's commands, for the tests that let a pmsd die.
    enum { DIE_NEVER, DIE_BEFORE_ANSWER, DIE_AFTER_ANSWER } die;
    unsigned die_at, executed;      // commands
    unsigned recovered;             // that an earlier pmsd had taken
    uint64_t last_tag;              // executed last
    unsigned twice;                 // executed, though an answer was posted before: last_tag of the dead one
    uint64_t answered_tag;          // by the dead one
    struct pms_ring_stats attached; // the ring's, as it was handed to us
};

static uint8_t *medium; // shared: a pmsd of these tests may be a child process

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

static void ring_work(struct pmsd *d)
{
    struct pms_ring_cmd cmds[32];
    int n;

    pms_ring_sq_clear(d->ring);
    do {
        while ((n = pms_ring_poll(d->ring, cmds, 32)) > 0) {
            for (int i = 0; i < n; i++) {
                void *data = pms_ring_data(d->ring, cmds[i].arena_off, cmds[i].length);

                d->recovered += cmds[i].recovered;
                d->twice += cmds[i].tag == d->answered_tag;
                d->last_tag = cmds[i].tag;
                if (cmds[i].op == PMS_RING_WRITE)
                    memcpy(medium + cmds[i].offset, data, cmds[i].length);
                else if (cmds[i].op == PMS_RING_READ)
                    memcpy(data, medium + cmds[i].offset, cmds[i].length);
                if (++d->executed == d->die_at && d->die == DIE_BEFORE_ANSWER)
                    raise(SIGKILL);
                assert_int_equal(pms_ring_complete(d->ring, cmds[i].tag, 0, 0, 0, 0), 0);
                if (d->executed == d->die_at && d->die == DIE_AFTER_ANSWER)
                    raise(SIGKILL); // before the bell
            }
            pms_ring_kick(d->ring);
        }
        assert_int_equal(n, 0);
    } while (pms_ring_arm(d->ring));
}

static void on_ring(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    ring_work(h->data);
}

static void ring_attach(void *arg, const struct pms_session_fds *fds)
{
    struct pmsd *d = arg;

    assert_null(d->ring);
    assert_false(d->ring_polled);
    assert_int_equal(pms_ring_attach(fds->memfd, fds->sq_efd, fds->cq_efd, ARRAY_BYTES, &d->ring), 0);
    uv_poll_init(&d->loop, &d->ring_poll, pms_ring_sq_fd(d->ring));
    pms_ring_stats_get(d->ring, &d->attached);
    d->ring_poll.data = d;
    d->ring_polled = true;
    uv_poll_start(&d->ring_poll, UV_READABLE, on_ring);
    ring_work(d);
    d->attaches++;
    pms_at_ring_attached(d->at, 0);
}

static void on_ring_closed(uv_handle_t *h)
{
    struct pmsd *d = h->data;

    d->ring_polled = false;
    pms_ring_detach(d->ring);
    d->ring = NULL;
    pms_at_ring_released(d->at);
}

static void ring_release(void *arg)
{
    struct pmsd *d = arg;

    assert_non_null(d->ring);
    d->releases++;
    uv_close((uv_handle_t *)&d->ring_poll, on_ring_closed);
}

static bool may_serve(void *arg)
{
    return ((struct pmsd *)arg)->may_serve;
}

static unsigned sessions_get(void *arg, struct pms_session_rec *recs, unsigned max)
{
    struct pmsd *d = arg;

    assert_true(d->sessions_count <= max);
    memcpy(recs, d->sessions, d->sessions_count * sizeof(*recs));
    return d->sessions_count;
}

static void login(void *arg, uint64_t login_id, const struct pms_session_rec *rec, uint16_t requested,
                  bool known)
{
    struct pmsd *d = arg;
    unsigned i;

    (void)requested;
    d->logins++;
    d->known_logins += known;
    for (i = 0; i < d->sessions_count; i++)
        if (strcmp(d->sessions[i].initiator, rec->initiator) == 0 &&
            memcmp(d->sessions[i].isid, rec->isid, sizeof(rec->isid)) == 0)
            break;
    assert_true(i < 8);
    d->sessions[i] = *rec;
    d->sessions[i].tsih = (uint16_t)(100 + i);
    if (i == d->sessions_count)
        d->sessions_count++;
    pms_at_login_done(d->at, login_id, 0, (uint16_t)(100 + i));
}

static void closed(void *arg, const struct pms_session_rec *rec, enum pms_session_end how)
{
    struct pmsd *d = arg;

    for (unsigned i = 0; i < d->sessions_count; i++)
        if (d->sessions[i].tsih == rec->tsih && how == PMS_SESSION_LOGOUT)
            d->sessions[i] = d->sessions[--d->sessions_count];
    d->orphans += how == PMS_SESSION_LOSS;
}

static void on_state(void *arg, enum pms_at_state state, int err)
{
    struct pmsd *d = arg;

    (void)err;
    d->states[state]++;
}

static const struct pms_at_cbs cbs = {.ring_attach = ring_attach,
                                      .ring_release = ring_release,
                                      .may_serve = may_serve,
                                      .sessions_get = sessions_get,
                                      .login = login,
                                      .closed = closed,
                                      .state = on_state};

static unsigned deaf_ms;
static bool write_cache;

static void pmsd_open_at(struct pmsd *d, const char *portal)
{
    struct pms_at_conf conf = {.array_id = 0x1122334455667788,
                               .name = "t1",
                               .iqn = IQN,
                               .serial = "0123abcd1122334455667788",
                               .cluster_uuid = {1, 0x23, 0xab, 0xcd},
                               .size_bytes = ARRAY_BYTES,
                               .write_cache = write_cache,
                               .tgtd_deaf_ms = deaf_ms};

    memset(d, 0, sizeof(*d));
    d->may_serve = true;
    uv_loop_init(&d->loop);
    uv_timer_init(&d->loop, &d->tick);
    uv_timer_start(&d->tick, on_tick, 2, 2);
    assert_int_equal(pms_portal_conf_parse(portal, &conf.portal), 0);
    assert_int_equal(pms_guard_open(&d->loop, NULL, guard_path, &d->guard), 0);
    assert_int_equal(pms_at_open(&d->loop, d->guard, &paths, &conf, &cbs, d, &d->at), 0);
}

static void pmsd_open(struct pmsd *d)
{
    pmsd_open_at(d, PORTAL "/24");
}

// Runs the loop until *count reaches target; returns the milliseconds it took, fails after ms.
static unsigned run_until(struct pmsd *d, const int *count, int target, unsigned ms)
{
    uint64_t t0 = pms_clock_boot_ns();

    while (*count < target) {
        if (pms_clock_boot_ns() - t0 > ms * 1000000ull)
            fail_msg("nothing after %u ms", ms);
        uv_run(&d->loop, UV_RUN_ONCE);
    }
    return (unsigned)((pms_clock_boot_ns() - t0) / 1000000);
}

static void run_for(struct pmsd *d, unsigned ms)
{
    uint64_t t0 = pms_clock_boot_ns();

    while (pms_clock_boot_ns() - t0 < ms * 1000000ull)
        uv_run(&d->loop, UV_RUN_ONCE);
}

static void on_stopped(void *arg, int err)
{
    struct pmsd *d = arg;

    d->stopped++;
    d->stop_err = err;
}

static void on_guard_closed(void *arg)
{
    struct pmsd *d = arg;

    d->closed = true;
    uv_close((uv_handle_t *)&d->tick, NULL);
}

static void pmsd_close(struct pmsd *d)
{
    int stopped = d->stopped;

    pms_at_deactivate(d->at, on_stopped, d);
    run_until(d, &d->stopped, stopped + 1, 4000);
    assert_null(d->ring);
    assert_int_equal(d->attaches, d->releases);
    pms_at_close(d->at);
    pms_guard_close(d->guard, on_guard_closed, d);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    assert_true(d->closed);
    assert_int_equal(uv_loop_close(&d->loop), 0);
}

// 0 if there is a guard that keeps something (or one that lives).
static int connect_guard(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int err;

    strcpy(sa.sun_path, guard_path);
    err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 ? 0 : -errno;
    close(fd);
    return err;
}

static bool address_here(void)
{
    struct pms_netlink_addr found = {0};
    struct sockaddr_storage addr;
    struct pms_netlink nl;

    assert_int_equal(pms_addr_parse(PORTAL, 0, &addr), 0);
    assert_int_equal(pms_netlink_init(&nl), 0);
    assert_int_equal(pms_netlink_addr_get(&nl, &addr, &found), 0);
    pms_netlink_deinit(&nl);
    return found.present;
}

// ---- An initiator in its own process: writes and verifies until SIGTERM; exit code 0: all was well ----

static volatile sig_atomic_t client_over;

static void on_sigterm(int sig)
{
    (void)sig;
    client_over = 1;
}

struct client_io {
    struct pms_io io;
    int done;
    int err;
};

static void on_io_done(struct pms_io *io, int error, const char *text)
{
    struct client_io *c = io->arg;

    if (error)
        fprintf(stderr, "client: %s\n", text);
    c->done = 1;
    c->err = error;
}

static int client_io(struct pms_initiator *ini, bool write, uint64_t lba, uint8_t *buf)
{
    struct client_io c = {.io = {.write = write, .lba = lba, .sectors = 128, .buf = buf, .done = on_io_done}};

    c.io.arg = &c;
    pms_initiator_submit(ini, &c.io);
    while (!c.done)
        pms_initiator_turn(ini, 100);
    return c.err;
}

// Exit code 10 + number of reconnects (at most 9) if all was well, 20 more for each unit attention 29h, 40 for
// each 2Ah.
// Writes "r" to ready_fd when it runs well, and at the end the longest time between two answers, in
// milliseconds.
static int client_main(const char *url, int ready_fd)
{
    uint64_t last_ns = 0, gap_ns = 0;
    uint32_t gap_ms;
    static uint8_t out[65536], in[65536];
    struct pms_initiator_opts opts = {.url = url,
                                      .name = "iqn.2026-11.io.pms.test:client",
                                      .isid_seed = 77,
                                      .nop_timeout_ms = 5000,
                                      .open_timeout_ms = 10000};
    struct pms_initiator_stats stats;
    struct pms_initiator *ini;
    unsigned round = 0;

    signal(SIGTERM, on_sigterm);
    if (pms_initiator_open(&ini, &opts) != 0)
        return 1;
    for (; !client_over; round++) {
        memset(out, (int)(round % 251), sizeof(out));
        if (client_io(ini, true, round % 64 * 128, out) || client_io(ini, false, round % 64 * 128, in))
            return 2;
        if (memcmp(out, in, sizeof(out)) != 0)
            return 3;
        if (last_ns != 0 && pms_clock_boot_ns() - last_ns > gap_ns)
            gap_ns = pms_clock_boot_ns() - last_ns;
        last_ns = pms_clock_boot_ns();
        if (round == 10 && write(ready_fd, "r", 1) != 1)
            return 4;
    }
    stats = pms_initiator_stats(ini);
    pms_initiator_close(ini);
    gap_ms = (uint32_t)(gap_ns / 1000000);
    if (write(ready_fd, &gap_ms, sizeof(gap_ms)) != sizeof(gap_ms))
        return 5;
    return (int)(10 + (stats.reconnects < 9 ? stats.reconnects : 9) + 20 * stats.unit_attentions +
                 40 * stats.mode_changes);
}

static pid_t client_start(const char *url, int *ready_fd)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 3);
        close_range(4, ~0u, 0); // pmsd's end of its guard would look alive
        _exit(client_main(url, 3));
    }
    close(fds[1]);
    *ready_fd = fds[0];
    return pid;
}

static void client_await_ready(struct pmsd *d, int fd)
{
    fd_set set;
    struct timeval now = {0};
    uint64_t t0 = pms_clock_boot_ns();
    char c = 0;

    do {
        uv_run(&d->loop, UV_RUN_ONCE);
        FD_ZERO(&set);
        FD_SET(fd, &set);
        now = (struct timeval){0};
        assert_true(pms_clock_boot_ns() - t0 < 10000000000ull);
    } while (select(fd + 1, &set, NULL, NULL, &now) == 0);
    assert_int_equal(read(fd, &c, 1), 1);
}

static int client_stop(struct pmsd *d, pid_t pid, int fd, uint32_t *gap_ms)
{
    int status = 0;

    kill(pid, SIGTERM);
    while (waitpid(pid, &status, WNOHANG) == 0)
        uv_run(&d->loop, UV_RUN_ONCE);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) >= 10);
    assert_int_equal(read(fd, gap_ms, sizeof(*gap_ms)), sizeof(*gap_ms));
    close(fd);
    return WEXITSTATUS(status);
}

// ---- Tests ----

#define NEED_TGTD()                                                                                          \
    do {                                                                                                     \
        if (!usable)                                                                                         \
            skip();                                                                                          \
    } while (0)

static void test_target_when_activated_then_serves_and_goes_down_again(void **state)
{
    struct pmsd d;
    unsigned ms;
    pid_t client, tgtd;
    uint32_t gap_ms;
    int ready;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    for (int round = 1; round <= 2; round++) {
        assert_false(address_here());
        pms_at_activate(d.at, TENURE, NULL);
        pms_at_activate(d.at, TENURE, NULL);
        ms = run_until(&d, &d.states[PMS_AT_SERVING], round, 5000);
        print_message("serving after %u ms\n", ms);
        assert_true(address_here());
        tgtd = pms_at_tgtd_pid(d.at);
        assert_true(tgtd > 0);
        client = client_start(URL, &ready);
        client_await_ready(&d, ready);
        assert_int_equal(client_stop(&d, client, ready, &gap_ms) % 20, 10);
        for (int i = 0; i < 200 && d.sessions_count > 0; i++)
            run_for(&d, 10);
        assert_int_equal(d.sessions_count, 0); // it logged out
        pms_at_deactivate(d.at, on_stopped, &d);
        pms_at_deactivate(d.at, on_stopped, &d);
        ms = run_until(&d, &d.stopped, 2 * round, PMS_AT_STOP_MS_MAX);
        print_message("down after %u ms\n", ms);
        assert_int_equal(d.stop_err, 0);
        assert_false(address_here());
        assert_int_equal(kill(tgtd, 0), -1);
    }
    assert_int_equal(pms_at_restarts(d.at), 1);
    pmsd_close(&d);
}

static void test_target_when_tgtd_is_killed_then_initiator_sees_no_error(void **state)
{
    struct pmsd d;
    pid_t client;
    unsigned logins;
    uint32_t gap_ms;
    int ready;
    int code;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    client = client_start(URL, &ready);
    client_await_ready(&d, ready);
    assert_int_equal(d.sessions_count, 1);
    logins = d.logins;

    kill(pms_at_tgtd_pid(d.at), SIGKILL);
    print_message("serving again after %u ms\n", run_until(&d, &d.states[PMS_AT_SERVING], 2, 5000));
    assert_int_equal(d.states[PMS_AT_RESTARTING], 1);
    assert_true(address_here());
    assert_int_equal(d.attaches, 2);
    assert_int_equal(d.releases, 1);
    run_for(&d, 1000);
    code = client_stop(&d, client, ready, &gap_ms);
    print_message("longest gap %u ms\n", gap_ms);
    assert_true(gap_ms < 1000);
    // One reconnection, to the same session (no unit attention), known to tgtd by import.
    assert_int_equal(code, 11);
    assert_int_equal(d.logins, logins + 1);
    assert_int_equal(d.known_logins, 1);
    pmsd_close(&d);
}

static void test_target_when_tgtd_is_wedged_then_deactivation_is_bounded(void **state)
{
    struct pmsd d;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    kill(pms_at_tgtd_pid(d.at), SIGSTOP);
    pms_at_deactivate(d.at, on_stopped, &d);
    run_until(&d, &d.stopped, 1, PMS_AT_STOP_MS_MAX);
    assert_int_equal(d.stop_err, 0);
    assert_false(address_here());
    // The order to go up again may come before the way down ends.
    pms_at_activate(d.at, TENURE, NULL);
    pms_at_deactivate(d.at, on_stopped, &d);
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 2, 5000);
    assert_int_equal(d.stopped, 2);
    pmsd_close(&d);
}

static void test_target_when_wedged_and_deactivated_again_and_again_then_each_ends_in_time(void **state)
{
    struct pmsd d;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    for (unsigned round = 1; round <= 2; round++) {
        pms_at_activate(d.at, TENURE, NULL);
        run_until(&d, &d.states[PMS_AT_SERVING], round, 5000);
        kill(pms_at_tgtd_pid(d.at), SIGSTOP);
        pms_at_deactivate(d.at, on_stopped, &d);
        pms_at_deactivate(d.at, on_stopped, &d); // while the first is under way
        run_until(&d, &d.stopped, 3 * round - 1, PMS_AT_STOP_MS_MAX);
        pms_at_deactivate(d.at, on_stopped, &d); // when it is down already
        run_until(&d, &d.stopped, 3 * round, PMS_AT_STOP_MS_MAX);
        assert_int_equal(d.stop_err, 0);
        assert_false(address_here());
    }
    pmsd_close(&d);
}

static void test_target_when_portal_is_ipv6_then_serves(void **state)
{
    struct pmsd d;
    uint32_t gap_ms;
    pid_t client;
    int ready;

    (void)state;
    NEED_TGTD();
    pmsd_open_at(&d, "fd08::50/64");
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    client = client_start(URL6, &ready);
    client_await_ready(&d, ready);
    kill(pms_at_tgtd_pid(d.at), SIGKILL);
    run_until(&d, &d.states[PMS_AT_SERVING], 2, 5000);
    run_for(&d, 500);
    assert_int_equal(client_stop(&d, client, ready, &gap_ms), 11);
    assert_true(gap_ms < 1000);
    pmsd_close(&d);
}

// Connects again and again until SIGTERM; exit code: 0 if it connected often and was never refused.
static int connector_main(void)
{
    struct sockaddr_storage addr;
    unsigned connects = 0, refused = 0;

    signal(SIGTERM, on_sigterm);
    pms_addr_parse(PORTAL, PMS_PORT_ISCSI, &addr);
    while (!client_over) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (connect(fd, (struct sockaddr *)&addr, pms_addr_len(&addr)) == 0)
            connects++;
        else if (errno == ECONNREFUSED)
            refused++;
        close(fd);
        usleep(500);
    }
    return refused > 0 ? 1 : connects < 100 ? 2 : 0;
}

static void test_target_when_tgtd_dies_often_then_nobody_is_refused(void **state)
{
    struct pmsd d;
    pid_t connector;
    int status;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    connector = fork();
    if (connector == 0)
        _exit(connector_main());
    for (int i = 1; i <= 5; i++) {
        run_for(&d, 100);
        kill(pms_at_tgtd_pid(d.at), SIGKILL);
        run_until(&d, &d.states[PMS_AT_SERVING], i + 1, 5000);
    }
    assert_int_equal(pms_at_restarts(d.at), 5);
    kill(connector, SIGTERM);
    waitpid(connector, &status, 0);
    assert_int_equal(status, 0);
    pmsd_close(&d);
}

static void test_target_when_tgtd_is_deaf_then_replaced(void **state)
{
    struct pmsd d;
    pid_t deaf;
    unsigned ms;

    (void)state;
    NEED_TGTD();
    deaf_ms = 1500;
    pmsd_open(&d);
    deaf_ms = 0;
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    run_for(&d, 2000); // pings are answered
    assert_int_equal(pms_at_restarts(d.at), 0);
    deaf = pms_at_tgtd_pid(d.at);
    kill(deaf, SIGSTOP);
    ms = run_until(&d, &d.states[PMS_AT_SERVING], 2, 1500 + 3000);
    print_message("noticed and replaced after %u ms\n", ms);
    assert_true(ms > 1000);
    assert_true(pms_at_tgtd_pid(d.at) != deaf);
    assert_int_equal(kill(deaf, 0), -1);
    pmsd_close(&d);
}

// ---- A tgtd that is ready, and one that outlives its pmsd ----

static void test_target_when_on_standby_then_it_serves_without_a_start(void **state)
{
    struct pmsd d;
    pid_t client, tgtd;
    uint32_t gap_ms;
    unsigned ms;
    int ready;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    for (int round = 1; round <= 2; round++) {
        pms_at_standby(d.at);
        run_until(&d, &d.states[PMS_AT_STANDBY], 2 * round - 1, 5000);
        tgtd = pms_at_tgtd_pid(d.at);
        kill(tgtd, SIGKILL);
        run_until(&d, &d.states[PMS_AT_STANDBY], 2 * round, 5000);
        assert_true(pms_at_tgtd_pid(d.at) != tgtd);
        assert_false(address_here());
        tgtd = pms_at_tgtd_pid(d.at);
        pms_at_activate(d.at, TENURE, NULL);
        ms = run_until(&d, &d.states[PMS_AT_SERVING], round, 5000);
        print_message("serving after %u ms\n", ms);
        assert_int_equal(pms_at_tgtd_pid(d.at), tgtd);
        client = client_start(URL, &ready);
        client_await_ready(&d, ready);
        assert_int_equal(client_stop(&d, client, ready, &gap_ms), 10);
        pms_at_deactivate(d.at, on_stopped, &d);
        run_until(&d, &d.stopped, round, PMS_AT_STOP_MS_MAX);
        assert_int_equal(pms_at_state_get(d.at), PMS_AT_DOWN);
    }
    pms_at_standby(d.at); // and down again from there
    run_until(&d, &d.states[PMS_AT_STANDBY], 5, 5000);
    pmsd_close(&d);
}

// A pmsd that serves, in a process of its own, and dies with command number die_at.
static pid_t pmsd_mortal(struct pmsd *d, int die, unsigned die_at)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nothing behind
    pmsd_open(d);
    d->die = die;
    d->die_at = die_at;
    pms_at_activate(d->at, TENURE, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    _exit(1);
}

// Goes on with what the dead one left.
static void pmsd_succeed(struct pmsd *d, const struct pmsd *dead)
{
    struct pms_guard_child *left;
    unsigned n;

    assert_int_equal(pms_guard_inherit(guard_path, &left, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(left[0].array_id, 0x1122334455667788);
    assert_int_equal(left[0].tenure, TENURE);
    assert_false(address_here());
    pmsd_open(d);
    memcpy(d->sessions, dead->sessions, sizeof(d->sessions));
    d->sessions_count = dead->sessions_count;
    if (dead->die == DIE_AFTER_ANSWER)
        d->answered_tag = dead->last_tag;
    pms_at_activate(d->at, TENURE, &left[0]);
    free(left);
    print_message("serving after %u ms\n", run_until(d, &d->states[PMS_AT_SERVING], 1, 5000));
}

// The initiator's connection lives through it, each command is answered once, and none whose answer was posted is
// executed again.
static void test_target_when_pmsd_dies_then_the_next_goes_on_with_its_tgtd(void **state)
{
    struct pmsd d, *dead = mmap(NULL, sizeof(d), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pmsd, client;
    uint32_t gap_ms;
    int ready, status;

    (void)state;
    NEED_TGTD();
    for (int die = DIE_BEFORE_ANSWER; die <= DIE_AFTER_ANSWER; die++) {
        pmsd = pmsd_mortal(dead, die, 100);
        client = client_start(URL, &ready);
        waitpid(pmsd, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        pmsd_succeed(&d, dead);
        assert_int_equal(d.recovered, die == DIE_BEFORE_ANSWER ? 1 : 0);
        // Its one command was still unanswered, posted or not: it sent no other.
        assert_true(d.attached.arena_used > 0);
        assert_int_equal(d.attached.held, 0);
        client_await_ready(&d, ready);
        run_for(&d, 500);
        assert_true(d.executed > 10);
        assert_int_equal(d.twice, 0);
        assert_int_equal(d.logins, 0);
        assert_int_equal(client_stop(&d, client, ready, &gap_ms), 10); // no reconnect, no unit attention
        print_message("longest gap %u ms\n", gap_ms);
        pmsd_close(&d);
    }
    munmap(dead, sizeof(d));
}

// Nobody goes on: whoever is left over is ended, by itself or by the guard.
static void test_target_when_pmsd_stays_away_then_its_tgtd_ends(void **state)
{
    struct pmsd *dead = mmap(NULL, sizeof(*dead), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pms_guard_child *left;
    uint64_t t0;
    unsigned n;
    pid_t pmsd, client;
    int ready;

    (void)state;
    NEED_TGTD();
    pmsd = pmsd_mortal(dead, DIE_BEFORE_ANSWER, 50);
    client = client_start(URL, &ready);
    waitpid(pmsd, NULL, 0);
    t0 = pms_clock_boot_ns();
    usleep(200000);
    assert_false(address_here());
    assert_int_equal(waitpid(client, NULL, WNOHANG), 0); // neither an answer nor an error
    // Whether it has ended the guard knows: it goes when it has nothing to keep.
    while (connect_guard() == 0 && pms_clock_boot_ns() - t0 < 10000000000ull)
        usleep(100000);
    assert_true(pms_clock_boot_ns() - t0 < (PMS_GUARD_KEEP_MS + 1500) * 1000000ull);
    assert_true(pms_clock_boot_ns() - t0 > 4000000000ull);
    assert_int_equal(pms_guard_inherit(guard_path, &left, &n), 0);
    assert_int_equal(n, 0);
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    close(ready);
    munmap(dead, sizeof(*dead));
}

static void test_target_when_left_then_the_next_goes_on_with_it(void **state)
{
    struct pmsd first, second;
    uint32_t gap_ms;
    pid_t client;
    int ready;

    (void)state;
    NEED_TGTD();
    for (int round = 0; round < 2; round++) {
        pmsd_open(&first);
        pms_at_activate(first.at, TENURE, NULL);
        run_until(&first, &first.states[PMS_AT_SERVING], 1, 5000);
        client = client_start(URL, &ready);
        client_await_ready(&first, ready);
        pms_at_leave(first.at, on_stopped, &first);
        run_until(&first, &first.stopped, 1, PMS_AT_STOP_MS_MAX);
        assert_int_equal(first.stop_err, 0);
        assert_int_equal(pms_at_state_get(first.at), PMS_AT_DOWN);
        pmsd_close(&first);
        write_cache =
            round == 1; // switched meanwhile: the initiator is told by a unit attention, on its connection
        pmsd_succeed(&second, &first);
        write_cache = false;
        run_for(&second, 500);
        assert_int_equal(client_stop(&second, client, ready, &gap_ms), round == 0 ? 10 : 50);
        print_message("longest gap %u ms\n", gap_ms);
        assert_int_equal(second.logins, 0);
        pmsd_close(&second);
    }
}

// tgtd with a plugin of another version, as after an upgrade of pmsd: it is started anew, by and by with our own.
static void test_target_when_plugin_is_of_another_version_then_replaced_by_our_own(void **state)
{
    const char *own = paths.plugin_dir;
    struct pmsd d;
    char dir[600];
    pid_t client;
    uint32_t gap_ms;
    int ready;

    (void)state;
    NEED_TGTD();
    snprintf(dir, sizeof(dir), "%s/next2", own);
    if (access(dir, R_OK) != 0)
        skip();
    pmsd_open(&d);
    paths.plugin_dir = dir;
    pms_at_activate(d.at, TENURE, NULL);
    for (int i = 0; i < 500 && pms_at_restarts(d.at) < 2; i++)
        run_for(&d, 10);
    paths.plugin_dir = own;
    assert_true(pms_at_restarts(d.at) >= 2);
    assert_int_equal(d.states[PMS_AT_SERVING], 0);
    assert_int_equal(d.attaches, 0); // nobody touched its ring
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 10000);
    client = client_start(URL, &ready);
    client_await_ready(&d, ready);
    assert_int_equal(client_stop(&d, client, ready, &gap_ms) % 20, 10);
    pmsd_close(&d);
}

static void test_target_when_deactivated_at_any_moment_then_all_is_gone(void **state)
{
    struct pmsd d;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    for (int i = 0; i < 25; i++) {
        int stopped = d.stopped;

        pms_at_activate(d.at, TENURE, NULL);
        run_for(&d, (unsigned)i * 2);
        pms_at_deactivate(d.at, on_stopped, &d);
        run_until(&d, &d.stopped, stopped + 1, PMS_AT_STOP_MS_MAX);
        assert_int_equal(d.stop_err, 0);
        assert_false(address_here());
        assert_null(d.ring);
        assert_int_equal(pms_at_state_get(d.at), PMS_AT_DOWN);
    }
    pmsd_close(&d);
}

static void test_target_when_it_may_not_serve_then_address_waits(void **state)
{
    struct pmsd d;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    d.may_serve = false;
    pms_at_activate(d.at, TENURE, NULL);
    run_for(&d, 500);
    assert_int_equal(pms_at_state_get(d.at), PMS_AT_STARTING);
    assert_int_equal(d.attaches, 1);
    assert_false(address_here());
    d.may_serve = true;
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 1000);
    assert_true(address_here());
    pmsd_close(&d);
}

static void test_target_when_held_then_only_the_address_goes(void **state)
{
    struct pmsd d;
    pid_t tgtd;

    (void)state;
    NEED_TGTD();
    pmsd_open(&d);
    pms_at_activate(d.at, TENURE, NULL);
    run_until(&d, &d.states[PMS_AT_SERVING], 1, 5000);
    tgtd = pms_at_tgtd_pid(d.at);
    for (int i = 1; i <= 5; i++) {
        pms_at_address_hold(d.at, true);
        if (i % 2)
            run_for(&d, 100);
        assert_int_equal(pms_at_state_get(d.at), PMS_AT_HELD);
        if (i % 2)
            assert_false(address_here());
        pms_at_address_hold(d.at, false);
        run_until(&d, &d.states[PMS_AT_SERVING], i + 1, 1000);
        assert_true(address_here());
    }
    assert_int_equal(pms_at_tgtd_pid(d.at), tgtd);
    // tgtd dies while held: it comes back, the address does not.
    pms_at_address_hold(d.at, true);
    kill(tgtd, SIGKILL);
    run_for(&d, 500);
    assert_false(address_here());
    assert_int_equal(d.attaches, 2);
    pms_at_address_hold(d.at, false);
    run_until(&d, &d.states[PMS_AT_SERVING], 7, 1000);
    // Down from held, at both moments of it.
    for (int i = 0; i < 2; i++) {
        pms_at_address_hold(d.at, true);
        run_for(&d, i ? 0 : 50);
        pms_at_deactivate(d.at, on_stopped, &d);
        run_until(&d, &d.stopped, i + 1, PMS_AT_STOP_MS_MAX);
        assert_int_equal(d.stop_err, 0);
        pms_at_activate(d.at, TENURE, NULL);
        run_until(&d, &d.states[PMS_AT_SERVING], 8 + i, 5000);
    }
    pmsd_close(&d);
}

// ---- Two nodes and a client, each in a namespace of its own ----

enum { CLIENT, NODE_A, NODE_B, SPACES };

static void enter(const int *spaces, int space)
{
    assert_int_equal(setns(spaces[space], CLONE_NEWNET), 0);
}

static void run(const char *fmt, int a, int b, int c)
{
    char cmd[256];

    snprintf(cmd, sizeof(cmd), fmt, a, b, c);
    assert_int_equal(system(cmd), 0);
}

static void spaces_make(int *spaces)
{
    for (int i = 0; i < SPACES; i++) {
        assert_int_equal(unshare(CLONE_NEWNET), 0);
        spaces[i] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        run("ip link set lo up", 0, 0, 0);
    }
    enter(spaces, CLIENT);
    run("ip link add br0 type bridge && ip link set br0 up && ip addr add 10.8.0.100/24 dev br0", 0, 0, 0);
    for (int i = NODE_A; i <= NODE_B; i++) {
        run("ip link add port%d type veth peer name eth0 netns /proc/%d/fd/%d", i, (int)getpid(), spaces[i]);
        run("ip link set port%d master br0 && ip link set port%d up", i, i, 0);
        enter(spaces, i);
        run("ip link set eth0 up && ip addr add 10.8.0.%d/24 dev eth0", i, 0, 0);
        enter(spaces, CLIENT);
    }
}

// Node A loses its power under load. Node B, which knows the sessions, goes up: the initiator must find its
// session there, without an error or a unit attention, and long before its own timers would make it look.
static void test_target_when_node_is_lost_then_session_goes_on_elsewhere(void **state)
{
    int spaces[SPACES], home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    struct pmsd a, b;
    uint32_t gap_ms;
    pid_t client;
    int ready;

    (void)state;
    NEED_TGTD();
    spaces_make(spaces);
    enter(spaces, NODE_A);
    pmsd_open(&a);
    pms_at_activate(a.at, TENURE, NULL);
    run_until(&a, &a.states[PMS_AT_SERVING], 1, 5000);
    enter(spaces, CLIENT);
    client = client_start(URL, &ready);
    client_await_ready(&a, ready);
    assert_int_equal(a.sessions_count, 1);

    run("ip link set port%d down", NODE_A, 0, 0);
    kill(pms_at_tgtd_pid(a.at), SIGKILL);
    enter(spaces, NODE_B);
    pmsd_open(&b);
    memcpy(b.sessions, a.sessions, sizeof(b.sessions));
    b.sessions_count = a.sessions_count;
    pms_at_activate(b.at, TENURE, NULL);
    run_until(&b, &b.states[PMS_AT_SERVING], 1, 5000);
    run_for(&b, 1500);
    assert_int_equal(client_stop(&b, client, ready, &gap_ms), 11);
    print_message("longest gap %u ms\n", gap_ms);
    assert_true(gap_ms < 1000);
    assert_int_equal(b.known_logins, 1);
    pmsd_close(&b);
    enter(spaces, NODE_A);
    pmsd_close(&a);
    assert_int_equal(setns(home, CLONE_NEWNET), 0);
    close(home);
    for (int i = 0; i < SPACES; i++)
        close(spaces[i]);
}

static int setup(void **state)
{
    static char tgtd[512], redirect[512], dir[512];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    struct stat st;

    (void)state;
    dir[n > 0 ? n : 0] = 0;
    // build/tests/unit/x, or build/VARIANT/tests/unit/x: sanitized builds have no plugin of their own.
    for (int up = 0; up < 4; up++) {
        char *slash = strrchr(dir, '/');

        if (!slash)
            return 0;
        *slash = 0;
        snprintf(redirect, sizeof(redirect), "%.480s/bs_pms.so", dir);
        if (stat(redirect, &st) == 0)
            break;
    }
    snprintf(redirect, sizeof(redirect), "%.480s/pms_redirect.so", dir);
    snprintf(tgtd, sizeof(tgtd), "%.480s/tgtd", dir);
    if (geteuid() != 0 || stat(tgtd, &st) != 0 || stat(redirect, &st) != 0)
        return 0;
    if (!mkdtemp(run_dir))
        return -1;
    snprintf(guard_path, sizeof(guard_path), "%s/guard.sock", run_dir);
    medium = mmap(NULL, ARRAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (medium == MAP_FAILED || unshare(CLONE_NEWNET) != 0)
        return -1;
    if (system("ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip "
               "link set eth1 up && "
               "ip addr add 10.8.0.1/24 dev eth0 && ip addr add fd08::1/64 dev eth0 nodad") != 0)
        return -1;
    paths =
        (struct pms_tgtd_paths){.tgtd = tgtd, .plugin_dir = dir, .redirect = redirect, .run_dir = run_dir};
    usable = true;
    return 0;
}

static int teardown(void **state)
{
    char cmd[64];

    (void)state;
    if (!usable)
        return 0;
    snprintf(cmd, sizeof(cmd), "rm -rf %s", run_dir);
    return system(cmd);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target_when_activated_then_serves_and_goes_down_again),
        cmocka_unit_test(test_target_when_tgtd_is_killed_then_initiator_sees_no_error),
        cmocka_unit_test(test_target_when_tgtd_is_wedged_then_deactivation_is_bounded),
        cmocka_unit_test(test_target_when_wedged_and_deactivated_again_and_again_then_each_ends_in_time),
        cmocka_unit_test(test_target_when_portal_is_ipv6_then_serves),
        cmocka_unit_test(test_target_when_tgtd_dies_often_then_nobody_is_refused),
        cmocka_unit_test(test_target_when_tgtd_is_deaf_then_replaced),
        cmocka_unit_test(test_target_when_on_standby_then_it_serves_without_a_start),
        cmocka_unit_test(test_target_when_pmsd_dies_then_the_next_goes_on_with_its_tgtd),
        cmocka_unit_test(test_target_when_pmsd_stays_away_then_its_tgtd_ends),
        cmocka_unit_test(test_target_when_left_then_the_next_goes_on_with_it),
        cmocka_unit_test(test_target_when_plugin_is_of_another_version_then_replaced_by_our_own),
        cmocka_unit_test(test_target_when_deactivated_at_any_moment_then_all_is_gone),
        cmocka_unit_test(test_target_when_it_may_not_serve_then_address_waits),
        cmocka_unit_test(test_target_when_held_then_only_the_address_goes),
        cmocka_unit_test(test_target_when_node_is_lost_then_session_goes_on_elsewhere),
    };

    if (argc > 1 && strcmp(argv[1], PMS_GUARD_ARG) == 0)
        return pms_guard_main(argc, argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
