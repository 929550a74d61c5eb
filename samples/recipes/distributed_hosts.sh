#!/usr/bin/env bash
# Four processes on two hosts, which are network namespaces with names that no one else knows, come
# to the weights of one process: distributed_hosts.sh PROGRAM. Exit code 77: no right to make them.
set -euo pipefail
program=$(realpath "$1") scratch=$(mktemp -d) tag=$$
hosts=("halftape-$tag-0" "halftape-$tag-1")
trap 'for h in "${hosts[@]}"; do ip netns delete "$h" 2>/dev/null || true; done; rm -rf "$scratch"' EXIT
command -v ip >/dev/null && unshare --uts true 2>/dev/null && ip netns add "${hosts[0]}" 2>/dev/null || exit 77
ip netns add "${hosts[1]}"
ip link add name link0 netns "${hosts[0]}" type veth peer name link1 netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" address add "10.77.0.$((i + 1))/24" dev "link$i"
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set "link$i" up
done
run() {  # HOST RANK SIZE FOLDER
  mkdir -p "$4"
  ip netns exec "${hosts[$1]}" unshare --uts sh -c "hostname ${hosts[$1]} && cd '$4' &&
    RANK=$2 WORLD_SIZE=$3 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 '$program' >$2.txt 2>&1"
}
run 0 0 1 "$scratch/alone"
processes=()
for rank in 0 1 2 3; do
  run $((rank / 2)) $rank 4 "$scratch/host$((rank / 2))" &
  processes+=($!)
done
for process in "${processes[@]}"; do
  wait "$process" || { tail -n 3 "$scratch"/host*/*.txt; exit 1; }
done
cat "$scratch/alone/0.txt"
diff <(grep 'sum of all weights' "$scratch/alone/0.txt") <(grep 'sum of all weights' "$scratch/host0/0.txt")
