// Decodes the embedded digits and splits them.
#include "halftape/io/data/sets/image_sets.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace halftape::data {
namespace {

constexpr size_t kPixels = 64;
constexpr char kSamples[][kPixels + 2] = {
// pixels, label, terminator
#include "halftape/io/data/sets/digits_data.inc"
};
static_assert(std::size(kSamples) == 1797);

uint8_t decode(size_t sample, size_t column) {
  constexpr std::string_view kLevels = "0123456789abcdefg";
  const std::string_view allowed = column < kPixels ? kLevels : kLevels.substr(0, 10);
  const char c = kSamples[sample][column];
  const size_t value = allowed.find(c);  // also npos for the terminator of a row too short
  if (value == std::string_view::npos) {
    throw DataError("digits: io/data/sets/digits_data.inc, sample " + std::to_string(sample) +
                    ", column " + std::to_string(column) + ": expected one of '" +
                    std::string(allowed) + "', found character code " +
                    std::to_string(static_cast<unsigned char>(c)) +
                    "; make the table again with scripts/make_digits.py");
  }
  return static_cast<uint8_t>(value);
}

Images empty(const char* name) {
  return {.name = name, .rows = 8, .cols = 8, .max_value = 16, .pixels = {}, .labels = {}};
}

}  // namespace

Split digits() {
  Split split{.train = empty("digits train"), .test = empty("digits test")};
  std::array<int, 10> seen{};  // per class
  for (size_t i = 0; i < std::size(kSamples); ++i) {
    const uint8_t label = decode(i, kPixels);
    Images& part = ++seen[label] % 5 == 0 ? split.test : split.train;
    for (size_t p = 0; p < kPixels; ++p) part.pixels.push_back(decode(i, p));
    part.labels.push_back(label);
    ++part.count;
  }
  return split;
}

}  // namespace halftape::data
