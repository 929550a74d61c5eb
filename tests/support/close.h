// Comparing tensors: the tolerances of the tests are stated here, as multiples of the dtype's
// epsilon, and a failure says where, what and by how many units in the last place.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::testing {

/// Distance between neighbours of a dtype around `value`, down to the smallest subnormal's.
inline double ulp(double value, Dtype dtype) {
  const double smallest = dtype == Dtype::Float16    ? 0x1p-24
                          : dtype == Dtype::BFloat16 ? 0x1p-133
                          : dtype == Dtype::Float32  ? 0x1p-149
                                                     : 0x1p-1074;
  if (value == 0 || !std::isfinite(value)) return smallest;
  return std::max(std::ldexp(epsilon(dtype), std::ilogb(value)), smallest);
}

/// Empty when every |got − expected| ≤ ulps·ulp(expected) + eps·epsilon·scale; otherwise the first
/// element at fault. NaN equals NaN.
struct Tolerance {
  double ulps = 0;   // of each element
  double eps = 0;    // of `scale`
  double scale = 0;  // the largest intermediate result, when it exceeds the largest |expected|
};

inline std::string differ(const Tensor& got, const std::vector<double>& expected,
                          Tolerance allowed) {
  const std::vector<double> values = got.to_vector();
  std::ostringstream out;
  out.precision(17);
  if (values.size() != expected.size()) {
    out << values.size() << " elements, expected " << expected.size();
    return out.str();
  }
  double scale = allowed.scale;
  for (double e : expected)
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
  for (size_t i = 0; i < values.size(); ++i) {
    const double g = values[i], e = expected[i], unit = ulp(e, got.dtype());
    if ((std::isnan(g) && std::isnan(e)) || g == e) continue;
    if (std::abs(g - e) <= allowed.ulps * unit + allowed.eps * epsilon(got.dtype()) * scale)
      continue;
    out << "element " << i << " is " << g << ", expected " << e << ": " << std::abs(g - e) / unit
        << " ulp of " << got.dtype();
    return out.str();
  }
  return {};
}

inline std::string differ(const Tensor& got, const Tensor& expected, Tolerance allowed) {
  if (got.sizes() != expected.sizes()) {
    std::ostringstream out;
    out << "shape " << got.sizes() << ", expected " << expected.sizes();
    return out.str();
  }
  return differ(got, expected.to_vector(), allowed);
}

/// ‖got − right‖ relative to ‖right‖.
inline double relative_distance(const Tensor& got, const Tensor& right) {
  const double size = right.detach().norm().item<double>();
  const Tensor off = got.detach().to(kFloat64).sub(right.detach().to(kFloat64));
  return off.norm().item<double>() / (size > 0 ? size : 1);
}

/// The same bits: −0 differs from 0, NaN equals NaN only with the same payload.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.detach().contiguous().cpu(), y = b.detach().contiguous().cpu();
  const size_t bytes = static_cast<size_t>(x.numel()) * element_size(x.dtype());
  return bytes == 0 || std::memcmp(x.array().raw(), y.array().raw(), bytes) == 0;
}

}  // namespace halftape::testing
