// SPDX-License-Identifier: GPL-2.0-or-later
// Bricks on disk: made zero and whole or not at all, locked, recognised, and refused where they do not
// belong.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "datapath/io/brick.h"

#define SIZE (8u << 20)

struct fixture {
    char dir[64], path[96];
    struct pms_dp_init init;
    struct pms_brick_id id;
    uint64_t there;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);

    strcpy(x->dir, "/var/tmp/test_brick.XXXXXX"); /* /tmp may know no O_DIRECT */
    if (mkdtemp(x->dir) == NULL)
        return -1;
    snprintf(x->path, sizeof x->path, "%s/brick", x->dir);
    x->init = (struct pms_dp_init){.array = 0xa1, .self_node = 0xb1, .self_slot = 1, .size_bytes = SIZE};
    x->init.region_bytes = PMS_REGION_BYTES;
    x->init.boot_id = 1;
    x->init.fresh_incarnation = 2;
    x->init.timing = pms_dp_timing_default;
    x->id = (struct pms_brick_id){.path = x->path, .init = &x->init};
    memset(x->id.cluster_uuid.b, 0xc1, sizeof x->id.cluster_uuid.b);
    memcpy(&x->init.cluster, x->id.cluster_uuid.b, sizeof x->init.cluster);
    *state = x;
    return 0;
}

/* Where a creation works until it is done. */
static void new_path(const struct fixture *x, char *out, size_t size)
{
    snprintf(out, size, "%s.%016llx.new", x->path, (unsigned long long)x->id.init->array);
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    char other[128];

    unlink(x->path);
    new_path(x, other, sizeof other);
    unlink(other);
    if (rmdir(x->dir) != 0)
        return -1; /* something was left behind */
    free(x);
    return 0;
}

static void create(struct fixture *x)
{
    assert_int_equal(pms_brick_create(&x->id, 77, false, NULL, NULL, NULL, &x->there), 0);
}

static int try_open(struct fixture *x)
{
    struct pms_brick b;
    int rc = pms_brick_open(&x->id, 0, NULL, &b);

    if (rc == 0) {
        free(b.area);
        close(b.fd);
    }
    return rc;
}

static void file_write(const char *path, size_t size, size_t at, const char *text)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)at), (ssize_t)strlen(text));
    close(fd);
}

static void test_brick_when_created_then_it_is_preallocated_zero_and_opens(void **state)
{
    struct fixture *x = *state;
    struct pms_brick b;
    struct pms_dp *dp;
    struct stat st;
    uint8_t *data = malloc(SIZE);

    create(x);
    assert_int_equal(stat(x->path, &st), 0);
    assert_int_equal(st.st_size, PMS_BRICK_DATA_OFFSET + SIZE);
    assert_true((uint64_t)st.st_blocks * 512 >= PMS_BRICK_DATA_OFFSET + SIZE);
    assert_int_equal(st.st_mode & 077, 0);
    assert_int_equal(pms_brick_open(&x->id, 0, NULL, &b), 0);
    assert_int_equal(b.incarnation, 77);
    assert_int_equal(pms_dp_create(&x->init, x->id.cluster_uuid.b, b.area, 1, &dp), 0);
    pms_dp_destroy(dp);
    if (b.direct)
        assert_true((fcntl(b.fd, F_GETFL) & O_DIRECT) != 0);
    free(b.area);
    close(b.fd);

    int fd = open(x->path, O_RDONLY);

    assert_int_equal(pread(fd, data, SIZE, PMS_BRICK_DATA_OFFSET), SIZE);
    assert_true(data[0] == 0 && memcmp(data, data + 1, SIZE - 1) == 0);
    close(fd);
    free(data);
}

static void test_brick_when_created_again_then_it_is_found(void **state)
{
    struct fixture *x = *state;

    create(x);
    assert_int_equal(pms_brick_create(&x->id, 99, false, NULL, NULL, NULL, &x->there), PMS_EEXISTS);
    assert_int_equal(x->there, 77);
}

static void test_brick_when_a_creation_crashed_before_then_it_starts_over(void **state)
{
    struct fixture *x = *state;
    char left[128];

    new_path(x, left, sizeof left);
    file_write(left, 5u << 20, 12345, "half a brick");
    create(x);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(try_open(x), 0);
}

static void test_brick_when_files_of_others_lie_beside_it_then_they_stay(void **state)
{
    struct fixture *x = *state;
    char beside[128], back[8] = "";
    int fd;

    snprintf(beside, sizeof beside, "%s.new", x->path);
    file_write(beside, 4096, 0, "theirs");
    create(x);
    fd = open(beside, O_RDONLY);
    assert_int_equal(pread(fd, back, 6, 0), 6);
    assert_string_equal(back, "theirs");
    close(fd);
    unlink(beside);
    assert_int_equal(try_open(x), 0);
}

