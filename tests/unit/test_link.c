// SPDX-License-Identifier: GPL-2.0-or-later
// One connection of the data loop: framing, partial transfers, garbage, overtaking heartbeats, back pressure,
// stalls.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "datapath/io/link.h"

#define CLUSTER  0x1122334455667788u
#define SEEN_MAX 4096

/* What one end of a link got. */
struct end {
    struct pms_link *link;
    unsigned n;
    struct pms_frame seen[SEEN_MAX];
    uint64_t bytes;
    bool keep; /* buffers are held in kept[] */
    struct pms_iobuf *kept[SEEN_MAX];
    int failed; /* error, 0: not */
};

struct fixture {
    struct pms_uring uring;
    struct pms_pool pool;
    struct pms_link_env env;
    struct end a, b;
};

/* Byte i of the payload of frame seq. */
static uint8_t pattern(uint64_t seq, uint32_t i)
{
    return (uint8_t)(seq * 31 + i * 7 + i / 251);
}

static void on_frame(struct pms_link *link, void *user, const struct pms_frame *f, struct pms_iobuf *buf)
{
    struct end *e = user;

    assert_ptr_equal(link, e->link);
    assert_true(e->n < SEEN_MAX);
    assert_true((f->payload_len > 0) == (buf != NULL));
    if (buf != NULL) {
        assert_int_equal(buf->len, f->payload_len);
        assert_int_equal((uintptr_t)buf->data % 4096, 0); /* may go to O_DIRECT as it is */
        for (uint32_t i = 0; i < f->payload_len; i++) {
            if (buf->data[i] != pattern(f->seq, i))
                fail_msg("frame %llu: byte %u differs", (unsigned long long)f->seq, i);
        }
        if (e->keep)
            e->kept[e->n] = pms_iobuf_ref(buf);
    }
    e->bytes += f->payload_len;
    e->seen[e->n++] = *f;
}

static void on_failed(struct pms_link *link, void *user, int err)
{
    struct end *e = user;

    assert_ptr_equal(link, e->link);
    assert_int_equal(e->failed, 0);
    e->failed = err;
    pms_link_close(link);
    e->link = NULL;
}

static const struct pms_link_ops ops = {on_frame, on_failed};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);

    if (pms_uring_init(&x->uring) != 0)
        return -1;
    pms_pool_init(&x->pool, 64u << 20);
    pms_link_env_init(&x->env, &x->uring, &x->pool, CLUSTER);
    *state = x;
    return 0;
}

static void turn(struct fixture *x, uint64_t wait_ns)
{
    pms_link_flush_all(&x->env);
    assert_int_equal(pms_uring_wait(&x->uring, wait_ns), 0);
    pms_uring_complete(&x->uring);
    pms_link_flush_all(&x->env);
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    if (x->a.link != NULL)
        pms_link_close(x->a.link);
    if (x->b.link != NULL)
        pms_link_close(x->b.link);
    for (int i = 0; i < 100 && x->env.closing > 0; i++)
        turn(x, 10000000);
    assert_int_equal(x->env.closing, 0);
    assert_int_equal(x->uring.inflight, 0);
    pms_pool_deinit(&x->pool); /* checks that no buffer is out */
    pms_uring_deinit(&x->uring);
    free(x);
    return 0;
}

/* Turns until *n reaches want; fails after 10 s. */
static void turns_until(struct fixture *x, const unsigned *n, unsigned want)
{
    uint64_t until = pms_clock_boot_ns() + 10000000000ull;

    while (*n < want) {
        turn(x, 10000000);
        assert_true(pms_clock_boot_ns() < until);
    }
}

static void turns_until_failed(struct fixture *x, const struct end *e)
{
    for (int i = 0; i < 500 && e->failed == 0; i++)
        turn(x, 10000000);
    assert_int_not_equal(e->failed, 0);
}

static void tcp_pair(int fd[2], int small)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(l >= 0);
    if (small)
        setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(bind(l, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&addr, &len), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (small)
        setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    assert_int_equal(connect(fd[0], (struct sockaddr *)&addr, sizeof addr), 0);
    fd[1] = accept(l, NULL, NULL);
    assert_true(fd[1] >= 0);
    close(l);
}

static void both_ends(struct fixture *x, int small)
{
    int fd[2];

    tcp_pair(fd, small);
    x->a.link = pms_link_create(&x->env, fd[0], 1, &ops, &x->a);
    x->b.link = pms_link_create(&x->env, fd[1], 1, &ops, &x->b);
    assert_non_null(x->a.link);
    assert_non_null(x->b.link);
}

static struct pms_frame frame(uint8_t type, uint64_t seq, struct pms_iobuf *buf)
{
    struct pms_frame f = {.type = type, .cluster = CLUSTER, .array = 7, .epoch = 3, .seq = seq};

    f.payload_len = buf != NULL ? buf->len : 0;
    f.payload_sum = pms_frame_sum(buf != NULL ? buf->data : NULL, f.payload_len);
    return f;
}

