// SPDX-License-Identifier: GPL-2.0-or-later
// The array state machine's frame: creation, events in, actions out, roles.
#include "datapath/core/dp.h"

#include <stdlib.h>
#include <string.h>

#include "datapath/core/dp_internal.h"

#define PROPOSE_AGAIN_MS 100

const struct pms_dp_timing pms_dp_timing_default = {
    .heartbeat = PMS_HEARTBEAT_MS,
    .promise = PMS_PROMISE_MS,
    .lease = PMS_LEASE_MS,
    .eject_dead = PMS_EJECT_DEAD_MS,
    .eject_slow = PMS_EJECT_SLOW_MS,
    .ask_wait = 50,
    .aside_again = 60000,
    .readmit_max = 60000,
    .clear_idle = 5000,
    .flush = PMS_VOLATILE_MS,
};

#ifdef PMS_MUTANTS
int pms_mutant = PMS_MUTANT_NONE;

const char *pms_mutant_name(int m)
{
    static const char *const names[PMS_MUTANT_END] = {
        [PMS_MUTANT_NONE] = "none",
        [PMS_MUTANT_EPOCH_UNCHECKED] = "epoch-unchecked",
        [PMS_MUTANT_ACK_EARLY] = "ack-early",
        [PMS_MUTANT_NO_PROMISE_WAIT] = "no-promise-wait",
        [PMS_MUTANT_NO_SETTLE] = "no-settle",
        [PMS_MUTANT_ADMIT_EARLY] = "admit-early",
        [PMS_MUTANT_UNFLUSHED_ACK] = "unflushed-ack",
        [PMS_MUTANT_FLOOR_VOLATILE] = "floor-volatile",
        [PMS_MUTANT_READ_INFLIGHT] = "read-inflight",
        [PMS_MUTANT_LEASE_IGNORED] = "lease-ignored",
        [PMS_MUTANT_CLOCK_STOP_IGNORED] = "clock-stop-ignored",
        [PMS_MUTANT_DIRTY_FORGOTTEN] = "dirty-forgotten",
        [PMS_MUTANT_OWN_MAP] = "own-map",
        [PMS_MUTANT_CLEAR_EARLY] = "clear-early",
        [PMS_MUTANT_ADMIT_NO_UNION] = "admit-no-union",
        [PMS_MUTANT_SAME_EPOCH] = "same-epoch",
        [PMS_MUTANT_NO_DRAIN] = "no-drain",
        [PMS_MUTANT_KEEP_ALL] = "keep-all",
        [PMS_MUTANT_INCARNATION_IGNORED] = "incarnation-ignored",
        [PMS_MUTANT_COPY_UNLOCKED] = "copy-unlocked",
        [PMS_MUTANT_INTERRUPTED_ADMITTED] = "interrupted-admitted",
        [PMS_MUTANT_OVERLAP_ALLOWED] = "overlap-allowed",
        [PMS_MUTANT_FLUSH_RETRIED] = "flush-retried",
        [PMS_MUTANT_EJECT_LEAVES_NONE] = "eject-leaves-none",
        [PMS_MUTANT_HANDOVER_UNDRAINED] = "handover-undrained",
        [PMS_MUTANT_LEASE_FROM_ACK] = "lease-from-ack",
        [PMS_MUTANT_HELD_KEPT] = "held-kept",
        [PMS_MUTANT_RESYNC_MISSES] = "resync-misses",
        [PMS_MUTANT_CLEAR_BUSY] = "clear-busy",
        [PMS_MUTANT_EJECT_ASSUMED] = "eject-assumed",
        [PMS_MUTANT_SETTLE_OWN_MAP] = "settle-own-map",
        [PMS_MUTANT_RESEND_FORGOTTEN] = "resend-forgotten",
        [PMS_MUTANT_FLUSH_LOCAL] = "flush-local",
        [PMS_MUTANT_FLUSH_NOTHING] = "flush-nothing",
        [PMS_MUTANT_FUA_IGNORED] = "fua-ignored",
        [PMS_MUTANT_VOLATILE_UNMARKED] = "volatile-unmarked",
        [PMS_MUTANT_UNCLEAN_IGNORED] = "unclean-ignored",
        [PMS_MUTANT_UNCLEAN_ALONE] = "unclean-alone",
        [PMS_MUTANT_CLEAR_UNFLUSHED] = "clear-unflushed",
        [PMS_MUTANT_ADMIT_UNFLUSHED] = "admit-unflushed",
        [PMS_MUTANT_ANY_ANCESTOR] = "any-ancestor",
        [PMS_MUTANT_ZERO_UNORDERED] = "zero-unordered",
    };
    return m >= 0 && m < PMS_MUTANT_END ? names[m] : NULL;
}
#endif

