// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LD_PRELOAD for tgtd: its compiled-in folder of backing stores becomes $PMS_PLUGIN_DIR, nothing else
 * changes. So the packaged program loads our plugin from where we keep it, without a mount and without
 * writing below /usr/lib.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
