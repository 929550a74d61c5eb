#include "halftape/core/contract/unfused.h"

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

template <class Op>
constexpr OpId kBinary = BinaryOps::index<Op>();
constexpr OpId kSum = ReduceOps::index<formula::Sum>();

/// Relu and its derivative depend on the sign of v, which rounding to d keeps: no wider array is
/// needed.
void relu_in_steps(Backend& on, const Gemm& g, const EpilogueSteps& steps) {
  if (!g.aux.defined()) {
    on.unary(UnaryOps::index<formula::Relu>(), g.d, g.d, {});
    return;
  }
  const Array y = g.d.to_contiguous();
  steps.masked_relu(y, g.aux, g.epilogue == Epilogue::DRelu);
  if (!g.d.contiguous()) on.copy(g.d, y);
}

/// v: the sums before they are rounded.
void gelu_in_steps(Backend& on, const Gemm& g, const Array& v, const EpilogueSteps& steps) {
  constexpr OpId gelu = UnaryOps::index<formula::GeluTanh>();
  if (g.epilogue == Epilogue::DGelu) {
    on.unary_grad(gelu, g.d, v, g.aux, {});
    return;
  }
  if (g.aux.defined() && steps.gelu) return steps.gelu(g.d, g.aux, v);
  if (g.aux.defined()) on.copy(g.aux, v);
  on.unary(gelu, g.d, v, {});
}

}  // namespace

void unfused(Backend& on, const CrossEntropyGrad& c) {
  const Array share = empty_like(c.total), zero = empty_like(c.total),
              any(c.total.shape(), kBool, c.total.device());
  on.binary(kBinary<formula::Div>, share, c.g, c.total);
  on.copy(any, c.total);  // 0 where all targets are ignored, as are all slopes: no 0·(g/0)
  on.fill(zero, 0);
  on.where(share, any, share, zero);
  on.binary(kBinary<formula::Mul>, c.dx, c.slopes, share.expand(c.slopes.shape()));
}

void mean_unfused(Backend& on, const CrossEntropy& c) {
  Dims all;
  for (int d = 0; d < c.loss.dim(); ++d) all.push_back(d);
  on.reduce(kSum, c.total, c.counted, all);
  on.reduce(kSum, c.mean, c.loss, all);
  on.binary(kBinary<formula::Div>, c.mean, c.mean, c.total);
}

void unfused(Backend& on, const CheckedScale& s) {
  if (s.begins) on.fill(s.nonfinite, 0);
  on.check_finite({&s.x, 1}, s.nonfinite);
  on.binary(kBinary<formula::Mul>, s.y, s.x, s.scale.expand(s.x.shape()));
  if (s.factor.defined()) on.copy(s.factor, s.scale);
  if (s.inverse.defined()) on.unary(UnaryOps::index<formula::Reciprocal>(), s.inverse, s.scale, {});
  if (s.found_inf.defined()) on.copy(s.found_inf, s.nonfinite);
  if (s.first.defined()) on.fill(s.first, -1);
}

void unfused(Backend& on, const Push& p) {
  const Array at({1}, kInt64, p.ring.device()), n = empty_like(at);
  on.fill(n, p.ring.size(0));
  Shape row = p.ring.shape();
  row[0] = 1;
  const Array now = p.count.reshape({1}), pushed(row, p.ring.dtype(), p.ring.device());
  on.copy(pushed, p.value.reshape(row));
  on.binary(kBinary<formula::Remainder>, at, now, n);
  const Shape ones = Shape::filled(row.size(), 1);
  on.scatter(p.ring, pushed, 0, at.reshape(ones).expand(row), {"push"});
  on.fill(n, 1);
  on.binary(kBinary<formula::Add>, now, now, n);
}

void unfused(Backend& on, const DropoutTask& d) {
  const Array kept(d.x.shape(), d.x.dtype(), d.x.device());
  on.random(kept, Distribution::Bernoulli, 1 - d.p, 0, d.key);
  on.binary(kBinary<formula::Mul>, d.y, d.x, kept);
  on.unary(UnaryOps::index<formula::DivScalar>(), d.y, d.y, {1 - d.p});
}

void gemm_unfused(Backend& on, const Gemm& g, const EpilogueSteps& steps) {
  Gemm rest = g;
  if (g.bias_grad.defined()) {
    rest.bias_grad = {};
    on.gemm(rest);
    const Array terms = g.epilogue == Epilogue::None ? g.a.transpose(0, 1) : g.d;
    on.reduce(ReduceOps::index<formula::Sum>(), g.bias_grad, terms, {0});
    return;
  }
  rest.epilogue = Epilogue::None;
  rest.aux = {};
  if (g.epilogue == Epilogue::Relu || g.epilogue == Epilogue::DRelu) {
    on.gemm(rest);
    relu_in_steps(on, g, steps);
    return;
  }
  rest.d = Array(g.d.shape(), compute_dtype(g.a.dtype()), g.d.device());
  if (g.beta != 0) on.copy(rest.d, g.d);
  on.gemm(rest);
  gelu_in_steps(on, g, rest.d, steps);
}

}  // namespace halftape
