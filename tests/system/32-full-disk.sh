#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The disk under one array's copy is full and its writes fail: that copy leaves, and the other array's I/O, through the
# same processes and links, has no pause and no error.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
small=$dir/small # goes with the cluster, and so does the loop device
mkdir "$small" && mount -t tmpfs -o size=80m none "$small" || fail "no small disk"
truncate -s 72M "$small/img"
loop=$(losetup -f --show "$small/img") || skip "no loop device here"
ctl 1 array create full --level raid1 --size 64M --portal 10.77.0.100/24 --nodes n1,n2 --brick "n2=$loop" || fail "the array cannot be created"
array_make other 64M 10.77.0.101
wait_until 20 state_is full healthy || fail "the new array is $(array_state full)"
for a in full other; do
    [ "$(primary_of "$a")" = 1 ] || ctl 1 array handover "$a" --to n1 || fail "handover refused"
done
wait_healthy full 20
wait_healthy other 20

verify_start other --zeroed --span 32M --seconds 8
verify_wait_working
fallocate -p -o 8M -l 60M "$small/img" && sync "$small/img"
cat /dev/zero >"$small/filler" 2>/dev/null # until nothing is left
assert_eq "room on the small disk" "$(stat -f -c %a "$small")" 0
dc client "$build/tests/tools/verify" --url "$(dc portal full)" --log "$work/full.log" --span 48M --seconds 4 --read-pct 0 >"$work/full.out" 2>&1 ||
    fail "the array with the full disk: $(tail -n 3 "$work/full.out")"
say "full: $(tail -n 1 "$work/full.out")"
assert_eq "in sync" "$(array_field full '.in_sync | join(" ")')" n1
assert_eq "in sync of the other array" "$(array_field other '.in_sync | sort | join(" ")')" "n1 n2"
verify_finish
assert_eq "reconnects of the other array's initiator" "$(verify_value reconnects)" 0
# Less than it takes to find a node dead; an undisturbed run on a busy machine has some hundred.
assert_le "longest pause of the other array in ms" "$(verify_value pause_ms)" 1000
replicas_must_agree other
figures
