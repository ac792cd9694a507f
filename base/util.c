// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes, addresses, the boot clock, whole files.
#include "base/util.h"
#include "base/check.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int pms_size_parse(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMGT";
    unsigned shift = 0;
    const char *hit;
    uint64_t v;
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0)
        return -errno;
    if (*end != '\0') {
        hit = strchr(suffixes, toupper((unsigned char)*end));
        if (hit == NULL)
            return -EINVAL;
        shift = 10 * ((unsigned)(hit - suffixes) + 1);
        end++;
        if (*end != '\0' && strcasecmp(end, "ib") != 0)
            return -EINVAL;
    }
    if (v > UINT64_MAX >> shift)
        return -ERANGE;
    *bytes = v << shift;
    return 0;
}

// Port 0 is nobody's address.
static int port_parse(const char *text, uint16_t *port)
{
    unsigned long v;
    char *end;

    if (!isdigit((unsigned char)text[0]) || strlen(text) > 5)
        return -EINVAL;
    v = strtoul(text, &end, 10);
    if (*end != '\0' || v == 0 || v > UINT16_MAX)
        return -EINVAL;
    *port = (uint16_t)v;
    return 0;
}

// Finds host and port (port text NULL if there is none) in text, which is cut up in place.
static int addr_split(char *text, char **host, char **port)
{
    char *colon = strchr(text, ':');
    char *close;

    *host = text;
    *port = NULL;
    if (text[0] == '[') {
        close = strchr(text, ']');
        if (close == NULL || (close[1] != '\0' && close[1] != ':'))
            return -EINVAL;
        *host = text + 1;
        if (close[1] == ':')
            *port = close + 2;
        *close = '\0';
        return strchr(*host, ':') != NULL ? 0 : -EINVAL;
    }
    // A second colon: a bare IPv6 address without a port.
    if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        *colon = '\0';
        *port = colon + 1;
    }
    return 0;
}

int pms_addr_parse(const char *text, uint16_t port_def, struct sockaddr_storage *addr)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
    uint16_t port = port_def;
    char copy[PMS_ADDR_TEXT_SIZE];
    char *host, *port_text;

    if (strlen(text) >= sizeof(copy))
        return -EINVAL;
    strcpy(copy, text);
    if (addr_split(copy, &host, &port_text) != 0)
        return -EINVAL;
    if (port_text != NULL && port_parse(port_text, &port) != 0)
        return -EINVAL;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    } else {
        return -EINVAL;
    }
    *addr = out;
    return 0;
}

char *pms_addr_format(const struct sockaddr_storage *addr, char out[PMS_ADDR_TEXT_SIZE])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;
    char host[INET6_ADDRSTRLEN];

    if (addr->ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(out, PMS_ADDR_TEXT_SIZE, "%s:%u", host, ntohs(v4->sin_port));
    } else if (addr->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(out, PMS_ADDR_TEXT_SIZE, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        strcpy(out, "?");
    }
    return out;
}

socklen_t pms_addr_len(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

uint64_t pms_clock_boot_ns(void)
{
    struct timespec now;

    PMS_CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int dir_sync(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int fd, err = 0;

    if (slash == NULL)
        strcpy(dir, ".");
    else if (slash == path)
        strcpy(dir, "/");
    else
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) != 0)
        err = -errno;
    close(fd);
    return err;
}

int pms_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode)
{
    char tmp[PATH_MAX];
    int fd, err;

    if (snprintf(tmp, sizeof(tmp), "%s.XXXXXX", path) >= (int)sizeof(tmp))
        return -ENAMETOOLONG;
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    err = fchmod(fd, mode) != 0 ? -errno : write_all(fd, data, len);
    if (err == 0 && fsync(fd) != 0)
        err = -errno;
    if (close(fd) != 0 && err == 0)
        err = -errno;
    if (err == 0 && rename(tmp, path) != 0)
        err = -errno;
    if (err != 0) {
        unlink(tmp);
        return err;
    }
    return dir_sync(path);
}

int pms_file_read(const char *path, size_t len_max, void **data, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t got = 0, cap = 4096;
    uint8_t *buf = NULL, *grown;
    int err = 0;

    if (fd < 0)
        return -errno;
    // One byte of the memory is kept for the NUL.
    for (;;) {
        ssize_t n;

        if (buf == NULL || got + 1 >= cap) {
            cap = buf == NULL ? cap : cap * 2;
            grown = realloc(buf, cap);
            if (grown == NULL) {
                err = -ENOMEM;
                goto out;
            }
            buf = grown;
        }
        n = read(fd, buf + got, cap - got - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            err = -errno;
            goto out;
        }
        if (n == 0)
            break;
        got += (size_t)n;
        if (got > len_max) {
            err = -EFBIG;
            goto out;
        }
    }
    buf[got] = '\0';
    *data = buf;
    *len = got;
    buf = NULL;
out:
    free(buf);
    close(fd);
    return err;
}
