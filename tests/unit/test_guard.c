// SPDX-License-Identifier: GPL-2.0-or-later
// The guard's filters one by one, on a real struct raft over an I/O table that only remembers. (That they
// suffice together is what the hostile simulation shows.)
#include "consensus/raft/guard.h"
#include "consensus/raft/guard_conf.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SENT_MAX    64
#define APPENDS_MAX 16

enum { FAIL_NOTHING, FAIL_TERM, FAIL_VOTE, FAIL_APPEND, FAIL_TRUNCATE };

struct world {
    struct raft_io io; // the inner one
    struct raft raft;
    struct raft_fsm fsm;
    struct pms_guard *guard;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_time now;
    int fail;
    // disk
    raft_term term;
    raft_id vote;
    struct raft_snapshot *snapshot;
    raft_index start;
    struct raft_entry *entries;
    size_t entries_n;
    struct raft_io_append *appends[APPENDS_MAX]; // not yet stable
    size_t appends_n;
    raft_index truncated;
    // network
    struct raft_message sent[SENT_MAX];
    size_t sent_n;
    // what was told
    unsigned fatals;
    char fatal[32];
    unsigned applied;
    unsigned done; // raft_apply callbacks
    bool closed;
};

static struct world w;

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io;
    (void)id;
    (void)address;
    return 0;
}

// As raft_uv does: what was not written is cancelled, oldest first, before the close is reported.
static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
    for (size_t i = 0; i < w.appends_n; i++)
        w.appends[i]->cb(w.appends[i], RAFT_CANCELED);
    w.appends_n = 0;
    cb(io);
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *vote, struct raft_snapshot **snapshot,
                   raft_index *start, struct raft_entry *entries[], size_t *n)
{
    (void)io;
    *term = w.term;
    *vote = w.vote;
    *snapshot = w.snapshot;
    *start = w.start;
    *entries = w.entries;
    *n = w.entries_n;
    return 0;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    (void)io;
    (void)msecs;
    w.tick = tick;
    w.recv = recv;
    return 0;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
    (void)io;
    if (w.fail == FAIL_TERM)
        return RAFT_IOERR;
    w.term = term;
    w.vote = 0;
    return 0;
}

static int io_set_vote(struct raft_io *io, raft_id vote)
{
    (void)io;
    if (w.fail == FAIL_VOTE)
        return RAFT_IOERR;
    w.vote = vote;
    return 0;
}

static int io_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *m,
                   raft_io_send_cb cb)
{
    (void)io;
    assert_true(w.sent_n < SENT_MAX);
    w.sent[w.sent_n++] = *m;
    if (cb != NULL)
        cb(req, 0);
    return 0;
}

static int io_append(struct raft_io *io, struct raft_io_append *req, const struct raft_entry entries[],
                     unsigned n, raft_io_append_cb cb)
{
    (void)io;
    (void)entries;
    (void)n;
    if (w.fail == FAIL_APPEND)
        return RAFT_IOERR;
    assert_true(w.appends_n < APPENDS_MAX);
    req->cb = cb;
    w.appends[w.appends_n++] = req;
    return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    (void)io;
    if (w.fail == FAIL_TRUNCATE)
        return RAFT_IOERR;
    w.truncated = index;
    return 0;
}

static raft_time io_time(struct raft_io *io)
{
    (void)io;
    return w.now;
}

static int io_random(struct raft_io *io, int min, int max)
{
    (void)io;
    (void)max;
    return min;
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    (void)fsm;
    (void)buf;
    *result = NULL;
    w.applied++;
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    (void)fsm;
    raft_free(buf->base);
    return 0;
}

static void on_fatal(void *data, const char *what, int status)
{
    assert_ptr_equal(data, &w);
    assert_int_not_equal(status, 0);
    w.fatals++;
    snprintf(w.fatal, sizeof w.fatal, "%s", what);
}

// ---- making a world

