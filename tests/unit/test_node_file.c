// SPDX-License-Identifier: GPL-2.0-or-later
// The state directory: first start, coming back, foreign files, a second pmsd, damage.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cmd/pmsd/node_file.c"

static char dir[64];
static char why[5000];
static int lock_fd;

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/pms-unit-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static void path_in(char *out, size_t len, const char *name)
{
    snprintf(out, len, "%s/%s", dir, name);
}

static int teardown(void **state)
{
    static const char *const names[] = {"lock", "node.json", "letter"};
    char path[128];

    (void)state;
    pms_node_dir_wipe_log(dir);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_in(path, sizeof(path), names[i]);
        unlink(path);
    }
    path_in(path, sizeof(path), "faults");
    rmdir(path);
    return rmdir(dir);
}

static void put(const char *name, const char *text)
{
    char path[128];

    path_in(path, sizeof(path), name);
    assert_int_equal(pms_file_write_atomic(path, text, strlen(text), 0600), 0);
}

static struct pms_node_file a_member(void)
{
    struct pms_node_file node = {.id = 0x1122334455667788, .member = true, .witness = true};
    struct sockaddr_storage addr;

    memset(node.cluster.b, 7, sizeof(node.cluster.b));
    node.realm.cluster = node.cluster;
    memset(node.realm.key, 9, sizeof(node.realm.key));
    strcpy(node.name, "n1");
    assert_int_equal(pms_addr_parse("10.0.0.1", PMS_PORT_NODE, &node.addr), 0);
    assert_int_equal(pms_addr_parse("[fd00::2]:7471", PMS_PORT_NODE, &addr), 0);
    assert_true(pms_node_file_peer(&node, 5, &addr));
    return node;
}

static void test_node_dir_when_empty_then_a_node_id_is_made_and_kept(void **state)
{
    struct pms_node_file first, second;

    (void)state;
    assert_int_equal(pms_node_dir_open(dir, &first, &lock_fd, why, sizeof(why)), 0);
    assert_true(first.id != 0);
    assert_false(first.member);
    close(lock_fd);
    assert_int_equal(pms_node_dir_open(dir, &second, &lock_fd, why, sizeof(why)), 0);
    assert_true(second.id == first.id);
    close(lock_fd);
}

static void test_node_file_when_saved_then_read_back_the_same_and_private(void **state)
{
    struct pms_node_file node = a_member(), back;
    char text[PMS_ADDR_TEXT_SIZE], path[128];
    struct stat st;

    (void)state;
    assert_int_equal(pms_node_file_save(dir, &node), 0);
    path_in(path, sizeof(path), "node.json");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pms_node_dir_open(dir, &back, &lock_fd, why, sizeof(why)), 0);
    close(lock_fd);
    assert_true(back.member && back.witness && back.id == node.id);
    assert_memory_equal(&back.cluster, &node.cluster, sizeof(node.cluster));
    assert_memory_equal(&back.realm, &node.realm, sizeof(node.realm));
    assert_int_equal(back.n_former, 0);
    assert_false(back.superseded || back.recovering);
    assert_string_equal(back.name, "n1");
    assert_string_equal(pms_addr_format(&back.addr, text), "10.0.0.1:7470");
    assert_int_equal(back.n_peers, 1);
    assert_string_equal(pms_addr_format(&back.peers[0].addr, text), "[fd00::2]:7471");
}

static void test_node_file_when_recovered_then_former_realms_are_kept(void **state)
{
    struct pms_node_file node = a_member(), back;
    struct pms_realm first = node.realm, next = {0};

    (void)state;
    for (unsigned i = 1; i <= PMS_NODE_FORMER_MAX + 1; i++) {
        memset(next.key, (int)i, sizeof(next.key));
        memset(next.cluster.b, (int)(100 + i), sizeof(next.cluster.b));
        pms_node_file_realm_next(&node, &next);
        if (i == 1)
            assert_memory_equal(&node.former[0], &first, sizeof(first));
    }
    node.superseded = node.recovering = true;
    node.n_lost = 2;
    node.lost[0] = 8;
    node.lost[1] = 0xfedcba9876543210;
    node.raft_election_ms = 1000;
    node.raft_heartbeat_ms = 200;
    assert_int_equal(pms_node_file_save(dir, &node), 0);
    assert_int_equal(pms_node_dir_open(dir, &back, &lock_fd, why, sizeof(why)), 0);
    close(lock_fd);
    assert_memory_equal(&back.realm, &next, sizeof(next));
    assert_memory_equal(&back.cluster, &node.cluster, sizeof(node.cluster)); // bricks and LUNs bear it
    assert_int_equal(back.n_former, PMS_NODE_FORMER_MAX);
    assert_memory_equal(back.former, node.former, sizeof(back.former));
    assert_int_equal(back.former[0].key[0], 1); // the oldest was forgotten
    assert_true(back.superseded && back.recovering);
    assert_int_equal(back.n_lost, 2);
    assert_true(back.lost[0] == 8 && back.lost[1] == 0xfedcba9876543210);
    assert_int_equal(back.raft_election_ms, 1000);
    assert_int_equal(back.raft_heartbeat_ms, 200);
}

static void test_node_file_when_of_before_recoveries_then_its_key_is_the_first_realm(void **state)
{
    struct pms_node_file back;

    (void)state;
    put("node.json", "{\"id\":\"1122334455667788\",\"cluster\":\"07070707070707070707070707070707\",\"key\":"
                     "\"0909090909090909090909090909090909090909090909090909090909090909\",\"name\":\"n1\","
                     "\"addr\":\"10.0.0.1:7470\",\"peers\":[]}");
    assert_int_equal(pms_node_dir_open(dir, &back, &lock_fd, why, sizeof(why)), 0);
    close(lock_fd);
    assert_true(back.member);
    assert_memory_equal(&back.realm.cluster, &back.cluster, sizeof(back.cluster));
    assert_int_equal(back.realm.key[31], 9);
}

