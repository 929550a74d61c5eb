// Losses against closed forms and PyTorch's values and gradients.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/loss_vectors.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
namespace F = nn::functional;
using testing::check;
using testing::classes;
using testing::differ;
using testing::kInf;
using testing::reductions;

TEST_CASE(
    "cross_entropy and nll_loss are PyTorch's for all reductions, weights and ignored classes") {
  const testing::Vectors torch("losses.txt");
  const Tensor x = torch.tensor("classes/logits", {5, 4}).requires_grad_();
  const Tensor target = classes(torch["classes/target"]);
  const Tensor weight = torch.tensor("classes/weight", {4});
  for (const auto& [reduction, word] : reductions) {
    for (const bool weighted : {false, true}) {
      for (const bool ignored : {false, true}) {
        const std::string suffix =
            word + (weighted ? "_weighted" : "") + (ignored ? "_ignored" : "");
        nn::NLLLossOptions nll;
        nll.reduction(reduction);
        nn::CrossEntropyLossOptions entropy;
        entropy.reduction(reduction);
        if (weighted) nll.weight(weight), entropy.weight(weight);
        if (ignored) nll.ignore_index(2), entropy.ignore_index(2);
        check(torch, "nll_loss/" + suffix, F::nll_loss(x, target, nll), {x});
        check(torch, "cross_entropy/" + suffix, F::cross_entropy(x, target, entropy), {x});
        entropy.label_smoothing(0.2);
        check(torch, "cross_entropy/" + suffix + "_smoothed", F::cross_entropy(x, target, entropy),
              {x});
      }
    }
  }
}

TEST_CASE("one sample may come without a batch dimension") {
  const testing::Vectors torch("losses.txt");
  const Tensor x = torch.tensor("classes/logits", {5, 4})[0].detach().clone().requires_grad_();
  const Tensor target = full({}, torch["classes/target"][0], kInt64);
  const Tensor weight = torch.tensor("classes/weight", {4});
  check(torch, "cross_entropy/one_sample",
        F::cross_entropy(x, target, nn::CrossEntropyLossOptions().weight(weight)), {x});
  CHECK(F::cross_entropy(x, target, nn::CrossEntropyLossOptions().reduction(kNone)).dim() == 0);
}

TEST_CASE("cross_entropy of extreme logits is finite, in value and gradient") {
  const testing::Vectors torch("losses.txt");
  const Tensor x = torch.tensor("cross_entropy/extreme/input", {2, 3}).requires_grad_();
  check(torch, "cross_entropy/extreme",
        F::cross_entropy(x, classes({1, 2}), nn::CrossEntropyLossOptions().reduction(kNone)), {x});
}

TEST_CASE("cross_entropy of equal logits is ln C, whatever the target and the smoothing") {
  const Tensor x = full({3, 7}, 2.5, kFloat64);
  for (const double smoothing : {0.0, 0.3, 1.0}) {
    const auto options = nn::CrossEntropyLossOptions().label_smoothing(smoothing);
    CHECK(differ(F::cross_entropy(x, classes({0, 3, 6}), options), {std::log(7)}, {.ulps = 4}) ==
          "");
  }
}

TEST_CASE("the gradient of cross_entropy is softmax minus one-hot, over the batch size") {
  manual_seed(2);
  const Tensor x = randn({4, 3}, kFloat64).requires_grad_();
  const std::vector<double> target = {2, 0, 1, 1};
  F::cross_entropy(x, classes(target)).backward();
  std::vector<double> expected = F::softmax(x.detach(), 1).to_vector();
  for (size_t n = 0; n < 4; ++n) expected[n * 3 + static_cast<size_t>(target[n])] -= 1;
  for (double& e : expected) e /= 4;
  CHECK(differ(x.grad(), expected, {.ulps = 8, .eps = 1}) == "");
}

TEST_CASE("an ignored sample contributes nothing, even where its logits are infinite") {
  const Tensor x = tensor({{1.0, 2.0}, {-kInf, 0.5}, {0.5, -1.0}}, kFloat64).requires_grad_();
  const Tensor kept = tensor({{1.0, 2.0}, {0.5, -1.0}}, kFloat64).requires_grad_();
  const auto options = nn::NLLLossOptions().ignore_index(0);
  const Tensor loss = F::nll_loss(x, classes({1, 0, 1}), options);
  CHECK(testing::same_bits(loss.detach(), F::nll_loss(kept, classes({1, 1})).detach()));
  loss.backward();
  CHECK(x.grad().to_vector() == std::vector<double>{0, -0.5, 0, 0, 0, -0.5});
}

