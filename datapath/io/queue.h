// SPDX-License-Identifier: GPL-2.0-or-later
// A queue between threads with an eventfd as its bell.
#ifndef PMS_DATAPATH_IO_QUEUE_H
#define PMS_DATAPATH_IO_QUEUE_H

#include <pthread.h>

#include "base/list.h"

/* Any thread pushes; one thread waits for fd, then clears it and pops until NULL. The items belong to the
 * users. */
struct pms_queue {
    pthread_mutex_t lock;
    struct pms_list items; /* under lock */
    int fd; /* eventfd, nonblocking: readable while something was pushed since the last clear */
};

int pms_queue_init(struct pms_queue *q);
/* The queue must be empty. */
void pms_queue_deinit(struct pms_queue *q);
void pms_queue_push(struct pms_queue *q, struct pms_list *item);
/* Oldest item or NULL. */
struct pms_list *pms_queue_pop(struct pms_queue *q);
void pms_queue_clear(struct pms_queue *q);

#endif
