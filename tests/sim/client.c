// SPDX-License-Identifier: GPL-2.0-or-later
// Initiators: they read and write a few hot spots, resend what was not answered to the new primary, and
// record it all.
#include "tests/sim/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/sim/sim.h"

static const char *const type_names[] = {
    [PMS_DP_READ] = "read", [PMS_DP_WRITE] = "write", [PMS_DP_FLUSH] = "flush", [PMS_DP_ZERO] = "zero"};

// ---- Sectors. ----

static uint64_t sector_word(uint64_t value, uint32_t sector, unsigned i)
{
    return value == 0 ? 0 : (value + i * 0x9e3779b97f4a7c15ull) ^ (uint64_t)sector << 40;
}

void sector_fill(uint8_t *data, uint64_t value, uint32_t sector)
{
    for (unsigned i = 0; i < PMS_SECTOR_BYTES / 8; i++) {
        uint64_t word = sector_word(value, sector, i);

        memcpy(data + 8 * i, &word, 8);
    }
}

bool sector_parse(const uint8_t *data, uint32_t sector, uint64_t *value)
{
    uint64_t word, v;

    memcpy(&word, data, 8);
    v = word == 0 ? 0 : word ^ (uint64_t)sector << 40;
    for (unsigned i = 0; i < PMS_SECTOR_BYTES / 8; i++) {
        memcpy(&word, data + 8 * i, 8);
        if (word != sector_word(v, sector, i))
            return false;
    }
    *value = v;
    return true;
}

// ---- Sending. ----

static void dispatch(struct sim *sim, struct command *cmd);

static void drop_nothing(struct sim_event *ev)
{
    (void)ev; // the attempt belongs to the history
}

struct retry {
    struct sim_event ev;
    struct command *command;
};

static void drop_retry(struct sim_event *ev)
{
    free(pms_list_entry(ev, struct retry, ev));
}

static void on_retry(struct sim *sim, struct sim_event *ev)
{
    struct command *cmd = pms_list_entry(ev, struct retry, ev)->command;

    drop_retry(ev);
    dispatch(sim, cmd);
}

static void retry_later(struct sim *sim, struct command *cmd, uint64_t delay_ns)
{
    struct retry *r = calloc(1, sizeof *r);

    PMS_CHECK(r != NULL);
    r->ev = (struct sim_event){.node = -1, .run = on_retry, .drop = drop_retry};
    r->command = cmd;
    world_add(&sim->world, &r->ev, delay_ns);
}

// Where a client finds the portal: what some running node believes. NULL: nowhere now.
static struct node *find_primary(struct sim *sim, uint64_t *epoch)
{
    struct node *n = &sim->nodes[world_below(&sim->world, sim->n_nodes)];
    struct pms_array_info info;

    if (!n->up || n->paused || n->state == NULL || pms_state_array_get(n->state, sim->array_id, &info) != 0 ||
        info.primary < 0)
        return NULL;
    *epoch = info.epoch;
    return node_of_slot(sim, info.primary);
}

// The client stops waiting for the attempt; if it reached the dp it may still have happened.
static void give_up(struct sim *sim, struct attempt *a, const char *why)
{
    struct command *cmd = a->command;

    if (cmd == NULL)
        return;
    story(sim, "c%u gives up %s #%llu at %s: %s", cmd->client->index, type_names[a->op.type],
          (unsigned long long)a->value, sim->nodes[a->node].name, why);
    a->command = NULL;
    cmd->current = NULL;
    sim->clients.retries++;
}

static void on_submit(struct sim *sim, struct sim_event *ev)
{
    struct attempt *a = pms_list_entry(ev, struct attempt, ev);
    struct node *n = &sim->nodes[a->node];
    struct command *cmd = a->command;

    if (!node_is_primary(n)) {
        pms_list_del(&a->link);
        pms_iobuf_put(a->op.buf);
        a->op.buf = NULL;
        if (cmd != NULL) {
            give_up(sim, a, "not the primary");
            retry_later(sim, cmd, world_range(&sim->world, 2 * SIM_MS, 30 * SIM_MS));
        }
        return;
    }
    a->start = sim->world.now;
    a->epoch = pms_dp_conf_get(n->dp)->epoch;
    a->durable = a->op.fua || !pms_dp_conf_get(n->dp)->write_cache;
    story(sim, "c%u > %s %s #%llu sectors %llu+%u", cmd != NULL ? cmd->client->index : 9, n->name,
          type_names[a->op.type], (unsigned long long)a->value,
          (unsigned long long)a->op.offset / PMS_SECTOR_BYTES, a->op.length / PMS_SECTOR_BYTES);
    node_submit(sim, n, &a->op);
}

