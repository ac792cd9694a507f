// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual time, the queue of what will happen, and the one source of chance: everything replays from a seed.
#include "tests/sim/world.h"

#include <stdlib.h>

#include "base/check.h"

struct call {
    struct sim_event ev;
    void (*fn)(struct sim *sim, uint64_t arg);
    uint64_t arg;
};

static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.now = SIM_MS};
    for (int i = 0; i < 4; i++)
        w->random[i] = mix(&seed);
}

void world_deinit(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->heap[i]->drop(w->heap[i]);
    free(w->heap);
    *w = (struct world){0};
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

void world_add_at(struct world *w, struct sim_event *ev, uint64_t at_ns)
{
    size_t i;

    PMS_CHECK(at_ns >= w->now && ev->run != NULL && ev->drop != NULL);
    if (w->n == w->cap) {
        w->cap = w->cap != 0 ? 2 * w->cap : 256;
        w->heap = realloc(w->heap, w->cap * sizeof *w->heap);
        PMS_CHECK(w->heap != NULL);
    }
    ev->at = at_ns;
    ev->seq = w->seq++;
    for (i = w->n++; i > 0 && before(ev, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = ev;
}

void world_add(struct world *w, struct sim_event *ev, uint64_t delay_ns)
{
    world_add_at(w, ev, w->now + delay_ns);
}

struct sim_event *world_next(struct world *w)
{
    struct sim_event *top, *last;
    size_t i = 0, child;

    if (w->n == 0)
        return NULL;
    top = w->heap[0];
    last = w->heap[--w->n];
    while ((child = 2 * i + 1) < w->n) {
        if (child + 1 < w->n && before(w->heap[child + 1], w->heap[child]))
            child++;
        if (!before(w->heap[child], last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->n > 0)
        w->heap[i] = last;
    w->now = top->at;
    w->steps++;
    w->digest = (w->digest ^ top->at ^ top->seq << 20) * 0x9e3779b97f4a7c15ull;
    return top;
}

static void on_call(struct sim *sim, struct sim_event *ev)
{
    struct call c = *pms_list_entry(ev, struct call, ev);

    free(pms_list_entry(ev, struct call, ev));
    c.fn(sim, c.arg);
}

static void drop_call(struct sim_event *ev)
{
    free(pms_list_entry(ev, struct call, ev));
}

void world_call(struct world *w, uint64_t delay_ns, void (*fn)(struct sim *sim, uint64_t arg), uint64_t arg)
{
    struct call *c = calloc(1, sizeof *c);

    PMS_CHECK(c != NULL);
    c->ev = (struct sim_event){.node = -1, .run = on_call, .drop = drop_call};
    c->fn = fn;
    c->arg = arg;
    world_add(w, &c->ev, delay_ns);
}

// xoshiro256++ of Blackman and Vigna.
uint64_t world_random(struct world *w)
{
    uint64_t *s = w->random;
    uint64_t sum = s[0] + s[3];
    uint64_t out = (sum << 23 | sum >> 41) + s[0];
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return out;
}

uint64_t world_below(struct world *w, uint64_t n)
{
    PMS_CHECK(n > 0);
    return world_random(w) % n;
}

uint64_t world_range(struct world *w, uint64_t lo, uint64_t hi)
{
    PMS_CHECK(lo <= hi);
    return lo + world_below(w, hi - lo + 1);
}

bool world_chance(struct world *w, unsigned part, unsigned of)
{
    return world_below(w, of) < part;
}

uint64_t world_skewed(struct world *w, uint64_t lo, uint64_t hi)
{
    uint64_t span = hi - lo;

    span = world_below(w, span + 1);
    span = world_below(w, span + 1);
    return lo + span;
}
