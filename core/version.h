// The version, and what the language must offer. CMakeLists.txt reads the numbers here.
#pragma once

// Of these headers. version() tells that of the library.
#define HALFTAPE_VERSION_MAJOR 0
#define HALFTAPE_VERSION_MINOR 1
#define HALFTAPE_VERSION_PATCH 0
#define HALFTAPE_VERSION "0.1.0"

namespace halftape {

/// The version of the library that the program runs with, such as "0.1.0". A program that was
/// compiled with other headers than its shared library's compares it with HALFTAPE_VERSION.
const char* version();

}  // namespace halftape