TEST_CASE("when every sample is ignored the sum is 0 and the mean is NaN, as in PyTorch") {
  const Tensor x = randn({2, 3}, kFloat64), target = classes({1, 1});
  nn::CrossEntropyLossOptions o;
  o.ignore_index(1);
  CHECK(std::isnan(F::cross_entropy(x, target, o).item()));
  CHECK(F::cross_entropy(x, target, o.reduction(kSum)).item() == 0);
  CHECK(F::cross_entropy(x, target, o.reduction(kNone)).equal(zeros({2}, kFloat64)));
}

TEST_CASE("classes and shapes that do not fit are refused with both") {
  const Tensor x = zeros({2, 3});
  const auto target = [](const std::vector<double>& v) { return classes(v); };
  for (const bool nll : {false, true}) {
    CAPTURE(nll);
    auto loss = [nll](const Tensor& input, const Tensor& t, const Tensor& weight = {}) {
      return nll ? nll_loss(input, t, weight) : cross_entropy(input, t, weight);
    };
    const char* name = nll ? "nll_loss" : "cross_entropy";
    CHECK_THROWS_WITH_AS(loss(x, zeros({2})), doctest::Contains("expected int64"), Error);
    CHECK_THROWS_WITH_AS(loss(x, zeros({2})), doctest::Contains(name), Error);
    CHECK_THROWS_WITH_AS(loss(x, target({0, 1, 2})), doctest::Contains("target [3]"), Error);
    CHECK_THROWS_WITH_AS(loss(zeros({2, 3, 4}), target({0, 1})), doctest::Contains("[2, 3, 4]"),
                         Error);
    CHECK_THROWS_WITH_AS(loss(x, target({0, 1}), ones({2})),
                         doctest::Contains("weight [2] for 3 classes"), Error);
    // On a GPU with the next call, if not at once.
    CHECK_THROWS_AS(loss(x, target({0, 3})).item(), Error);
    CHECK_THROWS_AS(loss(x, target({-1, 0})).item(), Error);
  }
  for (const double bad : {-0.1, 1.5, std::nan("")})
    CHECK_THROWS_WITH_AS(cross_entropy(x, target({0, 1}), {}, kMean, -100, bad),
                         doctest::Contains("label_smoothing"), Error);
}

TEST_CASE("mse_loss is PyTorch's, with gradients for both sides") {
  const testing::Vectors torch("losses.txt");
  const Tensor x = torch.tensor("mse_loss/a", {3, 4}).requires_grad_();
  const Tensor y = torch.tensor("mse_loss/b", {3, 4}).requires_grad_();
  for (const auto& [reduction, word] : reductions)
    check(torch, "mse_loss/" + word, F::mse_loss(x, y, reduction), {x, y});
}

TEST_CASE("the binary losses are PyTorch's, from comfortable to saturated logits") {
  const testing::Vectors torch("losses.txt");
  const Tensor z = torch.tensor("binary/z", {3, 4}).requires_grad_();
  const Tensor p = torch.tensor("binary/p", {3, 4}).requires_grad_();
  const Tensor y = torch.tensor("binary/y", {3, 4}), w = torch.tensor("binary/w", {3, 4}),
               pos = torch.tensor("binary/pos", {4});
  for (const auto& [reduction, word] : reductions) {
    for (const bool weighted : {false, true}) {
      const std::string suffix = word + (weighted ? "_weighted" : "");
      nn::BCEWithLogitsLossOptions logits;
      logits.reduction(reduction);
      nn::BCELossOptions plain;
      plain.reduction(reduction);
      if (weighted) logits.weight(w), plain.weight(w);
      check(torch, "bce_with_logits/" + suffix, F::binary_cross_entropy_with_logits(z, y, logits),
            {z});
      check(torch, "bce/" + suffix, F::binary_cross_entropy(p, y, plain), {p});
      logits.pos_weight(pos);
      check(torch, "bce_with_logits/" + suffix + "_pos",
            F::binary_cross_entropy_with_logits(z, y, logits), {z});
    }
  }
}

TEST_CASE("binary_cross_entropy bounds its logarithms at -100") {
  const testing::Vectors torch("losses.txt");
  const Tensor p = torch.tensor("bce/saturated/p", {6}), y = torch.tensor("bce/saturated/y", {6});
  const Tensor loss = F::binary_cross_entropy(p, y, nn::BCELossOptions().reduction(kNone));
  CHECK(differ(loss, torch["bce/saturated/value"], {.ulps = 1}) == "");
}

