#include "halftape/distributed/gloo/reduce.h"

#include <type_traits>

namespace halftape::distributed {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Largest {
  template <class T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

/// In which T is computed: unsigned for sums of integers, whose overflow is then defined.
template <class T, class Op>
struct ComputeIn {
  static constexpr bool wraps = std::is_same_v<Op, Add> || std::is_same_v<Op, Multiply>;
  static auto type() {
    if constexpr (std::is_integral_v<T> && wraps)
      return std::make_unsigned_t<T>{};
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return 0.0F;
    else
      return T{};
  }
  using Type = decltype(type());
};

template <class T, class Op>
void reduce(void* elements, const void* other, size_t n) {
  using C = typename ComputeIn<T, Op>::Type;
  T* const __restrict to = static_cast<T*>(elements);  // or few of these loops are vectorized
  const T* const __restrict from = static_cast<const T*>(other);
  for (size_t i = 0; i < n; ++i)
    to[i] = static_cast<T>(Op{}(static_cast<C>(to[i]), static_cast<C>(from[i])));
}

template <class Op>
Reduction* for_dtype(Dtype dtype) {
  switch (dtype) {
    case kFloat16:
      return &reduce<Half, Op>;
    case kBFloat16:
      return &reduce<BFloat16, Op>;
    case kFloat32:
      return &reduce<float, Op>;
    case kFloat64:
      return &reduce<double, Op>;
    case kInt32:
      return &reduce<int32_t, Op>;
    case kInt64:
      return &reduce<int64_t, Op>;
    default:
      return nullptr;
  }
}

}  // namespace

Reduction* reduction(Dtype dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return for_dtype<Add>(dtype);
    case ReduceOp::Product:
      return for_dtype<Multiply>(dtype);
    case ReduceOp::Min:
      return for_dtype<Least>(dtype);
    case ReduceOp::Max:
      return for_dtype<Largest>(dtype);
    case ReduceOp::Avg:
      return nullptr;
  }
  return nullptr;
}

}  // namespace halftape::distributed
