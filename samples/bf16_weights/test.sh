#!/usr/bin/env bash
# In small: plain bfloat16 weights stop learning, the three other ways follow float32; bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

last=$("$program" --epochs 20 --seeds 1 | tail -n 1) || fail "the program"
echo "$last"
tr ' ' '\n' <<<"$last" | awk -F= '
  NF == 2 { loss[$1] = $2 }
  function near(name) { return loss[name] > 0.97 * loss["float32"] && loss[name] < 1.03 * loss["float32"] }
  END { exit !(near("master") && near("stochastic") && near("kahan") && loss["plain"] > 1.5 * loss["float32"]) }' ||
  fail "master, stochastic and kahan near float32, plain far above"
[ "$("$program" --seeds 1 --epochs 1 --threads 1)" = "$("$program" --seeds 1 --epochs 1 --threads 2)" ] || fail "threads change nothing"
if interrupted --epochs 10000; then
  tail -n 1 interrupted.log | grep -qx 'stopped after 0 of 5 ways' || fail "Ctrl-C is told: $(cat interrupted.log)"
fi
refused "an unknown optimizer" "lion" --optimizer lion
echo "bf16_weights keeps its promises"
