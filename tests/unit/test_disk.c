// SPDX-License-Identifier: GPL-2.0-or-later
// Disk requests: data arrives where it belongs, short transfers are errors only at the end, buffers come
// back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "datapath/io/disk.h"

struct fixture {
    struct pms_uring uring;
    struct pms_disk disk;
    char path[64];
    unsigned done;
    int status[64]; /* by tag */
    struct pms_iobuf *buf;
};

static void on_done(void *user, uint64_t tag, int status)
{
    struct fixture *x = user;

    x->status[tag] = status;
    x->done++;
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    int fd;

    strcpy(x->path, "/var/tmp/test_disk.XXXXXX");
    fd = mkstemp(x->path);
    if (fd < 0 || ftruncate(fd, 64 << 10) != 0 || pms_uring_init(&x->uring) != 0)
        return -1;
    pms_disk_init(&x->disk, &x->uring, fd, on_done, x);
    x->buf = pms_iobuf_create(32 << 10);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(x->buf->refs, 1);
    pms_iobuf_put(x->buf);
    pms_uring_deinit(&x->uring);
    close(x->disk.fd);
    unlink(x->path);
    free(x);
    return 0;
}

static void submit(struct fixture *x, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset,
                   uint32_t length, uint32_t buf_off)
{
    struct pms_iobuf *buf = type == PMS_DP_DISK_FLUSH ? NULL : pms_iobuf_ref(x->buf);

    pms_disk_submit(&x->disk, type, tag, offset, length, buf, buf_off);
}

static void wait_all(struct fixture *x)
{
    for (int i = 0; i < 1000 && x->disk.inflight > 0; i++) {
        assert_int_equal(pms_uring_wait(&x->uring, 10000000), 0);
        pms_uring_complete(&x->uring);
    }
    assert_int_equal(x->disk.inflight, 0);
}

static void test_disk_when_written_and_flushed_then_it_reads_back(void **state)
{
    struct fixture *x = *state;

    for (unsigned i = 0; i < 8192; i++)
        x->buf->data[4096 + i] = (uint8_t)(i * 13);
    submit(x, PMS_DP_DISK_WRITE, 1, 20480, 8192, 4096);
    wait_all(x);
    submit(x, PMS_DP_DISK_FLUSH, 2, 0, 0, 0);
    submit(x, PMS_DP_DISK_READ, 3, 20480, 8192, 16384);
    wait_all(x);
    assert_int_equal(x->done, 3);
    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(x->status[i], 0);
    assert_memory_equal(x->buf->data + 4096, x->buf->data + 16384, 8192);
    assert_int_equal(x->disk.writes, 1);
    assert_int_equal(x->disk.reads, 1);
    assert_int_equal(x->disk.flushes, 1);
    assert_int_equal(x->disk.read_bytes, 8192);
    assert_int_equal(x->disk.written_bytes, 8192);
    assert_int_equal(x->disk.errors, 0);
}

static void fill_and_zero(struct fixture *x, uint64_t offset, uint32_t length)
{
    memset(x->buf->data, 0xab, 32 << 10);
    for (unsigned i = 0; i < 16; i++)
        submit(x, PMS_DP_DISK_WRITE, 1, i * (32u << 10), 32 << 10, 0);
    wait_all(x);
    pms_disk_submit(&x->disk, PMS_DP_DISK_ZERO, 2, offset, length, NULL, 0);
    wait_all(x);
    assert_int_equal(x->status[2], 0);
    for (unsigned i = 0; i < 16; i++) {
        uint64_t at = i * (32u << 10);

        submit(x, PMS_DP_DISK_READ, 3, at, 32 << 10, 0);
        wait_all(x);
        for (unsigned k = 0; k < 32 << 10; k++)
            assert_int_equal(x->buf->data[k], at + k >= offset && at + k < offset + length ? 0 : 0xab);
    }
}

