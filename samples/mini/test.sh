#!/usr/bin/env bash
# The file's promises: its length, the command in its head, the comparison, and wrong arguments refused.
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/samples/support/test.sh"

[ "$(wc -l <"$root/samples/mini/mini.cpp")" -le 400 ] || fail "at most 400 lines"
! grep -q 'include.*halftape/' "$root/samples/mini/mini.cpp" || fail "no header of the library"

accuracies() {
  tail -n 1 <<<"$1" | sed -nE 's/^accuracy float32=([0-9.]+) fp16=([0-9.]+) amp=([0-9.]+)$/\1 \2 \3/p'
}
out=$("$program") || fail "a plain run"
read -r f32 f16 amp < <(accuracies "$out")
awk -v a="$f32" -v b="$f16" -v c="$amp" 'BEGIN { exit !(a >= 97 && a <= 99 && b < 40 && c >= 97 && c <= 99) }' ||
  fail "float32 and amp within 98 ± 1, fp16 below 40: $out"

# As a reader compiles it, from the repository's root; and at weight 1 all three learn.
command=$(sed -nE 's,^// +(g\+\+ .* -o mini) && ./mini$,\1,p' "$root/samples/mini/mini.cpp")
[ -n "$command" ] || fail "the head names the command"
command=${command/-o mini/-o "\"$PWD/alone\""}
(cd "$root" && eval "$command") || fail "the command in the head"
read -r f32 f16 amp < <(accuracies "$(./alone 1)")
awk -v a="$f32" -v b="$f16" -v c="$amp" 'BEGIN { exit !(a >= 97 && b >= 97 && c >= 97) }' ||
  fail "weight 1 needs no scaling: $f32 $f16 $amp"
rm alone

for wrong in 0 -1 nan inf 1x ""; do refused "the weight '$wrong'" "usage: mini" "$wrong"; done
refused "two weights" "usage: mini" 1 2
