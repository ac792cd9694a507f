#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The portal lies in a network of its own: its carrier is lost at the primary, then a brick's file system is full.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

second_network() { # 10.78.0.0/24, on a switch of its own
    local end ns sw=$prefix-sw
    ip -n "$sw" link add br1 type bridge stp_state 0 forward_delay 0 mcast_snooping 0 && ip -n "$sw" link set br1 up || return 1
    for end in 1 2 client; do
        ns=$prefix-n$end && [ "$end" != client ] || ns=$prefix-client
        ip -n "$sw" link add "p$end" type veth peer name eth1 netns "$ns" && ip -n "$sw" link set "p$end" master br1 up || return 1
        ip -n "$ns" addr add "10.78.0.$([ "$end" = client ] && echo 200 || echo $((10 + end)))/24" brd + dev eth1 &&
            ip -n "$ns" link set eth1 up || return 1
    done
}
carrier() { ip -n "$prefix-sw" link set "p$1" "$2"; } # K up|down
n_is_primary() { [ "$(array_field disk .primary)" = "n$1" ]; }
warns() { ctl 3 cluster status -o json | jq -e --arg p "$1" '[.warnings[] | select(test($p))] | length > 0' >/dev/null; }

agree() { # the brick of n2 is not where the others are
    wait_healthy disk 40
    cmp --ignore-initial=$((4 << 20)) --bytes=$((64 << 20)) "$(brick_of 1)" "$work/fs/disk.brick" || fail "the replicas differ"
    say "the replicas are byte-identical"
}

cluster_up 2 1
second_network || fail "the second network cannot be made"
mkdir -p "$work/fs"
truncate -s 96M "$work/fs.img" && mkfs.ext4 -q -m 0 "$work/fs.img" && mount -o loop "$work/fs.img" "$work/fs" ||
    skip "no file system can be mounted from a loop device here"
ctl 1 array create disk --level raid1 --size 64M --portal 10.78.0.100/24 --nodes n1,n2 --brick "n2=$work/fs/disk.brick" ||
    fail "the array cannot be created"
wait_until 20 state_is disk healthy || fail "the new array is $(array_state disk)"
assert_eq "primary" "$(primary_of disk)" 1
verify_start disk --zeroed --seconds 12 --span 32M
verify_wait_working
say "the portal's interface at n1, the primary, loses its carrier"
carrier 1 down
begun=$(ms_now)
wait_until 10 n_is_primary 2 || fail "n1 is still primary"
say "n2 is primary after $(($(ms_now) - begun)) ms"
assert_eq "in sync" "$(array_field disk '.in_sync | length')" 2
warns "node n1: the portal's interface has no carrier" || fail "no warning of the lost carrier"
say "n2 loses its carrier too: it goes nowhere"
carrier 2 down
sleep 2
n_is_primary 2 || fail "it was handed to a node without carrier"
carrier 1 up
carrier 2 up
wait_until 10 eval '! warns "has no carrier"' || fail "the warning stays"
verify_finish
figures
agree

say "a hole in the brick of n2, and no space left to fill it"
ctl 3 array handover disk --to n1 || fail "handover refused"
fallocate --punch-hole --offset $((40 << 20)) --length $((8 << 20)) "$work/fs/disk.brick"
dd if=/dev/zero of="$work/fs/filler" bs=64k status=none 2>/dev/null
sync -f "$work/fs"
dc client "$build/tests/tools/verify" --url "$(dc portal disk)" --ops 200 --read-pct 0 --offset 34M --span 12M --log "$work/full.log" \
    --quiet >"$work/full.out" 2>&1 || fail "the writes failed: $(cat "$work/full.out")"
assert_eq "in sync" "$(array_field disk '.in_sync | join(" ")')" n1
ctl 1 array show disk | grep "no space left on its file system" || fail "array show does not say it"
rm "$work/fs/filler"
dc kill 2 TERM --only pmsd
sleep 1
dc start 2 || fail "n2 does not start"
agree