/* ---- actions ---- */
struct pms_dp_action *dp_act(struct pms_dp *dp, enum pms_dp_action_type type)
{
    if (dp->acts_tail == dp->acts_cap && dp->acts_head > 0) {
        memmove(dp->acts, dp->acts + dp->acts_head, (dp->acts_tail - dp->acts_head) * sizeof *dp->acts);
        dp->acts_tail -= dp->acts_head;
        dp->acts_head = 0;
    }
    if (dp->acts_tail == dp->acts_cap) {
        dp->acts_cap = dp->acts_cap ? dp->acts_cap * 2 : 64;
        dp->acts = realloc(dp->acts, dp->acts_cap * sizeof *dp->acts);
        PMS_CHECK(dp->acts != NULL);
    }
    struct pms_dp_action *a = &dp->acts[dp->acts_tail++];

    memset(a, 0, sizeof *a);
    a->type = type;
    return a;
}

bool pms_dp_action_next(struct pms_dp *dp, struct pms_dp_action *out)
{
    if (dp->acts_head == dp->acts_tail) {
        dp->acts_head = dp->acts_tail = 0;
        return false;
    }
    *out = dp->acts[dp->acts_head++];
    return true;
}

/* ---- disk requests ---- */
uint64_t dp_dreq_new(struct pms_dp *dp, enum dreq_kind kind, void *ptr)
{
    uint32_t i = 0;

    while (i < dp->dreqs_n && dp->dreqs[i].kind != DREQ_FREE)
        i++;
    if (i == dp->dreqs_n) {
        uint32_t n = dp->dreqs_n ? dp->dreqs_n * 2 : 64;

        dp->dreqs = realloc(dp->dreqs, n * sizeof *dp->dreqs);
        PMS_CHECK(dp->dreqs != NULL);
        memset(dp->dreqs + dp->dreqs_n, 0, (n - dp->dreqs_n) * sizeof *dp->dreqs);
        dp->dreqs_n = n;
    }
    dp->dreqs[i].kind = kind;
    dp->dreqs[i].ptr = ptr;
    dp->dreqs[i].started = dp->now;
    return (uint64_t)++dp->dreqs[i].generation << 32 | i;
}

void dp_dreq_forget(struct pms_dp *dp, const void *ptr)
{
    for (uint32_t i = 0; i < dp->dreqs_n; i++)
        if (dp->dreqs[i].kind != DREQ_FREE && dp->dreqs[i].ptr == ptr)
            dp->dreqs[i].ptr = NULL;
}

void dp_disk(struct pms_dp *dp, enum pms_dp_disk_type type, uint64_t tag, uint64_t offset, uint32_t length,
             struct pms_iobuf *buf, uint32_t buf_off)
{
    struct pms_dp_action *a = dp_act(dp, PMS_DP_ACT_DISK);

    a->buf = buf;
    a->buf_off = buf_off;
    a->disk.type = type;
    a->disk.tag = tag;
    a->disk.offset = offset;
    a->disk.length = length;
}

/* ---- frames out ---- */
struct pms_frame dp_frame(struct pms_dp *dp, uint8_t type, uint8_t to)
{
    struct pms_frame f = {
        .type = type,
        .from_slot = dp->self,
        .to_slot = to,
        .cluster = dp->init.cluster,
        .array = dp->init.array,
        .epoch = dp->conf.epoch,
        .floor = dp->brick.disk.floor,
    };

    return f;
}

static void send_action(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *f,
                        struct pms_iobuf *buf, uint32_t buf_off)
{
    struct pms_dp_action *a = dp_act(dp, PMS_DP_ACT_SEND);

