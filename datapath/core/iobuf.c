// SPDX-License-Identifier: GPL-2.0-or-later
// Reference-counted payload memory.
#include "datapath/core/iobuf.h"

#include <stdlib.h>

#include "base/check.h"

static void release_heap(struct pms_iobuf *b)
{
    free(b->data);
    free(b);
}

struct pms_iobuf *pms_iobuf_create(uint32_t len)
{
    struct pms_iobuf *b = calloc(1, sizeof *b);

    PMS_CHECK(b != NULL);
    b->data = aligned_alloc(4096, ((size_t)len + 4096) / 4096 * 4096);
    PMS_CHECK(b->data != NULL);
    b->len = len;
    b->refs = 1;
    b->release = release_heap;
    return b;
}

struct pms_iobuf *pms_iobuf_ref(struct pms_iobuf *b)
{
    PMS_CHECK(b->refs > 0);
    b->refs++;
    return b;
}

void pms_iobuf_put(struct pms_iobuf *b)
{
    if (b == NULL)
        return;
    PMS_CHECK(b->refs > 0);
    if (--b->refs == 0)
        b->release(b);
}
