# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A Linux guest beside the cluster, for system tests: a host of its own on devcluster's bridge, with open-iscsi.
# Sourced after tests/system/lib.sh. The guest is emulated, for not every machine that runs tests has KVM to give.
#
#   guest_boot          starts it (it boots while the test goes on)
#   guest COMMAND       runs one line in the guest (see tests/guest/init for what there is), prints its output
#   guest_off           ends it
# Environment: PMS_GUEST_NET=tap|user  on the bridge (needs /dev/net/tun), or behind QEMU's own TCP in the client's
#                                      namespace: there the client's kernel is the TCP that reconnects

guest_boot() {
    local net ns address
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || skip "the test guest is for amd64"
    for tool in qemu-system-x86_64 cpio depmod; do
        command -v "$tool" >/dev/null || skip "needs $tool; run scripts/deps"
    done
    "$root/tests/guest/build" "$build" || fail "the guest cannot be built"
    if [ "${PMS_GUEST_NET:-}" = user ] || [ ! -c /dev/net/tun ]; then
        ns=$prefix-client net=user,id=net,restrict=off address='guest.ip=10.0.2.15/24 guest.gateway=10.0.2.2'
        say "the guest is behind QEMU's user network"
    else
        ns=$prefix-sw net=tap,id=net,ifname=guest,script=no,downscript=no address=guest.ip=10.77.0.201/24
        ip -n "$ns" tuntap add dev guest mode tap && ip -n "$ns" link set guest master br0 up || fail "no tap for the guest"
    fi
    mkfifo "$work/guest.in" "$work/guest.out" "$work/console.pipe"
    exec {guest_in}<>"$work/guest.in" {guest_out}<>"$work/guest.out" # open at both ends: nobody waits for the other
    (while IFS= read -r line; do printf '%(%T)T %s\n' -1 "${line%$'\r'}"; done <"$work/console.pipe" >"$work/console.out") &
    jobs_started+=($!)
    nsenter --net="/run/netns/$ns" -- qemu-system-x86_64 -accel tcg,thread=multi -M q35 -cpu qemu64 -m 384 -smp 1 -nodefaults \
        -display none -no-reboot -chardev "file,id=console,path=$work/console.pipe" -serial chardev:console \
        -chardev "pipe,id=control,path=$work/guest" -serial chardev:control \
        -kernel "$build/guest/vmlinuz" -initrd "$build/guest/initrd" \
        -append "console=ttyS0 loglevel=8 panic=-1 mitigations=off no_timer_check random.trust_cpu=on $address" \
        -netdev "$net" -device virtio-net-pci,netdev=net,mac=02:70:6d:73:00:c9,romfile= -device virtio-rng-pci \
        </dev/null >"$work/qemu.out" 2>&1 &
    guest_pid=$!
    jobs_started+=("$guest_pid")
}

# Reads one answer: its lines go to stdout; returns the status of the command in the guest, 124 if none comes in time.
guest_answer() { # SECONDS
    local line='' part end=$((SECONDS + $1))
    while [ "$SECONDS" -lt "$end" ]; do
        if IFS= read -r -t 1 -u "$guest_out" part; then
            line+=$part
            [[ $line != "= "* ]] || return "${line#= }"
            printf '%s\n' "$line"
            line=''
            continue
        fi
        line+=$part # half a line, when time was up
        if ! kill -0 "$guest_pid" 2>/dev/null; then
            echo "the guest has ended: $(tail -n 3 "$work/qemu.out")"
            return 125
        fi
    done
    echo "no answer after $1 s"
    return 124
}
guest_wait_ready() {
    guest_answer 120 || fail "the guest does not boot: $(tail -n 5 "$work/console.out")"
    say "the guest is up: $(guest 'echo "$(uname -sr), $(iscsid --version)"')"
}
guest() { # COMMAND: one line; 90 s to be done
    printf '%s\n' "$1" >&"$guest_in"
    guest_answer 90
}
guest_must() { # COMMAND
    guest_said=$(guest "$1") || fail "in the guest: $1: $guest_said"
}

guest_off() {
    printf 'poweroff -f\n' >&"$guest_in"
    wait "$guest_pid"
}

# What an application or an administrator would call an I/O error, or a file system that gave up.
guest_log_must_be_clean() {
    local bad
    [ "$(grep -c 'Linux version' "$work/console.out")" -eq 1 ] || fail "the guest's kernel log is not there"
    bad=$(grep -Ei 'I/O error|EXT4-fs (error|warning)|JBD2.*(error|abort)|Aborting journal|Remounting filesystem|rejecting I/O|offline|critical (target|medium|space|nexus)|Medium Error|Illegal Request|Hardware Error|session recovery timed out|hung_task|blocked for more than|Call Trace|BUG:' \
        "$work/console.out")
    [ -z "$bad" ] || fail "the guest's kernel log has: $bad"
    say "the guest's kernel log has no I/O error ($(wc -l <"$work/console.out") lines)"
}
