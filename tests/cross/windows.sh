# Windows, by MinGW-w64's GCC, under Wine. Read by scripts/cross.
system="Windows on x86-64, by Debian 12's MinGW-w64"
packages=(g++-mingw-w64-x86-64-posix libz-mingw-w64-dev wine)
compiler=(x86_64-w64-mingw32-g++-posix)
suites=(core cpu autograd amp nn optim io)
export WINEPREFIX=$PWD/build/cross-windows/wine WINEDEBUG=-all
emulator_says() { wine --version; }
prepare() { mkdir -p "$WINEPREFIX"; }