static void conf_make(struct raft_configuration *conf, const int *roles, unsigned n)
{
    raft_configuration_init(conf);
    for (unsigned i = 0; i < n; i++) {
        char address[24];

        snprintf(address, sizeof address, "%u", i + 1);
        assert_int_equal(raft_configuration_add(conf, i + 1, address, roles[i]), 0);
    }
}

static const int three_voters[] = {RAFT_VOTER, RAFT_VOTER, RAFT_VOTER};

static struct raft_entry entry_make(raft_term term)
{
    struct raft_entry e = {.term = term, .type = RAFT_COMMAND, .buf = {.len = 8}};

    e.buf.base = e.batch = raft_calloc(1, 8);
    return e;
}

static struct raft_entry change_make(raft_term term, const int *roles, unsigned n)
{
    struct raft_entry e = {.term = term, .type = RAFT_CHANGE};
    struct raft_configuration conf;

    conf_make(&conf, roles, n);
    assert_int_equal(raft_configuration_encode(&conf, &e.buf), 0);
    raft_configuration_close(&conf);
    e.batch = e.buf.base;
    return e;
}

// On disk: at index 1 the configuration, behind it n commands of term 1. Then start as node 1.
static void world_start(const int *roles, unsigned roles_n, size_t commands_n)
{
    const struct pms_guard_config config = {.enabled = true, .data = &w, .on_fatal = on_fatal};

    if (w.entries == NULL) {
        w.term = 1;
        w.start = 1;
        w.entries_n = 1 + commands_n;
        w.entries = raft_malloc(w.entries_n * sizeof *w.entries);
        w.entries[0] = change_make(1, roles, roles_n);
        for (size_t i = 1; i < w.entries_n; i++)
            w.entries[i] = entry_make(1);
    }
    w.io = (struct raft_io){.version = 2,
                            .init = io_init,
                            .close = io_close,
                            .load = io_load,
                            .start = io_start,
                            .set_term = io_set_term,
                            .set_vote = io_set_vote,
                            .send = io_send,
                            .append = io_append,
                            .truncate = io_truncate,
                            .time = io_time,
                            .random = io_random};
    w.fsm = (struct raft_fsm){.version = 2, .apply = fsm_apply, .restore = fsm_restore};
    assert_int_equal(pms_guard_create(&w.io, &w.raft, &config, &w.guard), 0);
    assert_int_equal(raft_init(&w.raft, pms_guard_io(w.guard), &w.fsm, 1, "1"), 0);
    raft_set_pre_vote(&w.raft, true);
    assert_int_equal(raft_start(&w.raft), 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    return 0;
}

static void on_closed(struct raft *raft)
{
    (void)raft;
    w.closed = true;
}

static int teardown(void **state)
{
    (void)state;
    raft_close(&w.raft, on_closed);
    assert_true(w.closed);
    pms_guard_destroy(w.guard);
    return 0;
}

// ---- events

static void receive(struct raft_message m, raft_id from)
{
    char address[24];

    snprintf(address, sizeof address, "%llu", from);
    m.server_id = from;
    m.server_address = address;
    w.recv(&w.io, &m);
}

// From node 2 as leader: n entries of its term behind prev.
static void append_entries(raft_term term, raft_index prev, raft_term prev_term, unsigned n,
                           raft_index commit)
{
    struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES};
    struct raft_append_entries *a = &m.append_entries;

    *a = (struct raft_append_entries){.term = term,
                                      .prev_log_index = prev,
                                      .prev_log_term = prev_term,
                                      .leader_commit = commit,
                                      .n_entries = n};
    if (n > 0) {
        char *batch = raft_calloc(n, 8);

        a->entries = raft_malloc(n * sizeof *a->entries);
        for (unsigned i = 0; i < n; i++)
            a->entries[i] = (struct raft_entry){
                .term = term, .type = RAFT_COMMAND, .buf = {.base = batch + 8 * i, .len = 8}, .batch = batch};
    }
    receive(m, 2);
}

