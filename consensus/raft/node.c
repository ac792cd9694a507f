// SPDX-License-Identifier: GPL-2.0-or-later
// The Raft node's life: open, start, what happens on its loop, close; and libraft's view of the state
// machine.
//
// Commands and snapshots lie in the log as u64 length (little endian), bytes, zeros up to a multiple of 8:
// libraft cannot restart from payloads of other sizes.
//
// After a fatal error libraft is neither called nor closed any more: its error paths are what crashes. Its
// memory and handles stay until the process ends, which is what on_fatal asks for.
#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/wire.h"
#include "consensus/raft/node_internal.h"
#include "consensus/raft/transport.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define CONNECT_RETRY_MS    50
#define SEGMENT_BYTES       (1u << 20)
#define SNAPSHOT_THRESHOLD  1024
#define INSTALL_SNAPSHOT_MS 3000
#define CATCH_UP_ROUND_MS   3000
#define HEADER_BYTES        8

static void work(struct pms_raft *r);

// ---- small things

uint64_t pms_raft_now(const struct pms_raft *r)
{
    return uv_now(r->loop);
}

bool pms_raft_leads(const struct pms_raft *r)
{
    return r->started && !r->failed && r->raft.state == RAFT_LEADER;
}

bool pms_raft_is_ready(const struct pms_raft *r)
{
    return pms_raft_leads(r) && r->ready_term == r->raft.current_term;
}

bool pms_raft_is_caught_up(const struct pms_raft *r)
{
    return r->caught_up;
}

uint64_t pms_raft_leader(const struct pms_raft *r)
{
    raft_id id = 0;
    const char *address;

    if (r->started && !r->failed)
        raft_leader((struct raft *)&r->raft, &id, &address);
    return id;
}

int pms_raft_err(int rv)
{
    static const int map[] = {[RAFT_NOMEM] = -ENOMEM,
                              [RAFT_BADID] = PMS_ENOTFOUND,
                              [RAFT_DUPLICATEID] = PMS_EEXISTS,
                              [RAFT_DUPLICATEADDRESS] = PMS_EEXISTS,
                              [RAFT_BADROLE] = -EINVAL,
                              [RAFT_MALFORMED] = PMS_ECORRUPT,
                              [RAFT_NOTLEADER] = PMS_ENOTLEADER,
                              [RAFT_LEADERSHIPLOST] = PMS_EUNKNOWN,
                              [RAFT_SHUTDOWN] = PMS_ESHUTDOWN,
                              [RAFT_CANTBOOTSTRAP] = PMS_EEXISTS,
                              [RAFT_CANTCHANGE] = PMS_EBUSY,
                              [RAFT_CORRUPT] = PMS_ECORRUPT,
                              [RAFT_CANCELED] = -ECANCELED,
                              [RAFT_NAMETOOLONG] = -ENAMETOOLONG,
                              [RAFT_TOOBIG] = -EMSGSIZE,
                              [RAFT_NOCONNECTION] = -ENOTCONN,
                              [RAFT_BUSY] = PMS_EBUSY,
                              [RAFT_IOERR] = -EIO,
                              [RAFT_NOTFOUND] = PMS_ENOTFOUND,
                              [RAFT_INVALID] = -EINVAL,
                              [RAFT_UNAUTHORIZED] = -EACCES,
                              [RAFT_NOSPACE] = -ENOSPC,
                              [RAFT_TOOMANY] = -EMFILE};

    if (rv <= 0)
        return rv;
    if ((size_t)rv < sizeof map / sizeof map[0] && map[rv] != 0)
        return map[rv];
    return -EIO;
}

static void on_idle(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    work(idle->data);
}

void pms_raft_schedule(struct pms_raft *r)
{
    if (!r->closed)
        PMS_CHECK(uv_idle_start(&r->idle, on_idle) == 0);
}

static void on_tick(uv_timer_t *timer)
{
    work(timer->data);
}

__attribute__((format(printf, 2, 3))) static void fail(struct pms_raft *r, const char *fmt, ...)
{
    va_list ap;

    if (r->failed)
        return;
    r->failed = true;
    pms_guard_silence(r->guard);
    va_start(ap, fmt);
    vsnprintf(r->failure, sizeof r->failure, fmt, ap);
    va_end(ap);
    pms_raft_schedule(r);
}

// ---- libraft's state machine

int pms_raft_payload_wrap(const void *data, size_t len, struct raft_buffer *buf)
{
    size_t padded = (HEADER_BYTES + len + 7) & ~(size_t)7;
    uint8_t *p = raft_calloc(1, padded);

    if (p == NULL)
        return -ENOMEM;
    pms_put_u64(p, len);
    if (len > 0)
        memcpy(p + HEADER_BYTES, data, len);
    buf->base = p;
    buf->len = padded;
    return 0;
}

