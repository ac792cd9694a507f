// SPDX-License-Identifier: GPL-2.0-or-later
// The state directory: whose it is, and who this node is.
//
// It holds "lock", "node.json", "log" (Raft's) and "faults" (notes of bricks' I/O errors), nothing else. A directory with other files and without a
// node.json is somebody else's and is refused.
#include "cmd/pmsd/node_file.h"
#include "base/err.h"
#include "base/json.h"
#include "base/version.h"
#include "consensus/raft/node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NODE_FILE_MAX 65536 // bytes
#define NODE_FORMAT   1

// ---- node.json ----

static json_t *peers_to_json(const struct pms_node_file *node)
{
    json_t *list = json_array();
    char text[PMS_ADDR_TEXT_SIZE];

    for (unsigned i = 0; i < node->n_peers; i++) {
        json_t *peer = json_object();

        pms_json_set_id(peer, "id", node->peers[i].id);
        pms_json_set_str(peer, "addr", pms_addr_format(&node->peers[i].addr, text));
        json_array_append_new(list, peer);
    }
    return list;
}

json_t *pms_realm_to_json(const struct pms_realm *realm)
{
    char key[2 * PMS_KEY_BYTES + 1], id[PMS_UUID_TEXT_SIZE];
    json_t *json = json_object();

    pms_json_set_str(json, "id", pms_uuid_format(&realm->cluster, id));
    pms_json_set_str(json, "key", pms_hex_format(realm->key, sizeof(realm->key), key));
    explicit_bzero(key, sizeof(key));
    return json;
}

int pms_realm_from_json(const json_t *json, struct pms_realm *realm)
{
    return pms_uuid_parse(pms_json_str(json, "id", ""), &realm->cluster) == 0 &&
                   pms_hex_parse(pms_json_str(json, "key", ""), realm->key, sizeof(realm->key)) == 0
               ? 0
               : PMS_EPROTO;
}

void pms_node_file_realm_next(struct pms_node_file *node, const struct pms_realm *next)
{
    if (node->n_former == PMS_NODE_FORMER_MAX) {
        memmove(&node->former[0], &node->former[1], (PMS_NODE_FORMER_MAX - 1) * sizeof(*next));
        node->n_former--;
    }
    node->former[node->n_former++] = node->realm;
    node->realm = *next;
}

static json_t *former_to_json(const struct pms_node_file *node)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < node->n_former; i++)
        json_array_append_new(list, pms_realm_to_json(&node->former[i]));
    return list;
}

static json_t *lost_to_json(const struct pms_node_file *node)
{
    json_t *list = json_array();
    char text[PMS_ID_TEXT_SIZE];

    for (unsigned i = 0; i < node->n_lost; i++)
        json_array_append_new(list, json_string(pms_id_format(node->lost[i], text)));
    return list;
}

int pms_node_file_save(const char *dir, const struct pms_node_file *node)
{
    char path[4096], uuid[PMS_UUID_TEXT_SIZE], addr[PMS_ADDR_TEXT_SIZE];
    json_t *root = json_object();
    char *text;
    int rv = -ENOMEM;

    pms_json_set_u64(root, "format", NODE_FORMAT);
    pms_json_set_id(root, "id", node->id);
    if (node->member) {
        pms_json_set_str(root, "cluster", pms_uuid_format(&node->cluster, uuid));
        json_object_set_new(root, "realm", pms_realm_to_json(&node->realm));
        json_object_set_new(root, "former", former_to_json(node));
        if (node->superseded)
            pms_json_set_bool(root, "superseded", true);
        if (node->recovering)
            json_object_set_new(root, "recovering", lost_to_json(node));
        pms_json_set_str(root, "name", node->name);
        pms_json_set_str(root, "addr", pms_addr_format(&node->addr, addr));
        pms_json_set_bool(root, "witness", node->witness);
        pms_json_set_bool(root, "settled", node->settled);
        pms_json_set_u64(root, "raft_election_ms", node->raft_election_ms);
        pms_json_set_u64(root, "raft_heartbeat_ms", node->raft_heartbeat_ms);
        pms_json_set_u64(root, "feature_level", node->feature_level);
        json_object_set_new(root, "peers", peers_to_json(node));
    }
    text = pms_json_dump_compact(root);
    json_decref(root);
    if (text == NULL)
        return rv;
    snprintf(path, sizeof(path), "%s/node.json", dir);
    rv = pms_file_write_atomic(path, text, strlen(text), 0600);
    explicit_bzero(text, strlen(text));
    free(text);
    return rv;
}

