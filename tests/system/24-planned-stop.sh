#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# pmsd is stopped by its operator: it hands over and leaves, nobody waits for it, and later only what changed is copied.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

stopped() { ! kill -0 "$1" 2>/dev/null || [ "$(ps -o stat= -p "$1" | cut -c1)" = Z ]; }
stop_node() { # K
    local pid begun
    pid=$(cat "$dir/n$1/pmsd.pid")
    begun=$(ms_now)
    dc kill "$1" TERM --only pmsd
    wait_until 10 stopped "$pid" || fail "pmsd of n$1 does not end"
    say "n$1 has stopped after $(($(ms_now) - begun)) ms"
    ! grep -q "could not be left" "$dir/n$1/pmsd.log" || fail "n$1 did not leave its array in time"
}
start_node() { # K
    dc start "$1" || fail "n$1 does not start"
    wait_healthy disk 30
}
sent() { array_field disk .resync_sent; }
put() { # BYTES-SPAN SEED: writes within the first so many bytes
    dc client "$build/tests/tools/verify" --url "$(dc portal disk)" --ops 40 --read-pct 0 --span "$1" --bs 4k:16k --seed "$2" \
        --log "$work/put.log" --quiet >"$work/put.out" 2>&1 || fail "the writes failed: $(cat "$work/put.out")"
}

volatile_boot() { # BRICK: that field of the newer superblock
    local at gen best=-1 best_at=0
    for at in 0 4096; do
        gen=$(od -An -td8 -j$((at + 16)) -N8 "$1")
        [ "$gen" -le "$best" ] || best=$gen best_at=$at
    done
    od -An -tu8 -j$((best_at + 96)) -N8 "$1" | tr -d ' '
}

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 9
verify_wait_working
sleep 1
old=$(primary_of disk)
new=$((3 - old))
say "stop: n$old, the primary"
stop_node "$old"
assert_eq "primary after the stop" "$(primary_of disk)" "$new"
assert_eq "in sync after the stop" "$(array_field disk '.in_sync | join(" ")')" "n$new"
start_node "$old"
epoch=$(array_field disk .epoch)
say "stop: n$old, a replica now"
stop_node "$old"
assert_eq "primary after the stop" "$(primary_of disk)" "$new"
# One eject, and no other transition: nobody was waited for until it was given up.
assert_eq "epoch after the stop" "$(array_field disk .epoch)" $((epoch + 1))
start_node "$old"
verify_finish
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
figures
replicas_must_agree disk

say "nothing is written meanwhile"
before=$(sent)
stop_node "$old"
start_node "$old"
assert_eq "bytes sent for a copy that missed nothing" $(($(sent) - before)) 0

say "a little is written meanwhile"
stop_node "$old"
put 1M 7
start_node "$old"
delta=$(($(sent) - before))
assert_ge "bytes sent" "$delta" 4096
assert_le "bytes sent" "$delta" $((1 << 20))
say "$delta bytes were sent for a copy that missed writes within 1 MiB of 128"

say "all are stopped, the primary last, and started"
put 64M 8
stop_node "$old"
stop_node "$new"
dc start "$new" || fail "n$new does not start"
start_node "$old"
assert_eq "bytes sent after a stop of all" "$(sent)" 0
replicas_must_agree disk

say "with the write cache on, the last one stops only when nothing is volatile"
ctl 1 array set disk --write-cache on || fail "the cache cannot be switched on"
stop_node "$old"
put 16M 9
assert_ge "the mark of volatile data while it serves" "$(volatile_boot "$(brick_of "$new")" | wc -c)" 3
stop_node "$new"
assert_eq "the mark of volatile data after the stop" "$(volatile_boot "$(brick_of "$new")")" 0
dc start "$new" || fail "n$new does not start"
start_node "$old"
dc client "$build/tests/tools/verify" --url "$(dc portal disk)" --check-only --log "$work/put.log" --quiet >"$work/check.out" 2>&1 ||
    fail "the disk does not hold what was acknowledged: $(cat "$work/check.out")"
