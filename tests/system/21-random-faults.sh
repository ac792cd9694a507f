#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Faults drawn by lot under one load, each healed before the next: ROUNDS (6) and SEED (1) can be set.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${ROUNDS:-6}
seed=${SEED:-1}
RANDOM=$seed
say "ROUNDS=$rounds SEED=$seed"

faults=(kill_primary kill_other kill_witness pmsd_primary pmsd_other tgtd stop_primary stop_other cut_both cut_to_other
    cut_from_other cut_witness cut_client handover)

power_cycle() { # K SECONDS
    dc kill "$1"
    sleep "$2"
    dc start "$1" || fail "n$1 does not start"
}
pmsd_cycle() {
    dc kill "$1" --only pmsd || fail "no pmsd ran at n$1"
    sleep "$2"
    dc start "$1" || fail "pmsd of n$1 does not start"
}
freeze() {
    dc kill "$1" STOP
    sleep "$2"
    dc kill "$1" CONT
}
cut_for() { # SECONDS CUT-ARGS...
    local s=$1
    shift
    dc cut "$@"
    sleep "$s"
    dc heal
}

inject() { # FAULT PRIMARY OTHER SECONDS
    case $1 in
        kill_primary) power_cycle "$2" "$4" ;;
        kill_other) power_cycle "$3" "$4" ;;
        kill_witness) power_cycle 3 "$4" ;;
        pmsd_primary) pmsd_cycle "$2" "$4" ;;
        pmsd_other) pmsd_cycle "$3" "$4" ;;
        tgtd) dc kill "$2" --only tgtd || fail "no tgtd ran at n$2" ;;
        stop_primary) freeze "$2" "$4" ;;
        stop_other) freeze "$3" "$4" ;;
        cut_both) cut_for "$4" "$2" "$3" ;;
        cut_to_other) cut_for "$4" "$2" "$3" --one-way ;;
        cut_from_other) cut_for "$4" "$3" "$2" --one-way ;;
        cut_witness) cut_for "$4" "$2" 3 ;;
        cut_client) cut_for "$4" "$2" client ;;
        handover) ctl "$3" array handover disk >/dev/null || fail "handover refused" ;;
    esac
}

cluster_up 2 1
array_make disk 64M
verify_start disk --zeroed --span 32M --iops 3000 --stop-on-file "$work/stop" --limit-s $((rounds * 70 + 60))
verify_wait_working
for ((round = 1; round <= rounds; round++)); do
    primary=$(primary_of disk) || exit 1
    fault=${faults[RANDOM % ${#faults[@]}]}
    seconds=$((RANDOM % 3)).$((RANDOM % 10))
    say "round $round: $fault (primary n$primary, $seconds s)"
    inject "$fault" "$primary" $((3 - primary)) "$seconds"
    sleep 0.5
    wait_healthy disk 60
    sleep 0.$((RANDOM % 10))
done
touch "$work/stop"
verify_finish
replicas_must_agree disk
verify_again disk
figures
