#!/usr/bin/env bash
# The curve is found under the noise, and bad input is named with exit code 2.
set -uo pipefail
fail() { echo "FAILED: $1"; exit 1; }
"$1" --steps 2 | tail -n 1 | grep -q '^error' || fail "two steps"
last=$("$1" | tail -n 1)
echo "$last"
awk '{ exit !($2 < 0.05) }' <<<"$last" || fail "below half of the noise: $last"
[ "$(COLUMNS=30 "$1" --steps 2 | sed -n 3p | wc -c)" = 30 ] || fail "a curve as wide as the terminal"
"$1" --steps none >/dev/null 2>&1
[ $? = 2 ] || fail "exit code 2 for a wrong argument"
