// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The plugin's way into tgtd: checks that it is the very program it was built for, re-points the transport's
 * functions, registers the backing store "pms".
 *
 * tgtd does not check what it loads, and its structures are its own affair: with another build every offset
 * may be wrong. So the GNU build-id of the running program is compared with the one of the build; on a
 * mismatch nothing is registered, and making a LUN of type "pms" fails clearly. No thread is made and no
 * signal mask touched.
 */
#include "target/plugin/plugin.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "tgt_build_id.h"

struct pms_plug plug = {.sock = -1, .timer = -1};

void register_bs_module(void);

static size_t align4(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* The first object is the program itself: its build-id in hex goes to out. */
static int on_object(struct dl_phdr_info *info, size_t size, void *out)
{
    const ElfW(Phdr) * ph;
    const ElfW(Nhdr) * note;
    const char *at, *end;
    const uint8_t *desc;
    size_t i, b;

    (void)size;
    for (i = 0; i < info->dlpi_phnum; i++) {
        ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE)
            continue;
        at = (const char *)(info->dlpi_addr + ph->p_vaddr);
        end = at + ph->p_memsz;
        while (at + sizeof(*note) <= end) {
            note = (const void *)at;
            desc = (const uint8_t *)at + sizeof(*note) + align4(note->n_namesz);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && note->n_descsz <= 20) {
                for (b = 0; b < note->n_descsz; b++)
                    sprintf((char *)out + 2 * b, "%02x", desc[b]);
                return 1;
            }
            at = (const char *)desc + align4(note->n_descsz);
        }
    }
    return 1;
}

