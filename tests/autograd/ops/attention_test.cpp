// Attention as one op equals its formula in ops, in values and derivatives, and in what it drops;
// its memory is linear.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/autograd/ops/product/attention.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/many.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::has;
using testing::kInf, testing::kNaN;
using testing::message;
using testing::relative_distance;
using testing::same_bits;

namespace {

enum class Mask { None, Causal, Bool, Float, HidesAll, Keys };

/// Sizes of an attention: q (lead_q, L, E), k (lead_k, S, E), v (lead_v, S, F).
struct Case {
  Shape q, k, v;
  Mask mask = Mask::None;
  double dropout = 0;
  std::optional<double> scale = {};
};

const std::vector<Case> kCases{
    {{1, 1}, {1, 1}, {1, 1}},
    {{3, 4}, {5, 4}, {5, 3}},
    {{3, 4}, {5, 4}, {5, 3}, Mask::HidesAll},
    {{2, 31, 8}, {2, 31, 8}, {2, 31, 8}, Mask::Causal},
    {{2, 32, 8}, {2, 32, 8}, {2, 32, 8}, Mask::Causal, 0.2},
    {{2, 33, 5}, {2, 33, 5}, {2, 33, 7}, Mask::Causal},
    {{1, 100, 16}, {1, 37, 16}, {1, 37, 16}, Mask::Causal},
    {{1, 37, 16}, {1, 100, 16}, {1, 100, 16}, Mask::Causal, 0.5},
    {{2, 3, 64, 32}, {2, 3, 64, 32}, {2, 3, 64, 32}, Mask::Causal},
    {{2, 3, 65, 3}, {2, 3, 1, 3}, {2, 3, 1, 2}},
    {{2, 1, 1, 3}, {2, 1, 97, 3}, {2, 1, 97, 1}, Mask::Keys},
    {{2, 3, 40, 6}, {2, 1, 40, 6}, {2, 1, 40, 6}, Mask::Bool},
    {{2, 1, 40, 6}, {1, 3, 33, 6}, {33, 5}, Mask::Float, 0.25},
    {{40, 6}, {4, 33, 6}, {4, 33, 6}, Mask::Bool, 0.1},
    {{2, 3, 2, 9, 4}, {2, 3, 2, 9, 4}, {2, 3, 2, 9, 4}, Mask::Bool},
    {{3, 1, 2, 9, 4}, {2, 1, 11, 4}, {1, 2, 11, 4}, Mask::Float},
    {{2, 70, 16}, {2, 70, 16}, {2, 70, 16}, Mask::HidesAll, 0.3},
    {{2, 35, 16}, {2, 35, 16}, {2, 35, 16}, Mask::Float, 0, 1.5},
    {{2, 35, 16}, {2, 66, 16}, {2, 66, 16}, Mask::None, 0.9, -0.3},
    {{5, 129, 2}, {5, 3, 2}, {5, 3, 2}, Mask::Keys, 0.5, 0.0},
};

/// The same numbers for every dtype.
struct Inputs {
  Tensor q, k, v, mask;
  Inputs(const Case& c, Dtype d) {
    manual_seed(3);
    const auto drawn = [&](const Shape& shape) {
      return randn(shape, kFloat64).to(kBFloat16).to(d).requires_grad_();
    };
    q = drawn(c.q), k = drawn(c.k), v = drawn(c.v);
    const int64_t rows = q.size(-2), keys = k.size(-2);
    if (c.mask == Mask::Bool) mask = rand({rows, keys}) < 0.6;
    if (c.mask == Mask::HidesAll)
      mask = logical_and(rand({rows, keys}) < 0.6, rand({rows, 1}) < 0.7);
    if (c.mask == Mask::Keys) mask = (rand({q.size(0), 1, keys}) < 0.8);
    if (c.mask == Mask::Keys && q.dim() == 4) mask = mask.unsqueeze(1);
    if (c.mask == Mask::Float)
      mask = where(rand({rows, keys}) < 0.2, -kInf, randn({rows, keys}, kFloat64)).to(kBFloat16);
  }
  TensorList all() const { return {q, k, v}; }
};

/// By the formula, or as one op; numbers for dropout begin with seed 5.
Tensor attended(const Inputs& in, const Case& c, bool formula) {
  manual_seed(5);
  return detail::attention("attended", in.q, in.k, in.v, in.mask, c.dropout, c.mask == Mask::Causal,
                           c.scale, formula)
      .first;
}

/// Σ y·w, w in the dtype of y.
Tensor weighed(const Tensor& y) {
  return (y * linspace(-1, 1, y.numel(), kFloat64).reshape(y.sizes()).to(y.dtype()))
      .to(kFloat64)
      .sum();
}

struct Threads {
  int before = get_num_threads();
  ~Threads() { set_num_threads(before); }
};

}  // namespace

