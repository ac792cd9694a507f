// SPDX-License-Identifier: GPL-2.0-or-later
// A dispatch table of the API, and finding the line of it that fits a request.
#ifndef PMS_CMD_PMSD_ROUTE_H
#define PMS_CMD_PMSD_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

struct pms_req;

// A "*" in the path stands for one element that is not empty; there is at most one.
struct pms_route {
    const char *method;
    const char *path;
    void (*handler)(struct pms_req *req);
    bool member; // refused while this node is in no cluster
};

// The first line that fits. NULL: none, and *known_path says whether another method would have one. What "*"
// stood for goes to arg (size bytes; a longer element does not fit).
const struct pms_route *pms_route_match(const struct pms_route *routes, size_t n, const char *method,
                                        const char *path, char *arg, size_t size, bool *known_path);

#endif
