# Clang 19 with LLVM's C++ library. Read by scripts/cross.
system="Debian 12, x86-64, libc++ 19"
packages=(clang-19 libc++-19-dev libc++abi-19-dev)
compiler=(clang++-19)
suites=(core autograd amp nn)
