// SPDX-License-Identifier: GPL-2.0-or-later
// The data loop as a whole: real disks, sockets and rings; failover, resync, misbehaving peers and plugins.
#include "tests/unit/world_fixture.h"

static void test_loop_when_two_nodes_serve_then_reads_match_and_replicas_are_identical(void **state)
{
    struct world *w = world_create(2);
    struct pms_loop_array_stats s;
    struct pms_loop_stats l;
    struct client *c;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    c = client_create(w, world_primary(w));
    client_work(w, c, 400);
    client_drain(w, c);
    WORLD_UNTIL(w, (world_run(w, 50, -1), true));
    assert_int_equal(pms_loop_array_stats_get(w->loop[c->node], ARRAY, &s), 0);
    assert_true(s.ring_attached);
    assert_true(s.ring_ops >= 400 && s.disk_writes > 0 && s.disk_flushes > 0);
    assert_int_equal(s.disk_errors, 0);
    pms_loop_stats_get(w->loop[c->node], &l);
    assert_int_equal(l.checksum_errors, 0);
    assert_true(l.frames_sent > 400 && l.bytes_sent > l.bytes_received);
    assert_int_equal(pms_loop_array_stats_get(w->loop[c->node], 12345, &s), PMS_ENOTFOUND);
    world_stop(w, 0);
    world_stop(w, 1);
    world_compare(w, c);
    client_destroy(c);
    world_destroy(w);
}

/* Stops the serving node in mid-write; the client goes on at the next one; the old one comes back. */
static void failover(struct world *w, struct client *c)
{
    int old = c->node;

    client_work(w, c, 150);
    client_fill(c);
    assert_true(client_busy(c) > 0);
    world_stop(w, (unsigned)old);
    client_reap(c);
    WORLD_UNTIL(w, world_primary(w) >= 0);
    assert_int_not_equal(world_primary(w), old);
    client_move(w, c, world_primary(w));
    client_work(w, c, 150);
    WORLD_UNTIL(w, !(w->conf.in_sync & 1u << old)); /* it was left behind, or is ejected now */
    world_loop_start(w, (unsigned)old);
    world_open(w, (unsigned)old);
    client_work(w, c, 150);
    world_settled(w);
    client_work(w, c, 50);
}

