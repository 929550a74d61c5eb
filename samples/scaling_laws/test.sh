#!/usr/bin/env bash
# The program's promises: known figures on a known trace, a recorded trace that replays to the same, and bad input named.
source "$(dirname "$0")/../support/test.sh"
report=scaling_laws.html

# Overflow above 64, from 2^16, for half an interval: PyTorch skips ten steps and lands on 64, RoundPipe eleven and on 32.
{ echo "# one limit"; echo "step,limit"; for i in $(seq 0 999); do echo "$i,64"; done; } >constant.csv
out=$("$program" --trace constant.csv --growth-interval 0 --out page.html) || fail "a trace from a file"
row() { grep -E "^$1 +[0-9]" <<<"$out" | sed -E "s/^$1 +//; s/ +/ /g"; }
[ "$(row PyTorch)" = "2000 10 6.055 99.0 %" ] || fail "PyTorch: $(row PyTorch)"
[ "$(row RoundPipe)" = "2000 11 5.077 0.1 %" ] || fail "RoundPipe: $(row RoundPipe)"
grep -q '<svg' page.html || fail "the report has pictures"
! grep -qE '(src|href)="?https?:' page.html || fail "the report loads nothing"
rm page.html

first=$("$program" --epochs 2 --save-trace recorded.csv --out "" | tail -n 1) || fail "a recording"
second=$("$program" --trace recorded.csv --out "" | tail -n 1) || fail "a recorded trace"
[ "$first" = "$second" ] || fail "replayed from the file: $second, recorded: $first"
[ "$(grep -c '^[0-9]' recorded.csv)" = 92 ] || fail "a limit for each of the 92 steps"
echo "$first"

if interrupted --epochs 10000 --save-trace stopped.csv --out ""; then
  n=$(grep -c '^[0-9]' stopped.csv)
  grep -q "; stopped after $n of 460000 steps$" interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  tail -n 1 interrupted.log | grep -q " % of $n steps at the best scale$" || fail "the laws after Ctrl-C: $(cat interrupted.log)"
fi

: >empty.csv
echo "limit" >header.csv
printf 'step,limit\n0,64\n1,many\n' >word.csv
printf 'step,limit\n0,64\n1,-2\n' >negative.csv
printf 'step,limit\n0,64\n1,nan\n' >nan.csv
printf 'step,limit\n0,64\n2,64\n' >gap.csv
refused "a file that is not there" "no such file" --trace nowhere.csv
refused "a folder" "folder" --trace .
refused "an empty file" "no steps" --trace empty.csv
refused "another header" "line 1.*step,limit" --trace header.csv
refused "a word" "line 3.*1,many" --trace word.csv
refused "a negative limit" "line 3.*-2" --trace negative.csv
refused "not a number" "line 3.*nan" --trace nan.csv
refused "a gap" "line 3.*expected step 1, found 2" --trace gap.csv
refused "a trace and a training" "excludes" --trace constant.csv --epochs 2
refused "a trace and a seed" "excludes" --trace constant.csv --seed 1
refused "a device that is none" "gpu" --device gpu
refused "an interval below 0" "growth-interval" --growth-interval -1
ln -s constant.csv link.csv
refused "the trace as the page" "that is the file of --trace" --trace constant.csv --out link.csv
refused "one file for both" "that is the file of --save-trace" --epochs 2 --out both --save-trace both
refused "a report in no folder" "--out: page: .*nowhere/page.html: " --out nowhere/page.html
echo "scaling_laws keeps its promises"