TEST_CASE("attention as one op and by the formula are equally near to float64") {
  for (size_t n = 0; n < kCases.size(); ++n)
    for (const Dtype d : {kFloat64, kFloat32, kFloat16, kBFloat16}) {
      CAPTURE(n);
      CAPTURE(d);
      const Case& c = kCases[n];
      const Inputs exact(c, kFloat64), in(c, d);
      const Tensor right = attended(exact, c, true), y = attended(in, c, false);
      const uint64_t drawn = get_generator().offset;
      const Tensor formula = attended(in, c, true);
      CHECK(get_generator().offset == drawn);
      CHECK(y.dtype() == d);
      CHECK(y.sizes() == right.sizes());
      const double allowed = 10 * epsilon(d);
      CHECK(relative_distance(y, right) <= allowed);
      CHECK(relative_distance(formula, right) <= allowed);
      const TensorList wanted = autograd::grad({weighed(right)}, exact.all()),
                       got = autograd::grad({weighed(y)}, in.all()),
                       plain = autograd::grad({weighed(formula)}, in.all());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i].dtype() == d);
        CHECK(got[i].sizes() == in.all()[i].sizes());
        CHECK(relative_distance(got[i], wanted[i]) <= allowed);
        CHECK(relative_distance(plain[i], wanted[i]) <= allowed);
      }
    }
}

TEST_CASE("an input of attention has the same gradient alone as beside the others") {
  for (size_t n = 0; n < kCases.size(); ++n) {
    CAPTURE(n);
    const Inputs in(kCases[n], kFloat32);
    const TensorList together = autograd::grad({weighed(attended(in, kCases[n], false))}, in.all());
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      for (const Tensor& x : in.all()) x.set_requires_grad(false);
      const Tensor only = in.all()[i].set_requires_grad(true);
      CHECK(
          autograd::grad({weighed(attended(in, kCases[n], false))}, {only})[0].equal(together[i]));
    }
  }
}

TEST_CASE("second derivatives of attention are the formula's") {
  for (size_t n = 0; n < kCases.size(); ++n) {
    CAPTURE(n);
    const Case& c = kCases[n];
    const Inputs in(c, kFloat64);
    const auto second = [&](bool formula) {
      const TensorList first =
          autograd::grad({weighed(attended(in, c, formula))}, in.all(), {}, {}, true);
      Tensor sum = zeros({}, kFloat64);
      for (const Tensor& g : first) sum = sum + weighed(g * g);
      return autograd::grad({sum}, in.all());
    };
    const TensorList got = second(false), wanted = second(true);
    for (size_t i = 0; i < got.size(); ++i) CHECK(relative_distance(got[i], wanted[i]) <= 1e-12);
  }
}

