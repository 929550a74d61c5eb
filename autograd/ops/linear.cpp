#include "halftape/autograd/ops/linear.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/matmul.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

/// gᵀ·x for input i of a node, in the dtype in which it loses nothing on its way to a leaf.
Tensor weight_gradient(const Node& self, size_t i, const Tensor& g, const Tensor& x) {
  const Dtype type = self.finest(i);
  if (type == g.dtype()) return matmul(g.mT(), x);
  if (GradMode::is_enabled()) return matmul(g.mT().to(type), x.to(type));
  const Array d({g.size(1), x.size(1)}, type, g.device());
  backend(g.device()).gemm({.d = d, .a = g.array().transpose(0, 1), .b = x.array()});
  return Tensor(d);
}

}  // namespace

Tensor linear(const Tensor& x_in, const Tensor& w_in, const Tensor& b_in) {
  const auto [x, w, b] = cast_inputs<2>(cast_list::linear, x_in, w_in, b_in);
  detail::same_kind("linear", x, w);
  HALFTAPE_CHECK(w.dim() == 2, "linear: weight ", w.sizes(), " must be (out, in)");
  HALFTAPE_CHECK(x.dim() >= 1 && x.size(-1) == w.size(1), "linear: input ", x.sizes(), " has ",
                 x.dim() >= 1 ? x.size(-1) : 0, " features, weight ", w.sizes(), " expects ",
                 w.size(1));
  if (b.defined()) {
    detail::same_kind("linear", x, b);
    HALFTAPE_CHECK(b.sizes() == Shape{w.size(0)}, "linear: bias ", b.sizes(), ", weight ",
                   w.sizes(), " expects ", Shape{w.size(0)});
  }
  Shape out = x.sizes();
  out[out.size() - 1] = w.size(0);
  const Tensor rows = reshape(
      x, {x.size(-1) == 0 ? numel(out) / std::max<int64_t>(w.size(0), 1) : x.numel() / x.size(-1),
          x.size(-1)});
  const Array y({rows.size(0), w.size(0)}, x.dtype(), x.device());
  backend(x.device())
      .gemm({.d = y,
             .a = rows.array(),
             .b = w.array().transpose(0, 1),
             .bias = b.defined() ? &b.array() : nullptr,
             .beta = 0});
  if (!records({&rows, &w, &b})) return reshape(Tensor(y), out);
  const Tensor recorded =
      record("linear", y, {&rows, &w, &b},
             [x = Saved::if_wanted(w.requires_grad(), rows),
              w = Saved::if_wanted(rows.requires_grad(), w)](Node& self, const Tensor& g) -> Grads {
               Grads d(3);
               if (self.wants(0)) d[0] = matmul(g, w.tensor(self));
               if (self.wants(1)) d[1] = weight_gradient(self, 1, g, x.tensor(self));
               if (self.wants(2)) d[2] = sum(g, {0}, false, self.finest(2));
               return d;
             });
  return reshape(recorded, out);
}

}  // namespace halftape
