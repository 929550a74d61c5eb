#!/usr/bin/env bash
# What the tour says about itself; bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

out=$("$program") || fail "the program"
for line in "its gradient is linear's: true" "and that of finite differences: true" "and was kept: true"; do
  grep -qF "$line" <<<"$out" || fail "$line"
done
help=$("$program" --help) || fail "--help"
grep -q '^A tour' <<<"$help" && ! grep -q '==' <<<"$help" || fail "--help runs the tour: $help"
unwritten
refused "an unknown option" "steps" --steps 2
echo "the tour says what it should"
