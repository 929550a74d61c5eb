// Everything a user needs, in one include.
#pragma once
// One sentence here, instead of hundreds of errors from the headers.
#if defined(_MSC_VER)
#error "halftape needs GCC or Clang: on Windows use MinGW-w64, such as that of MSYS2"
#elif __cplusplus < 202002L
#error "halftape needs C++20: compile with -std=c++20, or in CMake link halftape::halftape"
#elif !defined(__cpp_exceptions)
#error "halftape reports errors by exceptions: compile without -fno-exceptions"
#elif !defined(__cpp_rtti)
#error "halftape needs run-time type information: compile without -fno-rtti"
#else
#include "halftape/amp/amp.h"
#include "halftape/autograd/autograd.h"
#include "halftape/core/core.h"
#include "halftape/cuda/cuda.h"
#include "halftape/distributed/distributed.h"
#include "halftape/io/io.h"
#include "halftape/nn/nn.h"
#include "halftape/optim/optim.h"
#endif
