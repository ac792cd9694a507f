#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# pmsd of the only copy in sync ends and is started again, by a signal and by SIGKILL: the initiator sees a pause on the
# connection that it has, and nothing else. Where another copy is in sync, that node may be faster: then it serves.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

tgtd_of() { # NODE: the pid of its tgtd
    local p
    for p in $(ip netns pids "$prefix-n$1"); do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" != tgtd ] || echo "$p"
    done
}
connections() { # from the client to the portal, as "local-port", one a line
    "${devcluster[@]}" client ss -Htn state established dst 10.77.0.100 | awk '{ print $3 }' | sort
}
restart() { # NODE SIGNAL; "TWICE": killed again before it has gone on with what was left
    if [ "$2" = TWICE ]; then
        restart "$1" KILL
        set -- "$1" KILL
    fi
    dc kill "$1" "$2" --only pmsd
    wait_until 10 gone "$1" || fail "pmsd of n$1 does not end on SIG$2"
    dc start "$1" || fail "pmsd of n$1 does not start again"
}
gone() { ! ip netns pids "$prefix-n$1" | xargs -r ps -o comm= -p | grep -qx pmsd; }
ended() { ! kill -0 "$1" 2>/dev/null || [ "$(ps -o stat= -p "$1" | cut -c1)" = Z ]; }
tgtd_lives() { [ -n "$(tgtd_of "$1")" ]; }
no_tgtd() { [ -z "$(tgtd_of "$1")" ]; }

cluster_up 2 1
array_make disk 128M

say "--- both copies in sync"
verify_start disk --zeroed --stop-on-file "$work/stop1"
verify_wait_working
sleep 1
old=$(primary_of disk)
wait_until 10 tgtd_lives $((3 - old)) || fail "no tgtd stands by at the other node"
tgtd=$(tgtd_of "$old")
restart "$old" KILL
sleep 2
touch "$work/stop1"
verify_finish
if [ "$(primary_of disk)" != "$old" ]; then # what its tgtd holds is old now
    wait_until 2 ended "$tgtd" || fail "the tgtd of n$old lives on after n$(primary_of disk) took over"
fi
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
wait_healthy disk 60
verify_again disk

say "--- one copy"
old=$(primary_of disk)
dc kill $((3 - old))
wait_until 10 state_is disk degraded || fail "the array is $(array_state disk)"
tgtd=$(tgtd_of "$old")
verify_start disk --stop-on-file "$work/stop2"
verify_wait_working
sleep 1
before=$(connections)
for signal in KILL TERM TWICE; do
    epoch=$(array_field disk .epoch)
    restart "$old" "$signal"
    wait_until 10 epoch_above disk "$epoch" || fail "no new epoch after $signal"
    sleep 0.5
    assert_eq "pid of tgtd after $signal" "$(tgtd_of "$old")" "$tgtd"
done
assert_eq "the client's connections" "$(connections)" "$before"
touch "$work/stop2"
verify_finish
assert_eq "number of reconnects" "$(verify_value reconnects)" 0
assert_le "pause in ms" "$(verify_value pause_ms)" 5000
figures

say "--- nobody comes back in time"
dc kill "$old" KILL --only pmsd
wait_until 10 no_tgtd "$old" || fail "a tgtd without pmsd lives on"
dc start "$old" || fail "pmsd of n$old does not start again"
dc start $((3 - old)) || fail "n$((3 - old)) does not start"
replicas_must_agree disk
verify_again disk
