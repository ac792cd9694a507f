// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of our own invariants: always on. Bad input, a bad peer or a bad disk is an error, never a check.
#ifndef PMS_BASE_CHECK_H
#define PMS_BASE_CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PMS_STATIC_ASSERT(cond, text) _Static_assert(cond, text)

// Prints where and what to stderr and aborts. The text is for the person who reads the core dump.
__attribute__((noreturn, cold, format(printf, 4, 5))) static inline void
pms_check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s:%d: invariant broken: %s: ", file, line, cond);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

#define PMS_CHECK_MSG(cond, ...)                                                                             \
    do {                                                                                                     \
        if (__builtin_expect(!(cond), 0))                                                                    \
            pms_check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);                                        \
    } while (0)

#define PMS_CHECK(cond) PMS_CHECK_MSG(cond, "in %s", __func__)

#endif
