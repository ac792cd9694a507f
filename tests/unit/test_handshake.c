// SPDX-License-Identifier: GPL-2.0-or-later
// The handshake between two state machines in memory: who passes, who does not, and that garbage harms
// nobody.
#include "consensus/raft/handshake.h"
#include "base/err.h"
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIALER   0x1111u
#define LISTENER 0x2222u

static struct pms_identity identity_of(uint64_t node)
{
    struct pms_identity id = {.node = node};

    memset(id.cluster.b, 0xc1, sizeof id.cluster.b);
    memset(id.key, 0x77, sizeof id.key);
    return id;
}

static const uint8_t *nonce_of(uint8_t fill)
{
    static uint8_t nonces[256][PMS_NONCE_BYTES];

    memset(nonces[fill], fill, PMS_NONCE_BYTES);
    return nonces[fill];
}

// Moves what from has to say to to, in pieces of at most `piece` bytes. What to thinks of it.
static int carry(struct pms_handshake *from, struct pms_handshake *to, size_t piece)
{
    size_t at = 0;
    int rv = 0;

    while (rv == 0 && at < from->out_len) {
        size_t n = pms_handshake_want(to);

        if (n == 0)
            break;
        n = n < piece ? n : piece;
        n = n < from->out_len - at ? n : from->out_len - at;
        rv = pms_handshake_feed(to, from->out + at, n);
        at += n;
    }
    from->out_len = 0;
    return rv;
}

struct pair {
    struct pms_handshake dialer;
    struct pms_handshake listener;
    int dialer_rv;
    int listener_rv;
};

static void pair_run(struct pair *p, size_t piece)
{
    p->dialer_rv = 0;
    p->listener_rv = 0;
    for (int i = 0; i < 4; i++) {
        if (p->listener_rv == 0)
            p->listener_rv = carry(&p->dialer, &p->listener, piece);
        if (p->dialer_rv == 0)
            p->dialer_rv = carry(&p->listener, &p->dialer, piece);
    }
}

static struct pair pair_make(const struct pms_identity *dialer, const struct pms_identity *listener,
                             uint64_t to)
{
    struct pair p;

    pms_handshake_dial(&p.dialer, dialer, PMS_CHANNEL_DATA, to, nonce_of(1));
    pms_handshake_listen(&p.listener, listener, nonce_of(2));
    return p;
}

static void test_handshake_when_all_fits_then_both_know_each_other(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);

    (void)state;
    for (size_t piece = 1; piece <= PMS_HANDSHAKE_BYTES_MAX; piece += 13) {
        struct pair p = pair_make(&a, &b, LISTENER);

        pair_run(&p, piece);
        assert_int_equal(p.dialer.state, PMS_HANDSHAKE_DONE);
        assert_int_equal(p.listener.state, PMS_HANDSHAKE_DONE);
        assert_int_equal(p.dialer.peer, LISTENER);
        assert_int_equal(p.listener.peer, DIALER);
        assert_int_equal(p.listener.channel, PMS_CHANNEL_DATA);
        assert_int_equal(p.listener.version, pms_node_versions.max);
        assert_int_equal(p.dialer.version, pms_node_versions.max);
        assert_int_equal(pms_handshake_want(&p.listener), 0);
    }
}

static void test_handshake_when_any_node_will_do_then_passes(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    struct pair p = pair_make(&a, &b, 0);

    (void)state;
    pair_run(&p, 128);
    assert_int_equal(p.dialer.state, PMS_HANDSHAKE_DONE);
    assert_int_equal(p.dialer.peer, LISTENER);
}

static void test_handshake_when_key_differs_then_auth_error_on_both_sides(void **state)
{
    const struct pms_identity a = identity_of(DIALER);
    struct pms_identity b = identity_of(LISTENER);
    struct pair p;

    (void)state;
    b.key[31] ^= 1;
    p = pair_make(&a, &b, LISTENER);
    pair_run(&p, 128);
    assert_int_equal(p.dialer_rv, PMS_EAUTH);
    assert_int_equal(p.listener_rv, PMS_EAUTH);
    assert_int_equal(p.listener.state, PMS_HANDSHAKE_FAILED);
}

