# Debian 13 with g++ 14 and its CMake, Eigen, fmt, CLI11 and doctest, in a bare system of its own. Needs root, as chroot does.
# Read by scripts/cross.
system="Debian 13, x86-64"
packages=(mmdebstrap)
compiler=(g++-14)
suites=(core amp)
system_root=$PWD/build/cross-gcc14-system
# This folder has the same path in that system; the mount ends with the command.
# shellcheck disable=SC2016
inside=(unshare --mount bash -c 'root=$0 here=$1 && shift && mount --bind "$here" "$root$here" && mount --bind /proc "$root/proc" && exec chroot "$root" env -C "$here" LC_ALL=C.UTF-8 "$@"'
        "$system_root" "$PWD")

prepare() {
  [ ! -e "$system_root/complete" ] || return 0
  rm -rf "$system_root"
  mmdebstrap --quiet --variant=apt \
    --include=g++,cmake,ninja-build,libeigen3-dev,libfmt-dev,libcli11-dev,zlib1g-dev,libgloo-dev,doctest-dev,libmpfr-dev,git \
    trixie "$system_root" </dev/null || return 1
  mkdir -p "$system_root$PWD" && touch "$system_root/complete"
}