    a->buf = buf;
    a->buf_off = buf_off;
    a->send.node = node;
    a->send.conn = conn;
    a->send.frame = *f;
    a->send.frame.payload_sum = pms_frame_sum(buf != NULL ? buf->data + buf_off : NULL, f->payload_len);
}

void dp_send(struct pms_dp *dp, uint8_t to, struct pms_frame *f, struct pms_iobuf *buf, uint32_t buf_off)
{
    f->to_slot = to;
    if (dp->link_up & BIT(to))
        send_action(dp, dp->conf.node[to], 0, f, buf != NULL ? pms_iobuf_ref(buf) : NULL, buf_off);
}

void dp_answer(struct pms_dp *dp, uint64_t node, uint64_t conn, const struct pms_frame *req, uint8_t type,
               uint8_t status, struct pms_iobuf *payload)
{
    struct pms_frame f = dp_frame(dp, type, req->from_slot);

    f.status = status;
    f.epoch = req->epoch;
    f.seq = req->seq;
    f.offset = req->offset;
    f.length = req->length;
    f.arg = req->arg;
    f.arg2 = dp->brick.mem.incarnation;
    f.floor = dp->brick.mem.floor;
    f.payload_len = payload != NULL ? payload->len : 0;
    send_action(dp, node, conn, &f, payload, 0);
}

/* Proposes, unless the same was proposed a moment ago. */
void dp_propose(struct pms_dp *dp, enum pms_dp_transition kind, uint8_t primary, uint8_t in_sync,
                const uint64_t *incarnation)
{
    struct proposal *p = &dp->prop;

    if (p->epoch == dp->conf.epoch && p->kind == kind && p->primary == primary && p->in_sync == in_sync &&
        dp->now < p->at + MS(PROPOSE_AGAIN_MS))
        return;
    p->kind = kind;
    p->epoch = dp->conf.epoch;
    p->primary = primary;
    p->in_sync = in_sync;
    p->at = dp->now;

    struct pms_dp_action *a = dp_act(dp, PMS_DP_ACT_PROPOSE);

    a->propose.kind = kind;
    a->propose.epoch = dp->conf.epoch;
    a->propose.primary = primary;
    a->propose.in_sync = in_sync;
    memcpy(a->propose.incarnation, incarnation, sizeof a->propose.incarnation);
}

/* ---- roles ---- */
bool dp_is_primary(const struct pms_dp *dp)
{
    return dp->role == PMS_DP_SETTLING || dp->role == PMS_DP_SERVING || dp->role == PMS_DP_DRAINED;
}

bool dp_self_in_sync(const struct pms_dp *dp)
{
    return (dp->conf.in_sync & BIT(dp->self)) && dp->conf.incarnation[dp->self] == dp->brick.mem.incarnation;
}

/* The own brick is what became of the in-sync one when it may have lost acknowledged data (R6). */
bool dp_self_unclean(const struct pms_dp *dp)
{
    return (dp->conf.in_sync & BIT(dp->self)) && !dp_self_in_sync(dp) && dp->conf.cache_used &&
           (dp->brick.mem.ancestor == dp->conf.incarnation[dp->self] || PMS_MUTANT(ANY_ANCESTOR));
}

/* Every request but MAP, which asks for it, names the incarnation that it is meant for: a brick may be
 * replaced at any time. */
uint64_t dp_incarnation(const struct pms_dp *dp, uint8_t slot)
{
    return (dp->conf.in_sync & BIT(slot)) ? dp->conf.incarnation[slot] : dp->sess[slot].incarnation;
}

void dp_stepdown(struct pms_dp *dp)
{
    bool was = dp_is_primary(dp);

    dp->role = PMS_DP_REPLICA;
    if (was)
        dp_primary_stop(dp);
}

