// SPDX-License-Identifier: GPL-2.0-or-later
// Child processes: what they get, how their end is told, and that nothing of them stays behind.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>
#include "target/host/proc.h"

struct child {
    struct pms_proc *proc;
    int exits;
    int status;
};

static void on_exit_status(void *arg, int status)
{
    struct child *c = arg;

    c->exits++;
    c->status = status;
    pms_proc_close(c->proc);
}

static int shell(uv_loop_t *loop, struct child *c, const char *script, const int *fds, unsigned n,
                 int output_fd)
{
    char text[256];
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, text, NULL};
    struct pms_proc_conf conf = {.exe = "/bin/sh",
                                 .argv = argv,
                                 .fds = fds,
                                 .fds_count = n,
                                 .output_fd = output_fd,
                                 .own_session = true};

    snprintf(text, sizeof(text), "%s", script);
    memset(c, 0, sizeof(*c));
    return pms_proc_open(loop, &conf, on_exit_status, c, &c->proc);
}

static void test_proc_when_it_ends_then_status_is_told(void **state)
{
    struct child a, b;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(shell(&loop, &a, "exit 7", NULL, 0, -1), 0);
    assert_int_equal(shell(&loop, &b, "exec sleep 1000", NULL, 0, -1), 0);
    pms_proc_kill(b.proc);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.exits, 1);
    assert_true(WIFEXITED(a.status) && WEXITSTATUS(a.status) == 7);
    assert_int_equal(b.exits, 1);
    assert_true(WIFSIGNALED(b.status) && WTERMSIG(b.status) == SIGKILL);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no zombie
}

__attribute__((unused)) static void test_proc_when_exec_fails_then_error_and_no_child(void **state)
{
    char *argv[] = {(char[]){"x"}, NULL};
    struct pms_proc_conf conf = {.exe = "/nonexistent/x", .argv = argv, .output_fd = -1};
    struct child c = {0};
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(pms_proc_open(&loop, &conf, on_exit_status, &c, &c.proc), -ENOENT);
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(c.exits, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

// The child's 3 and 4 are ours crosswise, whatever else is open stays out, and signals are as at birth.
static void test_proc_when_started_then_it_has_exactly_the_given(void **state)
{
    int fds[2], out[2], stray[2];
    struct child c;
    char text[256] = "";
    sigset_t block, old;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(pipe(stray), 0); // inheritable: not close-on-exec
    fds[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    fds[1] = open("/dev/full", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    sigprocmask(SIG_BLOCK, &block, &old);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(shell(&loop, &c,
                           "for i in 0 3 4; do readlink /proc/$$/fd/$i; done; ls /proc/$$/fd | wc -l;"
                           " grep -E 'Sig(Blk|Ign)' /proc/$$/status",
                           (int[]){fds[0], fds[1]}, 2, out[1]),
                     0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    close(out[1]);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(read(out[0], text, sizeof(text) - 1) > 0);
    unsigned long long blocked = 1, ignored = 1;
    char *signals = strstr(text, "SigBlk:");
    assert_non_null(signals);
    assert_int_equal(sscanf(signals, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
    *signals = '\0';
    assert_string_equal(text, "/dev/null\n/dev/zero\n/dev/full\n5\n");
    assert_true(blocked == 0);
    // 32 and 33 are the C library's own: nobody can set them, so they stay as whoever started us left them.
    assert_true((ignored & ~(3ull << 31)) == 0);
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(stray[i]);
    }
    close(out[0]);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

static void test_proc_when_closed_early_then_reaped_without_callback(void **state)
{
    struct child c;
    uv_loop_t loop;
    uv_timer_t alive; // a loop with nothing else to do would not look
    pid_t pid;

    (void)state;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &alive);
    uv_timer_start(&alive, on_tick, 1000, 1000);
    assert_int_equal(shell(&loop, &c, "exec sleep 0.1", NULL, 0, -1), 0);
    pid = pms_proc_pid(c.proc);
    pms_proc_close(c.proc);
    for (int i = 0; i < 200 && kill(pid, 0) == 0; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(10000);
    }
    uv_close((uv_handle_t *)&alive, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(c.exits, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proc_when_it_ends_then_status_is_told),
#ifndef __SANITIZE_THREAD__ // it makes a fork of the vfork, and the child's error cannot reach the parent
        cmocka_unit_test(test_proc_when_exec_fails_then_error_and_no_child),
#endif
        cmocka_unit_test(test_proc_when_started_then_it_has_exactly_the_given),
        cmocka_unit_test(test_proc_when_closed_early_then_reaped_without_callback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
