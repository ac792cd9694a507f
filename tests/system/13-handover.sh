#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# array handover under load, there and back again, once with a named target.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 12
verify_wait_working
for round in 1 2 3; do
    sleep 2
    old=$(primary_of disk)
    new=$((3 - old))
    if [ "$round" = 2 ]; then
        ctl "$old" array handover disk || fail "handover refused"
    else
        ctl 3 array handover disk --to "n$new" || fail "handover to n$new refused" # asked at the witness
    fi
    assert_eq "primary after the handover" "$(primary_of disk)" "$new"
    assert_eq "state after the handover" "$(array_state disk)" healthy
    say "handed over from n$old to n$new"
done
verify_finish
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