/* ---- progress and status ---- */
/* All but dirty_regions, which costs a walk over the map: too much for each event of a large array. */
static void status_fill(const struct pms_dp *dp, struct pms_dp_status *out)
{
    uint64_t left = 0, total = 0;

    memset(out, 0, sizeof *out);
    out->role = dp->role;
    out->epoch = dp->conf.epoch;
    out->floor = dp->brick.disk.floor;
    out->served = dp->brick.disk.served;
    out->incarnation = dp->brick.mem.incarnation;
    out->serving = dp_is_primary(dp) && dp->epoch_active;
    out->leased = out->serving && dp_primary_leased(dp);
    out->ailing = dp_aside_ailing(dp);
    out->brick_failed = dp->brick.failed;
    out->unclean = dp->brick.unclean && !dp_self_in_sync(dp);
    out->lossy = out->serving && dp->lossy;
    out->volatile_data = dp->brick.mem.volatile_boot != 0;
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++) {
        const struct sess *k = &dp->sess[s];

        if (k->kind == SESS_SETTLE && k->left > out->settle_left)
            out->settle_left = k->left;
        if (k->kind != SESS_RESYNC)
            continue;
        out->resyncing |= BIT(s);
        left += k->left;
        total += k->total;
    }
    out->resync_total = total * dp->init.region_bytes;
    out->resync_done = (total - left) * dp->init.region_bytes;
    out->resync_sent = dp->resync_sent;
    out->ops_held = dp->cops_queued;
    out->ops_active = dp->cops_active;
    out->writes = dp->counters_writes;
    out->reads = dp->counters_reads;
    out->flushes_disk = dp->counters_flushes;
    out->takeovers = dp->counters_takeovers;
}

static void tell(struct pms_dp *dp)
{
    struct pms_dp_status s;
    struct pms_dp_status *t = &dp->told;

    status_fill(dp, &s);
    if (s.role == t->role && s.epoch == t->epoch && s.serving == t->serving && s.leased == t->leased &&
        s.brick_failed == t->brick_failed && s.ailing == t->ailing && s.resyncing == t->resyncing)
        return;
    *t = s;
    dp_act(dp, PMS_DP_ACT_STATUS);
}

static void pump(struct pms_dp *dp)
{
    bool any;

    do {
        any = dp_brick_pump(dp);
        any |= dp_replica_pump(dp);
        any |= dp_cand_pump(dp);
        any |= dp_primary_pump(dp);
        any |= dp_coord_pump(dp);
        any |= dp_repair_pump(dp);
    } while (any);
    tell(dp);
}

static void set_now(struct pms_dp *dp, uint64_t now)
{
    if (now > dp->now)
        dp->now = now;
}

/* ---- creation ---- */
int pms_dp_create(const struct pms_dp_init *init, const uint8_t cluster_uuid[16], const uint8_t *area,
                  uint64_t now, struct pms_dp **out)
{
    struct pms_dp *dp;
    int err;

    if (init->region_bytes < 8192 || (init->region_bytes & (init->region_bytes - 1)) != 0 ||
        init->boot_id == 0 || init->fresh_incarnation == 0 || init->size_bytes == 0 ||
        init->size_bytes % 512 != 0 || init->self_slot >= PMS_SLOTS_MAX)
        return PMS_EREFUSED;
    dp = calloc(1, sizeof *dp);
    PMS_CHECK(dp != NULL);
    dp->init = *init;
    dp->self = init->self_slot;
    dp->chunk_bytes = init->region_bytes / CHUNKS_PER_REGION;
    dp->now = dp->boot = now;
    dp->handover_to = NO_SLOT;
    pms_list_init(&dp->cops);
    pms_list_init(&dp->jobs);
    dp_replica_init(dp, now);
    err = dp_brick_load(dp, cluster_uuid, area);
    if (err != 0) {
        pms_dp_destroy(dp);
        return err;
    }
    size_t bits = dp_bits_bytes(dp);
    dp->cand.bits = calloc(1, bits);
    dp->seen = calloc(1, bits);
    dp->last_use = calloc(dp->brick.regions, sizeof *dp->last_use);
    PMS_CHECK(dp->cand.bits != NULL && dp->seen != NULL && dp->last_use != NULL);
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++) {
        dp->sess[s].need = calloc(1, bits);
        PMS_CHECK(dp->sess[s].need != NULL);
    }
    *out = dp;
    return 0;
}

