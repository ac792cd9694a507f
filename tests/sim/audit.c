// SPDX-License-Identifier: GPL-2.0-or-later
// What must hold at every moment: acknowledged data is stable on every in-sync slot, and answers' epochs
// never go back.
#include "tests/sim/audit.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

static uint64_t sector_value(struct sim *sim, const struct node *n, bool stable, uint32_t sector)
{
    uint8_t data[PMS_SECTOR_BYTES];
    uint64_t value;

    disk_peek(&n->disk, stable, PMS_BRICK_DATA_OFFSET + (uint64_t)sector * PMS_SECTOR_BYTES, data,
              sizeof data);
    if (!sector_parse(data, sector, &value)) {
        sim_violation(sim, "%s: sector %u of the brick holds what nobody wrote there", n->name, sector);
        return UINT64_MAX;
    }
    return value;
}

// It was certainly over before the acknowledged write began.
static bool was_over(const struct attempt *a, const struct attempt *acked)
{
    return (a->end != CHECK_NEVER ? a->end : a->fenced) < acked->start;
}

// Zeros in the sector are older, unless something zeroed it that was not over before.
static bool are_zeros_older(const struct sim *sim, uint32_t sector, const struct attempt *acked)
{
    uint64_t at = (uint64_t)sector * PMS_SECTOR_BYTES;

    for (size_t i = 0; i < sim->clients.n_attempts; i++) {
        const struct attempt *a = sim->clients.attempts[i];

        if (a->op.type == PMS_DP_ZERO && a->start != 0 && at >= a->op.offset &&
            at < a->op.offset + a->op.length && (a == acked || !was_over(a, acked)))
            return false;
    }
    return true;
}

// True if value was certainly over before the acknowledged write began.
static bool is_older(const struct sim *sim, uint32_t sector, uint64_t value, const struct attempt *acked)
{
    const struct attempt *a;

    if (value == acked->value)
        return false;
    if (value == 0)
        return are_zeros_older(sim, sector, acked);
    a = client_attempt(sim, value);
    return a == NULL || was_over(a, acked);
}

// What a power loss right now would leave on this in-sync brick must be new enough.
static void check_sector(struct sim *sim, const struct node *n, uint32_t sector)
{
    const struct attempt *acked = sim->audit.acked[sector];
    uint64_t value;

    if (acked == NULL || sim->failed)
        return;
    value = sector_value(sim, n, true, sector);
    if (is_older(sim, sector, value, acked))
        sim_violation(
            sim,
            "%s is in sync at e%llu, but sector %u of its brick has #%llu, older than the acknowledged #%llu",
            n->name, (unsigned long long)sim->raft.conf.epoch, sector, (unsigned long long)value,
            (unsigned long long)acked->value);
}

static void check_slots(struct sim *sim, uint32_t sector, uint32_t count)
{
    for (unsigned s = 0; s < sim->n_slots; s++) {
        const struct node *n = node_of_slot(sim, (int)s);

        // A replaced brick is not the one that is in sync (R6).
        if ((sim->raft.conf.in_sync >> s & 1) == 0 || n->brick_lost ||
            n->incarnation != sim->raft.conf.incarnation[s])
            continue;
        for (uint32_t i = 0; i < count; i++)
            check_sector(sim, n, sector + i);
    }
}

// Every in-sync slot lost power: what was not flushed may be gone, what was flushed may not.
static void on_unclean_takeover(struct sim *sim)
{
    struct audit *au = &sim->audit;
    const struct node *p = node_of_slot(sim, sim->raft.conf.primary);
    struct reset *r;

    au->resets = realloc(au->resets, (au->n_resets + 1) * sizeof *au->resets);
    PMS_CHECK(au->resets != NULL);
    r = &au->resets[au->n_resets++];
    *r = (struct reset){.at = sim->world.now, .slots = sim->raft.conf.in_sync};
    story(sim, "%s takes over uncleanly", p->name);
    // What it held until now begins now: it could not execute anything before.
    for (size_t i = 0; i < sim->clients.n_attempts; i++) {
        struct attempt *a = sim->clients.attempts[i];

        if (a->node == p->index && a->start != 0 && a->end == CHECK_NEVER && !pms_list_empty(&a->link))
            a->start = r->at;
    }
    for (unsigned s = 0; s < sim->n_slots; s++) {
        const struct node *n = node_of_slot(sim, (int)s);

        for (uint32_t i = 0; (r->slots >> s & 1) != 0 && i < sim->sectors && !sim->failed; i++) {
            r->value[s][i] = sector_value(sim, n, false, i);
            if (au->acked[i] != NULL && is_older(sim, i, r->value[s][i], au->acked[i]))
                sim_violation(sim, "%s, unclean, has #%llu in sector %u, older than the flushed #%llu",
                              n->name, (unsigned long long)r->value[s][i], i,
                              (unsigned long long)au->acked[i]->value);
        }
    }
}

void audit_transition(struct sim *sim, const struct pms_dp_conf *old)
{
    const struct pms_dp_conf *c = &sim->raft.conf;

    if ((old->in_sync >> c->primary & 1) != 0 && old->incarnation[c->primary] != c->incarnation[c->primary])
        on_unclean_takeover(sim);
    check_slots(sim, 0, sim->sectors);
}

void audit_deinit(struct sim *sim)
{
    free(sim->audit.resets);
}

static unsigned resets_before(const struct sim *sim, uint64_t at)
{
    unsigned n = sim->audit.n_resets;

    while (n > 0 && sim->audit.resets[n - 1].at > at)
        n--;
    return n;
}

uint32_t audit_key(const struct sim *sim, uint32_t sector, uint64_t at)
{
    return resets_before(sim, at) * 100000 + sector;
}

