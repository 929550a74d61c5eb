#!/usr/bin/env bash
# What the tour says about itself.
set -uo pipefail
out=$("$1") || { echo "FAILED: the program"; exit 1; }
for line in "its gradient is linear's: true" "and that of finite differences: true" "and was kept: true"; do
  grep -qF "$line" <<<"$out" || { echo "FAILED: $line"; exit 1; }
done
echo "the tour says what it should"
