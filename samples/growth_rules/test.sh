#!/usr/bin/env bash
# A short run of all rules; headroom skips little, and bad input is named with exit code 2.
set -uo pipefail
fail() { echo "FAILED: $1"; exit 1; }
out=$("$1" --seeds 1 --epochs 20) || fail "a run"
echo "$out"
[ "$(echo "$out" | grep -c ' 240 ')" = 6 ] || fail "six rules of 240 steps"
echo "$out" | tail -n 1 | grep -Eq '^best accuracy 9[0-9]\.[0-9]{2} % by ' || fail "the last line"
"$1" --epochs 0 >/dev/null 2>&1
[ $? = 2 ] || fail "exit code 2 for a wrong argument"
