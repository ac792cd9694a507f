// SPDX-License-Identifier: GPL-2.0-or-later
// Links to peer nodes: dialling with back-off, replaced connections, wrong ways, lost requests.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "datapath/io/peer.h"

#define CLUSTER 0x77u
#define A       0xa0u
#define MS      1000000ull

struct fixture {
    struct pms_uring uring;
    struct pms_pool pool;
    struct pms_link_env env;
    struct pms_peers peers;
    unsigned frames, ups, downs, wants;
    struct pms_frame seen[16];
    uint64_t conn[16];
    int verdict; /* of on_frame */
    int down_status;
};

static int on_frame(void *user, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf)
{
    struct fixture *x = user;

    (void)buf;
    assert_int_equal(node, A);
    assert_true(x->frames < 16);
    x->conn[x->frames] = conn;
    x->seen[x->frames++] = *f;
    return x->verdict;
}

static void on_up(void *user, uint64_t node)
{
    assert_int_equal(node, A);
    ((struct fixture *)user)->ups++;
}

static void on_down(void *user, uint64_t node, int status)
{
    assert_int_equal(node, A);
    ((struct fixture *)user)->downs++;
    ((struct fixture *)user)->down_status = status;
}

static void on_want(void *user, uint64_t node)
{
    assert_int_equal(node, A);
    ((struct fixture *)user)->wants++;
}

static const struct pms_peer_ops ops = {on_frame, on_up, on_down, on_want};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);

    if (pms_uring_init(&x->uring) != 0)
        return -1;
    pms_pool_init(&x->pool, 1u << 20);
    pms_link_env_init(&x->env, &x->uring, &x->pool, CLUSTER);
    pms_peers_init(&x->peers, &x->env, &ops, x);
    *state = x;
    return 0;
}

static void turns(struct fixture *x, int n)
{
    while (n-- > 0) {
        pms_peers_flush(&x->peers);
        assert_int_equal(pms_uring_wait(&x->uring, MS), 0);
        pms_uring_complete(&x->uring);
        pms_peers_flush(&x->peers);
    }
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    pms_peers_close(&x->peers);
    for (int i = 0; i < 1000 && x->env.closing > 0; i++)
        turns(x, 1);
    assert_int_equal(x->uring.inflight, 0);
    pms_pool_deinit(&x->pool);
    pms_uring_deinit(&x->uring);
    free(x);
    return 0;
}

