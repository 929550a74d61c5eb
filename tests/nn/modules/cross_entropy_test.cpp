// cross_entropy in one pass: how few calls it is, what a half loses, and targets that are wrong or
// ignored; at many places of a sample and of probabilities against PyTorch's values.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/loss_vectors.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
namespace F = nn::functional;
using testing::check;
using testing::classes;
using testing::differ;
using testing::has;
using testing::kInf;
using testing::message;
using testing::reductions;
using testing::same_bits;

namespace {

const Dtype floats[] = {kFloat16, kBFloat16, kFloat32, kFloat64};

std::string word(bool on, const char* text) { return on ? text : ""; }

/// What cross_entropy means, in plain ops.
Tensor composed(const Tensor& x, const Tensor& target, const Tensor& weight, double smoothing) {
  const Tensor log_p = log_softmax(x, -1),
               w = weight.defined() ? weight : ones({x.size(-1)}, x.options());
  const Tensor hot = one_hot(target, x.size(-1)).to(x.dtype());
  const Tensor q = w * ((1 - smoothing) * hot + smoothing / static_cast<double>(x.size(-1)));
  return -sum(q * log_p, {-1});
}

}  // namespace

TEST_CASE("cross_entropy, forward and backward, is two calls, and reads nothing back") {
  const Tensor x = randn({6, 10}).requires_grad_(), t = classes({0, 3, 9, 1, 1, 2});
  ones({}, requires_grad()).backward();  // the 1 that passes begin with is made once
  testing::TracingBackend trace;
  const Tensor mean = cross_entropy(x, t);
  CHECK(trace.calls == std::vector<std::string>{"cross_entropy"});
  trace.clear();
  mean.backward();
  CHECK(trace.calls == std::vector<std::string>{"cross_entropy_grad"});
  x.mutable_grad() = {};
  trace.clear();
  const Tensor sum = cross_entropy(x, t, {}, kSum);
  sum.backward();
  CHECK(trace.calls == std::vector<std::string>{"cross_entropy", "reduce", "mul"});
  trace.clear();
  const NoGradGuard guard;
  cross_entropy(x, t, {}, kNone);
  CHECK(trace.calls == std::vector<std::string>{"cross_entropy"});
  // One number for each row, and no gradient.
  CHECK(trace.allocations == std::vector<size_t>{6 * sizeof(float)});
}

TEST_CASE("the kernel gives what the plain ops give, in value and every derivative") {
  manual_seed(8);
  const Tensor weight = rand({7}, kFloat64) + 0.5, t = classes({6, 0, 3, 3});
  for (const bool weighted : {false, true}) {
    for (const double smoothing : {0.0, 0.3, 1.0}) {
      CAPTURE(weighted);
      CAPTURE(smoothing);
      const Tensor w = weighted ? weight : Tensor();
      const Tensor x = randn({4, 7}, kFloat64).requires_grad_(), v = randn({4, 7}, kFloat64);
      const auto derivatives = [&](const Tensor& losses) {
        const Tensor g = autograd::grad({sum(square(losses))}, {x}, {}, true, true)[0];
        const Tensor h = autograd::grad({sum(g * v)}, {x}, {}, true, true)[0];
        return TensorList{losses, g, h, autograd::grad({sum(h * h)}, {x})[0]};
      };
      const TensorList ours = derivatives(cross_entropy(x, t, w, kNone, -100, smoothing)),
                       plain = derivatives(composed(x, t, w, smoothing));
      for (size_t i = 0; i < ours.size(); ++i)
        CHECK(differ(ours[i], plain[i].detach(), {.ulps = 64, .eps = 64}) == "");
    }
  }
}

TEST_CASE("a class without weight gives its row no gradient, of any order") {
  const Tensor x = randn({2, 3}, kFloat64).requires_grad_(), w = tensor({0.0, 1.0, 1.0}, kFloat64);
  const Tensor losses = cross_entropy(x, classes({0, 1}), w, kNone);
  const Tensor g = autograd::grad({sum(losses)}, {x}, {}, true, true)[0];
  CHECK(g[0].equal(zeros({3}, kFloat64)));
  const Tensor h = autograd::grad({sum(square(g))}, {x})[0];
  CHECK(h[0].equal(zeros({3}, kFloat64)));
  CHECK_FALSE(h[1].equal(zeros({3}, kFloat64)));
}