TEST_CASE("attention drops the weights that its formula drops, bit for bit") {
  // With the unit matrix as values the result is the weights.
  for (const Dtype d : {kFloat64, kFloat32, kFloat16, kBFloat16})
    for (const int64_t keys : {1, 6, 7, 33, 70}) {
      CAPTURE(keys);
      const Tensor q = randn({2, 3, 37, 4}).to(d), k = randn({2, 3, keys, 4}).to(d),
                   unit = eye(keys).to(d);
      manual_seed(9);
      rand({3});  // a stream that has begun
      const Generator before = get_generator(q.device());
      const Tensor y = scaled_dot_product_attention(q, k, unit, {}, 0.4);
      const Generator after = get_generator(q.device());
      set_generator(before, q.device());
      const Tensor w = detail::attention("", q, k, unit, {}, 0.4, false, {}, true).second;
      CHECK(get_generator(q.device()).offset == after.offset);
      CHECK(get_generator(q.device()).seed == after.seed);
      CHECK(same_bits(y == 0, w == 0));
      const double dropped = (w == 0).to(kFloat32).mean().item<double>();
      CHECK(dropped > 0.3);
      CHECK(dropped < 0.5);
    }
}

TEST_CASE("attention with dropout by the CPU's Mt19937 is the formula, word for word") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  const Tensor x = randn({2, 9, 4});
  const auto weights = [&](bool formula) {
    manual_seed(4);
    return detail::attention("", x, x, x, {}, 0.3, false, {}, formula).first;
  };
  CHECK(same_bits(weights(false), weights(true)));
  set_random_state(before);
}

TEST_CASE("one op is recorded, and it notices inputs that are changed in place") {
  const auto leaf = [] { return randn({2, 3, 8, 4}).requires_grad_(); };
  const Tensor q = leaf(), k = leaf(), v = leaf();
  const int64_t before = Node::live_count();
  const Tensor y = scaled_dot_product_attention(q, k, v, {}, 0.1, true);
  CHECK(Node::live_count() == before + 1);
  CHECK(std::string(y.grad_fn()->name()) == "scaled_dot_product_attention");
  const Tensor mask = ones({8, 8}, kBool), heads = q.detach().clone();
  const Tensor z = scaled_dot_product_attention(heads, k, v, mask);
  heads.add_(1);
  CHECK(has(message([&] { z.sum().backward(); }), "in place"));
  const Tensor u = scaled_dot_product_attention(q, k, v, mask);
  mask.fill_(false);
  CHECK(has(message([&] { u.sum().backward(); }), "in place"));
}

TEST_CASE("the result of attention lies in memory as the queries do") {
  const Tensor x = randn({2, 9, 3, 4});  // (batch, length, heads, features)
  const auto heads = [](const Tensor& t) { return t.transpose(1, 2); };
  const Tensor y = scaled_dot_product_attention(heads(x), heads(x), heads(x));
  CHECK(y.sizes() == Shape{2, 3, 9, 4});
  CHECK(heads(y).is_contiguous());
  CHECK(scaled_dot_product_attention(x, x, x).is_contiguous());
}

TEST_CASE("infinite and NaN scores become what they are in the formula") {
  for (const Dtype d : {kFloat64, kFloat32, kFloat16})
    for (const double bad : {kInf, -kInf, kNaN})
      for (const Mask m : {Mask::None, Mask::Causal, Mask::Bool}) {
        CAPTURE(d);
        CAPTURE(bad);
        const Case c{{3, 40, 4}, {3, 40, 4}, {3, 40, 4}, m};
        Inputs in(c, d);
        in.q = in.q.detach().clone(), in.k = in.k.detach().clone();
        in.k.select(0, 0).select(0, 7).fill_(bad);
        in.q.select(0, 1).select(0, 33).fill_(bad);
        in.v.requires_grad_(false);
        const Tensor y = attended(in, c, false), formula = attended(in, c, true);
        CHECK(same_bits(y.isnan(), formula.isnan()));
        CHECK(y.isnan().any().item<bool>());
        CHECK(relative_distance(where(y.isnan(), 0, y),
                                where(formula.isnan(), 0, formula).to(kFloat64)) <=
              10 * epsilon(d));
      }
}

