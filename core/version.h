// The version. CMakeLists.txt reads it here, and scripts/release writes it.
#pragma once

/// The first number of the version of these headers; version() tells that of the library.
#define HALFTAPE_VERSION_MAJOR 0
/// The second number.
#define HALFTAPE_VERSION_MINOR 1
/// The third number.
#define HALFTAPE_VERSION_PATCH 0
/// All three, as text.
#define HALFTAPE_VERSION "0.1.0"

namespace halftape {

/// The version of the library that the program runs with, such as "0.1.0". A program that was
/// compiled with other headers than its shared library's compares it with HALFTAPE_VERSION.
const char* version();

}  // namespace halftape
