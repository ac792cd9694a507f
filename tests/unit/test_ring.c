// SPDX-License-Identifier: GPL-2.0-or-later
// Tests of the shared-memory ring: both sides in one process, restarts of pmsd, and a hostile plugin.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <poll.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/version.h"
#include "datapath/io/ring.h"

#define SLOTS 16u
#define ARENA (8u << 20)
#define SIZE  (1ull << 30)

struct pair {
    struct pms_ring *plugin, *pmsd;
};

static struct pms_ring *attach(struct pms_ring *plugin)
{
    struct pms_ring *ring = NULL;
    int m, s, c;

    pms_ring_fds(plugin, &m, &s, &c);
    assert_int_equal(pms_ring_attach(dup(m), dup(s), dup(c), SIZE, &ring), 0);
    return ring;
}

static struct pair pair_make(void)
{
    struct pair p = {0};

    assert_int_equal(pms_ring_create(0x1122334455667788ull, SLOTS, ARENA, &p.plugin), 0);
    p.pmsd = attach(p.plugin);
    return p;
}

static void pair_free(struct pair *p)
{
    pms_ring_detach(p->pmsd);
    pms_ring_destroy(p->plugin);
}

static uint64_t write_submit(struct pair *p, uint64_t offset, uint64_t cookie)
{
    uint64_t tag;

    assert_int_equal(
        pms_ring_submit(p->plugin, PMS_RING_WRITE, PMS_RING_FUA, offset, 4096, 8192, cookie, &tag), 0);
    return tag;
}

static bool bell_heard(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, 0) == 1;
}

static void test_ring_when_submitted_then_polled_completed_and_reaped(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    struct pms_ring_cpl cpl[4];
    uint64_t tag = write_submit(&p, 1 << 20, 77);

    (void)state;
    assert_int_equal(pms_ring_array_id(p.pmsd), 0x1122334455667788ull);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 1);
    assert_int_equal(cmd[0].tag, tag);
    assert_int_equal(cmd[0].op, PMS_RING_WRITE);
    assert_int_equal(cmd[0].flags, PMS_RING_FUA);
    assert_int_equal(cmd[0].offset, 1 << 20);
    assert_int_equal(cmd[0].length, 4096);
    assert_int_equal(cmd[0].arena_off, 8192);
    assert_false(cmd[0].recovered);
    assert_int_equal(pms_ring_inflight(p.pmsd), 1);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 0);
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 4), 0);
    assert_int_equal(pms_ring_complete(p.pmsd, tag, 2, 3, 0x11, 0), 0);
    assert_int_equal(pms_ring_complete(p.pmsd, tag, 0, 0, 0, 0), -ENOENT);
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 4), 1);
    assert_int_equal(cpl[0].cookie, 77);
    assert_int_equal(cpl[0].status, 2);
    assert_int_equal(cpl[0].key, 3);
    assert_int_equal(cpl[0].asc, 0x11);
    assert_int_equal(pms_ring_outstanding(p.plugin), 0);
    pair_free(&p);
}

static void test_ring_when_data_written_by_plugin_then_pmsd_sees_same_bytes(void **state)
{
    struct pair p = pair_make();
    uint64_t off;
    void *buf = pms_ring_buf_alloc(p.plugin, 65536);

    (void)state;
    assert_non_null(buf);
    memset(buf, 0x5a, 65536);
    assert_true(pms_ring_buf_offset(p.plugin, buf, &off));
    assert_int_equal(off % PMS_RING_PAGE, 0);
    assert_memory_equal(pms_ring_data(p.pmsd, off, 65536), buf, 65536);
    assert_null(pms_ring_data(p.pmsd, ARENA, 1));
    assert_null(pms_ring_data(p.pmsd, UINT64_MAX, 512));
    assert_null(pms_ring_data(p.pmsd, ARENA - 512, 1024));
    assert_non_null(pms_ring_data(p.pmsd, ARENA - 512, 512));
    pms_ring_buf_free(p.plugin, buf);
    pair_free(&p);
}