static struct pms_iobuf *payload(uint64_t seq, uint32_t len)
{
    struct pms_iobuf *buf = pms_iobuf_create(len);

    for (uint32_t i = 0; i < len; i++)
        buf->data[i] = pattern(seq, i);
    return buf;
}

static void send_one(struct pms_link *link, uint8_t type, uint64_t seq, uint32_t len)
{
    struct pms_iobuf *buf = len > 0 ? payload(seq, len) : NULL;
    struct pms_frame f = frame(type, seq, buf);

    pms_link_send(link, &f, buf, 0);
}

/* The bytes of a frame as they travel. */
static uint8_t *wire(uint64_t seq, uint32_t len, uint32_t *total)
{
    struct pms_iobuf *buf = len > 0 ? payload(seq, len) : NULL;
    struct pms_frame f = frame(PMS_FRAME_WRITE, seq, buf);
    uint8_t *out = malloc(PMS_FRAME_HEADER_BYTES + len);

    pms_frame_encode(&f, 1, out);
    if (buf != NULL)
        memcpy(out + PMS_FRAME_HEADER_BYTES, buf->data, len);
    pms_iobuf_put(buf);
    *total = PMS_FRAME_HEADER_BYTES + len;
    return out;
}

static void raw_write(int fd, const uint8_t *p, size_t n)
{
    assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void test_link_when_frames_are_sent_then_they_come_whole_and_in_order(void **state)
{
    static const uint32_t sizes[] = {0, 512, 1, 4096, 0, 32768, 65537, 1u << 20, 4u << 20, 0, 512};
    const unsigned n = sizeof sizes / sizeof *sizes;
    struct fixture *x = *state;

    both_ends(x, 0);
    for (unsigned i = 0; i < n; i++) {
        send_one(x->a.link, PMS_FRAME_WRITE, i, sizes[i]);
        send_one(x->b.link, PMS_FRAME_WRITE_ACK, i, sizes[n - 1 - i]);
    }
    turns_until(x, &x->b.n, n);
    turns_until(x, &x->a.n, n);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(x->b.seen[i].seq, i);
        assert_int_equal(x->b.seen[i].payload_len, sizes[i]);
        assert_int_equal(x->b.seen[i].array, 7);
        assert_int_equal(x->a.seen[i].type, PMS_FRAME_WRITE_ACK);
    }
    assert_int_equal(x->env.stats.frames_sent, 2 * n);
    assert_int_equal(x->env.stats.frames_received, 2 * n);
    assert_int_equal(x->env.stats.bytes_sent, x->env.stats.bytes_received);
}

