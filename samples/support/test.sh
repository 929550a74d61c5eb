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

interrupted() { stopped_by INT 130 "$@"; }  # interrupted ARGS...: by Ctrl-C; as stopped_by
stopped_by() {  # stopped_by SIGNAL CODE ARGS...: the signal as soon as the program listens for it; exit code CODE. False where that cannot be seen
  local signal=$1 code=$2
  shift 2
  [ -r /proc/self/status ] || return
  set -m  # a shell's background ignores Ctrl-C otherwise
  "$program" "$@" >interrupted.log &
  set +m
  until [ "/proc/$!/exe" -ef "$program" ] && grep -q 'SigCgt:.*[2367abef]$' "/proc/$!/status"; do
    kill -0 $! || fail "it ends by itself"
    sleep 0.05
  done
  kill -"$signal" $!
  wait $!
  [ $? = "$code" ] || fail "exit code $code after SIG$signal"
}
