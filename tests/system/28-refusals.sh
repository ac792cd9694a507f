#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What an operator runs into: settings out of range, a port in use, a full state disk, a brick that does not fit, a brick
# path with somebody's data. Each is refused with a word about what to do, nothing is damaged, and all goes on after.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

ended() { ! kill -0 "$(cat "$dir/n$1/pmsd.pid")" 2>/dev/null; }
at() { nsenter --net="/run/netns/$prefix-n$1" -- "${@:2}"; }
log_since() { tail -n "+$(($2 + 1))" "$dir/n$1/pmsd.log"; } # K LINES
lines_of() { wc -l <"$dir/n$1/pmsd.log"; }

cluster_up 2 1
ctl 1 array create disk --size 64M --portal 10.77.0.100/24 --nodes n1,n2 || fail "no array"
wait_healthy disk 20
verify_start disk --zeroed --seconds 18 --iops 500
verify_wait_working

# ---- Settings ----

set_refused() { assert_refused "$1" "$2" "${devcluster[@]}" ctl 1 settings set "${@:3}"; }
value() { ctl "$1" settings show -o json | jq -r --arg n "$2" '.[] | select(.name == $n) | .value'; }
set_refused 2 'no setting speed' speed=1
set_refused 2 'NAME=VALUE' orphan_s
set_refused 2 'whole number' orphan_s=soon
set_refused 2 'orphan_s must be a whole number from 10 to 86400' orphan_s=9
set_refused 2 'twice' orphan_s=10 orphan_s=11
set_refused 1 'nine tenths of promise_ms' lease_ms=290
set_refused 1 'four times heartbeat_ms' heartbeat_ms=100
set_refused 1 'eject_dead_ms must be more than promise_ms' promise_ms=2000
set_refused 1 'raise that first' raft_heartbeat_ms=150 raft_election_ms=900
set_refused 2 'orphan_s' promise_ms=400 orphan_s=0
assert_eq "promise_ms after refusals" "$(value 1 promise_ms)" 300
ctl 2 settings set promise_ms=600 lease_ms=500 orphan_s=400 addr_lifetime_s=30 raft_election_ms=400 || fail "settings are refused"
assert_eq "what n1 knows of it" "$(value 1 promise_ms) $(value 1 lease_ms) $(value 1 orphan_s)" "600 500 400"
ctl 1 settings show | grep -Eq '^orphan_s +400 +300 +10\.\.86400 +at once' || fail "settings show: $(ctl 1 settings show)"
lifetime() { ip -n "$prefix-n$(primary_of disk)" -o addr show to 10.77.0.100 | grep -oE 'valid_lft [0-9]+' | cut -d' ' -f2; }
long_lived() { [ "$(lifetime)" -gt 4 ]; }
wait_until 5 long_lived || fail "the portal's lifetime is $(lifetime) s"
assert_le "lifetime of the portal" "$(lifetime)" 30
ctl 1 settings set orphan_s=default || fail "no default"
assert_eq "orphan_s" "$(value 2 orphan_s)" 300

# ---- A port in use ----

dc kill 3 TERM --only pmsd
wait_until 10 ended 3 || fail "n3 does not stop"
nsenter --net="/run/netns/$prefix-n3" -- python3 -c 'import socket, time
s = socket.create_server(("10.77.0.13", 7470)); time.sleep(60)' &
squatter=$!
jobs_started+=("$squatter")
taken() { at 3 bash -c 'exec 3<>/dev/tcp/10.77.0.13/7470'; }
wait_until 5 taken || fail "nobody listens on n3"
before=$(lines_of 3)
dc start 3 >/dev/null 2>&1
wait_until 5 ended 3 || fail "n3 runs without its port"
log_since 3 "$before" | grep -q '10.77.0.13:7470.*another process.*[Aa]ddress already in use' || fail "no word about the port: $(log_since 3 "$before")"
kill "$squatter" 2>/dev/null
wait "$squatter" 2>/dev/null
dc start 3 || fail "n3 does not start with its port free again"
log_since 3 "$before" | grep -q 'election 400 ms' || fail "n3 did not take the agreed setting over: $(log_since 3 "$before")"
say "a port in use: $(log_since 3 "$before" | grep 'in use' | cut -c1-200)"

# ---- The iSCSI port in use, on the node that is to serve (meanwhile the test goes on) ----

