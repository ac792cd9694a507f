// SPDX-License-Identifier: GPL-2.0-or-later
// Who is the sick one, of two nodes that do not hear each other: the third nodes' votes.
#include "cmd/pmsd/links.h"

bool pms_links_verdict(const int *mine, const int *self, const int *peer, unsigned n)
{
    int votes = 0;

    for (unsigned i = 0; i < n; i++) {
        bool bad = mine[i] >= 0 && (mine[i] < PMS_LINKS_BAD || (self[i] >= 0 && self[i] < PMS_LINKS_BAD));

        if (mine[i] < 0)
            continue;
        if (!bad)
            votes--;
        else if (peer[i] >= PMS_LINKS_WELL)
            votes++;
    }
    return votes > 0;
}
