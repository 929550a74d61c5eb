#!/usr/bin/env bash
# In small: both networks train in every precision, the drawings are written, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

"$program" --steps 2 | tail -n 1 | grep -q '^real' || fail "two steps"
"$program" --steps 20 >log
grep -q '^2/20  losses .*[0-9] s left$' log || fail "a log says how long the rest takes: $(cat log)"
grep -q '^20/20  losses .*[0-9] s in all$' log || fail "a log says how long it took: $(cat log)"
[ "$(head -c 4 dcgan.png | tail -c 3)" = PNG ] || fail "the drawings are a PNG"
for precision in float32 amp bf16; do
  last=$("$program" --epochs 6 --threads 1 --precision $precision --out $precision.pgm | tail -n 1)
  echo "$precision: $last"
  # Neither network has won: the one that draws is not always found out, the other one does better than guessing.
  awk '{ exit !($2 > 50 && $5 > 1 && $5 < $2) }' <<<"$last" || fail "$precision: a match: $last"
done
head -n 2 float32.pgm | tail -n 1 | grep -qx '574 574' || fail "8 times 8 drawings of 8 x 8 pixels, seven times as large"

if command -v script >/dev/null; then
  TERM=xterm script -qec "'$program' --steps 2" /dev/null | tr '\r' '\n' | grep -aq $'^\e\\[Kdcgan.png: 64 drawings' ||
    fail "on a terminal the last lines begin at the left, not behind the bar"
fi
if interrupted --epochs 100000 --out stopped.png; then
  grep -q '^stopped.png: 64 drawings, stopped after [0-9]* of 2200000 steps;' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  [ -s stopped.png ] || fail "the drawings are kept after Ctrl-C"
fi

refused "a folder that is not there" "nowhere" --data nowhere
refused "a batch that is too large" "1442" --batch-size 2000
refused "a folder for the drawings that is not there" "nowhere" --steps 1 --out nowhere/drawings.png
refused "greys in a format of colours" "name a .png or .pgm" --out drawings.ppm
HALFTAPE_CUDA_LIBRARY=nowhere.so refused "a GPU that cannot be used" "cuda:0 is not available.*nowhere.so" --device cuda
echo "dcgan keeps its promises"
