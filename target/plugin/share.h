// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How much of this tgtd's memory each session may hold: the rules alone, without tgtd.
 *
 * A session holds tasks (what tgtd keeps of each request until its answer has left), bytes of the arena (payloads of
 * the array's commands, from their arrival until their answer has left) and control bytes (other buffers). All of it
 * is bounded, for each session and in all, whatever initiators do: those that ignore the command window, that send
 * while the array holds its commands, or that do not read their answers.
 *
 *   arena full, share used up, or more commands than any window -> the command is refused: TASK SET FULL, or BUSY
 *       if its session has nothing else here (SAM-5 5.3.1); initiators send it again later
 *   twice as many tasks, or too many control bytes -> the connection is closed: no initiator gets there that
 *       counts its commands
 *
 * Beyond its share of the arena a session leaves a quarter of it to the others; who holds nothing gets what is there.
 */
#ifndef PMS_TARGET_PLUGIN_SHARE_H
#define PMS_TARGET_PLUGIN_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define PMS_SHARE_TASKS_FULL     512u /* a session's: the largest window that tgtd offers; its default is 128 */
#define PMS_SHARE_TASKS_MAX      1024u  /* a session's: then its connection is closed */
#define PMS_SHARE_ALL_TASKS_FULL 32768u /* 256 sessions of 128 commands */
#define PMS_SHARE_ALL_TASKS_MAX  36864u
#define PMS_SHARE_CONTROL_MAX    (1u << 20) /* bytes, a session's */
#define PMS_SHARE_ALL_CONTROL    (16u << 20)

struct pms_share {
    uint32_t tasks, arena, control; /* bytes, the latter two */
};

/* Indexed by the TSIH that tgtd had for the session when the task began; a task remembers it until its end, so a
 * number that changes hands is still counted right. */
struct pms_shares {
    struct pms_share all;
    uint32_t users; /* sessions that hold arena bytes */
    struct pms_share of[65536];
};

enum pms_share_verdict { PMS_SHARE_OK, PMS_SHARE_FULL, PMS_SHARE_BUSY, PMS_SHARE_CLOSE };

/* A task begins, unless CLOSE is answered. FULL, BUSY: it is counted, but must be refused if it is a command. */
static inline enum pms_share_verdict pms_share_task_begin(struct pms_shares *s, uint16_t who)
{
    struct pms_share *own = &s->of[who];

    if (own->tasks >= PMS_SHARE_TASKS_MAX || s->all.tasks >= PMS_SHARE_ALL_TASKS_MAX)
        return PMS_SHARE_CLOSE;
    own->tasks++;
    s->all.tasks++;
    if (own->tasks <= PMS_SHARE_TASKS_FULL && s->all.tasks <= PMS_SHARE_ALL_TASKS_FULL)
        return PMS_SHARE_OK;
    return own->tasks > 1 ? PMS_SHARE_FULL : PMS_SHARE_BUSY;
}

static inline void pms_share_task_end(struct pms_shares *s, uint16_t who)
{
    s->of[who].tasks--;
    s->all.tasks--;
}

/* May a task that has begun hold so many bytes of an arena of arena_bytes? Nothing is counted yet. */
static inline bool pms_share_arena_may(const struct pms_shares *s, uint16_t who, uint32_t bytes,
                                       uint32_t arena_bytes)
{
    uint32_t own = s->of[who].arena, users = s->users + (own == 0);

    if (own == 0 || own + bytes <= arena_bytes / (users + 1))
        return true;
    return s->all.arena + bytes <= arena_bytes - arena_bytes / 4;
}

/* The answer to a command that gets no room. */
static inline enum pms_share_verdict pms_share_refusal(const struct pms_shares *s, uint16_t who)
{
    return s->of[who].tasks > 1 ? PMS_SHARE_FULL : PMS_SHARE_BUSY;
}

static inline void pms_share_arena_take(struct pms_shares *s, uint16_t who, uint32_t bytes)
{
    s->users += s->of[who].arena == 0 && bytes > 0;
    s->of[who].arena += bytes;
    s->all.arena += bytes;
}

static inline void pms_share_arena_give(struct pms_shares *s, uint16_t who, uint32_t bytes)
{
    s->of[who].arena -= bytes;
    s->all.arena -= bytes;
    s->users -= s->of[who].arena == 0 && bytes > 0;
}

/* False: too many control bytes, nothing was counted. */
static inline bool pms_share_control_take(struct pms_shares *s, uint16_t who, uint32_t bytes)
{
    if (s->of[who].control + bytes > PMS_SHARE_CONTROL_MAX || s->all.control + bytes > PMS_SHARE_ALL_CONTROL)
        return false;
    s->of[who].control += bytes;
    s->all.control += bytes;
    return true;
}

static inline void pms_share_control_give(struct pms_shares *s, uint16_t who, uint32_t bytes)
{
    s->of[who].control -= bytes;
    s->all.control -= bytes;
}

#endif
