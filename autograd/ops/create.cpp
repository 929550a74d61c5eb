#include "halftape/autograd/ops/create.h"

#include <algorithm>
#include <numeric>

#include "halftape/core/backend.h"
#include "halftape/core/formula/philox.h"

namespace halftape {
namespace {

Tensor leaf(Array a, const TensorOptions& o) {
  Tensor t(std::move(a));
  if (o.requires_grad()) t.requires_grad_();
  return t;
}

/// Host values converted to the wanted dtype (rounded once) and device.
template <class T>
Tensor from_host(const std::vector<T>& values, const Shape& shape, Dtype fallback,
                 const TensorOptions& o) {
  Array host(shape, dtype_of<T>, Device(kCPU));
  std::copy(values.begin(), values.end(), static_cast<T*>(host.raw()));
  return leaf(host.to(o.dtype_or(fallback)).to(o.device()), o);
}

Tensor random(const Shape& shape, Distribution kind, double a, double b, Dtype fallback,
              const TensorOptions& o) {
  Array y(shape, o.dtype_or(fallback), o.device());
  backend(y.device()).random(y, kind, a, b, random_reserve(y.device(), y.numel()));
  return leaf(y, o);
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& o) {
  return leaf(Array(shape, o.dtype_or(get_default_dtype()), o.device()), o);
}

Tensor full(const Shape& shape, Scalar value, const TensorOptions& o) {
  const Dtype inferred = value.is_floating_point() ? get_default_dtype() : value.kind();
  return leaf(full(shape, value, o.dtype_or(inferred), o.device()), o);
}

Tensor zeros(const Shape& shape, const TensorOptions& o) {
  return leaf(full(shape, 0, o.dtype_or(get_default_dtype()), o.device()), o);
}
Tensor ones(const Shape& shape, const TensorOptions& o) {
  return leaf(full(shape, 1, o.dtype_or(get_default_dtype()), o.device()), o);
}

Tensor eye(int64_t n, const TensorOptions& o) {
  HALFTAPE_CHECK(n >= 0, "eye: n = ", n, " is negative");
  Array y = full({n, n}, 0, o.dtype_or(get_default_dtype()), o.device());
  if (n > 0) backend(y.device()).fill(y.as_strided({n}, {n + 1}, 0), 1);
  return leaf(y, o);
}

Tensor empty_like(const Tensor& x) { return Tensor(empty_like(x.array())); }
Tensor full_like(const Tensor& x, Scalar value) {
  return Tensor(full(x.sizes(), value, x.dtype(), x.device()));
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& o) {
  HALFTAPE_CHECK(step.to_double() != 0, "arange: the step is zero");
  const bool floating =
      start.is_floating_point() || end.is_floating_point() || step.is_floating_point();
  if (floating) {
    const double a = start.to_double(), d = step.to_double();
    const double count = std::ceil((end.to_double() - a) / d);
    HALFTAPE_CHECK(count < 0x1p62, "arange: ", count, " elements are too many");
    std::vector<double> v(count > 0 ? static_cast<size_t>(count) : 0);
    for (size_t i = 0; i < v.size(); ++i) v[i] = a + d * static_cast<double>(i);
    return from_host(v, {static_cast<int64_t>(v.size())}, get_default_dtype(), o);
  }
  std::vector<int64_t> v;
  const int64_t d = step.to_int64(), stop = end.to_int64();
  for (int64_t i = start.to_int64(); d > 0 ? i < stop : i > stop; i += d) v.push_back(i);
  return from_host(v, {static_cast<int64_t>(v.size())}, kInt64, o);
}

Tensor arange(Scalar end, const TensorOptions& o) { return arange(0, end, 1, o); }

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& o) {
  HALFTAPE_CHECK(steps >= 0, "linspace: ", steps, " steps");
  std::vector<double> v(static_cast<size_t>(steps));
  const double d = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  for (int64_t i = 0; i < steps; ++i)  // from both ends, so that `end` is met exactly
    v[static_cast<size_t>(i)] = i < steps / 2 || steps == 1
                                    ? start + d * static_cast<double>(i)
                                    : end - d * static_cast<double>(steps - 1 - i);
  return from_host(v, {steps}, get_default_dtype(), o);
}

Tensor tensor(Scalar value, const TensorOptions& o) { return full({}, value, o); }

template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(const std::vector<T>& values,
                                               const TensorOptions& o) {
  const Shape shape{static_cast<int64_t>(values.size())};
  if constexpr (std::is_floating_point_v<T>)
    return from_host(values, shape, get_default_dtype(), o);
  else
    return from_host(values, shape, std::is_same_v<T, bool> ? kBool : kInt64, o);
}
template Tensor tensor(const std::vector<float>&, const TensorOptions&);
template Tensor tensor(const std::vector<double>&, const TensorOptions&);
template Tensor tensor(const std::vector<int32_t>&, const TensorOptions&);
template Tensor tensor(const std::vector<int64_t>&, const TensorOptions&);
template Tensor tensor(const std::vector<uint8_t>&, const TensorOptions&);
template Tensor tensor(const std::vector<bool>&, const TensorOptions&);

Tensor tensor(const std::vector<std::vector<double>>& rows, const TensorOptions& o) {
  std::vector<double> flat;
  for (const auto& row : rows) {
    HALFTAPE_CHECK(row.size() == rows[0].size(), "tensor: rows of ", rows[0].size(), " and ",
                   row.size(), " values");
    flat.insert(flat.end(), row.begin(), row.end());
  }
  const auto columns = rows.empty() ? size_t{0} : rows[0].size();
  return from_host(flat, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)},
                   get_default_dtype(), o);
}

