/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The application inside the test guest: writes stamped blocks with fsync, reads them back, and measures its pauses.
 *
 *   guestio load FILE BLOCKS TABLE   works until "end" comes on stdin; each "phase NAME" prints, WRITES_MORE writes later,
 *                                    the figures since the last
 *   guestio check FILE TABLE         every block of FILE must be what TABLE says was acknowledged last
 *
 * A step is one of: 1 to 16 blocks written and made stable; a few blocks dropped from the page cache and read back; a file
 * replaced by rename. Only one step runs at a time, so a pause is the longest time without a finished step.
 * TABLE (kept where the disk under test is not) holds one generation a block; the last one is that of FILE.top.
 * Linked statically: the guest has no libc.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK       4096u
#define RUN_MAX     16u
#define WORDS       (BLOCK / sizeof(uint64_t))
#define BLOCKS_MAX  (1u << 20)
#define WRITES_MORE 20 /* an answer shows that it works, not that it worked */
#define SETTLE_US                                                                                            \
    1000 /* between steps: the guest's one processor is emulated, and the log shall be seen too */

struct figures { /* since the last phase began */
    unsigned long writes, reads, renames;
    uint64_t longest_ns;
};

struct load {
    const char *path;
    char top[256], tmp[256], dir[256];
    uint32_t blocks;
    uint64_t *generation; /* blocks + 1 of them: what was acknowledged last */
    uint64_t random, next_generation, last_ns;
    unsigned long errors, wrong;
    struct figures f;
    char phase[64];              /* asked for; empty if none is */
    unsigned long writes_wanted; /* before the answer */
    int fd;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* Generation 0 is the zeros that were there before. */
static void block_fill(uint64_t *to, uint64_t block, uint64_t generation)
{
    uint64_t x = (block + 1) * 0x9e3779b97f4a7c15u ^ generation;

    memset(to, 0, BLOCK);
    if (!generation)
        return;
    to[0] = block;
    to[1] = generation;
    for (size_t i = 2; i < WORDS; i++)
        to[i] = random_next(&x);
}

static int all_of(ssize_t (*io)(int, void *, size_t, off_t), int fd, void *buf, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = io(fd, (char *)buf + done, size - done, at + (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENODATA;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static ssize_t io_write(int fd, void *buf, size_t size, off_t at)
{
    return pwrite(fd, buf, size, at);
}

static ssize_t io_read(int fd, void *buf, size_t size, off_t at)
{
    return pread(fd, buf, size, at);
}

static int failed(struct load *l, const char *what)
{
    l->errors++;
    say("error: %s of %s: %s", what, l->path, strerror(errno));
    usleep(200000); /* an error repeats itself fast */
    return -1;
}

static int block_judge(const char *path, const uint64_t *got, uint64_t block, uint64_t generation)
{
    uint64_t want[WORDS];

    block_fill(want, block, generation);
    if (!memcmp(got, want, BLOCK))
        return 0;
    say("wrong: %s block %" PRIu64 " is generation %" PRIu64 " of block %" PRIu64 ", not %" PRIu64, path,
        block, got[1], got[0], generation);
    return -1;
}

static int step_write(struct load *l)
{
    static uint64_t buf[RUN_MAX * WORDS];
    uint32_t count = 1 + (uint32_t)(random_next(&l->random) % RUN_MAX);
    uint32_t first = (uint32_t)(random_next(&l->random) % (l->blocks - count + 1));
    uint64_t generation = l->next_generation++;

    for (uint32_t i = 0; i < count; i++)
        block_fill(buf + i * WORDS, first + i, generation);
    if (all_of(io_write, l->fd, buf, count * BLOCK, (off_t)first * BLOCK))
        return failed(l, "write");
    if (fsync(l->fd))
        return failed(l, "fsync");
    for (uint32_t i = 0; i < count; i++)
        l->generation[first + i] = generation;
    l->f.writes++;
    return 0;
}

static int step_read(struct load *l)
{
    static uint64_t buf[RUN_MAX * WORDS];
    uint32_t first = (uint32_t)(random_next(&l->random) % (l->blocks - RUN_MAX + 1));
    int error = posix_fadvise(l->fd, (off_t)first * BLOCK, RUN_MAX * BLOCK, POSIX_FADV_DONTNEED);

    if (error) {
        errno = error;
        return failed(l, "fadvise");
    }
    if (all_of(io_read, l->fd, buf, sizeof(buf), (off_t)first * BLOCK))
        return failed(l, "read");
    for (uint32_t i = 0; i < RUN_MAX; i++)
        if (block_judge(l->path, buf + i * WORDS, first + i, l->generation[first + i]))
            l->wrong++;
    l->f.reads++;
    return 0;
}

static int dir_sync(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    int result = fd < 0 ? -1 : fsync(fd);

    if (fd >= 0)
        close(fd);
    return result;
}

static int step_rename(struct load *l)
{
    uint64_t buf[WORDS], generation = l->next_generation++;
    int fd = open(l->tmp, O_CREAT | O_TRUNC | O_WRONLY, 0644), bad;

    if (fd < 0)
        return failed(l, "open");
    block_fill(buf, l->blocks, generation);
    bad = all_of(io_write, fd, buf, sizeof(buf), 0) || fsync(fd);
    close(fd);
    if (bad || rename(l->tmp, l->top) || dir_sync(l->dir))
        return failed(l, "replacement");
    l->generation[l->blocks] = generation;
    l->f.renames++;
    return 0;
}

static void step(struct load *l)
{
    uint64_t dice = random_next(&l->random) % 16;
    int result = dice == 0 ? step_rename(l) : dice < 5 ? step_read(l) : step_write(l);
    uint64_t now = now_ns();

    if (result)
        return;
    if (now - l->last_ns > l->f.longest_ns)
        l->f.longest_ns = now - l->last_ns;
    l->last_ns = now;
}

/* Returns 1 at the end. Commands are read between steps, so after the step that a fault holds up. */
static int on_stdin(struct load *l)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[128];

    if (poll(&p, 1, 0) <= 0)
        return 0;
    if (!fgets(line, sizeof(line), stdin) || !strncmp(line, "end", 3))
        return 1;
    if (sscanf(line, "phase %63s", l->phase) == 1) {
        l->writes_wanted = l->f.writes + WRITES_MORE;
    } else {
        say("error: unknown command %s", line);
        l->errors++;
    }
    return 0;
}

static void phase_answer(struct load *l)
{
    if (!l->phase[0] || (l->f.writes < l->writes_wanted && !l->errors))
        return;
    say("phase=%s writes=%lu reads=%lu renames=%lu errors=%lu wrong=%lu pause_ms=%" PRIu64, l->phase,
        l->f.writes, l->f.reads, l->f.renames, l->errors, l->wrong, l->f.longest_ns / 1000000);
    l->f = (struct figures){0};
    l->phase[0] = 0;
}

static int table_save(const struct load *l, const char *path)
{
    FILE *f = fopen(path, "we");
    size_t n = l->blocks + 1;

    if (!f)
        return -1;
    n -= fwrite(l->generation, sizeof(*l->generation), n, f);
    return fclose(f) || n ? -1 : 0;
}

static int load_open(struct load *l)
{
    char *slash;

    snprintf(l->top, sizeof(l->top), "%s.top", l->path);
    snprintf(l->tmp, sizeof(l->tmp), "%s.tmp", l->path);
    snprintf(l->dir, sizeof(l->dir), "%s", l->path);
    slash = strrchr(l->dir, '/');
    if (!slash)
        return errno = EINVAL, failed(l, "folder");
    *slash = 0;
    l->generation = calloc(l->blocks + 1, sizeof(*l->generation));
    l->fd = open(l->path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
    if (!l->generation || l->fd < 0 || ftruncate(l->fd, (off_t)l->blocks * BLOCK))
        return failed(l, "creation");
    return step_rename(l);
}

static int load(const char *path, uint32_t blocks, const char *table)
{
    struct load l = {.path = path, .blocks = blocks, .random = now_ns() | 1, .next_generation = 1};

    if (load_open(&l))
        return 1;
    setvbuf(stdin, NULL, _IONBF, 0); /* or poll() would not know of a line that stdio has already */
    say("works on %s", path);
    l.f = (struct figures){0};
    l.last_ns = now_ns();
    while (!on_stdin(&l)) {
        step(&l);
        phase_answer(&l);
        usleep(SETTLE_US);
    }
    if (table_save(&l, table))
        failed(&l, "table");
    if (close(l.fd))
        failed(&l, "close");
    free(l.generation);
    say("ended errors=%lu wrong=%lu", l.errors, l.wrong);
    return l.errors || l.wrong;
}

static int check(const char *path, const char *table)
{
    uint64_t buf[WORDS], generation, block = 0;
    char top[256];
    unsigned long wrong = 0, written = 0;
    FILE *f = fopen(table, "re");
    int data = open(path, O_RDONLY | O_CLOEXEC), last;

    snprintf(top, sizeof(top), "%s.top", path);
    last = open(top, O_RDONLY | O_CLOEXEC);
    if (!f || data < 0 || last < 0) {
        say("error: %s, %s or %s: %s", path, top, table, strerror(errno));
        return 1;
    }
    for (off_t size = lseek(data, 0, SEEK_END); fread(&generation, sizeof(generation), 1, f) == 1; block++) {
        int is_top = (off_t)(block * BLOCK) >= size;

        if (all_of(io_read, is_top ? last : data, buf, sizeof(buf), is_top ? 0 : (off_t)(block * BLOCK))) {
            say("error: block %" PRIu64 ": %s", block, strerror(errno));
            return 1;
        }
        wrong += block_judge(is_top ? top : path, buf, block, generation) != 0;
        written += generation != 0;
    }
    fclose(f);
    close(data);
    close(last);
    say("checked blocks=%" PRIu64 " written=%lu wrong=%lu", block, written, wrong);
    return wrong || !written;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "load")) {
        unsigned long blocks = strtoul(argv[3], NULL, 10);

        if (blocks > RUN_MAX && blocks <= BLOCKS_MAX)
            return load(argv[2], (uint32_t)blocks, argv[4]);
    }
    if (argc == 4 && !strcmp(argv[1], "check"))
        return check(argv[2], argv[3]);
    fprintf(stderr, "usage: guestio load FILE BLOCKS TABLE | guestio check FILE TABLE\n");
    return 2;
}
