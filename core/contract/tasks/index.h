// Random numbers, and the names in the message of an index out of range.
#pragma once
#include <cstdint>

namespace halftape {

enum class Distribution : uint8_t {
  Uniform,    // a + (b − a)·u, u in [0, 1)
  Normal,     // mean a, standard deviation b
  Bernoulli,  // 1 with probability a
  Bits,       // integers from a to b, both of which are some
};

/// The op and the argument that the message of an index out of range names:
/// "one_hot: class 7 at position 2 is out of range [0, 5)".
struct IndexUse {
  const char* op;
  const char* argument = "index";
};

}  // namespace halftape
