// SPDX-License-Identifier: GPL-2.0-or-later
// The portal with its guard, announcements and tickles, on real interfaces: two nodes and a client, each a
// network namespace that ends with this process. Needs root; skipped without.
#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>
#include "base/limits.h"
#include "base/util.h"
#include "target/host/netlink.h"
#include "target/host/portal.h"
#include "target/host/proc.h"
#include "target/host/tickle.h"

enum { CLIENT, NODE_A, NODE_B, SPACES };

static int spaces[SPACES];
static char run_dir[] = "/tmp/pms-test-XXXXXX", guard_path[64];

static void enter(int space)
{
    assert_int_equal(setns(spaces[space], CLONE_NEWNET), 0);
}

__attribute__((format(printf, 1, 2))) static void run(const char *fmt, ...)
{
    char cmd[512];
    va_list ap;
    int rc;

    va_start(ap, fmt);
    vsnprintf(cmd, sizeof(cmd), fmt, ap);
    va_end(ap);
    rc = system(cmd);
    if (rc != 0)
        fail_msg("%s: status %d", cmd, rc);
}

// The client's namespace holds a bridge with its own address; a cable leads to each node.
static int setup_spaces(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return 0;
    if (!mkdtemp(run_dir))
        return -1;
    snprintf(guard_path, sizeof(guard_path), "%s/guard.sock", run_dir);
    for (int i = 0; i < SPACES; i++) {
        if (unshare(CLONE_NEWNET) != 0)
            return -1;
        spaces[i] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        run("ip link set lo up");
    }
    enter(CLIENT);
    run("ip link add br0 type bridge && ip link set br0 up");
    run("ip addr add 10.9.0.100/24 dev br0 && ip addr add fd09::100/64 dev br0 nodad");
    for (int i = NODE_A; i <= NODE_B; i++) {
        run("ip link add port%d type veth peer name eth0 netns /proc/%d/fd/%d", i, (int)getpid(), spaces[i]);
        run("ip link set port%d master br0 && ip link set port%d up", i, i);
        enter(i);
        run("ip link set eth0 up && ip addr add 10.9.0.%d/24 dev eth0", i);
        run("ip addr add fd09::%d/64 dev eth0 nodad", i);
        enter(CLIENT);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(guard_path);
    rmdir(run_dir);
    return 0;
}

#define NEED_ROOT()                                                                                          \
    do {                                                                                                     \
        if (geteuid() != 0)                                                                                  \
            skip();                                                                                          \
    } while (0)

// ---- One node: a loop with guard and portal ----

struct node {
    uv_loop_t loop;
    uv_timer_t tick; // so that the loop looks at its conditions
    struct pms_guard *guard;
    struct pms_portal *portal;
    int space;
    int answers;
    int err;
    int lost;
    bool closed;
};

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

static void on_answer(void *arg, int err)
{
    struct node *n = arg;

    n->answers++;
    n->err = err;
}

static void on_lost(void *arg, int err)
{
    struct node *n = arg;

    (void)err;
    n->lost++;
}

static struct pms_portal_conf conf_of(const char *text)
{
    struct pms_portal_conf conf;

    assert_int_equal(pms_portal_conf_parse(text, &conf), 0);
    return conf;
}

static void node_start(struct node *n, int space, const char *portal)
{
    struct pms_portal_conf conf = conf_of(portal);

    memset(n, 0, sizeof(*n));
    n->space = space;
    enter(space);
    uv_loop_init(&n->loop);
    uv_timer_init(&n->loop, &n->tick);
    uv_timer_start(&n->tick, on_tick, 5, 5);
    assert_int_equal(pms_guard_open(&n->loop, NULL, guard_path, &n->guard), 0);
    assert_int_equal(pms_portal_open(&n->loop, n->guard, &conf, -1, on_lost, n, &n->portal), 0);
}

// Runs the loop until *count reaches target, for at most ms.
static void node_run_until(struct node *n, const int *count, int target, unsigned ms)
{
    uint64_t end = pms_clock_boot_ns() + ms * 1000000ull;

    enter(n->space);
    while ((!count || *count < target) && pms_clock_boot_ns() < end)
        uv_run(&n->loop, UV_RUN_ONCE);
    if (count)
        assert_true(*count >= target);
}

static void node_up(struct node *n, const struct sockaddr_storage *peers, unsigned count)
{
    int answers = n->answers;

    enter(n->space);
    assert_int_equal(pms_portal_up(n->portal, peers, count, on_answer, n), 0);
    node_run_until(n, &n->answers, answers + 1, 2000);
    assert_int_equal(n->err, 0);
}

static void node_down(struct node *n)
{
    int answers = n->answers;

    pms_portal_down(n->portal, on_answer, n);
    node_run_until(n, &n->answers, answers + 1, 2000);
    assert_int_equal(n->err, 0);
}

static void on_guard_closed(void *arg)
{
    struct node *n = arg;

    n->closed = true;
    uv_close((uv_handle_t *)&n->tick, NULL);
}

static void node_portal_close(struct node *n)
{
    int answers = n->answers;

    pms_portal_close(n->portal, on_answer, n);
    node_run_until(n, &n->answers, answers + 1, 2000);
    n->portal = NULL;
}

static void node_stop(struct node *n)
{
    enter(n->space);
    if (n->portal)
        node_portal_close(n);
    pms_guard_close(n->guard, on_guard_closed, n);
    uv_run(&n->loop, UV_RUN_DEFAULT);
    assert_true(n->closed);
    assert_int_equal(uv_loop_close(&n->loop), 0);
}

static struct pms_netlink_addr addr_look(int space, const char *text)
{
    struct pms_netlink_addr found = {0};
    struct sockaddr_storage addr;
    struct pms_netlink nl;

    enter(space);
    assert_int_equal(pms_addr_parse(text, 0, &addr), 0);
    assert_int_equal(pms_netlink_init(&nl), 0);
    assert_int_equal(pms_netlink_addr_get(&nl, &addr, &found), 0);
    pms_netlink_deinit(&nl);
    return found;
}

// ---- Tests ----

static void test_portal_conf_when_parsed_then_checked(void **state)
{
    static const char *const bad[] = {"10.0.0.1", "10.0.0.1/",    "10.0.0.1/33", "10.0.0.1/0",  "/24",
                                      "x/24",     "10.0.0.1/24x", "10.0.0.1/-1", "fd00::1/129", ""};
    struct pms_portal_conf conf = conf_of("10.0.0.1/24");
    char text[PMS_ADDR_TEXT_SIZE];

    (void)state;
    assert_string_equal(pms_addr_format(&conf.addr, text), "10.0.0.1:3260");
    assert_int_equal(conf.prefix_len, 24);
    conf = conf_of("[fd00::1]:99/64");
    assert_string_equal(pms_addr_format(&conf.addr, text), "[fd00::1]:99");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(pms_portal_conf_parse(bad[i], &conf), -EINVAL);
}

static void test_tickle_when_encoded_then_checksums_hold(void **state)
{
    static const char *const pairs[][2] = {{"10.9.0.50:3260", "10.9.0.100:40000"},
                                           {"[fd09::50]:3260", "[fd09::100]:40001"}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_storage local, peer;
        uint8_t pkt[PMS_TICKLE_BYTES_MAX];
        uint32_t sum = 6 + 20;
        int ip_len = i == 0 ? 20 : 40;
        int addrs = i == 0 ? 12 : 8;

        assert_int_equal(pms_addr_parse(pairs[i][0], 0, &local), 0);
        assert_int_equal(pms_addr_parse(pairs[i][1], 0, &peer), 0);
        assert_int_equal(pms_tickle_encode(&local, &peer, pkt), ip_len + 20);
        // Pseudo header (both addresses, protocol, length) and TCP header sum up to all ones.
        for (int k = addrs; k < ip_len + 20; k += 2)
            sum += (uint32_t)pkt[k] << 8 | pkt[k + 1];
        while (sum >> 16)
            sum = (sum & 0xffff) + (sum >> 16);
        assert_int_equal(sum, 0xffff);
        assert_int_equal(pkt[ip_len] << 8 | pkt[ip_len + 1], 3260);
        assert_int_equal(pkt[ip_len + 13], 0x10);
        peer.ss_family = i == 0 ? AF_INET6 : AF_INET;
        assert_int_equal(pms_tickle_encode(&local, &peer, pkt), -EAFNOSUPPORT);
    }
}

static void test_portal_when_up_then_address_lives_and_is_renewed(void **state)
{
    static const char *const portals[] = {"10.9.0.50/24", "fd09::50/64"};

    (void)state;
    NEED_ROOT();
    for (int i = 0; i < 2; i++) {
        char addr[64];
        struct pms_netlink_addr found;
        struct node n;

        snprintf(addr, sizeof(addr), "%.*s", (int)strcspn(portals[i], "/"), portals[i]);
        node_start(&n, NODE_A, portals[i]);
        assert_false(addr_look(NODE_A, addr).present);
        node_up(&n, NULL, 0);
        found = addr_look(NODE_A, addr);
        assert_true(found.present);
        assert_true(found.valid_s >= 1 && found.valid_s <= PMS_ADDR_LIFETIME_S);
        assert_int_equal(found.prefix_len, i == 0 ? 24 : 64);
        node_run_until(&n, NULL, 0, PMS_ADDR_LIFETIME_S * 1000 + 1500);
        assert_true(addr_look(NODE_A, addr).present);
        assert_int_equal(n.lost, 0);
        node_down(&n);
        assert_false(addr_look(NODE_A, addr).present);
        node_down(&n); // again: no error
        node_up(&n, NULL, 0);
        node_up(&n, NULL, 0);
        node_stop(&n);
        assert_false(addr_look(NODE_A, addr).present);
    }
}

static void test_portal_when_no_subnet_fits_then_refused(void **state)
{
    struct node n;

    (void)state;
    NEED_ROOT();
    node_start(&n, NODE_A, "192.168.77.5/24");
    assert_int_equal(pms_portal_up(n.portal, NULL, 0, on_answer, &n), 0);
    node_run_until(&n, &n.answers, 1, 2000);
    assert_int_equal(n.err, -ENODEV);
    node_stop(&n);
}

static void test_portal_when_loop_stops_then_kernel_drops_address(void **state)
{
    struct node n;

    (void)state;
    NEED_ROOT();
    node_start(&n, NODE_A, "10.9.0.50/24");
    node_up(&n, NULL, 0);
    usleep(PMS_ADDR_LIFETIME_S * 1000000 + 1500000); // as if pmsd had been stopped
    assert_false(addr_look(NODE_A, "10.9.0.50").present);
    // It goes on: the address must not come back by itself, and the portal is told.
    node_run_until(&n, &n.lost, 1, 2500);
    assert_false(addr_look(NODE_A, "10.9.0.50").present);
    node_up(&n, NULL, 0);
    assert_true(addr_look(NODE_A, "10.9.0.50").present);
    node_stop(&n);
}

static void test_portal_when_guard_dies_then_another_keeps_the_address(void **state)
{
    struct node n;
    pid_t first;

    (void)state;
    NEED_ROOT();
    node_start(&n, NODE_A, "10.9.0.50/24");
    node_up(&n, NULL, 0);
    first = pms_guard_pid(n.guard);
    kill(first, SIGKILL);
    node_run_until(&n, NULL, 0, PMS_ADDR_LIFETIME_S * 1000 + 1500);
    assert_true(pms_guard_pid(n.guard) != 0 && pms_guard_pid(n.guard) != first);
    assert_true(addr_look(NODE_A, "10.9.0.50").present);
    assert_int_equal(n.lost, 0);
    node_stop(&n);
    assert_false(addr_look(NODE_A, "10.9.0.50").present);
}

static void on_sleeper_exit(void *arg, int status)
{
    (void)arg;
    (void)status;
}

static pid_t sleeper_add(struct node *n, uint64_t tenure)
{
    char *argv[] = {(char[]){"sleep"}, (char[]){"1000"}, NULL};
    struct pms_proc_conf conf = {.exe = "/bin/sleep", .argv = argv, .output_fd = -1};
    struct pms_guard_child child = {
        .listen_fd = pms_portal_listen_fd(n->portal), .log_fd = -1, .array_id = 5, .tenure = tenure};
    struct pms_guard_pid *guard_pid;
    struct pms_proc *sleeper;

    assert_int_equal(pms_proc_open(&n->loop, &conf, on_sleeper_exit, NULL, &sleeper), 0);
    child.pid = pms_proc_pid(sleeper);
    child.pidfd = pms_proc_pidfd(sleeper);
    strcpy(child.ipc_path, "/some/where");
    assert_int_equal(pms_guard_pid_add(n->guard, &child, &guard_pid), 0);
    if (tenure == 0) // it had one, and has it no more: what was said last counts
        pms_guard_pid_tenure(guard_pid, 9);
    pms_guard_pid_tenure(guard_pid, tenure);
    return child.pid;
}

// A process that stands for pmsd: portal up, two children registered, one that serves and one that does not.
// Tells their pids and sleeps.
static void pmsd_stand_in(int tell_fd)
{
    struct node n;
    pid_t pids[2];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    node_start(&n, NODE_A, "10.9.0.50/24");
    pids[0] = sleeper_add(&n, 0);
    pids[1] = sleeper_add(&n, 9);
    node_up(&n, NULL, 0);
    assert_int_equal(write(tell_fd, pids, sizeof(pids)), sizeof(pids));
    uv_run(&n.loop, UV_RUN_DEFAULT);
}

static bool lives(pid_t pid)
{
    char path[64], stat[256] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (!fgets(stat, sizeof(stat), f))
        stat[0] = 0;
    fclose(f);
    return stat[0] && !strstr(stat, ") Z");
}

static bool dies(pid_t pid, unsigned ms)
{
    for (unsigned i = 0; i < ms / 10 && lives(pid); i++)
        usleep(10000);
    return !lives(pid);
}

static void pmsd_killed(pid_t pids[2])
{
    pid_t pmsd;
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pmsd = fork();
    if (pmsd == 0) {
        pmsd_stand_in(fds[1]);
        _exit(1);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], pids, 2 * sizeof(*pids)), 2 * sizeof(*pids));
    close(fds[0]);
    assert_true(addr_look(NODE_A, "10.9.0.50").present);
    assert_true(lives(pids[0]) && lives(pids[1]));
    kill(pmsd, SIGKILL);
    waitpid(pmsd, NULL, 0);
}

