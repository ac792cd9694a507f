#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# pmsd of the primary is killed and nothing else: the portal leaves the node, and the other takes over.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 12
verify_wait_working
sleep 2
old=$(primary_of disk)
epoch=$(array_field disk .epoch)
say "killing pmsd of n$old, the primary"
dc kill "$old" --only pmsd
wait_until 15 epoch_above disk "$epoch" || fail "no new epoch after pmsd was killed"
sleep 2
dc start "$old" || fail "pmsd of n$old does not start again"
wait_healthy disk 60
verify_finish
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
