#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The primary is cut off from the other nodes, not from the client: it must not answer for what it no longer owns.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 14
verify_wait_working
sleep 2
old=$(primary_of disk)
say "cut: n$old from the other nodes"
dc cut "$old" $((3 - old))
dc cut "$old" 3
sleep 4
say "heal"
dc heal
wait_healthy disk 60
[ "$(primary_of disk)" != "$old" ] || fail "nobody took over from a primary without quorum"
verify_finish
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
