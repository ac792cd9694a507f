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
assert_eq "primary after n2 left" "$(primary_of disk)" 1
wait_until 10 is_alone 2 || fail "n2 does not notice that it has left"
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
    wait_until 10 is_alone 2 || fail "n2 does not notice that it has left"
    rejoin 2
    say "$old led, left and is back; $(leader) leads now"
fi

# ---- A disk is lost: state and brick ----

[ "$(primary_of disk)" = 1 ] || ctl 1 array handover disk --to n1 || fail "no handover to n1"
dc kill 3
rm -rf "$dir/n3/state/log"
dc start 3 >/dev/null 2>&1 && fail "n3 runs without its log"
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

# ---- The end of an array ----

ctl 2 array delete disk || fail "the array cannot be deleted"
assert_eq "bricks left" "$(find "$dir"/n?/bricks -type f | wc -l)" 0
