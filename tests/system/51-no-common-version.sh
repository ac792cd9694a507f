#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Nodes that are too far apart: the witness runs a version that speaks nothing of what n1 does, but something of what n2
# does. Both ends say so, once; it costs nothing else; and such a node cannot join. And a plugin older than its pmsd.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for d in "$build/next1" "$build/next2"; do
    [ -x "$d/pmsd" ] || skip "needs $d; run make next"
done

status_has() { grep -q -e "$2" <<<"$(ctl "$1" cluster status 2>&1)"; } # NODE PATTERN
status_says() { wait_until 10 status_has "$1" "$2" || fail "cluster status at n$1 does not say /$2/: $(ctl "$1" cluster status)"; }
node_state() { ctl 1 cluster status -o json | jq -r ".nodes[] | select(.name == \"$1\") | .state"; }
node_is() { [ "$(node_state "$1")" = "$2" ]; }
witness_restart() { # BUILD
    dc kill 3 TERM --only pmsd
    wait_until 10 pmsd_is_down || fail "pmsd of n3 does not stop"
    PMS_BUILD_3=$1 dc start 3 || fail "n3 does not start"
}
pmsd_is_down() { ! grep -q "^n3: pmsd [0-9]" <<<"$(dc status 2>&1)"; }
said() { grep -c -e 'they cannot talk' "$dir/n$1/pmsd.log"; }

# As after an upgrade under a running tgtd: n2's pmsd is a version ahead of its plugin.
mkdir "$work/mixed" && cp "$build/next1/pmsd" "$build"/{bs_pms.so,pms_redirect.so,tgtd} "$work/mixed" || fail "no mixed build"
export PMS_BUILD_2=$work/mixed
cluster_up 2 1
array_make disk 64M
verify_start disk --zeroed --seconds 8 --qd 4
verify_wait_working
ctl 1 array handover disk --to n2 || fail "the array cannot be handed over"
wait_takeover disk 1 10
grep -q 'the plugin in tgtd speaks version 1, this pmsd version 1 to 2: they use the highest common one' "$dir/n2/pmsd.log" ||
    fail "n2 and its plugin did not agree on version 1"

say "the witness speaks version 2 only"
witness_restart "$build/next2"
status_says 1 'nodes n1 and n3 cannot talk: n1 speaks version 1 of the protocol between nodes, n3 version 2; upgrade pms on n1'
status_says 1 'witness n3 runs a version of pms that cannot talk'
wait_until 5 node_is n3 incompatible || fail "n3 is $(node_state n3)"
assert_eq "state of n2" "$(node_state n2)" up
status_says 2 'nodes n1 and n3 cannot talk'
# Without n1, which may lead, it has heard from nobody, or from n2.
status_says 3 'upgrade pms on \(n1\|that node\)'
sleep 2 # many attempts
assert_eq "times that n1 says it" "$(said 1)" 1
assert_eq "times that n3 says it" "$(said 3)" 1
assert_eq "times that n2 says it" "$(said 2)" 0
verify_finish

say "another version at the witness again"
witness_restart "$build/next1"
wait_until 10 node_is n3 up || fail "n3 is $(node_state n3)"
! status_has 1 'cannot talk' || fail "n1 still complains"

say "a node of such a version cannot join"
ctl 1 cluster leave --node n3 || fail "n3 cannot leave"
witness_restart "$build/next2"
token=$(ctl 1 token create -o json | jq -r .token)
assert_refused 1 'this node speaks version 2 of the protocol between nodes, the cluster.s node n1 version 1: upgrade pms on the cluster.s nodes' \
    "${devcluster[@]}" ctl 3 cluster join 10.77.0.11 --token "$token" --node n3 --addr 10.77.0.13 --witness
witness_restart "$build"
ctl 3 cluster join 10.77.0.11 --token "$token" --node n3 --addr 10.77.0.13 --witness || fail "the token does not admit n3 afterwards"
wait_healthy disk 20
