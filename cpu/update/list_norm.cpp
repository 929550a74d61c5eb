// The norm of a list of arrays, and the factor that clips it.
#include "halftape/core/formula/norm.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/update/values.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// NormOrder's terms and their sum where p is 2 and the unit 1: what a loop vectorises.
struct Squares {
  static double term(double x) { return x * x; }
  static double join(double a, double b) { return a + b; }
};
/// The terms of all elements, joined in an order that does not depend on the number of threads.
template <class S, class Order>
double joined(const Array& x, const Order& order) {
  constexpr int64_t kPart = 4096;
  const int64_t n = x.numel();
  const int64_t pieces = (n + kPart - 1) / kPart;
  const Scratch<double> parts(pieces);
  parallel_ranges(pieces, 4, [&](int64_t begin, int64_t end) {
    Lanes<S> lanes(x.dtype());
    for (int64_t part = begin; part < end; ++part) {
      double sums[kLanes] = {};
      const auto take = [&](const S* v, int64_t count) {
        for (int64_t k = 0; k < count; ++k)
          sums[k] = order.join(sums[k], order.term(static_cast<double>(v[k])));
      };
      char* at = static_cast<char*>(x.raw()) + part * kPart * lanes.item();
      int64_t rest = std::min(kPart, n - part * kPart);
      for (int64_t m; rest > 0; rest -= m, at += m * lanes.item()) {
        m = Lanes<S>::block(rest);
        const S* v = lanes.read(at, 1, m);
        if (m < kLanes) take(v, m);
        for (int64_t i = 0; i + kLanes <= m; i += kLanes) take(v + i, kLanes);
      }
      double& all = parts.data()[part] = 0;
      for (const double sum : sums) all = order.join(all, sum);
    }
  });
  double all = 0;
  for (int64_t part = 0; part < pieces; ++part) all = order.join(all, parts.data()[part]);
  return all;
}

}  // namespace

void CpuBackend::list_norm(const ListNorm& n) {
  const NormOrder order{n.p, n.unit.defined() ? value(n.unit) : 1};
  double sum = 0;
  for (const Array& given : n.xs) {
    if (!given.defined() || given.numel() == 0) continue;
    const Array x = given.to_contiguous();
    const bool squares = order.p == 2 && order.unit == 1;
    with_float_type(x.dtype(), [&](auto t) {
      using S = typename decltype(t)::type;
      sum = order.join(sum, squares ? joined<S>(x, Squares{}) : joined<S>(x, order));
    });
  }
  const double norm = order.whole(sum);
  set(n.norm, norm);
  set(n.factor, NormOrder::factor(value(n.norm), n.most));
}

}  // namespace halftape::cpu
