// Checks that an op was given its tensors, and puts the op's name into errors.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Throws if tensor i of an op, counted from 0, is undefined.
inline void check_given(const char* op, const Tensor& t, size_t i) {
  HALFTAPE_CHECK(t.defined(), op, ": its tensor number ", i + 1,
                 " is undefined: a default-constructed Tensor has no shape, dtype or values");
}
template <class... T>
void check_defined(const char* op, const T&... tensors) {
  size_t i = 0;
  (check_given(op, tensors, i++), ...);
}
inline void check_defined(const char* op, const TensorList& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) check_given(op, tensors[i], i);
}
/// Throws if x holds integers or bools, for an op of floating-point tensors.
inline void check_floating(const char* op, const Tensor& x) {
  HALFTAPE_CHECK(x.is_floating_point(), op, ": of a tensor of ", x.dtype(),
                 "; convert it with .to(kFloat32)");
}

/// The first line of an op that calls other ops: their errors then begin with its name, as in
/// "dist: sub: shapes [2] and [3] do not broadcast …". Among nested ops the outermost one is named.
class [[nodiscard]] ErrorScope {
 public:
  /// `tensors`: what the op needs; throws if one is undefined.
  template <class... T>
  [[nodiscard]] explicit ErrorScope(const char* op, const T&... tensors)
      : outermost_(!detail::op_at_work) {
    check_defined(op, tensors...);
    if (outermost_) detail::op_at_work = op;
  }
  ~ErrorScope() {
    if (outermost_) detail::op_at_work = nullptr;
  }
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;

 private:
  bool outermost_;
};

}  // namespace halftape
