#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# I11: between the initiator's socket and each disk and peer socket no payload of 32 KiB or more is copied in user space.
# Every memcpy of pmsd and tgtd goes through a library that writes down the large ones (tests/preload/copies.c).
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for lib in copies.so copies_redirect.so; do
    [ -f "$build/tests/$lib" ] || skip "needs $build/tests/$lib; run make everything"
done

# A folder of programs in which pmsd and the tgtd that it starts are watched.
watched=$work/watched
mkdir "$watched"
cp "$build/pmsd" "$watched/pmsd.watched"
cp "$build/pmsctl" "$build/tgtd" "$build/bs_pms.so" "$build/tests/copies.so" "$watched/"
cp "$build/tests/copies_redirect.so" "$watched/pms_redirect.so"
cat >"$watched/pmsd" <<TEXT
#!/bin/bash
LD_PRELOAD=$watched/copies.so exec "$watched/pmsd.watched" "\$@"
TEXT
chmod +x "$watched/pmsd"
export PMS_BUILD=$watched
logs=("$watched/copies.so.log" "$watched/pms_redirect.so.log")
loaded() { grep -c "^loaded $1 " "${logs[$2]}"; } # PROGRAM LOG

cluster_up 2 1
array_make disk 128M
verify_start disk --zeroed --seconds 5 --bs 32K:1M --span 64M --qd 8
verify_finish
replicas_must_agree disk

assert_ge "number of watched pmsd" "$(loaded pmsd.watched 0)" 3
assert_ge "number of watched tgtd" "$(loaded tgtd 1)" 1
copies=$(cat "${logs[@]}" | grep -c '^copied ')
[ "$copies" -eq 0 ] || fail "$copies copies of 32 KiB and more: $(cat "${logs[@]}" | grep '^copied ' | cut -d' ' -f2,3,5 | sort | uniq -c | sort -rn | head)"
say "$(verify_value writes) writes and $(verify_value reads) reads of 32 KiB to 1 MiB, and none was copied"

# The watch does see what it watches for: jq makes a long text of two shorter ones.
LD_PRELOAD=$watched/copies.so jq -n '"x" * 100000 | length' >/dev/null
grep -Eq '^copied [0-9]+ jq ' "${logs[0]}" || fail "the watch is blind"
