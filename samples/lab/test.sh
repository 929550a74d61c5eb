#!/usr/bin/env bash
# A short training leaves tables whose sums are right and a page that loads nothing and says what happened; looking does
# not change the training; bad input and a folder in use are named with exit code 2.
manual=$(cd "$(dirname "$0")" && pwd)/halftape-lab.1
source "$(dirname "$0")/../support/test.sh"

manual_names_options "$manual"

lab() { "$program" digits --epochs 3 --threads 1 "$@"; }
page_is_good() {  # page_is_good FOLDER
  [ "$(wc -c <"$1/report.html")" -le 300000 ] || fail "$1: the page is too large"
  ! grep -qi "http\|src=\|@import\|url(" "$1/report.html" || fail "$1: the page loads something"
  [ "$(grep -c '</html>' "$1/report.html")" = 1 ] || fail "$1: the page ends"
}
hash() { grep -o 'hash of the weights</dt><dd>[0-9a-f]*' "$1/report.html"; }

out=$(lab --loss-weight 1e-5 --out run1 --scales 0,16) || fail "a plain run: $out"
grep '^gradients within [12] % of float32 for scales from 2^.*; the scaler stood at 2^' <<<"$out" || fail "no verdict: $out"
[ "$(tail -n 1 <<<"$out")" = run1/tensorboard ] || fail "the paths come last: $out"
grep -q '^module  *S = 1  *S = 2^16' <<<"$out" && grep -q '^fc3 ' <<<"$out" || fail "--scales: $out"
page_is_good run1
ls run1/tensorboard/events.out.tfevents.* >/dev/null || fail "no event file"

# What CSV promises, for each line: classes and bins add up.
awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; n = NF; next }
  NF != n { bad = 1 }
  { numbers = $at["subnormal"] + $at["normal"] + $at["large"]; bins = 0
    for (e = -48; e <= 15; ++e) bins += $at["2^" e]
    if (bins != numbers || $at["total"] != numbers + $at["zero"] + $at["inf"] + $at["nan"]) bad = 1
    if ($at["kind"] == "parameter" && $at["error"] != "" && !($at["error"] < 0.2)) bad = 1
    if ($at["dtype"] == "float16" && $at["module"] == "fc2" && $at["zero"] > 0) ++zeros }
  END { exit bad || NR < 50 || !zeros }' run1/ledger.csv || fail "ledger.csv: $(head -n 3 run1/ledger.csv)"

lab --loss-weight 1e-5 --every 1 --shadow-every 0 --out often >/dev/null || fail "a run without shadows"
[ -n "$(hash run1)" ] && [ "$(hash run1)" = "$(hash often)" ] || fail "looking changes the training"
page_is_good often

lab --loss-weight 1e-5 --precision fp16 --out unscaled | grep '^gradients.*the loss was not scaled, which is too little: weight' ||
  fail "fp16 without a scaler"
lab --precision float32 --out exact | grep -q '^all gradients are float32' || fail "float32"
lab --precision bf16 --out brain | grep '^gradients within [25] % of float32 for scales from 2^-10 to 2^40 or more' || fail "bf16"
for folder in unscaled exact brain; do page_is_good $folder; done

# Of a first scale that is too large, the first op by name, and the largest scale that would have passed.
lab --loss-weight 1e-5 --init-scale 1099511627776 --out large >/dev/null || fail "a large first scale"
awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  { scale = $at["largest_scale_that_passes"]
    if ($at["op"] == "" || $at["parameter"] !~ /^fc/ || !(scale > 0 && scale < $at["scale"])) bad = 1 }
  END { exit bad || NR < 2 }' large/overflows.csv || fail "overflows.csv: $(cat large/overflows.csv)"
page_is_good large

if interrupted digits --loss-weight 1e-5 --steps 100000 --every 1000 --out stopped; then
  page_is_good stopped
  grep -q "stopped by Ctrl-C" stopped/report.html || fail "the page says that it was stopped"
  grep -q "^stopped/report.html" interrupted.log || fail "the paths after Ctrl-C"
fi

lab --out closed >&- 2>&- || fail "a closed standard output: exit code $?"
[ "$(cut -d, -f1 closed/steps.csv | tr '\n' ' ')" = "step $(seq -s ' ' 0 35) " ] || fail "a closed standard output: steps.csv: $(cat closed/steps.csv)"
page_is_good closed

# Two at once in one folder: one of them is refused, and the other one's folder is whole.
"$program" digits --threads 1 --epochs 20 --out both >first.log 2>&1 & first=$!
"$program" digits --threads 1 --epochs 20 --seed 5 --out both >second.log 2>&1 & second=$!
wait $first; first=$?
wait $second; second=$?
[ $((first == 0)) != $((second == 0)) ] || fail "two at once: $first and $second: $(cat first.log second.log)"
page_is_good both
[ "$(wc -l <both/steps.csv)" = 241 ] || fail "steps.csv has a line for each step"

touch file
refused "a folder in use" "run1.*files" digits --out run1
refused "a file as folder" "file" digits --out file
refused "a folder in a file" "file/folder" digits --out file/folder
refused "no training" "training"
refused "an unknown training" "imagenet" imagenet --out new
refused "epochs of char_gpt" "--steps" char_gpt --epochs 2 --out new
refused "epochs and steps" "excludes" digits --epochs 2 --steps 2 --out new
refused "a loss of no weight" "loss-weight" digits --loss-weight 0 --out new
refused "an infinite scale" "init-scale" digits --init-scale inf --out new
refused "a scale beyond float32" "init-scale" digits --init-scale 1e39 --out new
refused "shadows between samples" "multiple of --every" digits --every 20 --shadow-every 30 --out new
refused "a scale that is not tried" "scales" digits --scales 41 --out new
[ ! -e new ] || fail "a refused run made a folder"
echo "halftape-lab keeps its promises"