static void test_handshake_when_cluster_differs_then_identity_error_on_both_sides(void **state)
{
    const struct pms_identity a = identity_of(DIALER);
    struct pms_identity b = identity_of(LISTENER);
    struct pair p;

    (void)state;
    b.cluster.b[0] ^= 1;
    p = pair_make(&a, &b, LISTENER);
    pair_run(&p, 128);
    assert_int_equal(p.dialer_rv, PMS_EIDENTITY);
    assert_int_equal(p.listener_rv, PMS_EIDENTITY);
}

static void test_handshake_when_meant_for_another_node_then_identity_error(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    struct pair p = pair_make(&a, &b, 0x3333);

    (void)state;
    pair_run(&p, 128);
    assert_int_equal(p.dialer_rv, PMS_EIDENTITY);
    assert_int_equal(p.listener_rv, PMS_EIDENTITY);
}

static void test_handshake_when_peer_is_ourselves_then_identity_error(void **state)
{
    const struct pms_identity a = identity_of(DIALER);
    struct pair p = pair_make(&a, &a, 0);

    (void)state;
    pair_run(&p, 128);
    assert_int_equal(p.listener_rv, PMS_EIDENTITY);
}

static struct pair mixed_pair(struct pms_versions dialer, struct pms_versions listener)
{
    struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);

    a.versions = dialer;
    b.versions = listener;
    return pair_make(&a, &b, LISTENER);
}

static void test_handshake_when_versions_are_mixed_then_the_highest_common_one(void **state)
{
    static const struct {
        struct pms_versions dialer, listener;
        unsigned common;
    } cases[] = {
        {{1, 1}, {1, 2}, 1}, {{1, 2}, {1, 1}, 1},         {{1, 2}, {1, 2}, 2},         {{1, 3}, {2, 5}, 3},
        {{2, 5}, {1, 2}, 2}, {{7, 9}, {1, 255}, 9},       {{1, 255}, {255, 255}, 255}, {{4, 4}, {4, 4}, 4},
        {{1, 9}, {3, 4}, 4}, {{254, 255}, {1, 254}, 254},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair p = mixed_pair(cases[i].dialer, cases[i].listener);

        pair_run(&p, 128);
        assert_int_equal(p.dialer.state, PMS_HANDSHAKE_DONE);
        assert_int_equal(p.listener.state, PMS_HANDSHAKE_DONE);
        assert_int_equal(p.dialer.version, cases[i].common);
        assert_int_equal(p.listener.version, cases[i].common);
    }
}

// Both learn for sure who it is and what it speaks, and neither goes on.
static void test_handshake_when_no_version_is_common_then_both_know_it(void **state)
{
    static const struct pms_versions cases[][2] = {{{1, 1}, {2, 2}}, {{2, 3}, {1, 1}}, {{1, 4}, {5, 255}}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair p = mixed_pair(cases[i][0], cases[i][1]);

        pair_run(&p, 7);
        assert_int_equal(p.dialer_rv, PMS_EVERSION);
        assert_int_equal(p.listener_rv, PMS_EVERSION);
        assert_int_equal(p.dialer.state, PMS_HANDSHAKE_FAILED);
        assert_int_equal(p.listener.state, PMS_HANDSHAKE_FAILED);
        assert_int_equal(p.dialer.peer, LISTENER);
        assert_int_equal(p.listener.peer, DIALER);
        assert_memory_equal(&p.dialer.versions, &cases[i][1], sizeof(struct pms_versions));
        assert_memory_equal(&p.listener.versions, &cases[i][0], sizeof(struct pms_versions));
    }
}

