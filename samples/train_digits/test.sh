#!/usr/bin/env bash
# The program's promises: the comparison in small, and every kind of bad input named, with exit code 2 and nothing written.
source "$(dirname "$0")/../support/test.sh"
report=report.html

out=$("$program" --out page.html) || fail "a plain run"
last=$(tail -n 1 <<<"$out")
echo "$last"
grep -qE ' epoch +[0-9]+/[0-9]+ .* [0-9.]+ s left$' <<<"$out" || fail "a log says how long the rest takes: $out"
read -r f32 f16 amp bf16 < <(sed -E 's/accuracy float32=([0-9.]+) fp16=([0-9.]+) amp=([0-9.]+) bf16=([0-9.]+)/\1 \2 \3 \4/' <<<"$last")
awk -v a="$f32" -v b="$f16" -v c="$amp" 'BEGIN { exit !(a > 95 && c > 95 && a - c < 1 && c - a < 1 && b < 40) }' ||
  fail "float32 and amp above 95 and within a point, fp16 below 40: $last"
grep -q '<svg' page.html || fail "the report has pictures"
! grep -qE '(src|href)="?https?:' page.html || fail "the report loads nothing"
for what in 'name="viewport" content="width=device-width' 'max-width: 760px' 'prefers-color-scheme: dark'; do
  grep -q "$what" page.html || fail "the report fits a telephone and a dark room: $what"
done
rm page.html

for threads in 1 2 3 4 8; do
  "$program" --epochs 3 --hash --out "" --threads $threads | grep '^hash'
done | sort | uniq -c | awk '$1 != 5 { bad = 1 } END { exit bad }' || fail "the same weights for 1, 2, 3, 4 and 8 threads"

if interrupted --epochs 10000 --out stopped.html; then
  grep -qx 'stopped in run 1 of 4' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  grep -q 'float32, stopped' stopped.html || fail "the page shows what was trained"
  tail -n 1 interrupted.log | grep -q '^accuracy float32=[0-9.]*$' || fail "the accuracy after Ctrl-C"
fi

mkdir empty truncated html labels
printf '\x00\x00\x08\x03\x00\x00' >truncated/train-images-idx3-ubyte
cp truncated/train-images-idx3-ubyte truncated/train-labels-idx1-ubyte
cp truncated/train-images-idx3-ubyte truncated/t10k-images-idx3-ubyte
cp truncated/train-images-idx3-ubyte truncated/t10k-labels-idx1-ubyte
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
  echo '<!DOCTYPE html><html>not found</html>' >html/$name-ubyte.gz
done
# One image of 28 by 28 each, whose label is 11 in the training part.
for part in train t10k; do
  { printf '\x00\x00\x08\x03\x00\x00\x00\x01\x00\x00\x00\x1c\x00\x00\x00\x1c'; head -c 784 /dev/zero; } >labels/$part-images-idx3-ubyte
done
printf '\x00\x00\x08\x01\x00\x00\x00\x01\x0b' >labels/train-labels-idx1-ubyte
printf '\x00\x00\x08\x01\x00\x00\x00\x01\x05' >labels/t10k-labels-idx1-ubyte
refused "a folder that is not there" "nowhere" --data nowhere
refused "an empty folder" "train-images" --data empty
refused "a truncated file" "truncated" --data truncated
refused "a web page named .gz" "html" --data html
refused "a label out of range" "labels/train-labels-idx1-ubyte.*11" --data labels
refused "a word for a number" "--lr: expected a number that it can take, found x" --lr x
refused "an unknown precision" "precision" --precision fp8
HALFTAPE_CUDA_LIBRARY=nowhere.so refused "a GPU that cannot be used" "cuda:0 is not available.*nowhere.so" --device cuda
refused "a report in no folder" "report" --out nowhere/page.html
echo "train_digits keeps its promises"
