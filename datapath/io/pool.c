// SPDX-License-Identifier: GPL-2.0-or-later
// Free lists by power-of-two class. Freed buffers are kept up to KEEP_BYTES, so that steady traffic never
// maps memory.
#include "datapath/io/pool.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/limits.h"

#define CLASS_MIN  4096u
#define KEEP_BYTES (64u << 20)

PMS_STATIC_ASSERT((CLASS_MIN << (PMS_POOL_CLASSES - 1)) == PMS_IO_BYTES_MAX,
                  "the largest class holds one payload");

struct pool_buf {
    struct pms_iobuf b;
    struct pms_pool *pool;
    struct pool_buf *next;
    unsigned class;
};

static unsigned class_of(uint32_t len)
{
    unsigned class = 0;

    while ((CLASS_MIN << class) < len)
        class ++;
    return class;
}

static void buf_free(struct pool_buf *p)
{
    free(p->b.data);
    free(p);
}

static void release(struct pms_iobuf *b)
{
    struct pool_buf *p = b->owner;
    struct pms_pool *pool = p->pool;
    uint32_t bytes = CLASS_MIN << p->class;

    PMS_CHECK(pool->used_bytes >= bytes);
    pool->used_bytes -= bytes;
    pool->released = true;
    if (pool->kept_bytes + bytes > KEEP_BYTES) {
        buf_free(p);
        return;
    }
    pool->kept_bytes += bytes;
    p->next = pool->free[p->class];
    pool->free[p->class] = p;
}

void pms_pool_init(struct pms_pool *pool, uint64_t cap_bytes)
{
    *pool = (struct pms_pool){.cap_bytes = cap_bytes};
}

void pms_pool_deinit(struct pms_pool *pool)
{
    PMS_CHECK_MSG(pool->used_bytes == 0, "%llu bytes still in use", (unsigned long long)pool->used_bytes);
    for (unsigned i = 0; i < PMS_POOL_CLASSES; i++) {
        while (pool->free[i] != NULL) {
            struct pool_buf *p = pool->free[i];

            pool->free[i] = p->next;
            buf_free(p);
        }
    }
    pool->kept_bytes = 0;
}

static struct pool_buf *buf_new(struct pms_pool *pool, unsigned class)
{
    struct pool_buf *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->b.data = aligned_alloc(CLASS_MIN, CLASS_MIN << class);
    if (p->b.data == NULL) {
        free(p);
        return NULL;
    }
    p->pool = pool;
    p->class = class;
    p->b.release = release;
    p->b.owner = p;
    return p;
}

struct pms_iobuf *pms_pool_get(struct pms_pool *pool, uint32_t len)
{
    PMS_CHECK(len > 0 && len <= PMS_IO_BYTES_MAX);

    unsigned class = class_of(len);
    uint32_t bytes = CLASS_MIN << class;
    struct pool_buf *p = pool->free[class];

    if (pool->used_bytes > 0 && pool->used_bytes + bytes > pool->cap_bytes)
        return NULL;
    if (p != NULL) {
        pool->free[class] = p->next;
        pool->kept_bytes -= bytes;
    } else {
        p = buf_new(pool, class);
        if (p == NULL)
            return NULL;
    }
    p->next = NULL;
    p->b.len = len;
    p->b.refs = 1;
    pool->used_bytes += bytes;
    if (pool->used_bytes > pool->used_bytes_max)
        pool->used_bytes_max = pool->used_bytes;
    return &p->b;
}