void pms_dp_destroy(struct pms_dp *dp)
{
    struct pms_dp_action a;

    if (dp == NULL)
        return;
    dp_repair_stop(dp);
    pms_list_for_each_safe (p, &dp->cops) {
        pms_list_del(p);
        free(pms_list_entry(p, struct cop, link));
    }
    dp_replica_free(dp);
    while (pms_dp_action_next(dp, &a))
        pms_iobuf_put(a.buf);
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++)
        free(dp->sess[s].need);
    dp_brick_free(dp);
    free(dp->cand.bits);
    free(dp->seen);
    free(dp->last_use);
    free(dp->dreqs);
    free(dp->acts);
    free(dp);
}

/* ---- events ---- */
void pms_dp_tick(struct pms_dp *dp, uint64_t now)
{
    set_now(dp, now);
    dp_aside_tick(dp);
    dp_leave_tick(dp);
    dp_brick_tick(dp);
    dp_cand_tick(dp);
    dp_primary_tick(dp);
    pump(dp);
}

static bool same_set(const struct pms_dp_conf *a, const struct pms_dp_conf *b)
{
    if (a->in_sync != b->in_sync)
        return false;
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++)
        if ((a->in_sync & BIT(s)) && a->incarnation[s] != b->incarnation[s])
            return false;
    return true;
}

/* The next epoch is a handover to this node that it has not acted on in an earlier life. */
static bool is_handover_to_self(const struct pms_dp *dp, const struct pms_dp_conf *old)
{
    return dp->role == PMS_DP_REPLICA && dp->live && !dp->brick.failed && dp->conf.primary == dp->self &&
           dp_self_in_sync(dp) && old->primary != dp->self && (old->in_sync & BIT(old->primary)) &&
           same_set(&dp->conf, old) && dp->brick.mem.floor < dp->conf.epoch &&
           dp->brick.mem.served < dp->conf.epoch;
}

static void start_after_takeover(struct pms_dp *dp)
{
    dp_primary_start(dp, dp->cand.bits);
    dp->lossy = dp->cand.unclean;
}

static void new_epoch(struct pms_dp *dp, const struct pms_dp_conf *conf)
{
    struct pms_dp_conf old = dp->conf;
    bool next = conf->epoch == old.epoch + 1;
    bool mine = dp_cand_matches(dp, conf) && next;

    dp->conf = *conf;
    dp_aside_epoch(dp);
    dp_flap_epoch(dp, &old);
    /* What is held here may have been sent again to whoever was primary meanwhile, and be outdated by now. */
    if (conf->primary != dp->self || !next) {
        dp_stepdown(dp);
        if (!PMS_MUTANT(HELD_KEPT))
            dp_coord_drop_all(dp);
    }
    if (!dp->live)
        return;
    if (dp_is_primary(dp) && conf->primary == dp->self && dp_self_in_sync(dp) && next)
        dp_primary_same(dp);
    else if (mine && dp_self_in_sync(dp))
        start_after_takeover(dp);
    else if (next && is_handover_to_self(dp, &old))
        dp_primary_start(dp, NULL);
    else
        dp_stepdown(dp);
    /* Whoever was just named has not been heard yet: it gets as long as a promise would give it. */
    if (conf->primary != dp->self && conf->primary != old.primary)
        dp_cand_abort(dp, dp->init.timing.promise);
}

/* Finds the node's place among the nodes whose link is up; node 0 finds a free one. NULL: none. */
static uint64_t *up_find(struct pms_dp *dp, uint64_t node)
{
    for (size_t i = 0; i < sizeof dp->up_nodes / sizeof *dp->up_nodes; i++)
        if (dp->up_nodes[i] == node)
            return &dp->up_nodes[i];
    return NULL;
}

static void slot_up(struct pms_dp *dp, uint8_t s)
{
    dp->link_up |= BIT(s);
    dp->gone_until[s] = 0;
    dp_flap_link_up(dp, s);
    dp_cand_link_up(dp, s);
    if (!dp_is_primary(dp))
        return;
    dp->next_hb = dp->now;
    dp_coord_resend(dp, BIT(s));
    dp_primary_tick(dp);
}