static void remember(struct clients *cs, struct attempt *a)
{
    if (cs->n_attempts == cs->cap) {
        cs->cap = cs->cap != 0 ? 2 * cs->cap : 1024;
        cs->attempts = realloc(cs->attempts, cs->cap * sizeof(struct attempt *));
        PMS_CHECK(cs->attempts != NULL);
    }
    cs->attempts[cs->n_attempts++] = a;
    a->value = cs->n_attempts;
}

static struct attempt *attempt_create(struct sim *sim, struct command *cmd, struct node *n)
{
    struct attempt *a = calloc(1, sizeof *a);

    PMS_CHECK(a != NULL);
    a->op.type = cmd->type;
    a->op.offset = (uint64_t)cmd->sector * PMS_SECTOR_BYTES;
    a->op.length = cmd->count * PMS_SECTOR_BYTES;
    a->op.user = a;
    a->op.fua = cmd->fua;
    if (cmd->count > 0 && cmd->type != PMS_DP_ZERO)
        a->op.buf = pms_iobuf_create(a->op.length);
    remember(&sim->clients, a);
    a->end = a->fenced = CHECK_NEVER;
    a->node = n->index;
    a->life = n->life;
    a->command = cmd;
    for (uint32_t i = 0; cmd->type == PMS_DP_WRITE && i < cmd->count; i++)
        sector_fill(a->op.buf->data + (size_t)i * PMS_SECTOR_BYTES, a->value, cmd->sector + i);
    if (cmd->last != NULL)
        cmd->last->next_try = a;
    cmd->current = cmd->last = a;
    return a;
}

static void dispatch(struct sim *sim, struct command *cmd)
{
    struct world *w = &sim->world;
    struct attempt *a;
    uint64_t epoch;
    struct node *n = find_primary(sim, &epoch);

    if (n == NULL || !n->up) {
        retry_later(sim, cmd, world_range(w, 5 * SIM_MS, 40 * SIM_MS));
        return;
    }
    a = attempt_create(sim, cmd, n);
    pms_list_add_tail(&n->attempts, &a->link);
    a->ev = (struct sim_event){.node = n->index, .life = n->life, .run = on_submit, .drop = drop_nothing};
    world_add(w, &a->ev, world_range(w, 20 * SIM_US, 300 * SIM_US));
}

// ---- Answers. ----

static void think(struct sim *sim, struct client *c);

static void command_end(struct sim *sim, struct command *cmd)
{
    struct client *c = cmd->client;

    c->used[cmd - c->slots] = false;
    c->open--;
    think(sim, c);
}

// The command was not answered. The client sends it again, or it is no more and another one takes its place.
static void command_unanswered(struct sim *sim, struct command *cmd, uint64_t notice_ns)
{
    if ((cmd->type == PMS_DP_WRITE || cmd->type == PMS_DP_ZERO) &&
        world_below(&sim->world, 100) < sim->plan.abandons) {
        story(sim, "c%u dies and will not send its command again", cmd->client->index);
        command_end(sim, cmd);
    } else {
        retry_later(sim, cmd, notice_ns);
    }
}

static void note_read(struct sim *sim, struct node *n, struct attempt *a)
{
    uint32_t sector = (uint32_t)(a->op.offset / PMS_SECTOR_BYTES), count = a->op.length / PMS_SECTOR_BYTES;

    a->seen = calloc(count, sizeof *a->seen);
    PMS_CHECK(a->seen != NULL);
    for (uint32_t i = 0; i < count; i++)
        if (!sector_parse(a->op.buf->data + (size_t)i * PMS_SECTOR_BYTES, sector + i, &a->seen[i])) {
            sim_violation(sim, "%s: read #%llu: sector %u holds what nobody wrote there", n->name,
                          (unsigned long long)a->value, sector + i);
            return;
        }
}

