#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Bad input from people, strangers and disks: a clear message, the right exit status, nothing damaged.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

garbage_to() { # NODE: a stranger speaks to the node's port, in several ways
    local addr=10.77.0.$((10 + $1)) file
    head -c 65536 /dev/urandom >"$work/noise"
    head -c 4096 /dev/zero >"$work/zeros"
    printf 'GET / HTTP/1.1\r\nHost: %s\r\n\r\n' "$addr" >"$work/http"
    printf '\x16\x03\x01' >"$work/tls"                                                   # a torn TLS hello
    printf '\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff' >"$work/long" # an absurd length
    for file in noise zeros http tls long; do
        dc client timeout 3 bash -c "cat '$work/$file' >/dev/tcp/$addr/7470" 2>/dev/null
    done
    dc client timeout 1 bash -c "exec 3<>/dev/tcp/$addr/7470; sleep 0.5" 2>/dev/null # says nothing
}

log_has() { # NODE PATTERN
    grep -Eiq -e "$2" "$dir/n$1/pmsd.log"
}

# In a namespace, so that nothing of it could reach the machine's own addresses.
dc_pmsd() { dc client timeout 10 "$build/pmsd" --state-dir "$1" --brick-dir "$work/nobricks" --socket "$work/no.sock"; }

# ---- People ----

cluster_up 3 0 # n3 becomes the stranger that may not join
array_make disk 64M
verify_start disk --zeroed --span 32M --seconds 3
verify_finish
nodes=$(ctl 1 node list -o json | jq -Sc .)
arrays=$(ctl 1 array list -o json | jq -Sc .)

create=("${devcluster[@]}" ctl 1 array create)
assert_refused 2 'size' "${create[@]}" zero --level raid1 --size 0 --portal 10.77.0.101/24
assert_refused 2 'size|MiB' "${create[@]}" odd --level raid1 --size 1000000 --portal 10.77.0.101/24
assert_refused 2 'size' "${create[@]}" word --level raid1 --size big --portal 10.77.0.101/24
assert_refused 2 'level|raid' "${create[@]}" level --level raid7 --size 64M --portal 10.77.0.101/24
assert_refused 2 'portal' "${create[@]}" portal --level raid1 --size 64M --portal nowhere
assert_refused 2 'broadcast' "${create[@]}" all --level raid1 --size 64M --portal 10.77.0.255/24
assert_refused 2 'subnet itself' "${create[@]}" none --level raid1 --size 64M --portal 10.77.0.0/24
assert_refused 2 'broadcast' "${create[@]}" small --level raid1 --size 64M --portal 10.77.0.103/30
assert_refused 1 'nodes|copies' "${create[@]}" many --level raid1 --size 64M --copies 4 --portal 10.77.0.101/24
assert_refused 1 'exists|already|in use|taken' "${create[@]}" disk --level raid1 --size 64M --portal 10.77.0.101/24
assert_refused 1 'portal|address|in use|taken' "${create[@]}" twin --level raid1 --size 64M --portal 10.77.0.100/24
assert_refused 1 'n9' "${create[@]}" lost --level raid1 --size 64M --nodes n1,n9 --portal 10.77.0.101/24
assert_refused 1 'nothing' "${devcluster[@]}" ctl 1 array show nothing
assert_refused 1 'n9' "${devcluster[@]}" ctl 1 array handover disk --to n9
assert_refused 2 'help|usage' "${devcluster[@]}" ctl 1 array
assert_refused 2 'help|usage|unknown' "${devcluster[@]}" ctl 1 frobnicate
assert_refused 2 'help|usage|unknown|option' "${devcluster[@]}" ctl 1 array list --frobnicate
assert_refused 1 'already|member|cluster' "${devcluster[@]}" ctl 1 cluster init --name other --node n1 --addr 10.77.0.11
assert_error_json() { # STATUS NAME ARGS...: stdout is empty, stderr one object
    local wanted=$1 name=$2 out
    shift 2
    out=$(ctl 1 "$@" -o json 2>"$work/error")
    assert_eq "exit status of $* -o json" $? "$wanted"
    assert_eq "stdout of $* -o json" "$out" ''
    assert_eq "error of $* -o json" "$(jq -r 'select((.text | length) > 0) | .error' "$work/error")" "$name"
}
assert_error_json 1 PMS_ENOTFOUND array show nothing
assert_error_json 2 PMS_EUSAGE array list --frobnicate
assert_error_json 2 PMS_EUSAGE frobnicate
assert_error_json 2 PMS_EUSAGE array create zero --size 0 --portal 10.77.0.101/24
say "with -o json errors are JSON"
mkdir "$work/folder"
echo theirs >"$work/file.new" # beside the brick that is made, named as a careless programmer would name his own
two=(--level raid1 --size 64M --nodes n1,n2 --portal 10.77.0.101/24)
assert_refused 1 'directory' "${create[@]}" folder "${two[@]}" --brick "n1=$work/folder"
"${create[@]}" beside "${two[@]}" --brick "n1=$work/file" || fail "name and portal of a refused array are not free again"
assert_eq "a file beside a brick" "$(cat "$work/file.new")" theirs
ctl 1 array delete beside || fail "the array cannot be deleted"
gone() { [ "$(ctl 1 array list -o json | jq length)" = 1 ] && [ ! -e "$work/file" ]; }
wait_until 10 gone || fail "an array or its brick is still there: $(ctl 1 array list)"
assert_eq "the nodes afterwards" "$(ctl 1 node list -o json | jq -Sc .)" "$nodes"
assert_eq "the arrays afterwards" "$(ctl 1 array list -o json | jq -Sc .)" "$arrays"