static void pair(int fd[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

static struct pms_frame frame(uint8_t type, uint64_t seq)
{
    struct pms_frame f = {.type = type, .cluster = CLUSTER, .array = 9, .epoch = 1, .seq = seq};

    f.payload_sum = pms_frame_sum(NULL, 0);
    return f;
}

static void raw_send(int fd, uint8_t type, uint64_t seq)
{
    uint8_t bytes[PMS_FRAME_HEADER_BYTES];
    struct pms_frame f = frame(type, seq);

    pms_frame_encode(&f, 1, bytes);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

/* 0: end of stream; 1: a frame is there (in *f); -1: nothing yet. */
static int raw_recv(int fd, struct pms_frame *f)
{
    uint8_t bytes[PMS_FRAME_HEADER_BYTES];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n <= 0)
        return n == 0 || errno == ECONNRESET ? 0 : -1;
    assert_int_equal(n, sizeof bytes);
    assert_int_equal(pms_frame_decode(bytes, 1, f), 0);
    return 1;
}

static void want(struct fixture *x)
{
    pms_peers_want(&x->peers, (const uint64_t[]){A}, 1);
    pms_peers_tick(&x->peers, pms_clock_boot_ns());
}

static void test_peer_when_wanted_then_it_is_asked_for_once_until_answered(void **state)
{
    struct fixture *x = *state;
    int fd[2];

    want(x);
    want(x);
    assert_int_equal(x->wants, 1);
    assert_false(pms_peers_is_up(&x->peers, A));
    pair(fd);
    pms_peers_dialled(&x->peers, A, fd[0], 1);
    assert_int_equal(x->ups, 1);
    assert_true(pms_peers_is_up(&x->peers, A));
    pms_peers_tick(&x->peers, pms_clock_boot_ns() + 60000 * MS);
    assert_int_equal(x->wants, 1);
    close(fd[1]);
}

static void test_peer_when_dialling_fails_then_it_backs_off_to_a_limit(void **state)
{
    struct fixture *x = *state;
    static const unsigned pauses_ms[] = {20, 40, 80, 160, 320, 320};

    want(x);
    for (unsigned i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        uint64_t now = pms_clock_boot_ns();

        assert_int_equal(x->wants, i + 1);
        pms_peers_dialled(&x->peers, A, -ECONNREFUSED, 1);
        pms_peers_tick(&x->peers, now + (pauses_ms[i] - 1) * MS);
        assert_int_equal(x->wants, i + 1);
        /* The tick's clock runs ahead here; what counts is that the pause is over. */
        pms_peers_tick(&x->peers, pms_clock_boot_ns() + pauses_ms[i] * MS);
        assert_int_equal(x->wants, i + 2);
    }
}

static void test_peer_when_unwanted_then_it_is_not_asked_for_again(void **state)
{
    struct fixture *x = *state;

    want(x);
    pms_peers_dialled(&x->peers, A, -ECONNREFUSED, 1);
    pms_peers_want(&x->peers, NULL, 0);
    pms_peers_tick(&x->peers, pms_clock_boot_ns() + 60000 * MS);
    assert_int_equal(x->wants, 1);
}

static void test_peer_when_the_own_link_ends_then_it_is_down_and_wanted_again(void **state)
{
    struct fixture *x = *state;
    int fd[2];

    want(x);
    pair(fd);
    pms_peers_dialled(&x->peers, A, fd[0], 1);
    close(fd[1]);
    turns(x, 5);
    assert_int_equal(x->downs, 1);
    assert_int_equal(x->down_status, -ECONNRESET);
    pms_peers_tick(&x->peers, pms_clock_boot_ns());
    assert_int_equal(x->wants, 1); /* backs off first */
    pms_peers_tick(&x->peers, pms_clock_boot_ns() + 20 * MS);
    assert_int_equal(x->wants, 2);
}

static void test_peer_when_reset_then_the_link_goes_down_once_at_the_end_of_the_turn(void **state)
{
    struct fixture *x = *state;
    int fd[2];

    want(x);
    pair(fd);
    pms_peers_reset(&x->peers, A); /* nothing to reset */
    pms_peers_dialled(&x->peers, A, fd[0], 1);
    turns(x, 1);
    assert_int_equal(x->downs, 0);
    pms_peers_reset(&x->peers, A);
    pms_peers_reset(&x->peers, A);
    assert_int_equal(x->downs, 0);
    turns(x, 2);
    assert_int_equal(x->downs, 1);
    close(fd[1]);
}

static void test_peer_when_requests_come_then_answers_leave_on_their_connection(void **state)
{
    struct fixture *x = *state;
    struct pms_frame f = frame(PMS_FRAME_HB_ACK, 5), got;
    int in[2], own[2];

    want(x);
    pair(in);
    pair(own);
    pms_peers_accepted(&x->peers, A, in[0], 1);
    pms_peers_dialled(&x->peers, A, own[0], 1);
    raw_send(in[1], PMS_FRAME_HB, 5);
    raw_send(own[1], PMS_FRAME_WRITE_ACK, 6);
    turns(x, 5);
    assert_int_equal(x->frames, 2);
    unsigned request = x->seen[0].seq == 5 ? 0 : 1;

    assert_int_not_equal(x->conn[request], 0);
    assert_int_equal(x->conn[!request], 0);
    pms_peers_send(&x->peers, A, x->conn[request], &f, NULL, 0);
    f = frame(PMS_FRAME_WRITE, 7);
    pms_peers_send(&x->peers, A, 0, &f, NULL, 0);
    turns(x, 5);
    assert_int_equal(raw_recv(in[1], &got), 1);
    assert_int_equal(got.seq, 5);
    assert_int_equal(raw_recv(own[1], &got), 1);
    assert_int_equal(got.seq, 7);
    close(in[1]);
    close(own[1]);
}

static void test_peer_when_a_connection_is_replaced_then_nothing_of_the_old_one_is_delivered(void **state)
{
    struct fixture *x = *state;
    struct pms_frame f = frame(PMS_FRAME_HB_ACK, 1), got;
    int old[2], new[2];
    uint64_t old_conn;

    pair(old);
    pair(new);
    pms_peers_accepted(&x->peers, A, old[0], 1);
    raw_send(old[1], PMS_FRAME_HB, 1);
    turns(x, 5);
    assert_int_equal(x->frames, 1);
    old_conn = x->conn[0];
    raw_send(old[1], PMS_FRAME_WRITE, 2); /* in the socket already, or in the ring's hands */
    raw_send(old[1], PMS_FRAME_WRITE, 3);
    assert_int_equal(pms_uring_wait(&x->uring, MS), 0); /* received by the kernel, not yet looked at */
    pms_peers_accepted(&x->peers, A, new[0], 1);
    raw_send(new[1], PMS_FRAME_HB, 10);
    turns(x, 10);
    assert_int_equal(x->frames, 2);
    assert_int_equal(x->seen[1].seq, 10);
    assert_int_not_equal(x->conn[1], old_conn);
    pms_peers_send(&x->peers, A, old_conn, &f, NULL, 0); /* to nobody */
    turns(x, 5);
    assert_int_equal(raw_recv(new[1], &got), -1);
    assert_int_equal(raw_recv(old[1], &got), 0); /* closed */
    close(old[1]);
    close(new[1]);
}

static void test_peer_when_a_frame_comes_the_wrong_way_then_the_link_is_dropped(void **state)
{
    struct fixture *x = *state;
    struct pms_frame got;
    int in[2], own[2];

    want(x);
    pair(in);
    pair(own);
    pms_peers_accepted(&x->peers, A, in[0], 1);
    pms_peers_dialled(&x->peers, A, own[0], 1);
    raw_send(in[1], PMS_FRAME_WRITE_ACK, 1);
    raw_send(own[1], PMS_FRAME_WRITE, 2);
    turns(x, 5);
    assert_int_equal(x->frames, 0);
    assert_int_equal(x->downs, 1);
    assert_int_equal(x->down_status, PMS_EPROTO);
    assert_int_equal(raw_recv(in[1], &got), 0);
    assert_int_equal(raw_recv(own[1], &got), 0);
    assert_int_equal(x->peers.dropped, 2);
    close(in[1]);
    close(own[1]);
}

static void
test_peer_when_the_core_refuses_a_frame_then_the_link_is_dropped_and_no_more_is_delivered(void **state)
{
    struct fixture *x = *state;
    struct pms_frame got;
    int in[2];

    pair(in);
    pms_peers_accepted(&x->peers, A, in[0], 1);
    x->verdict = PMS_EIDENTITY;
    raw_send(in[1], PMS_FRAME_HB, 1);
    raw_send(in[1], PMS_FRAME_HB, 2);
    turns(x, 5);
    assert_int_equal(x->frames, 1);
    assert_int_equal(raw_recv(in[1], &got), 0);
    close(in[1]);
}

static void
test_peer_when_requests_were_lost_then_the_connection_goes_as_soon_as_its_array_is_ready(void **state)
{
    struct fixture *x = *state;
    struct pms_frame got;
    int in[2];

    pair(in);
    pms_peers_accepted(&x->peers, A, in[0], 1);
    pms_peers_lost_mark(&x->peers, A, 9);
    pms_peers_lost_mark(&x->peers, A, 9);
    pms_peers_lost_reset(&x->peers, 8); /* another array */
    turns(x, 2);
    assert_int_equal(raw_recv(in[1], &got), -1);
    pms_peers_lost_reset(&x->peers, 9);
    turns(x, 2);
    assert_int_equal(raw_recv(in[1], &got), 0);
    close(in[1]);
    /* A new connection starts without a stain. */
    pair(in);
    pms_peers_accepted(&x->peers, A, in[0], 1);
    pms_peers_lost_reset(&x->peers, 9);
    turns(x, 2);
    assert_int_equal(raw_recv(in[1], &got), -1);
    for (uint64_t array = 100; array < 200; array++) /* more than are remembered one by one */
        pms_peers_lost_mark(&x->peers, A, array);
    pms_peers_lost_reset(&x->peers, 199);
    turns(x, 2);
    assert_int_equal(raw_recv(in[1], &got), 0);
    close(in[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_peer_when_wanted_then_it_is_asked_for_once_until_answered),
        TEST(test_peer_when_dialling_fails_then_it_backs_off_to_a_limit),
        TEST(test_peer_when_unwanted_then_it_is_not_asked_for_again),
        TEST(test_peer_when_the_own_link_ends_then_it_is_down_and_wanted_again),
        TEST(test_peer_when_reset_then_the_link_goes_down_once_at_the_end_of_the_turn),
        TEST(test_peer_when_requests_come_then_answers_leave_on_their_connection),
        TEST(test_peer_when_a_connection_is_replaced_then_nothing_of_the_old_one_is_delivered),
        TEST(test_peer_when_a_frame_comes_the_wrong_way_then_the_link_is_dropped),
        TEST(test_peer_when_the_core_refuses_a_frame_then_the_link_is_dropped_and_no_more_is_delivered),
        TEST(test_peer_when_requests_were_lost_then_the_connection_goes_as_soon_as_its_array_is_ready),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
