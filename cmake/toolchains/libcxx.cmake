# Clang 19 with LLVM's C++ library. Debian's fmt is compiled against GNU's, so it is used by its headers alone.
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_FLAGS_INIT -stdlib=libc++)
include(${CMAKE_CURRENT_LIST_DIR}/host_headers.cmake)
