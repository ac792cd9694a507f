// SPDX-License-Identifier: GPL-2.0-or-later
// Little-endian reading and writing with a bounds-checked cursor: errors stick, so one check at the end is
// enough.
#ifndef PMS_BASE_WIRE_H
#define PMS_BASE_WIRE_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Bare accessors, any alignment.
static inline void pms_put_u16(uint8_t *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof(v));
}

static inline void pms_put_u32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof(v));
}

static inline void pms_put_u64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof(v));
}

static inline uint16_t pms_get_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof(v));
    return le16toh(v);
}

static inline uint32_t pms_get_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

static inline uint64_t pms_get_u64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

// Writer over the caller's memory. err is 0, or -EMSGSIZE once something did not fit; then p moves no more.
struct pms_wr {
    uint8_t *p;
    uint8_t *end;
    int err;
};

// Reader over the caller's memory. err is 0, or -EMSGSIZE once something was missing; then every read gives
// 0.
struct pms_rd {
    const uint8_t *p;
    const uint8_t *end;
    int err;
};

static inline struct pms_wr pms_wr_over(void *buf, size_t len)
{
    return (struct pms_wr){.p = (uint8_t *)buf, .end = (uint8_t *)buf + len, .err = 0};
}

static inline struct pms_rd pms_rd_over(const void *buf, size_t len)
{
    return (struct pms_rd){.p = (const uint8_t *)buf, .end = (const uint8_t *)buf + len, .err = 0};
}

static inline void pms_wr_init(struct pms_wr *w, void *buf, size_t len)
{
    *w = pms_wr_over(buf, len);
}

static inline void pms_rd_init(struct pms_rd *r, const void *buf, size_t len)
{
    *r = pms_rd_over(buf, len);
}

static inline size_t pms_wr_left(const struct pms_wr *w)
{
    return (size_t)(w->end - w->p);
}

static inline size_t pms_rd_left(const struct pms_rd *r)
{
    return (size_t)(r->end - r->p);
}

// Whether n more bytes fit; sets err if not.
static inline bool pms_wr_fits(struct pms_wr *w, size_t n)
{
    if (w->err == 0 && pms_wr_left(w) >= n)
        return true;
    w->err = -EMSGSIZE;
    return false;
}

// Steps over n bytes and returns where they start, or NULL (and sets err) if there are fewer. The writer's
// bytes are as they were; the reader's are borrowed from the buffer.
static inline uint8_t *pms_wr_take(struct pms_wr *w, size_t n)
{
    uint8_t *p = w->p;

    if (!pms_wr_fits(w, n))
        return NULL;
    w->p += n;
    return p;
}

static inline const uint8_t *pms_rd_take(struct pms_rd *r, size_t n)
{
    const uint8_t *p = r->p;

    if (r->err != 0 || pms_rd_left(r) < n) {
        r->err = -EMSGSIZE;
        return NULL;
    }
    r->p += n;
    return p;
}

static inline void pms_wr_u8(struct pms_wr *w, uint8_t v)
{
    if (!pms_wr_fits(w, 1))
        return;
    *w->p = v;
    w->p += 1;
}

static inline void pms_wr_u16(struct pms_wr *w, uint16_t v)
{
    if (!pms_wr_fits(w, 2))
        return;
    pms_put_u16(w->p, v);
    w->p += 2;
}

static inline void pms_wr_u32(struct pms_wr *w, uint32_t v)
{
    if (!pms_wr_fits(w, 4))
        return;
    pms_put_u32(w->p, v);
    w->p += 4;
}

static inline void pms_wr_u64(struct pms_wr *w, uint64_t v)
{
    if (!pms_wr_fits(w, 8))
        return;
    pms_put_u64(w->p, v);
    w->p += 8;
}

static inline void pms_wr_bytes(struct pms_wr *w, const void *src, size_t n)
{
    uint8_t *p = pms_wr_take(w, n);

    if (p != NULL && n != 0)
        memcpy(p, src, n);
}

static inline void pms_wr_zero(struct pms_wr *w, size_t n)
{
    uint8_t *p = pms_wr_take(w, n);

    if (p != NULL && n != 0)
        memset(p, 0, n);
}

static inline uint8_t pms_rd_u8(struct pms_rd *r)
{
    const uint8_t *p = pms_rd_take(r, 1);

    return p != NULL ? *p : 0;
}

static inline uint16_t pms_rd_u16(struct pms_rd *r)
{
    const uint8_t *p = pms_rd_take(r, 2);

    return p != NULL ? pms_get_u16(p) : 0;
}

static inline uint32_t pms_rd_u32(struct pms_rd *r)
{
    const uint8_t *p = pms_rd_take(r, 4);

    return p != NULL ? pms_get_u32(p) : 0;
}

static inline uint64_t pms_rd_u64(struct pms_rd *r)
{
    const uint8_t *p = pms_rd_take(r, 8);

    return p != NULL ? pms_get_u64(p) : 0;
}

// Copies n bytes out; on error dst is zeroed, so that nothing uninitialized is ever looked at.
static inline void pms_rd_bytes(struct pms_rd *r, void *dst, size_t n)
{
    const uint8_t *p = pms_rd_take(r, n);

    if (n == 0)
        return;
    if (p != NULL)
        memcpy(dst, p, n);
    else
        memset(dst, 0, n);
}

static inline void pms_rd_skip(struct pms_rd *r, size_t n)
{
    (void)pms_rd_take(r, n);
}

#endif
