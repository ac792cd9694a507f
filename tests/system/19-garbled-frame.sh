#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Bytes of the data frames between the nodes are changed in flight: each is noticed, none reaches a disk or a reader.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

# Big packets are data frames. veth leaves the TCP checksum to a card that is not there, so the damage gets through.
garble_on() { # K
    nsenter --net="/run/netns/$prefix-n$1" -- nft -f - <<'RULES' || skip "needs nftables with payload writing"
table inet garble {
    chain out {
        type filter hook output priority 0;
        meta length > 3000 tcp dport 7470 numgen inc mod 40 0 @th,2000,32 set 0xdeadbeef counter
        meta length > 3000 tcp sport 7470 numgen inc mod 40 0 @th,2000,32 set 0xdeadbeef counter
    }
}
RULES
}
garble_off() { # K: prints how many packets were garbled
    nsenter --net="/run/netns/$prefix-n$1" -- nft list table inet garble | grep -oE 'packets [0-9]+' | awk '{n += $2} END {print n}'
    nsenter --net="/run/netns/$prefix-n$1" -- nft delete table inet garble
}

cluster_up 2 1
array_make disk 64M
verify_start disk --zeroed --span 32M --bs 4k:256k --seconds 15
verify_wait_working
for k in 1 2; do
    garble_on "$k"
done
say "frames are being garbled"
sleep 2
garbled=0
for k in 1 2; do
    n=$(garble_off "$k")
    garbled=$((garbled + n))
done
say "$garbled packets were garbled"
assert_ge "number of garbled packets" "$garbled" 1
wait_healthy disk 60
verify_finish
grep -Ehi 'checksum|garbled|corrupt|damaged' "$dir"/n[12]/pmsd.log | head -n 3
grep -Eqi 'checksum|garbled|corrupt|damaged' "$dir"/n[12]/pmsd.log || fail "no node logs a garbled frame"
replicas_must_agree disk
verify_again disk
figures
