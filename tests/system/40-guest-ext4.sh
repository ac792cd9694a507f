#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A real Linux initiator: open-iscsi in a guest keeps three ext4 running through a handover, a primary's power loss, the
# death of all its processes, a cut of the primary from its peers but not from the guest, and a primary that is stopped
# for 20 s and comes back. One file system is mounted with open-iscsi's stock settings, the others with those that
# docs/operator.md recommends, the last on an array with its write cache on; all suffer every fault at once, so that
# their pauses can be compared.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/guest/lib.sh
. "$root/tests/guest/lib.sh"

tuned='node.session.iscsi.DefaultTime2Wait=0 node.conn[0].timeo.login_timeout=5'
tuned+=' node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=3'
arrays=(stock tuned cached)
declare -A pauses identities

# All arrays at one node, so that one fault hits all.
gather_at() { # NODE-NUMBER
    local array
    for array in "${arrays[@]}"; do
        [ "$(primary_of "$array")" = "$1" ] || ctl 3 array handover "$array" --to "n$1" || fail "handover of $array refused"
    done
}
primary_at_witness() { ctl 3 array show "$1" -o json | jq -r .primary; } # it is always with the majority
all_moved_from() {
    local array
    for array in "${arrays[@]}"; do
        [ "$(primary_at_witness "$array")" = "n$((3 - $1))" ] || return 1
    done
}
all_healthy() {
    local array
    for array in "${arrays[@]}"; do
        state_is "$array" healthy || return 1
    done
}

phase() { # NAME: what all did since the last phase, without an error; the answer comes when they work
    local array said
    for array in "${arrays[@]}"; do
        guest_must "phase $array $1"
        said=$guest_said
        say "$array: $said"
        [[ $said =~ \ errors=0\ wrong=0\ pause_ms=([0-9]+)$ ]] || fail "$array had errors: $said"
        pauses[$array]+=" $1_ms=${BASH_REMATCH[1]}"
    done
}
after_fault() { # NAME OLD-PRIMARY
    wait_until 60 all_healthy || fail "after $1: $(ctl 3 array list)"
    all_moved_from "$2" || fail "after $1: nobody took over from n$2"
    phase "$1"
}


cluster_up 2 1
guest_boot
array_make stock 96M
array_make tuned 96M 10.77.0.101
array_make cached 96M 10.77.0.102 --write-cache on
gather_at 1
guest_wait_ready
for array in "${arrays[@]}"; do
    url=$(dc portal "$array") url=${url#iscsi://} settings=''
    [ "$array" = stock ] || settings=$tuned
    iqn=${url#*/}
    guest_must "attach $array ${url%%/*} ${iqn%/1} $settings"
    guest_must "write_cache $array"
    [ "$array" = cached ] && cache='write back' || cache='write through'
    assert_eq "write cache of $array as the guest's kernel sees it" "$guest_said" "$cache"
    guest_must "identity $array"
    identities[$array]=$guest_said
    guest_must "load_start $array 4096"
done
assert_eq "number of identities of arrays" "$(printf '%s\n' "${identities[@]}" | sort -u | wc -l)" "${#arrays[@]}"
say "${#arrays[@]} file systems are mounted and written to"
sleep 2
phase quiet

say "handover from n1 to n2"
gather_at 2
after_fault handover 1

say "power off: n2, the primary"
dc kill 2
wait_until 10 all_moved_from 2 || fail "nobody took over from n2"
sleep 2
dc start 2 || fail "n2 does not start"
after_fault off 2
for array in "${arrays[@]}"; do
    guest_must "identity $array"
    assert_eq "identity of $array after the failover" "$guest_said" "${identities[$array]}"
done

say "kill -9: every process of n1, the primary, at once; its kernel lives on and so has the portals still"
# shellcheck disable=SC2046
kill -KILL $(ip netns pids "$prefix-n1")
wait_until 10 all_moved_from 1 || fail "nobody took over from n1"
sleep 2
dc start 1 || fail "n1 does not start"
after_fault kill 1

say "cut: n2, the primary, from the other nodes and not from the guest"
dc cut 2 1
dc cut 2 3
wait_until 10 all_moved_from 2 || fail "nobody took over from n2"
sleep 4
dc heal
after_fault cut 2

say "SIGSTOP: n1, the primary"
stopped=$(ms_now)
dc kill 1 STOP
wait_until 10 all_moved_from 1 || fail "nobody took over from n1"
sleep "$((20000 - ($(ms_now) - stopped)))e-3"
phase stop # while it is still stopped: nobody waited for it
dc kill 1 CONT
say "SIGCONT"
after_fault return 1

for array in "${arrays[@]}"; do
    guest_must "load_end $array"
    say "$array: $guest_said"
    guest_must "examine $array"
    say "$array, unmounted, checked and read again: $(tail -n 1 <<<"$guest_said")"
    guest_must "detach $array"
done
guest_off
guest_log_must_be_clean
# A session that had been lost would have begun again with a unit attention, as each did at its first login.
assert_eq "number of new I_T nexuses" "$(grep -c 'Power-on or device reset occurred' "$work/console.out")" \
    "${#arrays[@]}"
for array in "${arrays[@]}"; do
    replicas_must_agree "$array"
    echo "FIGURES $test_name settings=$array${pauses[$array]}"
done