static void test_ring_when_full_then_submit_says_again_and_goes_on_after_reap(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[SLOTS];
    struct pms_ring_cpl cpl[SLOTS];
    unsigned i, round;

    (void)state;
    for (round = 0; round < 100; round++) {
        for (i = 0; i < SLOTS; i++)
            write_submit(&p, 4096ull * i, i);
        assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_FLUSH, 0, 0, 0, 0, 0, NULL), -EAGAIN);
        assert_int_equal(pms_ring_poll(p.pmsd, cmd, SLOTS), SLOTS);
        for (i = SLOTS; i-- > 0;)
            assert_int_equal(pms_ring_complete(p.pmsd, cmd[i].tag, 0, 0, 0, 0), 0);
        assert_int_equal(pms_ring_reap(p.plugin, cpl, 5), 5);
        assert_int_equal(pms_ring_reap(p.plugin, cpl, SLOTS), SLOTS - 5);
        assert_int_equal(cpl[SLOTS - 6].cookie, 0);
    }
    pair_free(&p);
}

static void test_submit_when_command_invalid_then_refused(void **state)
{
    struct pair p = pair_make();

    (void)state;
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 0, 1, 512, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 0, 0, 511, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 0, 0, 0, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 0, 0, PMS_RING_IO_MAX + 512, 0, 0, NULL),
                     -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 0, 0, 1024, ARENA - 512, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_WRITE, 2, 0, 512, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_FLUSH, 0, 0, 512, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_ZERO, 0, 0, 512, 4096, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, PMS_RING_ZERO, 0, 0, PMS_RING_IO_MAX + 512, 0, 0, NULL),
                     -EINVAL);
    assert_int_equal(pms_ring_submit(p.plugin, (enum pms_ring_op)9, 0, 0, 512, 0, 0, NULL), -EINVAL);
    assert_int_equal(pms_ring_outstanding(p.plugin), 0);
    pair_free(&p);
}

static void test_bell_when_pmsd_does_not_sleep_then_silent(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    struct pms_ring_stats st;

    (void)state;
    write_submit(&p, 0, 0);
    pms_ring_submit_kick(p.plugin);
    assert_false(bell_heard(pms_ring_sq_fd(p.pmsd)));
    assert_true(pms_ring_arm(p.pmsd)); /* something is there: do not sleep */
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 1);
    assert_false(pms_ring_arm(p.pmsd));
    write_submit(&p, 0, 0);
    assert_false(bell_heard(pms_ring_sq_fd(p.pmsd)));
    pms_ring_submit_kick(p.plugin);
    assert_true(bell_heard(pms_ring_sq_fd(p.pmsd)));
    pms_ring_sq_clear(p.pmsd);
    assert_false(bell_heard(pms_ring_sq_fd(p.pmsd)));
    pms_ring_stats_get(p.plugin, &st);
    assert_int_equal(st.doorbells, 1);
    pair_free(&p);
}

static void test_bell_when_plugin_sleeps_then_one_for_a_batch(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    int m, s, c;

    (void)state;
    pms_ring_fds(p.plugin, &m, &s, &c);
    assert_false(pms_ring_reap_arm(p.plugin));
    write_submit(&p, 0, 0);
    write_submit(&p, 0, 0);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 2);
    pms_ring_complete(p.pmsd, cmd[0].tag, 0, 0, 0, 0);
    pms_ring_complete(p.pmsd, cmd[1].tag, 0, 0, 0, 0);
    assert_false(bell_heard(c));
    pms_ring_kick(p.pmsd);
    assert_true(bell_heard(c));
    assert_true(pms_ring_reap_arm(p.plugin));
    pair_free(&p);
}

/* The story of a killed pmsd: one command completed and announced, one completed only, one taken, one
 * untouched. */
static void test_attach_when_pmsd_was_killed_then_only_unanswered_commands_come_again(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[8];
    struct pms_ring_cpl cpl[8];
    uint64_t tag[4];
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        tag[i] = write_submit(&p, 4096ull * i, 100 + i);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 8), 3);
    tag[3] = write_submit(&p, 4096ull * 3, 103);
    assert_int_equal(pms_ring_complete(p.pmsd, tag[1], 0, 0, 0, 0), 0);
    pms_ring_detach(p.pmsd);
    assert_int_equal(pms_ring_rescan(p.plugin), 1);
    p.pmsd = attach(p.plugin);
    assert_true(pms_ring_arm(p.pmsd));
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 2), 2);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd + 2, 6), 1);
    assert_int_equal(cmd[0].tag, tag[0]);
    assert_true(cmd[0].recovered);
    assert_int_equal(cmd[1].tag, tag[2]);
    assert_true(cmd[1].recovered);
    assert_int_equal(cmd[2].tag, tag[3]);
    assert_false(cmd[2].recovered);
    for (i = 0; i < 3; i++)
        assert_int_equal(pms_ring_complete(p.pmsd, cmd[i].tag, 0, 0, 0, 0), 0);
    /* The one answered before is delivered once, though it is both rescanned and announced. */
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 8), 4);
    assert_int_equal(cpl[0].cookie, 101);
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 8), 0);
    assert_int_equal(pms_ring_outstanding(p.plugin), 0);
    /* And the slots are as good as new. */
    for (i = 0; i < (int)SLOTS; i++)
        write_submit(&p, 0, 0);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 8), 8);
    pair_free(&p);
}