uint64_t audit_seen(struct sim *sim, uint32_t sector, uint64_t at, uint64_t value)
{
    unsigned n = resets_before(sim, at);
    struct reset *r = n > 0 ? &sim->audit.resets[n - 1] : NULL;
    bool old = false;

    for (unsigned s = 0; r != NULL && s < sim->n_slots; s++)
        old |= (r->slots >> s & 1) != 0 && value == r->value[s][sector];
    if (r == NULL)
        return value;
    if (old && !r->is_seen[sector]) {
        r->is_seen[sector] = true;
        r->seen[sector] = value;
    }
    if (old && value == r->seen[sector])
        return 0; // the initial value
    return value != 0 ? value : UINT64_MAX;
}

bool audit_zeros_initial(const struct sim *sim, uint32_t sector, uint64_t at)
{
    unsigned n = resets_before(sim, at);
    const struct reset *r = n > 0 ? &sim->audit.resets[n - 1] : NULL;

    for (unsigned s = 0; r != NULL && s < sim->n_slots; s++)
        if ((r->slots >> s & 1) != 0 && r->value[s][sector] == 0)
            return !r->is_seen[sector] || r->seen[sector] == 0;
    return r == NULL;
}

static void acked(struct audit *au, struct attempt *a)
{
    uint32_t sector = (uint32_t)(a->op.offset / PMS_SECTOR_BYTES), count = a->op.length / PMS_SECTOR_BYTES;

    for (uint32_t i = 0; i < count; i++)
        if (au->acked[sector + i] == NULL || au->acked[sector + i]->start <= a->start)
            au->acked[sector + i] = a;
}

// All that was acknowledged before the flush began, and not lost before, is stable now.
static void flushed(struct sim *sim, const struct attempt *flush)
{
    struct audit *au = &sim->audit;
    uint64_t since = au->n_resets > 0 ? au->resets[au->n_resets - 1].at : 0;

    for (size_t i = 0; i < sim->clients.n_attempts; i++) {
        struct attempt *a = sim->clients.attempts[i];

        if (attempt_is_write(a) && a->end != CHECK_NEVER && a->end <= flush->start && a->start >= since)
            acked(au, a);
    }
    check_slots(sim, 0, sim->sectors);
}

// Attempts that another session's answer cut off (see client.h).
static void fence_others(struct sim *sim, const struct node *n, uint64_t epoch)
{
    for (size_t i = 0; i < sim->clients.n_attempts; i++) {
        struct attempt *a = sim->clients.attempts[i];

        if (a->end == CHECK_NEVER && a->fenced == CHECK_NEVER && a->start != 0 && a->epoch < epoch &&
            (a->node != n->index || a->life != n->life))
            a->fenced = sim->world.now;
    }
}

// A probed read was right when its probe was answered, and so is all that a stopped clock delays: there only
// the history can tell whether an answer came too late.
static bool may_be_late(const struct sim *sim, const struct attempt *a)
{
    return a->op.type == PMS_DP_READ ? sim->plan.probe_reads : sim->plan.clocks_stop;
}

void audit_answer(struct sim *sim, struct node *n, struct attempt *a)
{
    struct audit *au = &sim->audit;
    const struct pms_dp_conf *conf = pms_dp_conf_get(n->dp);
    uint32_t sector = (uint32_t)(a->op.offset / PMS_SECTOR_BYTES), count = a->op.length / PMS_SECTOR_BYTES;

    if (a->op.type == PMS_DP_FLUSH) {
        if (sim->plan.write_cache)
            flushed(sim, a);
        return;
    }
    au->answers++;
    if (attempt_is_write(a) && a->fenced != CHECK_NEVER && !may_be_late(sim, a))
        sim_violation(sim, "%s executes write #%llu of an old session after a later one was served", n->name,
                      (unsigned long long)a->value);
    if (conf->epoch < au->epoch && !may_be_late(sim, a))
        sim_violation(sim, "%s answers in e%llu after %s answered in e%llu", n->name,
                      (unsigned long long)conf->epoch, sim->nodes[au->node].name,
                      (unsigned long long)au->epoch);
    if (conf->epoch == au->epoch && (au->node != n->index || au->life != n->life))
        sim_violation(sim, "%s and %s both answer in e%llu (or one of them before and after a restart)",
                      n->name, sim->nodes[au->node].name, (unsigned long long)conf->epoch);
    if (conf->primary != n->slot)
        sim_violation(sim, "%s answers although it is not the primary of e%llu", n->name,
                      (unsigned long long)conf->epoch);
    if (conf->epoch > au->epoch && (au->node != n->index || au->life != n->life))
        fence_others(sim, n, conf->epoch);
    if (conf->epoch >= au->epoch) {
        au->epoch = conf->epoch;
        au->node = n->index;
        au->life = n->life;
    }
    if (!attempt_is_write(a) || !a->durable)
        return;
    acked(au, a);
    check_slots(sim, sector, count);
}

void audit_equal(struct sim *sim)
{
    const struct node *first = node_of_slot(sim, sim->raft.conf.primary);

    for (unsigned s = 0; s < sim->n_slots; s++) {
        const struct node *n = node_of_slot(sim, (int)s);

        for (uint32_t i = 0; i < sim->sectors && !sim->failed; i++) {
            uint64_t want = sector_value(sim, first, false, i);
            uint64_t now = sector_value(sim, n, false, i), stable = sector_value(sim, n, true, i);

            if (now != want)
                sim_violation(sim, "after all healed, sector %u is #%llu on %s and #%llu on %s", i,
                              (unsigned long long)want, first->name, (unsigned long long)now, n->name);
            else if (stable != now)
                sim_violation(sim, "after all healed, sector %u of %s is #%llu, but #%llu is stable", i,
                              n->name, (unsigned long long)now, (unsigned long long)stable);
        }
    }
}