int pms_raft_payload_unwrap(const struct raft_buffer *buf, const char **data, size_t *len)
{
    uint64_t n;

    if (buf->len < HEADER_BYTES)
        return PMS_ECORRUPT;
    n = pms_get_u64(buf->base);
    if (n > buf->len - HEADER_BYTES)
        return PMS_ECORRUPT;
    *data = (const char *)buf->base + HEADER_BYTES;
    *len = (size_t)n;
    return 0;
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct pms_raft *r = fsm->data;
    const char *command;
    size_t len;
    int rv;

    if (r->failed)
        return RAFT_MALFORMED;
    *result = NULL; // libraft drops it where nobody waits; ours is in r->result
    free(r->result);
    r->result = NULL;
    if (pms_raft_payload_unwrap(buf, &command, &len) != 0) {
        fail(r, "the Raft log in %s holds a command that is none of ours", r->dir);
        return RAFT_MALFORMED;
    }
    rv = r->config.apply(r->config.data, command, len, r->raft.last_applied + 1, &r->result);
    if (rv == 0)
        return 0;
    fail(r, "a command of the cluster's log cannot be applied here: %s", pms_err_text(rv));
    return RAFT_MALFORMED;
}

// Errors other than RAFT_BUSY would make libraft give up; this way it tries again.
static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct pms_raft *r = fsm->data;
    struct raft_buffer *buf = raft_malloc(sizeof *buf);
    char *state = NULL;
    size_t len = 0;

    if (buf == NULL)
        return RAFT_BUSY;
    if (r->config.snapshot(r->config.data, &state, &len) != 0 ||
        pms_raft_payload_wrap(state, len, buf) != 0) {
        free(state);
        raft_free(buf);
        return RAFT_BUSY;
    }
    free(state);
    *bufs = buf;
    *n_bufs = 1;
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct pms_raft *r = fsm->data;
    const char *state;
    size_t len;
    int rv = pms_raft_payload_unwrap(buf, &state, &len);

    if (rv == 0)
        rv = r->config.restore(r->config.data, state, len);
    if (rv != 0) {
        fail(r, "the snapshot of the cluster's state cannot be restored: %s", pms_err_text(rv));
        return RAFT_MALFORMED;
    }
    raft_free(buf->base);
    return 0;
}

static void on_guard_step(void *data)
{
    pms_raft_schedule(data);
}

static void on_guard_fatal(void *data, const char *what, int raft_status)
{
    struct pms_raft *r = data;

    fail(r, "the Raft log in %s cannot be written (%s): %s%s%s%s", r->dir, what,
         pms_err_text(pms_raft_err(raft_status)), r->io.errmsg[0] != '\0' ? ": " : "", r->io.errmsg,
         raft_status == RAFT_NOSPACE ? "; make room there, then start pmsd again" : "");
}

// ---- what happens on the loop

static void failure_work(struct pms_raft *r)
{
    if (r->started && !r->failed && raft_state(&r->raft) == RAFT_UNAVAILABLE)
        fail(r, "libraft gave up: %s", raft_errmsg(&r->raft));
    if (!r->failed || r->failed_told)
        return;
    r->failed_told = true;
    pms_log(PMS_LOG_ERROR, "%s", r->failure);
    pms_transport_detach(&r->transport);
    pms_raft_proposals_close(r);
    pms_raft_barriers_close(r);
    pms_raft_members_close(r);
    if (r->config.on_fatal != NULL && r->started)
        r->config.on_fatal(r->config.data, r->failure);
}

static void leader_work(struct pms_raft *r)
{
    uint64_t leader = pms_raft_leader(r);
    bool self = pms_raft_leads(r);

    if (leader == r->leader_told && self == r->self_told)
        return;
    // What the last leader was asked it will not answer any more, if it is dead or cut off; that need not be
    // waited for.
    if (leader != 0 && r->leader_last != 0 && leader != r->leader_last)
        pms_rpc_abandon(r->config.rpc, r->leader_last, PMS_RAFT_SERVICE);
    if (leader != 0)
        r->leader_last = leader;
    r->leader_told = leader;
    r->self_told = self;
    pms_log(PMS_LOG_INFO, "Raft leader: %s%s, term %llu", leader != 0 ? pms_log_hexid(leader) : "none",
            self ? " (this node)" : "", r->raft.current_term);
    if (r->config.on_leader != NULL)
        r->config.on_leader(r->config.data, leader, self);
}