static void test_arena_when_used_up_then_null_until_freed(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_stats st;
    void *a = pms_ring_buf_alloc(p.plugin, PMS_RING_IO_MAX);
    void *small = pms_ring_buf_alloc(p.plugin, 1);
    void *b;

    (void)state;
    assert_non_null(a);
    assert_non_null(small);
    assert_null(pms_ring_buf_alloc(p.plugin, PMS_RING_IO_MAX)); /* 8 MiB less 4 MiB less one page */
    assert_null(pms_ring_buf_alloc(p.plugin, PMS_RING_IO_MAX + 1));
    assert_null(pms_ring_buf_alloc(p.plugin, 0));
    pms_ring_buf_free(p.plugin, small);
    b = pms_ring_buf_alloc(p.plugin, PMS_RING_IO_MAX);
    assert_non_null(b);
    assert_null(pms_ring_buf_alloc(p.plugin, 1));
    pms_ring_buf_free(p.plugin, a);
    pms_ring_buf_free(p.plugin, b);
    pms_ring_stats_get(p.pmsd, &st);
    assert_int_equal(st.arena_used, 0);
    assert_int_equal(st.arena_used_max, ARENA);
    pair_free(&p);
}

/* Random allocations never overlap: each buffer is filled with its own byte and checked when it is freed. */
static void test_arena_when_random_use_then_buffers_never_overlap(void **state)
{
    struct pair p = pair_make();
    struct {
        uint8_t *buf;
        size_t len;
    } live[64] = {{0}};
    unsigned i, step;
    struct pms_ring_stats st;

    (void)state;
    srand(20261130);
    for (step = 0; step < 20000; step++) {
        i = (unsigned)rand() % 64;
        if (live[i].buf) {
            assert_int_equal(live[i].buf[0], i);
            assert_int_equal(live[i].buf[live[i].len - 1], i);
            pms_ring_buf_free(p.plugin, live[i].buf);
            live[i].buf = NULL;
            continue;
        }
        live[i].len = 1 + (size_t)rand() % (rand() % 4 ? 20000 : 1 << 20);
        live[i].buf = pms_ring_buf_alloc(p.plugin, live[i].len);
        if (live[i].buf) {
            live[i].buf[0] = (uint8_t)i;
            live[i].buf[live[i].len - 1] = (uint8_t)i;
        }
    }
    for (i = 0; i < 64; i++)
        if (live[i].buf)
            pms_ring_buf_free(p.plugin, live[i].buf);
    pms_ring_stats_get(p.plugin, &st);
    assert_int_equal(st.arena_used, 0);
    pair_free(&p);
}

/* ---- a hostile plugin: pokes at the shared memory through a mapping of its own ---- */

/* Finds the 64-byte slot whose offset field (third word) has this value, so that the test need not know the
 * layout. */
