#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The plugin in the packaged tgtd on loopback, with ringserve in pmsd's place: libiscsi's conformance tests as good as
# stock's, no payload copied, sessions that survive tgtd, commands that are held while pmsd is away, and initiators
# that misbehave. Needs root (tgtd wants it), build/, tgt, libiscsi-bin.
set -u
cd "$(dirname "$0")/../.." || exit 1

[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ -f build/tests/copies_redirect.so ] || { echo "needs build/tests/copies_redirect.so; run make everything"; exit 77; }
for tool in iscsi-test-cu iscsi-ls iscsi-inq tgtadm; do
    command -v "$tool" > /dev/null || { echo "$tool is not installed"; exit 77; }
done

B=$PWD/build
T=$(mktemp -d /tmp/pms-plugin.XXXXXX)
PORT=$((20000 + $$ % 20000))
IQN=iqn.2026-11.io.pms:test:a
URL=iscsi://127.0.0.1:$PORT/$IQN/1
export TGT_IPC_SOCKET=$T/ipc PMS_PLUGIN_DIR=$T/bs PMS_PLUGIN_ARRAY=00112233aabbccdd
unset PMS_PLUGIN_ARENA
TGTD='' SERVE='' PROBE='' STOCK='' checks=0
WATCH=$T/watch.so # the redirecting library, and one that writes down large copies (tests/preload/copies.c)

cleanup() {
    # Initiators first: an orphaned one would go on for ever.
    for pid in $PROBE $TGTD $STOCK $SERVE; do kill -9 "$pid" 2> /dev/null; done
    wait 2> /dev/null
    rm -rf "$T"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*"
    echo "--- server"; tail -n 15 "$T/serve.log"
    echo "--- tgtd"; tail -n 15 "$T/tgtd.log"
    exit 1
}

# until_true SECONDS COMMAND...
until_true() {
    local n=$(($1 * 20))
    shift
    while ! "$@"; do
        n=$((n - 1))
        [ $n -gt 0 ] || return 1
        sleep 0.05
    done
}

serve() {
    "$B/tests/tools/ringserve" --sock "$T/sock" --file "$T/disk" --array $PMS_PLUGIN_ARRAY \
        --portal 127.0.0.1:$PORT --journal "$T/journal" "$@" >> "$T/serve.log" 2>&1 &
    SERVE=$!
    until_true 5 test -S "$T/sock" || fail "the server does not start"
}

adm() {
    tgtadm -C 7 --lld iscsi "$@"
}

tgtd_up() {
    LD_PRELOAD=$WATCH "$B/tgtd" -f -C 7 --iscsi portal=127.0.0.1:0 >> "$T/tgtd.log" 2>&1 &
    TGTD=$!
    until_true 5 adm --op show --mode sys > /dev/null 2>&1 || fail "tgtd does not start"
    adm --op new --mode target --tid 1 -T $IQN &&
        adm --op bind --mode target --tid 1 -I ALL &&
        adm --op new --mode logicalunit --tid 1 --lun 1 --bstype pms -b "$T/sock" || fail "no LUN"
    until_true 5 grep -q '^serve on=1' "$T/serve.log" || fail "the gate does not open"
}

# Ends both, as a power loss would, and forgets what they said.
down() {
    for pid in $TGTD $SERVE; do kill -9 "$pid" 2> /dev/null; wait "$pid" 2> /dev/null; done
    TGTD='' SERVE=''
    rm -f "$T/sock" "$T"/ipc*
    : > "$T/serve.log"
}

up() {
    down
    serve "$@"
    tgtd_up
}

alive() {
    kill -0 "$TGTD" 2> /dev/null || fail "tgtd has died: $1"
}

# The server's counters: stat NAME
stat() {
    kill -USR2 "$SERVE"
    sleep 0.1
    grep '^stats ' "$T/serve.log" | tail -n 1 | tr ' ' '\n' | sed -n "s/^$1=//p"
}

ok() {
    checks=$((checks + 1))
    echo "ok $*"
}

mkdir "$T/bs"
cp "$B/tests/copies_redirect.so" "$WATCH"
ln -s "$B/bs_pms.so" "$T/bs/"