TEST_CASE("a saturated probability with the right target has gradient 0, and none is NaN") {
  // sigmoid(20) is 1 in float32: every well-trained classifier gets there.
  const Tensor x = tensor({20.0, -200.0}).requires_grad_();
  const Tensor p = F::sigmoid(x);
  REQUIRE(p.to_vector() == std::vector<double>{1, 0});
  F::binary_cross_entropy(p, tensor({1.0, 0.0})).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{0, 0});

  const testing::Vectors torch("losses.txt");
  const Tensor q = torch.tensor("bce/saturated/p", {6}).requires_grad_();
  F::binary_cross_entropy(q, torch.tensor("bce/saturated/y", {6})).backward();
  for (const double g : q.grad().to_vector()) CHECK_FALSE(std::isnan(g));
}

TEST_CASE("binary_cross_entropy_with_logits is binary_cross_entropy of the sigmoid") {
  manual_seed(3);
  const Tensor z = randn({4, 5}, kFloat64), y = rand({4, 5}, kFloat64);
  CHECK(differ(F::binary_cross_entropy_with_logits(z, y), F::binary_cross_entropy(F::sigmoid(z), y),
               {.ulps = 16}) == "");
}

TEST_CASE("the element-wise losses do not broadcast: that hides mistakes") {
  const Tensor x = rand({4, 1}), y = rand({4});
  CHECK_THROWS_WITH_AS(F::mse_loss(x, y), doctest::Contains("[4, 1] and target [4]"), Error);
  CHECK_THROWS_WITH_AS(F::binary_cross_entropy(x, y), doctest::Contains("[4, 1] and target [4]"),
                       Error);
  CHECK_THROWS_WITH_AS(F::binary_cross_entropy_with_logits(x, y),
                       doctest::Contains("[4, 1] and target [4]"), Error);
  // Nor does a weight make more of them.
  const auto refused = doctest::Contains("weight [4, 1] does not broadcast to the input, [4]");
  CHECK_THROWS_WITH_AS(F::binary_cross_entropy(y, y, nn::BCELossOptions().weight(x)), refused,
                       Error);
  using Logits = nn::BCEWithLogitsLossOptions;
  CHECK_THROWS_WITH_AS(F::binary_cross_entropy_with_logits(y, y, Logits().weight(x)), refused,
                       Error);
  CHECK_THROWS_WITH_AS(F::binary_cross_entropy_with_logits(y, y, Logits().pos_weight(x)), refused,
                       Error);
}

TEST_CASE("losses as modules take the functions' options") {
  manual_seed(4);
  const Tensor x = randn({3, 4}), y = rand({3, 4}), t = classes({0, 3, 2});
  CHECK(testing::same_bits(nn::MSELoss()(x, y), F::mse_loss(x, y)));
  CHECK(testing::same_bits(nn::MSELoss(kSum)(x, y), F::mse_loss(x, y, kSum)));
  CHECK(testing::same_bits(nn::CrossEntropyLoss()(x, t), F::cross_entropy(x, t)));
  const auto smooth = nn::CrossEntropyLossOptions().label_smoothing(0.1);
  CHECK(testing::same_bits(nn::CrossEntropyLoss(smooth)(x, t), F::cross_entropy(x, t, smooth)));
  CHECK_FALSE(nn::CrossEntropyLoss(smooth)(x, t).equal(F::cross_entropy(x, t)));
  CHECK(testing::same_bits(nn::NLLLoss()(x, t), F::nll_loss(x, t)));
  CHECK(testing::same_bits(nn::BCELoss()(y, y), F::binary_cross_entropy(y, y)));
  CHECK(
      testing::same_bits(nn::BCEWithLogitsLoss()(x, y), F::binary_cross_entropy_with_logits(x, y)));
  CHECK(nn::CrossEntropyLoss()->parameters().empty());
}

TEST_CASE("class weights may be float32 where the logits are float64 or float16") {
  const Tensor w = tensor({0.5, 2.0, 1.0}), t = classes({0, 1});
  for (const Dtype d : {kFloat64, kFloat16}) {
    const Tensor x = tensor({{1.0, 2.0, 3.0}, {0.5, -1.0, 0.0}}, d);
    const auto o = nn::CrossEntropyLossOptions().weight(w);
    CHECK(differ(F::cross_entropy(x, t, o),
                 F::cross_entropy(x.to(kFloat64), t,
                                  nn::CrossEntropyLossOptions().weight(w.to(kFloat64))),
                 {.ulps = 4}) == "");
    CHECK(F::cross_entropy(x, t, o).dtype() == d);
  }
}
