// SPDX-License-Identifier: GPL-2.0-or-later
// Texts of people (sizes, addresses), the clock, and whole small files.
#ifndef PMS_BASE_UTIL_H
#define PMS_BASE_UTIL_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define PMS_ADDR_TEXT_SIZE 64 // "[v6%scope]:port" with NUL

// "1G", "512MiB", "4096": binary suffixes K M G T, in any case, with or without iB. 0, -EINVAL, or -ERANGE
// above 2^64-1.
int pms_size_parse(const char *text, uint64_t *bytes);

// "10.0.0.1", "10.0.0.1:7470", "fd00::1", "[fd00::1]:7470": numeric only. 0 or -EINVAL; no port means
// port_def.
int pms_addr_parse(const char *text, uint16_t port_def, struct sockaddr_storage *addr);
// "10.0.0.1:7470" or "[fd00::1]:7470"; returns out. "?" for another family.
char *pms_addr_format(const struct sockaddr_storage *addr, char out[PMS_ADDR_TEXT_SIZE]);
// Bytes that bind(2) and connect(2) want for this family.
socklen_t pms_addr_len(const struct sockaddr_storage *addr);

// CLOCK_BOOTTIME: goes on while the machine sleeps. Not for core/ folders: there, time comes in with the
// event.
uint64_t pms_clock_boot_ns(void);

// Replaces path as a whole and durably (temporary file in the same folder, fsync, rename, fsync of the
// folder): after a crash it holds the old or the new contents. 0 or -errno; on error the old file is as it
// was.
int pms_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode);
// Reads the whole file: *data is heap memory of *len bytes plus a NUL. -EFBIG if it is longer than len_max.
int pms_file_read(const char *path, size_t len_max, void **data, size_t *len);

#endif
