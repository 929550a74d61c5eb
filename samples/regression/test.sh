#!/usr/bin/env bash
# The curve is found under the noise, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

"$program" --steps 2 | tail -n 1 | grep -q '^error' || fail "two steps"
last=$("$program" | tail -n 1)
echo "$last"
awk '{ exit !($2 < 0.05) }' <<<"$last" || fail "below half of the noise: $last"
[ "$(COLUMNS=30 "$program" --steps 2 | sed -n 3p | wc -c)" = 30 ] || fail "a curve as wide as the terminal"
if interrupted --steps 1000000000000; then
  grep -q '^stopped after [0-9]* of 1000000000000 steps$' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  tail -n 1 interrupted.log | grep -q '^error' || fail "the curve after Ctrl-C: $(cat interrupted.log)"
fi
refused "a word for a number" "steps" --steps none
echo "regression keeps its promises"
