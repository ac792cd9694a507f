// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LD_PRELOAD for tgtd. Its compiled-in folder of backing stores becomes $PMS_PLUGIN_DIR: so the packaged
 * program loads our plugin from where we keep it, without a mount and without writing below /usr/lib. And
 * with $PMS_PLUGIN_LISTEN_FD, binding to that listener's address gives the listener itself, and binding to
 * any other Internet address fails: so connections wait in pmsd's listener while tgtd is started anew, and
 * the wildcard, which tgtd falls back to, is out of reach.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STORES "/usr/lib/tgt/backing-store"

/* path if it lies outside the folder; else where it is instead, written to buf. NULL: does not fit. */
static const char *redirect(const char *path, char buf[PATH_MAX])
{
    const char *dir = getenv("PMS_PLUGIN_DIR");
    size_t len = sizeof(STORES) - 1;

    if (!dir || !path || strncmp(path, STORES, len) != 0 || (path[len] != 0 && path[len] != '/'))
        return path;
    return snprintf(buf, PATH_MAX, "%s%s", dir, path + len) < PATH_MAX ? buf : NULL;
}

DIR *opendir(const char *path)
{
    DIR *(*real)(const char *);
    char buf[PATH_MAX];
    const char *to = redirect(path, buf);

    *(void **)&real = dlsym(RTLD_NEXT, "opendir");
    return real && to ? real(to) : NULL;
}

void *dlopen(const char *path, int flags)
{
    void *(*real)(const char *, int);
    char buf[PATH_MAX];
    const char *to = redirect(path, buf);

    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return real && (to || !path) ? real(to, flags) : NULL;
}

static bool addr_equal(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;

        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    } else {
        const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

        return a6->sin6_port == b6->sin6_port && memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) == 0;
    }
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t);
    const char *listener = getenv("PMS_PLUGIN_LISTEN_FD");
    struct sockaddr_storage own;
    socklen_t own_len = sizeof(own);

    *(void **)&real = dlsym(RTLD_NEXT, "bind");
    if (!listener || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
        return real(fd, addr, len);
    if (getsockname(atoi(listener), (struct sockaddr *)&own, &own_len) == 0 && own_len <= len &&
        addr_equal((struct sockaddr *)&own, addr))
        return dup2(atoi(listener), fd) < 0 ? -1 : 0;
    errno = EADDRNOTAVAIL;
    return -1;
}