static void failovers(unsigned n, unsigned times)
{
    struct world *w = world_create(n);
    struct client *c;

    for (unsigned i = 0; i < n; i++)
        world_open(w, i);
    world_settled(w);
    c = client_create(w, world_primary(w));
    for (unsigned i = 0; i < times; i++)
        failover(w, c);
    client_drain(w, c);
    for (unsigned i = 0; i < n; i++)
        world_stop(w, i);
    world_compare(w, c);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_the_primary_of_two_dies_then_nothing_is_lost_and_it_resyncs(void **state)
{
    (void)state;
    failovers(2, 2);
}

static void test_loop_when_the_primary_of_three_dies_then_nothing_is_lost_and_it_resyncs(void **state)
{
    (void)state;
    failovers(3, 1);
}

static void test_loop_when_handed_over_then_the_old_ring_is_fenced_and_the_new_node_serves(void **state)
{
    struct world *w = world_create(2);
    struct client *c;
    unsigned busy;
    int old;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    old = world_primary(w);
    c = client_create(w, old);
    client_work(w, c, 50);
    client_drain(w, c);
    assert_int_equal(w->count[old][PMS_LOOP_EV_FENCE], 0);
    pms_loop_handover(w->loop[old], ARRAY, (uint8_t)!old);
    assert_int_equal(world_expect(w, (unsigned)old, PMS_LOOP_EV_HANDOVER), 0);
    WORLD_UNTIL(w, world_primary(w) == !old);
    WORLD_UNTIL(w, w->count[old][PMS_LOOP_EV_FENCE] == 1); /* although it had nothing under way */
    /* What the old target still submits is never executed there. */
    client_fill(c);
    busy = client_busy(c);
    for (int i = 0; i < 20; i++)
        client_turn(w, c);
    assert_int_equal(client_busy(c), busy);
    pms_loop_ring_detach(w->loop[old], ARRAY);
    world_expect(w, (unsigned)old, PMS_LOOP_EV_RING_DETACHED);
    client_move(w, c, !old);
    client_work(w, c, 50);
    client_drain(w, c);
    world_stop(w, 0);
    world_stop(w, 1);
    world_compare(w, c);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_a_standby_gets_commands_then_they_wait_in_its_ring_until_it_serves(void **state)
{
    struct world *w = world_create(2);
    struct client *c;
    unsigned busy;
    int old;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    old = world_primary(w);
    c = client_create(w, !old);
    client_fill(c);
    busy = client_busy(c);
    for (int i = 0; i < 20; i++)
        client_turn(w, c);
    assert_int_equal(client_busy(c), busy);
    assert_int_equal(w->status[!old].ops_held,
                     0); /* in the ring, not in the core: from there nobody could call them back */
    world_stop(w, (unsigned)old);
    client_drain(w, c);
    assert_int_equal(w->count[!old][PMS_LOOP_EV_FENCE], 0);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_the_primarys_disk_fails_then_the_other_serves_without_an_error(void **state)
{
    struct world *w = world_create(2);
    struct client *c;
    unsigned old;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    old = (unsigned)world_primary(w);
    c = client_create(w, (int)old);
    client_work(w, c, 100);
    client_drain(w, c);
    assert_int_equal(truncate(w->brick[old].path, PMS_BRICK_DATA_OFFSET), 0); /* reads now end early */
    client_fill(c);
    for (int i = 0; w->count[old][PMS_LOOP_EV_BRICK_ERROR] == 0; i++) {
        assert_true(i < 2000);
        client_fill(c); /* until one is a read */
        client_turn(w, c);
    }
    WORLD_UNTIL(w, world_primary(w) == (int)!old);
    assert_int_equal(w->count[old][PMS_LOOP_EV_FENCE], 1);
    client_reap(c);
    client_move(w, c, (int)!old);
    client_work(w, c, 100); /* all reads give what was written before */
    client_drain(w, c);
    assert_int_equal(w->count[old][PMS_LOOP_EV_BRICK_ERROR], 1);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_links_are_cut_and_come_back_then_writes_go_on(void **state)
{
    struct world *w = world_create(2);
    struct client *c;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    c = client_create(w, world_primary(w));
    for (int i = 0; i < 5; i++) {
        int fd[2];

        client_work(w, c, 30);
        client_fill(c);
        world_pair(fd); /* a connection that replaces the one in use, and says nothing but end-of-stream */
        pms_loop_link_accepted(w->loop[!c->node], NODE(c->node), fd[1], 1);
        close(fd[0]);
    }
    client_work(w, c, 30);
    client_drain(w, c);
    world_settled(w);
    assert_true(w->count[c->node][PMS_LOOP_EV_LINK_LOST] >= 5);
    world_stop(w, 0);
    world_stop(w, 1);
    world_compare(w, c);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_an_array_opens_late_then_frames_lost_before_are_sent_again(void **state)
{
    struct world *w = world_create(2);

    (void)state;
    world_open(w, 0);
    /* The links are up long before the peer has the array. */
    WORLD_UNTIL(w, w->count[0][PMS_LOOP_EV_LINK_UP] > 0);
    for (int i = 0; i < 100; i++)
        world_run(w, 5, -1);
    assert_int_equal(w->count[0][PMS_LOOP_EV_LINK_LOST], 0); /* meanwhile it costs the other arrays no link */
    world_open(w, 1);
    WORLD_UNTIL(w, w->count[0][PMS_LOOP_EV_LINK_LOST] == 1);
    world_settled(w);
    world_destroy(w);
}

static void test_loop_when_a_peer_sends_garbage_then_its_link_is_dropped_and_service_goes_on(void **state)
{
    struct world *w = world_create(2);
    struct pms_loop_stats s = {0};
    struct client *c;
    char junk[500];
    int fd[2];

    (void)state;
    memset(junk, 0xee, sizeof junk);
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    c = client_create(w, world_primary(w));
    world_pair(fd);
    pms_loop_link_accepted(w->loop[c->node], 0x4242, fd[1], 1);
    assert_int_equal(send(fd[0], junk, sizeof junk, MSG_NOSIGNAL), sizeof junk);
    assert_true(recv(fd[0], junk, 1, 0) <= 0);
    close(fd[0]);
    client_work(w, c, 50);
    client_drain(w, c);
    pms_loop_stats_get(w->loop[c->node], &s);
    assert_int_equal(s.checksum_errors, 1);
    assert_true(s.links_dropped >= 1);
    client_destroy(c);
    world_destroy(w);
}

static int attach(struct world *w, struct pms_ring *ring, uint64_t array)
{
    int fd[3];

    pms_ring_fds(ring, &fd[0], &fd[1], &fd[2]);
    for (int i = 0; i < 3; i++)
        fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
    pms_loop_ring_attach(w->loop[0], array, fd[0], fd[1], fd[2]);
    return world_expect(w, 0, PMS_LOOP_EV_RING_ATTACHED);
}

static void test_loop_when_rings_do_not_fit_then_they_are_refused(void **state)
{
    struct world *w = world_create(2);
    struct pms_ring *ring, *other;

    (void)state;
    assert_int_equal(pms_ring_create(ARRAY, 64, 1u << 20, &ring), 0);
    assert_int_equal(pms_ring_create(ARRAY + 1, 64, 1u << 20, &other), 0);
    assert_int_equal(attach(w, ring, ARRAY), PMS_ENOTFOUND);
    world_open(w, 0);
    world_open(w, 1);
    assert_int_equal(attach(w, other, ARRAY), PMS_EIDENTITY);
    assert_int_equal(attach(w, ring, ARRAY), 0);
    assert_int_equal(attach(w, ring, ARRAY), PMS_EEXISTS);
    pms_loop_ring_detach(w->loop[0], ARRAY);
    world_expect(w, 0, PMS_LOOP_EV_RING_DETACHED);
    assert_int_equal(attach(w, ring, ARRAY), 0);
    pms_ring_destroy(ring);
    pms_ring_destroy(other);
    world_destroy(w);
}

static void test_loop_when_pmsd_comes_back_to_the_same_ring_then_its_commands_are_answered(void **state)
{
    struct world *w = world_create(2);
    struct client *c;
    int node;

    (void)state;
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    node = world_primary(w);
    c = client_create(w, node);
    client_work(w, c, 100);
    client_fill(c);
    world_stop(w, 0);
    world_stop(w, 1);
    pms_ring_rescan(c->ring);
    client_reap(c);
    world_loop_start(w, 0);
    world_loop_start(w, 1);
    world_open(w, 0);
    world_open(w, 1);
    world_settled(w);
    client_attach(w, c, world_primary(w));
    client_work(w, c, 100);
    client_drain(w, c);
    world_stop(w, 0);
    world_stop(w, 1);
    world_compare(w, c);
    client_destroy(c);
    world_destroy(w);
}

static void test_loop_when_bricks_are_wrong_then_opening_says_why(void **state)
{
    struct world *w = world_create(2);
    struct pms_loop_brick b = w->brick[0];

    (void)state;
    strcpy(b.path, w->brick[1].path);
    pms_loop_array_open(w->loop[0], &b);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_ARRAY_OPEN), PMS_EIDENTITY);
    strcpy(b.path, "/var/tmp/no such brick");
    pms_loop_array_open(w->loop[0], &b);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_ARRAY_OPEN), -ENOENT);
    world_open(w, 0);
    pms_loop_array_open(w->loop[0], &w->brick[0]);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_ARRAY_OPEN), PMS_EEXISTS);
    pms_loop_brick_create(w->loop[0], &w->brick[0], 5, false);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_BRICK_CREATED), PMS_EBUSY);
    pms_loop_brick_delete(w->loop[0], &w->brick[0]);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_BRICK_DELETED), PMS_EBUSY);
    pms_loop_array_close(w->loop[0], ARRAY);
    world_expect(w, 0, PMS_LOOP_EV_ARRAY_CLOSED);
    pms_loop_brick_create(w->loop[0], &w->brick[0], 5, false);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_BRICK_CREATED), PMS_EEXISTS);
    assert_int_equal(w->last[0].incarnation, w->conf.incarnation[0]);
    pms_loop_brick_delete(w->loop[0], &w->brick[0]);
    assert_int_equal(world_expect(w, 0, PMS_LOOP_EV_BRICK_DELETED), 0);
    assert_int_equal(access(w->brick[0].path, F_OK), -1);
    world_destroy(w);
}

