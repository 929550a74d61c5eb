# Linux on 64-bit Arm, under qemu. Read by scripts/cross.
system="Debian 12's aarch64-linux-gnu"
packages=(g++-aarch64-linux-gnu qemu-user)
compiler=(aarch64-linux-gnu-g++)
suites=(core cpu amp nn optim io autograd)
demo_options=(--hash)
bits=yes
emulator_says() { qemu-aarch64 --version; }

# zlib and MPFR of that system, without touching the packages of this one: apt gets a state of its own.
prepare() {
  local root=$PWD/build/cross-aarch64/arm64
  [ ! -e "$root/complete" ] || return 0
  mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" && : >"$root/apt/status" || return 1
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$root/apt" -o "Dir::Cache=$root/apt/cache"
             -o "Dir::State::status=$root/apt/status" -o APT::Sandbox::User=root)
  "${apt[@]}" update && (cd "$root/apt" && "${apt[@]}" download zlib1g-dev libmpfr-dev libgmp-dev) || return 1
  local package
  for package in "$root"/apt/*.deb; do dpkg-deb -x "$package" "$root" || return 1; done
  rm -r "$root/apt" "$root"/usr/lib/*/*.so  # what is left is linked statically
  touch "$root/complete"
}
