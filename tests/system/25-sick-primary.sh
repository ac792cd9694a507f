#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The primary is itself the sick one: its links lose many packets, then its disk hangs. It makes room for the healthy copy
# instead of ejecting it.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

loses() { # K PERCENT: so many of its packets to and from the other nodes; those of the client get through
    local k
    for k in 1 2 3; do
        [ "$k" = "$1" ] || nsenter --net="/run/netns/$prefix-sw" -- nft -f - <<RULES || skip "nftables cannot draw lots here"
add table bridge pms_cuts
add chain bridge pms_cuts forward { type filter hook forward priority 0; policy accept; }
add rule bridge pms_cuts forward iifname "n$1" oifname "n$k" numgen random mod 100 < $2 drop
add rule bridge pms_cuts forward iifname "n$k" oifname "n$1" numgen random mod 100 < $2 drop
RULES
    done
}
seen_by_witness() { timeout 5 "${devcluster[@]}" ctl 3 array show disk -o json | jq -r "$1"; }
n2_is_primary() { [ "$(seen_by_witness .primary)" = n2 ]; }

cluster_up 2 1
mkdir -p "$work/fs"
# A file system of n1's own, for the second part: a frozen one takes no write and answers none.
truncate -s 300M "$work/fs.img" && mkfs.ext4 -q "$work/fs.img" && mount -o loop "$work/fs.img" "$work/fs" ||
    skip "no file system can be mounted from a loop device here"
ctl 1 array create disk --level raid1 --size 96M --portal 10.77.0.100/24 --nodes n1,n2 --brick "n1=$work/fs/disk.brick" ||
    fail "the array cannot be created"
wait_until 20 state_is disk healthy || fail "the new array is $(array_state disk)"
assert_eq "primary" "$(primary_of disk)" 1

verify_start disk --zeroed --seconds 21
verify_wait_working
say "the links of n1, the primary, lose 4 of 10 packets"
begun=$(ms_now)
loses 1 40
wait_until 30 n2_is_primary || fail "n1 is still primary in spite of its links"
say "n2 is primary after $(($(ms_now) - begun)) ms, in sync $(seen_by_witness '.in_sync | join(" ")')"
dc heal
wait_healthy disk 40
ctl 3 array handover disk --to n1 || fail "handover to n1 refused"
sleep 2
say "the disk of n1, the primary, hangs"
begun=$(ms_now)
fsfreeze -f "$work/fs" || fail "the file system cannot be frozen"
wait_until 30 n2_is_primary || fail "n1 is still primary in spite of its disk"
say "n2 is primary after $(($(ms_now) - begun)) ms"
ctl 3 cluster status -o json | jq -e '[.warnings[] | select(test("its disk does not answer"))] | length > 0' >/dev/null ||
    fail "no warning of the hung disk"
sleep 2
assert_eq "in sync while the disk hangs" "$(array_field disk '.in_sync | join(" ")')" n2
fsfreeze -u "$work/fs"
wait_healthy disk 40
verify_finish
figures