// Whoever does not know the key cannot make a node believe that a peer is of another version.
static void test_handshake_when_key_differs_then_no_version_is_believed(void **state)
{
    struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    struct pair p;

    (void)state;
    a.versions = (struct pms_versions){9, 9};
    a.key[0] ^= 1;
    p = pair_make(&a, &b, LISTENER);
    pair_run(&p, 128);
    assert_int_equal(p.listener_rv, PMS_EAUTH);
    assert_int_equal(p.dialer_rv, PMS_EAUTH);
}

static void test_handshake_when_range_is_nonsense_then_protocol_error(void **state)
{
    static const uint8_t cases[][2] = {{0, 0}, {0, 1}, {0, 255}, {2, 1}, {255, 1}};
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair p = pair_make(&a, &b, LISTENER);

        p.dialer.out[8] = cases[i][0];
        p.dialer.out[9] = cases[i][1];
        assert_int_equal(carry(&p.dialer, &p.listener, 128), PMS_EPROTO);
        assert_int_equal(p.listener.out_len, 0);
    }
}

// A listener with the key that picks what was not offered, less than could be, or speaks of no range.
static void test_handshake_when_listener_picks_wrongly_then_protocol_error(void **state)
{
    static const uint8_t picks[][3] = {{3, 1, 3}, {1, 1, 2}, {0, 1, 2}, {2, 0, 2},
                                       {2, 3, 2}, {2, 0, 0}, {1, 2, 2}};
    struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);

    (void)state;
    a.versions = (struct pms_versions){1, 2};
    for (size_t i = 0; i < sizeof(picks) / sizeof(picks[0]); i++) {
        struct pair p = pair_make(&a, &b, LISTENER);
        gnutls_hmac_hd_t h;

        assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
        memcpy(p.listener.out + 8, picks[i], 3);
        assert_int_equal(gnutls_hmac_init(&h, GNUTLS_MAC_SHA256, b.key, sizeof b.key), 0);
        gnutls_hmac(h, "pms handshake listener", sizeof "pms handshake listener");
        gnutls_hmac(h, p.listener.hello, 8 + 68);
        gnutls_hmac(h, p.listener.out, p.listener.out_len - 32);
        gnutls_hmac_deinit(h, p.listener.out + p.listener.out_len - 32);
        assert_int_equal(carry(&p.listener, &p.dialer, 128), PMS_EPROTO);
        assert_int_not_equal(p.dialer.state, PMS_HANDSHAKE_DONE);
    }
}

// An observer has a whole good handshake and plays the dialer's part again.
static void test_handshake_when_replayed_then_auth_error(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    struct pair p = pair_make(&a, &b, LISTENER);
    struct pms_handshake replayed, victim;

    (void)state;
    replayed = p.dialer; // HELLO is in out
    pms_handshake_listen(&victim, &b, nonce_of(3));
    assert_int_equal(carry(&replayed, &victim, 128), 0);
    assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
    assert_int_equal(carry(&p.listener, &p.dialer, 128), 0);
    assert_int_equal(p.dialer.state, PMS_HANDSHAKE_DONE); // PROOF is in out
    replayed = p.dialer;
    assert_int_equal(carry(&replayed, &victim, 128), PMS_EAUTH);
    assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
    assert_int_equal(p.listener.state, PMS_HANDSHAKE_DONE);
}

// The listener's own answer, sent back to it as if it were a dialer's.
static void test_handshake_when_reflected_then_refused(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    struct pair p = pair_make(&a, &b, LISTENER);
    uint8_t proof[8 + 32];

    (void)state;
    assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
    memcpy(proof, (uint8_t[]){'P', 'M', 'S', '1', 3, 0, 32, 0}, 8);
    memcpy(proof + 8, p.listener.out + p.listener.out_len - 32, 32);
    assert_int_equal(pms_handshake_feed(&p.listener, proof, 8), 0);
    assert_int_equal(pms_handshake_feed(&p.listener, proof + 8, 32), PMS_EAUTH);
}

