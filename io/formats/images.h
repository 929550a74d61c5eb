// Labelled grey images as plain bytes, as the readers of image sets return them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halftape/io/file/file.h"

namespace halftape::data {

/// Labelled grey images as bytes, row-major: pixels.size() == count * rows * cols.
struct Images {
  std::string name;                       // for a log line: "digits train"
  int64_t count = 0, rows = 0, cols = 0;  // images, and the size of each
  int classes = 10;                       // labels lie in 0..classes - 1
  int max_value = 255;                    // pixels lie in 0..max_value; divide by it for 0..1
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;  // (count,)
};

/// The two parts every experiment needs.
struct Split {
  Images train, test;
};

/// Thrown for data that is missing or damaged; the message names the file, what was expected, what
/// was found and the way out.
using DataError = FileError;

}  // namespace halftape::data