/* Links may come up before a configuration says which slot they lead to. */
static void links_recount(struct pms_dp *dp)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++) {
        bool up = s != dp->self && dp->conf.node[s] != 0 && up_find(dp, dp->conf.node[s]) != NULL;

        if (up && !(dp->link_up & BIT(s)))
            slot_up(dp, s);
        else if (!up && (dp->link_up & BIT(s))) {
            dp->link_up &= (uint8_t)~BIT(s);
            dp_repair_link_down(dp, s);
        }
    }
}

void pms_dp_conf(struct pms_dp *dp, uint64_t now, const struct pms_dp_conf *conf, bool live)
{
    set_now(dp, now);
    if (conf->epoch < dp->conf.epoch)
        return;
    dp->live |= live;
    if (conf->epoch > dp->conf.epoch) {
        new_epoch(dp, conf);
        links_recount(dp);
    }
    dp->conf.write_cache = conf->write_cache;
    dp->conf.cache_used = conf->cache_used;
    if (PMS_MUTANT(SAME_EPOCH) && dp->live && dp->role == PMS_DP_REPLICA && dp->conf.primary == dp->self &&
        dp_self_in_sync(dp) && dp->brick.mem.floor <= dp->conf.epoch)
        dp_primary_start(dp, dp->brick.bits_mem);
    pump(dp);
}

static uint8_t slot_of(const struct pms_dp *dp, uint64_t node)
{
    for (uint8_t s = 0; s < dp->conf.n_slots; s++)
        if (dp->conf.node[s] == node && s != dp->self)
            return s;
    return NO_SLOT;
}

void pms_dp_link_up(struct pms_dp *dp, uint64_t now, uint64_t node)
{
    uint64_t *place;

    set_now(dp, now);
    if (up_find(dp, node) != NULL)
        pms_dp_link_down(dp, now, node);
    place = up_find(dp, 0);
    if (place == NULL || node == 0)
        return;
    *place = node;
    links_recount(dp);
    pump(dp);
}

void pms_dp_link_down(struct pms_dp *dp, uint64_t now, uint64_t node)
{
    uint64_t *place = up_find(dp, node);

    set_now(dp, now);
    if (place == NULL || node == 0)
        return;
    *place = 0;
    links_recount(dp);
    pump(dp);
}

static void on_answer(struct pms_dp *dp, uint8_t slot, const struct pms_frame *f, struct pms_iobuf *buf)
{
    switch (f->type) {
    case PMS_FRAME_ASK_ACK:
    case PMS_FRAME_PROMISE_ACK:
        dp_cand_answer(dp, slot, f, buf);
        return;
    case PMS_FRAME_HB_ACK:
        if (dp_is_primary(dp))
            dp_primary_hb_ack(dp, slot, f);
        return;
    case PMS_FRAME_MAP_ACK:
        if (dp_is_primary(dp))
            dp_repair_map_ack(dp, slot, f, buf);
        return;
    default:
        break;
    }
    if (!dp_is_primary(dp))
        return;
    if (f->status != PMS_FRAME_OK) {
        dp_primary_refused(dp, slot, f);
        dp_repair_refused(dp, slot);
        return;
    }
    if (f->type == PMS_FRAME_SUMS_ACK)
        dp_repair_sums_ack(dp, slot, f, buf);
    else if (f->type == PMS_FRAME_FLUSH_ACK && dp_repair_flush_ack(dp, slot, f->seq))
        return;
    else if (!dp_repair_write_ack(dp, slot, f->seq))
        dp_coord_ack(dp, slot, f->seq);
}

int pms_dp_frame(struct pms_dp *dp, uint64_t now, uint64_t node, uint64_t conn, const struct pms_frame *f,
                 struct pms_iobuf *buf)
{
    uint8_t slot = slot_of(dp, node);
    int err = 0;

    set_now(dp, now);
    if (f->cluster != dp->init.cluster || f->array != dp->init.array)
        return PMS_EIDENTITY;
    if (slot == NO_SLOT)
        return dp->conf.epoch == 0
                   ? 0
                   : PMS_EIDENTITY; /* nothing is known yet: as if it were lost with its link */
    if (f->from_slot != slot || f->to_slot != dp->self)
        return PMS_EIDENTITY;
    if (pms_frame_is_answer(f->type) != (conn == 0) ||
        (f->payload_len > 0 && (buf == NULL || buf->len < f->payload_len)))
        return PMS_EPROTO;
    if (conn == 0)
        on_answer(dp, slot, f, buf);
    else
        err = dp_replica_frame(dp, node, conn, f, buf);
    pump(dp);
    return err;
}

