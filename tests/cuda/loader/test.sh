#!/usr/bin/env bash
# Where libhalftape_cuda.so is loaded from, and where not, with a planted one in each place:
#     test.sh PROGRAM PLANTED DRIVER FOLDER RPATH
# The linker of PROGRAM wrote FOLDER/linked into it, $ORIGIN/own, and "here", which is no absolute path. That of RPATH, the same
# program, wrote FOLDER/linked as linkers once did.
set -euo pipefail
program=$1 planted=$2 driver=$3 folder=$4 rpath=$5
rm -rf "$folder"
mkdir -p "$folder/driver" "$folder/apart"
cp "$driver" "$folder/driver/libcuda.so.1"
export LD_LIBRARY_PATH=$folder/driver HALFTAPE_PLANTED_MARK=$folder/mark
unset HALFTAPE_CUDA_LIBRARY
failed=0

put() { mkdir -p "$1" && cp "$program" "$1/program"; }                # the program into a folder
plant() { mkdir -p "$1" && cp "$planted" "$1/libhalftape_cuda.so"; }  # the library into a folder
remove() { rm -rf "$folder"/{place,linked,mark}; }
# loaded|ignored WHAT COMMAND...: whether the planted library's constructor runs
check() {
  local wanted=$1 what=$2 seen=ignored
  shift 2
  timeout 60 "$@" >"$folder/output" || { echo "$what: the program failed" && failed=1; }
  [ ! -e "$folder/mark" ] || seen=loaded
  if [ "$seen" = "$wanted" ]; then echo "$what: $seen"; else echo "$what: $seen, expected $wanted: $(cat "$folder/output")" && failed=1; fi
  remove
}
# What the program printed last.
says() { grep -q "$1" "$folder/output" || { echo "the program does not say \"$1\": $(cat "$folder/output")" && failed=1; }; }
place=$folder/place

put "$place/bin" && plant "$place/here"
cd "$place/here"
PATH=$place/bin:$PATH check ignored "the current folder, started through PATH" program
cd "$folder/apart"
put "$place/bin" && plant "$place/here" && ln -s ../bin/program "$place/here/program"
check ignored "the folder of a link to the program" "$place/here/program"
put "$place/bin" && plant "$place/here"
check ignored "the folder of the name that the program is given" bash -c "exec -a '$place/here/program' '$place/bin/program'"
put "$place/x" && plant "$place/lib"
check ignored "lib beside the folder of a program that is not in bin" "$place/x/program"
says "is not installed"
says "HALFTAPE_CUDA_LIBRARY names it"
put "$place/x" && plant "$place/here"
cd "$place"
check ignored "a folder of the run path that is not absolute" "$place/x/program"
cd "$folder/apart"
put "$place/x" && mkdir "$folder/linked" && mkfifo "$folder/linked/libhalftape_cuda.so"
check ignored "a pipe in a folder of the run path" "$place/x/program"
put "$place/x" && mkfifo "$place/x/libhalftape_cuda.so"
check ignored "a pipe" "$place/x/program"
put "$place/x" && plant "$place/x" && chmod o+w "$place/x/libhalftape_cuda.so"
check ignored "a file that everybody may write" "$place/x/program"
put "$place/x" && plant "$folder/linked" && chmod o+w "$folder/linked/libhalftape_cuda.so"
check ignored "a file that everybody may write, in a folder of the run path" "$place/x/program"
says "is not loaded from $folder/linked/libhalftape_cuda.so: it must be a file of root or of the owner of $place/x/program"
if [ "$(id -u)" = 0 ]; then
  put "$place/x" && plant "$place/x" && chown 12345 "$place/x/libhalftape_cuda.so"
  check ignored "another user's file beside the program" "$place/x/program"
  put "$place/x" && plant "$place/x" && chgrp 12345 "$place/x/libhalftape_cuda.so" && chmod g+w "$place/x/libhalftape_cuda.so"
  check ignored "a file that another group may write" "$place/x/program"
  put "$place/x" && plant "$place/own" && ln -s ../own/libhalftape_cuda.so "$place/x" && chown -h 12345 "$place/x/libhalftape_cuda.so"
  check ignored "another user's link to our file" "$place/x/program"
  put "$place/bin" && plant "$place/lib" && chown 12345 "$place/lib/libhalftape_cuda.so"
  check ignored "another user's file in lib" "$place/bin/program"
  # As after a build was deleted: whoever may write the folder that it was in makes another there.
  put "$place/x" && plant "$folder/linked" && chown -R 12345 "$folder/linked"
  check ignored "another user's file in a folder of the run path" "$place/x/program"
  says "is not loaded from $folder/linked/libhalftape_cuda.so: it must be a file of root or of the owner of $place/x/program"
  # A real user that is not the effective one: so the kernel starts it as a program with the set-user-ID bit.
  if command -v setpriv >/dev/null; then
    put "$place/x" && plant "$place/here"
    HALFTAPE_CUDA_LIBRARY=$place/here/libhalftape_cuda.so check ignored "HALFTAPE_CUDA_LIBRARY, for a program with another's rights" \
      setpriv --ruid=12345 "$place/x/program"
  fi
fi
put "$place/x" && plant "$place/here"
cd "$place/here"
LD_LIBRARY_PATH=$LD_LIBRARY_PATH: check ignored "the current folder, in the system's search path" "$place/x/program"
cd "$folder/apart"

put "$place/x" && plant "$place/x"
check loaded "the program's folder" "$place/x/program"
put "$place/bin" && plant "$place/lib"
check loaded "lib beside the program's bin" "$place/bin/program"
put "$place/x" && plant "$folder/linked"
check loaded "a folder that the program's linker wrote into it" "$place/x/program"
put "$place/x" && plant "$place/x/own"
check loaded "a folder of the run path below the program's own" "$place/x/program"
mkdir -p "$place/x" && cp "$rpath" "$place/x/program" && plant "$folder/linked"
check loaded "a folder that an older linker wrote into the program" "$place/x/program"
put "$place/x" && plant "$place/x"
HALFTAPE_CUDA_LIBRARY='' check loaded "the program's folder, though HALFTAPE_CUDA_LIBRARY is set to nothing" "$place/x/program"
if [ "$(id -u)" = 0 ]; then
  put "$place/x" && chown 12345 "$place/x/program" && plant "$folder/linked"
  check loaded "root's file in a folder of the run path, for a user's program" "$place/x/program"
  put "$place/x" && chown 12345 "$place/x/program" && plant "$folder/linked" && chown -R 12345 "$folder/linked"
  check loaded "a user's own file in a folder of the run path, for the user's program" "$place/x/program"
fi
put "$place/x" && plant "$place/here"
HALFTAPE_CUDA_LIBRARY=$place/here/libhalftape_cuda.so check loaded "HALFTAPE_CUDA_LIBRARY" "$place/x/program"
exit $failed
