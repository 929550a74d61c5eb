// Reads MNIST, Fashion-MNIST and their like: IDX files of unsigned bytes, plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
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
  Images train, test;  // to learn from; to be judged by
};

/// The four files of MNIST, or of a set published under the same names, from `folder`:
/// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
/// t10k-labels-idx1-ubyte; each may carry a dot for the dash before "idx", and a .gz at the end.
/// If several forms of one file are there, a plain one is read.
/// Throws DataError if a file is missing, damaged, or disagrees with its partner. Writes nothing.
Split mnist(const std::filesystem::path& folder);

/// One pair of IDX files: unsigned bytes (count, rows, cols) and labels 0..9 (count,).
/// Whether a file is gzipped is read from its content, as some downloads are unpacked on the way.
/// Throws DataError as mnist() does.
Images read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Whether this build reads gzipped files; without zlib they are refused with a message.
bool reads_gzip();

}  // namespace halftape::data
