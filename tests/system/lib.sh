# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What every system test needs: a cluster of its own, a verified load, and an end that leaves nothing behind.
#
# A test sources this file first, calls cluster_up, and reads as a story. It exits 0 (passed), 77 (cannot run here; the
# last line says why) or 1. Everything it starts is ended by pid or with its namespace.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${PMS_BUILD:-$root/build}
export PMS_BUILD=$build
test_name=$(basename "$0" .sh)
prefix=t${test_name%%-*}p$(($$ % 100000)) # tests may run side by side
begun_s=$SECONDS
jobs_started=()

# ---- Saying and judging ----

say() { printf '%s: [%3d s, %(%T)T] %s\n' "$test_name" "$((SECONDS - begun_s))" -1 "$*"; }
fail() {
    say "FAILED: $*"
    exit 1
}
skip() {
    printf '%s: skipped: %s\n' "$test_name" "$*"
    exit 77
}
assert_eq() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || fail "$1 is \"$2\", not \"$3\""
}
assert_le() { # WHAT GOT LIMIT
    [ "$2" -le "$3" ] || fail "$1 is $2, more than $3"
}
assert_ge() { # WHAT GOT LIMIT
    [ "$2" -ge "$3" ] || fail "$1 is $2, less than $3"
}
# Runs COMMAND; it must end with that exit status and say something that matches the pattern (of grep -Ei).
assert_refused() { # STATUS PATTERN COMMAND...
    local want=$1 pattern=$2 out status
    shift 2
    out=$(timeout 30 "$@" 2>&1)
    status=$?
    [ "$status" -eq "$want" ] || fail "exit status $status, not $want, of: $* ($out)"
    grep -Eiq -e "$pattern" <<<"$out" || fail "no word of /$pattern/ from: $* ($out)"
    say "refused as it must be ($status): $(head -n 1 <<<"$out")"
}
wait_until() { # SECONDS COMMAND...
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
        sleep 0.1
    done
}
ms_now() { echo $((${EPOCHREALTIME/./} / 1000)); }

# ---- Beginning and end ----

[ "$(id -u)" = 0 ] || skip "needs root (network namespaces)"
for tool in ip nft nsenter jq; do
    command -v "$tool" >/dev/null || skip "needs $tool; run scripts/deps"
done
for program in pmsd pmsctl tests/tools/verify; do
    [ -x "$build/$program" ] || skip "needs $build/$program; run make"
done
work=$(mktemp -d /tmp/pms-test.XXXXXX)

cleanup() {
    local status=$? pid
    trap - EXIT
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
        logs_show
    fi
    for pid in "${jobs_started[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    mountpoint -q "$work/fs" && fsfreeze -u "$work/fs" 2>/dev/null # a test's own file system, perhaps frozen
    [ ! -d "$work/mnt.qemu" ] || "$root/scripts/qemu-mount" umount "$work/mnt" --force >/dev/null 2>&1
    for p in "$prefix" "${prefix}x"; do
        [ ! -e "/run/pms-devcluster/$p" ] || "$root/scripts/devcluster" --prefix "$p" down
    done
    mountpoint -q "$work/ro" && umount "$work/ro"
    mountpoint -q "$work/fs" && umount "$work/fs"
    rm -rf --one-file-system "$work"
    [ "$status" -ne 0 ] || say "passed"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

logs_show() {
    local k
    for ((k = 1; k <= ${nodes_total:-0}; k++)); do
        [ ! -f "$dir/n$k/pmsd.log" ] || { printf -- '--- the end of the log of n%s\n' "$k" && tail -n 40 "$dir/n$k/pmsd.log"; }
    done
    [ -z "${dir-}" ] || dc status 2>&1
    for f in "$work"/*.out; do
        [ ! -f "$f" ] || { printf -- '--- the end of %s\n' "${f##*/}" && tail -n 20 "$f"; }
    done
}

# ---- The cluster ----

devcluster=("$root/scripts/devcluster" --prefix "$prefix") # also where a command is wanted and no function will do
dc() { "${devcluster[@]}" "$@"; }
ctl() { dc ctl "$@"; } # K ARGS...

cluster_up() { # DATA WITNESSES
    dir=$work/cluster
    nodes_total=$(($1 + $2))
    dc up "$1" --witness "$2" --dir "$dir" || fail "the cluster does not come up"
    say "$1 data nodes and $2 witnesses are up"
}

# Asks the nodes in turn until one answers: the array's JSON.
array_json() { # NAME
    local k
    for ((k = 1; k <= nodes_total; k++)); do
        [ -S "$dir/n$k/pmsd.sock" ] || continue
        timeout 5 "${devcluster[@]}" ctl "$k" array show "$1" -o json 2>/dev/null && return
    done
    return 1
}
array_field() { array_json "$1" | jq -r "$2"; }
array_state() { array_field "$1" .state; }
state_is() { [ "$(array_state "$1")" = "$2" ]; }
epoch_above() { [ "$(array_field "$1" .epoch)" -gt "$2" ] 2>/dev/null; }
primary_of() { # the number of the primary's node
    local name
    name=$(array_field "$1" .primary)
    [[ $name =~ ^n[0-9]+$ ]] || fail "the primary of $1 is \"$name\""
    echo "${name#n}"
}
primary_is_not() { [[ $(array_field "$1" .primary) =~ ^n[0-9]+$ ]] && [ "$(array_field "$1" .primary)" != "n$2" ]; }