static void test_disk_when_zeroed_then_exactly_that_range_is_zero(void **state)
{
    struct fixture *x = *state;

    fill_and_zero(x, 8192, 320 << 10);        /* whole blocks */
    fill_and_zero(x, 512, (320 << 10) + 512); /* not: more than one piece of zeros */
    fill_and_zero(x, 4096, 4096);
    x->disk.zeroes_badly = true; /* as a file system that knows no ZERO_RANGE */
    fill_and_zero(x, 8192, 320 << 10);
    assert_int_equal(x->disk.zeroings, 4);
    assert_int_equal(x->disk.errors, 0);
}

/* A memfd knows no ZERO_RANGE. */
static void test_disk_when_ranges_cannot_be_zeroed_then_zeros_are_written(void **state)
{
    struct fixture *x = *state;
    int file = x->disk.fd, fd = memfd_create("disk", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 512 << 10), 0);
    x->disk.fd = fd;
    fill_and_zero(x, 8192, 320 << 10);
    assert_true(x->disk.zeroes_badly);
    x->disk.fd = file;
    close(fd);
}

static void test_disk_when_read_across_the_end_then_it_is_an_io_error(void **state)
{
    struct fixture *x = *state;

    submit(x, PMS_DP_DISK_READ, 1, (64 << 10) - 4096, 8192, 0);
    submit(x, PMS_DP_DISK_READ, 2, 1 << 20, 512, 0);
    wait_all(x);
    assert_int_equal(x->status[1], -EIO);
    assert_int_equal(x->status[2], -EIO);
    assert_int_equal(x->disk.errors, 2);
}

static void test_disk_when_the_file_cannot_be_written_then_the_error_is_reported(void **state)
{
    struct fixture *x = *state;
    int fd = x->disk.fd;

    x->disk.fd = open(x->path, O_RDONLY);
    submit(x, PMS_DP_DISK_WRITE, 1, 0, 4096, 0);
    wait_all(x);
    assert_int_equal(x->status[1], -EBADF);
    close(x->disk.fd);
    x->disk.fd = fd;
}

static void test_disk_when_a_transfer_is_cut_short_then_the_rest_follows(void **state)
{
    struct fixture *x = *state;
    int fd = x->disk.fd, pipe_fd[2];

    /* A pipe gives what it has: 3 reads of one request. */
    assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
    x->disk.fd = pipe_fd[0];
    pms_disk_submit(&x->disk, PMS_DP_DISK_READ, 1, (uint64_t)-1, 12, pms_iobuf_ref(x->buf), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(x->done, 0);
        assert_int_equal(write(pipe_fd[1], &"abcdefghijkl"[4 * i], 4), 4);
        assert_int_equal(pms_uring_wait(&x->uring, 100000000), 0);
        pms_uring_complete(&x->uring);
    }
    wait_all(x);
    assert_int_equal(x->status[1], 0);
    assert_memory_equal(x->buf->data, "abcdefghijkl", 12);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    x->disk.fd = fd;
}

static void test_disk_when_many_requests_are_queued_then_all_are_done(void **state)
{
    struct fixture *x = *state;

    for (unsigned round = 0; round < 40; round++) { /* more than there are submission entries */
        for (unsigned i = 0; i < 32; i++)
            submit(x, i % 2 ? PMS_DP_DISK_READ : PMS_DP_DISK_WRITE, i, i * 512, 512, i * 512);
    }
    wait_all(x);
    assert_int_equal(x->done, 40 * 32);
    assert_int_equal(x->disk.errors, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_disk_when_written_and_flushed_then_it_reads_back),
        TEST(test_disk_when_zeroed_then_exactly_that_range_is_zero),
        TEST(test_disk_when_ranges_cannot_be_zeroed_then_zeros_are_written),
        TEST(test_disk_when_read_across_the_end_then_it_is_an_io_error),
        TEST(test_disk_when_the_file_cannot_be_written_then_the_error_is_reported),
        TEST(test_disk_when_a_transfer_is_cut_short_then_the_rest_follows),
        TEST(test_disk_when_many_requests_are_queued_then_all_are_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
