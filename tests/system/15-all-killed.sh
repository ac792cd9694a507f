#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All nodes lose power at once and come back: the load goes on; then once more with the client, and the disk is judged.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

all_off() {
    local k
    for ((k = 1; k <= nodes_total; k++)); do
        dc kill "$k" &
        killers+=($!)
    done
    wait "${killers[@]}"
}
all_on() {
    local k
    for ((k = 1; k <= nodes_total; k++)); do
        dc start "$k" || fail "n$k does not start"
    done
}

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 14
verify_wait_working
sleep 2
say "power off: everything"
killers=()
all_off
sleep 1
say "power on: everything"
all_on
wait_healthy disk 60
verify_finish
replicas_must_agree disk
verify_again disk
figures

say "once more, and the client dies too"
verify_start disk --seconds 60
verify_wait_working
sleep 2
killers=()
all_off
# shellcheck disable=SC2046
kill -KILL $(ip netns pids "$prefix-client")
wait "$verify_pid"
all_on
wait_healthy disk 60
verify_again disk
replicas_must_agree disk
