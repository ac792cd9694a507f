// SPDX-License-Identifier: GPL-2.0-or-later
// base/check: a broken invariant stops the process with a message, a kept one costs nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"

// Runs the check in a child; gives its wait status and what it wrote to stderr.
static int child_run(bool cond, char *text, size_t size)
{
    int fds[2], status;
    size_t got = 0;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        PMS_CHECK_MSG(cond, "slot %d", 3);
        _exit(0);
    }
    close(fds[1]);
    while (got < size - 1 && (n = read(fds[0], text + got, size - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_check_when_broken_then_message_and_abort(void **state)
{
    char text[512];
    int status = child_run(false, text, sizeof(text));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "test_check.c:"));
    assert_non_null(strstr(text, "invariant broken: cond: slot 3\n"));
}

static void test_check_when_kept_then_silent(void **state)
{
    char text[512];
    int status = child_run(true, text, sizeof(text));

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_string_equal(text, "");
}

static void test_check_then_condition_evaluated_once(void **state)
{
    int n = 0;

    (void)state;
    PMS_CHECK(++n == 1);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_when_broken_then_message_and_abort),
        cmocka_unit_test(test_check_when_kept_then_silent),
        cmocka_unit_test(test_check_then_condition_evaluated_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