static void ready_work(struct pms_raft *r)
{
    if (!pms_raft_is_ready(r) || r->ready_told_term == r->ready_term)
        return;
    r->ready_told_term = r->ready_term;
    if (r->config.on_ready != NULL)
        r->config.on_ready(r->config.data);
}

static void on_caught_up(void *data, int status)
{
    struct pms_raft *r = data;

    r->caught_up_asked = false;
    if (status != 0 || r->caught_up)
        return;
    r->caught_up = true;
    if (r->config.on_caught_up != NULL)
        r->config.on_caught_up(r->config.data);
}

static void caught_up_work(struct pms_raft *r)
{
    if (!r->caught_up && !r->caught_up_asked)
        r->caught_up_asked = pms_raft_read_barrier(r, 1000, on_caught_up, r) == 0;
}

static void close_work(struct pms_raft *r);

static void work(struct pms_raft *r)
{
    if (r->closed)
        return;
    failure_work(r);
    if (r->closing) {
        close_work(r);
        return;
    }
    if (!r->started || r->failed)
        return;
    leader_work(r);
    pms_raft_barriers_work(r);
    ready_work(r);
    pms_raft_proposals_work(r);
    pms_raft_members_work(r);
    caught_up_work(r);
}

// ---- open

static int dir_check(const char *dir)
{
    struct statvfs fs;
    char probe[4096];
    int fd;

    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return -errno;
    if (snprintf(probe, sizeof probe, "%s/probe-%ld", dir, (long)getpid()) >= (int)sizeof probe)
        return -ENAMETOOLONG;
    fd = open(probe, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    if (unlink(probe) != 0 || statvfs(dir, &fs) != 0)
        return -errno;
    if ((uint64_t)fs.f_bavail * fs.f_frsize < PMS_RAFT_FREE_MIN)
        return -ENOSPC;
    return 0;
}

static void raft_settings(struct pms_raft *r)
{
    const struct pms_raft_config *c = &r->config;
    unsigned threshold = c->snapshot_threshold != 0 ? c->snapshot_threshold : SNAPSHOT_THRESHOLD;

    raft_set_election_timeout(&r->raft, c->election_ms != 0 ? c->election_ms : PMS_RAFT_ELECTION_MS);
    raft_set_heartbeat_timeout(&r->raft, c->heartbeat_ms != 0 ? c->heartbeat_ms : PMS_RAFT_HEARTBEAT_MS);
    raft_set_install_snapshot_timeout(&r->raft, INSTALL_SNAPSHOT_MS);
    raft_set_snapshot_threshold(&r->raft, threshold);
    raft_set_snapshot_trailing(&r->raft, threshold);
    raft_set_pre_vote(&r->raft, true);
    raft_set_max_catch_up_round_duration(&r->raft, CATCH_UP_ROUND_MS);
    raft_uv_set_connect_retry_delay(&r->io, CONNECT_RETRY_MS);
    raft_uv_set_segment_size(&r->io, SEGMENT_BYTES);
    // A voter that quietly lost part of its log is worse than one that does not start.
    raft_uv_set_auto_recovery(&r->io, false);
}

// The libraft part of open; on error nothing of it is left.
static int raft_open(struct pms_raft *r)
{
    struct pms_guard_config guard = {
        .enabled = true, .data = r, .on_step = on_guard_step, .on_fatal = on_guard_fatal};
    int rv = pms_transport_init(&r->transport, r->loop, r->config.net);

    if (rv != 0)
        return rv;
    rv = pms_raft_err(raft_uv_init(&r->io, r->loop, r->dir, &r->transport));
    if (rv != 0) {
        pms_transport_deinit(&r->transport);
        return rv;
    }
    rv = pms_guard_create(&r->io, &r->raft, &guard, &r->guard);
    if (rv == 0)
        rv = pms_raft_err(raft_init(&r->raft, pms_guard_io(r->guard), &r->fsm, r->config.id, r->address));
    if (rv == 0 && raft_uv_set_snapshot_compression(&r->io, true) != 0)
        pms_log(PMS_LOG_WARN, "this libraft cannot compress snapshots");
    if (rv != 0) {
        if (r->io.errmsg[0] != '\0')
            pms_log(PMS_LOG_ERROR, "%s: %s", r->dir, r->io.errmsg);
        raft_uv_close(&r->io);
        pms_guard_destroy(r->guard);
        pms_transport_deinit(&r->transport);
    }
    return rv;
}

static void lists_init(struct pms_raft *r)
{
    pms_list_init(&r->waiting);
    pms_list_init(&r->applying);
    pms_list_init(&r->forwarded);
    pms_list_init(&r->barriers_next);
    pms_list_init(&r->barriers_now);
    pms_list_init(&r->reads_next);
    pms_list_init(&r->reads_now);
    pms_list_init(&r->reads_apply);
    pms_list_init(&r->changes);
    pms_list_init(&r->transfers);
}

int pms_raft_open(uv_loop_t *loop, const struct pms_raft_config *config, struct pms_raft **out)
{
    struct pms_raft *r = calloc(1, sizeof *r);
    int rv = -ENOMEM;

    PMS_CHECK(config->id != 0 && config->apply != NULL && config->snapshot != NULL &&
              config->restore != NULL);
    if (r == NULL)
        return rv;
    r->loop = loop;
    r->config = *config;
    r->fsm = (struct raft_fsm){
        .version = 2, .data = r, .apply = fsm_apply, .snapshot = fsm_snapshot, .restore = fsm_restore};
    lists_init(r);
    pms_id_format(config->id, r->address);
    r->dir = strdup(config->dir);
    if (r->dir == NULL)
        goto out;
    rv = dir_check(r->dir);
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "cannot keep the Raft log in %s: %s", r->dir, pms_err_text(rv));
        goto out;
    }
    rv = raft_open(r);
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "cannot open the Raft log in %s: %s", r->dir, pms_err_text(rv));
        goto out;
    }
    raft_settings(r);
    PMS_CHECK(uv_idle_init(loop, &r->idle) == 0 && uv_timer_init(loop, &r->tick) == 0);
    r->idle.data = r;
    r->tick.data = r;
    r->handles = 2;
    *out = r;