# ---- it serves, and says who it is ----
up
iscsi-ls -s "iscsi://127.0.0.1:$PORT" > "$T/out" || fail "iscsi-ls"
grep -q "Lun:1 .*DIRECT_ACCESS" "$T/out" || fail "no LUN 1 in $(cat "$T/out")"
iscsi-inq "$URL" | grep -q '^Vendor:PMS ' || fail "vendor"
iscsi-inq -e 1 -c 128 "$URL" | grep -q "$PMS_PLUGIN_ARRAY" || fail "serial in VPD 80"
iscsi-inq -e 1 -c 131 "$URL" | grep -q "$PMS_PLUGIN_ARRAY" || fail "id in VPD 83"
iscsi-inq -e 1 -c 176 "$URL" > "$T/out"
grep -q 'maximum transfer length: *8192$' "$T/out" || grep -qi 'max.*transfer.*8192' "$T/out" ||
    fail "VPD B0: $(cat "$T/out")"
"$B/tests/tools/plugprobe" wce "$URL" || fail "caching mode page"
ok "identity"

"$B/tests/tools/plugprobe" time2wait 127.0.0.1 $PORT $IQN || fail "negotiated parameters"
ok "Time2Wait 0 and the sizes, on the wire"

# ---- conformance, one process a test, against stock ----
verdict() {
    local out
    out=$(timeout 30 iscsi-test-cu --dataloss --test="$1" "$2" 2>&1) || { echo FAIL; return; }
    if grep -q 'SKIPPED' <<< "$out"; then
        echo SKIP
    elif grep -Eq '^ +tests +1 +1 +1 +0 ' <<< "$out"; then
        echo PASS
    else
        echo FAIL
    fi
}
truncate -s 64M "$T/stock"
STOCKPORT=$((PORT + 1))
TGT_IPC_SOCKET=$T/ipcs "$B/tgtd" -f -C 8 --iscsi portal=127.0.0.1:$STOCKPORT > "$T/stock.log" 2>&1 &
STOCK=$!
stock_adm() {
    TGT_IPC_SOCKET=$T/ipcs tgtadm -C 8 --lld iscsi "$@"
}
until_true 5 stock_adm --op show --mode sys > /dev/null 2>&1 || fail "stock tgtd does not start"
stock_adm --op new --mode target --tid 1 -T $IQN && stock_adm --op bind --mode target --tid 1 -I ALL &&
    stock_adm --op new --mode logicalunit --tid 1 --lun 1 -b "$T/stock" || fail "stock LUN"
pass=0 same=0 off=0
while read -r name; do
    ours=$(verdict "$name" "$URL")
    alive "$name"
    case $ours in
    PASS) pass=$((pass + 1)) ;;
    *)
        # What we do not pass, stock must not pass either; except what is switched off, because it is not honest yet.
        stock=$(verdict "$name" "iscsi://127.0.0.1:$STOCKPORT/$IQN/1")
        case $ours/$name in
        SKIP/SCSI.OrWrite.* | SKIP/SCSI.GetLBAStatus.* | SKIP/SCSI.WriteSame1?.ZeroBlocks) off=$((off + 1)) ;;
        *)
            [ "$stock" != PASS ] || fail "$name: $ours, stock $stock"
            same=$((same + 1))
            ;;
        esac
        ;;
    esac
done < <(iscsi-test-cu --list 2> /dev/null | grep -E '^(SCSI|iSCSI)\.[^.]*\.[^.]*$')
kill -9 $STOCK
STOCK=''
[ $pass -ge 140 ] || fail "only $pass tests passed"
ok "conformance: $pass passed, $same not passed by stock either, $off switched off"
grep -q '^loaded tgtd ' "$WATCH.log" || fail "nobody watches for copies"
! grep '^copied ' "$WATCH.log" || fail "payload bytes were copied"
[ "$(stat submitted)" -gt 1000 ] || fail "few commands came through the ring"
[ "$(stat arena_used)" = 262144 ] || fail "buffers are leaked: $(stat arena_used) bytes are in use"
ok "nothing copied, nothing leaked"

