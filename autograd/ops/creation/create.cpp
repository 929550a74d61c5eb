#include "halftape/autograd/ops/creation/create.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "halftape/autograd/ops/creation/listed.h"

namespace halftape {
namespace {

Tensor leaf(Array a, const TensorOptions& o) {
  Tensor t(std::move(a));
  if (o.requires_grad()) t.requires_grad_();
  return t;
}

/// (n): f(0), f(1), …, numbers of type T.
template <class T>
Tensor sequence(const char* op, auto n, Dtype fallback, const TensorOptions& o, const auto& f) {
  HALFTAPE_CHECK(n < (uint64_t{1} << 59), op, ": ", n, " elements are too many");
  const auto count = static_cast<int64_t>(n);
  return leaf(detail::listed<T>(count, o.dtype_or(fallback), f).to(o.device()), o);
}

Tensor filled(const char* op, const Shape& shape, Scalar value, Dtype fallback,
              const TensorOptions& o) {
  const Dtype dtype = o.dtype_or(fallback);
  detail::check_fits(op, value, dtype);
  return leaf(full(shape, value, dtype, o.device()), o);
}

TensorOptions like(const Tensor& x, const TensorOptions& o, std::optional<MemoryFormat> format) {
  return x.options().merge_in(o).memory_format(format ? format : o.memory_format_opt());
}

/// Elements between the first and the last that these strides reach, both included.
int64_t span_of(const char* op, const Shape& shape, const Strides& strides) {
  if (numel(shape) == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < shape.size(); ++i) {
    HALFTAPE_CHECK(strides[i] >= 0, op, ": stride ", strides[i], " in ", strides, " is negative");
    last = checked_add(last, checked_mul(shape[i] - 1, strides[i]));
  }
  return checked_add(last, 1);
}

}  // namespace

void detail::check_fits(const char* op, Scalar value, Dtype dtype) {
  check_dtype(dtype);
  const double v = value.to_double();
  bool fits = true;
  if (is_floating_point(dtype)) {
    visit(dtype, [&](auto t) {
      const auto rounded = convert<double>(convert<typename decltype(t)::type>(v));
      fits = !std::isfinite(v) || std::isfinite(rounded);
    });
  } else if (dtype == kUInt8) {
    // -1 is 255, as in C; a fraction below 0 is none.
    fits = value.is_floating_point() ? v > -1 && v < 256 : std::abs(v) < 256;
  } else if (dtype != kBool && (dtype != kInt64 || value.is_floating_point())) {
    const double beyond = std::ldexp(1, static_cast<int>(8 * element_size(dtype)) - 1);
    fits = std::trunc(v) >= -beyond && std::trunc(v) < beyond;
  }
  HALFTAPE_CHECK(fits, op, ": value cannot be converted to type ", dtype, " without overflow: ", v);
}

Tensor detail::number_like(const char* op, const Tensor& x, Scalar value) {
  check_fits(op, value, x.dtype());
  return Tensor(halftape::full({}, value, x.dtype(), x.device()));
}

Tensor empty(const Shape& shape, const TensorOptions& given, std::optional<MemoryFormat> format) {
  const TensorOptions o = format ? given.memory_format(format) : given;
  return leaf(Array(shape, o.dtype(), o.device()), o);
}

Tensor empty_strided(const Shape& shape, const Strides& strides, const TensorOptions& o) {
  HALFTAPE_CHECK(shape.size() == strides.size(), "empty_strided: ", shape, " has ", shape.size(),
                 " sizes, but there are ", strides.size(), " strides ", strides);
  const Array space(span_of("empty_strided", shape, strides), o.dtype(), o.device());
  return leaf(space.as_strided(shape, strides, 0), o);
}

Tensor full(const Shape& shape, Scalar value, const TensorOptions& o) {
  return filled("full", shape, value,
                value.is_floating_point() ? get_default_dtype() : value.kind(), o);
}
Tensor zeros(const Shape& shape, const TensorOptions& o) {
  return filled("zeros", shape, 0, get_default_dtype(), o);
}
Tensor ones(const Shape& shape, const TensorOptions& o) {
  return filled("ones", shape, 1, get_default_dtype(), o);
}
Tensor scalar_tensor(Scalar value, const TensorOptions& o) {
  return filled("scalar_tensor", {}, value, get_default_dtype(), o);
}

Tensor eye(int64_t n, const TensorOptions& o) { return eye(n, n, o); }
Tensor eye(int64_t n, int64_t m, const TensorOptions& o) {
  HALFTAPE_CHECK(n >= 0 && m >= 0, "eye: the size (", n, ", ", m, ") is negative");
  Array y = full({n, m}, 0, o.dtype(), o.device());
  if (n > 0 && m > 0) backend(y.device()).fill(y.as_strided({std::min(n, m)}, {m + 1}, 0), 1);
  return leaf(y, o);
}

Tensor empty_like(const Tensor& x, const TensorOptions& o, std::optional<MemoryFormat> format) {
  return empty(x.sizes(), like(x, o, format));
}
Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& o,
                 std::optional<MemoryFormat> format) {
  return filled("full_like", x.sizes(), value, x.dtype(), like(x, o, format));
}
Tensor zeros_like(const Tensor& x, const TensorOptions& o, std::optional<MemoryFormat> format) {
  return full_like(x, 0, o, format);
}
Tensor ones_like(const Tensor& x, const TensorOptions& o, std::optional<MemoryFormat> format) {
  return full_like(x, 1, o, format);
}

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& o) {
  const double a = start.to_double(), b = end.to_double(), d = step.to_double();
  HALFTAPE_CHECK(std::isfinite(a) && std::isfinite(b) && std::isfinite(d), "arange: from ", a,
                 " to ", b, " in steps of ", d, " is not a finite sequence");
  HALFTAPE_CHECK(d != 0, "arange: the step is zero");
  HALFTAPE_CHECK(d > 0 ? a <= b : a >= b, "arange: a step of ", d, " does not lead from ", a,
                 " to ", b, "; give it the other sign");
  if (start.is_floating_point() || end.is_floating_point() || step.is_floating_point()) {
    return sequence<double>("arange", std::ceil((b - a) / d), get_default_dtype(), o,
                            [=](int64_t i) { return a + d * static_cast<double>(i); });
  }
  // Unsigned, so that the distance between any two integers fits and the last step may overflow.
  const auto from = static_cast<uint64_t>(start.to_int64());
  const auto to = static_cast<uint64_t>(end.to_int64());
  const auto by = static_cast<uint64_t>(step.to_int64());
  const uint64_t distance = d > 0 ? to - from : from - to, stride = d > 0 ? by : -by;
  const uint64_t count = distance / stride + (distance % stride != 0);
  return sequence<int64_t>("arange", count, kInt64, o, [=](int64_t i) {
    return static_cast<int64_t>(from + static_cast<uint64_t>(i) * by);
  });
}
Tensor arange(Scalar start, Scalar end, const TensorOptions& o) { return arange(start, end, 1, o); }
Tensor arange(Scalar end, const TensorOptions& o) { return arange(0, end, 1, o); }