static void test_guard_when_pmsd_is_killed_then_address_and_children_go(void **state)
{
    struct pms_guard_child *left;
    pid_t pids[2];
    unsigned n;

    (void)state;
    NEED_ROOT();
    pmsd_killed(pids);
    for (int i = 0; i < 50 && addr_look(NODE_A, "10.9.0.50").present; i++)
        usleep(10000);
    // Well before the lifetime would have done it.
    assert_false(addr_look(NODE_A, "10.9.0.50").present);
    assert_true(dies(pids[0], 500));
    assert_true(lives(pids[1])); // for the next pmsd; but there is none
    assert_true(dies(pids[1], PMS_GUARD_KEEP_MS + 1000));
    assert_int_equal(pms_guard_inherit(guard_path, &left, &n), 0);
    assert_int_equal(n, 0);
}

static void test_guard_when_another_pmsd_comes_then_it_gets_what_was_left(void **state)
{
    struct pms_portal_conf conf = conf_of("10.9.0.50/24"), other = conf_of("10.9.0.51/24");
    struct pms_guard_child *left;
    pid_t pids[2];
    struct node n;
    unsigned count;

    (void)state;
    NEED_ROOT();
    pmsd_killed(pids);
    assert_int_equal(pms_guard_inherit(guard_path, &left, &count), 0);
    assert_false(addr_look(NODE_A, "10.9.0.50").present); // by then, not some time
    assert_int_equal(count, 1);
    assert_int_equal(left[0].pid, pids[1]);
    assert_int_equal(left[0].tenure, 9);
    assert_int_equal(left[0].array_id, 5);
    assert_string_equal(left[0].ipc_path, "/some/where");
    assert_int_equal(left[0].log_fd, -1);
    // Its guard has nothing to do any more, the process lives on, and nobody gets it twice.
    usleep(300000);
    assert_true(lives(pids[1]));
    assert_false(lives(pids[0]));
    // A portal goes on with the listener, but only if it is its own address's.
    node_start(&n, NODE_A, "10.9.0.52/24");
    node_portal_close(&n);
    assert_int_equal(pms_portal_open(&n.loop, n.guard, &other, fcntl(left[0].listen_fd, F_DUPFD_CLOEXEC, 0),
                                     on_lost, &n, &n.portal),
                     -EINVAL);
    assert_int_equal(pms_portal_open(&n.loop, n.guard, &conf, left[0].listen_fd, on_lost, &n, &n.portal), 0);
    node_up(&n, NULL, 0);
    assert_true(addr_look(NODE_A, "10.9.0.50").present);
    node_stop(&n);
    left[0].listen_fd = -1;
    pidfd_send_signal(left[0].pidfd, SIGKILL, NULL, 0);
    pms_guard_child_close(&left[0]);
    free(left);
    assert_true(dies(pids[1], 500));
}