# ---- Tokens: no more than there is room for, and one can be taken back ----

open_tokens() { ctl 1 token list -o json | jq -r '.[] | select(.state == "open") | .id'; }
made=0
while out=$(ctl 1 token create -o json 2>"$work/error") && [ "$made" -lt 70 ]; do
    made=$((made + 1))
    last=$(jq -r .token <<<"$out")
done
grep -q 'token revoke' "$work/error" || fail "after $made tokens it does not say how to go on: $(cat "$work/error")"
id=$(cut -d- -f2 <<<"$last")
open_tokens | grep -qx "$id" || fail "the newest token is not listed"
ctl 2 token list | grep -Fq "${last##*-}" && fail "token list shows a secret"
ctl 2 token list -o json | grep -Fq "${last##*-}" && fail "token list shows a secret as JSON"
ctl 2 token revoke "$id" || fail "a token cannot be revoked"
open_tokens | grep -qx "$id" && fail "a revoked token is still listed"
assert_refused 1 'no token' "${devcluster[@]}" ctl 1 token revoke "$id"
assert_refused 2 'token list' "${devcluster[@]}" ctl 1 token revoke "$last" # a whole token is no id
ctl 1 token create >/dev/null || fail "there is no room for a token after one was revoked"
say "$made tokens, then no more until one was revoked"

# ---- A node that may not join ----

second=("$root/scripts/devcluster" --prefix "${prefix}x")
"${second[@]}" up 2 --no-start --dir "$work/second" || fail "no second set of namespaces"
for k in 1 2; do
    "${second[@]}" start "$k" || fail "pmsd of the second cluster does not start"