Tensor from_blob(void* data, const Shape& shape, void (*deleter)(void*), const TensorOptions& o) {
  HALFTAPE_CHECK(o.device().is_cpu(), "from_blob: only CPU memory, not ", o.device());
  const Dtype dtype = o.dtype_or(get_default_dtype());
  const auto bytes =
      static_cast<size_t>(checked_mul(numel(shape), static_cast<int64_t>(element_size(dtype))));
  auto give_back = [](void* p, size_t, void* context) noexcept {
    if (context) reinterpret_cast<void (*)(void*)>(context)(p);
  };
  auto buffer =
      make_ref<Buffer>(data, bytes, Device(kCPU), give_back, reinterpret_cast<void*>(deleter));
  return leaf(Array(std::move(buffer), shape, contiguous_strides(shape), 0, dtype), o);
}
Tensor from_blob(void* data, const Shape& shape, const TensorOptions& o) {
  return from_blob(data, shape, nullptr, o);
}

Tensor rand(const Shape& shape, const TensorOptions& o) {
  return random(shape, Distribution::Uniform, 0, 1, get_default_dtype(), o);
}
Tensor randn(const Shape& shape, const TensorOptions& o) {
  return random(shape, Distribution::Normal, 0, 1, get_default_dtype(), o);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& o) {
  HALFTAPE_CHECK(low < high, "randint: the range [", low, ", ", high, ") is empty");
  return random(shape, Distribution::Bits, static_cast<double>(low), static_cast<double>(high),
                kInt64, o);
}

Tensor randperm(int64_t n, const TensorOptions& o) {
  HALFTAPE_CHECK(n >= 0, "randperm: n = ", n, " is negative");
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const RandomKey key = random_reserve(Device(kCPU), 2 * n);
  for (int64_t i = n - 1; i > 0; --i) {  // Fisher–Yates; 64 bits a draw leave a bias below 2^-32
    const auto at = static_cast<uint64_t>(2 * i);
    const uint64_t bits = uint64_t{random_bits(key.seed, key.offset, at)} << 32 |
                          random_bits(key.seed, key.offset, at + 1);
    std::swap(order[static_cast<size_t>(i)], order[bits % static_cast<uint64_t>(i + 1)]);
  }
  return from_host(order, {n}, kInt64, o);
}

}  // namespace halftape
