// SPDX-License-Identifier: GPL-2.0-or-later
// For tests of what runs on a libuv loop: one loop, run until something is so.
#ifndef PMS_TESTS_UNIT_LOOP_FIXTURE_H
#define PMS_TESTS_UNIT_LOOP_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

static inline void loop_on_timeout(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static inline void loop_on_closed(uv_handle_t *handle)
{
    *(bool *)handle->data = true;
}

// Runs the loop until cond holds; false if it does not within timeout_ms.
#define loop_until(loop, cond, timeout_ms)                                                                   \
    ({                                                                                                       \
        uv_timer_t timer_;                                                                                   \
        bool timeout_ = false, closed_ = false, ok_;                                                         \
        uv_timer_init((loop), &timer_);                                                                      \
        timer_.data = &timeout_;                                                                             \
        uv_timer_start(&timer_, loop_on_timeout, (timeout_ms), 0);                                           \
        while (!(ok_ = (cond)) && !timeout_)                                                                 \
            uv_run((loop), UV_RUN_ONCE);                                                                     \
        timer_.data = &closed_;                                                                              \
        uv_close((uv_handle_t *)&timer_, loop_on_closed);                                                    \
        while (!closed_)                                                                                     \
            uv_run((loop), UV_RUN_ONCE);                                                                     \
        ok_;                                                                                                 \
    })

#endif
