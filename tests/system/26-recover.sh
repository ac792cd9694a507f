#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two nodes without a witness, one burnt for ever, under load: the survivor is recovered and goes on with all that was
# acknowledged. Refused while the other could come back; the burnt node's return is barred and harms nothing.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

recover() { # K ARGS...
    local k=$1
    shift
    nsenter --net="/run/netns/$prefix-n$k" -- "$build/pmsctl" recover --state-dir "$dir/n$k/state" --brick-dir "$dir/n$k/bricks" "$@"
}
recover_cmd() { echo "nsenter --net=/run/netns/$prefix-n$1 -- $build/pmsctl recover --state-dir $dir/n$1/state --brick-dir $dir/n$1/bricks"; }
ended() { ! kill -0 "$(cat "$dir/n$1/pmsd.pid")" 2>/dev/null; }

cluster_up 2 0
ctl 1 array create disk --size 64M --portal 10.77.0.100/24 --nodes n2,n1 || fail "no array"
wait_healthy disk 20
read -ra at1 < <(recover_cmd 1)

# ---- While there is another way ----

assert_refused 1 'pmsd runs .*stop it' "${at1[@]}"
dc kill 1 TERM --only pmsd
wait_until 10 ended 1 || fail "n1 does not stop"
assert_refused 1 'majority.*start pmsd' "${at1[@]}"
assert_refused 1 'majority|answers' "${at1[@]}" --yes-give-up n2
assert_refused 2 'option' "${at1[@]}" --yes
dc start 1 || fail "n1 does not start again after a recovery that was refused"
wait_healthy disk 30
assert_eq "primary" "$(primary_of disk)" 2

# ---- n2, the primary, burns down ----

verify_start disk --zeroed --seconds 20 --iops 1000
verify_wait_working
sleep 1.5
dc kill 2
no_quorum() { ! ctl 1 cluster status >/dev/null; }
wait_until 10 no_quorum || fail "n1 still has a quorum"
assert_refused 3 'gone for ever: pmsctl recover' "${devcluster[@]}" ctl 1 cluster status
dc kill 1 TERM --only pmsd
wait_until 10 ended 1 || fail "n1 does not stop"

report=$(recover 1 -o json) || fail "no report"
assert_eq "what would be given up" "$(jq -c '[.give_up, .done, .refused]' <<<"$report")" '[["n2"],false,null]'
assert_eq "the array in the report" "$(jq -c '.arrays[0] | [.name, .primary, .in_sync, .in_sync_left, .here, .then, .doubt]' <<<"$report")" \
    '["disk","n2",["n2","n1"],["n1"],"in sync","serves",null]'
grep -q 'gives up n2 for ever' <<<"$(recover 1)" || fail "the report does not say what is given up"
assert_refused 1 'no node n9' "${at1[@]}" --yes-give-up n9
assert_refused 1 'this node' "${at1[@]}" --yes-give-up n1,n2
grep -q '"former":\[\]' "$dir/n1/state/node.json" || fail "a dry run has changed something"

# ---- A recovery that was cut short right after it began is finished by a second run ----

cp -a "$dir/n1/state/log" "$work/log"
id=$(jq -r .id "$dir/n1/state/node.json") lost=$(jq -r '.peers[0].id' "$dir/n1/state/node.json")
recover 1 --yes-give-up n2 >/dev/null || fail "n1 cannot be recovered"
realm=$(jq -c .realm "$dir/n1/state/node.json")
rm -r "$dir/n1/state/log" && cp -a "$work/log" "$dir/n1/state/log"
jq -c --arg lost "$lost" '.recovering = [$lost]' "$dir/n1/state/node.json" >"$work/node.json" && cat "$work/node.json" >"$dir/n1/state/node.json"
dc start 1 >/dev/null 2>&1
wait_until 5 ended 1 || fail "n1 runs with half a recovery"
grep -q 'not finished: run it again' "$dir/n1/pmsd.log" || fail "n1 does not say why it does not start: $(tail -n 2 "$dir/n1/pmsd.log")"
assert_refused 1 'gives up n2' "${at1[@]}" --yes-give-up n9
recover 1 --yes-give-up n2 || fail "the recovery cannot be finished"
assert_eq "realm after the second run" "$(jq -c .realm "$dir/n1/state/node.json")" "$realm"
assert_eq "id after the second run" "$(jq -r .id "$dir/n1/state/node.json")" "$id"
dc start 1 || fail "the recovered n1 does not start"
state_known() { [ "$(array_field disk .serving)" = true ]; }
wait_until 10 state_known || fail "the array is not served: $(ctl 1 cluster status)"
assert_eq "nodes of the recovered cluster" "$(ctl 1 node list -o json | jq -r '.[].name')" n1
say "recovered: $(ctl 1 cluster status | head -n 1)"
verify_finish
verify_again disk

# ---- n2 comes back all the same ----

epoch=$(array_field disk .epoch)
dc start 2 >/dev/null 2>&1
wait_until 10 ended 2 || fail "n2 runs on, although it was given up"
grep -q "recovered on node .* without this node" "$dir/n2/pmsd.log" || fail "n2 does not say why it ends: $(tail -n 3 "$dir/n2/pmsd.log")"
dc start 2 >/dev/null 2>&1
wait_until 5 ended 2 || fail "n2 starts again"
assert_refused 1 'given up by a recovery' nsenter --net="/run/netns/$prefix-n2" -- "$build/pmsctl" recover --state-dir "$dir/n2/state" --brick-dir "$dir/n2/bricks"
assert_eq "nodes after n2's return" "$(ctl 1 node list -o json | jq -r '.[].name')" n1
assert_eq "epoch after n2's return" "$(array_field disk .epoch)" "$epoch"
verify_again disk
say "n2 came back, was told, and stays away: $(tail -n 1 "$dir/n2/pmsd.log" | cut -c1-150)"

# ---- A new n2 ----

find "$dir/n2" -mindepth 1 -maxdepth 2 \( -name state -o -name '*.brick' \) -exec rm -r {} +
dc start 2 || fail "an empty n2 does not start"
token=$(ctl 1 token create -o json | jq -r .token)
ctl 2 cluster join 10.77.0.11 --token "$token" --node n2 --addr 10.77.0.12 || fail "the new n2 cannot join"
ctl 1 array replace disk --node n2 || fail "no new place on n2"
wait_healthy disk 30
replicas_must_agree disk
verify_again disk
figures
