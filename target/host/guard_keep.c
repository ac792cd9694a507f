// SPDX-License-Identifier: GPL-2.0-or-later
// Both ends of handing on what an ended pmsd left: its guard, and the next pmsd.
//
//   next pmsd                        guard (after the end of its own pmsd, addresses are off)
//   connect                 ----->
//                           <-----   LEFT, once for each process, with pidfd, listener and log
//                           <-----   LEFT_END
//   TAKEN                   ----->   forgets them and ends
//
// Failures: the next pmsd dies before TAKEN, or is of another build: the guard goes on keeping. Nobody comes
// in time: they are killed. The guard is stuck: the next pmsd goes on without, and a tgtd that finds no pmsd
// ends by itself.
#include "target/host/guard_keep.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/util.h"
#include "target/host/guard.h"

#define ANSWER_MS 2000 // for each packet of the exchange
#define KEPT_POLL 64   // how many ends are noticed before the time is over

static void timeouts_set(int fd)
{
    struct timeval tv = {.tv_sec = ANSWER_MS / 1000, .tv_usec = ANSWER_MS % 1000 * 1000};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static int socket_make(const char *path, struct sockaddr_un *sa)
{
    int fd;

    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(sa->sun_path))
        return -ENAMETOOLONG;
    memcpy(sa->sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

// ---- The guard's end ----

void pms_guard_kept_free(struct pms_guard_kept *k)
{
    pms_list_del(&k->link);
    pms_guard_fds_close(k->fds);
    free(k);
}

int pms_guard_keep_listen(const char *path)
{
    struct sockaddr_un sa;
    int fd = socket_make(path, &sa);
    int err;

    if (fd < 0)
        return fd;
    unlink(path);
    // fchmod before bind gives the socket's file its mode: there is no moment with a wider one.
    if (fchmod(fd, 0600) == 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, 4) == 0)
        return fd;
    err = -errno;
    close(fd);
    return err;
}

static void over(struct pms_guard_kept *k, bool kill_it)
{
    if (kill_it && !k->over)
        pidfd_send_signal(k->fds[PMS_GUARD_FD_FIRST], SIGKILL, NULL, 0);
    k->over = true;
}

static void all_over(struct pms_list *kept, bool kill_them)
{
    pms_list_for_each (it, kept) {
        over(pms_list_entry(it, struct pms_guard_kept, link), kill_them);
    }
}

static void hand_over(int fd, struct pms_list *kept)
{
    struct pms_guard_msg end = {.op = PMS_GUARD_LEFT_END}, answer;
    int fds[PMS_GUARD_FDS];
    int err = 0;

    timeouts_set(fd);
    pms_list_for_each (it, kept) {
        struct pms_guard_kept *k = pms_list_entry(it, struct pms_guard_kept, link);

        if (k->over)
            continue;
        k->msg.op = PMS_GUARD_LEFT;
        if (!err)
            err = pms_guard_msg_send(fd, &k->msg, k->fds, 0);
        end.id++;
    }
    if (!err)
        err = pms_guard_msg_send(fd, &end, NULL, 0);
    if (err || pms_guard_msg_receive(fd, &answer, fds, 0) != 1) {
        pms_log(PMS_LOG_WARN, "another pmsd asked, and did not take what was left");
        return;
    }
    pms_guard_fds_close(fds);
    if (answer.op == PMS_GUARD_TAKEN)
        all_over(kept, false);
}

// Waits for somebody who asks (true) or for an end among the kept, until the deadline.
static bool wait_for_news(int listen_fd, const struct pms_list *kept, uint64_t deadline_ns)
{
    struct pollfd p[1 + KEPT_POLL] = {{.fd = listen_fd, .events = POLLIN}};
    uint64_t now_ns = pms_clock_boot_ns();
    nfds_t n = 1;

    pms_list_for_each (it, kept) {
        const struct pms_guard_kept *k = pms_list_entry(it, struct pms_guard_kept, link);

        if (!k->over && n < 1 + KEPT_POLL)
            p[n++] = (struct pollfd){.fd = k->fds[PMS_GUARD_FD_FIRST], .events = POLLIN};
    }
    if (now_ns < deadline_ns && poll(p, n, (int)((deadline_ns - now_ns) / 1000000) + 1) > 0)
        return (p[0].revents & POLLIN) != 0;
    return false;
}

// Ends what is of no use to another pmsd. True while there is something to keep.
static bool any_left(struct pms_list *kept)
{
    bool any = false;

    pms_list_for_each (it, kept) {
        struct pms_guard_kept *k = pms_list_entry(it, struct pms_guard_kept, link);
        struct pollfd ended = {.fd = k->fds[PMS_GUARD_FD_FIRST], .events = POLLIN};

        if (!k->over && (k->msg.tenure == 0 || poll(&ended, 1, 0) != 0))
            over(k, true);
        any = any || !k->over;
    }
    return any;
}

void pms_guard_keep(int listen_fd, struct pms_list *kept)
{
    uint64_t deadline_ns = pms_clock_boot_ns() + (listen_fd >= 0 ? PMS_GUARD_KEEP_MS : 0) * 1000000ull;

    while (any_left(kept) && pms_clock_boot_ns() < deadline_ns) {
        int fd =
            wait_for_news(listen_fd, kept, deadline_ns) ? accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC) : -1;

        if (fd >= 0) {
            hand_over(fd, kept);
            close(fd);
        }
    }
    all_over(kept, true);
    pms_list_for_each_safe (it, kept) {
        pms_guard_kept_free(pms_list_entry(it, struct pms_guard_kept, link));
    }
}

