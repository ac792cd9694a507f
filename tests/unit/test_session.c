// SPDX-License-Identifier: GPL-2.0-or-later
// The plugin's socket with a plugin of our own: the agreed order, and everything that a hostile one may send.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>
#include "base/err.h"
#include "base/util.h"
#include "base/version.h"
#include "target/host/session.h"
#include "target/plugin/proto.h"

#define ARRAY 0x1234u

struct rig {
    uv_loop_t loop;
    char path[64];
    struct pms_session_server *server;
    int plugin; // our end as the plugin
    int hellos, logins, closes, imports, portals, serves, losts;
    int err;
    bool on;
    bool known;
    uint64_t login_id;
    uint16_t requested;
    struct pms_session_rec rec;
    enum pms_session_end how;
    struct pms_session_fds fds;
};

static void on_hello(void *arg, const struct pms_session_fds *fds)
{
    struct rig *r = arg;

    r->hellos++;
    r->fds = *fds;
    close(fds->memfd);
    close(fds->sq_efd);
    close(fds->cq_efd);
}

static void on_login(void *arg, uint64_t login_id, const struct pms_session_rec *rec, uint16_t requested,
                     bool known)
{
    struct rig *r = arg;

    r->logins++;
    r->login_id = login_id;
    r->rec = *rec;
    r->requested = requested;
    r->known = known;
}

static void on_closed(void *arg, const struct pms_session_rec *rec, enum pms_session_end how)
{
    struct rig *r = arg;

    r->closes++;
    r->rec = *rec;
    r->how = how;
}

static void on_import_done(void *arg, int err)
{
    struct rig *r = arg;

    r->imports++;
    r->err = err;
}

static void on_portal_done(void *arg, int err)
{
    struct rig *r = arg;

    r->portals++;
    r->err = err;
}

static void on_serve_done(void *arg, bool on)
{
    struct rig *r = arg;

    r->serves++;
    r->on = on;
}

static void on_lost(void *arg, int err)
{
    struct rig *r = arg;

    r->losts++;
    r->err = err;
}

static void turn(struct rig *r)
{
    for (int i = 0; i < 20; i++)
        uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void plugin_connect(struct rig *r)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", r->path);
    r->plugin = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(r->plugin, (struct sockaddr *)&sa, sizeof(sa)), 0);
    turn(r);
}

