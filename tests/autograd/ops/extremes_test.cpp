// Extreme arguments give the right result, or at once an error that says why.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "halftape/core/machine/build_flags.h"
#include "halftape/tests/support/limited_memory.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::has;
using testing::kInf, testing::kNaN;
using testing::message;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                  kLeast = std::numeric_limits<int64_t>::min(), kHuge = int64_t{1} << 40;

using Longs = std::vector<int64_t>;
using Factors = std::vector<double>;

struct Refusal {
  std::function<void()> call;
  const char* says;
};

void refuses(const std::vector<Refusal>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    CAPTURE(all[i].says);
    const std::string text = message(all[i].call);
    CAPTURE(text);
    // A size_t of 32 bits refuses what no memory holds before any is asked for.
    const std::string_view says = all[i].says;
    const bool narrow = sizeof(size_t) == 4 && (says == "out of memory" || has(text, "32 bits"));
    CHECK(has(text, narrow ? "does not fit 32 bits" : all[i].says));
  }
}

}  // namespace

TEST_CASE("results that are too large for memory are refused before any work") {
  constexpr const char *memory = "out of memory", *bits = "does not fit 64 bits";
  const Tensor x = ones({1, 1, 3, 3}), theta = ones({1, 2, 3});
  refuses({
      {[] { arange(1e18); }, "arange: 1e+18 elements are too many"},
      {[] { arange(int64_t{1} << 58); }, memory},
      {[] { arange(kMost); }, "arange: 9223372036854775807 elements are too many"},
      {[] { linspace(0, 1, kHuge); }, memory},
      {[] { linspace(0, 1, kMost); }, "linspace: 9223372036854775807 elements are too many"},
      {[] { logspace(0, 1, kHuge); }, memory},
      {[=] {
         interpolate(x, Longs{kHuge, kHuge});
       },
       bits},
      {[=] {
         interpolate(x, Longs{kHuge, 1});
       },
       memory},
      {[=] {
         interpolate(x, Longs{kHuge, 1}, {}, kBicubic);
       },
       memory},
      {[=] {
         interpolate(x, Longs{kMost, 1}, {}, kArea);
       },
       bits},
      {[=] {
         interpolate(x, {}, Factors{1e15, 1e15});
       },
       bits},
      {[=] { adaptive_avg_pool2d(x, kHuge); }, bits},
      {[=] {
         adaptive_avg_pool2d(x, {kHuge, 1});
       },
       memory},
      {[=] {
         adaptive_avg_pool2d(x, {kMost, 1});
       },
       bits},
      {[=] {
         adaptive_max_pool2d(x, {kHuge, 1});
       },
       memory},
      {[=] {
         adaptive_max_pool2d(x, {kMost, 1});
       },
       bits},
      {[=] {
         max_unpool2d(x, zeros({1, 1, 3, 3}, kInt64), kHuge);
       },
       bits},
      {[=] {
         affine_grid(theta, {1, 1, kHuge, kHuge});
       },
       bits},
      {[=] {
         affine_grid(theta, {1, 1, 1, kHuge});
       },
       memory},
      {[] {
         repeat_interleave(tensor({kMost, kMost}));
       },
       bits},
      {[] { repeat_interleave(tensor({kHuge})); }, memory},
      {[=] {
         pad(x, {kMost, kMost}, kReplicate);
       },
       bits},
      {[=] {
         pad(x, {kHuge, 0}, kReplicate);
       },
       memory},
      {[=] {
         pad(x, {kHuge, 0});
       },
       memory},
      {[] {
         pdist(ones({1}).expand({1 << 22, 1}));
       },
       memory},
      {[] { one_hot(tensor({kMost})); }, bits},
      {[] { one_hot(tensor({kHuge})); }, memory},
      {[] { bincount(tensor({kMost})); }, bits},
      {[] { bincount(tensor({1}), {}, kHuge); }, memory},
      {[] { multinomial(ones({2}), kHuge, true); }, memory},
      {[] { randperm(kHuge); }, memory},
      {[=] { tensor_split(x, kHuge); }, "into 1099511627776 parts"},
      {[] { chunk(zeros({0}), kMost); }, "into 9223372036854775807 parts"},
      {[] { split(zeros({1}).expand({kHuge}), 1); }, "into 1099511627776 parts"},
      {[] { unbind(zeros({1}).expand({kHuge})); }, "into 1099511627776 parts"},
  });
}

