#!/usr/bin/env bash
# distributed.sh PROGRAM: the recipe ends with the same weights for any number of processes, and when
# it is resumed by another number.
set -euo pipefail
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# ranks SIZE NAME ARGUMENTS...: the output of rank 0
ranks() {
  local size=$1 name=$2 pids=() rank
  shift 2
  for ((rank = 0; rank < size; ++rank)); do
    RANK=$rank WORLD_SIZE=$size HALFTAPE_STORE="file://$scratch/meeting-$name" "$program" "$@" >"$scratch/$name.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || { cat "$scratch/$name".*; exit 1; }
  done
  cat "$scratch/$name.0"
}

alone=$(ranks 1 one)
echo "$alone"
for size in 2 4 8; do
  [ "$(ranks $size "of-$size")" = "$alone" ] || { echo "$size processes end elsewhere"; cat "$scratch/of-$size.0"; exit 1; }
done
ranks 4 first "$scratch/run" 100 >/dev/null
ranks 2 second "$scratch/run" 200 >/dev/null
[ "$(ranks 8 third "$scratch/run" 300)" = "$alone" ] || { echo "a resumed run ends elsewhere"; cat "$scratch/third.0"; exit 1; }
echo "the same weights by 1, 2, 4 and 8 processes, and by 4, then 2, then 8"