static int setup(void **state)
{
    static const struct pms_session_cbs cbs = {.on_hello = on_hello,
                                               .on_login = on_login,
                                               .on_closed = on_closed,
                                               .on_import_done = on_import_done,
                                               .on_portal_done = on_portal_done,
                                               .on_serve_done = on_serve_done,
                                               .on_lost = on_lost};
    struct pms_session_conf conf = {.array_id = ARRAY, .size_bytes = 1 << 20, .serial = "s1"};
    struct rig *r = calloc(1, sizeof(*r));

    uv_loop_init(&r->loop);
    snprintf(r->path, sizeof(r->path), "/tmp/pms-test-session-%d", (int)getpid());
    pms_session_naa((const uint8_t[16]){0xab, 1, 2, 3, 4}, ARRAY, conf.naa);
    assert_int_equal(pms_session_server_open(&r->loop, r->path, &conf, &cbs, r, &r->server), 0);
    pms_session_expect(r->server, getpid());
    plugin_connect(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    pms_session_server_close(r->server);
    close(r->plugin);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(access(r->path, F_OK), -1);
    free(r);
    return 0;
}

// Sends len bytes with count descriptors (of the null device).
static void plugin_send_raw(struct rig *r, const void *data, size_t len, int count)
{
    union {
        struct cmsghdr hdr;
        char space[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    int fds[8];

    for (int i = 0; i < count; i++)
        fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (count > 0) {
        mh.msg_control = &control;
        mh.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.hdr.cmsg_level = SOL_SOCKET;
        control.hdr.cmsg_type = SCM_RIGHTS;
        control.hdr.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(&control.hdr), fds, (size_t)count * sizeof(int));
    }
    sendmsg(r->plugin, &mh, MSG_NOSIGNAL);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    turn(r);
}

static void plugin_send(struct rig *r, void *msg, int count)
{
    struct pms_plug_hdr *hdr = msg;

    if (hdr->type != PMS_PLUG_HELLO)
        hdr->version = pms_ring_versions.max;
    plugin_send_raw(r, msg, ((const struct pms_plug_hdr *)msg)->length, count);
}

static void plugin_hello_speaking(struct rig *r, uint64_t array, int count, unsigned min, unsigned max)
{
    struct pms_plug_hello m;

    pms_plug_init(&m, PMS_PLUG_HELLO);
    m.array_id = array;
    m.ring_slots = 64;
    m.arena_bytes = 1 << 20;
    m.connects = 1;
    m.version_min = (uint16_t)min;
    m.version_max = (uint16_t)max;
    plugin_send(r, &m, count);
}

static void plugin_hello(struct rig *r, uint64_t array, int count)
{
    plugin_hello_speaking(r, array, count, pms_ring_versions.min, pms_ring_versions.max);
}

// The next message from pmsd, which must be of that type.
static union pms_plug_any plugin_receive(struct rig *r, unsigned type)
{
    union pms_plug_any m;
    ssize_t n;

    turn(r);
    n = recv(r->plugin, &m, sizeof(m), 0);
    assert_true(n > 0);
    assert_true(pms_plug_valid(&m, (size_t)n) && pms_plug_fits(&m, pms_ring_versions.max));
    assert_int_equal(m.hdr.type, type);
    return m;
}

static void plugin_greet(struct rig *r)
{
    plugin_hello(r, ARRAY, 3);
    assert_int_equal(pms_session_hello_done(r->server, 0), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_HELLO_OK).hello_ok.status, 0);
}

static struct pms_plug_login_req login_req(uint64_t cookie)
{
    struct pms_plug_login_req m;

    pms_plug_init(&m, PMS_PLUG_LOGIN_REQ);
    m.cookie = cookie;
    m.req_tsih = 9;
    m.known = 1;
    snprintf(m.peer, sizeof(m.peer), "10.0.0.1:4000");
    snprintf(m.session.initiator, sizeof(m.session.initiator), "iqn.a:b");
    memcpy(m.session.isid, "\x40\x01\x02\x03\x04\x05", 6);
    snprintf(m.session.params, sizeof(m.session.params), "MaxBurstLength=262144;InitialR2T=0;");
    return m;
}

// Dropped for that reason, and pmsd takes the next connection as usual.
static void assert_dropped(struct rig *r, int err)
{
    char c;

    turn(r);
    assert_int_equal(r->losts, 1);
    assert_int_equal(r->err, err);
    while (recv(r->plugin, &c, 1, 0) > 0)
        ;
    close(r->plugin);
    plugin_connect(r);
    r->hellos = 0;
    plugin_hello(r, ARRAY, 3);
    assert_int_equal(r->hellos, 1);
}

// ---- In order ----

static void test_session_when_all_in_order_then_answered(void **state)
{
    struct rig *r = *state;
    struct pms_session_rec recs[300] = {0};
    struct pms_plug_import_rsp import_rsp;
    struct pms_plug_portal_rsp portal_rsp;
    struct pms_plug_serve_rsp serve_rsp;
    struct sockaddr_storage portal;
    union pms_plug_any m;

    plugin_hello(r, ARRAY, 3);
    assert_int_equal(r->hellos, 1);
    assert_int_equal(r->fds.ring_slots, 64);
    assert_false(r->fds.again);
    assert_int_equal(pms_session_serve(r->server, true), -ENOTCONN); // not before the answer
    assert_int_equal(pms_session_hello_done(r->server, 0), 0);
    m = plugin_receive(r, PMS_PLUG_HELLO_OK);
    assert_int_equal(m.hello_ok.size_bytes, 1 << 20);
    assert_string_equal(m.hello_ok.serial, "s1");
    assert_int_equal(m.hello_ok.naa[0] >> 4, 6);
    assert_int_equal(m.hello_ok.naa[14] << 8 | m.hello_ok.naa[15], ARRAY);

    // More than a socket takes at once: nothing is lost.
    for (int i = 0; i < 300; i++) {
        snprintf(recs[i].initiator, sizeof(recs[i].initiator), "iqn.a:%d", i);
        recs[i].tsih = (uint16_t)(i + 1);
    }
    assert_int_equal(pms_session_import(r->server, recs, 300), 0);
    for (int i = 0; i < 300; i++) {
        m = plugin_receive(r, PMS_PLUG_IMPORT);
        assert_int_equal(m.import.session.tsih, i + 1);
        assert_string_equal(m.import.session.initiator, recs[i].initiator);
    }
    assert_int_equal(plugin_receive(r, PMS_PLUG_IMPORT_END).import_end.count, 300);
    pms_plug_init(&import_rsp, PMS_PLUG_IMPORT_RSP);
    import_rsp.status = -ENOMEM;
    plugin_send(r, &import_rsp, 0);
    assert_int_equal(r->imports, 1);
    assert_int_equal(r->err, -ENOMEM);

    assert_int_equal(pms_addr_parse("[fd00::1]:3261", 0, &portal), 0);
    assert_int_equal(pms_session_portal(r->server, &portal), 0);
    m = plugin_receive(r, PMS_PLUG_PORTAL);
    assert_string_equal(m.portal.addr, "fd00::1");
    assert_int_equal(m.portal.port, 3261);
    assert_int_equal(m.portal.add, 1);
    pms_plug_init(&portal_rsp, PMS_PLUG_PORTAL_RSP);
    plugin_send(r, &portal_rsp, 0);
    assert_int_equal(r->portals, 1);

    assert_int_equal(pms_session_serve(r->server, true), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_SERVE).serve.on, 1);
    pms_plug_init(&serve_rsp, PMS_PLUG_SERVE_RSP);
    serve_rsp.on = 1;
    plugin_send(r, &serve_rsp, 0);
    assert_int_equal(r->serves, 1);
    assert_true(r->on);
    assert_int_equal(pms_session_expire(r->server, 7), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_EXPIRE).expire.tsih, 7);
    assert_int_equal(r->losts, 0);
}