# ---- the initiator port that comes back ----
ua() { sed -n "s/^login $1 ua=\([^ ]*\).*/\1/p" "$T/relogin"; }
"$B/tests/tools/relogin" --times 3 "$URL" > "$T/relogin" || fail "login again on the same tgtd"
[ "$(ua 1) $(ua 2) $(ua 3) $(ua 4)" = "6/29/00 none none none" ] || fail "same tgtd: $(cat "$T/relogin")"
"$B/tests/tools/relogin" --logout "$URL" > "$T/relogin" || fail "login again after logout"
[ "$(ua 1) $(ua 2)" = "6/29/00 6/29/00" ] || fail "after logout it must be a new nexus: $(cat "$T/relogin")"
ok "same nexus after a lost connection, another after a logout"

"$B/tests/tools/plugprobe" tsih 127.0.0.1 $PORT $IQN || fail "TSIH"
ok "TSIH 0 and the old one are accepted, either stage first"

# The old connection's write is still on its way to the disk: the new login waits until it has landed.
up --delay-ms 700
"$B/tests/tools/relogin" --resend --isid 999 "$URL" > "$T/relogin" || fail "resend: $(cat "$T/relogin")"
grep -q '^left answered=0' "$T/relogin" || fail "the write was answered at once: the test tests nothing"
ms=$(sed -n 's/^login 2 ua=none ms=//p' "$T/relogin")
[ "${ms:-0}" -ge 300 ] || fail "the login did not wait for the old write: $(cat "$T/relogin")"
ok "a login waits for the writes of the connection before it ($ms ms)"

# tgtd and server die and come back between the logins; the second instance imports the sessions of the first.
again=0
( "$B/tests/tools/relogin" --times 3 --isid 777 --between "touch $T/gone; while [ -e $T/gone ]; do sleep 0.05; done" \
    "$URL" > "$T/relogin" 2>&1; echo $? > "$T/relogin.rc" ) &
PROBE=$!
while [ $again -lt 3 ]; do
    until_true 20 test -e "$T/gone" || fail "the initiator does not come to its next login"
    up
    grep -q '^imported [1-9][0-9]* status=0' "$T/serve.log" || fail "no session imported"
    again=$((again + 1))
    rm "$T/gone"
done
wait $PROBE
PROBE=''
[ "$(cat "$T/relogin.rc")" = 0 ] || fail "login after a restart: $(cat "$T/relogin")"
[ "$(ua 1) $(ua 2) $(ua 3) $(ua 4)" = "6/29/00 none none none" ] || fail "restarted: $(cat "$T/relogin")"
ok "same nexus after tgtd and server were killed, three times"

# ---- pmsd dies under load: held, adopted, answered ----
up --delay-ms 50 --die-after 7
"$B/tests/tools/plugprobe" flood "$URL" 12 > "$T/flood" 2>&1 &
PROBE=$!
until_true 10 grep -q '^dying' "$T/serve.log" || fail "the server does not die"
sleep 0.5
kill -0 $PROBE || fail "the initiator has not been held: $(cat "$T/flood")"
rm -f "$T/sock"
serve
wait $PROBE || fail "writes across the server's death: $(cat "$T/flood")"
PROBE=''
[ "$(stat recovered)" -ge 7 ] || fail "no command was recovered from the ring"
grep -q 'good=12 full=0 other=0' "$T/flood" || fail "writes: $(cat "$T/flood")"
ok "commands in the ring survive the server: $(cat "$T/flood")"

# A login while nobody is there to commit it.
kill -9 "$SERVE"
wait "$SERVE" 2> /dev/null
rm -f "$T/sock"
"$B/tests/tools/relogin" --isid 888 "$URL" > "$T/relogin" 2>&1 &
PROBE=$!
sleep 0.7
kill -0 $PROBE || fail "the login was not held: $(cat "$T/relogin")"
serve
wait $PROBE || fail "login across the server's death: $(cat "$T/relogin")"
PROBE=''
ok "a login waits for pmsd"

# ---- commands that must not run ----
up
"$B/tests/tools/plugprobe" flood "$URL" 1 > /dev/null || fail "prepare"
"$B/tests/tools/plugprobe" held-abort "$URL" "$SERVE" || fail "abort of a held command"
kill -USR1 "$SERVE"
[ "$("$B/tests/tools/plugprobe" block "$URL" 64)" = 77 ] || fail "an aborted write was executed"
"$B/tests/tools/plugprobe" held-leave "$URL" "$SERVE" || fail "leave with a held command"
sleep 0.2
kill -USR1 "$SERVE"
[ "$("$B/tests/tools/plugprobe" block "$URL" 64)" = 77 ] || fail "a write of a closed connection was executed"
ok "held commands that were aborted or left are never executed"