nsenter --net="/run/netns/$prefix-n2" -- python3 -c 'import socket, time
s = socket.socket(); s.setsockopt(socket.IPPROTO_IP, 15, 1) # IP_FREEBIND: the portal is not there yet
s.bind(("10.77.0.102", 3260)); s.listen(); time.sleep(60)' &
squatter=$!
jobs_started+=("$squatter")
taken() { at 2 ss -Hltn src 10.77.0.102:3260 | grep -q LISTEN; }
wait_until 5 taken || fail "nobody listens on n2"
timeout 60 "${devcluster[@]}" ctl 1 array create blocked --size 16M --nodes n2,n1 --portal 10.77.0.102/24 >"$work/blocked.out" 2>&1 &
blocked=$!
jobs_started+=("$blocked")

# ---- A full state disk: of the witness, which must not take the cluster with it ----

voter_up() { ctl 1 node list -o json | jq -e --arg n "n$1" '.[] | select(.name == $n and .state == "up" and .raft == "voter")'; }
wait_until 10 voter_up 3 || fail "n3 is no voter"
dc kill 3 TERM --only pmsd
wait_until 10 ended 3 || fail "n3 does not stop"
mkdir "$work/state3"
cp -a "$dir/n3/state/." "$work/state3"
mount -t tmpfs -o size=96m none "$dir/n3/state" && cp -a "$work/state3/." "$dir/n3/state" || fail "no small state disk"
dc start 3 || fail "n3 does not start on its small disk"
wait_until 10 voter_up 3 || fail "n3 is no voter on its small disk"
before=$(lines_of 3)
dd if=/dev/zero of="$dir/n3/state/log/filler" bs=1M 2>/dev/null
long=$(head -c 50000 /dev/zero | tr '\0' x)
printf '{"values": {"%s": 1}}' "$long" >"$work/body"
for ((i = 0; i < 200; i++)); do # refused, but each is in the log first
    curl -s --unix-socket "$dir/n1/pmsd.sock" --data-binary "@$work/body" http://pms/v1/settings >/dev/null || fail "n1 does not answer"
    ! ended 3 || break
done
wait_until 5 ended 3 || fail "n3 goes on after $i writes that it cannot have stored: $(log_since 3 "$before")"
log_since 3 "$before" | grep -Eiq 'log.*cannot be written.*[Ss]pace.*make room' || fail "n3 does not say that its disk is full: $(log_since 3 "$before")"
say "a full state disk, after $i commands: $(log_since 3 "$before" | grep -Ei 'cannot be written' | tail -n 1 | cut -c1-200)"
before=$(lines_of 3)
dc start 3 >/dev/null 2>&1
wait_until 5 ended 3 || fail "n3 starts on a full disk"
log_since 3 "$before" | grep -q '64 MiB must be free' || fail "n3 does not say what it needs: $(log_since 3 "$before")"
rm "$dir/n3/state/log/filler"
dc start 3 || fail "n3 does not start with room again"
wait_until 15 voter_up 3 || fail "n3 is no voter again"
index() { curl -s --unix-socket "$dir/n$1/pmsd.sock" http://pms/v1/metrics | awk '$1 == "pms_raft_index_applied" { print $2 }'; }
level() { [ "$(index 3)" = "$(index 1)" ]; }
wait_until 10 level || fail "n3 has applied $(index 3), n1 $(index 1)"
say "with room again n3 has all $(index 3) commands"

wait "$blocked"
assert_eq "exit status of an array whose node has no free iSCSI port" $? 1
grep -q 'n2.*another process.*iSCSI port.*stop it' "$work/blocked.out" || fail "no word about the iSCSI port: $(cat "$work/blocked.out")"
kill "$squatter" 2>/dev/null
wait "$squatter" 2>/dev/null
say "the iSCSI port in use: $(tail -n 1 "$work/blocked.out")"

# ---- Bricks ----

create=("${devcluster[@]}" ctl 1 array create)
small=$dir/small # unmounted with the cluster, whatever happens
mkdir "$small" && mount -t tmpfs -o size=80m none "$small" || fail "no small disk"
assert_refused 1 'n2.*no space|n2.*full|space' "${create[@]}" big --size 256M --nodes n1,n2 --portal 10.77.0.101/24 --brick "n2=$small/brick"
assert_eq "what is left on the small disk" "$(find "$small" -type f | wc -l)" 0
echo "a letter of 40 bytes that matters to us" >"$work/letter"
truncate -s 80M "$work/letter"
sum=$(sha256sum <"$work/letter")
assert_refused 1 'n2.*holds data that is no brick.*wipe it' "${create[@]}" letter --size 64M --nodes n1,n2 --portal 10.77.0.101/24 --brick "n2=$work/letter"
assert_eq "somebody's file" "$(sha256sum <"$work/letter")" "$sum"
umount "$small"
verify_finish
replicas_must_agree disk
verify_again disk
