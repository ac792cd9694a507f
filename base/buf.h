// SPDX-License-Identifier: GPL-2.0-or-later
// Growing byte buffer with a consumed front: stream reassembly and text building.
#ifndef PMS_BASE_BUF_H
#define PMS_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

// The bytes are data[0..len); all-zero is a valid empty buffer.
struct pms_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
};

void pms_buf_init(struct pms_buf *b);
// Frees; the buffer is empty and usable again afterwards.
void pms_buf_deinit(struct pms_buf *b);
// Makes room for n more bytes after len: 0 or -ENOMEM. The caller may fill data[len..len+n) and raise len.
int pms_buf_reserve(struct pms_buf *b, size_t n);
int pms_buf_append(struct pms_buf *b, const void *data, size_t n);
// Appends text; data[len] is NUL afterwards (not counted in len).
__attribute__((format(printf, 2, 3))) int pms_buf_printf(struct pms_buf *b, const char *fmt, ...);
// Drops the first n (at most len) bytes.
void pms_buf_consume(struct pms_buf *b, size_t n);

#endif
