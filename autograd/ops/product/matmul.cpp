#include "halftape/autograd/ops/product/matmul.h"

#include <string_view>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/product/einsum.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

void detail::same_kind(const char* op, const Tensor& a, const Tensor& b) {
  HALFTAPE_CHECK(
      a.is_floating_point() && a.dtype() == b.dtype(), op, ": dtypes ", a.dtype(), " and ",
      b.dtype(),
      "; both must be one floating dtype (convert with .to(dtype), or let amp::autocast choose)");
  HALFTAPE_CHECK(a.device() == b.device(), op, ": tensors on ", a.device(), " and ", b.device());
}

namespace {

using detail::joined, detail::leading_dims, detail::same_kind;

struct Scales {
  double beta = 0, alpha = 1;
};

/// beta·input + alpha·a·b of (…, m, k) and (…, k, n), both of rank ≥ 2; input broadcasts to the
/// result and is not read when beta is 0. Everything here comes down to this.
Tensor product(const char* op, const Tensor& input, const Tensor& a, const Tensor& b,
               const Scales& s) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  HALFTAPE_CHECK(k == b.size(-2), op, ": ", a.sizes(), " and ", b.sizes(), ": ", k,
                 " columns against ", b.size(-2), " rows");
  const Shape batch = broadcast(op, leading_dims(a.sizes(), 2), leading_dims(b.sizes(), 2));
  const Array y(joined(batch, {m, n}), a.dtype(), a.device());
  HALFTAPE_CHECK(!input.defined() || broadcasts_to(input.sizes(), y.shape()), op, ": input ",
                 input.defined() ? input.sizes() : Shape(), " does not broadcast to the product ",
                 y.shape());
  if (s.beta != 0) backend(y.device()).copy(y, input.array().expand(y.shape()));
  backend(a.device())
      .gemm({.d = y,
             .a = a.array().expand(joined(batch, {m, k})),
             .b = b.array().expand(joined(batch, {k, n})),
             .alpha = s.alpha,
             .beta = s.beta});
  if (!records({&a, &b, &input})) return Tensor(y);
  return record(op, y, {&a, &b, &input},
                [a = Saved::if_wanted(b.requires_grad(), a),
                 b = Saved::if_wanted(a.requires_grad(), b), a_shape = a.sizes(),
                 b_shape = b.sizes(), input_shape = input.defined() ? input.sizes() : Shape(),
                 s](Node& self, const Tensor& g) -> Grads {
                  const char* name = self.name();
                  const Scales scale{0, s.alpha};
                  Grads d(3);
                  if (self.wants(0))
                    d[0] = sum_to(product(name, {}, g, b.tensor(self).mT(), scale), a_shape);
                  if (self.wants(1))
                    d[1] = sum_to(product(name, {}, a.tensor(self).mT(), g, scale), b_shape);
                  if (self.wants(2)) d[2] = sum_to(s.beta == 1 ? g : g * s.beta, input_shape);
                  return d;
                });
}

void check_rank(const char* op, const char* argument, const Tensor& x, int64_t rank) {
  constexpr const char* kinds[] = {"a number", "a vector", "a matrix", "a batch of matrices"};
  HALFTAPE_CHECK(x.dim() == rank, op, ": ", argument, " ", x.sizes(), " is not ", kinds[rank],
                 op == std::string_view("mm") ? "; matmul() takes other shapes" : "");
}

void check_ranks(const char* op, const Tensor& a, int64_t rank_a, const Tensor& b, int64_t rank_b) {
  check_rank(op, "the first factor", a, rank_a);
  check_rank(op, "the second factor", b, rank_b);
}

Tensor row(const Tensor& v) { return unsqueeze(v, 0); }
Tensor column(const Tensor& v) { return unsqueeze(v, -1); }

/// Checks the inputs of `beta·input + alpha·a·b`.
void same_kinds(const char* op, const Tensor& input, const Tensor& a, const Tensor& b) {
  same_kind(op, a, b);
  same_kind(op, input, a);
}
Scales scales(Scalar beta, Scalar alpha) { return {beta.to_double(), alpha.to_double()}; }

