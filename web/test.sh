#!/usr/bin/env bash
# What the lab of the page promises, outside of a browser: test.sh web_lab
set -euo pipefail
lab=$1
number() { sed -n "s/.*\"$1\": \"\?\([-+.0-9a-z]*\).*/\1/p"; }
fail() {
  echo "FAIL: $*" >&2
  exit 1
}
holds() { awk "BEGIN { exit !($1) }" || fail "$1: $2"; }

scaled=$("$lab")
holds "$(number accuracy <<<"$scaled") >= 97" "fp16 with a GradScaler at loss weight 1e-5: $scaled"
holds "$(number skipped <<<"$scaled") > 0" "its scale grows until steps are skipped: $scaled"
[ "$scaled" = "$("$lab")" ] || fail "two runs differ"
unscaled=$("$lab" precision=fp16)
holds "$(number accuracy <<<"$unscaled") < 30" "fp16 without a scale fails at loss weight 1e-5: $unscaled"
spirals=$("$lab" data=spirals weight=1 steps=800)
holds "$(number accuracy <<<"$spirals") >= 95" "the spirals are told apart: $spirals"

if [ -c /dev/full ]; then
  text=$("$lab" steps=1 2>&1 >/dev/full) && fail "a full disk is success"
  [[ $text == "web_lab: standard output cannot be written"* ]] || fail "a full disk: $text"
fi

for wrong in widths=64,0 widths=1,2,3,4,5 weight=-1 weight=nan scale=1e40 interval=0 batch=0 lr=x precision=fp8 colour=red 5; do
  if text=$("$lab" steps=1 "$wrong" 2>&1); then fail "$wrong was accepted"; fi
  [[ $text == web_lab:\ * && $text == *[[:digit:]\']* ]] || fail "$wrong: $text"
done
echo "the lab of the page: all promises hold"