static void test_session_when_login_then_held_until_done(void **state)
{
    struct rig *r = *state;
    struct pms_plug_login_req m = login_req(77);
    struct pms_plug_closed gone;
    union pms_plug_any rsp;

    plugin_greet(r);
    plugin_send(r, &m, 0);
    assert_int_equal(r->logins, 1);
    assert_string_equal(r->rec.initiator, "iqn.a:b");
    assert_int_equal(r->requested, 9);
    assert_true(r->known);
    assert_true(r->rec.connected);
    assert_int_equal(recv(r->plugin, &rsp, sizeof(rsp), 0), -1);
    assert_int_equal(pms_session_login_done(r->server, r->login_id, 0, 4711), 0);
    rsp = plugin_receive(r, PMS_PLUG_LOGIN_RSP);
    assert_int_equal(rsp.login_rsp.cookie, 77);
    assert_int_equal(rsp.login_rsp.status, 0);
    assert_int_equal(rsp.login_rsp.tsih, 4711);
    assert_int_equal(pms_session_login_done(r->server, r->login_id, 0, 4711), PMS_ENOTFOUND);

    plugin_send(r, &m, 0);
    assert_int_equal(pms_session_login_done(r->server, r->login_id, PMS_ENOQUORUM, 0), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_LOGIN_RSP).login_rsp.status, PMS_PLUG_LOGIN_UNAVAILABLE);
    plugin_send(r, &m, 0);
    assert_int_equal(pms_session_login_done(r->server, r->login_id, PMS_EFULL, 0), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_LOGIN_RSP).login_rsp.status, PMS_PLUG_LOGIN_NO_RESOURCES);

    pms_plug_init(&gone, PMS_PLUG_CLOSED);
    gone.tsih = 4711;
    gone.reason = PMS_PLUG_REASON_LOGOUT;
    snprintf(gone.initiator, sizeof(gone.initiator), "iqn.a:b");
    snprintf(gone.peer, sizeof(gone.peer), "10.0.0.1:4000");
    plugin_send(r, &gone, 0);
    assert_int_equal(r->closes, 1);
    assert_int_equal(r->how, PMS_SESSION_LOGOUT);
    assert_int_equal(r->rec.tsih, 4711);
}