static void test_brick_when_a_link_lies_where_it_is_made_then_not_followed(void **state)
{
    struct fixture *x = *state;
    char at[128], target[128];

    new_path(x, at, sizeof at);
    snprintf(target, sizeof target, "%s/theirs", x->dir);
    file_write(target, 4096, 0, "theirs");
    assert_int_equal(symlink(target, at), 0);
    assert_int_equal(pms_brick_create(&x->id, 77, false, NULL, NULL, NULL, &x->there), -ELOOP);

    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 4096);
    unlink(target);
}

static void test_brick_when_a_folder_is_at_its_path_then_refused_and_left_alone(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(mkdir(x->path, 0700), 0);
    assert_int_equal(pms_brick_create(&x->id, 77, false, NULL, NULL, NULL, &x->there), -EISDIR);
    assert_int_equal(pms_brick_delete(&x->id), PMS_EREFUSED);
    assert_int_equal(rmdir(x->path), 0);
}

static void test_brick_when_the_file_is_foreign_then_it_is_refused_and_unharmed(void **state)
{
    struct fixture *x = *state;
    char back[16] = "";
    int fd;

    file_write(x->path, PMS_BRICK_DATA_OFFSET + SIZE, 1080, "somebody's");
    assert_int_equal(try_open(x), PMS_EREFUSED);
    assert_int_equal(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there), PMS_EREFUSED);
    assert_int_equal(pms_brick_delete(&x->id), PMS_EREFUSED);
    fd = open(x->path, O_RDONLY);
    assert_int_equal(pread(fd, back, 10, 1080), 10);
    assert_string_equal(back, "somebody's");
    close(fd);
}

static void test_brick_when_the_file_is_short_or_empty_then_it_is_refused(void **state)
{
    struct fixture *x = *state;

    file_write(x->path, 100, 0, "notes");
    assert_int_equal(try_open(x), PMS_EREFUSED);
    assert_int_equal(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there), PMS_EREFUSED);
    file_write(x->path, 0, 0, "");
    assert_int_equal(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there), PMS_EREFUSED);
}

static void test_brick_when_it_belongs_elsewhere_then_its_identity_is_refused(void **state)
{
    struct fixture *x = *state;
    const struct pms_dp_init init = x->init;

    create(x);
    x->init.array++;
    assert_int_equal(try_open(x), PMS_EIDENTITY);
    x->init = init;
    x->init.self_node++;
    assert_int_equal(try_open(x), PMS_EIDENTITY);
    x->init = init;
    x->init.self_slot = 0;
    assert_int_equal(try_open(x), PMS_EIDENTITY);
    x->init = init;
    x->init.size_bytes -= PMS_REGION_BYTES;
    assert_int_equal(try_open(x), PMS_EIDENTITY);
    x->init = init;
    x->id.cluster_uuid.b[15]++; /* beyond the 8 bytes that frames carry */
    assert_int_equal(try_open(x), PMS_EIDENTITY);
    assert_int_equal(pms_brick_delete(&x->id), PMS_EIDENTITY);
    assert_int_equal(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there), PMS_EIDENTITY);
    x->id.cluster_uuid.b[15]--;
    assert_int_equal(try_open(x), 0);
}

static void test_brick_when_damaged_or_cut_then_it_is_corrupt(void **state)
{
    struct fixture *x = *state;

    create(x);
    assert_int_equal(truncate(x->path, PMS_BRICK_DATA_OFFSET + SIZE - 512), 0);
    assert_int_equal(try_open(x), PMS_ECORRUPT);
    assert_int_equal(truncate(x->path, PMS_BRICK_DATA_OFFSET + SIZE), 0);
    assert_int_equal(try_open(x), 0);
    /* Both superblocks keep their mark and lose a byte. */
    for (off_t at = 40; at < 8192; at += 4096) {
        int fd = open(x->path, O_RDWR);
        uint8_t byte;

        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    assert_int_equal(try_open(x), PMS_ECORRUPT);
}

static void test_brick_when_no_file_is_there_then_open_says_so_and_delete_is_content(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(try_open(x), -ENOENT);
    assert_int_equal(pms_brick_delete(&x->id), 0);
    create(x);
    assert_int_equal(pms_brick_delete(&x->id), 0);
    assert_int_equal(try_open(x), -ENOENT);
    x->id.path = x->dir;
    assert_int_equal(try_open(x), -EINVAL);
    x->id.path = "no/such/dir/brick";
    assert_int_equal(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there), -ENOENT);
}

static void test_brick_when_space_is_short_then_nothing_is_left(void **state)
{
    struct fixture *x = *state;

    x->init.size_bytes = 1ull << 45; /* beyond any file of ext4, and any disk here */
    assert_true(pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there) < 0);
    assert_int_equal(access(x->path, F_OK), -1); /* teardown finds PATH.new, if it was left */
}

