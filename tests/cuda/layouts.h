// Arrays of many layouts and dtypes, for tests of kernels against the CPU's.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"

namespace halftape::testing::array_layouts {

using testing::differ;
using testing::kFloats, testing::kMostDtypes;
using testing::kInf, testing::kNaN;
using testing::normal;

constexpr OpId kSumOp = ReduceOps::index<formula::Sum>(),
               kProdOp = ReduceOps::index<formula::Prod>(),
               kMaxOp = ReduceOps::index<formula::Max>(), kMinOp = ReduceOps::index<formula::Min>();

inline Backend& gpu() { return backend(kCUDA); }

/// Whole numbers, whose sums are exact in every order.
inline Array whole(const Shape& shape, Dtype dtype, double low = -8, double high = 9,
                   uint64_t seed = 1) {
  Array x(shape, kFloat32, kCPU);
  cpu_backend().random(x, Distribution::Bits, low, high - 1, {seed, 0});
  return x.to(dtype);
}
/// ±1, and ±2 here and there: products are exact.
inline Array signs(const Shape& shape, Dtype dtype) {
  const Array x = whole(shape, kFloat32, 0, 2);
  float* v = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    v[i] = (v[i] == 0 ? 1.0f : -1.0f) * (i % 997 == 5 ? 2.0f : 1.0f);
  return x.to(dtype);
}
inline Array filled(const Shape& shape, Dtype dtype, double value, Device device) {
  return full(shape, value, dtype, device);
}
inline std::string differ(const Array& got, const Array& expected,
                          testing::Tolerance allowed = {}) {
  return differ(Tensor(got.to(kCPU)), Tensor(expected.to(kCPU)), allowed);
}
/// A strided array y; the elements between its own must stay as they are.
struct Spaced {
  Array all, y;
  Spaced(const Shape& shape, Dtype dtype, Device device) {
    Shape wide = shape;
    wide.push_back(2);
    all = filled(wide, dtype, 7, device);
    y = all.select(all.dim() - 1, 1);
  }
  void check_neighbours() const {
    const Array left = all.select(all.dim() - 1, 0);
    CHECK(differ(left, filled(left.shape(), left.dtype(), 7, kCPU)) == "");
  }
};

/// A layout: lay() copies an array into it and keeps the shape.
struct Layouts {
  const char* name;
  Array (*lay)(const Array&);
};
const std::vector<Layouts> layouts = {
    {"contiguous", [](const Array& x) { return x; }},
    {"misaligned",
     [](const Array& x) {
       Array buffer({x.numel() + 1}, x.dtype(), x.device());
       const Array y = buffer.as_strided(x.shape(), contiguous_strides(x.shape()), 1);
       backend(x.device()).copy(y, x);
       return y;
     }},
    {"backwards in memory order",
     [](const Array& x) {
       Dims order;
       for (int d = x.dim() - 1; d >= 0; --d) order.push_back(d);
       return x.permute(order).clone().permute(order);
     }},
    {"every second",
     [](const Array& x) {
       Shape wide = x.shape();
       if (wide.empty()) return x;
       wide[wide.size() - 1] *= 2;
       const Array all = full(wide, 3, x.dtype(), x.device());
       const Array y = all.slice(x.dim() - 1, 0, wide[wide.size() - 1], 2);
       backend(x.device()).copy(y, x);
       return y;
     }},
};

/// All layouts for one dtype of each way in which kernels read elements, else the first layout.
inline std::span<const Layouts> layouts_for(Dtype dtype) {
  const bool thorough = dtype == kFloat16 || dtype == kFloat32 || dtype == kInt64;
  return {layouts.data(), thorough ? layouts.size() : 1};
}

}  // namespace halftape::testing::array_layouts
