#!/usr/bin/env bash
# All four from any of eight first weights, and bad input is named with exit code 2.
set -uo pipefail
fail() { echo "FAILED: $1"; exit 1; }
"$1" --steps 2 | tail -n 1 | grep -q 'of 4 right$' || fail "two steps"
for seed in {1..8}; do
  last=$("$1" --seed $seed | tail -n 1)
  [ "$last" = "4 of 4 right" ] || fail "seed $seed: $last"
done
echo "$last"
"$1" --device gpu >/dev/null 2>&1
[ $? = 2 ] || fail "exit code 2 for a wrong argument"
