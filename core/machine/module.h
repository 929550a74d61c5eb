// Parts of the library that are files of their own, loaded when a program asks for them: the CUDA
// backend, the engines of distributed/.
#pragma once
#include <string>

namespace halftape::detail {

/// A part "cuda" is libhalftape_cuda.so with the C functions halftape_cuda_version and
/// halftape_cuda_open; the environment variable HALFTAPE_CUDA_LIBRARY names another file.
struct Module {
  std::string name;
  std::string what;  // "the CUDA backend", in messages
  int version;       // that its halftape_<name>_version() must return
  /// A library of the system without which the part is not even looked for, and what to say then.
  std::string needs = "", without = "";
};

/// Loads the part for the rest of the process and returns the address of its halftape_<name>_open.
/// Null, with the reason, if there is none or it is another version's.
void* load_module(const Module& module, std::string& why_not);

}  // namespace halftape::detail
