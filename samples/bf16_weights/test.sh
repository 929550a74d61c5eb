#!/usr/bin/env bash
# In small: plain bfloat16 weights stop learning, the three other ways follow float32.
set -uo pipefail
last=$("$1" --epochs 20 --seeds 1 | tail -n 1) || { echo "FAILED: the program"; exit 1; }
echo "$last"
tr ' ' '\n' <<<"$last" | awk -F= '
  NF == 2 { loss[$1] = $2 }
  function near(name) { return loss[name] > 0.97 * loss["float32"] && loss[name] < 1.03 * loss["float32"] }
  END { exit !(near("master") && near("stochastic") && near("kahan") && loss["plain"] > 1.5 * loss["float32"]) }' ||
  { echo "FAILED: master, stochastic and kahan near float32, plain far above"; exit 1; }
"$1" --optimizer lion >/dev/null 2>&1
[ $? = 2 ] || { echo "FAILED: exit code 2 for an unknown optimizer"; exit 1; }