static bool peers_parse(const json_t *root, struct pms_node_file *node)
{
    const json_t *list = json_object_get(root, "peers"), *peer;
    size_t i;

    json_array_foreach (list, i, peer) {
        struct pms_node_peer *p = &node->peers[node->n_peers];

        if (node->n_peers == PMS_NODE_PEERS_MAX)
            break;
        if (pms_json_id(peer, "id", &p->id) != 0 ||
            pms_addr_parse(pms_json_str(peer, "addr", ""), PMS_PORT_NODE, &p->addr) != 0)
            return false;
        node->n_peers++;
    }
    return true;
}

// The cluster's uuid and key, as they were written before there were recoveries, are the first realm.
static bool realms_parse(const json_t *root, struct pms_node_file *node)
{
    const json_t *realm = json_object_get(root, "realm"), *list = json_object_get(root, "former");
    const json_t *lost = json_object_get(root, "recovering"), *item;
    size_t i;

    if (pms_uuid_parse(pms_json_str(root, "cluster", ""), &node->cluster) != 0)
        return false;
    if (realm == NULL) {
        node->realm.cluster = node->cluster;
        return pms_hex_parse(pms_json_str(root, "key", ""), node->realm.key, sizeof(node->realm.key)) == 0;
    }
    json_array_foreach (list, i, item) {
        if (node->n_former == PMS_NODE_FORMER_MAX ||
            pms_realm_from_json(item, &node->former[node->n_former++]) != 0)
            return false;
    }
    node->superseded = pms_json_bool(root, "superseded", false);
    node->recovering = lost != NULL;
    json_array_foreach (lost, i, item) {
        if (node->n_lost == PMS_NODES_MAX || !json_is_string(item) ||
            pms_id_parse(json_string_value(item), &node->lost[node->n_lost++]) != 0)
            return false;
    }
    return pms_realm_from_json(realm, &node->realm) == 0;
}

static bool node_parse(const json_t *root, struct pms_node_file *node)
{
    const char *name = pms_json_str(root, "name", NULL);
    uint64_t election_ms = 0, heartbeat_ms = 0, level = 1;

    memset(node, 0, sizeof(*node));
    if (pms_json_id(root, "id", &node->id) != 0 || node->id == 0)
        return false;
    if (json_object_get(root, "cluster") == NULL)
        return true;
    node->member = true;
    if (name == NULL || strlen(name) > PMS_NAME_MAX)
        return false;
    strcpy(node->name, name);
    node->witness = pms_json_bool(root, "witness", false);
    node->settled = pms_json_bool(root, "settled", false);
    pms_json_u64(root, "raft_election_ms", &election_ms);
    pms_json_u64(root, "raft_heartbeat_ms", &heartbeat_ms);
    node->raft_election_ms = (unsigned)election_ms;
    node->raft_heartbeat_ms = (unsigned)heartbeat_ms;
    pms_json_u64(root, "feature_level", &level);
    node->feature_level = (unsigned)level;
    return realms_parse(root, node) &&
           pms_addr_parse(pms_json_str(root, "addr", ""), PMS_PORT_NODE, &node->addr) == 0 &&
           peers_parse(root, node);
}

bool pms_node_file_peer(struct pms_node_file *node, uint64_t id, const struct sockaddr_storage *addr)
{
    struct pms_node_peer peer = {.id = id, .addr = *addr};
    char have[PMS_ADDR_TEXT_SIZE], want[PMS_ADDR_TEXT_SIZE];

    for (unsigned i = 0; i < node->n_peers; i++) {
        if (node->peers[i].id != id)
            continue;
        if (strcmp(pms_addr_format(&node->peers[i].addr, have), pms_addr_format(addr, want)) == 0)
            return false;
        node->peers[i] = peer;
        return true;
    }
    if (node->n_peers == PMS_NODE_PEERS_MAX) {
        memmove(&node->peers[0], &node->peers[1], (PMS_NODE_PEERS_MAX - 1) * sizeof(peer));
        node->n_peers--;
    }
    node->peers[node->n_peers++] = peer;
    return true;
}

// ---- The directory ----

void pms_node_dir_log(const char *dir, char *out, size_t len)
{
    snprintf(out, len, "%s/log", dir);
}