// ---- The next pmsd's end ----

static int child_take(const struct pms_guard_msg *msg, int fds[PMS_GUARD_FDS], struct pms_guard_child **list,
                      unsigned *n)
{
    struct pms_guard_child *grown;

    if (msg->op != PMS_GUARD_LEFT || fds[PMS_GUARD_FD_FIRST] < 0 ||
        !memchr(msg->ipc_path, 0, sizeof(msg->ipc_path)))
        return -EBADMSG;
    grown = realloc(*list, (*n + 1) * sizeof(**list));
    if (!grown)
        return -ENOMEM;
    *list = grown;
    grown[*n] = (struct pms_guard_child){.pid = (pid_t)msg->pid,
                                         .pidfd = fds[PMS_GUARD_FD_FIRST],
                                         .listen_fd = fds[PMS_GUARD_FD_LISTEN],
                                         .log_fd = fds[PMS_GUARD_FD_LOG],
                                         .array_id = msg->array_id,
                                         .tenure = msg->tenure};
    memcpy(grown[*n].ipc_path, msg->ipc_path, sizeof(msg->ipc_path));
    ++*n;
    return 0;
}

static int inherit(int fd, struct pms_guard_child **list, unsigned *n)
{
    struct pms_guard_msg msg, taken = {.op = PMS_GUARD_TAKEN};
    int fds[PMS_GUARD_FDS];
    int rv;

    for (;;) {
        rv = pms_guard_msg_receive(fd, &msg, fds, 0);
        if (rv != 1) {
            pms_guard_fds_close(fds);
            return rv == 0 ? -ECONNRESET : rv;
        }
        if (msg.op == PMS_GUARD_LEFT_END)
            break;
        rv = child_take(&msg, fds, list, n);
        if (rv != 0) {
            pms_guard_fds_close(fds);
            return rv;
        }
    }
    pms_guard_fds_close(fds);
    return msg.id == *n ? pms_guard_msg_send(fd, &taken, NULL, 0) : -EBADMSG;
}

void pms_guard_child_close(struct pms_guard_child *c)
{
    int fds[PMS_GUARD_FDS] = {c->pidfd, c->listen_fd, c->log_fd};

    pms_guard_fds_close(fds);
    c->pidfd = c->listen_fd = c->log_fd = -1;
}

int pms_guard_inherit(const char *path, struct pms_guard_child **list, unsigned *n)
{
    struct sockaddr_un sa;
    int fd = socket_make(path, &sa);
    int err;

    *list = NULL;
    *n = 0;
    if (fd < 0)
        return fd;
    timeouts_set(fd);
    err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 ? inherit(fd, list, n) : -errno;
    close(fd);
    if (err) {
        for (unsigned i = 0; i < *n; i++)
            pms_guard_child_close(&(*list)[i]);
        free(*list);
        *list = NULL;
        *n = 0;
    }
    return err == -ENOENT || err == -ECONNREFUSED ? 0 : err;
}
