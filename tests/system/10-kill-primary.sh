#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The primary's node loses power in mid-write: the other takes over with the session, and the node comes back.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 12
verify_wait_working
sleep 2
old=$(primary_of disk)
say "power off: n$old, the primary"
dc kill "$old"
wait_takeover disk "$old" 10
assert_eq "state without n$old" "$(array_state disk)" degraded
sleep 2
dc start "$old" || fail "n$old does not start"
wait_healthy disk 60
verify_finish
assert_ge "number of reconnects" "$(verify_value reconnects)" 1
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
