#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What others do to a cluster without meaning it any harm: health probes, a stale neighbour entry, a flapping witness, a second
# cluster of the same name. None of it is seen by those who use the arrays.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
ctl 1 array create disk --size 256M --portal 10.77.0.100/24 --nodes n1,n2 || fail "no array"
wait_healthy disk 20
iqn=$(array_field disk .iqn)
pmsd_pid() { cat "$dir/n$1/pmsd.pid"; }
tgtd_pid() { for p in $(ip netns pids "$prefix-n$1"); do [ "$(cat "/proc/$p/comm")" != tgtd ] || echo "$p"; done; }
fds() { for p in "$(pmsd_pid "$1")" $(tgtd_pid "$1"); do find "/proc/$p/fd" | wc -l; done | paste -sd+ | bc; }
index() { curl -s --unix-socket "$dir/n$1/pmsd.sock" http://pms/v1/metrics | awk '$1 == "pms_raft_index_applied" { print $2 }'; }
lines() { wc -l <"$dir/n$1/pmsd.log"; }

# ---- 1,000 health probes, at the portal and at the nodes' port ----

verify_start disk --zeroed --span 128M --seconds 17 --iops 800
verify_wait_working
sleep 1
index0=$(index 1) lines0=$(lines 1) fds0=$(fds 1)
out=$(dc client timeout 60 python3 "$root/tests/system/health-probe.py" 10.77.0.100 3260 1000 "$iqn") || fail "the portal did not take the probes: $out"
assert_eq "probes of the portal" "$out" "probes=1000 connected=1000"
out=$(dc client timeout 60 python3 "$root/tests/system/health-probe.py" 10.77.0.11 7470 1000) || fail "n1 did not take the probes: $out"
assert_eq "probes of n1" "$out" "probes=1000 connected=1000"
assert_eq "commands agreed on because of probes" "$(($(index 1) - index0))" 0
assert_le "lines logged because of 2,000 probes" "$(($(lines 1) - lines0))" 30
few_fds() { [ "$(fds 1)" -le $((fds0 + 2)) ]; }
wait_until 10 few_fds || fail "descriptors: $(fds 1), there were $fds0"
assert_eq "sessions" "$(ctl 1 session list -o json | jq length)" 1
assert_eq "state" "$(array_state disk)" healthy
say "2,000 health probes: no command, $(($(lines 1) - lines0)) lines logged, $(fds 1) descriptors (there were $fds0)"

# ---- The client has a wrong neighbour entry for the portal; the next move corrects it ----

neighbour() { ip -n "$prefix-client" -o neigh show 10.77.0.100 dev eth0 | grep -oE 'lladdr [0-9a-f:]+' | cut -d' ' -f2; }
hardware() { ip -n "$prefix-n$1" -o link show eth0 | grep -oE 'link/ether [0-9a-f:]+' | cut -d' ' -f2; }
neighbour_is() { [ "$(neighbour)" = "$1" ]; }
wait_until 5 neighbour_is "$(hardware 1)" || fail "the client's neighbour is $(neighbour)"
ip -n "$prefix-client" neigh replace 10.77.0.100 lladdr 02:de:ad:be:ef:01 dev eth0 nud reachable
ctl 1 array handover disk --to n2 || fail "no handover"
wait_until 3 neighbour_is "$(hardware 2)" || fail "the client still believes in $(neighbour), not $(hardware 2)"
say "the stale neighbour entry is corrected to $(neighbour)"

# ---- The witness flaps while a copy is brought up to date ----

dc kill 1
ejected() { [ "$(array_field disk '.in_sync | join(" ")')" = n2 ]; }
wait_until 15 ejected || fail "n1 is still counted on"
sleep 2 # so that there is something to resync
flap() {
    while :; do
        dc kill 3 STOP --only pmsd
        sleep 0.4
        dc kill 3 CONT --only pmsd
        sleep 0.4
    done
}
flap &
flapper=$!
jobs_started+=("$flapper")
epoch=$(array_field disk .epoch)
dc start 1 || fail "n1 does not start"
wait_healthy disk 15
assert_eq "primary" "$(primary_of disk)" 2
assert_le "epochs that the flapping cost" "$(($(array_field disk .epoch) - epoch))" 2 # the admit, and a refresh at most
kill "$flapper"
wait "$flapper" 2>/dev/null
dc kill 3 CONT --only pmsd
verify_finish
replicas_must_agree disk
verify_again disk

# ---- A second cluster with the same names ----

second=("$root/scripts/devcluster" --prefix "${prefix}x")
"${second[@]}" up 1 --no-start --dir "$work/second" || fail "no second set of namespaces"
"${second[@]}" start 1 || fail "pmsd of the second cluster does not start"
"${second[@]}" ctl 1 cluster init --name "$prefix" --node n1 --addr 10.77.0.11 >/dev/null || fail "no second cluster"
"${second[@]}" ctl 1 array create disk --size 16M --copies 1 --portal 10.77.0.100/24 || fail "no array in the second cluster"
assert_eq "names of the clusters" "$("${second[@]}" ctl 1 cluster status -o json | jq -r .cluster.name)" "$(ctl 1 cluster status -o json | jq -r .cluster.name)"
command -v iscsi-inq >/dev/null || skip "needs iscsi-inq"
page() { # PAGE CLUSTER...: an identification page, as an initiator reads it
    local out
    out=$("${@:2}" client timeout 20 iscsi-inq -e 1 -c "$1" "$("${@:2}" portal disk)") || fail "no page $1: $out"
    grep -avi 'page code\|page length' <<<"$out" | tr -dc '[:print:]\n'
}
for code in 128 131; do
    ours=$(page "$code" "${devcluster[@]}") theirs=$(page "$code" "${second[@]}")
    say "page $code: $(tr '\n' ' ' <<<"$ours") / $(tr '\n' ' ' <<<"$theirs")"
    [ -n "$ours" ] && [ "$ours" != "$theirs" ] || fail "page $code is the same in two clusters: $ours"
done
other=$("${second[@]}" ctl 1 array show disk -o json | jq -r '.iqn, .serial')
[ "$other" != "$(array_field disk '.iqn, .serial')" ] || fail "IQN and serial are the same in two clusters: $other"
say "two clusters of one name: $iqn and $(head -n 1 <<<"$other")"
figures
