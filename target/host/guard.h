// SPDX-License-Identifier: GPL-2.0-or-later
// The guard: a small process that alone puts portal addresses on interfaces, and that takes them off the
// moment pmsd is gone, however it went. What pmsd left running it keeps for PMS_GUARD_KEEP_MS, so that a
// pmsd that is started meanwhile can go on with it (pms_guard_inherit); then it kills that. Without its pmsd
// a tgtd answers nobody: the plugin holds everything.
//
// pmsd talks to it over a socket pair; its end is the guard's life line. The guard does the blocking netlink
// calls, so pmsd's control loop never waits for the kernel's network lock. Each address carries a lifetime of
// seconds (PMS_ADDR_LIFETIME_S, unless set) in the kernel, renewed on pmsd's word every second: if pmsd is stopped, or the guard
// dies with it, the kernel drops the address. A guard that dies alone is started again with all it held.
#ifndef PMS_TARGET_HOST_GUARD_H
#define PMS_TARGET_HOST_GUARD_H

#include <net/if.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>

// A little longer than the plugin itself waits (PMS_PLUG_ORPHAN_MS): the guard is for those that hang.
#define PMS_GUARD_KEEP_MS 5500

// main() of pmsd: if argv[1] is this, return pms_guard_main(argc, argv) before anything else.
#define PMS_GUARD_ARG "--guard"
int pms_guard_main(int argc, char **argv);

struct pms_guard;
struct pms_guard_addr;
struct pms_guard_pid;

// Starts the guard by executing exe (NULL: this program) with PMS_GUARD_ARG. path: of its socket for the next
// pmsd (a guard of an earlier pmsd must have been asked before: its socket is replaced). 0 or -errno.
int pms_guard_open(uv_loop_t *loop, const char *exe, const char *path, struct pms_guard **guard);
// Ends the guard, which takes off, keeps or kills what is still registered, as at pmsd's death. cb (may be
// NULL) runs once when it is all done; if processes with a tenure are left, at once: the guard goes on
// without us. Entries still registered are freed, their callbacks do not run.
void pms_guard_close(struct pms_guard *guard, void (*cb)(void *arg), void *arg);
// The kernel's lifetime of all addresses from the next renewal on, at least 2 (they are renewed each second).
void pms_guard_lifetime_set(struct pms_guard *guard, unsigned lifetime_s);
// The guard's pid, for reports and tests.
pid_t pms_guard_pid(const struct pms_guard *guard);

// err: 0 or -errno; ifindex: where the address is.
typedef void (*pms_guard_cb)(void *arg, int err, unsigned ifindex);

// Puts addr/prefix_len on ifname (NULL: the interface with a subnet that contains it, -ENODEV if there is
// none), announces it to the neighbours, and keeps it there until del. listen_fd (-1: none) is duplicated
// into the guard, which keeps it open for as long as the address is up: so a SYN is never refused, even after
// pmsd and tgtd have died. cb runs with the outcome, and once more with -EADDRNOTAVAIL if the address goes
// away by itself afterwards (pmsd was stopped for longer than the lifetime, an operator removed it); it is
// not put back unasked, since another node may own it by then. 0: *out is to be given to pms_guard_addr_del,
// whatever cb says; else -errno, nothing is registered.
int pms_guard_addr_add(struct pms_guard *guard, const struct sockaddr_storage *addr, unsigned prefix_len,
                       const char *ifname, int listen_fd, pms_guard_cb cb, void *arg,
                       struct pms_guard_addr **out);
// Announces an address that is up once more.
void pms_guard_addr_announce(struct pms_guard_addr *a);
// Takes the address off. a is not valid any more and its first callback does not run any more. cb (may be
// NULL) runs once when the address is gone (err 0 also if it was not there).
void pms_guard_addr_del(struct pms_guard_addr *a, pms_guard_cb cb, void *arg);

// A process that is to end with pmsd, and what another pmsd needs to go on with it.
struct pms_guard_child {
    pid_t pid;
    int pidfd;
    int listen_fd, log_fd; // its listener, and the end of the pipe that its output comes out of; -1: none
    uint64_t array_id;
    uint64_t tenure; // whose business it does (the caller's own number); 0: of no use to another pmsd
    char ipc_path[108];
};

// Has the process killed when pmsd ends: at once without a tenure, else after PMS_GUARD_KEEP_MS. The
// descriptors are duplicated. 0 or -errno.
int pms_guard_pid_add(struct pms_guard *guard, const struct pms_guard_child *child,
                      struct pms_guard_pid **out);
void pms_guard_pid_tenure(struct pms_guard_pid *p, uint64_t tenure);
// After the process has gone. Frees p.
void pms_guard_pid_del(struct pms_guard_pid *p);

// Takes over what an earlier pmsd left, from its guard at path: *n of them, with their descriptors, in *list
// (to be freed, and each closed). Its addresses are off then. Blocks, at most some seconds. 0 (also if there
// is no such guard) or -errno: then they end by themselves.
int pms_guard_inherit(const char *path, struct pms_guard_child **list, unsigned *n);
void pms_guard_child_close(struct pms_guard_child *child);

#endif
