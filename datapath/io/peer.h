// SPDX-License-Identifier: GPL-2.0-or-later
// The peer nodes of a data loop: for each the link that this node dialled and the connection that it
// accepted.
#ifndef PMS_DATAPATH_IO_PEER_H
#define PMS_DATAPATH_IO_PEER_H

/*
 * Requests leave on the own link and their answers come back on it (conn 0); requests of the peer come on the
 * accepted connection (conn nonzero, never used twice) and its answers leave there. A frame that comes the
 * wrong way is garbage.
 *
 *   wanted, no own link --back-off over--> on_want --dialled(fd)--> on_up ... on_down --> back-off, on_want
 * ...
 *                                          `------dialled(error)--> back-off, on_want ...
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "datapath/io/link.h"

/* None of them may be called from inside another; frames: 0, or an error that drops the link they came on. */
struct pms_peer_ops {
    int (*on_frame)(void *user, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf);
    void (*on_up)(void *user, uint64_t node);
    void (*on_down)(void *user, uint64_t node, int status);
    void (*on_want)(void *user, uint64_t node);
};

struct pms_peers {
    struct pms_link_env *env;
    const struct pms_peer_ops *ops;
    void *user;
    struct pms_list peers;
    uint64_t conn_last;
    uint64_t dropped; /* links closed for a fault */
    bool reset_due;
};

struct pms_peer_state {
    uint64_t node;
    bool own, accepted;
};

void pms_peers_init(struct pms_peers *p, struct pms_link_env *env, const struct pms_peer_ops *ops,
                    void *user);
/* Closes all links without on_down. */
void pms_peers_close(struct pms_peers *p);
/* These nodes, and no others, are to be dialled. Links that are up stay. */
void pms_peers_want(struct pms_peers *p, const uint64_t *nodes, unsigned n);
void pms_peers_dialled(struct pms_peers *p, uint64_t node, int fd_or_error, unsigned version);
void pms_peers_accepted(struct pms_peers *p, uint64_t node, int fd, unsigned version);
bool pms_peers_is_up(const struct pms_peers *p, uint64_t node);
/* conn 0: on the own link, else on that accepted connection; dropped if it is not there. Takes the reference
 * over. */
void pms_peers_send(struct pms_peers *p, uint64_t node, uint64_t conn, const struct pms_frame *f,
                    struct pms_iobuf *buf, uint32_t off);
/* A request of node for this array could not be delivered; it may be lost only together with its link. But
 * closing the link at once would hurt all other arrays again and again, so it is closed when the array takes
 * frames: pms_peers_lost_reset. */
void pms_peers_lost_mark(struct pms_peers *p, uint64_t node, uint64_t array);
/* From now on the array takes frames: closes the accepted connections on which such were lost. */
void pms_peers_lost_reset(struct pms_peers *p, uint64_t array);
/* The own link is closed (on_down) in the next pms_peers_flush. */
void pms_peers_reset(struct pms_peers *p, uint64_t node);
/* At the end of each turn of the loop. */
void pms_peers_flush(struct pms_peers *p);
/* About each 10 ms: back-off, stalls. */
void pms_peers_tick(struct pms_peers *p, uint64_t now);
/* Returns how many of at most n were written. */
unsigned pms_peers_states(const struct pms_peers *p, struct pms_peer_state *out, unsigned n);

#endif
