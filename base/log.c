// SPDX-License-Identifier: GPL-2.0-or-later
// One line on stderr a call, written whole.
#include "base/log.h"
#include "base/err.h"
#include "base/id.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1100

static char log_ident[32] = "pms";
static enum pms_log_level log_min = PMS_LOG_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void pms_log_init(const char *ident, enum pms_log_level min)
{
    snprintf(log_ident, sizeof(log_ident), "%s", ident);
    log_min = min;
}

// Returns the length of the line's head.
static size_t head_format(char *line, size_t size, enum pms_log_level level)
{
    struct timespec now;
    struct tm tm;
    int n;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    n = (int)strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
    n += snprintf(line + n, size - (size_t)n, ".%03ldZ %s %s: ", now.tv_nsec / 1000000, level_names[level],
                  log_ident);
    return (size_t)n;
}

void pms_log(enum pms_log_level level, const char *fmt, ...)
{
    char line[LINE_BYTES];
    int saved = errno;
    size_t head, len;
    ssize_t wrote;
    va_list ap;
    int n;

    if (level < log_min)
        return;
    head = head_format(line, sizeof(line), level);
    va_start(ap, fmt);
    n = vsnprintf(line + head, sizeof(line) - head - 1, fmt, ap);
    va_end(ap);
    len = head + (n < 0 ? 0 : (size_t)n);
    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    for (size_t i = head; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    }
    line[len++] = '\n';
    // A log that cannot be written has nowhere to say so.
    do {
        wrote = write(STDERR_FILENO, line, len);
    } while (wrote < 0 && errno == EINTR);
    errno = saved;
}

const char *pms_log_hexid(uint64_t id)
{
    static _Thread_local char ring[4][PMS_ID_TEXT_SIZE];
    static _Thread_local unsigned next;

    return pms_id_format(id, ring[next++ % 4]);
}

int pms_log_level_parse(const char *text, enum pms_log_level *level)
{
    for (int i = PMS_LOG_DEBUG; i <= PMS_LOG_ERROR; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *level = (enum pms_log_level)i;
            return 0;
        }
    }
    return PMS_EUSAGE;
}
