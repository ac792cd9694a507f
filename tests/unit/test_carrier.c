// SPDX-License-Identifier: GPL-2.0-or-later
// Carrier of a portal's interface, in a network namespace with a cable of its own.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "target/host/carrier.h"

static unsigned changes;

static void on_change(void *arg)
{
    (void)arg;
    changes++;
}

static void on_time(uv_timer_t *t)
{
    (void)t;
}

static enum pms_carrier_state state_of(const struct pms_carrier *c, const char *text)
{
    struct sockaddr_storage addr;

    assert_int_equal(pms_addr_parse(text, 3260, &addr), 0);
    return pms_carrier_get(c, &addr);
}

// Runs the loop until it is so, 5 s at most.
static void until(uv_loop_t *loop, const struct pms_carrier *c, const char *text, enum pms_carrier_state want)
{
    uint64_t end = pms_clock_boot_ns() + 5000000000ull;
    uv_timer_t timer;

    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, on_time, 10, 10);
    while (state_of(c, text) != want && pms_clock_boot_ns() < end)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT); // it is on our stack
    assert_int_equal(state_of(c, text), want);
}

static void sh(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void test_carrier_when_the_cable_is_pulled_then_lost_until_it_is_back(void **state)
{
    struct pms_carrier *c = NULL;
    uv_loop_t loop;

    (void)state;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0)
        skip();
    sh("ip link add va type veth peer name vb && ip link set vb up && ip link set va up");
    sh("ip addr add 10.9.0.1/24 dev va && ip addr add 10.9.1.1/32 dev va && ip addr add fd09::1/64 dev va "
       "nodad");
    uv_loop_init(&loop);
    assert_int_equal(pms_carrier_open(&loop, on_change, NULL, &c), 0);
    until(&loop, c, "10.9.0.50", PMS_CARRIER_UP);
    assert_int_equal(state_of(c, "fd09::50"), PMS_CARRIER_UP);
    assert_int_equal(state_of(c, "10.9.2.1"), PMS_CARRIER_UNKNOWN); // no such subnet
    assert_int_equal(state_of(c, "10.9.0.1"), PMS_CARRIER_UNKNOWN); // the address itself does not count
    assert_int_equal(state_of(c, "10.9.1.1"), PMS_CARRIER_UNKNOWN); // nor does a host's own prefix
    changes = 0;
    sh("ip link set vb down");
    until(&loop, c, "10.9.0.50", PMS_CARRIER_LOST);
    assert_true(changes > 0);
    sh("ip link set vb up");
    until(&loop, c, "10.9.0.50", PMS_CARRIER_UP);
    sh("ip link add vd type veth peer name ve && ip addr add 10.9.2.9/24 dev vd"); // it comes later, and is down
    until(&loop, c, "10.9.2.1", PMS_CARRIER_LOST);
    sh("ip link del vd");
    until(&loop, c, "10.9.2.1", PMS_CARRIER_UNKNOWN);
    pms_carrier_close(c);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carrier_when_the_cable_is_pulled_then_lost_until_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
