// Softmax, norms and cross-entropy of the contract.
#include <doctest/doctest.h>

#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("softmax and its gradient give the same bits in every layout") {
  for (const Dtype d : floats) {
    for (const bool log : {false, true}) {
      for (const Shape& s :
           {Shape{}, Shape{1}, Shape{0}, Shape{3, 0}, Shape{7, 31}, Shape{3, 5, 33},
            Shape{many(3000, 300), 10}, Shape{3, many(9001, 5001)}}) {
        check({"softmax",
               {numbers(s, d)},
               {numbers(s, d, 2, s.size() != 2)},
               [log](const Arrays& y, const Arrays& x) { tested().softmax(y[0], x[0], log); },
               true});
        check({"softmax_grad",
               {numbers(s, d)},
               {numbers(s, d, 2, false), numbers(s, d, 3, false)},
               [log](const Arrays& y, const Arrays& x) {
                 tested().softmax_grad(y[0], x[0], x[1], log);
               },
               true});
      }
    }
  }
}

TEST_CASE("softmax writes an output of any layout, as the other kernels do") {
  const Array x = numbers({7, 31}, kFloat32, 2, false), y = numbers({7, 31}, kFloat32, 3, false);
  check({"softmax", {x}, {x}, [](const Arrays& to, const Arrays& from) {
           tested().softmax(to[0], from[0], false);
         }});
  check({"softmax_grad", {x}, {x, y}, [](const Arrays& to, const Arrays& from) {
           tested().softmax_grad(to[0], from[0], from[1], false);
         }});
}

TEST_CASE(
    "normalisation, its gradients and running statistics give the same bits in every layout") {
  for (const Dtype d : floats) {
    const Dtype wide = d == kFloat64 ? kFloat64 : kFloat32;
    const auto random = [](const Shape& s, Dtype dtype, uint32_t seed) {
      return numbers(s, dtype, seed, false);
    };
    // Statistics are contiguous, so they are outputs only here, and read back as they were written.
    const auto contiguous = [](const Array& a) { return empty_like(a); };
    for (const Shape& s : {Shape{31}, Shape{7, 33}, Shape{0, 3}, Shape{300, 5}, Shape{3, 1100}}) {
      const Shape length{s.back()}, rows = reduced_shape(s, {s.size() - 1}, false);
      for (const bool centred : {true, false}) {
        check({centred ? "row_norm" : "row_norm about 0",
               {random(s, d, 1), random(s, d, 2), random(length, d, 3), random(length, wide, 4),
                random(rows, wide, 5), random(rows, wide, 6)},
               {random(s, d, 7), random(length, wide, 8), random(length, d, 9), random(s, d, 10)},
               [&](const Arrays& y, const Arrays& x) {
                 Norm norm{.x = x[0], .weight = x[1], .bias = x[2], .eps = 1e-5};
                 if (centred) norm.mean = contiguous(y[4]);
                 norm.rstd = contiguous(y[5]);
                 tested().row_norm(y[0], norm);
                 tested().row_norm_grad({y[1], y[2], y[3]}, x[3], norm);
                 if (centred) tested().copy(y[4], norm.mean);
                 tested().copy(y[5], norm.rstd);
               }});
      }
    }
    for (const Shape& s : {Shape{5, 3, 1}, Shape{2, 3, 40}, Shape{3, 35, 33}, Shape{2, 2, 2500},
                           Shape{600, 33, 1}}) {
      const Shape channels{s[1]};
      for (const bool training : {true, false}) {
        check(
            {training ? "batch_norm" : "batch_norm in evaluation",
             {random(s, d, 1), random(s, d, 2), random(channels, d, 3), random(channels, wide, 4),
              random(channels, wide, 5), random(channels, d, 6), full({}, 3, kInt64, kCPU)},
             {random(s, d, 7), random(channels, wide, 8), random(channels, d, 9), random(s, d, 10)},
             [&](const Arrays& y, const Arrays& x) {
               Norm norm{.x = x[0], .weight = x[1], .bias = x[2], .eps = 1e-5};
               norm.mean = y[4].clone(), norm.rstd = y[4].clone();
               tested().batch_norm(y[0], norm, training,
                                   {.mean = y[4], .var = y[5], .batches = y[6], .momentum = -1});
               tested().batch_norm_grad({y[1], y[2], y[3]}, x[3], norm, training);
             }});
      }
    }
  }
}

TEST_CASE("cross_entropy gives the same bits in every layout") {
  for (const Dtype d : floats) {
    const Dtype wide = compute_dtype(d);
    for (const Shape& s : {Shape{5}, Shape{7, 31}, Shape{3, 5, 33}, Shape{many(3000, 300), 10},
                           Shape{3, many(9001, 5001)}}) {
      const Shape rows = reduced_shape(s, {s.size() - 1}, false);
      const int64_t C = s.back();
      const Array target(rows, kInt64, kCPU), weight = numbers({C}, wide, 4, false);
      for (int64_t i = 0; i < target.numel(); ++i)
        target.data<int64_t>()[i] = i % 4 == 3 ? -100 : i * 7919 % C;
      const Array there = target.to(get_default_device()),
                  weights = weight.to(get_default_device());
      for (const double smoothing : {0.0, 0.1}) {
        check({"cross_entropy",
               {numbers(rows, wide), numbers(rows, wide), numbers(s, wide)},
               {numbers(s, d, 2, false)},
               [&](const Arrays& y, const Arrays& x) {
                 tested().cross_entropy({.x = x[0],
                                         .target = there,
                                         .weight = smoothing == 0 ? Array() : weights,
                                         .smoothing = smoothing,
                                         .loss = y[0],
                                         .counted = y[1],
                                         .grad = y[2]});
               },
               true});
      }
    }
  }
}
