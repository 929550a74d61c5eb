#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/policy.h"

namespace halftape {

namespace {
Tensor cross_along(const char* op, const Tensor& a_in, const Tensor& b_in, int64_t dim) {
  const ErrorScope scope(op, a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::cross, a_in, b_in);
  const PolicyScope plain(nullptr);
  const Shape shape = broadcast(op, a.sizes(), b.sizes());
  HALFTAPE_CHECK(!shape.empty(), op, ": of two numbers; expected lines of three");
  const int d = wrap_dim(op, dim, shape.size());
  const auto is_three = [&](const Tensor& x) {
    const int64_t at = d - shape.size() + x.dim();
    return at >= 0 && x.size(at) == 3;
  };
  HALFTAPE_CHECK(is_three(a) && is_three(b), op, ": inputs dimension ", d, " must have length 3; ",
                 "the shapes are ", a.sizes(), " and ", b.sizes());
  const Dtype dtype = promote(a.dtype(), b.dtype());
  const auto turned = [&](const Tensor& x, int64_t by) {
    return roll(expand(widened(x.to(dtype)), shape), -by, d);
  };
  return (turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)).to(dtype);
}
}  // namespace

Tensor linalg_cross(const Tensor& a, const Tensor& b, int64_t dim) {
  return cross_along("linalg_cross", a, b, dim);
}
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim) {
  if (dim) return cross_along("cross", a, b, *dim);
  check_defined("cross", a, b);
  const Shape shape = broadcast("cross", a.sizes(), b.sizes());
  const auto* three = std::find(shape.begin(), shape.end(), 3);
  HALFTAPE_CHECK(three != shape.end(), "cross: no dimension of size 3 in input: ", a.sizes(),
                 " and ", b.sizes());
  return cross_along("cross", a, b, three - shape.begin());
}

}  // namespace halftape
