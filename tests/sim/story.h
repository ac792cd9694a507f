// SPDX-License-Identifier: GPL-2.0-or-later
// What happened, one line an event, for a person to read.
#ifndef PMS_TESTS_SIM_STORY_H
#define PMS_TESTS_SIM_STORY_H

#include <stdint.h>

struct sim;

// A line with the time in ms, if the run is told. The arguments are evaluated only then.
#define story(sim, ...)                                                                                      \
    do {                                                                                                     \
        if (__builtin_expect((sim)->verbose, 0))                                                             \
            story_line(sim, __VA_ARGS__);                                                                    \
    } while (0)

__attribute__((format(printf, 2, 3))) void story_line(const struct sim *sim, const char *fmt, ...);
const char *story_frame_status(uint8_t status); // " STALE" ..., "" for OK

#endif