static void test_node_dir_when_foreign_then_refused_and_untouched(void **state)
{
    struct pms_node_file node;
    char path[128];

    (void)state;
    put("letter", "dear");
    assert_int_equal(pms_node_dir_open(dir, &node, &lock_fd, why, sizeof(why)), PMS_EREFUSED);
    assert_non_null(strstr(why, dir));
    path_in(path, sizeof(path), "node.json");
    assert_int_equal(access(path, F_OK), -1);
}

static void test_node_dir_when_used_by_another_then_busy(void **state)
{
    struct pms_node_file node;
    int second = -1;

    (void)state;
    assert_int_equal(pms_node_dir_open(dir, &node, &lock_fd, why, sizeof(why)), 0);
    assert_int_equal(pms_node_dir_open(dir, &node, &second, why, sizeof(why)), PMS_EBUSY);
    assert_int_equal(second, -1);
    close(lock_fd);
}

static void test_node_file_when_damaged_then_corrupt_and_kept(void **state)
{
    static const char *const bad[] = {"", "{", "[]", "{\"id\":\"0000000000000000\"}",
                                      "{\"id\":\"1122334455667788\",\"cluster\":\"x\"}"};
    struct pms_node_file node;
    char path[128];
    void *data;
    size_t len;

    (void)state;
    path_in(path, sizeof(path), "node.json");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put("node.json", bad[i]);
        assert_int_equal(pms_node_dir_open(dir, &node, &lock_fd, why, sizeof(why)), PMS_ECORRUPT);
        assert_int_equal(pms_file_read(path, 1000, &data, &len), 0);
        assert_int_equal(len, strlen(bad[i]));
        free(data);
    }
}

static void test_node_peer_when_known_then_only_its_address_changes(void **state)
{
    struct pms_node_file node = a_member();
    struct sockaddr_storage addr;

    (void)state;
    addr = node.peers[0].addr;
    assert_false(pms_node_file_peer(&node, 5, &addr));
    assert_int_equal(pms_addr_parse("10.0.0.9", PMS_PORT_NODE, &addr), 0);
    assert_true(pms_node_file_peer(&node, 5, &addr));
    assert_int_equal(node.n_peers, 1);
    for (uint64_t id = 100; id < 100 + PMS_NODE_PEERS_MAX; id++)
        assert_true(pms_node_file_peer(&node, id, &addr));
    assert_int_equal(node.n_peers, PMS_NODE_PEERS_MAX);
    assert_true(node.peers[0].id == 100); // the oldest was forgotten
}

// A cluster, or a file, that is ahead of this build: refused with what to do, and left as it is.
static void test_node_file_when_newer_then_refused_and_kept(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"feature_level\":1", "\"feature_level\":9",
         "the cluster is at feature level 9, and this pmsd supports only"},
        {"\"format\":1", "\"format\":2",
         "has format 2, and this pmsd knows only 1: install the newer pms again"},
    };
    struct pms_node_file node = a_member(), got;
    void *data;
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[128], text[4096] = "", *at;

        node.feature_level = 1;
        assert_int_equal(pms_node_file_save(dir, &node), 0);
        path_in(path, sizeof(path), "node.json");
        assert_int_equal(pms_file_read(path, sizeof(text) - 1, &data, &len), 0);
        memcpy(text, data, len);
        free(data);
        at = strstr(text, cases[i].from);
        assert_non_null(at);
        memcpy(at, cases[i].to, strlen(cases[i].to));
        put("node.json", text);
        assert_int_equal(pms_node_dir_open(dir, &got, &lock_fd, why, sizeof(why)), PMS_EVERSION);
        assert_non_null(strstr(why, cases[i].says));
        assert_int_equal(lock_fd, -1);
        assert_int_equal(pms_file_read(path, sizeof(text) - 1, &data, &len), 0);
        assert_memory_equal(data, text, strlen(text));
        free(data);
    }
}

static void test_node_dir_when_log_is_wiped_then_the_identity_stays(void **state)
{
    struct pms_node_file node;
    char log[4096], path[5000];

    (void)state;
    assert_int_equal(pms_node_dir_open(dir, &node, &lock_fd, why, sizeof(why)), 0);
    close(lock_fd);
    pms_node_dir_log(dir, log, sizeof(log));
    assert_int_equal(mkdir(log, 0700), 0);
    snprintf(path, sizeof(path), "%s/open-1", log);
    assert_int_equal(pms_file_write_atomic(path, "x", 1, 0600), 0);
    assert_int_equal(pms_node_dir_wipe_log(dir), 0);
    assert_int_equal(access(log, F_OK), -1);
    assert_int_equal(pms_node_dir_wipe_log(dir), 0);
    assert_int_equal(pms_node_dir_open(dir, &node, &lock_fd, why, sizeof(why)), 0);
    close(lock_fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_node_dir_when_empty_then_a_node_id_is_made_and_kept),
        TEST(test_node_file_when_saved_then_read_back_the_same_and_private),
        TEST(test_node_file_when_recovered_then_former_realms_are_kept),
        TEST(test_node_file_when_of_before_recoveries_then_its_key_is_the_first_realm),
        TEST(test_node_dir_when_foreign_then_refused_and_untouched),
        TEST(test_node_dir_when_used_by_another_then_busy),
        TEST(test_node_file_when_damaged_then_corrupt_and_kept),
        TEST(test_node_peer_when_known_then_only_its_address_changes),
        TEST(test_node_file_when_newer_then_refused_and_kept),
        TEST(test_node_dir_when_log_is_wiped_then_the_identity_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