static void test_session_when_plugin_ends_then_waiting_logins_are_forgotten(void **state)
{
    struct rig *r = *state;
    struct pms_plug_login_req m = login_req(1);
    uint64_t id;

    plugin_greet(r);
    plugin_send(r, &m, 0);
    id = r->login_id;
    close(r->plugin);
    turn(r);
    assert_int_equal(r->losts, 1);
    assert_int_equal(r->err, 0);
    plugin_connect(r);
    plugin_greet(r);
    assert_int_equal(pms_session_login_done(r->server, id, 0, 5), PMS_ENOTFOUND);
}

static void test_session_when_too_many_logins_wait_then_out_of_resources(void **state)
{
    struct rig *r = *state;

    plugin_greet(r);
    for (unsigned i = 0; i < 2 * PMS_SESSIONS_MAX + 5; i++) {
        struct pms_plug_login_req m = login_req(i);

        plugin_send(r, &m, 0);
    }
    assert_int_equal(r->logins, 2 * PMS_SESSIONS_MAX);
    assert_int_equal(plugin_receive(r, PMS_PLUG_LOGIN_RSP).login_rsp.status, PMS_PLUG_LOGIN_NO_RESOURCES);
}

// ---- Strangers and garbage ----

static void test_session_when_a_stranger_connects_then_sent_away(void **state)
{
    struct rig *r = *state;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        char c;

        snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", r->path);
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
            _exit(1);
        _exit(recv(fd, &c, 1, 0) == 0 ? 0 : 2);
    }
    while (waitpid(pid, &status, WNOHANG) == 0)
        turn(r);
    assert_int_equal(status, 0);
    assert_int_equal(r->losts, 0);
    plugin_greet(r); // the rightful one is untouched
}

static void test_session_when_socket_is_made_then_only_root_may_connect(void **state)
{
    struct rig *r = *state;
    struct stat st;

    assert_int_equal(stat(r->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_session_when_hello_names_another_array_then_dropped(void **state)
{
    plugin_hello(*state, ARRAY + 1, 3);
    assert_dropped(*state, PMS_EIDENTITY);
}

static void test_session_when_hello_lacks_descriptors_then_dropped(void **state)
{
    plugin_hello(*state, ARRAY, 2);
    assert_dropped(*state, PMS_EPROTO);
}

static void test_session_when_hello_brings_too_many_descriptors_then_dropped(void **state)
{
    // Four fit into the room for three: padding.
    plugin_hello(*state, ARRAY, 4);
    assert_dropped(*state, PMS_EPROTO);
    ((struct rig *)*state)->losts = 0;
    close(((struct rig *)*state)->plugin);
    plugin_connect(*state);
    ((struct rig *)*state)->losts = 0;
    plugin_hello(*state, ARRAY, 8);
    assert_dropped(*state, PMS_EPROTO);
}

static void test_session_when_hello_comes_twice_then_dropped(void **state)
{
    plugin_hello(*state, ARRAY, 3);
    plugin_hello(*state, ARRAY, 3);
    assert_dropped(*state, PMS_EPROTO);
}

static void test_session_when_login_before_hello_then_dropped(void **state)
{
    struct pms_plug_login_req m = login_req(1);

    plugin_send(*state, &m, 0);
    assert_dropped(*state, PMS_EPROTO);
}

static void test_session_when_answers_come_unasked_then_dropped(void **state)
{
    static const unsigned types[] = {PMS_PLUG_IMPORT_RSP, PMS_PLUG_PORTAL_RSP, PMS_PLUG_SERVE_RSP,
                                     PMS_PLUG_HELLO_OK,   PMS_PLUG_IMPORT,     PMS_PLUG_LOGIN_RSP};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        union pms_plug_any m;

        r->losts = 0;
        pms_plug_init(&m, types[i]);
        plugin_send(r, &m, 0);
        assert_dropped(r, PMS_EPROTO);
    }
}

static void test_session_when_plugin_speaks_more_then_the_highest_common_version(void **state)
{
    struct rig *r = *state;

    plugin_hello_speaking(r, ARRAY, 3, pms_ring_versions.min, 255);
    assert_int_equal(r->hellos, 1);
    assert_int_equal(pms_session_hello_done(r->server, 0), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_HELLO_OK).hello_ok.version, pms_ring_versions.max);
    assert_int_equal(pms_session_serve(r->server, true), 0);
    assert_int_equal(plugin_receive(r, PMS_PLUG_SERVE).hdr.version, pms_ring_versions.max);
}

// on_lost with this makes the array's target start tgtd anew.
static void test_session_when_no_version_is_common_then_lost_for_that(void **state)
{
    struct rig *r = *state;

    plugin_hello_speaking(r, ARRAY, 3, pms_ring_versions.max + 1u, pms_ring_versions.max + 3u);
    assert_int_equal(r->hellos, 0);
    assert_dropped(r, PMS_EVERSION);
}

static void test_session_when_range_is_nonsense_then_dropped(void **state)
{
    static const unsigned cases[][2] = {{0, 0}, {0, 1}, {2, 1}, {1, 256}, {1, 65535}, {257, 257}};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        close(r->plugin);
        turn(r);
        plugin_connect(r);
        r->losts = r->hellos = 0;
        plugin_hello_speaking(r, ARRAY, 3, cases[i][0], cases[i][1]);
        assert_int_equal(r->hellos, 0);
        assert_dropped(r, PMS_EPROTO);
    }
}

