#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The benchmark in short form: it runs to its end, and its lines and its JSON are well-formed. No figure is judged.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ -x "$build/bench/load" ] || skip "needs $build/bench/load; run make bench-build"
bench=("$root/bench/run" --dir "$work" --size 64M --seconds 1)

assert_refused 2 'no cell is named' "${bench[@]}" --cells nonsense
assert_refused 2 'needs a number' "${bench[@]}" --seconds soon
assert_refused 1 'login|refused|connect' "$build/bench/load" --ours iscsi://127.0.0.1:9/none/1 --stock iscsi://127.0.0.1:9/none/1 \
    --op randread

cells=off-randread-1,off-randwrite-32 want=2
if "$build/pmsctl" array create --help | grep -q -e --write-cache; then
    cells+=,on-randwrite-1 want=3
fi
timeout 120 "${bench[@]}" --cells "$cells" --json "$work/bench.json" >"$work/bench.out" 2>&1 ||
    fail "bench/run ended with $?: $(cat "$work/bench.out")"
mapfile -t lines < <(grep '^bench: ' "$work/bench.out")
assert_eq "number of lines" "${#lines[@]}" "$want"

n='[0-9]+' d='[0-9]+\.[0-9]+'
side() { echo "$1_mb_s=$d $1_p50_us=$n $1_p99_us=$n $1_cpu_s_gib=$d $1_rss_mib=$n $1_ops=$n"; }
shape="^bench: level=raid1 cache=(off op=randread qd=1|off op=randwrite qd=32|on op=randwrite qd=1) bytes=4096 ours=$n stock=$n ratio=$d $(side ours) $(side stock) repeats=$n errors=0\$"
for line in "${lines[@]}"; do
    [[ $line =~ $shape ]] || fail "not a line of results: $line"
done
say "all lines are well-formed: ${lines[0]}"

# The same in JSON, as numbers; nothing in it is zero that was measured.
jq -e --argjson want "$want" '.level == "raid1" and (.cells | length) == $want and
       all(.cells[]; .errors == 0 and .ours > 0 and .stock > 0 and .ours_ops > 0 and .stock_ops > 0 and .ours_rss_mib > 0 and
                     .stock_rss_mib > 0 and .ours_cpu_s_gib > 0 and .stock_cpu_s_gib > 0 and .ours_p50_us <= .ours_p99_us and
                     ((.ours / .stock - .ratio) | fabs) < 0.01)' "$work/bench.json" >/dev/null ||
    fail "the JSON is not what the lines say: $(cat "$work/bench.json")"
[ "$(find "$work" -name 'pms-bench.*' | wc -l)" -eq 0 ] || fail "bench/run left files behind"