TEST_CASE("half logits lose in float32: their loss and gradient are rounded once") {
  manual_seed(9);
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor x = (3 * randn({50, 20})).to(d).requires_grad_();
    const Tensor wide = x.detach().to(kFloat32).requires_grad_();
    const Tensor t = randint(0, 20, {50}, kInt64);
    for (const auto& [reduction, called] : reductions) {
      const auto& name = called;  // Clang 14 captures no structured binding
      CAPTURE(name);
      const Tensor loss = cross_entropy(x, t, {}, reduction),
                   exact = cross_entropy(wide, t, {}, reduction);
      CHECK(loss.dtype() == d);
      CHECK(same_bits(loss.detach(), exact.detach().to(d)));
      const Tensor g = autograd::grad({loss}, {x}, {ones_like(loss)})[0];
      CHECK(same_bits(g, autograd::grad({exact}, {wide}, {ones_like(exact)})[0].to(d)));
    }
  }
  // 70,000 rows of float16: neither their number nor the sum of their losses fits in a half.
  const Tensor many = zeros({70000, 2}, kFloat16);
  CHECK(cross_entropy(many, zeros({70000}, kInt64)).item() ==
        doctest::Approx(std::log(2)).epsilon(1e-3));
}

TEST_CASE("a scaled half gradient keeps shares that a half itself could not hold") {
  const Tensor x = tensor({{0.0, 18.0}}, kFloat16).requires_grad_();
  const double share = std::exp(-18.0);  // 1.5e-8, below the smallest half
  (cross_entropy(x, classes({1})) * 32768).backward();
  CHECK(x.grad().to_vector()[0] == doctest::Approx(32768 * share).epsilon(2e-3));
}

TEST_CASE("an ignored row is 0 in loss and gradient, whatever its logits are") {
  for (const Dtype d : floats) {
    const Tensor x =
        tensor({{1.0, 2.0}, {-kInf, kInf}, {std::nan(""), 0.0}, {0.5, -1.0}}, d).requires_grad_();
    const Tensor kept = tensor({{1.0, 2.0}, {0.5, -1.0}}, d).requires_grad_();
    const auto o = nn::CrossEntropyLossOptions().ignore_index(7).label_smoothing(0.1);
    const Tensor loss = F::cross_entropy(x, classes({0, 7, 7, 1}), o),
                 plain = F::cross_entropy(kept, classes({0, 1}), o);
    CHECK(same_bits(loss.detach(), plain.detach()));
    loss.backward(), plain.backward();
    const auto g = x.grad().to_vector(), h = kept.grad().to_vector();
    CHECK(g == std::vector<double>{h[0], h[1], 0, 0, 0, 0, h[2], h[3]});
  }
}

TEST_CASE("a batch in which all is ignored has a mean of NaN, and gradients of NaN as in PyTorch") {
  const Tensor x = randn({3, 4}).requires_grad_(), t = classes({-100, -100, -100});
  CHECK(std::isnan(cross_entropy(x, t).item()));
  CHECK(cross_entropy(x, t, {}, kSum).item() == 0);
  cross_entropy(x, t, {}, kSum).backward();
  CHECK(x.grad().equal(zeros({3, 4})));
  CHECK(std::isnan(cross_entropy(zeros({0, 4}), zeros({0}, kInt64)).item()));
}

TEST_CASE("a target out of range is told with its position, before anything is written") {
  const Tensor x = zeros({3, 5}).requires_grad_();
  const auto said = [&](const Tensor& input, const Tensor& t) {
    return message([&] { cross_entropy(input, t); });
  };
  CHECK(said(x, classes({0, 4, 7})) ==
        "cross_entropy: target 7 at position 2 is out of range [0, 5)");
  CHECK(said(x, classes({0, -100, -1})) ==
        "cross_entropy: target -1 at position 2 is out of range [0, 5)");
  CHECK(said(zeros({2, 3, 2}), classes({0, 1, 3, 1}).reshape({2, 2})) ==
        "cross_entropy: target 3 at position 2 is out of range [0, 3)");
  CHECK(said(x, classes({0, 4, 2})) == "");
  CHECK(has(said(zeros({3, 0}), classes({-100, -100, -100})), "[3, 0] has no classes"));
}

TEST_CASE("losses of classes at many places of a sample are PyTorch's") {
  const testing::Vectors torch("cross_entropy.txt");
  const Tensor weight = torch.tensor("weight", {4});
  for (const auto& [place, shape] : {std::pair<std::string, Shape>{"line", {3, 4, 2}},
                                     std::pair<std::string, Shape>{"image", {2, 4, 2, 3}}}) {
    const Tensor x = torch.tensor(place + "/logits", shape).requires_grad_();
    const Tensor t = classes(torch[place + "/target"]).reshape(reduced_shape(shape, {1}, false));
    for (const auto& [r, name] : reductions) {
      for (const bool weighted : {false, true}) {
        const std::string suffix = place + "_" + name + word(weighted, "_weighted");
        const Tensor w = weighted ? weight : Tensor();
        check(torch, "nll_loss/" + suffix, nll_loss(x, t, w, r, 2), {x});
        check(torch, "cross_entropy/" + suffix, cross_entropy(x, t, w, r, 2), {x});
        check(torch, "cross_entropy/" + suffix + "_smoothed", cross_entropy(x, t, w, r, 2, 0.2),
              {x});
      }
    }
  }
}

