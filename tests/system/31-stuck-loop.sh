#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The primary's data loop hangs: another node takes over, and the watchdog ends that pmsd, which says where it hung.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

cluster_up 2 1
array_make disk 64M
p=$(primary_of disk)
pmsd=$(cat "$dir/n$p/pmsd.pid")
verify_start disk --zeroed --span 32M --seconds 12
verify_wait_working
python3 "$root/tests/system/stop-thread.py" "$pmsd" pms-data >"$work/stop.out" 2>&1 &
jobs_started+=("$!")
wait_until 5 grep -q stopped "$work/stop.out" || skip "no thread can be stopped here: $(cat "$work/stop.out")"
others_primary() {
    local k
    for k in 1 2 3; do
        [ "$k" = "$p" ] || ctl "$k" array show disk -o json 2>/dev/null | jq -e --arg p "n$p" '.primary != $p' && return
    done
    return 1
}
wait_until 5 others_primary || fail "nobody took over from n$p, whose data loop hangs"
say "another node is primary"
process_gone() { [ ! -e "/proc/$pmsd" ] || [ "$(ps -o stat= -p "$pmsd" | cut -c1)" = Z ]; }
wait_until 10 process_gone || fail "pmsd goes on with a data loop that hangs"
grep 'the data loop is stuck: no turn for' "$dir/n$p/pmsd.log" || fail "no word of it in the log"
dc start "$p" || fail "n$p cannot be started again"
verify_finish
replicas_must_agree disk
figures
