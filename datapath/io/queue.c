// SPDX-License-Identifier: GPL-2.0-or-later
// Mutex, list and eventfd.
#include "datapath/io/queue.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

int pms_queue_init(struct pms_queue *q)
{
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->fd < 0)
        return -errno;
    pthread_mutex_init(&q->lock, NULL);
    pms_list_init(&q->items);
    return 0;
}

void pms_queue_deinit(struct pms_queue *q)
{
    PMS_CHECK(pms_list_empty(&q->items));
    pthread_mutex_destroy(&q->lock);
    close(q->fd);
}

void pms_queue_push(struct pms_queue *q, struct pms_list *item)
{
    bool was_empty;

    pthread_mutex_lock(&q->lock);
    was_empty = pms_list_empty(&q->items);
    pms_list_add_tail(&q->items, item);
    pthread_mutex_unlock(&q->lock);
    /* Not empty: whoever made it so has rung or is about to, and the reader pops until NULL after that. */
    if (was_empty)
        PMS_CHECK(eventfd_write(q->fd, 1) == 0 || errno == EAGAIN);
}

struct pms_list *pms_queue_pop(struct pms_queue *q)
{
    struct pms_list *item;

    pthread_mutex_lock(&q->lock);
    item = pms_list_pop(&q->items);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void pms_queue_clear(struct pms_queue *q)
{
    eventfd_t n;

    PMS_CHECK(eventfd_read(q->fd, &n) == 0 || errno == EAGAIN);
}