static void request_vote(raft_id from, raft_term term, raft_index last, bool pre_vote, bool disrupt)
{
    struct raft_message m = {.type = RAFT_IO_REQUEST_VOTE};

    m.request_vote = (struct raft_request_vote){.term = term,
                                                .candidate_id = from,
                                                .last_log_index = last,
                                                .last_log_term = 1,
                                                .pre_vote = pre_vote,
                                                .disrupt_leader = disrupt};
    receive(m, from);
}

static const struct raft_message *last_sent(unsigned short type)
{
    assert_true(w.sent_n > 0);
    assert_int_equal(w.sent[w.sent_n - 1].type, type);
    return &w.sent[w.sent_n - 1];
}

static void appends_finish(int status)
{
    size_t n = w.appends_n;
    struct raft_io_append *now[APPENDS_MAX];

    memcpy(now, w.appends, sizeof now);
    w.appends_n = 0;
    for (size_t i = 0; i < n; i++)
        now[i]->cb(now[i], status);
}

static void on_applied(struct raft_apply *req, int status, void *result)
{
    (void)req;
    (void)status;
    (void)result;
    w.done++;
}

static void propose(struct raft_apply *req)
{
    struct raft_buffer buf = {.base = raft_calloc(1, 8), .len = 8};

    assert_int_equal(raft_apply(&w.raft, req, &buf, 1, on_applied), 0);
}

// ---- the follower

static void test_heartbeat_when_log_is_longer_than_matched_then_only_matched_is_acknowledged(void **state)
{
    struct pms_guard_stats stats;

    (void)state;
    world_start(three_voters, 3, 2); // log 1..3
    append_entries(2, 1, 1, 0, 1);
    assert_int_equal(last_sent(RAFT_IO_APPEND_ENTRIES_RESULT)->append_entries_result.rejected, 0);
    assert_int_equal(last_sent(RAFT_IO_APPEND_ENTRIES_RESULT)->append_entries_result.last_log_index, 1);
    pms_guard_stats_get(w.guard, &stats);
    assert_int_equal(stats.acks_clamped, 1);
    append_entries(2, 3, 1, 0, 1); // now it knows all
    assert_int_equal(last_sent(RAFT_IO_APPEND_ENTRIES_RESULT)->append_entries_result.last_log_index, 3);
}

static void test_heartbeat_when_leader_commit_is_beyond_match_then_tail_is_not_committed(void **state)
{
    (void)state;
    world_start(three_voters, 3, 2);
    append_entries(2, 2, 1, 0, 3);
    assert_int_equal(w.raft.commit_index, 2);
    assert_int_equal(w.applied, 1);
}

static void test_entries_when_older_than_compacted_log_then_taken_as_heartbeat(void **state)
{
    (void)state;
    w.snapshot = raft_calloc(1, sizeof *w.snapshot);
    w.snapshot->index = 10;
    w.snapshot->term = 1;
    w.snapshot->configuration_index = 1;
    conf_make(&w.snapshot->configuration, three_voters, 3);
    w.snapshot->n_bufs = 1;
    w.snapshot->bufs = raft_calloc(1, sizeof *w.snapshot->bufs);
    w.snapshot->bufs[0].base = raft_calloc(1, 8);
    w.snapshot->bufs[0].len = 8;
    w.term = 1;
    w.start = 11;
    w.entries_n = 1;
    w.entries = raft_malloc(sizeof *w.entries);
    w.entries[0] = entry_make(1);
    world_start(NULL, 0, 0);
    append_entries(2, 0, 0, 3, 3);
    append_entries(2, 4, 1, 2, 5);
    assert_int_equal(raft_last_index(&w.raft), 11);
    assert_int_equal(w.appends_n, 0);
    assert_int_equal(last_sent(RAFT_IO_APPEND_ENTRIES_RESULT)->append_entries_result.rejected, 0);
    assert_int_equal(last_sent(RAFT_IO_APPEND_ENTRIES_RESULT)->append_entries_result.last_log_index, 10);
}

