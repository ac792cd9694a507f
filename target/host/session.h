// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's side of the plugin's socket (target/plugin/proto.h): hello with the ring's descriptors, logins to be
// recorded, sessions to be restored, connections lost. Nothing that comes from the plugin is trusted: it
// lives in the process that parses initiators' bytes.
#ifndef PMS_TARGET_HOST_SESSION_H
#define PMS_TARGET_HOST_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>
#include "base/limits.h"
#include "target/host/session_rec.h"

// What the LUN is; the same on every node. naa: see pms_session_naa.
struct pms_session_conf {
    uint64_t array_id;
    uint64_t size_bytes;
    char serial[37]; // VPD 80, at most 36 characters
    uint8_t naa[16]; // VPD 83
    bool write_cache;
};

// NAA-6 designator of an array: a locally administered company id, then 36 bits of the cluster's uuid and the
// array's id, so that it is the same on all nodes and distinct between clusters.
void pms_session_naa(const uint8_t cluster_uuid[16], uint64_t array_id, uint8_t naa[16]);

// The ring's descriptors, for pms_ring_attach (datapath/io/ring.h). Whoever gets them closes them.
struct pms_session_fds {
    int memfd;
    int sq_efd; // the plugin rings it
    int cq_efd; // pmsd rings it
    uint32_t ring_slots;
    uint32_t arena_bytes;
    bool again; // the same ring as before, outstanding commands may be in it
};

enum pms_session_end {
    PMS_SESSION_LOSS,   // connection lost: the session stays, an orphan
    PMS_SESSION_LOGOUT, // ended by the initiator: the session is over
    PMS_SESSION_MOVED,  // the same port logged in again on another connection: the session stays connected
};

// A callback may call any function of this header but close.
struct pms_session_cbs {
    // A ring. Takes over the descriptors; answer with pms_session_hello_done.
    void (*on_hello)(void *arg, const struct pms_session_fds *fds);
    // A login is held until pms_session_login_done(server, login_id, ..). rec->tsih is the plugin's proposal
    // (0: none), rec->connected true. requested_tsih: what the initiator sent, 0: any. known: tgtd has the
    // session.
    void (*on_login)(void *arg, uint64_t login_id, const struct pms_session_rec *rec, uint16_t requested_tsih,
                     bool known);
    // A connection of a recorded session closed. rec: initiator, isid, tsih and peer are set.
    void (*on_closed)(void *arg, const struct pms_session_rec *rec, enum pms_session_end how);
    // Answers to import, portal, serve: 0 or the plugin's -errno.
    void (*on_import_done)(void *arg, int err);
    void (*on_portal_done)(void *arg, int err);
    void (*on_serve_done)(void *arg, bool on);
    // The plugin's connection is gone (0) or was dropped (PMS_EPROTO: garbage, PMS_EIDENTITY: another array,
    // PMS_EVERSION: a plugin that is not ours: another tgtd is needed).
    void (*on_lost)(void *arg, int err);
};

struct pms_session_server;

// Listens on path (SEQPACKET, 0600; an old socket there is replaced). 0 or -errno.
int pms_session_server_open(uv_loop_t *loop, const char *path, const struct pms_session_conf *conf,
                            const struct pms_session_cbs *cbs, void *arg, struct pms_session_server **server);
// Drops the plugin and all waiting logins, without callbacks; removes the socket. Frees (when the handles are
// closed).
void pms_session_server_close(struct pms_session_server *server);

// From now on accept a connection from this process only, and drop the present one, without a callback. 0: from
// nobody; who connects waits in the socket's queue until somebody is expected.
void pms_session_expect(struct pms_session_server *server, pid_t pid);

// All of these: 0, -ENOTCONN without a plugin that has said hello, or -errno.
// err 0: the data loop serves the ring, the LUN comes into being; else the plugin is refused.
int pms_session_hello_done(struct pms_session_server *server, int err);
// Hands sessions to the plugin, which restores them. on_import_done follows.
int pms_session_import(struct pms_session_server *server, const struct pms_session_rec *recs, unsigned n);
// Begin to accept from the inherited listener of this address. on_portal_done follows.
int pms_session_portal(struct pms_session_server *server, const struct sockaddr_storage *addr);
// Serve commands, or hold them. on_serve_done follows.
int pms_session_serve(struct pms_session_server *server, bool on);
// Forget an orphan (expired in Raft).
// Shown by the plugin that is there, and by the next ones. 0 or -errno (-ENOTCONN: none is there, which is fine).
int pms_session_write_cache_set(struct pms_session_server *server, bool on);
int pms_session_expire(struct pms_session_server *server, uint16_t tsih);
// Answers a login: err 0, tsih is the session's; PMS_EFULL: out of resources; else: service unavailable. An
// id whose connection has gone meanwhile is passed over (PMS_ENOTFOUND).
int pms_session_login_done(struct pms_session_server *server, uint64_t login_id, int err, uint16_t tsih);

#endif
