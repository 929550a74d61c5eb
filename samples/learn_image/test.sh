#!/usr/bin/env bash
# In small: the picture is learnt and drawn, a picture from a file too, and bad input is named with exit code 2.
source "$(dirname "$0")/../support/test.sh"
small="--threads 1 --batch-size 512 --hidden 64 --frequencies 32"

"$program" --steps 2 | tail -n 1 | grep -q '^PSNR' || fail "two steps"
[ "$(head -c 4 learn_image.png | tail -c 3)" = PNG ] || fail "the picture is a PNG"
for precision in float32 fp16 amp bf16; do
  last=$("$program" $small --steps 250 --precision $precision | tail -n 1)
  echo "$precision: $last"
  awk '{ exit !($2 > 23) }' <<<"$last" || fail "above 23 dB: $last"
done
{ printf 'P6\n16 8\n255\n'; for y in {1..8}; do for x in {1..16}; do printf "\\x$(printf %x $((x * 15)))\\x40\\x$(printf %x $((y * 30)))"; done; done; } >ramp.ppm
last=$("$program" $small --steps 200 --deviation 1 --image ramp.ppm --out out.ppm | tail -n 1)
echo "a ramp from a file: $last"
awk '{ exit !($2 > 30) }' <<<"$last" || fail "a ramp above 30 dB: $last"
head -n 2 out.ppm | tail -n 1 | grep -qx '608 192' || fail "two pictures of 16 x 8 with borders, sixteen times as large"

if interrupted $small --steps 10000000 --out stopped.png; then
  grep -q '^stopped.png: .*; stopped after [0-9]* of 10000000 steps$' interrupted.log || fail "Ctrl-C is told: $(cat interrupted.log)"
  [ -s stopped.png ] || fail "the picture is kept after Ctrl-C"
fi

echo '<!DOCTYPE html>' >page.png
refused "a file that is not there" "nowhere.png" --image nowhere.png
refused "a file that is no picture" "expected a PNG" --image page.png
refused "a folder that is not there" "nowhere" --steps 1 --out nowhere/picture.png
refused "a name that is none of a picture" ".png" --steps 1 --out picture.gif
refused "colours in a format of greys" "name a .png or .ppm" --out picture.pgm
{ printf 'P5\n2 2\n255\n'; printf 'abcd'; } >grey.pgm
refused "greys in a format of colours" "name a .png or .pgm" --image grey.pgm --out picture.ppm
cp ramp.ppm kept.ppm
refused "the picture as output" "that is the file of --image; name another one" --image ramp.ppm --out ramp.ppm
cmp -s ramp.ppm kept.ppm || fail "the input is as it was"
HALFTAPE_CUDA_LIBRARY=nowhere.so refused "a GPU that cannot be used" "cuda:0 is not available.*nowhere.so" --device cuda
echo "learn_image keeps its promises"