static void test_tick_when_entries_are_being_written_then_no_election(void **state)
{
    (void)state;
    world_start(three_voters, 3, 0);
    append_entries(2, 1, 1, 1, 1);
    assert_int_equal(w.appends_n, 1);
    w.now += 100000;
    w.tick(&w.io);
    assert_int_equal(raft_state(&w.raft), RAFT_FOLLOWER);
    appends_finish(0);
    w.tick(&w.io);
    assert_int_equal(raft_state(&w.raft), RAFT_CANDIDATE);
}

// ---- votes

static void test_vote_when_given_in_this_term_then_no_second_one_even_to_the_transferee(void **state)
{
    struct raft_transfer transfer = {.id = 3};

    (void)state;
    world_start(three_voters, 3, 0);
    request_vote(2, 5, 9, false, true);
    assert_true(last_sent(RAFT_IO_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted);
    w.raft.transfer = &transfer;
    request_vote(3, 5, 9, false, true);
    assert_int_equal(w.sent_n, 1);
    assert_int_equal(w.vote, 2);
    w.raft.transfer = NULL;
}

static void test_pre_vote_when_candidates_term_is_old_then_refusal_tells_ours(void **state)
{
    (void)state;
    w.term = 1;
    world_start(three_voters, 3, 0);
    request_vote(2, 7, 9, false, true); // now in term 7
    request_vote(3, 4, 99, true, false);
    assert_false(last_sent(RAFT_IO_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted);
    assert_int_equal(last_sent(RAFT_IO_REQUEST_VOTE_RESULT)->request_vote_result.term, 7);
}

static void test_vote_when_standby_then_given_and_a_silent_leader_is_forgotten(void **state)
{
    const int roles[] = {RAFT_STANDBY, RAFT_VOTER};

    (void)state;
    world_start(roles, 2, 0);
    append_entries(1, 1, 1, 0, 1);
    request_vote(2, 2, 9, true, false);
    assert_false(last_sent(RAFT_IO_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted); // it lives
    w.now += 100000;
    request_vote(2, 2, 9, true, false);
    assert_true(last_sent(RAFT_IO_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted);
    assert_int_equal(w.raft.configuration.servers[0].role, RAFT_STANDBY);
}

// ---- the leader

static void test_start_when_only_voter_then_leads_in_a_new_term(void **state)
{
    const int roles[] = {RAFT_VOTER, RAFT_STANDBY};

    (void)state;
    world_start(roles, 2, 3);
    assert_int_equal(raft_state(&w.raft), RAFT_LEADER);
    assert_int_equal(w.raft.current_term, 2);
    assert_int_equal(w.term, 2); // on disk
    assert_int_equal(w.vote, 1);
}

static void test_send_when_only_voter_then_nothing_leaves_that_is_not_stored(void **state)
{
    const int roles[] = {RAFT_VOTER, RAFT_STANDBY};
    struct raft_apply req;

    (void)state;
    world_start(roles, 2, 0);
    propose(&req);
    for (size_t i = 0; i < w.sent_n; i++)
        assert_int_equal(w.sent[i].append_entries.n_entries, 0);
    assert_int_equal(w.done, 0);
    appends_finish(0);
    assert_int_equal(w.done, 1);
    w.now += 1000;
    w.tick(&w.io);
    assert_true(last_sent(RAFT_IO_APPEND_ENTRIES)->append_entries.prev_log_index +
                    last_sent(RAFT_IO_APPEND_ENTRIES)->append_entries.n_entries <=
                2);
}

static void become_leader(void)
{
    struct raft_message m = {.type = RAFT_IO_REQUEST_VOTE_RESULT};

    w.now += 100000;
    w.tick(&w.io); // asks for pre-votes
    m.request_vote_result =
        (struct raft_request_vote_result){.term = 2, .vote_granted = true, .pre_vote = raft_tribool_true};
    receive(m, 2);
    m.request_vote_result.pre_vote = raft_tribool_false;
    receive(m, 2);
    assert_int_equal(raft_state(&w.raft), RAFT_LEADER);
}

static void acknowledge(raft_id from, raft_index last)
{
    struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT};

    m.append_entries_result = (struct raft_append_entries_result){.term = 2, .last_log_index = last};
    receive(m, from);
}

// The Raft paper's figure 8: an entry of an older term is on a majority, and that must not commit it.
static void test_ack_when_nothing_of_own_term_is_stored_then_old_entries_stay_uncommitted(void **state)
{
    struct raft_apply req;

    (void)state;
    world_start(three_voters, 3, 1); // log 1..2, of term 1
    become_leader();
    acknowledge(2, 2);
    acknowledge(3, 2);
    assert_int_equal(w.raft.commit_index, 1);
    propose(&req); // index 3, of term 2
    acknowledge(2, 3);
    assert_int_equal(w.raft.commit_index, 1);
    appends_finish(0); // and only now it counts
    assert_int_equal(w.raft.commit_index, 3);
    assert_int_equal(w.applied, 2);
}

static void test_close_when_leader_has_appends_under_way_then_they_are_released(void **state)
{
    static struct raft_apply reqs[3];
    const int roles[] = {RAFT_VOTER};

    (void)state;
    world_start(roles, 1, 0);
    for (int i = 0; i < 3; i++)
        propose(&reqs[i]);
    assert_int_equal(w.appends_n, 3); // teardown closes: bare libraft crashes there
}

// ---- failing disks

static void check_silent(const char *what)
{
    size_t sent = w.sent_n;

    assert_int_equal(w.fatals, 1);
    assert_string_equal(w.fatal, what);
    w.fail = FAIL_NOTHING;
    w.now += 100000;
    w.tick(&w.io);
    append_entries(9, 1, 1, 1, 1);
    request_vote(3, 10, 9, false, true);
    assert_int_equal(w.sent_n, sent);
    assert_int_equal(w.appends_n, 0);
    assert_int_equal(w.fatals, 1);
}

static void test_disk_when_entries_cannot_be_submitted_then_silent(void **state)
{
    (void)state;
    world_start(three_voters, 3, 0);
    w.fail = FAIL_APPEND;
    append_entries(2, 1, 1, 1, 1);
    assert_int_equal(w.sent_n, 0);
    check_silent("entries");
}

static void test_disk_when_entries_are_not_stored_then_silent(void **state)
{
    (void)state;
    world_start(three_voters, 3, 0);
    append_entries(2, 1, 1, 1, 1);
    appends_finish(RAFT_NOSPACE);
    assert_int_equal(w.sent_n, 0);
    check_silent("entries");
}

static void test_disk_when_leaders_entries_are_not_stored_then_silent_and_not_acknowledged(void **state)
{
    static struct raft_apply reqs[2];
    const int roles[] = {RAFT_VOTER};

    (void)state;
    world_start(roles, 1, 0);
    propose(&reqs[0]);
    propose(&reqs[1]);
    appends_finish(RAFT_IOERR);
    assert_int_equal(w.done, 0);
    check_silent("entries");
}

static void test_disk_when_term_or_vote_is_not_stored_then_silent(void **state)
{
    (void)state;
    world_start(three_voters, 3, 0);
    w.fail = FAIL_TERM;
    request_vote(2, 5, 9, false, true);
    assert_int_equal(w.sent_n, 0);
    check_silent("term");
}

static void test_disk_when_own_vote_is_not_stored_then_silent(void **state)
{
    struct raft_message m = {.type = RAFT_IO_REQUEST_VOTE_RESULT};

    (void)state;
    world_start(three_voters, 3, 0);
    w.now += 100000;
    w.tick(&w.io);
    w.fail = FAIL_VOTE;
    w.sent_n = 0;
    m.request_vote_result =
        (struct raft_request_vote_result){.term = 2, .vote_granted = true, .pre_vote = raft_tribool_true};
    receive(m, 2); // the real election begins, with our own vote
    assert_int_equal(w.sent_n, 0);
    check_silent("vote");
}

static void test_disk_when_truncation_fails_then_silent(void **state)
{
    (void)state;
    world_start(three_voters, 3, 2);
    w.fail = FAIL_TRUNCATE;
    append_entries(2, 1, 1, 1, 1); // conflicts with index 2
    assert_int_equal(w.sent_n, 0);
    check_silent("truncation");
}

// ---- configurations

static void test_conf_when_encoded_then_decodes_to_the_same(void **state)
{
    const int roles[] = {RAFT_VOTER, RAFT_STANDBY, RAFT_SPARE};
    struct raft_entry e = change_make(1, roles, 3);
    struct raft_configuration conf;

    (void)state;
    world_start(three_voters, 3, 0); // for the teardown
    assert_int_equal(pms_conf_decode(&e.buf, &conf), 0);
    assert_int_equal(conf.n, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(conf.servers[i].id, i + 1);
        assert_int_equal(conf.servers[i].role, roles[i]);
    }
    assert_string_equal(conf.servers[2].address, "3");
    assert_true(pms_conf_is_sole_voter(&conf, 1));
    assert_false(pms_conf_is_sole_voter(&conf, 2));
    raft_configuration_close(&conf);
    for (size_t len = 0; len < e.buf.len - 7; len++) { // (up to 7 bytes are padding)
        struct raft_buffer cut = {.base = e.buf.base, .len = len};

        assert_int_not_equal(pms_conf_decode(&cut, &conf), 0);
    }
    raft_free(e.batch);
}

// The last configuration in the log may be uncommitted: another leader's entries take it back, also at a node
// that has restarted meanwhile.
static void test_conf_when_uncommitted_one_is_overwritten_after_restart_then_the_old_one_holds(void **state)
{
    const int four[] = {RAFT_VOTER, RAFT_VOTER, RAFT_VOTER, RAFT_SPARE};

    (void)state;
    w.term = 1;
    w.start = 1;
    w.entries_n = 3;
    w.entries = raft_malloc(3 * sizeof *w.entries);
    w.entries[0] = change_make(1, three_voters, 3);
    w.entries[1] = entry_make(1);
    w.entries[2] = change_make(1, four, 4);
    world_start(NULL, 0, 0);
    assert_int_equal(w.raft.configuration.n, 4);
    append_entries(2, 2, 1, 1, 1); // index 3 again, of term 2
    assert_int_equal(w.truncated, 3);
    assert_int_equal(w.raft.configuration.n, 3);
    appends_finish(0);
}

#define guard_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        guard_test(test_heartbeat_when_log_is_longer_than_matched_then_only_matched_is_acknowledged),
        guard_test(test_heartbeat_when_leader_commit_is_beyond_match_then_tail_is_not_committed),
        guard_test(test_entries_when_older_than_compacted_log_then_taken_as_heartbeat),
        guard_test(test_tick_when_entries_are_being_written_then_no_election),
        guard_test(test_vote_when_given_in_this_term_then_no_second_one_even_to_the_transferee),
        guard_test(test_pre_vote_when_candidates_term_is_old_then_refusal_tells_ours),
        guard_test(test_vote_when_standby_then_given_and_a_silent_leader_is_forgotten),
        guard_test(test_start_when_only_voter_then_leads_in_a_new_term),
        guard_test(test_send_when_only_voter_then_nothing_leaves_that_is_not_stored),
        guard_test(test_ack_when_nothing_of_own_term_is_stored_then_old_entries_stay_uncommitted),
        guard_test(test_close_when_leader_has_appends_under_way_then_they_are_released),
        guard_test(test_disk_when_entries_cannot_be_submitted_then_silent),
        guard_test(test_disk_when_entries_are_not_stored_then_silent),
        guard_test(test_disk_when_leaders_entries_are_not_stored_then_silent_and_not_acknowledged),
        guard_test(test_disk_when_term_or_vote_is_not_stored_then_silent),
        guard_test(test_disk_when_own_vote_is_not_stored_then_silent),
        guard_test(test_disk_when_truncation_fails_then_silent),
        guard_test(test_conf_when_encoded_then_decodes_to_the_same),
        guard_test(test_conf_when_uncommitted_one_is_overwritten_after_restart_then_the_old_one_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
