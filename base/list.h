// SPDX-License-Identifier: GPL-2.0-or-later
// Intrusive doubly linked list: a ring through a head; the elements belong to the caller.
#ifndef PMS_BASE_LIST_H
#define PMS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct pms_list {
    struct pms_list *next;
    struct pms_list *prev;
};

#define PMS_LIST_INIT(name)                                                                                  \
    {                                                                                                        \
        &(name), &(name)                                                                                     \
    }

// Makes an empty head, or an element that is in no list (deleting such an element is harmless).
static inline void pms_list_init(struct pms_list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool pms_list_empty(const struct pms_list *head)
{
    return head->next == head;
}

static inline void pms_list_insert(struct pms_list *prev, struct pms_list *item, struct pms_list *next)
{
    item->prev = prev;
    item->next = next;
    prev->next = item;
    next->prev = item;
}

// The item must be in no list.
static inline void pms_list_add_tail(struct pms_list *head, struct pms_list *item)
{
    pms_list_insert(head->prev, item, head);
}

static inline void pms_list_add_head(struct pms_list *head, struct pms_list *item)
{
    pms_list_insert(head, item, head->next);
}

// Takes the item out and leaves it as pms_list_init does, so a second delete is harmless.
static inline void pms_list_del(struct pms_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    pms_list_init(item);
}

// Takes out and returns the first item, NULL if the list is empty.
static inline struct pms_list *pms_list_pop(struct pms_list *head)
{
    struct pms_list *item = head->next;

    if (item == head)
        return NULL;
    // As pms_list_del, written so that an analyzer sees that the head lets go of the item.
    head->next = item->next;
    head->next->prev = head;
    pms_list_init(item);
    return item;
}

// Moves all items of from to the tail of to, in order; from is empty afterwards.
static inline void pms_list_splice_tail(struct pms_list *to, struct pms_list *from)
{
    if (pms_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    pms_list_init(from);
}

// The struct of the given type whose given member is *ptr.
#define pms_list_entry(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

// it is a struct pms_list *; the body must not delete it.
#define pms_list_for_each(it, head) for (struct pms_list *it = (head)->next; it != (head); it = it->next)

// The body may delete it (but no other item).
#define pms_list_for_each_safe(it, head)                                                                     \
    for (struct pms_list *it = (head)->next, *it##_next = it->next; it != (head);                            \
         it = it##_next, it##_next = it->next)

#endif
