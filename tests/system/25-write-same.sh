#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# WRITE SAME of zeros as an ordered write: the primary loses power amid it, what was answered is zero, and the replicas are
# equal. UNMAP is not offered by an array whose space is reserved.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

command -v iscsi-test-cu >/dev/null || skip "needs iscsi-test-cu; run scripts/deps"
cluster_up 2 1
array_make disk 64M
url=$(dc portal disk) || fail "no portal"

say "what the standard says of it, by libiscsi's own tests"
for t in WriteSame10.Simple WriteSame10.BeyondEol WriteSame16.Simple WriteSame16.BeyondEol WriteSame16.Check; do
    out=$(dc client timeout 30 iscsi-test-cu --dataloss --test="SCSI.$t" "$url" 2>&1) || fail "$t: $out"
    grep -Eq 'asserts +[0-9]+ +[0-9]+ +[0-9]+ +0 ' <<<"$out" || fail "$t: $out"
done

dc client "$build/tests/tools/zeroer" --seconds 8 "$url" >"$work/zeroer.out" 2>&1 &
zeroer=$!
jobs_started+=("$zeroer")
sleep 2
old=$(primary_of disk)
say "power off: n$old, the primary"
dc kill "$old"
wait_takeover disk "$old" 10
dc start "$old" || fail "n$old does not start"
wait "$zeroer" || fail "zeroer: $(cat "$work/zeroer.out")"
say "$(tail -n 1 "$work/zeroer.out")"
value() { grep -oE "$1=[0-9]+" "$work/zeroer.out" | tail -n 1 | cut -d= -f2; }
assert_ge "number of rounds" "$(value rounds)" 5
assert_ge "number of reconnects" "$(value reconnects)" 1
replicas_must_agree disk
