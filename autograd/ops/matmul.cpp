#include "halftape/autograd/ops/matmul.h"

#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

void same_kind(const char* op, const Tensor& a, const Tensor& b) {
  HALFTAPE_CHECK(
      a.is_floating_point() && a.dtype() == b.dtype(), op, ": dtypes ", a.dtype(), " and ",
      b.dtype(),
      "; both must be one floating dtype (convert with .to(dtype), or let amp::autocast choose)");
  HALFTAPE_CHECK(a.device() == b.device(), op, ": tensors on ", a.device(), " and ", b.device());
}

/// The leading (batch) dimensions of a matrix product, broadcast.
Shape batch_of(const Shape& s) {
  return Dims(std::span(s.begin(), static_cast<size_t>(s.size() - 2)));
}
Shape with_matrix(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

/// (…, m, k)·(…, k, n), both of rank ≥ 2.
Tensor matmul_matrices(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  HALFTAPE_CHECK(k == b.size(-2), "matmul: ", a.sizes(), " and ", b.sizes(), ": ", k,
                 " columns against ", b.size(-2), " rows");
  const Shape batch = broadcast("matmul", batch_of(a.sizes()), batch_of(b.sizes()));
  const Array y(with_matrix(batch, m, n), a.dtype(), a.device());
  backend(a.device())
      .gemm({.d = y,
             .a = a.array().expand(with_matrix(batch, m, k)),
             .b = b.array().expand(with_matrix(batch, k, n)),
             .beta = 0});
  if (!records({&a, &b})) return Tensor(y);
  return record(
      "matmul", y, {&a, &b},
      [a = Saved::if_wanted(b.requires_grad(), a), b = Saved::if_wanted(a.requires_grad(), b),
       a_shape = a.sizes(), b_shape = b.sizes()](Node& self, const Tensor& g) -> Grads {
        Grads d(2);
        if (self.wants(0)) d[0] = sum_to(matmul(g, b.tensor(self).mT()), a_shape);
        if (self.wants(1)) d[1] = sum_to(matmul(a.tensor(self).mT(), g), b_shape);
        return d;
      });
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(Cast::Lower, "matmul", a_in, b_in);
  same_kind("matmul", a, b);
  HALFTAPE_CHECK(a.dim() > 0 && b.dim() > 0, "matmul: ", a.sizes(), " and ", b.sizes(),
                 ": a number is no matrix; use *");
  // A vector is a row on the left and a column on the right; the dimension it gained is dropped
  // again.
  const bool row = a.dim() == 1, column = b.dim() == 1;
  Tensor y = matmul_matrices(row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b);
  if (row) y = squeeze(y, -2);
  if (column) y = squeeze(y, -1);
  return y;
}

Tensor linear(const Tensor& x_in, const Tensor& w_in, const Tensor& b_in) {
  const auto [x, w, b] = cast_inputs(Cast::Lower, "linear", x_in, w_in, b_in);
  same_kind("linear", x, w);
  HALFTAPE_CHECK(w.dim() == 2, "linear: weight ", w.sizes(), " must be (out, in)");
  HALFTAPE_CHECK(x.dim() >= 1 && x.size(-1) == w.size(1), "linear: input ", x.sizes(), " has ",
                 x.dim() >= 1 ? x.size(-1) : 0, " features, weight ", w.sizes(), " expects ",
                 w.size(1));
  if (b.defined()) {
    same_kind("linear", x, b);
    HALFTAPE_CHECK(b.sizes() == Shape{w.size(0)}, "linear: bias ", b.sizes(), ", weight ",
                   w.sizes(), " expects (", w.size(0), ")");
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
               if (self.wants(1)) d[1] = matmul(g.mT(), x.tensor(self));
               if (self.wants(2)) d[2] = sum(g, {0});
               return d;
             });
  return reshape(recorded, out);
}

}  // namespace halftape
