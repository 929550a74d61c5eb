# What the tests of samples share; they source it: a folder to work in, and promises that several programs make.
set -uo pipefail
program=$1
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $1"; exit 1; }

refused() {  # refused WHAT TEXT ARGS...: exit code 2, TEXT in the message, and no file $report is written
  local what=$1 text=$2 name=${program##*/}
  shift 2
  message=$("$program" "$@" 2>&1 >/dev/null)
  code=$?
  [ "$code" = 2 ] || fail "$what: exit code $code: $message"
  grep -qi -- "$text" <<<"$message" || fail "$what: \"$text\" is not in: $message"
  grep -q "$name: $name:" <<<"$message" && fail "$what: the program's name twice: $message"
  [ ! -e "${report:-}" ] || fail "$what: a report was written"
  echo "$what: $message" | head -n 1 | cut -c1-300
}

manual_names_options() {  # manual_names_options PAGE: the options in the headings of a manual page are those of --help
  local page help
  page=$(grep -A 1 '^\.TP' "$1" | grep -oE '\\-\\-[a-z\-]+' | tr -d '\\' | sort)
  help=$("$program" --help | grep -oE '^  (-h,)?--[a-z-]+' | grep -oE -- '--[a-z-]+$' | sort)
  [ -n "$help" ] && [ "$page" = "$help" ] || fail "$1 and --help differ: $(diff <(echo "$page") <(echo "$help"))"
}

unwritten() {  # unwritten ARGS...: exit code 1 and a message where the disk of standard output is full
  [ -c /dev/full ] || return 0
  message=$("$program" "$@" 2>&1 >/dev/full)
  code=$?
  [ "$code" = 1 ] || fail "a full disk: exit code $code: $message"
  grep -q "^${program##*/}: standard output cannot be written" <<<"$message" || fail "a full disk: $message"
}

interrupted() { stopped_by INT 130 "$@"; }  # interrupted ARGS...: by Ctrl-C; as stopped_by
stopped_by() {  # stopped_by SIGNAL CODE ARGS...: the signal as soon as the program listens for it; exit code CODE. False where that cannot be seen
  local signal=$1 code=$2
  shift 2
  [ -r /proc/self/status ] || return
  set -m  # a shell's background ignores Ctrl-C otherwise
  "$program" "$@" >interrupted.log &
  set +m
  listens $!
  kill -"$signal" $!
  wait $!
  [ $? = "$code" ] || fail "exit code $code after SIG$signal"
}
listens() {  # listens PID: waits until that process handles SIGINT
  until [ "/proc/$1/exe" -ef "$program" ] && grep -q 'SigCgt:.*[2367abef]$' "/proc/$1/status"; do
    kill -0 "$1" || fail "it ends by itself"
    sleep 0.05
  done
}

start_ranks() {  # start_ranks SIZE ARGS...: so many processes that train together; their numbers are $ranks, their words in rank0.log, rank1.log, ...
  local size=$1 rank meeting
  shift
  meeting=$(mktemp -d "$work/meeting.XXX")
  ranks=()
  set -m
  for ((rank = 0; rank < size; ++rank)); do
    RANK=$rank WORLD_SIZE=$size HALFTAPE_STORE="file://$meeting" "$program" "$@" >"rank$rank.log" 2>&1 &
    ranks+=($!)
  done
  set +m
}
end_ranks() {  # end_ranks CODES: waits for the ranks, whose exit codes are CODES, such as "0 0"
  local codes=() rank
  for rank in "${ranks[@]}"; do
    wait "$rank"
    codes+=($?)
  done
  [ "${codes[*]}" = "$1" ] || fail "the ranks end with ${codes[*]}, not $1: $(cat rank*.log)"
}