static uint64_t *slot_find(const struct pair *p, uint64_t offset, uint8_t **base_out, size_t *len_out)
{
    int m, s, c;
    off_t len;
    uint8_t *base;
    uint64_t *w;

    pms_ring_fds(p->plugin, &m, &s, &c);
    len = lseek(m, 0, SEEK_END);
    base = mmap(NULL, (size_t)len, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    *base_out = base;
    *len_out = (size_t)len;
    for (w = (uint64_t *)(base + 4096); w < (uint64_t *)(base + 4096 + SLOTS * 64); w += 8)
        if (w[2] == offset)
            return w;
    fail_msg("slot not found");
    return NULL;
}

/* What a hostile plugin may write: word of the slot, value; poll must refuse each. */
static void test_poll_when_plugin_writes_nonsense_then_ring_is_broken_not_pmsd(void **state)
{
    static const struct {
        int word;
        uint64_t value;
    } evil[] = {
        {2, 511},                                                         /* offset not of a sector */
        {2, SIZE},                                                        /* behind the end */
        {2, UINT64_MAX - 511},                                            /* offset + length wraps */
        {3, ARENA},                                                       /* behind the arena */
        {3, UINT64_MAX - 511},                                            /* arena offset + length wraps */
        {3, 1},                                                           /* not of a sector */
        {4, (uint64_t)PMS_RING_WRITE << 32 | 0},                          /* no length */
        {4, (uint64_t)PMS_RING_WRITE << 32 | (PMS_RING_IO_MAX + 512)},    /* too long */
        {4, (uint64_t)PMS_RING_WRITE << 32 | 0xfffffe00u},                /* much too long */
        {4, (uint64_t)0 << 32 | 4096},                                    /* no such operation */
        {4, (uint64_t)200 << 32 | 4096},                                  /* no such operation */
        {4, (uint64_t)0xff << 40 | (uint64_t)PMS_RING_WRITE << 32 | 512}, /* unknown flags */
        {4, (uint64_t)PMS_RING_ZERO << 32 | 512},                         /* zeros with a buffer */
        {4, (uint64_t)PMS_RING_FLUSH << 32 | 512},                        /* a flush with a range */
        {0, 0},                                                           /* announced, but free */
        {0, 3},                                                           /* announced, but completed */
        {0, (uint64_t)99 << 32 | 1}, /* another generation than announced */
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(evil) / sizeof(evil[0]); i++) {
        struct pair p = pair_make();
        struct pms_ring_cmd cmd[4];
        uint8_t *base;
        size_t len;
        uint64_t *w;

        write_submit(&p, 0x123000, 1);
        w = slot_find(&p, 0x123000, &base, &len);
        w[evil[i].word] = evil[i].value;
        assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), PMS_EPROTO);
        assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), PMS_EPROTO);
        munmap(base, len);
        pair_free(&p);
    }
}

static void test_poll_when_tag_submitted_twice_then_ring_is_broken(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    uint8_t *base;
    size_t len;
    uint64_t *w;
    uint32_t *tail;

    (void)state;
    write_submit(&p, 0x123000, 1);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 1);
    w = slot_find(&p, 0x123000, &base, &len);
    ((uint32_t *)w)[0] = 1;                             /* SUBMITTED again */
    *(uint64_t *)(base + 4096 + 4096 + 8) = cmd[0].tag; /* second place of the submission ring */
    tail = (uint32_t *)(base + 64);
    assert_int_equal(*tail, 1);
    *tail = 2;
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), PMS_EPROTO);
    munmap(base, len);
    pair_free(&p);
}

static void test_poll_when_tail_jumps_then_ring_is_broken(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    uint8_t *base;
    size_t len;

    (void)state;
    write_submit(&p, 0x123000, 1);
    slot_find(&p, 0x123000, &base, &len);
    *(uint32_t *)(base + 64) = 0x80000000u;
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), PMS_EPROTO);
    munmap(base, len);
    pair_free(&p);
}

/* Random bytes over header, slots and rings: any answer is right, a crash or a bad range is not. */
static void test_poll_when_shared_memory_is_noise_then_commands_stay_in_bounds(void **state)
{
    unsigned round, i;

    (void)state;
    srand(4711);
    for (round = 0; round < 3000; round++) {
        struct pair p = pair_make();
        struct pms_ring_cmd cmd[8];
        struct pms_ring *again = NULL;
        uint8_t *base;
        size_t len;
        int n, m, s, c, rc, fd[3];

        for (i = 0; i < 8; i++)
            write_submit(&p, 0x123000 + 4096 * i, 1);
        slot_find(&p, 0x123000, &base, &len);
        for (i = 0; i < 1 + round % 20; i++)
            base[(unsigned)rand() % 3 ? 4096 + (unsigned)rand() % (SLOTS * 64) : (unsigned)rand() % 256] =
                (uint8_t)(rand() % 2 ? rand() : rand() % 5);
        n = pms_ring_poll(p.pmsd, cmd, 8);
        for (i = 0; n > 0 && i < (unsigned)n; i++) {
            assert_true(cmd[i].op == PMS_RING_FLUSH || cmd[i].length > 0);
            assert_true(cmd[i].length <= PMS_RING_IO_MAX && cmd[i].offset <= SIZE - cmd[i].length);
            assert_non_null(pms_ring_data(p.pmsd, cmd[i].arena_off, cmd[i].length));
            pms_ring_complete(p.pmsd, cmd[i].tag, 0, 0, 0, 0);
        }
        pms_ring_kick(p.pmsd);
        pms_ring_fds(p.plugin, &m, &s, &c);
        fd[0] = dup(m), fd[1] = dup(s), fd[2] = dup(c);
        rc = pms_ring_attach(fd[0], fd[1], fd[2], SIZE, &again);
        if (rc == 0)
            pms_ring_detach(again);
        else
            for (i = 0; i < 3; i++)
                close(fd[i]);
        munmap(base, len);
        pair_free(&p);
    }
}

