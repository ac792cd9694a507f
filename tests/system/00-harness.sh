#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The harness itself, with stock tgtd: cuts cut, a power loss is silent, and the client catches a target that lies.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for tool in tgtd tgtadm nc; do
    command -v "$tool" >/dev/null || skip "needs $tool; run scripts/deps"
done
dir=$work/cluster
url=iscsi://10.77.0.100/iqn.2026-11.io.pms.test:stock/1
export TGT_IPC_SOCKET=$work/tgtd.ipc

adm() { tgtadm --lld iscsi "$@"; }
target_start() { # in node 1, one LUN on $work/disk
    nsenter --net="/run/netns/$prefix-n1" -- tgtd -f --iscsi portal=10.77.0.100:3260 >"$work/tgtd.out" 2>&1 &
    tgtd=$!
    jobs_started+=("$tgtd")
    wait_until 5 adm --op show --mode sys || fail "tgtd does not start"
    adm --op new --mode target --tid 1 -T iqn.2026-11.io.pms.test:stock
    # Through the page cache, tgtd's reads tear sectors that are being written; the client would say so.
    adm --op new --mode logicalunit --tid 1 --lun 1 -b "$work/disk" --bsoflags direct
    adm --op bind --mode target --tid 1 -I ALL
}
target_stop() {
    kill -KILL "$tgtd"
    wait "$tgtd" 2>/dev/null
}
load() { # ARGS...
    dc client "$build/tests/tools/verify" --url "$url" --log "$work/verify.log" --quiet "$@" >"$work/verify.out" 2>&1
}
reaches() { dc client timeout 1 nc -z 10.77.0.100 3260; }

dc up 2 --no-start --dir "$dir" || fail "no namespaces"
ip -n "$prefix-n1" addr add 10.77.0.100/24 dev eth0
truncate -s 64M "$work/disk"
target_start

reaches || fail "the client does not reach node 1"
dc cut 1 client --one-way
reaches && fail "a cut one way does not cut"
dc heal
reaches || fail "heal does not heal"
dc cut 1 2
reaches || fail "a cut between nodes cuts the client off"
dc heal
say "cut and heal do what they say"

load --seconds 2 --zeroed --span 32M || fail "a plain load fails: $(tail -n 3 "$work/verify.out")"
load --check-only || fail "the check of a plain load fails"
cp "$work/disk" "$work/disk.old"
load --seconds 2 --span 32M || fail "a second load fails"
target_stop
cp "$work/disk.old" "$work/disk" # everything since is gone
target_start
load --check-only && fail "the client does not notice that writes are gone"
assert_ge "sectors lost" "$(verify_value lost)" 1000
say "lost writes are found: $(tail -n 1 "$work/verify.out")"

rm "$work/verify.log"
load --seconds 60 --span 32M --stop-on-file "$work/stop" &
loader=$!
wait_until 10 verify_works || fail "the client does not get to write"
target_stop
cp "$work/disk.old" "$work/disk"
target_start
sleep 1
touch "$work/stop"
wait "$loader" && fail "the client does not notice that reads go back in time"
assert_ge "reconnects" "$(verify_value reconnects)" 1
assert_ge "stale sectors" "$(verify_value stale)" 100
say "stale reads are found: $(tail -n 1 "$work/verify.out")"

# A connection of a node without power gets no goodbye.
dc client nc -d 10.77.0.100 3260 &
peer=$!
jobs_started+=("$peer")
sleep 0.3
dc kill 1
sleep 0.3
dc client ss -Htn state established dst 10.77.0.100 | grep -q 3260 || fail "the power loss said goodbye to the client"
[ -z "$(ip netns pids "$prefix-n1" 2>/dev/null)" ] || fail "processes of node 1 live on"
say "a power loss is silent"
