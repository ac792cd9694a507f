#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgtd of the primary is killed twice: it is started again with its sessions, or another node takes over.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 12
verify_wait_working
for round in 1 2; do
    sleep 2
    old=$(primary_of disk)
    say "killing tgtd of n$old, the primary, round $round"
    dc kill "$old" --only tgtd || fail "no tgtd ran at the primary"
done
verify_finish
assert_ge "number of reconnects" "$(verify_value reconnects)" 2
assert_le "pause in ms" "$(verify_value pause_ms)" 3000
replicas_must_agree disk
verify_again disk
figures