# ---- misbehaviour ----
"$B/tests/tools/plugprobe" toolong "$URL" || fail "commands that are too long"
"$B/tests/tools/plugprobe" outside 127.0.0.1 $PORT $IQN || fail "data outside the buffer"
alive "data outside the buffer"
PMS_PLUGIN_ARENA=10485760 up
"$B/tests/tools/plugprobe" flood "$URL" 12 | tee "$T/flood" || fail "a small arena"
grep -q 'full=[1-9]' "$T/flood" || fail "the arena was not exhausted: the test tests nothing"
[ "$(stat arena_max)" -le 10485760 ] || fail "more of the arena is used than there is"
up --hold-login-ms 30
"$B/tests/tools/plugprobe" vanish 127.0.0.1 $PORT $IQN 100 || fail "vanishing initiators"
sleep 0.5
alive "logins that vanish"
"$B/tests/tools/plugprobe" toolong "$URL" > /dev/null || fail "not serving after vanished logins"
up --refuse-login 0x0301
"$B/tests/tools/relogin" "$URL" > "$T/relogin" 2>&1 && fail "a refused login succeeded"
grep -q '769' "$T/relogin" || fail "refused with another status: $(cat "$T/relogin")"
alive "a refused login"
ok "misbehaving initiators, a full arena, vanished and refused logins"

# ---- memory is capped, whatever initiators do (target/plugin/share.h) ----
tgtd_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$TGTD/status"; }
up
before=$(tgtd_kib)
"$B/tests/tools/plugprobe" window 127.0.0.1 $PORT $IQN 900 "$SERVE" || fail "a session that ignores its window"
"$B/tests/tools/plugprobe" deaf 127.0.0.1 $PORT $IQN || fail "a session that reads no answers"
grep -q 'requests of initiator .*raw are unanswered' "$T/tgtd.log" || fail "no word of the deaf session"
alive "sessions that ignore the window or read nothing"
# 1024 tasks of a session, of 1 KiB each at most, and a page of payload each
[ $(($(tgtd_kib) - before)) -le $((2 * 1024 + 1024 * 4 + 2048)) ] || fail "tgtd has grown from $before to $(tgtd_kib) KiB"
ok "memory is capped: $before KiB before, $(tgtd_kib) KiB after"

# An initiator whose commands come need not say that it lives: libiscsi would close its connection over that.
up --nop-s 1
"$B/tests/tools/plugprobe" pings 127.0.0.1 $PORT $IQN 4 || fail "NOP-Ins at the wrong time, or never"
ok "NOP-Ins go to idle connections only"

# ---- nobody's tgtd ends ----
PMS_PLUGIN_ORPHAN_MS=700 up
kill -9 "$SERVE"
wait "$SERVE" 2> /dev/null
sleep 0.3
alive "at once when pmsd was lost"
tgtd_gone() { ! kill -0 "$TGTD" 2> /dev/null; }
until_true 5 tgtd_gone || fail "an orphaned tgtd goes on for ever"
ok "without pmsd tgtd holds, then ends"

# ---- another tgtd than the one it was built for ----
down
id=$(readelf -n "$B/tgtd" | sed -n 's/^ *Build ID: \(..\)\(..\)\(..\)\(..\).*/\\x\1\\x\2\\x\3\\x\4/p')
at=$(LC_ALL=C grep -obUaP "$id" "$B/tgtd" | head -n 1 | cut -d: -f1)
cp "$B/tgtd" "$T/other"
printf '\0' | dd of="$T/other" bs=1 seek="$at" conv=notrunc status=none
LD_PRELOAD=$B/pms_redirect.so "$T/other" -f -C 7 --iscsi portal=127.0.0.1:0 > "$T/tgtd.log" 2>&1 &
TGTD=$!
until_true 5 adm --op show --mode sys > /dev/null 2>&1 || fail "the other tgtd does not start"
grep -q 'bs_pms: .*not registered' "$T/tgtd.log" || fail "loaded into another tgtd"
adm --op new --mode target --tid 1 -T $IQN || fail "target"
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype pms -b "$T/sock" 2> /dev/null && fail "a LUN in another tgtd"
ok "another build of tgtd is refused"
echo "plugin-basic: $checks checks passed"