TEST_CASE("losses of the probabilities of all classes are PyTorch's, with gradients for both") {
  const testing::Vectors torch("cross_entropy.txt");
  const Tensor weight = torch.tensor("weight", {4});
  for (const auto& [place, shape] :
       {std::pair<std::string, Shape>{"one", {4}}, std::pair<std::string, Shape>{"some", {3, 4}},
        std::pair<std::string, Shape>{"places", {2, 4, 3}}}) {
    const Tensor x = torch.tensor(place + "/logits", shape).requires_grad_(),
                 p = torch.tensor(place + "/p", shape).requires_grad_();
    for (const auto& [r, name] : reductions)
      for (const bool weighted : {false, true})
        for (const double smoothing : {0.0, 0.2})
          check(torch,
                "probabilities/" + place + "_" + name + word(weighted, "_weighted") +
                    word(smoothing > 0, "_smoothed"),
                cross_entropy(x, p, weighted ? weight : Tensor(), r, -100, smoothing), {x, p});
  }
}

TEST_CASE("targets that are neither classes nor probabilities are refused with what is expected") {
  const Tensor x = zeros({2, 3});
  const auto said = [&](const Tensor& target, const Tensor& weight = {}, int64_t ignored = -100) {
    return message([&] { cross_entropy(x, target, weight, kMean, ignored); });
  };
  CHECK(has(said(zeros({2})), "target is float32, expected int64"));
  CHECK(has(said(zeros({2, 3}, kInt64)), "target [2, 3]; expected (N, C) and (N)"));
  CHECK(has(said(zeros({2}, kInt32)), "target is int32"));
  CHECK(has(said(zeros({2, 3}), {}, 1), "ignore_index 1 with a target of probabilities"));
  CHECK(has(said(zeros({2, 3}), ones({2})), "weight [2] for 3 classes"));
  CHECK(has(message([&] { cross_entropy(x.to(kInt64), zeros({2}, kInt64)); }), "int64"));
  CHECK(has(message([&] { cross_entropy(x, zeros({2}, kInt64), {}, kBatchMean); }), "kBatchMean"));
}

TEST_CASE("the same bits for any number of threads and any layout of the logits") {
  manual_seed(10);
  const int before = get_num_threads();
  const Tensor t = randint(0, 300, {40}, kInt64), w = rand({300});
  const Tensor x = randn({40, 300}), turned = x.t().clone().t();
  TensorList results;
  for (const Tensor& logits : {x, turned}) {
    for (const int threads : {1, 4}) {
      set_num_threads(threads);
      const Tensor leaf = logits.detach().requires_grad_();
      const Tensor loss = cross_entropy(leaf, t, w, kMean, -100, 0.1);
      loss.backward();
      results.push_back(cat({reshape(leaf.grad(), {-1}), reshape(loss.detach(), {1})}));
    }
  }
  set_num_threads(before);
  for (const Tensor& r : results) CHECK(same_bits(r, results[0]));
}

TEST_CASE(
    "few classes, whose rows are worked on together, have the bits of many, a row at a time") {
  manual_seed(11);
  for (const Dtype d : floats)
    for (const int64_t C : {1, 2, 10, 17, 31, 32})
      for (const int64_t rows : {1, 31, 33, 200}) {
        CAPTURE(d);
        CAPTURE(C);
        CAPTURE(rows);
        const Tensor few = (randn({rows, C}) * 3).to(d), w = rand({C}).to(compute_dtype(d)),
                     t = randint(0, C, {rows}, kInt64);
        for (int64_t i = 0; i < rows; i += 5) t.select(0, i).fill_(-100);
        const Tensor many = cat({few, full({rows, 70 - C}, -kInf, d)}, 1),
                     none = zeros({70 - C}, w.options());
        TensorList losses, slopes;
        for (const Tensor& x : {few, many}) {
          const Tensor leaf = x.detach().clone().requires_grad_();
          const Tensor loss = cross_entropy(leaf, t, x.size(1) == C ? w : cat({w, none}, 0), kNone);
          loss.backward(ones_like(loss));
          losses.push_back(loss.detach());
          slopes.push_back(leaf.grad().narrow(1, 0, C).contiguous());
        }
        CHECK(same_bits(losses[0], losses[1]));
        CHECK(same_bits(slopes[0], slopes[1]));
      }
}
