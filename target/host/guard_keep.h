// SPDX-License-Identifier: GPL-2.0-or-later
// What a guard does after pmsd's end: it keeps the processes that pmsd left, for a while, for the next pmsd.
#ifndef PMS_TARGET_HOST_GUARD_KEEP_H
#define PMS_TARGET_HOST_GUARD_KEEP_H

#include <stdbool.h>
#include <stdbool.h>
#include "base/list.h"
#include "target/host/guard_msg.h"

struct pms_guard_kept {
    struct pms_list link;
    struct pms_guard_msg msg;
    int fds[PMS_GUARD_FDS];
    bool over; // ended, killed or taken by another pmsd
};

// The socket at which the next pmsd asks; nobody is answered before pms_guard_keep. The descriptor or -errno.
int pms_guard_keep_listen(const char *path);
// Kills those without tenure at once, the others after PMS_GUARD_KEEP_MS unless another pmsd has taken them.
// Returns when there is none left; the list is empty then.
void pms_guard_keep(int listen_fd, struct pms_list *kept);
void pms_guard_kept_free(struct pms_guard_kept *k);

#endif