static void on_answers(int fd, int events, void *data)
{
    uint64_t n;

    (void)events;
    (void)data;
    if (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
        pms_io_reap();
}

/* The TCP transport is static in tgtd: found on the list that a probe of ours is put on. */
static struct iscsi_transport *transport_find(void)
{
    static struct iscsi_transport probe;
    struct iscsi_transport *found = NULL, *t;
    struct list_head *p;

    iscsi_transport_register(&probe);
    for (p = probe.iscsi_transport_siblings.next->next; p != &probe.iscsi_transport_siblings; p = p->next) {
        t = list_entry(p, struct iscsi_transport, iscsi_transport_siblings);
        if (!t->rdma && t->name && strcmp(t->name, "iscsi") == 0)
            found = t;
    }
    list_del(&probe.iscsi_transport_siblings);
    return found;
}

static void transport_hook(void)
{
    plug.tcp_orig = *plug.tcp;
    plug.tcp->ep_login_complete = pms_login_complete;
    plug.tcp->ep_close = pms_login_close;
    plug.tcp->ep_event_modify = pms_login_event_modify;
    plug.tcp->ep_read = pms_buf_read;
    plug.tcp->alloc_task = pms_buf_task_alloc;
    plug.tcp->free_task = pms_buf_task_free;
    plug.tcp->alloc_data_buf = pms_buf_alloc;
    plug.tcp->free_data_buf = pms_buf_free;
}

/* Portals of the command line are closed: nothing may answer before target, LUN and sessions are there
 * (PORTAL). */
static void portals_close(void)
{
    struct iscsi_portal *p;

    while (!list_empty(&iscsi_portals_list)) {
        p = list_first_entry(&iscsi_portals_list, struct iscsi_portal, iscsi_portal_siblings);
        if (iscsi_delete_portal(p->addr, p->port) != 0)
            return;
    }
}

static tgtadm_err on_init(struct scsi_lu *lu, char *opts)
{
    (void)opts;
    if (plug.lu) {
        pms_plug_log("one tgtd serves one array: a second LUN of type pms is refused");
        return TGTADM_INVALID_REQUEST;
    }
    if (lu->blk_shift != PMS_BLOCK_SHIFT) {
        pms_plug_log("only a block size of 512 is supported");
        return TGTADM_INVALID_REQUEST;
    }
    return TGTADM_SUCCESS;
}

/* The ring lives as long as tgtd: closing and opening the LUN again finds it. */
static int ring_make(void)
{
    const char *id = getenv(PMS_PLUG_ENV_ARRAY), *arena = getenv(PMS_PLUG_ENV_ARENA);
    int rc, memfd, efd_sq, efd_cq;
    char *end;

    if (plug.ring)
        return 0;
    if (!id || strlen(id) != 16) {
        pms_plug_log("%s is not set to an array id of 16 hex digits", PMS_PLUG_ENV_ARRAY);
        return -EINVAL;
    }
    plug.array_id = strtoull(id, &end, 16);
    plug.arena_bytes = arena ? (uint32_t)strtoul(arena, NULL, 10) : PMS_RING_ARENA_DEFAULT;
    if (*end || plug.array_id == 0 || plug.arena_bytes < 2 * PMS_RING_IO_MAX)
        return -EINVAL;
    rc = pms_ring_create(plug.array_id, PMS_RING_SLOTS_DEFAULT, plug.arena_bytes, &plug.ring);
    if (rc)
        return rc;
    plug.scratch = pms_ring_buf_alloc(plug.ring, PMS_SCRATCH_BYTES);
    pms_ring_buf_offset(plug.ring, plug.scratch, &plug.scratch_off);
    pms_ring_fds(plug.ring, &memfd, &efd_sq, &efd_cq);
    rc = tgt_event_add(efd_cq, EPOLLIN, on_answers, NULL);
    pms_ring_reap_arm(plug.ring);
    return rc;
}

static int on_open(struct scsi_lu *lu, char *path, int *fd, uint64_t *size)
{
    const char *env = getenv(PMS_PLUG_ENV_SOCK);
    int rc;

    if (plug.lu)
        return -EBUSY;
    rc = ring_make();
    if (rc == 0)
        rc = pms_link_open(strcmp(path, "-") == 0 && env ? env : path);
    if (rc) {
        pms_plug_log("cannot open the array at %s: %d", path, rc);
        return rc;
    }
    if (pms_identity_apply(lu, &plug.hello) != 0) {
        pms_link_close();
        return -EINVAL;
    }
    pms_gate_install(lu);
    plug.lu = lu;
    plug.tid = lu->tgt->tid;
    *fd = -1;
    *size = plug.hello.size_bytes;
    return 0;
}

static void on_close(struct scsi_lu *lu)
{
    struct pms_sess *sess, *next;

    if (plug.lu != lu)
        return;
    pms_gate_serve(false);
    pms_link_close();
    if (list_empty(&plug.logins))
        list_for_each_entry_safe(sess, next, &plug.sessions, siblings) pms_sess_drop(sess);
    plug.lu = NULL;
}

static void on_exit_lu(struct scsi_lu *lu)
{
    on_close(lu);
}

static struct backingstore_template template = {
    .bs_name = "pms",
    .bs_init = on_init,
    .bs_open = on_open,
    .bs_close = on_close,
    .bs_exit = on_exit_lu,
    .bs_cmd_submit = pms_io_submit,
};

__attribute__((visibility("default"))) void register_bs_module(void)
{
    int i, rc;

    dl_iterate_phdr(on_object, plug.build_id);
    if (strcmp(plug.build_id, PMS_TGT_BUILD_ID) != 0) {
        pms_plug_log("this tgtd has build-id %s, the plugin was built for %s (tgt %s): not registered",
                     plug.build_id[0] ? plug.build_id : "none", PMS_TGT_BUILD_ID, PMS_TGT_VERSION);
        return;
    }
    i = get_driver_index("iscsi");
    plug.tcp = transport_find();
    if (i < 0 || !plug.tcp) {
        pms_plug_log("this tgtd has no iSCSI over TCP: not registered");
        return;
    }
    plug.driver = tgt_drivers[i];
    rc = pms_buf_init();
    if (rc) {
        pms_plug_log("no memory for the sink (%d): not registered", rc);
        return;
    }
    INIT_LIST_HEAD(&plug.wait);
    INIT_LIST_HEAD(&plug.scratch_wait);
    INIT_LIST_HEAD(&plug.sessions);
    INIT_LIST_HEAD(&plug.logins);
    INIT_LIST_HEAD(&plug.closed);
    plug.cookie_next = 1;
    transport_hook();
    portals_close();
    register_backingstore_template(&template);
    pms_plug_log("registered for tgt %s", PMS_TGT_VERSION);
}