out:
    if (rv != 0) {
        free(r->dir);
        free(r);
    }
    return rv;
}

int pms_raft_bootstrap(struct pms_raft *r)
{
    struct raft_configuration conf;
    int rv;

    raft_configuration_init(&conf);
    rv = raft_configuration_add(&conf, r->config.id, r->address, RAFT_VOTER);
    if (rv == 0)
        rv = raft_bootstrap(&r->raft, &conf);
    raft_configuration_close(&conf);
    return pms_raft_err(rv);
}

int pms_raft_start(struct pms_raft *r)
{
    int rv;

    PMS_CHECK(!r->started);
    rv = raft_start(&r->raft);
    if (rv == 0 && r->failed)
        rv = RAFT_CORRUPT; // while replaying
    if (rv != 0) {
        pms_log(PMS_LOG_ERROR, "cannot start from the Raft log in %s: %s", r->dir,
                r->failed ? r->failure : raft_errmsg(&r->raft));
        return pms_raft_err(rv);
    }
    rv = pms_rpc_serve(r->config.rpc, PMS_RAFT_SERVICE, pms_raft_on_request, r);
    PMS_CHECK_MSG(rv == 0, "the raft service is taken");
    r->started = true;
    PMS_CHECK(uv_timer_start(&r->tick, on_tick, PMS_RAFT_TICK_MS, PMS_RAFT_TICK_MS) == 0);
    pms_raft_schedule(r);
    return 0;
}

// ---- close

static void on_handle_closed(uv_handle_t *handle)
{
    struct pms_raft *r = handle->data;
    void (*cb)(void *data) = r->close_cb;
    void *data = r->close_data;

    if (--r->handles > 0)
        return;
    if (r->raft_closed) {
        raft_uv_close(&r->io);
        pms_transport_deinit(&r->transport);
        pms_guard_destroy(r->guard);
        pms_raft_members_free(r);
        free(r->result);
        free(r->dir);
        free(r);
    } // else libraft may still work in it (see above)
    if (cb != NULL)
        cb(data);
}

static void handles_close(struct pms_raft *r)
{
    uv_close((uv_handle_t *)&r->idle, on_handle_closed);
    uv_close((uv_handle_t *)&r->tick, on_handle_closed);
}

static void on_raft_closed(struct raft *raft)
{
    struct pms_raft *r = raft->data;

    r->raft_closed = true;
    handles_close(r);
}

static void close_work(struct pms_raft *r)
{
    r->closed = true;
    uv_idle_stop(&r->idle);
    uv_timer_stop(&r->tick);
    if (r->started)
        pms_rpc_serve(r->config.rpc, PMS_RAFT_SERVICE, NULL, NULL);
    pms_raft_proposals_close(r);
    pms_raft_barriers_close(r);
    pms_raft_members_close(r);
    if (r->failed) {
        if (!r->failed_told)
            pms_transport_detach(&r->transport);
        handles_close(r);
        return;
    }
    r->raft.data = r;
    raft_close(&r->raft, on_raft_closed);
}

void pms_raft_close(struct pms_raft *r, void (*cb)(void *data), void *data)
{
    PMS_CHECK(!r->closing);
    r->closing = true;
    r->close_cb = cb;
    r->close_data = data;
    pms_raft_schedule(r);
}
