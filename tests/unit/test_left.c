// SPDX-License-Identifier: GPL-2.0-or-later
// What an earlier pmsd left: only a primary of the same tenure gets it, everything else is ended.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "cmd/pmsd/left.c"

#define NOW 1000000000ull

static struct pms_app app;

// Three processes: of array 1 in tenure 4, of array 1 in tenure 6, of array 2 in tenure 4.
static int setup(void **state)
{
    static const uint64_t of[3][2] = {{1, 4}, {1, 6}, {2, 4}};

    (void)state;
    memset(&app, 0, sizeof(app));
    app.left = calloc(3, sizeof(*app.left));
    app.left_until_ns = 2 * NOW;
    for (unsigned i = 0; i < 3; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            alarm(60);
            pause();
            _exit(0);
        }
        app.left[app.n_left++].child = (struct pms_guard_child){.pid = pid,
                                                                .pidfd = pidfd_open(pid, 0),
                                                                .listen_fd = -1,
                                                                .log_fd = -1,
                                                                .array_id = of[i][0],
                                                                .tenure = of[i][1]};
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pms_left_close(&app);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    return 0;
}

// How many of the three processes have been killed.
static int killed(void)
{
    int n = 0, status;

    usleep(50000);
    while (waitpid(-1, &status, WNOHANG) > 0)
        n += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return n;
}

static void test_left_when_taken_then_only_that_of_the_tenure_lives(void **state)
{
    struct pms_guard_child child;
    pid_t wanted = app.left[1].child.pid;

    (void)state;
    assert_true(pms_left_take(&app, 1, 6, &child));
    assert_int_equal(child.pid, wanted);
    assert_int_equal(killed(), 1);
    assert_int_equal(app.n_left, 1);
    assert_int_equal(app.left[0].child.array_id, 2);
    assert_false(pms_left_take(&app, 1, 6, &child)); // once
    kill(wanted, SIGKILL);
    pms_guard_child_close(&child);
}

static void test_left_when_another_was_primary_since_then_nothing_lives(void **state)
{
    struct pms_guard_child child;

    (void)state;
    assert_false(pms_left_take(&app, 1, 7, &child));
    assert_int_equal(killed(), 2);
    assert_int_equal(app.n_left, 1);
}

static void test_left_when_another_serves_or_time_is_over_then_killed(void **state)
{
    (void)state;
    pms_left_tick(&app, NOW);
    assert_int_equal(killed(), 0);
    pms_left_drop(&app, 2);
    assert_int_equal(killed(), 1);
    assert_int_equal(app.n_left, 2);
    pms_left_tick(&app, 2 * NOW);
    assert_int_equal(killed(), 2);
    assert_int_equal(app.n_left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_left_when_taken_then_only_that_of_the_tenure_lives, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_left_when_another_was_primary_since_then_nothing_lives, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_left_when_another_serves_or_time_is_over_then_killed, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
