#!/usr/bin/env bash
# In small: the model learns, a run that was stopped and resumed has the weights of the run that was
# not, to the bit and in every precision, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"
small="--threads 1 --n-layer 2 --n-embd 32 --n-head 2 --block-size 16 --batch-size 4 --eval-batches 2"

"$program" --steps 2 $small --sample 20 | tail -n 1 | grep -q '^val loss' || fail "two steps"
last=$("$program" --steps 120 $small --sample 0 --lr 0.01 | tail -n 1)
echo "120 steps: $last"
awk '{ exit !($3 < 2.3) }' <<<"${last/,/}" || fail "a loss below 2.3: $last"

hash() { "$program" --steps 2 $small --sample 0 --hash "$@" | grep '^hash'; }
[ "$(hash --precision bf16)" != "$(hash)" ] || fail "bf16 has weights of its own"

for precision in float32 bf16 amp; do
  run() { "$program" $small --precision $precision --dropout 0.1 --gradient-accumulation-steps 2 --lr-decay-steps 10 \
            --warmup 2 --sample 0 --hash "$@" | grep '^hash'; }
  whole=$(run --steps 10 --eval-interval 10) || fail "$precision, 10 steps"
  run --steps 5 --eval-interval 3 --out "$precision" >/dev/null || fail "$precision, 5 steps"
  [ "$whole" != "$(run --steps 10 --eval-interval 10 --seed 9)" ] || fail "$precision: another seed, other weights"
  # The seed of a resumed run does not matter: all is in the checkpoint.
  rest=$(run --steps 10 --eval-interval 3 --out "$precision" --resume --seed 9) || fail "$precision, resumed"
  [ "$whole" = "$rest" ] || fail "$precision: $whole without a stop, $rest with one"
  echo "$precision: $whole, stopped and resumed or not"
done
cut -d, -f1 float32/log.csv | tr '\n' ' ' | grep -qx 'step 3 5 6 9 10 ' || fail "log.csv: $(cat float32/log.csv)"

if stopped_by TERM 143 $small --sample 0 --steps 9999999 --warmup 2 --lr-decay-steps 10 --eval-interval 9999999 --out stopped; then
  steps=$(tail -n 1 stopped/log.csv | cut -d, -f1)
  tail -n 1 interrupted.log | grep -qx "stopped after $steps of 9999999 steps; go on with --resume" || fail "how to go on: $(cat interrupted.log)"
  again() { "$program" $small --sample 0 --steps "$steps" --warmup 2 --lr-decay-steps 10 --hash "$@" | grep '^hash'; }
  whole=$(again) kept=$(again --out stopped --resume)
  [ -n "$whole" ] && [ "$whole" = "$kept" ] || fail "stopped by SIGTERM after $steps steps: $kept is kept, not $whole"
fi

# Without standard output, too, progress is not written into a file of the run, which goes on.
short="$small --sample 0 --eval-interval 1 --lr-decay-steps 10 --warmup 2"
"$program" $short --steps 2 --out open >/dev/null || fail "an open standard output"
"$program" $short --steps 2 --out closed >&- 2>&- <&- || fail "a closed standard output: exit code $?"
cmp open/log.csv closed/log.csv || fail "a closed standard output: log.csv: $(cat closed/log.csv)"
"$program" $short --steps 3 --out closed --resume >/dev/null || fail "a run without standard output goes on"

# A text may begin with any character, such as a byte order mark.
{ printf '\xef\xbb\xbf'; printf 'ä word, and another one. %.0s' {1..40}; } >mark.txt
out=$("$program" $small --data mark.txt --steps 2 --sample 5) || fail "a text that begins with a byte order mark"
grep -q $'^\xef\xbb\xbf' <<<"$out" || fail "the text that it wrote begins as the other: $out"

