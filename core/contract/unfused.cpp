#include "halftape/core/contract/unfused.h"

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

template <class Op>
constexpr OpId kBinary = BinaryOps::index<Op>();
constexpr OpId kSum = ReduceOps::index<formula::Sum>();

}  // namespace

void unfused(Backend& on, const CrossEntropyGrad& c) {
  const Array share = empty_like(c.total);
  on.binary(kBinary<formula::Div>, share, c.g, c.total);
  on.binary(kBinary<formula::Mul>, c.dx, c.slopes, share.expand(c.slopes.shape()));
}

void mean_unfused(Backend& on, const CrossEntropy& c) {
  Dims all;
  for (int d = 0; d < c.loss.dim(); ++d) all.push_back(d);
  on.reduce(kSum, c.total, c.counted, all);
  on.reduce(kSum, c.mean, c.loss, all);
  on.binary(kBinary<formula::Div>, c.mean, c.mean, c.total);
}

void unfused(Backend& on, const LossScaling& s) {
  if (s.begins) on.fill(s.bad_loss, 0);
  on.check_finite({&s.loss, 1}, s.bad_loss);
  on.binary(kBinary<formula::Mul>, s.scaled, s.loss, s.scale.expand(s.loss.shape()));
  if (s.factor.defined()) on.copy(s.factor, s.scale);
  if (s.inverse.defined()) on.unary(UnaryOps::index<formula::Reciprocal>(), s.inverse, s.scale, {});
  if (s.found_inf.defined()) on.copy(s.found_inf, s.bad_loss);
  if (s.first.defined()) on.fill(s.first, -1);
}

void unfused(Backend& on, const Push& p) {
  const Array at({1}, kInt64, p.ring.device()), n = empty_like(at);
  on.fill(n, p.ring.numel());
  const Array now = p.count.reshape({1}), pushed({1}, p.ring.dtype(), p.ring.device());
  on.copy(pushed, p.value.reshape({1}));
  on.binary(kBinary<formula::Remainder>, at, now, n);
  on.scatter(p.ring, pushed, 0, at, {"push"});
  on.fill(n, 1);
  on.binary(kBinary<formula::Add>, now, now, n);
}

}  // namespace halftape
