#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The witness dies, then the primary: I/O waits, fails nothing, and goes on when the witness is back.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

log_size() { stat -c %s "$work/verify.log"; }

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 20
verify_wait_working
say "power off: n3, the witness"
dc kill 3
sleep 2
before=$(log_size)
sleep 1
[ "$(log_size)" -gt "$before" ] || fail "without the witness alone I/O must go on"
old=$(primary_of disk)
other=$((3 - old))
say "power off: n$old, the primary"
dc kill "$old"
sleep 2 # what was on its way has arrived
before=$(log_size)
sleep 3
assert_eq "growth of the client's log while there is no quorum" "$(($(log_size) - before))" 0
assert_refused 3 quorum "${devcluster[@]}" ctl "$other" array create more --level raid1 --size 64M --portal 10.77.0.101/24
say "I/O waits; power on: n3, the witness"
dc start 3 || fail "the witness does not start"
wait_takeover disk "$old" 15
dc start "$old" || fail "n$old does not start"
wait_healthy disk 60
verify_finish
assert_ge "pause in ms" "$(verify_value pause_ms)" 4000
replicas_must_agree disk
verify_again disk
figures
