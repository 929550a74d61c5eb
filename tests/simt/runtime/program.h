// What the running program says about itself: the names of its functions.
#pragma once
#include <string>

namespace simt {

/// The readable name of the function at this address, with its template arguments and without its
/// parameters: "halftape::cuda::map<float>". From the symbol table, so static functions count.
std::string function_name(const void* address);

}  // namespace simt