static void test_attach_when_descriptors_are_wrong_then_refused_and_left_open(void **state)
{
    struct pms_ring *plugin, *ring = NULL;
    int m, s, c, pipefd[2], unsealed = memfd_create("x", MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(pms_ring_create(1, SLOTS, ARENA, &plugin), 0);
    pms_ring_fds(plugin, &m, &s, &c);
    assert_int_equal(pipe(pipefd), 0);
    assert_int_equal(ftruncate(unsealed, 1 << 20), 0);
    assert_int_equal(pms_ring_attach(m, pipefd[1], c, SIZE, &ring), PMS_EPROTO);
    assert_int_equal(pms_ring_attach(m, s, pipefd[1], SIZE, &ring), PMS_EPROTO);
    assert_int_equal(pms_ring_attach(unsealed, s, c, SIZE, &ring), PMS_EPROTO);
    assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(pms_ring_attach(unsealed, s, c, SIZE, &ring), PMS_EPROTO); /* no magic */
    assert_int_equal(pms_ring_attach(pipefd[0], s, c, SIZE, &ring), PMS_EPROTO);
    assert_int_equal(pms_ring_attach(-1, s, c, SIZE, &ring), PMS_EPROTO);
    assert_null(ring);
    assert_true(fcntl(m, F_GETFD) >= 0 && fcntl(pipefd[1], F_GETFD) >= 0);
    close(pipefd[0]);
    close(pipefd[1]);
    close(unsealed);
    pms_ring_destroy(plugin);
}

static void test_attach_when_ring_is_of_an_unknown_version_then_version_error(void **state)
{
    static const uint32_t unknown[] = {0, 2, 0xffffffff};
    struct pms_ring *plugin, *ring = NULL;
    uint32_t *version;
    uint8_t *base;
    int m, s, c;

    (void)state;
    assert_int_equal(pms_ring_create(1, SLOTS, ARENA, &plugin), 0);
    pms_ring_fds(plugin, &m, &s, &c);
    base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
    assert_true(base != MAP_FAILED);
    version = (uint32_t *)(base + 8); /* after the magic */
    assert_int_equal(*version, pms_ring_versions.max);
    for (unsigned i = 0; i < 3; i++) {
        *version = unknown[i] == 2 ? pms_ring_versions.max + 1u : unknown[i];
        assert_int_equal(pms_ring_attach(m, s, c, SIZE, &ring), PMS_EVERSION);
    }
    *version = pms_ring_versions.min;
    assert_int_equal(pms_ring_attach(dup(m), dup(s), dup(c), SIZE, &ring), 0);
    pms_ring_detach(ring);
    munmap(base, 4096);
    pms_ring_destroy(plugin);
}

static void test_reap_when_pmsd_writes_nonsense_then_plugin_ignores_it(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cmd cmd[4];
    struct pms_ring_cpl cpl[4];
    uint8_t *base;
    size_t len;

    (void)state;
    write_submit(&p, 0x123000, 5);
    assert_int_equal(pms_ring_poll(p.pmsd, cmd, 4), 1);
    slot_find(&p, 0x123000, &base, &len);
    *(uint64_t *)(base + 3 * 4096) = 0xdead00000003ull; /* a tag never given out */
    *(uint32_t *)(base + 128) = 1;
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 4), 0);
    *(uint64_t *)(base + 3 * 4096 + 8) = cmd[0].tag; /* announced, but not completed */
    *(uint32_t *)(base + 128) = 2;
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 4), 0);
    *(uint32_t *)(base + 128) = 2 + SLOTS + 1;
    assert_int_equal(pms_ring_reap(p.plugin, cpl, 4), PMS_EPROTO);
    munmap(base, len);
    pair_free(&p);
}