printf 'too short' >short.txt
printf '\xff\xfe%.0s' {1..2000} >bytes.txt
refused "a file that is not there" "nowhere.txt" --data nowhere.txt
refused "a short file" "too few" --data short.txt
refused "a batch of more windows than there are" "too few .*give 1130 or more" ${small/size 4/size 1000} --data mark.txt
refused "a file that is no text" "bytes.txt\|UTF-8" --data bytes.txt
refused "an unknown precision" "precision" --precision float8
refused "heads that do not fit" "do not divide" --n-head 3
refused "no checkpoint" "no checkpoint" --resume --out empty
refused "a checkpoint of another model" "other options" --resume --out float32 --n-layer 1
refused "a folder with an earlier run" "go on with --resume" --out float32
refused "no folder" "--out" --resume
HALFTAPE_CUDA_LIBRARY=nowhere.so refused "a GPU that cannot be used" "cuda:0 is not available.*nowhere.so" --device cuda

if [ "${2:-}" = ranks ]; then
  losses() { grep -o '^step.*val loss.*' "$1"; }
  "$program" --steps 40 $small --sample 0 --lr 0.01 --eval-interval 10 >alone.log
  start_ranks 2 --steps 40 $small --sample 0 --lr 0.01 --eval-interval 10
  end_ranks "0 0"
  [ ! -s rank1.log ] || fail "rank 0 alone speaks: $(cat rank1.log)"
  # The batches are the same, and so are the losses, but for the rounding of sums.
  paste <(losses alone.log) <(losses rank0.log) | awk '{ d = $8 - $16; if (d > 0.002 || d < -0.002) exit 1; n++ } END { exit n != 4 }' ||
    fail "the losses of one process and two: $(losses alone.log) $(losses rank0.log)"
  echo "2 ranks: $(losses rank0.log | tail -n 1)"

  part="$small --precision amp --dropout 0.1 --gradient-accumulation-steps 2 --lr-decay-steps 12 --warmup 2 --sample 0 --hash --eval-interval 5"
  hash_of() { grep '^hash' rank0.log; }
  start_ranks 2 $part --steps 10 && end_ranks "0 0" && whole=$(hash_of)
  start_ranks 2 $part --steps 5 --out ranks && end_ranks "0 0"
  start_ranks 2 $part --steps 10 --out ranks --resume && end_ranks "0 0"
  [ -n "$whole" ] && [ "$whole" = "$(hash_of)" ] || fail "2 ranks: $whole without a stop, $(hash_of) with one"
  "$program" $part --steps 11 --out ranks --resume >alone.log && grep -q '^goes on after step 10, from' alone.log || fail "one process goes on from two"
  start_ranks 4 $part --steps 12 --out ranks --resume && end_ranks "0 0 0 0"
  grep -q '^goes on after step 11, from' rank0.log || fail "four ranks go on from one process: $(cat rank0.log)"
  cut -d, -f1 ranks/log.csv | tr '\n' ' ' | grep -qx 'step 5 10 11 12 ' || fail "log.csv: $(cat ranks/log.csv)"

  start_ranks 2 $small --sample 0 --steps 9999999 --warmup 2 --lr-decay-steps 10 --eval-interval 9999999 --out halt
  listens "${ranks[1]}"
  kill -TERM "${ranks[1]}"
  end_ranks "143 143"
  steps=$(tail -n 1 halt/log.csv | cut -d, -f1)
  tail -n 1 rank0.log | grep -qx "stopped after $steps of 9999999 steps; go on with --resume" || fail "how to go on: $(cat rank0.log)"
  "$program" $small --sample 0 --steps $((steps + 1)) --warmup 2 --lr-decay-steps 10 --out halt --resume >alone.log || fail "a resume after SIGTERM of rank 1"
  grep -q "^goes on after step $steps, from" alone.log || fail "the checkpoint after SIGTERM of rank 1: $(cat alone.log)"

  # A launcher's second start goes on, or begins where nothing was saved.
  again() { TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=1 start_ranks 2 $part --steps 12 "$@" && end_ranks "0 0"; }
  again --out halted_early && again --out ranks
  grep -q '^goes on after step 12, from' rank0.log || fail "started again by the launcher: $(cat rank0.log)"
fi
echo "char_gpt keeps its promises"