static void test_link_when_the_socket_takes_little_then_partial_transfers_are_finished(void **state)
{
    struct fixture *x = *state;
    const unsigned n = 60;

    both_ends(x, 2048);
    for (unsigned i = 0; i < n; i++)
        send_one(x->a.link, PMS_FRAME_WRITE, i, 1 + i * 1777);
    turns_until(x, &x->b.n, n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(x->b.seen[i].seq, i);
    assert_int_equal(x->b.failed, 0);
}

static void test_link_when_bytes_dribble_then_frames_are_put_together(void **state)
{
    struct fixture *x = *state;
    uint32_t len;
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    x->b.link = pms_link_create(&x->env, fd[1], 1, &ops, &x->b);
    for (unsigned k = 0; k < 3; k++) {
        uint8_t *bytes = wire(k, k == 1 ? 0 : 300, &len);

        for (uint32_t i = 0; i < len; i += 7) {
            raw_write(fd[0], bytes + i, len - i < 7 ? len - i : 7);
            turn(x, 1000000);
        }
        free(bytes);
    }
    turns_until(x, &x->b.n, 3);
    assert_int_equal(x->b.bytes, 600);
    close(fd[0]);
    turns_until_failed(x, &x->b);
    assert_int_equal(x->b.failed, -ECONNRESET);
}

/* Sends one good frame and one that `spoil` has changed; expects the first only, then the error. */
static void garbled(struct fixture *x, uint32_t spoil_at, int err)
{
    uint32_t len, len2;
    int fd[2];
    uint8_t *good = wire(1, 512, &len), *bad = wire(2, 4096, &len2), byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    x->b.link = pms_link_create(&x->env, fd[1], 1, &ops, &x->b);
    bad[spoil_at] ^= 0x40;
    raw_write(fd[0], good, len);
    raw_write(fd[0], bad, len2);
    raw_write(fd[0], good, len); /* must not be delivered */
    turns_until_failed(x, &x->b);
    assert_int_equal(x->b.n, 1);
    assert_int_equal(x->b.seen[0].seq, 1);
    assert_int_equal(x->b.failed, err);
    assert_int_equal(x->env.stats.checksum_errors, 1);
    assert_true(recv(fd[0], &byte, 1, 0) <= 0); /* it hung up */
    close(fd[0]);
    free(good);
    free(bad);
}

static void test_link_when_a_payload_is_garbled_then_it_is_dropped(void **state)
{
    garbled(*state, PMS_FRAME_HEADER_BYTES + 4000, PMS_ECORRUPT);
}

static void test_link_when_a_header_is_garbled_then_it_is_dropped(void **state)
{
    garbled(*state, 60, PMS_EPROTO);
}

static void test_link_when_another_cluster_speaks_then_it_is_dropped(void **state)
{
    struct fixture *x = *state;
    struct pms_frame f = frame(PMS_FRAME_HB, 1, NULL);

    both_ends(x, 0);
    f.cluster++;
    pms_link_send(x->a.link, &f, NULL, 0);
    turns_until_failed(x, &x->b);
    assert_int_equal(x->b.failed, PMS_EIDENTITY);
    assert_int_equal(x->b.n, 0);
    turns_until_failed(x, &x->a);
    assert_int_equal(x->a.failed, -ECONNRESET);
}

static void test_link_when_a_heartbeat_is_sent_behind_bulk_then_it_overtakes(void **state)
{
    struct fixture *x = *state;
    const unsigned n = 24;
    unsigned place = 0;

    both_ends(x, 4096);
    for (unsigned i = 0; i < n; i++)
        send_one(x->a.link, PMS_FRAME_WRITE, i, 1u << 20);
    turn(x, 1000000); /* the first batch is on its way */
    send_one(x->a.link, PMS_FRAME_HB, 1000, 0);
    turns_until(x, &x->b.n, n + 1);
    for (unsigned i = 0, next = 0; i < n + 1; i++) {
        if (x->b.seen[i].type == PMS_FRAME_HB)
            place = i;
        else
            assert_int_equal(x->b.seen[i].seq, next++); /* all others keep their order */
    }
    assert_true(place <= 3);
}

static void test_link_when_the_pool_is_empty_then_it_reads_on_as_buffers_come_back(void **state)
{
    struct fixture *x = *state;

    x->pool.cap_bytes = 2u << 20;
    both_ends(x, 0);
    x->b.keep = true;
    for (unsigned i = 0; i < 6; i++)
        send_one(x->a.link, PMS_FRAME_WRITE, i, 1u << 20);
    for (int i = 0; i < 30; i++)
        turn(x, 5000000);
    assert_int_equal(x->b.n, 2); /* the cap */
    x->b.keep = false;
    pms_iobuf_put(x->b.kept[0]);
    turns_until(x, &x->b.n, 6);
    assert_true(x->pool.used_bytes_max <= 2u << 20);
    pms_iobuf_put(x->b.kept[1]);
}

static void test_link_when_the_peer_reads_nothing_then_it_fails_after_a_second(void **state)
{
    struct fixture *x = *state;
    uint64_t since = pms_clock_boot_ns();
    int fd[2];

    tcp_pair(fd, 0);
    x->a.link = pms_link_create(&x->env, fd[0], 1, &ops, &x->a);
    for (unsigned i = 0; i < 32; i++)
        send_one(x->a.link, PMS_FRAME_WRITE, i, 1u << 20);
    while (x->a.failed == 0) {
        turn(x, 10000000);
        if (x->a.link != NULL)
            pms_link_tick(x->a.link, pms_clock_boot_ns());
        assert_true(pms_clock_boot_ns() - since < 5000000000ull);
    }
    assert_int_equal(x->a.failed, -ETIMEDOUT);
    assert_true(pms_clock_boot_ns() - since >= 1000000000ull);
    close(fd[1]);
}

static void test_link_when_closed_with_frames_under_way_then_all_references_come_back(void **state)
{
    struct fixture *x = *state;
    struct pms_iobuf *buf = payload(5, 1u << 20);
    struct pms_frame f = frame(PMS_FRAME_WRITE, 5, buf);

    both_ends(x, 0);
    for (unsigned i = 0; i < 20; i++)
        pms_link_send(x->a.link, &f, pms_iobuf_ref(buf), 0);
    turn(x, 0);
    pms_link_close(x->a.link);
    x->a.link = NULL;
    turns_until_failed(x, &x->b);
    for (int i = 0; i < 100 && x->env.closing > 0; i++)
        turn(x, 1000000);
    assert_int_equal(buf->refs, 1);
    pms_iobuf_put(buf);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_link_when_frames_are_sent_then_they_come_whole_and_in_order),
        TEST(test_link_when_the_socket_takes_little_then_partial_transfers_are_finished),
        TEST(test_link_when_bytes_dribble_then_frames_are_put_together),
        TEST(test_link_when_a_payload_is_garbled_then_it_is_dropped),
        TEST(test_link_when_a_header_is_garbled_then_it_is_dropped),
        TEST(test_link_when_another_cluster_speaks_then_it_is_dropped),
        TEST(test_link_when_a_heartbeat_is_sent_behind_bulk_then_it_overtakes),
        TEST(test_link_when_the_pool_is_empty_then_it_reads_on_as_buffers_come_back),
        TEST(test_link_when_the_peer_reads_nothing_then_it_fails_after_a_second),
        TEST(test_link_when_closed_with_frames_under_way_then_all_references_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