array_make() { # NAME SIZE [PORTAL [OPTION...]]
    ctl 1 array create "$1" --level raid1 --size "$2" --portal "${3:-10.77.0.100}/24" "${@:4}" || fail "the array cannot be created"
    wait_until 20 state_is "$1" healthy || fail "the new array is $(array_state "$1")"
    say "array $1: $(array_field "$1" '"epoch \(.epoch), primary \(.primary), in sync \(.in_sync | join(" "))"')"
}

wait_takeover() { # NAME OLD-PRIMARY SECONDS
    wait_until "$3" primary_is_not "$1" "$2" || fail "nobody took over from n$2 in $3 s"
    say "n$(primary_of "$1") has taken over"
}

wait_healthy() { # NAME SECONDS
    wait_until "$2" state_is "$1" healthy || fail "the array is $(array_state "$1") after $2 s: $(array_json "$1")"
    say "the array is healthy, epoch $(array_field "$1" .epoch)"
}

brick_of() { # NODE-NUMBER [ARRAY]: the path of its one brick, or of its brick of that array
    local found
    mapfile -t found < <(find "$dir/n$1/bricks" -type f -name "${2:-*}.brick" -size +4M)
    [ "${#found[@]}" -eq 1 ] || fail "node $1 has ${#found[@]} brick files${2:+ of $2}, not one"
    echo "${found[0]}"
}

# Byte for byte, from outside: data starts at 4 MiB.
replicas_must_agree() { # NAME
    local size name first='' brick members
    wait_healthy "$1" 60
    size=$(array_field "$1" .size_bytes)
    mapfile -t members < <(array_field "$1" '.in_sync[]')
    assert_eq "number of replicas in sync" "${#members[@]}" 2
    for name in "${members[@]}"; do
        brick=$(brick_of "${name#n}" "$1") || exit 1
        assert_ge "size of $brick" "$(stat -c %s "$brick")" $((size + (4 << 20)))
        if [ -z "$first" ]; then
            first=$brick
        else
            cmp --ignore-initial=$((4 << 20)) --bytes="$size" "$first" "$brick" || fail "the replicas differ"
        fi
    done
    say "the replicas are byte-identical over $((size >> 20)) MiB"
}

# ---- The verified load ----

verify_start() { # NAME ARGS...   in the background; its output in $work/verify.out
    local url
    url=$(dc portal "$1") || fail "no portal"
    shift
    rm -f "$work/verify.log"
    dc client "$build/tests/tools/verify" --url "$url" --log "$work/verify.log" "$@" >"$work/verify.out" 2>&1 &
    verify_pid=$!
    jobs_started+=("$verify_pid")
}
verify_works() { # it has written its first records
    [ "$(stat -c %s "$work/verify.log" 2>/dev/null || echo 0)" -gt 4096 ]
}
verify_wait_working() { wait_until 20 verify_works || fail "the client does not get to write"; }

verify_value() { # KEY: from its last two lines
    tail -n 2 "$work/verify.out" | grep -oE "(^| )$1=[0-9]+" | head -n 1 | cut -d= -f2
}

# Waits for its end: no error, nothing lost, nothing stale; the I_T nexus must have survived (no UNIT ATTENTION 29h,
# unless so many are named).
verify_finish() { # [ATTENTIONS]
    wait "$verify_pid"
    local status=$?
    grep -E '^(verify|initiator): [0-9:.]+ ' "$work/verify.out"
    say "$(tail -n 1 "$work/verify.out")"
    for key in errors lost stale; do
        assert_eq "$key" "$(verify_value "$key")" 0
    done
    assert_eq "exit status of the client" "$status" 0
    assert_ge "number of writes" "$(verify_value writes)" 50
    assert_eq "number of unit attentions (a lost I_T nexus)" "$(verify_value unit_attentions)" "${1:-0}"
}

# The whole disk against the log of the last load.
verify_again() { # NAME
    dc client "$build/tests/tools/verify" --url "$(dc portal "$1")" --check-only --log "$work/verify.log" --quiet \
        >"$work/check.out" 2>&1 || fail "the disk does not hold what was acknowledged: $(cat "$work/check.out")"
    say "checked again: $(tail -n 1 "$work/check.out")"
}

figures() { # the line that reports are made of
    printf 'FIGURES %s pause_ms=%s writes=%s reconnects=%s p50_us=%s p99_us=%s\n' "$test_name" "$(verify_value pause_ms)" \
        "$(verify_value writes)" "$(verify_value reconnects)" "$(verify_value p50_us)" "$(verify_value p99_us)"
}