static int client_connect(const char *to, struct sockaddr_storage *self, int timeout_ms)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(*self);
    struct pollfd p = {.events = POLLOUT};
    int err = 0;

    enter(CLIENT);
    assert_int_equal(pms_addr_parse(to, 3260, &addr), 0);
    p.fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(p.fd >= 0);
    if (connect(p.fd, (struct sockaddr *)&addr, pms_addr_len(&addr)) != 0) {
        len = sizeof(err);
        assert_int_equal(errno, EINPROGRESS);
        assert_int_equal(poll(&p, 1, timeout_ms), 1);
        getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &err, &len);
        assert_int_equal(err, 0);
    }
    len = sizeof(*self);
    memset(self, 0, sizeof(*self));
    assert_int_equal(getsockname(p.fd, (struct sockaddr *)self, &len), 0);
    return p.fd;
}

// Gratuitous requests for the address heard so far.
static int arp_count(int fd, const char *addr_text)
{
    struct sockaddr_storage addr;
    struct ether_arp arp;
    int count = 0;

    assert_int_equal(pms_addr_parse(addr_text, 0, &addr), 0);
    while (recv(fd, &arp, sizeof(arp), MSG_DONTWAIT) == (ssize_t)sizeof(arp)) {
        const void *bytes = &((struct sockaddr_in *)&addr)->sin_addr;

        count += memcmp(arp.arp_spa, bytes, 4) == 0 && memcmp(arp.arp_tpa, bytes, 4) == 0;
    }
    return count;
}

