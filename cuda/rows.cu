// Softmax along the last dimension: statistics in float (double).
#include <limits>

#include "halftape/cuda/kernels.h"
#include "halftape/cuda/rows.cuh"

namespace halftape::cuda {
namespace {

template <class S, class Team, int kHeld>
__global__ void softmax_rows(const __grid_constant__ Rows<2> a, bool log) {
  for_rows<Team>(a, [&](int64_t, char* const(&at)[2]) {
    constexpr S lowest = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    Inputs<S, Team, 2, kHeld> in(a, at, lowest);
    S top = lowest;
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) { top = formula::Max::step(top, x[0][i]); });
    });
    top = Team::template all<formula::Max>(top);
    S total = 0;
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) {
        const S e = exp(x[0][i] - top);
        total += e;
        if (kHeld > 0 && !log) x[0][i] = e;
      });
    });
    total = Team::template all<formula::Sum>(total);
    const S shift = log ? halftape::log(total) : S(0);
    in.each([&](S(&x)[1][kPack], int64_t first) {
      unrolled<kPack>([&](int i) {
        x[0][i] = log         ? (x[0][i] - top) - shift
                  : kHeld > 0 ? x[0][i] / total
                              : exp(x[0][i] - top) / total;
      });
      in.write(x[0], first);
    });
  });
}

template <class S, class Team, int kHeld>
__global__ void softmax_grad_rows(const __grid_constant__ Rows<3> a, bool log) {
  for_rows<Team>(a, [&](int64_t, char* const(&at)[3]) {
    Inputs<S, Team, 3, kHeld> in(a, at, S(0));
    S total = 0;
    in.each([&](S(&x)[2][kPack], int64_t) {
      const auto &g = x[0], &y = x[1];
      unrolled<kPack>([&](int i) { total += log ? g[i] : g[i] * y[i]; });
    });
    total = Team::template all<formula::Sum>(total);
    in.each([&](S(&x)[2][kPack], int64_t first) {
      auto &g = x[0], &y = x[1];
      unrolled<kPack>(
          [&](int i) { g[i] = log ? g[i] - exp(y[i]) * total : y[i] * (g[i] - total); });
      in.write(g, first);
    });
  });
}

}  // namespace

void softmax(const Array& y, const Array& x, bool log) {
  in_its_precision(y, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<2, bool>(
        "softmax", {y, x}, log,
        {softmax_rows<S, Warp, 1>, softmax_rows<S, Warp, 4>, softmax_rows<S, Block, 0>});
  });
}

void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  in_its_precision(dx, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<3, bool>("softmax gradient", {dx, g, y}, log,
                         {softmax_grad_rows<S, Warp, 1>, softmax_grad_rows<S, Warp, 4>,
                          softmax_grad_rows<S, Block, 0>});
  });
}

}  // namespace halftape::cuda
