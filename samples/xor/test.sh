#!/usr/bin/env bash
# All four from any of eight first weights; the promises that hold for every program's command line; bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

"$program" --steps 2 | tail -n 1 | grep -q 'of 4 right$' || fail "two steps"
for seed in {1..8}; do
  last=$("$program" --seed $seed | tail -n 1)
  [ "$last" = "4 of 4 right" ] || fail "seed $seed: $last"
done
echo "$last"

if interrupted --steps 1000000000000; then
  grep -q '^stopped after [0-9]* of 1000000000000 steps$' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  tail -n 1 interrupted.log | grep -q 'of 4 right$' || fail "the answers after Ctrl-C: $(cat interrupted.log)"
fi
unwritten --steps 2
unwritten --help
"$program" --steps 2 >&- || fail "a closed standard output: exit code $?"
refused "a device that is none" "gpu" --device gpu
echo "xor keeps its promises"
