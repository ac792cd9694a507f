// SPDX-License-Identifier: GPL-2.0-or-later
// What happened, one line an event, for a person to read.
#include "tests/sim/story.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/sim/sim.h"

void story_line(const struct sim *sim, const char *fmt, ...)
{
    va_list ap;

    printf("[%10.3f] ", (double)sim->world.now / (double)SIM_MS);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

const char *story_frame_status(uint8_t status)
{
    static const char *const names[PMS_FRAME_STATUS_END] = {
        [PMS_FRAME_OK] = "",
        [PMS_FRAME_STALE] = " STALE",
        [PMS_FRAME_INCARNATION] = " INCARNATION",
        [PMS_FRAME_IO_ERROR] = " IO_ERROR",
        [PMS_FRAME_VETO] = " VETO",
        [PMS_FRAME_NOT_READY] = " NOT_READY",
    };

    return status < PMS_FRAME_STATUS_END && names[status] != NULL ? names[status] : " ?";
}