namespace {
/// f(start), …, f(end) at equal distances, computed from both ends, so that `end` is met exactly.
Tensor equal_distances(const char* op, double start, double end, int64_t steps,
                       const TensorOptions& o, const auto& f) {
  HALFTAPE_CHECK(steps >= 0, op, ": number of steps must be non-negative, not ", steps);
  const double d = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  return sequence<double>(op, static_cast<uint64_t>(steps), get_default_dtype(), o, [&](int64_t i) {
    return f(i < steps / 2 || steps == 1 ? start + d * static_cast<double>(i)
                                         : end - d * static_cast<double>(steps - 1 - i));
  });
}
}  // namespace

Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& o) {
  const auto bound = [&](Scalar s) {  // of integers, both are cut off first
    const double v = s.to_double();
    return is_floating_point(o.dtype_or(get_default_dtype())) ? v : std::trunc(v);
  };
  return equal_distances("linspace", bound(start), bound(end), steps, o,
                         [](double x) { return x; });
}

Tensor logspace(Scalar start, Scalar end, int64_t steps, double base, const TensorOptions& o) {
  return equal_distances("logspace", start.to_double(), end.to_double(), steps, o,
                         [base](double x) { return std::pow(base, x); });
}

Tensor tensor(const detail::TensorDataContainer& values, const TensorOptions& o) {
  const Dtype given = values.scalar_type();
  const Dtype inferred = given == kInt32                          ? kInt64
                         : given == kFloat32 || given == kFloat64 ? get_default_dtype()
                                                                  : given;
  if (values.is_scalar()) return filled("tensor", {}, values.scalar(), inferred, o);
  return leaf(values.flatten(o.dtype_or(inferred)).to(o.device()), o);
}

Tensor from_blob(void* data, const Shape& shape, const Strides& strides,
                 const std::function<void(void*)>& deleter, const TensorOptions& o) {
  HALFTAPE_CHECK(o.device().is_cpu(), "from_blob: only CPU memory, not ", o.device());
  HALFTAPE_CHECK(shape.size() == strides.size(), "from_blob: ", shape, " has ", shape.size(),
                 " sizes, but there are ", strides.size(), " strides ", strides);
  const Dtype dtype = o.dtype();
  check_dtype(dtype);
  HALFTAPE_CHECK(!o.requires_grad() || is_floating_point(dtype),
                 "from_blob: only floating-point tensors have gradients, this is ", dtype);
  const int64_t bytes =
      checked_mul(span_of("from_blob", shape, strides), static_cast<int64_t>(element_size(dtype)));
  HALFTAPE_CHECK(data || bytes == 0, "from_blob: a null pointer for ", bytes, " bytes");
  HALFTAPE_CHECK(bytes == 0 || reinterpret_cast<uintptr_t>(data) % element_size(dtype) == 0,
                 "from_blob: the address ", data, " is no multiple of ", element_size(dtype),
                 ", the size of a ", dtype, " element; copy the bytes to where one is");
  using Deleter = std::function<void(void*)>;
  auto give_back = [](void* p, size_t, void* context) noexcept {
    const std::unique_ptr<Deleter> own(static_cast<Deleter*>(context));
    if (own) (*own)(p);
  };
  auto own = deleter ? std::make_unique<Deleter>(deleter) : nullptr;
  auto buffer =
      make_ref<Buffer>(data, static_cast<size_t>(bytes), Device(kCPU), give_back, own.get());
  static_cast<void>(own.release());  // the buffer's from here on
  buffer->expose();
  return leaf(Array(std::move(buffer), shape, strides, 0, dtype), o);
}
Tensor from_blob(void* data, const Shape& shape, const Strides& strides, const TensorOptions& o) {
  return from_blob(data, shape, strides, nullptr, o);
}
Tensor from_blob(void* data, const Shape& shape, const std::function<void(void*)>& deleter,
                 const TensorOptions& o) {
  return from_blob(data, shape, contiguous_strides(shape), deleter, o);
}
Tensor from_blob(void* data, const Shape& shape, const TensorOptions& o) {
  return from_blob(data, shape, contiguous_strides(shape), nullptr, o);
}

}  // namespace halftape