static void attempt_lost(struct sim *sim, struct attempt *a, const char *why, uint64_t notice_ns)
{
    struct command *cmd = a->command;

    pms_list_del(&a->link);
    pms_iobuf_put(a->op.buf);
    a->op.buf = NULL;
    give_up(sim, a, why);
    if (cmd != NULL)
        command_unanswered(sim, cmd, notice_ns);
}

void client_complete(struct sim *sim, struct node *n, struct pms_dp_op *op, int status)
{
    struct attempt *a = op->user;
    struct command *cmd = a->command;

    PMS_CHECK_MSG(a->node == n->index && a->life == n->life && a->end == CHECK_NEVER &&
                      !pms_list_empty(&a->link),
                  "%s answers a command that it does not have", n->name);
    if (status == -EIO && op->type == PMS_DP_READ && n->disk_failed) {
        attempt_lost(sim, a, "read error", 100 * SIM_MS);
        return;
    }
    a->end = sim->world.now;
    pms_list_del(&a->link);
    if (status != 0) {
        sim_violation(sim, "%s: %s #%llu failed: %s", n->name, type_names[op->type],
                      (unsigned long long)a->value, pms_err_name(status));
        return;
    }
    if (op->type == PMS_DP_READ)
        note_read(sim, n, a);
    story(sim, "%s > c%u %s #%llu done%s", n->name, cmd != NULL ? cmd->client->index : 9,
          type_names[op->type], (unsigned long long)a->value, cmd == NULL ? ", too late" : "");
    if (sim->verbose && op->type == PMS_DP_READ && a->seen != NULL)
        for (uint32_t i = 0; i < op->length / PMS_SECTOR_BYTES; i++)
            story(sim, "    sector %llu = #%llu", (unsigned long long)op->offset / PMS_SECTOR_BYTES + i,
                  (unsigned long long)a->seen[i]);
    audit_answer(sim, n, a);
    pms_iobuf_put(op->buf);
    op->buf = NULL;
    sim->clients.reads += op->type == PMS_DP_READ;
    sim->clients.writes += op->type == PMS_DP_WRITE;
    sim->clients.flushes += op->type == PMS_DP_FLUSH;
    sim->clients.zeroings += op->type == PMS_DP_ZERO;
    if (cmd != NULL) {
        cmd->current = NULL;
        cmd->client->answered++;
        if (cmd->final)
            sim->clients.final_done += cmd->count;
        command_end(sim, cmd);
    }
}

void client_dropped(struct sim *sim, struct node *n, struct pms_dp_op *op)
{
    struct attempt *a = op->user;

    PMS_CHECK_MSG(a->node == n->index && a->life == n->life && a->end == CHECK_NEVER &&
                      !pms_list_empty(&a->link),
                  "%s drops a command that it does not have", n->name);
    attempt_lost(sim, a, "dropped", world_range(&sim->world, SIM_MS, 20 * SIM_MS));
}

void client_node_down(struct sim *sim, struct node *n)
{
    while (!pms_list_empty(&n->attempts))
        attempt_lost(sim, pms_list_entry(n->attempts.next, struct attempt, link), "the node is gone",
                     world_skewed(&sim->world, SIM_MS, 200 * SIM_MS));
}

// The portal has moved away from a node that does not answer.
static void on_look(struct sim *sim, uint64_t unused)
{
    for (unsigned i = 0; i < sim->clients.n; i++)
        for (unsigned k = 0; k < 8; k++) {
            struct command *cmd = &sim->clients.c[i].slots[k];
            struct attempt *a = cmd->current;
            struct node *primary;
            uint64_t epoch;

            if (!sim->clients.c[i].used[k] || a == NULL || a->start == 0 || world_chance(&sim->world, 1, 2))
                continue;
            primary = find_primary(sim, &epoch);
            if (primary == NULL || primary->index == a->node || epoch <= a->epoch)
                continue;
            give_up(sim, a, "the portal moved");
            command_unanswered(sim, cmd, world_range(&sim->world, SIM_MS, 10 * SIM_MS));
        }
    world_call(&sim->world, 25 * SIM_MS, on_look, unused);
}

// ---- What the application does. ----