// Each bit of each message counts: whoever changes one on the way is found out.
static void test_handshake_when_one_bit_is_changed_then_never_done(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);

    (void)state;
    for (int message = 0; message < 3; message++) {
        for (size_t bit = 0; bit < 8 * PMS_HANDSHAKE_BYTES_MAX; bit++) {
            struct pair p = pair_make(&a, &b, LISTENER);
            struct pms_handshake *from = message == 1 ? &p.listener : &p.dialer;
            int rv = 0;

            if (message >= 1)
                assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
            if (message >= 2)
                assert_int_equal(carry(&p.listener, &p.dialer, 128), 0);
            if (bit >= 8 * from->out_len)
                break;
            from->out[bit / 8] ^= (uint8_t)(1 << bit % 8);
            pair_run(&p, 128);
            rv = p.dialer_rv != 0 ? p.dialer_rv : p.listener_rv;
            // Only the listener's own view matters for what it hands over.
            if (p.listener.state == PMS_HANDSHAKE_DONE)
                fail_msg("message %d, bit %zu: the listener took it", message, bit);
            if (rv == 0 && pms_handshake_want(&p.listener) == 0 && p.listener.state != PMS_HANDSHAKE_FAILED)
                fail_msg("message %d, bit %zu: stuck", message, bit);
        }
    }
}

static void test_handshake_when_fed_garbage_then_fails_and_stays_so(void **state)
{
    const struct pms_identity a = identity_of(DIALER), b = identity_of(LISTENER);
    uint32_t random = 12345;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct pair p = pair_make(&a, &b, LISTENER);
        struct pms_handshake *victim = round % 2 != 0 ? &p.listener : &p.dialer;
        int rv = 0;

        for (size_t n; rv == 0 && (n = pms_handshake_want(victim)) != 0;) {
            uint8_t bytes[PMS_HANDSHAKE_BYTES_MAX];

            for (size_t i = 0; i < n; i++) {
                random = random * 1664525 + 1013904223;
                bytes[i] = (uint8_t)(random >> 24);
            }
            if (round % 4 >= 2 && victim->in_len == 0) { // a good head, so that bodies are tried too
                uint8_t type = round % 2 != 0 ? 1 : 2;
                uint8_t len = type == 1 ? 68 : 80;

                memcpy(bytes, (uint8_t[]){'P', 'M', 'S', '1', type, 0, len, 0}, 8);
            }
            rv = pms_handshake_feed(victim, bytes, n);
        }
        assert_int_not_equal(rv, 0);
        assert_int_equal(victim->state, PMS_HANDSHAKE_FAILED);
        assert_int_equal(pms_handshake_want(victim), 0);
    }
}

static void test_handshake_when_length_is_not_the_types_then_protocol_error(void **state)
{
    const struct pms_identity b = identity_of(LISTENER);

    (void)state;
    for (uint32_t len = 0; len <= 0xffff; len++) {
        struct pms_handshake hs;
        uint8_t head[8] = {'P', 'M', 'S', '1', 1, 0, (uint8_t)len, (uint8_t)(len >> 8)};

        pms_handshake_listen(&hs, &b, nonce_of(2));
        assert_int_equal(pms_handshake_feed(&hs, head, 8), len == 68 ? 0 : PMS_EPROTO);
    }
}

static struct pms_identity recovered_identity(struct pms_realm *former)
{
    struct pms_identity old = identity_of(LISTENER), id = old;

    former->cluster = old.cluster;
    memcpy(former->key, old.key, sizeof former->key);
    memset(id.cluster.b, 0xc2, sizeof id.cluster.b);
    memset(id.key, 0x78, sizeof id.key);
    return id;
}

