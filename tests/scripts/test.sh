#!/usr/bin/env bash
# Scripts in a copy of the repository's scripts, with stand-ins for what they build and call: what is cut short has failed, and
# names of files hold from the caller's folder. Run as a test: tests/scripts/test.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1") root=$(realpath -m "$1")/root
rm -rf "$work"
mkdir -p "$work"/{bin,caller} "$root"/{docs,tests/{install,vectors},benchmarks}
cd "$here/../.."
cp -r --parents scripts extras/libtorch benchmarks/compare "$root"
touch "$root/tests/install/main.cpp"
unset PYTHON CXX TORCH HALFTAPE_TESTS
export PATH=$work/bin:$PATH
cd "$work/caller"

stand_in() {  # its text is the standard input
  mkdir -p "$(dirname "$1")"
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
fail() { echo "scripts: $*" >&2 && exit 1; }
expect() {  # the exit code, what is said, and the command
  local code=0 said
  said=$("${@:3}" 2>&1) || code=$?
  [[ $code == "$1" && $said == *"$2"* ]] || fail "${*:3}: $code, not $1, or it does not say \"$2\":"$'\n'"$said"
}
stand_in "$root/scripts/setup" <<<''
stand_in "$work/bin/nvidia-smi" <<<'exit 1'

# run_tests: N passed only if ctest and the log came to their ends.
stand_in "$work/bin/ctest" <<<'echo "1/2 Test #1: one .....   Passed    0.01 sec"; eval "${THEN:-}"'
expect 0 "1 passed, 0 failed" "$root/scripts/run_tests" .
THEN='echo "2/2 Test #2: two .....***Skipped   0.01 sec"' expect 0 "1 passed, 0 failed" "$root/scripts/run_tests" .
THEN='echo "2/2 Test #2: two .....***Failed    0.01 sec"; exit 8' expect 1 "1 passed, 1 failed" "$root/scripts/run_tests" .
THEN='exit 8' expect 1 "1 passed, 1 failed" "$root/scripts/run_tests" .
THEN='kill -9 $$' expect 1 "ctest ended with 137" "$root/scripts/run_tests" .
THEN='echo "2: [doctest] test cases:  2 |  2 passed | 0 failed | 9 skipped"; echo "2/2 Test #2: two .....   Passed    0.01 sec"' \
  expect 0 "3 passed, 0 failed" "$root/scripts/run_tests" .
THEN='echo "2: [doctest] test cases:  0 |  0 passed | 0 failed | 11 skipped"; echo "2/2 Test #2: two .....   Passed    0.01 sec"' \
  expect 1 "1 passed, 1 failed" "$root/scripts/run_tests" .
stand_in "$work/bin/tee" <<<'/usr/bin/tee "$@"; exit 1'
expect 1 "1 passed, 1 failed" "$root/scripts/run_tests" .
rm "$work/bin/tee"

# packages: nothing may be left of what was removed.
stand_in "$work/bin/cmake" <<<'mkdir -p build/packages'
stand_in "$work/bin/cpack" <<<'touch one.deb'
stand_in "$work/bin/lintian" <<<''
stand_in "$work/bin/mmdebstrap" <<<'for word; do case $word in */root) mkdir -p "$word${LEFT:-}" ;; esac; done'
stand_in "$work/bin/chroot" <<<'sed -n "s,/usr,$1/usr,g; /^left=/,\$p" "$1/try/run" | bash -e'
expect 0 "without a rest" "$root/scripts/packages" --try
LEFT=/usr/lib/x86_64/libhalftape.so expect 1 "left: " "$root/scripts/packages" --try
LEFT=/usr/include/halftape expect 1 "left: " "$root/scripts/packages" --try
expect 2 "usage: " "$root/scripts/packages" --tyr

# demo
stand_in "$work/bin/cmake" <<<'program=build/demo/bin/train_digits; mkdir -p ${program%/*}; printf "cat \$2" >$program; chmod +x $program'
echo "my digits" >digits
expect 0 "my digits" "$root/scripts/demo" --data digits

# fuzz and soak: the file is the caller's, and tried before anything is built.
stand_in "$work/bin/cmake" <<<'echo cmake'
stand_in "$root/build/fuzz/tests/halftape_fuzz" <<<'[[ $1${NONE:-} != --list ]] || echo npy'
stand_in "$root/build/fuzz/tests/halftape_libfuzzer" <<<'echo "stat::number_of_executed_units: 5"; eval "${THEN:-}"'
expect 0 "5 executions, 0 findings" "$root/scripts/fuzz" --json fuzz.json 0
grep -q '"npy": 5' fuzz.json || fail "fuzz.json: $(cat fuzz.json)"
THEN='exit 77' expect 1 "5 executions, 1 findings" "$root/scripts/fuzz" 0
THEN='kill -9 $PPID' expect 1 "0 executions, 1 findings" "$root/scripts/fuzz" 0
NONE=1 expect 1 "there are no targets" "$root/scripts/fuzz" 0
stand_in build/tests/faults/soak_train <<<'mkdir -p "$1" && touch "$1"/final.safetensors "$1"/log.csv'
stand_in build/tests/halftape_tests <<<'echo "$SAYS"'
SAYS='9 of 400 kills survived' expect 0 " kills, 0 failures" "$root/scripts/soak" --json soak.json build
grep -q '"files": "9 of 400 kills survived"' soak.json || fail "soak.json: $(cat soak.json)"
SAYS='no case' expect 1 " kills, 1 failures" "$root/scripts/soak" build
stand_in "$work/bin/cmake" <<<'touch "$BUILT"'
for command in "scripts/fuzz --json nowhere/a.json 0" "scripts/soak --json nowhere/a.json" "benchmarks/compare --json nowhere/a.json"; do
  BUILT=$work/built expect 1 nowhere/a.json "$root"/$command
  [[ ! -e $work/built ]] || fail "$command: builds before it tries the file"
done

# Interpreters, compilers, programs and libraries that are named from the caller's folder.
stand_in python <<<'[[ $1 != -c ]] || echo "$PWD"; [[ $1 != - ]] || cat "$2"'
stand_in build/tests/halftape_tests <<<'echo "my graphs" >"$HALFTAPE_GRAPHS"'
PYTHON=./python expect 0 "my graphs" "$root/scripts/compare_graphs_with_torch" build
PYTHON=./python HALFTAPE_TESTS=build/tests/halftape_tests expect 0 "my graphs" "$root/scripts/compare_graphs_with_torch"
stand_in cxx <<'END'
while [[ $# -gt 0 && $1 != -o ]]; do
  [[ $1 != -fsyntax-only ]] || { echo nodiscard >&2; exit 1; }
  [[ $1 != -isystem ]] || headers+=" $2"
  shift
done
printf '#!/bin/sh\necho "made with%s"\n' "${headers:-}" >"$2"
chmod +x "$2"
END
PYTHON=./python CXX=./cxx expect 0 "made with" "$root/extras/libtorch/test/run" wheel
expect 2 "extras/libtorch/test/run [debian]" "$root/extras/libtorch/test/run" debian whell
api=torch/include/torch/csrc/api/include
mkdir -p $api/torch && touch $api/torch/torch.h
TORCH=torch CXX=./cxx expect 0 "" "$root/scripts/module_texts"
texts=$(cat "$root/tests/vectors/module_texts.txt")
[[ $texts == "made with $PWD/torch/include $PWD/$api" ]] || fail "module_texts: $texts"
ln -s python "$work/bin/bare_python" && cp python "$work/bin/python"
for script in compare_amp_with_torch compare_scaler_with_torch; do
  PYTHON=bare_python expect 0 "" "$root/scripts/$script"
done

# ulp_table: prints the page, and nothing else.
stand_in "$root/build/ulp/tests/ulp_table" <<<'echo "every $1"; exit $CODE'
stand_in "$work/bin/cmake" <<<''
CODE=0 expect 0 "every 31" "$root/scripts/ulp_table"
CODE=0 expect 0 "every 1" "$root/scripts/ulp_table" 1
CODE=1 expect 1 "every 31" "$root/scripts/ulp_table"
expect 2 "usage: " "$root/scripts/ulp_table" all

# libtorch_examples: links that point nowhere, or elsewhere, are made anew.
mkdir -p examples/mnist mnist work/mnist
ln -s nowhere work/mnist/data
for _ in 1 2; do
  CODE=0 expect 1 "mnist: ends with" "$root/scripts/libtorch_examples" examples --prefix . --data mnist --work work mnist
  [[ work/mnist/data -ef mnist ]] || fail "work/mnist/data is $(readlink work/mnist/data)"
  ln -sfn / work/mnist/data
done
rm work/mnist/data && mkdir work/mnist/data
expect 1 "in the way" "$root/scripts/libtorch_examples" examples --prefix . --data mnist --work work mnist

# The file is tried before anything is graded or killed.
expect 2 "nowhere/a.txt" "$root/scripts/rank_faults" true 1 --out nowhere/a.txt
expect 1 "cannot be written" "$here/../../scripts/course" --build "$work/course" --grade --json nowhere/a.json
[[ ! -e $work/course ]] || fail "course: builds before it tries the file"
python3 "$here/functions.py" "$work"
echo "scripts: all as it should be"