static int mkdir_parents(const char *dir)
{
    char path[4096];

    if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

// True if something lies there that no pmsd put there.
static bool dir_is_foreign(const char *dir)
{
    static const char *const ours[] = {".", "..", "lock", "node.json", "log", "faults", "lost+found"};
    DIR *d = opendir(dir);
    struct dirent *e;
    bool foreign = false;

    while (d != NULL && (e = readdir(d)) != NULL && !foreign) {
        foreign = strncmp(e->d_name, "node.json", 9) != 0; // also an unfinished write of it
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
            if (strcmp(e->d_name, ours[i]) == 0)
                foreign = false;
    }
    if (d != NULL)
        closedir(d);
    return foreign;
}

static int dir_lock(const char *dir, int *lock_fd, char *why, size_t why_len)
{
    char path[4096];
    int fd, rv;

    snprintf(path, sizeof(path), "%s/lock", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        rv = -errno;
        snprintf(why, why_len, "the state directory %s is not writable: %s", dir, strerror(-rv));
        return rv;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        snprintf(why, why_len, "another pmsd uses the state directory %s: stop it, or give this one its own",
                 dir);
        close(fd);
        return PMS_EBUSY;
    }
    *lock_fd = fd;
    return 0;
}

// 0, or PMS_EVERSION: a newer pms wrote it, or the cluster needs a newer one.
static int versions_check(const json_t *root, const char *path, char *why, size_t why_len)
{
    uint64_t format = NODE_FORMAT, level = 1;

    pms_json_u64(root, "format", &format);
    pms_json_u64(root, "feature_level", &level);
    if (format != NODE_FORMAT)
        snprintf(why, why_len, "%s has format %llu, and this pmsd knows only %d: install the newer pms again",
                 path, (unsigned long long)format, NODE_FORMAT);
    else if (level > pms_feature_level_max)
        pms_node_level_text((unsigned)level, why, why_len);
    else
        return 0;
    return PMS_EVERSION;
}

void pms_node_level_text(unsigned level, char *why, size_t why_len)
{
    snprintf(
        why, why_len,
        "the cluster is at feature level %u, and this pmsd supports only %u: install the newer pms on this "
        "node again",
        level, pms_feature_level_max);
}

static int node_load(const char *dir, struct pms_node_file *node, char *why, size_t why_len)
{
    char path[4096];
    void *data = NULL;
    json_t *root;
    size_t len;
    int rv;

    snprintf(path, sizeof(path), "%s/node.json", dir);
    rv = pms_file_read(path, NODE_FILE_MAX, &data, &len);
    if (rv == -ENOENT) {
        memset(node, 0, sizeof(*node));
        node->id = pms_id_random();
        rv = pms_node_file_save(dir, node);
        if (rv != 0)
            snprintf(why, why_len, "the state directory %s is not writable: %s", dir, strerror(-rv));
        return rv;
    }
    if (rv != 0) {
        snprintf(why, why_len, "%s cannot be read: %s", path, strerror(-rv));
        return rv;
    }
    root = json_loadb(data, len, 0, NULL);
    rv = versions_check(root, path, why, why_len);
    if (rv == 0 && !node_parse(root, node)) {
        snprintf(why, why_len,
                 "%s is damaged: restore it, or empty %s and join the cluster anew under a new id", path,
                 dir);
        rv = PMS_ECORRUPT;
    }
    json_decref(root);
    explicit_bzero(data, len);
    free(data);
    return rv;
}

int pms_node_dir_open(const char *dir, struct pms_node_file *node, int *lock_fd, char *why, size_t why_len)
{
    char faults[PATH_MAX];
    struct statvfs fs;
    int rv = mkdir_parents(dir);

    if (rv != 0) {
        snprintf(why, why_len, "the state directory %s cannot be made: %s", dir, strerror(-rv));
        return rv;
    }
    if (dir_is_foreign(dir)) {
        snprintf(why, why_len, "%s holds files that are not pmsd's: give --state-dir a folder of its own",
                 dir);
        return PMS_EREFUSED;
    }
    rv = dir_lock(dir, lock_fd, why, why_len);
    if (rv != 0)
        return rv;
    if (snprintf(faults, sizeof(faults), "%s/faults", dir) < (int)sizeof(faults))
        mkdir(faults, 0700); // whoever writes there says what is wrong
    if (statvfs(dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < PMS_RAFT_FREE_MIN) {
        snprintf(why, why_len, "the file system of %s is full: at least %u MiB must be free", dir,
                 PMS_RAFT_FREE_MIN >> 20);
        rv = -ENOSPC;
    } else {
        rv = node_load(dir, node, why, why_len);
    }
    if (rv != 0) {
        close(*lock_fd);
        *lock_fd = -1;
    }
    return rv;
}

bool pms_node_dir_has_log(const char *dir)
{
    char path[4096];
    struct dirent *e;
    bool found = false;
    DIR *d;

    pms_node_dir_log(dir, path, sizeof(path));
    d = opendir(path);
    while (d != NULL && !found && (e = readdir(d)) != NULL)
        found = e->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return found;
}

int pms_node_dir_wipe_log(const char *dir)
{
    char path[4096];
    struct dirent *e;
    int rv = 0;
    DIR *d;

    pms_node_dir_log(dir, path, sizeof(path));
    d = opendir(path);
    if (d == NULL)
        return errno == ENOENT ? 0 : -errno;
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlinkat(dirfd(d), e->d_name, 0) != 0)
            rv = -errno;
    closedir(d);
    if (rv == 0 && rmdir(path) != 0)
        rv = -errno;
    return rv;
}
