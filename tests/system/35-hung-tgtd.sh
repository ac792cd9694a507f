#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The primary's tgtd hangs (SIGSTOP): pmsd notices, and replaces it with its sessions.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

tgtd_of() { # NODE: the pid of its tgtd
    local p
    for p in $(ip netns pids "$prefix-n$1"); do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" != tgtd ] || echo "$p"
    done
}
ended() { ! kill -0 "$1" 2>/dev/null || [ "$(ps -o stat= -p "$1" | cut -c1)" = Z ]; }

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 11
verify_wait_working
old=$(primary_of disk)
hung=$(tgtd_of "$old")
[ -n "$hung" ] || fail "no tgtd runs at n$old"
begun=$(ms_now)
say "stopping tgtd (pid $hung) of n$old, the primary"
dc kill "$old" STOP --only tgtd
wait_until 20 ended "$hung" || fail "the hung tgtd is not replaced"
say "it was ended after $(($(ms_now) - begun)) ms"
grep -q "tgtd has not answered" "$dir/n$old/pmsd.log" || fail "nothing of it in the log"
verify_finish
assert_le "pause in ms" "$(verify_value pause_ms)" 9000
replicas_must_agree disk
verify_again disk
figures