done
token=$("${second[@]}" ctl 1 cluster init --name second --node n1 --addr 10.77.0.11 | grep -oE -e '--token [^ ]+' | cut -d' ' -f2)
[ -n "$token" ] || fail "cluster init printed no token"
revoked=$("${second[@]}" ctl 1 token create -o json | jq -r .token)
"${second[@]}" ctl 1 token revoke "$(cut -d- -f2 <<<"$revoked")" || fail "the second cluster's token cannot be revoked"
join=("${second[@]}" ctl 2 cluster join 10.77.0.11 --node n2 --addr 10.77.0.12 --token)
wrong=${token%?}$([ "${token: -1}" = 0 ] && echo 1 || echo 0)
assert_refused 1 'token' "${join[@]}" "$wrong"
assert_refused 1 'token' "${join[@]}" "$revoked"
assert_refused 2 'token' "${second[@]}" ctl 2 cluster join 10.77.0.11 --node n2 --addr 10.77.0.12 --token rubbish
assert_refused 1 'n1' "${second[@]}" ctl 2 cluster join 10.77.0.11 --node n1 --addr 10.77.0.12 --token "$token"
"${join[@]}" "$token" >/dev/null || {
    # the refusal of the name may have used the token up
    token=$("${second[@]}" ctl 1 cluster token | grep -oE -e '--token [^ ]+' | cut -d' ' -f2)
    "${join[@]}" "$token" || fail "the right token is refused"
}
say "the right token is taken"

# ---- Strangers ----

for k in 1 2 3; do
    garbage_to "$k"
    wait_until 5 log_has "$k" 'garbled|dropped|refused|handshake|not a pms' || fail "n$k does not log the stranger"
done
wait_healthy disk 10
say "garbage on the node port is dropped and logged"

# ---- A brick of another cluster ----

"${second[@]}" ctl 1 array create disk --level raid1 --size 64M --portal 10.77.0.100/24 || fail "no array in the second cluster"
foreign=$(find "$work/second/n2/bricks" -type f -size +4M)
[ -f "$foreign" ] || fail "the second cluster has no brick"
"${second[@]}" kill 1
"${second[@]}" kill 2
old=$(primary_of disk)
mapfile -t members < <(array_field disk '.in_sync[]')
victim=${members[0]#n}
[ "$victim" != "$old" ] || victim=${members[1]#n}
brick=$(brick_of "$victim") || exit 1
dc kill "$victim"
cp "$brick" "$work/brick.kept"
cp "$foreign" "$brick"
sum=$(sha256sum <"$brick")
lines=$(wc -l <"$dir/n$victim/pmsd.log")
dc start "$victim" || fail "n$victim must run all the same"
foreign_noticed() { tail -n "+$((lines + 1))" "$dir/n$victim/pmsd.log" | grep -Eiq 'another|belongs|identity|foreign'; }
wait_until 15 foreign_noticed || fail "n$victim says nothing about the brick of another cluster"
sleep 3
[ "$(array_state disk)" != healthy ] || fail "the array is healthy with a brick of another cluster"
verdict=$(ctl "$old" cluster status | head -n 1)
grep -q "^degraded: .*n$victim cannot use its brick .*next: .*array replace disk --node n$victim" <<<"$verdict" ||
    fail "the verdict does not say what to do about the brick: $verdict"
say "$verdict"
assert_eq "the foreign brick" "$(sha256sum <"$brick")" "$sum"
say "a brick of another cluster is refused and untouched: $(tail -n "+$((lines + 1))" "$dir/n$victim/pmsd.log" | grep -Ei 'another|belongs|identity|foreign' | head -n 1)"
verify_again disk
dc kill "$victim"
cp "$work/brick.kept" "$brick"
dc start "$victim" || fail "n$victim does not start with its own brick"
wait_healthy disk 60

# ---- Folders ----

mkdir "$work/ro"
mount -t tmpfs -o ro,size=1m none "$work/ro" || fail "no read-only folder"
: >"$work/file"
for bad in "$work/ro/state" "$work/file/state" "$work/file"; do
    out=$(dc_pmsd "$bad" 2>&1)
    assert_eq "exit status of pmsd --state-dir $bad" $? 1
    grep -Fq "$bad" <<<"$out" || fail "no word about $bad from pmsd: $out"
    say "refused as it must be: $(tail -n 1 <<<"$out")"
done
umount "$work/ro"

# ---- Nothing is damaged ----

verify_again disk
replicas_must_agree disk
