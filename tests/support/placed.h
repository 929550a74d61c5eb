// Calls of the contract on arrays in every layout: the results must have the same bits for any
// layout, alignment and number of threads, and no byte beside an output may change.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/many.h"

namespace halftape::testing {

using Arrays = std::vector<Array>;
inline Backend& tested() { return backend(get_default_device()); }

/// A call that reads `in`, and writes `out` or changes it in place.
struct PlacedCall {
  std::string name;
  Arrays out, in;
  std::function<void(const Arrays& y, const Arrays& x)> go;
  bool rows_out = false;  // outputs are only tried contiguous
};
/// Runs the call with 1 to 8 threads on contiguous, shifted, transposed, stepped and repeated
/// arrays, and checks that all results have the same bits.
void check(const PlacedCall& c);

/// The array with all bytes of its buffer, on the tested device.
Array there(const Array& a);
/// Numbers of every kind, the same for the same seed: mostly in [-8, 8), a few of them special.
Array numbers(const Shape& shape, Dtype dtype, uint32_t seed = 1, bool special = true);
/// The same with 1 instead of 0, to divide by.
Array divisors(const Shape& shape, Dtype dtype, uint32_t seed);
/// int64 in [0, limit).
Array integers(const Shape& shape, int64_t limit, uint32_t seed = 1);

inline const std::vector<Dtype> floats = {kFloat32, kFloat64, kFloat16, kBFloat16};
inline const std::vector<Dtype> whole = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64};
// Around a chunk of 32 lanes and across the tiles of 16384 elements; dimensions that merge and that
// do not.
inline const std::vector<Shape> small = {{},   {0},    {1},       {7},     {31},
                                         {33}, {1000}, {3, 0, 2}, {7, 33}, {3, 5, 2}};
inline std::vector<Shape> large() {
  return {{many(100003, 70001)}, {517, many(193, 33)}, {2, many(20011, 5003)}};
}

}  // namespace halftape::testing
