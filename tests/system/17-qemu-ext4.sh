#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An ext4 mounted through QEMU's iscsi driver lives through a failover in mid-copy.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for tool in qemu-storage-daemon mkfs.ext4 e2fsck losetup; do
    command -v "$tool" >/dev/null || skip "needs $tool; run scripts/deps"
done
if [ ! -c /dev/fuse ] || [ ! -c /dev/loop-control ]; then
    skip "needs /dev/fuse and loop devices"
fi

# Files of many sizes, whose checksums are known before they are copied.
mkdir "$work/source"
for i in $(seq 60); do
    head -c $((i * i * 400)) /dev/urandom >"$work/source/file$i"
done
(cd "$work/source" && sha256sum -- *) >"$work/sums"

copy_round() { # one file after the other, each made stable: slow enough to be interrupted
    local f
    mkdir "$work/mnt/$1" || return 1
    for f in "$work/source"/*; do
        cp "$f" "$work/mnt/$1/" && sync "$work/mnt/$1/${f##*/}" || return 1
    done
}
files_copied() { find "$work/mnt/$1" -type f 2>/dev/null | wc -l; }
some_copied() { [ "$(files_copied "$1")" -ge 10 ]; }

cluster_up 2 1
array_make disk 256M
"$root/scripts/qemu-mount" mount "$(dc portal disk)" "$work/mnt" --netns "$prefix-client" --mkfs ext4 || fail "no mount"
copy_round before || fail "the first copy"
old=$(primary_of disk)
copy_round during &
copier=$!
jobs_started+=("$copier")
wait_until 20 some_copied during || fail "the copy does not begin"
say "power off: n$old, the primary"
dc kill "$old"
done_before=$(files_copied during)
[ "$done_before" -lt 60 ] || fail "the copy was over before the kill"
begun=$(ms_now)
wait "$copier" || fail "the copy across the failover failed"
took=$(($(ms_now) - begun))
say "$done_before of 60 files were copied before the kill, the rest within $took ms after it"
wait_takeover disk "$old" 10
copy_round after || fail "the copy at the new primary failed"
dc start "$old" || fail "n$old does not start"
wait_healthy disk 60
"$root/scripts/qemu-mount" detach "$work/mnt" || fail "umount"
"$root/scripts/qemu-mount" fsck "$work/mnt" || fail "e2fsck finds damage"
mount -o ro "$(cat "$work/mnt.qemu/loop")" "$work/mnt" || fail "it cannot be mounted again"
for round in before during after; do
    (cd "$work/mnt/$round" && sha256sum --quiet -c "$work/sums") || fail "files of the round \"$round\" differ"
done
say "180 files are as they were written"
"$root/scripts/qemu-mount" umount "$work/mnt" || fail "detach"
replicas_must_agree disk
printf 'FIGURES %s copy_after_kill_ms=%s files_before=%s\n' "$test_name" "$took" "$done_before"