void check_batches(const char* op, const Tensor& a, const Tensor& b) {
  check_ranks(op, a, 3, b, 3);
  HALFTAPE_CHECK(a.size(0) == b.size(0), op, ": batches of ", a.size(0), " and ", b.size(0),
                 " matrices in ", a.sizes(), " and ", b.sizes());
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(cast_list::matmul, a_in, b_in);
  same_kind("matmul", a, b);
  HALFTAPE_CHECK(a.dim() > 0 && b.dim() > 0, "matmul: ", a.sizes(), " and ", b.sizes(),
                 ": a number is no matrix; use *");
  // A vector is a row on the left and a column on the right; the dimension it gained is dropped
  // again.
  const bool left = a.dim() == 1, right = b.dim() == 1;
  Tensor y = product("matmul", {}, left ? row(a) : a, right ? column(b) : b, {});
  if (left) y = squeeze(y, -2);
  if (right) y = squeeze(y, -1);
  return y;
}

Tensor mm(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(cast_list::mm, a_in, b_in);
  check_ranks("mm", a, 2, b, 2);
  same_kind("mm", a, b);
  return product("mm", {}, a, b, {});
}

Tensor bmm(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(cast_list::bmm, a_in, b_in);
  check_batches("bmm", a, b);
  same_kind("bmm", a, b);
  return product("bmm", {}, a, b, {});
}

Tensor mv(const Tensor& a_in, const Tensor& v_in) {
  const auto [a, v] = cast_inputs(cast_list::mv, a_in, v_in);
  check_ranks("mv", a, 2, v, 1);
  same_kind("mv", a, v);
  return squeeze(product("mv", {}, a, column(v), {}), -1);
}

Tensor dot(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(cast_list::dot, a_in, b_in);
  check_ranks("dot", a, 1, b, 1);
  HALFTAPE_CHECK(a.size(0) == b.size(0), "dot: vectors of ", a.size(0), " and ", b.size(0),
                 " elements");
  same_kind("dot", a, b);
  return detail::reshaped(product("dot", {}, row(a), column(b), {}), {});
}
Tensor vdot(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("vdot", a, b);
  return dot(a, b);
}

Tensor inner(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("inner", a, b);
  if (a.dim() == 0 || b.dim() == 0) return a * b;
  HALFTAPE_CHECK(a.size(-1) == b.size(-1), "inner: ", a.sizes(), " and ", b.sizes(),
                 " differ in their last dimension");
  return tensordot(a, b, {-1}, {-1});
}

Tensor outer(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("outer", a, b);
  check_ranks("outer", a, 1, b, 1);
  return column(a) * row(b);
}

Tensor ger(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("ger", a, b);
  return outer(a, b);
}

Tensor addmm(const Tensor& input_in, const Tensor& a_in, const Tensor& b_in, Scalar beta,
             Scalar alpha) {
  const auto [input, a, b] = cast_inputs(cast_list::addmm, input_in, a_in, b_in);
  same_kinds("addmm", input, a, b);
  check_ranks("addmm", a, 2, b, 2);
  return product("addmm", input, a, b, scales(beta, alpha));
}

Tensor addmv(const Tensor& input_in, const Tensor& a_in, const Tensor& v_in, Scalar beta,
             Scalar alpha) {
  const auto [input, a, v] = cast_inputs(cast_list::addmv, input_in, a_in, v_in);
  same_kinds("addmv", input, a, v);
  check_ranks("addmv", a, 2, v, 1);
  // A number broadcasts as it is; a vector stands upright beside the product.
  const Tensor upright = input.dim() == 1 ? column(input) : input;
  return squeeze(product("addmv", upright, a, column(v), scales(beta, alpha)), -1);
}

Tensor addr(const Tensor& input_in, const Tensor& u_in, const Tensor& v_in, Scalar beta,
            Scalar alpha) {
  const auto [input, u, v] = cast_inputs(cast_list::addr, input_in, u_in, v_in);
  same_kinds("addr", input, u, v);
  check_ranks("addr", u, 1, v, 1);
  return product("addr", input, column(u), row(v), scales(beta, alpha));
}

