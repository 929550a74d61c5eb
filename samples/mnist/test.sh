#!/usr/bin/env bash
# In small: every precision learns the digits, workers and threads change nothing, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"

"$program" --steps 2 | tail -n 1 | grep -q '^accuracy amp=' || fail "two steps"
for precision in float32 fp16 amp bf16; do
  last=$("$program" --epochs 5 --precision $precision | tail -n 1)
  echo "$last"
  awk -F= '{ exit !($2 > 95) }' <<<"$last" || fail "above 95: $last"
done
for options in "--threads 1" "--threads 2 --workers 1" "--threads 3 --workers 3"; do
  "$program" --epochs 1 $options | grep -v '^epoch' | sed -E 's/  [0-9:]+ [a-z]+ (left|in all)$//' | md5sum
done | sort -u | wc -l | grep -qx 1 || fail "the same result for any number of workers and threads"

if interrupted --epochs 10000; then
  grep -q '; stopped after [0-9]* of 230000 steps$' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  tail -n 1 interrupted.log | grep -q '^accuracy amp=' || fail "the accuracy after Ctrl-C"
fi

mkdir empty
refused "a word for a number" "^--epochs: expected a whole number from 1 to 10000, found abc$" --epochs abc
refused "a number beyond the range" "^--dropout: expected a number from 0 to 0.99, found 1$" --dropout 1
refused "a folder that is not there" "nowhere" --data nowhere
refused "an empty folder" "train-images" --data empty
refused "an unknown precision" "precision" --precision fp8
refused "a device that is none" "gpu" --device gpu
HALFTAPE_CUDA_LIBRARY=nowhere.so refused "a GPU that cannot be used" "cuda:0 is not available.*nowhere.so" --device cuda

if [ "${2:-}" = ranks ]; then
  alone=$("$program" --epochs 3 --dropout 0 --precision float32 | tail -n 1)
  for size in 2 3; do  # the last batch of an epoch is not divisible
    start_ranks $size --epochs 3 --dropout 0 --precision float32 --batch-size $((64 / size * size)) --threads 1
    end_ranks "$(printf '0 %.0s' $(seq $size) | sed 's/ $//')"
    last=$(tail -n 1 rank0.log)
    echo "$size ranks: $last, alone: $alone"
    awk -F= '{ exit !($2 > 92) }' <<<"$last" || fail "$size ranks learn: $last"
    [ ! -s rank1.log ] || fail "rank 0 alone speaks: $(cat rank1.log)"
  done
  start_ranks 2 --batch-size 63
  end_ranks "2 2"
  grep -qx "mnist: rank 0: --batch-size: 63 cannot be shared by 2 ranks; give a multiple" rank0.log || fail "an odd batch: $(cat rank0.log)"
  start_ranks 2 --epochs 10000 --threads 1
  listens "${ranks[1]}"
  kill -INT "${ranks[1]}"
  end_ranks "130 130"
  tail -n 1 rank0.log | grep -q '^accuracy amp=' || fail "the accuracy after Ctrl-C of rank 1: $(cat rank0.log)"
  start_ranks 2 --epochs 10000 --threads 1
  listens "${ranks[0]}"
  kill -KILL "${ranks[1]}"
  end_ranks "1 137"
  grep -q 'mnist: rank 0: .*rank 1 of 2' rank0.log || fail "the lost rank is named: $(cat rank0.log)"
fi
echo "mnist keeps its promises"