static void test_loop_when_an_opening_waits_for_a_lock_then_it_can_be_stopped(void **state)
{
    struct world *w = world_create(2);
    uint64_t since;

    (void)state;
    world_open(w, 0);

    pms_loop_array_open(w->loop[1], &w->brick[0]);
    world_run(w, 50, -1);
    since = pms_clock_boot_ns();
    world_stop(w, 1);
    assert_true(pms_clock_boot_ns() - since < 2000000000ull);
    world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_when_two_nodes_serve_then_reads_match_and_replicas_are_identical),
        cmocka_unit_test(test_loop_when_the_primary_of_two_dies_then_nothing_is_lost_and_it_resyncs),
        cmocka_unit_test(test_loop_when_the_primary_of_three_dies_then_nothing_is_lost_and_it_resyncs),
        cmocka_unit_test(test_loop_when_handed_over_then_the_old_ring_is_fenced_and_the_new_node_serves),
        cmocka_unit_test(test_loop_when_a_standby_gets_commands_then_they_wait_in_its_ring_until_it_serves),
        cmocka_unit_test(test_loop_when_the_primarys_disk_fails_then_the_other_serves_without_an_error),
        cmocka_unit_test(test_loop_when_links_are_cut_and_come_back_then_writes_go_on),
        cmocka_unit_test(test_loop_when_an_array_opens_late_then_frames_lost_before_are_sent_again),
        cmocka_unit_test(test_loop_when_a_peer_sends_garbage_then_its_link_is_dropped_and_service_goes_on),
        cmocka_unit_test(test_loop_when_rings_do_not_fit_then_they_are_refused),
        cmocka_unit_test(test_loop_when_pmsd_comes_back_to_the_same_ring_then_its_commands_are_answered),
        cmocka_unit_test(test_loop_when_bricks_are_wrong_then_opening_says_why),
        cmocka_unit_test(test_loop_when_an_opening_waits_for_a_lock_then_it_can_be_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
