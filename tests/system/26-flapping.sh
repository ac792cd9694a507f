#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A replica that stops again and again is taken back later each time, and the operator is told why and when.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

in_sync() { [ "$(array_field disk '.in_sync | length')" = "$1" ]; }
fall() { # the replica stands still for longer than it is waited for
    dc kill 2 STOP --only pmsd
    wait_until 10 in_sync 1 || fail "n2 is not ejected"
    dc kill 2 CONT --only pmsd
}
slot2() { array_field disk ".slots[] | select(.node == \"n2\") | $1"; }

cluster_up 2 1
ctl 1 array create disk --level raid1 --size 64M --portal 10.77.0.100/24 --nodes n1,n2 || fail "the array cannot be created"
wait_until 20 state_is disk healthy || fail "the new array is $(array_state disk)"
verify_start disk --zeroed --seconds 18
verify_wait_working
fall
begun=$(ms_now)
wait_until 20 in_sync 2 || fail "n2 is not taken back"
say "taken back $(($(ms_now) - begun)) ms after it went on"
assert_eq "falls told after one" "$(slot2 .falls)" null
for n in 2 3; do
    fall
    begun=$(ms_now)
    wait_until 20 in_sync 2 || fail "n2 is not taken back"
    took=$(($(ms_now) - begun))
    say "fall $n: taken back $took ms after it went on"
    assert_eq "falls told" "$(slot2 .falls)" "$n"
done
fall
sleep 0.5
assert_eq "falls told" "$(slot2 .falls)" 4
assert_ge "seconds until it is taken back" "$(slot2 .back_s)" 1
ctl 1 array show disk | grep "fell out 4 times, taken back in" || fail "array show does not say it"
ctl 1 cluster status | grep "the copy on node n2 fell out 4 times" || fail "cluster status does not say it"
wait_healthy disk 30
verify_finish
replicas_must_agree disk
figures
