// SPDX-License-Identifier: GPL-2.0-or-later
// base/log: one whole line a call, in the documented form, whatever the text and from whatever thread.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/log.h"

static FILE *capture;
static int saved_stderr;

static void capture_begin(void)
{
    capture = tmpfile();
    assert_non_null(capture);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(capture), STDERR_FILENO);
}

// Returns a file positioned at the start of what was logged; close it.
static FILE *capture_end(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(capture);
    return capture;
}

static void line_assert(const char *line, const char *pattern)
{
    regex_t re;

    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&re, line, 0, NULL, 0) != 0)
        fail_msg("'%s' does not match '%s'", line, pattern);
    regfree(&re);
}

static void test_log_then_line_in_documented_form(void **state)
{
    char line[2048];
    FILE *f;

    (void)state;
    pms_log_init("node-a", PMS_LOG_INFO);
    capture_begin();
    pms_log(PMS_LOG_DEBUG, "not shown");
    errno = EAGAIN;
    pms_log(PMS_LOG_WARN, "slot %d of %s", 3, pms_log_hexid(0xbeef));
    assert_int_equal(errno, EAGAIN);
    f = capture_end();
    assert_non_null(fgets(line, sizeof(line), f));
    line_assert(line, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z warn node-a: "
                      "slot 3 of 000000000000beef\n$");
    assert_null(fgets(line, sizeof(line), f));
    fclose(f);
}

static void test_log_when_long_or_hostile_text_then_one_line(void **state)
{
    char text[3000], line[4096];
    FILE *f;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture_begin();
    pms_log(PMS_LOG_ERROR, "a\nb\x1b[2J%s", text);
    f = capture_end();
    assert_non_null(fgets(line, sizeof(line), f));
    assert_non_null(strstr(line, ": a?b?[2Jxxx"));
    assert_true(strlen(line) > 1000 && strlen(line) < 1200);
    assert_null(fgets(line, sizeof(line), f));
    fclose(f);
}

static void *thread_main(void *arg)
{
    for (int i = 0; i < 200; i++)
        pms_log(PMS_LOG_INFO, "%s %s", (const char *)arg, pms_log_hexid((uint64_t)i));
    return NULL;
}

static void test_log_when_many_threads_then_lines_whole(void **state)
{
    pthread_t threads[4];
    char line[4096];
    int lines = 0;
    FILE *f;

    (void)state;
    capture_begin();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, "thread"), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    f = capture_end();
    while (fgets(line, sizeof(line), f) != NULL) {
        line_assert(line, "^[^ ]+Z info node-a: thread [0-9a-f]{16}\n$");
        lines++;
    }
    assert_int_equal(lines, 800);
    fclose(f);
}

static void test_log_hexid_then_four_at_once(void **state)
{
    const char *a = pms_log_hexid(1), *b = pms_log_hexid(2), *c = pms_log_hexid(3), *d = pms_log_hexid(4);

    (void)state;
    assert_string_equal(a, "0000000000000001");
    assert_string_equal(b, "0000000000000002");
    assert_string_equal(c, "0000000000000003");
    assert_string_equal(d, "0000000000000004");
}

static void test_log_level_when_parsed_then_known_names_only(void **state)
{
    enum pms_log_level level = PMS_LOG_ERROR;

    (void)state;
    assert_int_equal(pms_log_level_parse("debug", &level), 0);
    assert_int_equal(level, PMS_LOG_DEBUG);
    assert_int_equal(pms_log_level_parse("loud", &level), PMS_EUSAGE);
    assert_int_equal(level, PMS_LOG_DEBUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_then_line_in_documented_form),
        cmocka_unit_test(test_log_when_long_or_hostile_text_then_one_line),
        cmocka_unit_test(test_log_when_many_threads_then_lines_whole),
        cmocka_unit_test(test_log_hexid_then_four_at_once),
        cmocka_unit_test(test_log_level_when_parsed_then_known_names_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
