# Debian 13's g++ 14, in a system of its own (tests/cross/gcc14.sh).
set(CMAKE_CXX_COMPILER g++-14)
