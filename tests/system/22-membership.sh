#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Nodes leave, come back and lose their disks under load: primaries move first, the last good copy stays, a lost copy gets a
# new place; without quorum every change is refused with exit status 3.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

member_up() { # K: it answers as a member
    ctl 1 node list -o json | jq -e --arg n "n$1" '.[] | select(.name == $n and .state == "up" and .raft == "voter")'
}
rejoin() { # K
    local token
    token=$(ctl 1 token create -o json | jq -r .token)
    ctl "$1" cluster join 10.77.0.11 --token "$token" --node "n$1" --addr "10.77.0.$((10 + $1))" || fail "n$1 cannot join"
    wait_until 10 member_up "$1" || fail "n$1 is no voter"
}
is_alone() { ctl "$1" cluster status | grep -q 'in no cluster'; }
leader() { ctl 1 node list -o json | jq -r '.[] | select(.leader) | .name'; }

cluster_up 3 0
ctl 1 array create disk --size 128M --portal 10.77.0.100/24 --nodes n2,n1 || fail "no array"
wait_healthy disk 20
verify_start disk --zeroed --seconds 25 --iops 1500
verify_wait_working

# ---- A primary leaves ----

assert_refused 1 'n9' "${devcluster[@]}" ctl 1 cluster leave --node n9
assert_refused 1 'in sync' "${devcluster[@]}" ctl 1 array replace disk --node n3
ctl 3 cluster leave --node n2 || fail "n2 may not leave"
is_alone 2 || fail "n2 is said to have left and does not know"
assert_eq "primary after n2 left" "$(primary_of disk)" 1
[ -z "$(find "$dir/n2/bricks" -type f)" ] || fail "n2 left its brick behind"
assert_refused 1 'last good copy' "${devcluster[@]}" ctl 1 cluster leave
say "n2 has left, its array is served by n1"

# ---- Its copy gets a new place ----

ctl 1 array replace disk --node n3 || fail "no new place on n3"
wait_healthy disk 30
assert_eq "nodes in sync" "$(array_field disk '.in_sync | sort | join(" ")')" "n1 n3"
rejoin 2
assert_eq "number of nodes" "$(ctl 2 node list -o json | jq length)" 3
say "n3 holds the second copy, n2 is back as a new node"

# ---- A node with a brick leaves by its own word, comes back at once, and is filled again ----

for _ in 1 2 3; do
    ctl 3 cluster leave || fail "n3 may not leave"
    [ -z "$(find "$dir/n3/bricks" -type f)" ] || fail "n3 left its brick behind"
    rejoin 3
    ctl 1 array replace disk --node n3 || fail "no new place on the returned n3"
    wait_healthy disk 30
done
say "n3 left with its brick removed, and was filled again, three times"

# ---- The leader leaves, by its own word ----

leads() { [ "$(leader)" = "n$1" ]; }
if ! leads 2; then # a leader that stops hands over; n2 or n3 gets it
    dc kill 1 TERM --only pmsd
    sleep 1
    dc start 1 || fail "n1 does not start again"
    wait_healthy disk 30
fi
old=$(leader)
if [ "$old" = n2 ]; then
    ctl 2 cluster leave || fail "the leader may not leave"
    rejoin 2
    say "$old led, left and is back; $(leader) leads now"
fi

# ---- A disk is lost: state and brick ----

[ "$(primary_of disk)" = 1 ] || ctl 1 array handover disk --to n1 || fail "no handover to n1"
dc kill 3
rm -rf "$dir/n3/state/log"
dc start 3 >/dev/null 2>&1 # its socket may answer for a moment before it gives up
n3_ended() { ! kill -0 "$(cat "$dir/n3/pmsd.pid")"; }
wait_until 10 n3_ended || fail "n3 runs without its log"
grep -q "log is gone" "$dir/n3/pmsd.log" || fail "n3 does not say why it refuses"
rm -rf "$dir/n3/state" && find "$dir/n3/bricks" -type f -delete
dc start 3 || fail "n3 does not start empty"
ejected() { [ "$(array_field disk '.in_sync | join(" ")')" = n1 ]; }
wait_until 10 ejected || fail "the lost copy is still counted on"
rejoin 3
ctl 2 array replace disk --node n3 || fail "no new place on the new n3"
wait_healthy disk 30
say "n3 lost everything, joined under its old name, and is filled again"
verify_finish
replicas_must_agree disk
verify_again disk

# ---- Without quorum ----

dc kill 2
dc kill 3
no_quorum() { ! ctl 1 cluster status >/dev/null; }
wait_until 10 no_quorum || fail "n1 still has a quorum"
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 cluster status
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 array create more --size 64M --portal 10.77.0.101/24
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 array delete disk
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 array handover disk
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 cluster leave --node n2
assert_refused 3 'quorum' "${devcluster[@]}" ctl 1 token create
assert_eq "what n1 still knows" "$(ctl 1 array list -o json 2>/dev/null | jq -r '.[].name')" disk
dc start 2 || fail "n2 does not start"
has_quorum() { ctl 1 cluster status >/dev/null; }
wait_until 10 has_quorum || fail "no quorum with n2 back"
dc start 3 || fail "n3 does not start"
wait_healthy disk 30

# ---- A node that is down leaves: what it still holds is named ----

[ "$(primary_of disk)" != 3 ] || ctl 1 array handover disk --to n1 || fail "no handover to n1"
dc kill 3
wait_until 10 ejected || fail "n3 is still counted on"
ctl 1 cluster leave --node n3 || fail "n3, which is down, may not be taken out"
dc start 3 || fail "n3 does not start"
wait_until 20 is_alone 3 || fail "n3 does not notice that it was taken out"
stale=$(brick_of 3) || exit 1
rejoin 3
ctl 1 array replace disk --node n3 || fail "no new place on n3"
named() { ctl 1 cluster status | grep -F "brick $stale on node n3" | grep -q 'remove the file'; }
wait_until 10 named || fail "nobody says that $stale is in the way: $(ctl 1 cluster status)"
rm "$stale"
wait_healthy disk 30
replicas_must_agree disk
say "n3 was taken out while down; its old brick was named, removed, and n3 filled again"

# ---- The end of an array ----

ctl 2 array delete disk || fail "the array cannot be deleted"
assert_eq "bricks left" "$(find "$dir"/n?/bricks -type f | wc -l)" 0

# ---- The last node leaves ----

ctl 3 cluster leave || fail "n3 may not leave"
wait_until 5 is_alone 3 || fail "n3 still knows a cluster"
ctl 3 cluster init --name wrong --node n3 --addr 10.77.0.13 || fail "n3 makes no cluster of its own"
ctl 3 array create little --size 16M --copies 1 --portal 10.77.0.103/24 || fail "no array on n3 alone"
assert_refused 1 'delete its arrays first' "${devcluster[@]}" ctl 3 cluster leave
ctl 3 array delete little || fail "the array of n3 alone cannot be deleted"
ctl 3 cluster leave || fail "the last node may not leave"
rejoin 3
assert_eq "number of nodes" "$(ctl 3 node list -o json | jq length)" 3
say "n3 had a cluster of its own, left it, and is back"