Tensor baddbmm(const Tensor& input_in, const Tensor& a_in, const Tensor& b_in, Scalar beta,
               Scalar alpha) {
  const auto [input, a, b] = cast_inputs(cast_list::baddbmm, input_in, a_in, b_in);
  same_kinds("baddbmm", input, a, b);
  check_batches("baddbmm", a, b);
  return product("baddbmm", input, a, b, scales(beta, alpha));
}

Tensor addbmm(const Tensor& input_in, const Tensor& a_in, const Tensor& b_in, Scalar beta,
              Scalar alpha) {
  const auto [input, a, b] = cast_inputs(cast_list::addbmm, input_in, a_in, b_in);
  same_kinds("addbmm", input, a, b);
  check_batches("addbmm", a, b);
  HALFTAPE_CHECK(a.size(2) == b.size(1), "addbmm: ", a.sizes(), " and ", b.sizes(), ": ", a.size(2),
                 " columns against ", b.size(1), " rows");
  // One product, whose depth is the batch and the columns: one rounding.
  const int64_t depth = checked_mul(a.size(0), a.size(2));
  const Tensor wide = detail::reshaped(permute(a, {1, 0, 2}), {a.size(1), depth});
  return product("addbmm", input, wide, detail::reshaped(b, {depth, b.size(2)}),
                 scales(beta, alpha));
}

Tensor chain_matmul(const TensorList& matrices) {
  const ErrorScope scope("chain_matmul", matrices);
  HALFTAPE_CHECK(!matrices.empty(), "chain_matmul: no matrices");
  const auto count = static_cast<int>(matrices.size());
  for (const Tensor& m : matrices) check_rank("chain_matmul", "a factor", m, 2);
  for (size_t i = 1; i < matrices.size(); ++i)
    HALFTAPE_CHECK(matrices[i - 1].size(1) == matrices[i].size(0), "chain_matmul: factor ", i - 1,
                   " ", matrices[i - 1].sizes(), " has ", matrices[i - 1].size(1),
                   " columns, factor ", i, " ", matrices[i].sizes(), " has ", matrices[i].size(0),
                   " rows");
  // Cormen et al., section 14.2: the cost of i … j from that of both sides of every cut.
  const auto n = static_cast<size_t>(count);
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  auto rows = [&](size_t i) { return static_cast<double>(matrices[i].size(0)); };
  auto columns = [&](size_t i) { return static_cast<double>(matrices[i].size(1)); };
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      for (size_t k = i; k < j; ++k) {
        const double c = cost[i][k] + cost[k + 1][j] + rows(i) * columns(k) * columns(j);
        if (k == i || c < cost[i][j]) cost[i][j] = c, cut[i][j] = k;
      }
    }
  }
  auto multiply = [&](auto& self, size_t i, size_t j) -> Tensor {
    if (i == j) return matrices[i];
    return mm(self(self, i, cut[i][j]), self(self, cut[i][j] + 1, j));
  };
  return n == 1 ? clone(matrices[0]) : multiply(multiply, 0, n - 1);
}

Tensor matrix_power(const Tensor& a, int64_t n) {
  const ErrorScope scope("matrix_power", a);
  HALFTAPE_CHECK(a.dim() >= 2 && a.size(-1) == a.size(-2), "matrix_power: ", a.sizes(),
                 " is not square");
  HALFTAPE_CHECK(n >= 0, "matrix_power: the power ", n, " is negative, which needs an inverse");
  if (n == 0) return expand(eye(a.size(-1), a.options()), a.sizes()).clone();
  Tensor y, square = a;
  for (;; n /= 2, square = matmul(square, square)) {
    if (n % 2) y = y.defined() ? matmul(y, square) : square;
    if (n == 1) return y.is_same(a) ? clone(a) : y;
  }
}

Tensor trace(const Tensor& in) {
  const ErrorScope scope("trace", in);
  const auto [x] = cast_inputs(cast_list::trace, in);
  check_rank("trace", "the input", x, 2);
  const int64_t n = std::min(x.size(0), x.size(1));
  const Tensor square = slice(slice(x, 0, 0, n), 1, 0, n);
  return sum(detail::diagonal(square, 0, 1), {}, false, x.is_floating_point() ? x.dtype() : kInt64);
}

}  // namespace halftape