/* ---- two threads, bells and all: nothing is lost, nobody sleeps for ever ---- */

#define STORM 200000u

static void *storm_pmsd(void *arg)
{
    struct pair *p = arg;
    struct pms_ring_cmd cmd[8];
    struct pollfd pfd = {.fd = pms_ring_sq_fd(p->pmsd), .events = POLLIN};
    unsigned done = 0;
    int n, i;

    while (done < STORM) {
        n = pms_ring_poll(p->pmsd, cmd, 8);
        for (i = 0; i < n; i++)
            pms_ring_complete(p->pmsd, cmd[i].tag, 0, 0, 0, 0);
        done += n > 0 ? (unsigned)n : 0;
        pms_ring_kick(p->pmsd);
        if (n < 0)
            return (void *)1;
        if (n == 0 && !pms_ring_arm(p->pmsd) && poll(&pfd, 1, 5000) != 1)
            return (void *)2; /* slept through a bell */
        pms_ring_sq_clear(p->pmsd);
    }
    return NULL;
}

static void test_ring_when_two_threads_storm_then_every_command_is_answered_once(void **state)
{
    struct pair p = pair_make();
    struct pms_ring_cpl cpl[8];
    uint8_t *seen = calloc(STORM, 1);
    struct pollfd pfd = {.events = POLLIN};
    unsigned sent = 0, got = 0;
    pthread_t thread;
    void *result;
    uint64_t n8;
    int m, s, n, i;

    (void)state;
    pms_ring_fds(p.plugin, &m, &s, &pfd.fd);
    assert_int_equal(pthread_create(&thread, NULL, storm_pmsd, &p), 0);
    while (got < STORM) {
        while (sent < STORM &&
               pms_ring_submit(p.plugin, PMS_RING_READ, 0, 4096ull * (sent % 1000), 4096, 0, sent, NULL) == 0)
            sent++;
        pms_ring_submit_kick(p.plugin);
        n = pms_ring_reap(p.plugin, cpl, 8);
        assert_true(n >= 0);
        for (i = 0; i < n; i++) {
            assert_true(cpl[i].cookie < STORM);
            assert_int_equal(seen[cpl[i].cookie]++, 0);
        }
        got += (unsigned)n;
        if (n == 0 && !pms_ring_reap_arm(p.plugin))
            assert_int_equal(poll(&pfd, 1, 5000), 1);
        while (read(pfd.fd, &n8, sizeof(n8)) > 0)
            ;
    }
    pthread_join(thread, &result);
    assert_null(result);
    free(seen);
    pair_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_when_submitted_then_polled_completed_and_reaped),
        cmocka_unit_test(test_ring_when_data_written_by_plugin_then_pmsd_sees_same_bytes),
        cmocka_unit_test(test_ring_when_full_then_submit_says_again_and_goes_on_after_reap),
        cmocka_unit_test(test_submit_when_command_invalid_then_refused),
        cmocka_unit_test(test_bell_when_pmsd_does_not_sleep_then_silent),
        cmocka_unit_test(test_bell_when_plugin_sleeps_then_one_for_a_batch),
        cmocka_unit_test(test_attach_when_pmsd_was_killed_then_only_unanswered_commands_come_again),
        cmocka_unit_test(test_arena_when_used_up_then_null_until_freed),
        cmocka_unit_test(test_arena_when_random_use_then_buffers_never_overlap),
        cmocka_unit_test(test_poll_when_plugin_writes_nonsense_then_ring_is_broken_not_pmsd),
        cmocka_unit_test(test_poll_when_tag_submitted_twice_then_ring_is_broken),
        cmocka_unit_test(test_poll_when_tail_jumps_then_ring_is_broken),
        cmocka_unit_test(test_poll_when_shared_memory_is_noise_then_commands_stay_in_bounds),
        cmocka_unit_test(test_attach_when_descriptors_are_wrong_then_refused_and_left_open),
        cmocka_unit_test(test_attach_when_ring_is_of_an_unknown_version_then_version_error),
        cmocka_unit_test(test_reap_when_pmsd_writes_nonsense_then_plugin_ignores_it),
        cmocka_unit_test(test_ring_when_two_threads_storm_then_every_command_is_answered_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
