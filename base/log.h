// SPDX-License-Identifier: GPL-2.0-or-later
// Log lines on stderr: `2026-11-30T20:58:29.123Z level ident: text`, one write(2) a line, from any thread.
#ifndef PMS_BASE_LOG_H
#define PMS_BASE_LOG_H

#include <stdint.h>

enum pms_log_level { PMS_LOG_DEBUG, PMS_LOG_INFO, PMS_LOG_WARN, PMS_LOG_ERROR };

// Call once before other threads start. ident is copied (31 bytes at most). Without it: "pms", PMS_LOG_INFO.
void pms_log_init(const char *ident, enum pms_log_level min);

// Lines above 1000 bytes are cut; control characters in the text (a peer may have sent them) become '?'.
// Keeps errno as it was.
__attribute__((format(printf, 2, 3))) void pms_log(enum pms_log_level level, const char *fmt, ...);

// An id as 16 hex digits for use as a %s argument. Per thread, valid until the fourth next call.
const char *pms_log_hexid(uint64_t id);

// "debug", "info", "warn", "error" to a level; PMS_EUSAGE for anything else.
int pms_log_level_parse(const char *text, enum pms_log_level *level);

#endif
