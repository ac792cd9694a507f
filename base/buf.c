// SPDX-License-Identifier: GPL-2.0-or-later
// Growing byte buffer.
#include "base/buf.h"
#include "base/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pms_buf_init(struct pms_buf *b)
{
    *b = (struct pms_buf){0};
}

void pms_buf_deinit(struct pms_buf *b)
{
    free(b->data);
    pms_buf_init(b);
}

int pms_buf_reserve(struct pms_buf *b, size_t n)
{
    size_t need, cap;
    uint8_t *data;

    if (b->cap - b->len >= n)
        return 0;
    if (n > SIZE_MAX / 4 || b->len > SIZE_MAX / 4)
        return -ENOMEM;
    need = b->len + n;
    cap = b->cap < 256 ? 256 : b->cap;
    while (cap < need)
        cap *= 2;
    data = realloc(b->data, cap);
    if (data == NULL)
        return -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

int pms_buf_append(struct pms_buf *b, const void *data, size_t n)
{
    int err = pms_buf_reserve(b, n);

    if (err != 0 || n == 0)
        return err;
    memcpy(b->data + b->len, data, n);
    b->len += n;
    return 0;
}

int pms_buf_printf(struct pms_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n, err;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -EINVAL;
    err = pms_buf_reserve(b, (size_t)n + 1);
    if (err != 0)
        return err;
    va_start(ap, fmt);
    vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void pms_buf_consume(struct pms_buf *b, size_t n)
{
    PMS_CHECK(n <= b->len);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}
