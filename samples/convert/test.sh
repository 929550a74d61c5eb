#!/usr/bin/env bash
# A file that torch wrote goes through all formats and comes back as it was; what a cast loses is counted; the input
# stays; bad input is named with exit code 2.
files=$(cd "$(dirname "$0")/../../tests/vectors/pt" && pwd) || exit 1
manual=$(cd "$(dirname "$0")" && pwd)/halftape-convert.1
source "$(dirname "$0")/../support/test.sh"

manual_names_options "$manual"

convert() { "$program" "$@" || fail "$*"; }
out=$("$program" "$files/mlp_float32_zip.pt" --list) || fail "--list: $out"
grep -qE '^model.0.weight +float32 +\[5, 6\] +120$' <<<"$out" || fail "a weight is listed: $out"
grep -qx 'epoch = 3' <<<"$out" || fail "a number is listed: $out"
[ "$(tail -n 1 <<<"$out")" = "6 tensors, 356 bytes" ] || fail "the sum comes last: $out"

# There and back: through each format, and from the old form of a .pt file. Equal files hold equal bytes.
convert "$files/mlp_float32_zip.pt" --key model --out a.safetensors >log
grep -q '^left out' log && fail "no number lies below the key: $(cat log)"
convert a.safetensors --out b.npz >log
grep -q '^left out' log && fail "a safetensors file's own mark is no loss: $(cat log)"
convert b.npz --out c.pt >/dev/null
convert c.pt --out d.safetensors >/dev/null
cmp a.safetensors d.safetensors || fail "four conversions change the file"
convert "$files/mlp_float32_legacy.pt" --key model --out e.safetensors >/dev/null
cmp a.safetensors e.safetensors || fail "both forms of a .pt file hold the same"
convert b.npz --key 0 --out f.npz >/dev/null
[ "$("$program" f.npz --list | tail -n 1)" = "2 tensors, 140 bytes" ] || fail "--key of an .npz"
convert "$files/mlp_float32_zip.pt" --key y --out y.npy >/dev/null
convert y.npy --out y.pt >/dev/null
"$program" y.pt --list | grep -qE '^tensor +float32 +\[4, 3\] +48$' || fail "one tensor through .npy"
[ "$("$program" "$files/mlp_float32_zip.pt" --out whole.npz | head -n 1)" = "left out: one number or text (--list shows it)" ] ||
  fail "what is left out is said"

# A cast says what it loses: of 3, 70000, -1e-9 and inf, float16 makes 3, inf, -0 and inf.
python3 - <<'EOF' || exit 0  # without Python, what follows is left out
import json, struct
header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                     "n": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]},
                     "__metadata__": {"note": "\x1b[31m \u009b31m \u00e4"}}, ensure_ascii=False).encode()
open("in.safetensors", "wb").write(struct.pack("<Q", len(header)) + header +
                                   struct.pack("<4fq", 3, 70000, -1e-9, float("inf"), 1 << 40))
EOF
out=$("$program" in.safetensors --dtype float16 --out half.npz) || fail "--dtype: $out"
grep -qx 'w: 1 became infinite, 1 became 0' <<<"$out" || fail "losses by tensor: $out"
"$program" in.safetensors --list | grep -qxF 'note = ?[31m ?31m ä' || fail "a text commands the terminal"
grep -qx 'float16: of 4 numbers 1 became infinite and 1 became 0' <<<"$out" || fail "losses in all: $out"
[ "$("$program" in.safetensors --dtype bfloat16 --list | head -n 1)" = "bfloat16: of 4 numbers 0 became infinite and 0 became 0" ] ||
  fail "bfloat16 loses none"
"$program" half.npz --list | grep -qE '^w +float16 +\[4\] +8$' || fail "the cast is written"
"$program" half.npz --list | grep -qE '^n +int64' || fail "integers stay"

cp in.safetensors before
refused "the input as output" "name another file" in.safetensors --out in.safetensors
ln in.safetensors link.safetensors
refused "the input by another name" "name another file" in.safetensors --out link.safetensors
cmp in.safetensors before || fail "the input changed"
cp before x.safetensors.partial
refused "the input where the output is written" "name another file" x.safetensors.partial --out x.safetensors
cmp x.safetensors.partial before || fail "an input called .partial changed"
rm x.safetensors.partial
"$program" in.safetensors --key w --list | grep -qE '^tensor +float32' || fail "--key of one tensor"
refused "nothing to do" "--list" in.safetensors
refused "an unknown format" "ends in" in.safetensors --out x.onnx
refused "bfloat16 for NumPy" "add --dtype float32" in.safetensors --dtype bfloat16 --out x.npz
refused "several tensors in one array" "name an .npz" in.safetensors --out x.npy
refused "an unknown key" "--list shows" in.safetensors --key model --out x.pt
refused "an unknown key of a .pt file" "at the top are" c.pt --key model --out x.pt
refused "an integer dtype" "int64" in.safetensors --dtype int64 --out x.pt
refused "a missing file" "found nothing" nowhere.pt --list
refused "an output in no folder" "no such file" in.safetensors --out nowhere/x.pt
printf 'GGUF\003' >model.gguf
refused "a quantized model" "GGUF" model.gguf --list
refused "text" "text" "$0" --list
printf '\200\002cos\nsystem\nX\004\000\000\000echo\205R.' >evil.pkl
refused "a pickle" "pickle" evil.pkl --list
python3 - <<'EOF' || exit 1
import struct, zipfile
head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
with zipfile.ZipFile("named.npz", "w") as file:
    file.writestr("__metadata__.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + head + bytes(4))
EOF
refused "a name that the output cannot have" "cannot be called" named.npz --out x.safetensors
compgen -G "x.*" && fail "a refused run left a file"
echo "halftape-convert keeps its promises"
