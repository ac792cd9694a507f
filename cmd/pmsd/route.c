// SPDX-License-Identifier: GPL-2.0-or-later
// Finding the line of a dispatch table that fits a request.
#include "cmd/pmsd/route.h"

#include <string.h>

static bool path_fits(const char *pattern, const char *path, char *arg, size_t size)
{
    size_t n;

    arg[0] = '\0';
    while (*pattern != '\0') {
        if (*pattern != '*') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        n = strcspn(path, "/");
        if (n == 0 || n >= size)
            return false;
        memcpy(arg, path, n);
        arg[n] = '\0';
        path += n;
        pattern++;
    }
    return *path == '\0';
}

const struct pms_route *pms_route_match(const struct pms_route *routes, size_t n, const char *method,
                                        const char *path, char *arg, size_t size, bool *known_path)
{
    *known_path = false;
    for (size_t i = 0; i < n; i++) {
        if (!path_fits(routes[i].path, path, arg, size))
            continue;
        if (strcmp(routes[i].method, method) == 0)
            return &routes[i];
        *known_path = true;
    }
    return NULL;
}
