// SPDX-License-Identifier: GPL-2.0-or-later
// base/util: what people type is read strictly; files are replaced whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/util.h"

static void test_size_when_valid_then_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"4096", 4096},
        {"1K", 1024},
        {"3m", 3u << 20},
        {"1G", 1u << 30},
        {"2GiB", 2ull << 30},
        {"2gib", 2ull << 30},
        {"1T", 1ull << 40},
        {"16777215T", 16777215ull << 40},
        {"18446744073709551615", UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 1;

        assert_int_equal(pms_size_parse(rows[i].text, &bytes), 0);
        assert_true(bytes == rows[i].bytes);
    }
}

static void test_size_when_garbage_then_refused_and_unchanged(void **state)
{
    static const char *const bad[] = {"",   "G",    "-1",   "+1",    " 1",  "1 ", "1GB",
                                      "1P", "1.5G", "0x10", "1GiBs", "1Gi", "1KK"};
    uint64_t bytes = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(pms_size_parse(bad[i], &bytes), -EINVAL);
    assert_int_equal(pms_size_parse("16777216T", &bytes), -ERANGE);
    assert_int_equal(pms_size_parse("18446744073709551616", &bytes), -ERANGE);
    assert_int_equal(bytes, 5);
}

static void test_addr_when_valid_then_canonical_text(void **state)
{
    static const struct {
        const char *text;
        const char *want;
        socklen_t len;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1:7470", sizeof(struct sockaddr_in)},
        {"10.0.0.1:1", "10.0.0.1:1", sizeof(struct sockaddr_in)},
        {"127.0.0.1:65535", "127.0.0.1:65535", sizeof(struct sockaddr_in)},
        {"fd00::1", "[fd00::1]:7470", sizeof(struct sockaddr_in6)},
        {"[fd00::1]", "[fd00::1]:7470", sizeof(struct sockaddr_in6)},
        {"[fd00:0:0::1]:80", "[fd00::1]:80", sizeof(struct sockaddr_in6)},
        {"::", "[::]:7470", sizeof(struct sockaddr_in6)},
    };
    char text[PMS_ADDR_TEXT_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_storage addr;

        assert_int_equal(pms_addr_parse(rows[i].text, 7470, &addr), 0);
        assert_string_equal(pms_addr_format(&addr, text), rows[i].want);
        assert_int_equal(pms_addr_len(&addr), rows[i].len);
    }
}

static void test_addr_when_garbage_then_refused_and_unchanged(void **state)
{
    static const char *const bad[] = {
        "",
        "localhost",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:x",
        "10.0.0.1:+1",
        "[10.0.0.1]:80",
        "[fd00::1",
        "[fd00::1]80",
        "[fd00::1]:",
        "fd00::1]",
        ":80",
        "10.0.0.1:80:90",
        "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000",
    };
    struct sockaddr_storage addr = {.ss_family = 77};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (pms_addr_parse(bad[i], 7470, &addr) != -EINVAL)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(addr.ss_family, 77);
    }
}

static void test_clock_then_goes_forward(void **state)
{
    uint64_t before = pms_clock_boot_ns();

    (void)state;
    usleep(2000);
    assert_true(pms_clock_boot_ns() >= before + 2000000);
}

static int entries_count(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static void test_file_when_written_then_replaced_whole(void **state)
{
    char dir[] = "/tmp/pms-test-XXXXXX", path[64];
    struct stat st;
    void *data;
    size_t len;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/file", dir);
    assert_int_equal(pms_file_write_atomic(path, "longer text", 11, 0600), 0);
    assert_int_equal(pms_file_write_atomic(path, "short", 5, 0640), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(pms_file_read(path, 5, &data, &len), 0);
    assert_int_equal(len, 5);
    assert_string_equal(data, "short");
    free(data);
    assert_int_equal(entries_count(dir), 1);
    unlink(path);
    rmdir(dir);
}

static void test_file_when_impossible_then_error_and_nothing_left(void **state)
{
    char dir[] = "/tmp/pms-test-XXXXXX", path[64];
    void *data = NULL;
    size_t len = 9;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/none/file", dir);
    assert_int_equal(pms_file_write_atomic(path, "x", 1, 0600), -ENOENT);
    assert_int_equal(pms_file_read(path, 10, &data, &len), -ENOENT);
    // A directory cannot be replaced by a file: the temporary file must go.
    snprintf(path, sizeof(path), "%s/sub", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(pms_file_write_atomic(path, "x", 1, 0600), -EISDIR);
    assert_int_equal(entries_count(dir), 1);
    assert_null(data);
    assert_int_equal(len, 9);
    rmdir(path);
    rmdir(dir);
}

static void test_file_when_longer_than_limit_then_efbig(void **state)
{
    char dir[] = "/tmp/pms-test-XXXXXX", path[64];
    size_t len, size = 100000;
    uint8_t *big = malloc(size);
    void *data;

    (void)state;
    for (size_t i = 0; i < size; i++)
        big[i] = (uint8_t)(i * 7);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/file", dir);
    assert_int_equal(pms_file_write_atomic(path, big, size, 0600), 0);
    assert_int_equal(pms_file_read(path, size - 1, &data, &len), -EFBIG);
    assert_int_equal(pms_file_read(path, size, &data, &len), 0);
    assert_int_equal(len, size);
    assert_memory_equal(data, big, size);
    free(data);
    free(big);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_when_valid_then_bytes),
        cmocka_unit_test(test_size_when_garbage_then_refused_and_unchanged),
        cmocka_unit_test(test_addr_when_valid_then_canonical_text),
        cmocka_unit_test(test_addr_when_garbage_then_refused_and_unchanged),
        cmocka_unit_test(test_clock_then_goes_forward),
        cmocka_unit_test(test_file_when_written_then_replaced_whole),
        cmocka_unit_test(test_file_when_impossible_then_error_and_nothing_left),
        cmocka_unit_test(test_file_when_longer_than_limit_then_efbig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
