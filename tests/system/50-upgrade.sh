#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An upgrade node by node under load: n2 is one version ahead of the others, each is killed as primary, then the others
# are upgraded too, the feature level is raised, and the old version cannot come back.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

next=$build/next1
[ -x "$next/pmsd" ] || skip "needs $next; run make next"

log_has() { grep -q -e "$2" "$dir/n$1/pmsd.log"; } # NODE PATTERN
log_says() { wait_until 10 log_has "$1" "$2" || fail "the log of n$1 does not say /$2/"; }
feature_level() { ctl "$1" cluster status -o json | jq .cluster.feature_level; }
upgrade_is() { [ "$(ctl 1 cluster status -o json | jq -c .upgrade)" = "$1" ]; }
pmsd_stop() { # NODE
    dc kill "$1" TERM --only pmsd || fail "n$1 runs no pmsd"
    wait_until 10 pmsd_is_down "$1" || fail "pmsd of n$1 does not stop"
}
pmsd_is_down() { ! grep -q "^n$1: pmsd [0-9]" <<<"$(dc status 2>&1)"; }
brick_version() { # NODE: the higher one of both superblocks
    local brick at
    brick=$(brick_of "$1") || exit 1
    for at in 4 4100; do od -An -tu4 -j "$at" -N 4 "$brick"; done | sort -n | tail -n 1 | tr -d ' '
}
brick_version_is() { [ "$(brick_version "$1")" = "$2" ]; }
power_cycle() { # of the primary
    local old
    old=$(primary_of disk)
    say "power off: n$old, the primary"
    dc kill "$old"
    wait_takeover disk "$old" 10
    dc start "$old" || fail "n$old does not start"
    wait_healthy disk 60
}

export PMS_BUILD_2=$next
cluster_up 2 1
array_make disk 64M
log_says 1 'is reached: version 1 of the protocol'
log_says 2 'is reached: version 1 of the protocol'
log_says 2 'probe at feature level 1: PMS_EVERSION'
assert_refused 1 'node n1 supports feature level 1, not 2 \(and 1 more node\).*install the newer' "${devcluster[@]}" ctl 2 cluster upgrade
upgrade_is '{"behind":["n1","n3"],"newest":2,"possible":false}' || fail "status tells another story of the upgrade"
grep -q 'upgrade: .* all nodes but n1, n3' <<<"$(ctl 1 cluster status)" || fail "cluster status does not name those behind"

verify_start disk --zeroed --span 32M --stop-on-file "$work/stop" --limit-s 120
verify_wait_working
power_cycle
power_cycle
assert_eq "the cluster's feature level" "$(feature_level 2)" 1
assert_eq "version of n2's brick" "$(brick_version 2)" 1

say "the witness and n1 are upgraded too"
for k in 3 1; do
    pmsd_stop "$k"
    export "PMS_BUILD_$k=$next"
    dc start "$k" || fail "n$k does not start"
done
wait_healthy disk 60
log_says 1 'is reached: version 2 of the protocol'
touch "$work/stop"
verify_finish
wait_until 10 upgrade_is '{"behind":[],"newest":2,"possible":true}' || fail "status does not say that an upgrade is possible"

say "the feature level is raised while n3 is down"
pmsd_stop 3
ctl 1 cluster upgrade || fail "the cluster cannot be upgraded"
assert_eq "the cluster's feature level" "$(feature_level 2)" 2
log_says 2 'probe at feature level 2: applied'
assert_eq "version of n1's brick" "$(brick_version 1)" 1
grep -q 'at feature level 2 already' <<<"$(ctl 1 cluster upgrade)" || fail "a second upgrade is not done already"

say "the old version at n1, and at n3, which does not know of the upgrade yet"
pmsd_stop 1
assert_refused 1 'the cluster is at feature level 2, and this pmsd supports only 1: install the newer pms' \
    env PMS_BUILD_1="$build" "${devcluster[@]}" start 1
dc start 1 || fail "n1 does not start"
wait_until 20 brick_version_is 1 2 || fail "n1's brick is still of version $(brick_version 1)"
PMS_BUILD_3=$build dc start 3 || log_has 3 'supports only 1' || fail "n3 does not get as far as the log"
wait_until 10 pmsd_is_down 3 || fail "n3 runs an old version in an upgraded cluster"
[[ $(tail -n 30 "$dir/n3/pmsd.log") == *'this pmsd supports only 1: install the newer pms on this node again'* ]] ||
    fail "n3 does not say why it stopped"
dc start 3 || fail "n3 does not start"
replicas_must_agree disk
verify_again disk
figures
