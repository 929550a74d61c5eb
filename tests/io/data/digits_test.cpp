// The embedded digits: the bytes of scikit-learn's, and the documented split.
#include "halftape/io/data/sets/image_sets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

using halftape::data::digits;
using halftape::data::Images;
using halftape::data::Split;

namespace {

// CRC-32 as in Python's zlib.crc32.
uint32_t crc32(std::span<const uint8_t> bytes, uint32_t crc = 0) {
  crc = ~crc;
  for (uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::array<int, 10> per_class(const Images& part) {
  std::array<int, 10> counts{};
  for (uint8_t label : part.labels) ++counts.at(label);
  return counts;
}

}  // namespace

// The expected counts and check sums below are printed by
//   venv/bin/pip install scikit-learn==1.9.1 && venv/bin/python scripts/make_digits.py
// which computes them from load_digits(), not from the table it writes.

TEST_CASE("digits are 1442 training and 355 test images of 8x8 with 17 levels") {
  const Split split = digits();
  CHECK(split.train.count == 1442);
  CHECK(split.test.count == 355);
  CHECK(split.train.name == "digits train");
  CHECK(split.test.name == "digits test");
  for (const Images* part : {&split.train, &split.test}) {
    CAPTURE(part->name);
    CHECK(part->rows == 8);
    CHECK(part->cols == 8);
    CHECK(part->classes == 10);
    CHECK(part->max_value == 16);
    REQUIRE(part->pixels.size() == static_cast<size_t>(part->count * 64));
    REQUIRE(part->labels.size() == static_cast<size_t>(part->count));
    CHECK(*std::min_element(part->pixels.begin(), part->pixels.end()) == 0);
    CHECK(*std::max_element(part->pixels.begin(), part->pixels.end()) == 16);
    CHECK(*std::max_element(part->labels.begin(), part->labels.end()) == 9);
  }
}

TEST_CASE("every fifth digit of each class is a test image") {
  const Split split = digits();
  CHECK(per_class(split.train) ==
        std::array<int, 10>{143, 146, 142, 147, 145, 146, 145, 144, 140, 144});
  CHECK(per_class(split.test) == std::array<int, 10>{35, 36, 35, 36, 36, 36, 36, 35, 34, 36});
}

TEST_CASE("digits are byte for byte those of scikit-learn") {
  const Split split = digits();
  CHECK(crc32(split.train.labels, crc32(split.train.pixels)) == 0xb558d49eu);
  CHECK(crc32(split.test.labels, crc32(split.test.pixels)) == 0x63f0d0b3u);
}

TEST_CASE("the first training digit is the familiar zero") {
  const Split split = digits();
  // load_digits().images[0]
  const std::vector<uint8_t> zero = {
      0, 0, 5,  13, 9,  1,  0, 0,  //
      0, 0, 13, 15, 10, 15, 5, 0,  //
      0, 3, 15, 2,  0,  11, 8, 0,  //
      0, 4, 12, 0,  0,  8,  8, 0,  //
      0, 5, 8,  0,  0,  9,  8, 0,  //
      0, 4, 11, 0,  1,  12, 7, 0,  //
      0, 2, 14, 5,  10, 12, 0, 0,  //
      0, 0, 6,  13, 10, 0,  0, 0,
  };
  CHECK(std::vector<uint8_t>(split.train.pixels.begin(), split.train.pixels.begin() + 64) == zero);
  CHECK(split.train.labels[0] == 0);
}
