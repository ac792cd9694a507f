#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The write cache: switched while initiators work, shown to them, and right through the loss of a process, of one node's
# memory, and of everybody's at once. A lost memory is played by the note that pmsd leaves after an I/O error: it means
# the same, that what was not flushed may be gone.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

memory_lost() { # K: the brick of node K is unclean at its next start
    [ "${#id}" -eq 16 ] || fail "the array's id is \"$id\""
    head -c 8 /dev/urandom >"$dir/n$1/state/faults/$id"
}
wce() { dc client "$build/tests/tools/plugprobe" wce "$(dc portal disk)" | sed -n 's/^wce=\([01]\).*/\1/p'; }

cluster_up 2 1
ctl 1 array create disk --level raid1 --size 128M --portal 10.77.0.100/24 --write-cache on || fail "array create"
id=$(array_field disk .id)
assert_eq "write cache shown" "$(array_field disk .write_cache)" true
assert_eq "WCE" "$(wce)" 1

say "a process is killed: nothing is lost that was acknowledged"
verify_start disk --zeroed --seconds 8
verify_wait_working
sleep 2
old=$(primary_of disk)
dc kill "$old"
wait_takeover disk "$old" 20
dc start "$old"
wait_healthy disk 60
verify_finish
replicas_must_agree disk
figures

say "off and on again under load"
verify_start disk --seconds 5
verify_wait_working
ctl 1 array set disk --write-cache off || fail "array set"
assert_eq "write cache shown" "$(array_field disk .write_cache)" false
assert_eq "WCE" "$(wce)" 0
ctl 2 array set disk --write-cache on || fail "array set"
assert_eq "WCE" "$(wce)" 1
assert_refused 2 'on or off' "${devcluster[@]}" ctl 1 array set disk --write-cache maybe
verify_finish

say "a replica loses its memory: it is thrown out and filled, nobody waits for it"
primary=$(primary_of disk)
replica=$((3 - primary))
verify_start disk --seconds 8
verify_wait_working
sleep 1
dc kill "$replica"
memory_lost "$replica"
dc start "$replica"
wait_healthy disk 60
verify_finish
assert_eq "primary" "$(primary_of disk)" "$primary"
replicas_must_agree disk

say "everybody loses it: one takes over, and initiators are told"
verify_start disk --seconds 10
verify_wait_working
sleep 2
for k in 1 2 3; do dc kill "$k"; done
memory_lost 1
memory_lost 2
for k in 1 2 3; do dc start "$k"; done
wait_healthy disk 60
verify_finish 1 # UNIT ATTENTION 29h: cached data may be gone
replicas_must_agree disk
figures