static void choose(struct sim *sim, struct command *cmd)
{
    struct clients *cs = &sim->clients;
    struct world *w = &sim->world;
    uint32_t sectors = sim->sectors, spot = cs->spot[world_below(w, 4)];
    uint64_t dice = world_below(w, 100);

    cmd->type = dice < sim->plan.write_percent ? PMS_DP_WRITE : dice < 96 ? PMS_DP_READ : PMS_DP_FLUSH;
    if (sim->plan.write_cache && cmd->type == PMS_DP_READ && dice >= 90)
        cmd->type = PMS_DP_FLUSH;
    cmd->fua =
        sim->plan.write_cache && cmd->type == PMS_DP_WRITE && world_below(w, 100) < sim->plan.fua_percent;
    if (cmd->type == PMS_DP_FLUSH) {
        cmd->sector = cmd->count = 0;
        return;
    }
    cmd->count = 1 + (uint32_t)world_skewed(w, 0, sim->plan.sectors_max - 1);
    if (world_chance(w, cmd->type == PMS_DP_READ ? 4 : 1, 16))
        spot = (uint32_t)world_below(w, sectors);
    spot += (uint32_t)world_below(w, 5);
    spot = spot > 3 ? spot - 3 : 0;
    cmd->sector = spot + cmd->count <= sectors ? spot : sectors - cmd->count;
}

// Some writes become zeroings, of up to a few regions.
static void choose_zero(struct sim *sim, struct command *cmd)
{
    struct world *w = &sim->clients.zero_dice;

    if (cmd->type != PMS_DP_WRITE || world_below(w, 100) >= sim->plan.zero_percent)
        return;
    cmd->type = PMS_DP_ZERO;
    if (world_chance(w, 1, 3))
        cmd->count = 1 + (uint32_t)world_skewed(w, 0, 47);
    if (cmd->sector + cmd->count > sim->sectors)
        cmd->sector = sim->sectors - cmd->count;
}

static void issue(struct sim *sim, struct client *c)
{
    struct clients *cs = &sim->clients;
    unsigned k = 0;
    struct command *cmd;
    bool final = cs->final_next < sim->sectors && c->index == 0;

    if (c->open >= c->depth || (!c->active && !final))
        return;
    while (c->used[k])
        k++;
    cmd = &c->slots[k];
    *cmd = (struct command){.client = c, .final = final};
    if (final) {
        cmd->type = PMS_DP_READ;
        cmd->sector = cs->final_next;
        cmd->count = sim->sectors - cmd->sector < 16 ? sim->sectors - cmd->sector : 16;
        cs->final_next += cmd->count;
    } else {
        choose(sim, cmd);
        choose_zero(sim, cmd);
    }
    c->used[k] = true;
    c->open++;
    dispatch(sim, cmd);
}

static void on_think(struct sim *sim, uint64_t index)
{
    issue(sim, &sim->clients.c[index]);
}

static void think(struct sim *sim, struct client *c)
{
    world_call(&sim->world, world_skewed(&sim->world, 0, 2 * c->think_us) * SIM_US, on_think, c->index);
}

// The hot spots are somewhere else from now on, mostly at the borders of regions.
static void on_move(struct sim *sim, uint64_t unused)
{
    struct clients *cs = &sim->clients;
    struct world *w = &sim->world;
    uint32_t region = sim->region_bytes / PMS_SECTOR_BYTES;

    for (int i = 0; i < 4; i++)
        cs->spot[i] = (uint32_t)world_below(w, sim->sectors / region) * region;
    cs->spot[3] = (uint32_t)world_below(w, sim->sectors);
    world_call(w, world_range(w, 1, 2 * sim->plan.move_ms) * SIM_MS, on_move, unused);
}

void client_init(struct sim *sim)
{
    struct clients *cs = &sim->clients;
    struct world *w = &sim->world;

    cs->n = 2 + (unsigned)world_below(w, 2);
    world_init(&cs->zero_dice, sim->seed ^ 0x7a65726f65730aull);
    cs->final_next = sim->sectors;
    on_move(sim, 0);
    for (unsigned i = 0; i < cs->n; i++)
        cs->c[i].index = i;
    client_resume(sim);
    world_call(w, 25 * SIM_MS, on_look, 0);
}

