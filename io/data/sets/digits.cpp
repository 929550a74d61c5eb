// Decodes the embedded digits and splits them.
#include "halftape/io/data/sets/image_sets.h"

#include <array>
#include <cstddef>
#include <string_view>

namespace halftape::data {
namespace {

constexpr size_t kPixels = 64;
constexpr char kSamples[][kPixels + 2] = {
// pixels, label, terminator
#include "halftape/io/data/sets/digits_data.inc"
};
static_assert(std::size(kSamples) == 1797);

uint8_t decode(char level) {
  return static_cast<uint8_t>(std::string_view("0123456789abcdefg").find(level));
}

Images empty(const char* name) {
  return {.name = name, .rows = 8, .cols = 8, .max_value = 16, .pixels = {}, .labels = {}};
}

}  // namespace

Split digits() {
  Split split{.train = empty("digits train"), .test = empty("digits test")};
  std::array<int, 10> seen{};  // per class
  for (const auto& sample : kSamples) {
    const uint8_t label = decode(sample[kPixels]);
    Images& part = ++seen[label] % 5 == 0 ? split.test : split.train;
    for (size_t p = 0; p < kPixels; ++p) part.pixels.push_back(decode(sample[p]));
    part.labels.push_back(label);
    ++part.count;
  }
  return split;
}

}  // namespace halftape::data