static void test_brick_when_cancelled_then_opening_gives_up(void **state)
{
    struct fixture *x = *state;
    atomic_bool cancel = true;
    struct pms_brick b, c;

    create(x);
    assert_int_equal(pms_brick_open(&x->id, 0, NULL, &b), 0);
    assert_int_equal(pms_brick_open(&x->id, 60000, &cancel, &c), -ECANCELED);
    close(b.fd);
    free(b.area);
}

static void *release_later(void *arg)
{
    usleep(200000);
    close(*(int *)arg);
    return NULL;
}

static void test_brick_when_locked_then_open_waits_for_the_old_holder(void **state)
{
    struct fixture *x = *state;
    struct pms_brick b, c;
    pthread_t thread;
    uint64_t since;

    create(x);
    assert_int_equal(pms_brick_open(&x->id, 0, NULL, &b), 0);
    assert_int_equal(pms_brick_open(&x->id, 50, NULL, &c), PMS_EBUSY);
    assert_int_equal(pms_brick_delete(&x->id), PMS_EBUSY);
    since = pms_clock_boot_ns();
    assert_int_equal(pthread_create(&thread, NULL, release_later, &b.fd), 0);
    assert_int_equal(pms_brick_open(&x->id, 5000, NULL, &c), 0);
    assert_true(pms_clock_boot_ns() - since >= 150000000ull);
    pthread_join(thread, NULL);
    free(b.area);
    free(c.area);
    close(c.fd);
}

/* ---- a block device, where loop devices can be had ---- */

static int run(const char *format, const char *arg, char *out, size_t size)
{
    char cmd[256];
    FILE *f;

    snprintf(cmd, sizeof cmd, format, arg);
    f = popen(cmd, "r");
    if (f == NULL || fgets(out, (int)size, f) == NULL)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return f == NULL ? -1 : pclose(f);
}

static void test_brick_when_on_a_device_then_foreign_data_is_refused_and_an_empty_one_is_taken(void **state)
{
    struct fixture *x = *state;
    char dev[64], none[8], old[96];
    int fd;

    file_write(x->path, PMS_BRICK_DATA_OFFSET + SIZE + (4u << 20), 6u << 20, "left over in the middle");
    if (geteuid() != 0 || run("losetup --find --show %s 2>/dev/null", x->path, dev, sizeof dev) != 0)
        skip();
    strcpy(old, x->path);
    x->id.path = dev;
    fd = open(dev, O_RDWR);
    assert_int_equal(pwrite(fd, "ext4 perhaps", 12, 1080), 12);
    fsync(fd);
    close(fd);
    int foreign = pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there);

    fd = open(dev, O_RDWR);
    assert_int_equal(pwrite(fd, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, 1080), 12);
    fsync(fd);
    close(fd);
    int made = pms_brick_create(&x->id, 5, false, NULL, NULL, NULL, &x->there);
    int opened = try_open(x);
    char text[32] = "";

    fd = open(dev, O_RDONLY);
    ssize_t n = pread(fd, text, 23, 6 << 20);
    close(fd);
    int deleted = pms_brick_delete(&x->id);
    int again = try_open(x);

    run("losetup --detach %s", dev, none, sizeof none);
    assert_int_equal(foreign, PMS_EREFUSED);
    assert_int_equal(made, 0);
    assert_int_equal(opened, 0);
    assert_int_equal(n, 23);
    assert_int_equal(text[0], 0); /* zeroed, also where nobody looked before */
    assert_int_equal(deleted, 0);
    assert_int_equal(again, PMS_ECORRUPT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_brick_when_created_then_it_is_preallocated_zero_and_opens),
        TEST(test_brick_when_created_again_then_it_is_found),
        TEST(test_brick_when_a_creation_crashed_before_then_it_starts_over),
        TEST(test_brick_when_files_of_others_lie_beside_it_then_they_stay),
        TEST(test_brick_when_a_link_lies_where_it_is_made_then_not_followed),
        TEST(test_brick_when_a_folder_is_at_its_path_then_refused_and_left_alone),
        TEST(test_brick_when_the_file_is_foreign_then_it_is_refused_and_unharmed),
        TEST(test_brick_when_the_file_is_short_or_empty_then_it_is_refused),
        TEST(test_brick_when_it_belongs_elsewhere_then_its_identity_is_refused),
        TEST(test_brick_when_damaged_or_cut_then_it_is_corrupt),
        TEST(test_brick_when_no_file_is_there_then_open_says_so_and_delete_is_content),
        TEST(test_brick_when_space_is_short_then_nothing_is_left),
        TEST(test_brick_when_cancelled_then_opening_gives_up),
        TEST(test_brick_when_locked_then_open_waits_for_the_old_holder),
        TEST(test_brick_when_on_a_device_then_foreign_data_is_refused_and_an_empty_one_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