TEST_CASE("attention has the same bits for any number of threads") {
  const Threads restored;
  for (const int64_t heads : {1, 2, 3, 8})
    for (const Dtype d : {kFloat64, kFloat32, kBFloat16})
      for (const bool causal : {false, true}) {
        CAPTURE(heads);
        CAPTURE(d);
        const Case c{{heads, 150, 24},
                     {heads, 150, 24},
                     {heads, 150, 40},
                     causal ? Mask::Causal : Mask::Bool,
                     0.1};
        const Inputs in(c, d);
        TensorList first;
        for (int threads = 1; threads <= testing::many(4, 2); ++threads) {
          set_num_threads(threads);
          const Tensor y = attended(in, c, false);
          TensorList all = autograd::grad({weighed(y)}, in.all());
          all.push_back(y);
          if (threads == 1) first = all;
          for (size_t i = 0; i < all.size(); ++i) CHECK(same_bits(all[i], first[i]));
        }
      }
}

TEST_CASE("the memory of attention is linear in its length, with a mask for all queries as well") {
  if (!get_default_device().is_cpu()) return;  // the GPU counts its own memory
  const Threads restored;
  const auto peak = [](int64_t length, int threads) {
    set_num_threads(threads);
    const Tensor x = randn({2, 2, length, 8}).requires_grad_(),
                 mask = rand({2, 1, 1, length}) < 0.7;
    const int64_t before = cpu::memory_allocated();
    cpu::reset_peak_memory_stats();
    scaled_dot_product_attention(x, x, x, mask, 0.1).sum().backward();
    return cpu::max_memory_allocated() - before;
  };
  // Each thread that gets work has memory of its own, and of two one may come too late for any.
  // Shorter ones are one block, whose memory depends on the level of the CPU.
  CHECK(peak(4096, 1) <= 2 * peak(2048, 1));
  // bytes: less than half a bool for each score
  CHECK(peak(4096, 2) < int64_t{2} * 2 * 4096 * 4096 / 2);
}

TEST_CASE("attention over 4,096 keys is its formula") {
  if (!get_default_device().is_cpu()) return;  // the rig takes minutes for so many scores
  const std::vector<int64_t> rows{0, 31, 64, 2047, 4095};  // whose gradient is not zero
  const Tensor at = tensor(rows), seen = arange(4096).unsqueeze(0) <= at.unsqueeze(1);
  for (const Dtype d : {kFloat32, kFloat16, kBFloat16}) {
    CAPTURE(d);
    const Case c{{2, 4096, 8}, {2, 4096, 8}, {2, 4096, 8}, Mask::Causal};
    const Inputs in(c, d), exact(c, kFloat64);
    const Tensor y = attended(in, c, false).index_select(1, at);
    const Tensor right =
        scaled_dot_product_attention(exact.q.index_select(1, at), exact.k, exact.v, seen);
    CHECK(relative_distance(y, right) <= 10 * epsilon(d));
    const TensorList got = autograd::grad({weighed(y)}, in.all()),
                     wanted = autograd::grad({weighed(right)}, exact.all());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(relative_distance(got[i], wanted[i]) <= 10 * epsilon(d));
    }
  }
}

TEST_CASE("attention is recomputed with the same dropout inside checkpoint()") {
  const Tensor x = randn({2, 4, 20, 8}).requires_grad_();
  const auto f = [](const TensorList& in) {
    const Tensor& t = in[0];
    return scaled_dot_product_attention(t, t, t, {}, 0.4, true).tanh();
  };
  const auto gradient = [&](bool again) {
    manual_seed(8);
    const Tensor y = again ? autograd::checkpoint(f, {x}) : f({x});
    return autograd::grad({weighed(y)}, {x})[0];
  };
  CHECK(same_bits(gradient(true), gradient(false)));
}