static int arp_listen(void)
{
    struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ARP)};
    int fd;

    enter(CLIENT);
    ll.sll_ifindex = (int)if_nametoindex("br0");
    fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ARP));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&ll, sizeof(ll)), 0);
    return fd;
}

// Node A vanishes with its address; node B takes it. The client's silent connection must break, and a new one
// must reach B, both long before the client's own timers would do it.
static void takeover(const char *portal, const char *addr_text)
{
    struct sockaddr_storage peer, again;
    struct node a, b;
    struct pollfd p = {.events = POLLIN};
    uint64_t t0;
    int listener = arp_listen();
    bool v6 = strchr(portal, ':') != NULL;
    char buf[8];

    node_start(&a, NODE_A, portal);
    node_start(&b, NODE_B, portal);
    node_up(&a, NULL, 0);
    p.fd = client_connect(addr_text, &peer, 1000);
    enter(CLIENT);
    run("ip link set port%d down", NODE_A);
    arp_count(listener, "10.9.0.50");

    t0 = pms_clock_boot_ns();
    node_up(&b, &peer, 1);
    while (poll(&p, 1, 0) == 0 && pms_clock_boot_ns() - t0 < 1000000000ull)
        node_run_until(&b, NULL, 0, 5);
    print_message("reset after %u ms\n", (unsigned)((pms_clock_boot_ns() - t0) / 1000000));
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(recv(p.fd, buf, sizeof(buf), 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(p.fd);
    p.fd = client_connect(addr_text, &again, 300);
    assert_true(pms_clock_boot_ns() - t0 < 1000000000ull);
    close(p.fd);

    node_run_until(&b, NULL, 0, 1200);
    if (!v6)
        assert_true(arp_count(listener, "10.9.0.50") >= 4);
    close(listener);
    node_stop(&b);
    node_stop(&a);
    enter(CLIENT);
    run("ip link set port%d up", NODE_A);
    run("ip neigh flush dev br0");
}

static void test_portal_when_taken_over_then_client_comes_at_once(void **state)
{
    (void)state;
    NEED_ROOT();
    takeover("10.9.0.50/24", "10.9.0.50");
    takeover("fd09::50/64", "[fd09::50]:3260");
}

// Nobody accepts, and yet nobody is refused: from the first moment of the address to its last.
static void test_portal_when_nobody_accepts_then_not_refused(void **state)
{
    struct sockaddr_storage self;
    struct node n;
    int fd;

    (void)state;
    NEED_ROOT();
    node_start(&n, NODE_B, "10.9.0.51/24");
    node_up(&n, NULL, 0);
    fd = client_connect("10.9.0.51", &self, 1000);
    close(fd);
    node_stop(&n);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_portal_conf_when_parsed_then_checked),
        cmocka_unit_test(test_tickle_when_encoded_then_checksums_hold),
        cmocka_unit_test(test_portal_when_up_then_address_lives_and_is_renewed),
        cmocka_unit_test(test_portal_when_no_subnet_fits_then_refused),
        cmocka_unit_test(test_portal_when_loop_stops_then_kernel_drops_address),
        cmocka_unit_test(test_portal_when_guard_dies_then_another_keeps_the_address),
        cmocka_unit_test(test_guard_when_pmsd_is_killed_then_address_and_children_go),
        cmocka_unit_test(test_guard_when_another_pmsd_comes_then_it_gets_what_was_left),
        cmocka_unit_test(test_portal_when_taken_over_then_client_comes_at_once),
        cmocka_unit_test(test_portal_when_nobody_accepts_then_not_refused),
    };

    if (argc > 1 && strcmp(argv[1], PMS_GUARD_ARG) == 0)
        return pms_guard_main(argc, argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup_spaces, teardown);
}