static void test_session_when_a_message_is_of_another_version_then_dropped(void **state)
{
    struct pms_plug_login_req m = login_req(1);
    struct rig *r = *state;

    plugin_greet(r);
    m.hdr.version = pms_ring_versions.max + 1;
    plugin_send_raw(r, &m, sizeof(m), 0);
    assert_int_equal(r->logins, 0);
    assert_dropped(r, PMS_EPROTO);
}

static void test_session_when_strings_are_bad_then_dropped(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 6; i++) {
        struct pms_plug_login_req m = login_req(1);

        switch (i) {
        case 0:
            memset(m.session.initiator, 'a', sizeof(m.session.initiator));
            break;
        case 1:
            m.session.initiator[0] = 0;
            break;
        case 2:
            snprintf(m.session.initiator, sizeof(m.session.initiator), "iqn.a:\xff\xfe");
            break;
        case 3:
            snprintf(m.session.initiator, sizeof(m.session.initiator), "iqn.a: b");
            break;
        case 4:
            snprintf(m.peer, sizeof(m.peer), "nowhere");
            break;
        case 5:
            snprintf(m.session.params, sizeof(m.session.params), "A=1;B=x;");
            break;
        }
        r->losts = 0;
        close(r->plugin);
        turn(r);
        plugin_connect(r);
        plugin_greet(r);
        r->losts = 0;
        plugin_send(r, &m, 0);
        assert_dropped(r, PMS_EPROTO);
        assert_int_equal(r->logins, 0);
    }
}

