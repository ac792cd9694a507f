#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Clients that log in under ever new names and vanish do not use up an array's sessions; also where the primary is not the leader.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 64M
leader=$(ctl 1 node list -o json | jq -r '.[] | select(.leader) | .name')
say "the leader is ${leader:-unknown}, the primary n$(primary_of disk)"
[ "n$(primary_of disk)" != "$leader" ] || ctl 1 array handover disk || fail "handover refused"

iqn=$(ctl 1 array show disk -o json | jq -r .iqn)
out=$(dc client timeout 120 python3 "$root/tests/system/drop-sessions.py" 10.77.0.100 3260 "$iqn" 600) ||
    fail "the target stopped answering: $out"
say "$out"
assert_eq "logins" "$out" "logins=400 refused=0"
connected() { ctl 1 session list -o json | jq '[.[] | select(.connected)] | length'; }
none_connected() { [ "$(connected)" = 0 ]; }
wait_until 10 none_connected || fail "$(connected) sessions count as connected although nobody is"
sessions=$(ctl 1 session list -o json | jq length)
assert_le "sessions kept" "$sessions" 256

verify_start disk --zeroed --span 32M --seconds 3
verify_finish
replicas_must_agree disk
figures