// The cluster was recovered without the dialer, which still believes in the former one.
static void test_handshake_when_dialer_was_given_up_then_it_is_told_for_sure(void **state)
{
    struct pms_realm former[2];
    const struct pms_identity a = identity_of(DIALER), b = recovered_identity(&former[1]);
    struct pair p = pair_make(&a, &b, LISTENER);

    (void)state;
    memset(&former[0], 0x11, sizeof former[0]);
    pms_handshake_former(&p.listener, former, 2);
    pair_run(&p, 128);
    assert_int_equal(p.dialer_rv, PMS_ESUPERSEDED);
    assert_int_equal(p.dialer.state, PMS_HANDSHAKE_FAILED);
    assert_int_not_equal(p.listener.state, PMS_HANDSHAKE_DONE);
}

// Whoever does not hold the former key cannot make a node of the cluster stop.
static void test_handshake_when_a_stranger_says_given_up_then_not_believed(void **state)
{
    struct pms_realm former;
    const struct pms_identity a = identity_of(DIALER), b = recovered_identity(&former);
    struct pair p = pair_make(&a, &b, LISTENER);

    (void)state;
    former.key[0] ^= 1;
    pms_handshake_former(&p.listener, &former, 1);
    pair_run(&p, 128);
    assert_int_equal(p.dialer_rv, PMS_EAUTH);
}

// A dialer that goes on all the same gets nowhere, whatever it proves.
static void test_handshake_when_given_up_dialer_goes_on_then_refused(void **state)
{
    struct pms_realm former;
    const struct pms_identity a = identity_of(DIALER), b = recovered_identity(&former),
                              old = identity_of(LISTENER);
    struct pair p = pair_make(&a, &b, LISTENER), honest = pair_make(&a, &old, LISTENER);

    (void)state;
    pms_handshake_former(&p.listener, &former, 1);
    assert_int_equal(carry(&p.dialer, &p.listener, 128), 0);
    assert_int_equal(carry(&honest.dialer, &honest.listener, 128), 0);
    assert_int_equal(carry(&honest.listener, &honest.dialer, 128),
                     0); // its PROOF is over an unmarked CHALLENGE
    assert_int_equal(carry(&honest.dialer, &p.listener, 128), PMS_EAUTH);
    assert_int_equal(p.listener.state, PMS_HANDSHAKE_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake_when_all_fits_then_both_know_each_other),
        cmocka_unit_test(test_handshake_when_any_node_will_do_then_passes),
        cmocka_unit_test(test_handshake_when_key_differs_then_auth_error_on_both_sides),
        cmocka_unit_test(test_handshake_when_cluster_differs_then_identity_error_on_both_sides),
        cmocka_unit_test(test_handshake_when_meant_for_another_node_then_identity_error),
        cmocka_unit_test(test_handshake_when_peer_is_ourselves_then_identity_error),
        cmocka_unit_test(test_handshake_when_versions_are_mixed_then_the_highest_common_one),
        cmocka_unit_test(test_handshake_when_no_version_is_common_then_both_know_it),
        cmocka_unit_test(test_handshake_when_key_differs_then_no_version_is_believed),
        cmocka_unit_test(test_handshake_when_range_is_nonsense_then_protocol_error),
        cmocka_unit_test(test_handshake_when_listener_picks_wrongly_then_protocol_error),
        cmocka_unit_test(test_handshake_when_replayed_then_auth_error),
        cmocka_unit_test(test_handshake_when_reflected_then_refused),
        cmocka_unit_test(test_handshake_when_one_bit_is_changed_then_never_done),
        cmocka_unit_test(test_handshake_when_fed_garbage_then_fails_and_stays_so),
        cmocka_unit_test(test_handshake_when_dialer_was_given_up_then_it_is_told_for_sure),
        cmocka_unit_test(test_handshake_when_a_stranger_says_given_up_then_not_believed),
        cmocka_unit_test(test_handshake_when_given_up_dialer_goes_on_then_refused),
        cmocka_unit_test(test_handshake_when_length_is_not_the_types_then_protocol_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