static unsigned fds_open(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_session_when_noise_comes_then_dropped_and_alive(void **state)
{
    struct rig *r = *state;
    unsigned before = fds_open();
    unsigned seed = 1;

    for (int round = 0; round < 500; round++) {
        union pms_plug_any m;
        uint8_t *bytes = (uint8_t *)&m;
        size_t len;

        // Noise alone, a valid header with noise behind, and cut or bent lengths.
        for (size_t i = 0; i < sizeof(m); i++)
            bytes[i] = (uint8_t)(rand_r(&seed) >> 7);
        len = (size_t)rand_r(&seed) % sizeof(m) + 1;
        if (round % 3 != 0) {
            unsigned type = (unsigned)rand_r(&seed) % PMS_PLUG_TYPE_MAX;

            m.hdr = (struct pms_plug_hdr){PMS_PLUG_MAGIC, pms_ring_versions.max, (uint16_t)type,
                                          (uint32_t)pms_plug_size(type), 0};
            if (round % 3 == 1 && pms_plug_size(type) > 0)
                len = pms_plug_size(type);
        }
        plugin_send_raw(r, &m, len, (int)((unsigned)rand_r(&seed) % 4));
        if (r->losts > 0) {
            r->losts = 0;
            close(r->plugin);
            plugin_connect(r);
        }
    }
    close(r->plugin);
    turn(r);
    plugin_connect(r);
    plugin_greet(r);
    assert_int_equal(fds_open(), before); // no descriptor stays behind
}

// ---- Records ----

static void test_session_rec_when_to_json_and_back_then_equal(void **state)
{
    struct pms_session_rec rec = {.initiator = "iqn.2026-11.io.pms:x",
                                  .isid = {0x40, 1, 2, 3, 4, 5},
                                  .tsih = 65535,
                                  .connected = true,
                                  .params = "MaxBurstLength=262144;InitialR2T=0;"};
    struct pms_session_rec back;
    json_t *json;

    (void)state;
    assert_int_equal(pms_addr_parse("[fd00::7]:51000", 0, &rec.peer), 0);
    json = pms_session_rec_to_json(&rec);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "params"), "MaxBurstLength")),
                     262144);
    assert_string_equal(json_string_value(json_object_get(json, "isid")), "400102030405");
    assert_int_equal(pms_session_rec_from_json(json, &back), 0);
    assert_memory_equal(&rec, &back, sizeof(rec));
    json_decref(json);

    snprintf(rec.params, sizeof(rec.params), "A=1,B=2");
    assert_null(pms_session_rec_to_json(&rec));
}

static void test_session_rec_when_json_is_bad_then_refused(void **state)
{
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"initiator\":\"\",\"isid\":\"400102030405\",\"tsih\":1}",
        "{\"initiator\":\"a\",\"isid\":\"4001020304\",\"tsih\":1}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\"}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\",\"tsih\":65536}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\",\"tsih\":1,\"peer\":\"x\"}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\",\"tsih\":1,\"params\":{\"A\":\"b\"}}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\",\"tsih\":1,\"params\":{\"A;\":1}}",
        "{\"initiator\":\"a\",\"isid\":\"400102030405\",\"tsih\":1,\"params\":3}",
    };
    struct pms_session_rec rec = {.tsih = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *json = json_loads(bad[i], 0, NULL);

        assert_non_null(json);
        assert_int_equal(pms_session_rec_from_json(json, &rec), PMS_EPROTO);
        assert_int_equal(rec.tsih, 3);
        json_decref(json);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_session_when_all_in_order_then_answered),
        TEST(test_session_when_login_then_held_until_done),
        TEST(test_session_when_plugin_ends_then_waiting_logins_are_forgotten),
        TEST(test_session_when_too_many_logins_wait_then_out_of_resources),
        TEST(test_session_when_a_stranger_connects_then_sent_away),
        TEST(test_session_when_socket_is_made_then_only_root_may_connect),
        TEST(test_session_when_hello_names_another_array_then_dropped),
        TEST(test_session_when_hello_lacks_descriptors_then_dropped),
        TEST(test_session_when_hello_brings_too_many_descriptors_then_dropped),
        TEST(test_session_when_hello_comes_twice_then_dropped),
        TEST(test_session_when_login_before_hello_then_dropped),
        TEST(test_session_when_answers_come_unasked_then_dropped),
        TEST(test_session_when_plugin_speaks_more_then_the_highest_common_version),
        TEST(test_session_when_no_version_is_common_then_lost_for_that),
        TEST(test_session_when_range_is_nonsense_then_dropped),
        TEST(test_session_when_a_message_is_of_another_version_then_dropped),
        TEST(test_session_when_strings_are_bad_then_dropped),
        TEST(test_session_when_noise_comes_then_dropped_and_alive),
        cmocka_unit_test(test_session_rec_when_to_json_and_back_then_equal),
        cmocka_unit_test(test_session_rec_when_json_is_bad_then_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
