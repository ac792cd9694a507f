#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# More commands than fit, while the array answers nobody (the other copy's disk hangs): memory stays within what the code
# says, the rest is answered TASK SET FULL, and when the disk goes on every write is done and right.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

rss_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
constant() { # FILE NAME: bytes
    local expr
    expr=$(sed -nE "s/^#define +$2 +([^/]*).*/\1/p" "$root/$1" | sed -E 's/([0-9])u/\1/g')
    echo $((expr))
}
arena_kib=$(($(constant datapath/io/ring.h PMS_RING_ARENA_DEFAULT) / 1024))
tasks=$(constant target/plugin/share.h PMS_SHARE_TASKS_FULL)
[ "$arena_kib" -gt 0 ] && [ "$tasks" -gt 0 ] || fail "the constants cannot be read"

cluster_up 2 1
mkdir "$work/fs"
truncate -s 300M "$work/fs.img" && mkfs.ext4 -q -m 0 "$work/fs.img" && mount -o loop "$work/fs.img" "$work/fs" ||
    skip "no file system can be mounted from a loop device here"
mkdir "$work/fs/bricks" && mount --bind "$work/fs/bricks" "$dir/n2/bricks" || fail "n2's bricks cannot be there"
array_make disk 256M
[ "$(primary_of disk)" = 1 ] || { ctl 1 array handover disk && wait_healthy disk 20; }
assert_eq "the primary" "$(primary_of disk)" 1
pmsd=$(cat "$dir/n1/pmsd.pid")
tgtd=$(for pid in $(ip netns pids "$prefix-n1"); do [ "$(cat "/proc/$pid/comm")" = tgtd ] && echo "$pid"; done)

# 8 sessions of 24 writes of 1 MiB: three times the arena.
mkfifo "$work/go"
dc client "$build/tests/tools/overload" "$(dc portal disk)" 8 24 1024 <"$work/go" >"$work/overload.out" 2>&1 &
load=$!
jobs_started+=("$load")
exec 9>"$work/go"
wait_until 10 grep -q open "$work/overload.out" || fail "the sessions do not come up"
tgtd_before=$(rss_kib "$tgtd") pmsd_before=$(rss_kib "$pmsd")
fsfreeze -f "$work/fs" || fail "the file system cannot be frozen"
echo go >&9
wait_until 10 grep -q full "$work/overload.out" || fail "no TASK SET FULL"
tgtd_max=0 pmsd_max=0
for _ in 1 2 3 4 5 6; do
    sleep 0.3
    now=$(rss_kib "$tgtd") && [ "$now" -le "$tgtd_max" ] || tgtd_max=$now
    now=$(rss_kib "$pmsd") && [ "$now" -le "$pmsd_max" ] || pmsd_max=$now
done
say "with the other copy's disk frozen: tgtd $tgtd_before to $tgtd_max KiB, pmsd $pmsd_before to $pmsd_max KiB"
# The arena is seen in both. Beside it: the sink, 2 KiB for each task; in pmsd a few hundred bytes for each.
assert_le "growth of tgtd in KiB" $((tgtd_max - tgtd_before)) $((arena_kib + 4096 + 2 * 8 * tasks + 4096))
assert_le "growth of pmsd in KiB" $((pmsd_max - pmsd_before)) $((arena_kib + 8 * tasks + 8192))
! grep -q writes= "$work/overload.out" || fail "writes were answered by one copy alone: $(cat "$work/overload.out")"

fsfreeze -u "$work/fs"
wait "$load" || fail "not every write was done and right: $(cat "$work/overload.out")"
say "$(tail -n 1 "$work/overload.out")"
verify_start disk --zeroed --offset 200M --span 16M --seconds 2
verify_finish
replicas_must_agree disk