TEST_CASE("arguments that are too large for any use are refused") {
  const Tensor x = ones({1, 1, 3, 3}), w = ones({1, 1, 2, 2}), m = ones({2, 2});
  refuses({
      {[=] { interpolate(x, Longs{5}); }, "size [5] has 1 numbers; expected 2"},
      {[=] {
         interpolate(x, {}, Factors{kNaN, 1});
       },
       "scale factor nan for dimension 0"},
      {[=] {
         interpolate(x, {}, Factors{1, kInf});
       },
       "scale factor inf for dimension 1"},
      {[=] {
         interpolate(x, {}, Factors{-kInf, 1});
       },
       "scale factor -inf"},
      {[=] { conv2d(x, w, {}, 1, kMost); }, "do not fit 64 bits"},
      {[=] { conv2d(x, w, {}, kMost); }, "do not fit 64 bits"},
      {[=] { conv2d(x, w, {}, 1, 0, kMost); }, "do not fit 64 bits"},
      {[=] { conv2d(x, w, {}, 1, "same", kMost); }, "do not fit 64 bits"},
      {[=] { conv2d(x, w, {}, 1, kLeast); }, "must not be negative"},
      {[=] { conv2d(x, w, {}, 1, 0, 1, kLeast); }, "groups -9223372036854775808 must be positive"},
      {[=] { conv_transpose2d(x, w, {}, 1, 0, 0, kMost); }, "groups do not divide"},
      {[=] { conv_transpose2d(x, w, {}, kMost); }, "do not fit 64 bits"},
      {[=] { conv_transpose2d(x, w, {}, 1, 0, kMost); }, "do not fit 64 bits"},
      {[=] { max_pool2d(x, kMost, 1, kMost / 2); }, "do not fit 64 bits"},
      {[=] { max_pool2d(x, 2, 1, 0, kMost); }, "do not fit 64 bits"},
      {[=] { avg_pool2d(x, 2, kMost); }, "do not fit 64 bits"},
      {[=] { lp_pool2d(x, 2, kMost); }, "do not fit 64 bits"},
      {[=] { im2col(x, 2, 1, kMost); }, "do not fit 64 bits"},
      {[=] {
         col2im(ones({4, 4}), 3, 2, kMost);
       },
       "do not fit 64 bits"},
      {[=] {
         fractional_max_pool2d(x, kMost, kMost, ones({1, 1, 2}));
       },
       "do not fit"},
      {[=] {
         constant_pad_nd(m, {kLeast, kLeast});
       },
       "does not fit 64 bits"},
      {[=] {
         constant_pad_nd(m, {kLeast, 0});
       },
       "cut more than the 2 elements"},
      {[=] {
         pad(m, {kMost, 0}, kCircular);
       },
       "makes at most 2"},
      {[=] {
         pad(m, {kLeast, 0}, kReflect);
       },
       "cut more than the 2 elements"},
      {[=] { diag_embed(m, kLeast); }, "does not fit 64 bits"},
      {[=] { diag_embed(m, kMost); }, "does not fit 64 bits"},
      {[=] {
         as_strided(m, {2, 2}, {kMost, kMost});
       },
       "does not fit 64 bits"},
      {[=] { as_strided(m, {2}, {1}, kMost); }, "does not fit 64 bits"},
      {[=] { as_strided(m, {2}, {1}, kLeast); }, "reach beyond the 4 elements"},
      {[=] {
         unflatten(m, 1, {kMost, kMost});
       },
       "does not fit 64 bits"},
      {[=] {
         rnn_tanh(ones({1, 1, 2}), ones({1, 1, 2}), {m, m}, false, kMost, 0, false, true, false);
       },
       "num_layers 9223372036854775807 with 2 weights"},
      {[] {
         const Tensor long_ones = ones({1}, kInt64).expand({2});
         ctc_loss(ones({1, 2, 2}), long_ones, Longs{1, 1}, Longs{kMost, kMost});
       },
       "does not fit 64 bits"},
  });
}

TEST_CASE("offsets, steps and windows far beyond the edges give the right results") {
  const Tensor m = ones({2, 3});
  CHECK(diagonal(m, kMost).sizes() == Shape{0});
  CHECK(diagonal(m, kLeast).sizes() == Shape{0});
  CHECK(diagonal(m, -1).sizes() == Shape{1});
  CHECK(diagonal(as_strided(m, {1, 3}, {kMost, 1})).equal(ones({1})));
  CHECK(as_strided(m, {0}, {1}, kMost).numel() == 0);
  CHECK(roll(arange(3), kMost).equal(roll(arange(3), kMost % 3)));
  CHECK(roll(arange(3), kLeast).equal(roll(arange(3), kLeast % 3)));
  CHECK(rot90(m, kLeast).equal(m));
  CHECK(unfold(arange(3), 0, 2, kMost).equal(tensor({{0, 1}})));
  CHECK(split(arange(3), kMost).size() == 1);
  const Tensor many = arange(1 << 17);  // too many to compare all pairs
  CHECK(searchsorted(many, many).equal(many));
  CHECK(bucketize(many, many, false, true).equal(many + 1));
  CHECK(diff(arange(3), kMost).numel() == 0);
  const Tensor x = arange(1, 6, kFloat32).reshape({1, 5});
  const int64_t wide = (int64_t{1} << 31) - 1;
  CHECK(max_pool1d(x, wide, 1, wide / 2).equal(full({1, 5}, 5.0)));
  CHECK(avg_pool1d(x, wide, 1, wide / 2, false, false).equal(full({1, 5}, 3.0)));
  CHECK(max_pool1d(x, 2, wide).equal(tensor({{2.f}})));
}

#if defined(HALFTAPE_LIMITED_MEMORY)
TEST_CASE("a sequence takes little more memory than its result") {
  constexpr int64_t n = int64_t{1} << 24;
  const TensorOptions cpu = TensorOptions(kFloat32).device(kCPU);
  const std::pair<const char*, std::function<Tensor()>> calls[] = {
      {"arange of doubles", [=] { return arange(0.0, n, 1.0, cpu); }},
      {"arange of integers", [=] { return arange(0, n, 1, cpu); }},
      {"linspace", [=] { return linspace(0, n - 1, n, cpu); }},
      {"logspace", [=] { return logspace(0, 1, n, 10, cpu); }},
  };
  for (const auto& call : calls) {
    CAPTURE(std::string(call.first));
    // The result is 64 MiB.
    CHECK(testing::with_memory_limit(uint64_t{72} << 20, [&] {
            const Tensor x = call.second();
            return x.numel() == n && x[n - 1].item<double>() >= 10 ? 0 : 1;
          }) == 0);
  }
}
#endif
