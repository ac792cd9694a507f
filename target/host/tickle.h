// SPDX-License-Identifier: GPL-2.0-or-later
// Tickles: a bare TCP ACK, as from the old connection, makes a silent peer answer; our kernel knows no such
// connection and resets it, and the initiator reconnects at once instead of after its retransmission timer.
#ifndef PMS_TARGET_HOST_TICKLE_H
#define PMS_TARGET_HOST_TICKLE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#define PMS_TICKLE_BYTES_MAX 60

// Builds the IP packet local -> peer into out and returns its length in bytes; -EAFNOSUPPORT if the families
// differ or are not IP. Ports are taken from the addresses.
int pms_tickle_encode(const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                      uint8_t out[PMS_TICKLE_BYTES_MAX]);
// Sends one tickle. Needs CAP_NET_RAW. 0 or -errno.
int pms_tickle_send(const struct sockaddr_storage *local, const struct sockaddr_storage *peer);

struct pms_tickle;
// Tickles every peer (copied) at once and after 50, 200, 500 and 1000 ms. 0 or -ENOMEM.
int pms_tickle_start(uv_loop_t *loop, const struct sockaddr_storage *local,
                     const struct sockaddr_storage *peers, size_t n, struct pms_tickle **tickle);
// To be called also after the series has ended: frees tickle. NULL is fine.
void pms_tickle_stop(struct pms_tickle *tickle);

#endif
