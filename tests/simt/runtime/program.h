// The names of the functions of the running program.
#pragma once
#include <string>

namespace simt {

/// The readable name of the function at this address, with template arguments and without
/// parameters: "halftape::cuda::map<float>". From the symbol table, which has static functions as
/// well.
std::string function_name(const void* address);

}  // namespace simt
