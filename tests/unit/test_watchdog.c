// SPDX-License-Identifier: GPL-2.0-or-later
// A loop that does not turn ends the process, and says where; a stopped process is no stuck loop.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/watchdog.h"

#define MS       1000000ull
#define LIMIT_MS 1500

static void nap(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&t, NULL);
}

static void only_time_that_was_watched_counts(void **state)
{
    struct pms_pulse p = {0};
    int looks = 0;

    (void)state;
    pms_pulse_begin(&p, "test", 1000);
    assert_false(pms_pulse_look(&p, 100 * MS));
    assert_false(pms_pulse_look(&p, 20000 * MS)); /* the watchdog was stopped too */
    while (!pms_pulse_look(&p, 100 * MS))
        looks++;
    assert_int_equal(looks, 8); /* 200 ms counted, then 100 each; more than 1000 is stuck */
    pms_pulse_beat(&p, "something");
    assert_false(pms_pulse_look(&p, 100 * MS));
    assert_false(pms_pulse_look(&p, 100 * MS));
    pms_pulse_end(&p);
}

/* A process with a watched loop that turns for turn_ms, then hangs for hang_ms. Its stderr: *out. */
static pid_t child_start(unsigned turn_ms, unsigned hang_ms, int *out)
{
    static struct pms_pulse p;
    struct rlimit no_core = {0, 0};
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        close(fds[1]);
        *out = fds[0];
        return pid;
    }
    signal(SIGABRT, SIG_DFL); /* cmocka has a handler */
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(fds[1], 2);
    pms_pulse_begin(&p, "test", LIMIT_MS);
    if (pms_watchdog_start(NULL) != 0)
        _exit(2);
    for (; turn_ms > 0; turn_ms -= 10) {
        pms_pulse_beat(&p, "turning");
        nap(10);
    }
    pms_pulse_doing(&p, "hanging");
    nap(hang_ms);
    pms_pulse_end(&p);
    pms_watchdog_stop();
    _exit(0);
}

static int child_status(pid_t pid, int out, char *text, size_t size)
{
    ssize_t n = read(out, text, size - 1);
    int status;

    text[n > 0 ? n : 0] = 0;
    close(out);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_stuck_loop_ends_the_process_and_says_where(void **state)
{
    char text[2048];
    int out, status;
    pid_t pid = child_start(100, 60000, &out);

    (void)state;
    status = child_status(pid, out, text, sizeof text);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "the test loop is stuck"));
    assert_non_null(strstr(text, "last seen with: hanging"));
}

static void a_stopped_process_is_not_stuck(void **state)
{
    char text[2048];
    int out, status;
    pid_t pid = child_start(1000, 0, &out);

    (void)state;
    nap(200);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    nap(LIMIT_MS * 2);
    assert_int_equal(kill(pid, SIGCONT), 0);
    status = child_status(pid, out, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_time_that_was_watched_counts),
        cmocka_unit_test(a_stuck_loop_ends_the_process_and_says_where),
        cmocka_unit_test(a_stopped_process_is_not_stuck),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
