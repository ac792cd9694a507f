#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Five failovers in a row under one load, each after the mirror is whole again.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 64M
verify_start disk --zeroed --span 32M --stop-on-file "$work/stop" --limit-s 330
verify_wait_working
for round in 1 2 3 4 5; do
    sleep 1
    old=$(primary_of disk)
    say "failover $round: power off n$old"
    dc kill "$old"
    wait_takeover disk "$old" 10
    sleep 1
    dc start "$old" || fail "n$old does not start"
    wait_healthy disk 60
done
touch "$work/stop"
verify_finish
assert_ge "number of reconnects" "$(verify_value reconnects)" 5
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
