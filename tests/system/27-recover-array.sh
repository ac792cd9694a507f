#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The only copy in sync is lost, a stale one survives: it is taken for good when the operator accepts the loss, never
# before. The lost copy comes back after all, and is stale. And two of four nodes are lost with a majority: one survivor
# is recovered, the other follows with its bricks.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

ended() { ! kill -0 "$(cat "$dir/n$1/pmsd.pid")" 2>/dev/null; }
fill() { # BYTE: the first MiB of the disk, by an initiator
    dc client timeout 30 qemu-io -f raw -t writethrough -c "write -P $1 0 1M" "$(dc portal disk)" >"$work/io.out" 2>&1 ||
        fail "the disk cannot be written: $(cat "$work/io.out")"
}
holds() { # BYTE
    dc client timeout 30 qemu-io -r -f raw -c "read -P $1 0 1M" "$(dc portal disk)" >"$work/io.out" 2>&1 && ! grep -q 'failed' "$work/io.out" ||
        fail "the disk does not hold $1: $(cat "$work/io.out")"
}

command -v qemu-io >/dev/null || skip "needs qemu-io"
cluster_up 4 0
ctl 1 array create disk --size 64M --portal 10.77.0.100/24 --nodes n3,n2 || fail "no array"
wait_healthy disk 20

# ---- The stale copy is taken ----

fill 65
dc kill 2
alone() { [ "$(array_field disk '.in_sync | join(" ")')" = n3 ]; }
wait_until 10 alone || fail "n2 is still counted on"
fill 66
dc cut 2 3 # so that n2 stays stale
dc start 2 || fail "n2 does not start"
take=("${devcluster[@]}" ctl 1 array recover disk --slot n2)
answer_is() { grep -q "$1" <<<"$("${take[@]}" --accept-data-loss --give-up n3 2>&1)"; }
wait_until 10 answer_is 'n3 answers and has a good copy' || fail "n3, which serves, is not in the way: $("${take[@]}" --accept-data-loss 2>&1)"
dc kill 3
dc heal
waits() { grep -q '^waiting: .*bring back node n3' <<<"$(ctl 1 cluster status)"; }
wait_until 15 waits || fail "it does not wait for n3: $(ctl 1 cluster status)"
assert_refused 1 'accept-data-loss' "${take[@]}" --give-up n3
assert_refused 1 'may come back.*give-up n3' "${take[@]}" --accept-data-loss
assert_refused 1 'no copy' "${devcluster[@]}" ctl 1 array recover disk --slot n1 --accept-data-loss --give-up n3
assert_refused 2 'only nodes that have' "${take[@]}" --accept-data-loss --give-up n3,n4
"${take[@]}" --accept-data-loss --give-up n3 || fail "the stale copy cannot be taken"
serves() { [ "$(array_field disk '"\(.primary) \(.serving)"')" = "n2 true" ]; }
wait_until 10 serves || fail "n2 does not serve: $(array_json disk)"
holds 65
fill 68
say "the stale copy of n2 serves: $(ctl 1 cluster status | head -n 1)"

# ---- The lost one comes back: with older data than it had, and overwritten ----

dc start 3 || fail "n3 does not start"
wait_healthy disk 30
assert_eq "primary" "$(primary_of disk)" 2
replicas_must_agree disk
holds 68

# ---- Two of four burn down: n1 is recovered, n2 follows with its copy ----

dc kill 3
dc kill 4
no_quorum() { ! ctl 1 cluster status >/dev/null; }
wait_until 10 no_quorum || fail "n1 still has a quorum"
dc kill 1 TERM --only pmsd
wait_until 10 ended 1 || fail "n1 does not stop"
recover() { nsenter --net="/run/netns/$prefix-n$1" -- "$build/pmsctl" recover --state-dir "$dir/n$1/state" --brick-dir "$dir/n$1/bricks" "${@:2}"; }
assert_refused 1 'n4 does not answer' nsenter --net="/run/netns/$prefix-n1" -- "$build/pmsctl" recover --state-dir "$dir/n1/state" --yes-give-up n3
id=$(recover 1 --yes-give-up n3,n4 -o json | jq -r .recovery)
[[ $id =~ ^[0-9a-f]{32}$ ]] || fail "no recovery: $id"
dc start 1 || fail "n1 does not start"
wait_until 10 ended 2 || fail "n2 goes on with the former cluster"
recover 2 --follow "$id" || fail "n2 cannot follow"
dc start 2 || fail "n2 does not start"
two_voters() { [ "$(ctl 1 node list -o json | jq -c '[.[] | select(.raft == "voter" and .state == "up") | .name]')" = '["n1","n2"]' ]; }
wait_until 15 two_voters || fail "n2 is no voter: $(ctl 1 node list)"
wait_until 10 serves || fail "n2 does not serve: $(array_json disk)"
holds 68
dc start 3 >/dev/null 2>&1
dc start 4 >/dev/null 2>&1
wait_until 10 ended 3 || fail "n3 runs on"
wait_until 10 ended 4 || fail "n4 runs on"
wait_until 10 serves || fail "the return of n3 and n4 did harm: $(array_json disk)"
ctl 1 array replace disk --node n1 || fail "no new place on n1"
wait_healthy disk 30
replicas_must_agree disk
holds 68