void client_deinit(struct sim *sim)
{
    struct clients *cs = &sim->clients;

    for (size_t i = 0; i < cs->n_attempts; i++) {
        struct attempt *a = cs->attempts[i];

        pms_list_del(&a->link);
        pms_iobuf_put(a->op.buf);
        free(a->seen);
        free(a);
    }
    free(cs->attempts);
}

void client_resume(struct sim *sim)
{
    for (unsigned i = 0; i < sim->clients.n; i++) {
        struct client *c = &sim->clients.c[i];

        c->active = true;
        c->depth = 1 + (unsigned)world_below(&sim->world, 4);
        c->think_us = sim->plan.think_us;
        for (unsigned k = 0; k < c->depth; k++)
            think(sim, c);
    }
}

void client_stop(struct sim *sim)
{
    for (unsigned i = 0; i < sim->clients.n; i++)
        sim->clients.c[i].active = false;
}

unsigned client_open(const struct sim *sim)
{
    unsigned open = 0;

    for (unsigned i = 0; i < sim->clients.n; i++)
        open += sim->clients.c[i].open;
    return open;
}

void client_final_read(struct sim *sim)
{
    struct client *c = &sim->clients.c[0];

    sim->clients.final_next = sim->clients.final_done = 0;
    c->depth = 4;
    c->think_us = 100;
    for (unsigned i = 0; i < c->depth; i++)
        think(sim, c);
}

bool client_final_done(const struct sim *sim)
{
    return sim->clients.final_done >= sim->sectors;
}

struct attempt *client_attempt(const struct sim *sim, uint64_t value)
{
    return value >= 1 && value <= sim->clients.n_attempts ? sim->clients.attempts[value - 1] : NULL;
}

// ---- The history. ----

// An attempt without an answer ends with the retry that followed it, or when another session was served.
static uint64_t attempt_end(const struct attempt *a)
{
    uint64_t end = a->end != CHECK_NEVER ? a->end : a->fenced;

    for (const struct attempt *t = a->next_try; t != NULL && a->end == CHECK_NEVER; t = t->next_try)
        if (t->end < end)
            end = t->end;
    return end;
}

// Zeros have no value if they may have been written.
static uint64_t seen_of(struct sim *sim, const struct attempt *a, uint32_t i)
{
    if (sim->plan.zero_percent > 0 && a->seen[i] == 0)
        return 0;
    return audit_seen(sim, (uint32_t)(a->op.offset / PMS_SECTOR_BYTES) + i, a->start, a->seen[i]);
}

// Writes the attempt's operations, one a sector, and returns how many.
static size_t history_of(struct sim *sim, const struct attempt *a, struct check_op *ops)
{
    uint32_t sector = (uint32_t)(a->op.offset / PMS_SECTOR_BYTES), count = a->op.length / PMS_SECTOR_BYTES;
    bool write = attempt_is_write(a);

    if (a->start == 0 || (!write && a->end == CHECK_NEVER))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        ops[i] = (struct check_op){.sector = audit_key(sim, sector + i, a->start),
                                   .write = write,
                                   .answered = a->end != CHECK_NEVER,
                                   .value = write ? a->value : seen_of(sim, a, i),
                                   .start = a->start,
                                   .end = attempt_end(a)};
    for (uint32_t i = 0; sim->plan.zero_percent > 0 && i < count; i++) {
        ops[i].zeros = write ? a->op.type == PMS_DP_ZERO : a->seen[i] == 0;
        ops[i].initial = ops[i].zeros && !write && audit_zeros_initial(sim, sector + i, a->start);
    }
    return count;
}

void client_judge(struct sim *sim)
{
    const struct clients *cs = &sim->clients;
    struct check_op *ops;
    size_t n = 0;
    char why[400];

    for (size_t i = 0; i < cs->n_attempts; i++)
        n += cs->attempts[i]->op.length / PMS_SECTOR_BYTES;
    ops = calloc(n + 1, sizeof *ops);
    PMS_CHECK(ops != NULL);
    n = 0;
    for (size_t i = 0; i < cs->n_attempts; i++)
        n += history_of(sim, cs->attempts[i], ops + n);
    if (!check_history(ops, n, why, sizeof why))
        sim_violation(sim, "%s", why);
    free(ops);
}