void pms_dp_disk_done(struct pms_dp *dp, uint64_t now, uint64_t tag, int status)
{
    uint32_t i = (uint32_t)tag;

    set_now(dp, now);
    PMS_CHECK(i < dp->dreqs_n && dp->dreqs[i].kind != DREQ_FREE &&
              dp->dreqs[i].generation == (uint32_t)(tag >> 32));
    struct dreq d = dp->dreqs[i];

    dp->dreqs[i].kind = DREQ_FREE;
    dp->dreqs[i].ptr = NULL;
    if (status != 0 && d.kind == DREQ_FLUSH && PMS_MUTANT(FLUSH_RETRIED)) {
        dp_disk(dp, PMS_DP_DISK_FLUSH, dp_dreq_new(dp, DREQ_FLUSH, d.ptr), 0, 0, NULL, 0);
    } else if (status != 0 && d.kind != DREQ_COP) {
        dp_brick_fail(dp);
    } else if (d.ptr != NULL && !dp->brick.failed) {
        if (d.kind == DREQ_META)
            dp_brick_written(dp);
        else if (d.kind == DREQ_FLUSH)
            dp_brick_flushed(dp);
        else if (d.kind == DREQ_ROP)
            dp_replica_io_done(dp, d.ptr);
        else if (d.kind == DREQ_JOB)
            dp_repair_read_done(dp, d.ptr);
        else
            dp_coord_read_done(dp, d.ptr, status);
    }
    pump(dp);
}

void pms_dp_submit(struct pms_dp *dp, uint64_t now, struct pms_dp_op *op)
{
    set_now(dp, now);
    dp_coord_submit(dp, op);
    pump(dp);
}

/* ---- out ---- */
const struct pms_dp_conf *pms_dp_conf_get(const struct pms_dp *dp)
{
    return &dp->conf;
}

void pms_dp_status_get(const struct pms_dp *dp, uint64_t now, struct pms_dp_status *out)
{
    (void)now;
    status_fill(dp, out);
    for (uint8_t s = 0; s < dp->conf.n_slots && out->serving; s++) {
        out->falls[s] = dp->flap[s].falls;
        if (!(dp->conf.in_sync & BIT(s)))
            out->back_ms[s] = dp_flap_wait_ms(dp, s);
    }
    out->dirty_regions = dp_bits_count(dp, dp->brick.bits_mem);
}

void pms_dp_check(const struct pms_dp *dp)
{
    uint32_t queued = 0, active = 0, waiting = 0;

    pms_list_for_each (p, &dp->cops) {
        if (pms_list_entry(p, struct cop, link)->state == COP_QUEUED)
            queued++;
        else
            active++;
    }
    pms_list_for_each (p, &dp->rep.rops)
        waiting += pms_list_entry(p, struct rop, link)->state == ROP_WAIT;
    PMS_CHECK(queued == dp->cops_queued && active == dp->cops_active && waiting == dp->rep.rops_waiting);
    PMS_CHECK(dp->brick.mem.floor >= dp->brick.disk.floor && dp->brick.mem.served >= dp->brick.disk.served);
    if (dp->epoch_active && !PMS_MUTANT(EPOCH_UNCHECKED)) {
        PMS_CHECK(dp_is_primary(dp) && dp->conf.primary == dp->self);
        PMS_CHECK(dp->brick.mem.floor == dp->conf.epoch && dp->brick.disk.served == dp->conf.epoch);
        PMS_CHECK(dp->brick.disk.floor == dp->conf.epoch || PMS_MUTANT(FLOOR_VOLATILE));
    }
    if (!dp_is_primary(dp)) {
        PMS_CHECK(!dp->epoch_active && active == 0 && pms_list_empty(&dp->jobs) && dp->admitting == 0);
    }
    for (uint8_t s = 0; s < PMS_SLOTS_MAX; s++)
        PMS_CHECK(dp->sess[s].jobs <= dp->sess[s].left);
}
