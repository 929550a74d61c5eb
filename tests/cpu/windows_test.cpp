// Kernels over windows have the bits of plain loops, whatever the layout, the length of rows and
// the number of threads.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <random>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/windows_reference.h"

using namespace halftape;
using testing::each_index;
using testing::last_of;
using testing::position;
using testing::same_bits;
using testing::shape_of;

namespace {

const std::vector<Dtype> floats = {kFloat32, kFloat16, kBFloat16, kFloat64};

struct Case {
  Windows w;
  Shape lengths, count;
};
/// Rows of up to 100 elements, and now and then one of more than a kernel's piece.
Case random_case(std::mt19937& dice) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(dice()) % n; };
  const int n = 1 + static_cast<int>(below(3));
  Case c;
  for (int d = 0; d < n; ++d) {
    c.w.size.push_back(1 + below(4)), c.w.stride.push_back(1 + below(3));
    c.w.dilation.push_back(1 + below(2)), c.w.padding.push_back(below(c.w.span(d) / 2 + 1));
    const int64_t most = d + 1 < n ? 40 / n : n == 3 ? 20 : below(8) == 0 ? 2500 : 100;
    c.lengths.push_back(c.w.span(d) + below(most));
  }
  c.count = testing::count_windows(c.w, c.lengths);
  return c;
}
/// x itself, with rows turned round in memory, or with other elements between its own.
Tensor laid_out(const Tensor& x, int how) {
  if (how == 0) return x;
  if (how == 1) return x.transpose(-1, 0).contiguous().transpose(-1, 0);
  Shape wide = x.sizes();
  wide[x.dim() - 1] *= 2;
  const Tensor room = full(wide, 77, x.options());
  const Tensor y = room.slice(-1, 0, wide[x.dim() - 1], 2);
  y.copy_(x);
  return y;
}
/// f(threads) with each number of them.
template <class F>
void with_threads(const F& f) {
  const int before = get_num_threads();
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    f(threads);
  }
  set_num_threads(before);
}

}  // namespace

TEST_CASE("folded windows are added up in float, in the order of their positions") {
  std::mt19937 dice(4);
  manual_seed(5);
  for (int i = 0; i < 60; ++i) {
    const Case c = random_case(dice);
    const Dtype dtype = floats[static_cast<size_t>(i) % floats.size()];
    Tensor g = randn(shape_of(shape_of({2, 3}, c.w.size), c.count), dtype);
    g.flatten()[g.numel() / 2] = i % 5 == 0 ? std::numeric_limits<double>::infinity() : -0.0;
    const std::vector<double> v = g.to_vector();
    const Shape shape = shape_of({2, 3}, c.lengths);
    std::vector<double> sums(static_cast<size_t>(numel(shape)), 0);
    each_index(c.w.size, [&](const Dims& k) {  // the order of positions: outermost
      each_index(shape_of({2, 3}, c.count), [&](const Dims& at) {
        Dims to{at[0], at[1]};
        for (int d = 0; d < c.w.dims(); ++d) {
          const int64_t s = at[2 + d] * c.w.stride[d] + k[d] * c.w.dilation[d] - c.w.padding[d];
          if (s < 0 || s >= c.lengths[d]) return;
          to.push_back(s);
        }
        const Shape from = shape_of(shape_of({at[0], at[1]}, k), last_of(at, c.w.dims()));
        double& sum = sums[position(shape, to)];
        sum += v[position(g.sizes(), from)];
        if (dtype != kFloat64) sum = static_cast<float>(sum);
      });
    });
    const Tensor expected = tensor(sums, kFloat64).reshape(shape).to(dtype);
    CAPTURE(i);
    with_threads([&](int threads) {
      const Tensor y = laid_out(zeros(shape, dtype), (i + threads) % 3);
      cpu_backend().fold(y.array(), laid_out(g, (i / 2 + threads) % 3).array(), c.w);
      CHECK(same_bits(y, expected));
    });
  }
}

TEST_CASE("the largest elements of windows are the first ones, or NaN") {
  std::mt19937 dice(6);
  manual_seed(7);
  for (int i = 0; i < 100; ++i) {
    const Case c = random_case(dice);
    const Dtype dtype = i % 5 == 4 ? kInt64 : floats[static_cast<size_t>(i) % 5];
    Tensor x = randint(-2, 3, shape_of({2, 3}, c.lengths)).to(dtype);  // many are equal
    if (dtype != kInt64) {
      x = where(rand(x.sizes()) < 0.03, std::numeric_limits<double>::quiet_NaN(), x).to(dtype);
      x = where(rand(x.sizes()) < 0.3, -std::numeric_limits<double>::infinity(), x).to(dtype);
    }
    const std::vector<double> v = x.to_vector();
    const Shape shape = shape_of({2, 3}, c.count);
    std::vector<double> places;
    each_index(shape, [&](const Dims& at) {
      double top = 0;
      int64_t best = -1;
      testing::each_in_window(
          c.w, c.lengths, last_of(at, c.w.dims()), [&](const Dims&, const Dims& s) {
            const double e = v[position(x.sizes(), shape_of({at[0], at[1]}, s))];
            if (best >= 0 && (e <= top || top != top)) return;
            top = e, best = static_cast<int64_t>(position(c.lengths, s));
          });
      places.push_back(static_cast<double>(best));
    });
    CAPTURE(i);
    with_threads([&](int threads) {
      const Tensor y = laid_out(zeros(shape, kLong), (i + threads) % 3);
      cpu_backend().argmax_windows(y.array(), laid_out(x, (i / 2 + threads) % 3).array(), c.w);
      CHECK(y.to_vector() == places);
    });
  }
}

TEST_CASE("copies of short rows write these and nothing beside them") {
  for (const Dtype dtype : {kUInt8, kFloat16, kFloat32, kFloat64})
    for (int64_t n = 1; n <= 600; n = n < 140 ? n + 1 : n + 61) {
      const Tensor x = arange(5 * (n + 3)).remainder(100).to(dtype).reshape({5, n + 3}),
                   y = full({5, n + 2}, 101, x.options());
      y.narrow(1, 1, n).copy_(x.narrow(1, 2, n));
      CAPTURE(n);
      CHECK(y.narrow(1, 1, n).to_vector() == x.narrow(1, 2, n).to_vector());
      CHECK(y.select(1, 0).to_vector() == std::vector<double>(5, 101));
      CHECK(y.select(1, n + 1).to_vector() == std::vector<double>(5, 101));
    }
}
