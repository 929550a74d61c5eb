#!/usr/bin/env bash
# A short run of all rules; seed and Ctrl-C do as they are told, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

out=$("$program" --seeds 1 --epochs 20) || fail "a run"
echo "$out"
[ "$(grep -c ' 240 ' <<<"$out")" = 6 ] || fail "six rules of 240 steps"
tail -n 1 <<<"$out" | grep -Eq '^best accuracy 9[0-9]\.[0-9]{2} % by ' || fail "the last line"
[ "$("$program" --seeds 1 --epochs 1 --seed 5)" != "$("$program" --seeds 1 --epochs 1)" ] || fail "another seed, another run"
if interrupted --epochs 10000; then
  tail -n 1 interrupted.log | grep -qx 'stopped after 0 of 6 rules' || fail "Ctrl-C is told: $(cat interrupted.log)"
fi
refused "no epoch" "epochs" --epochs 0
refused "a device that is none" "gpu" --device gpu
echo "growth_rules keeps its promises"
