// Losses of elements, margins and distances against PyTorch's values and gradients.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <sstream>

#include "halftape/tests/support/loss_vectors.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
namespace F = nn::functional;
using testing::check;
using testing::classes;
using testing::differ;
using testing::kInf;
using testing::reductions;

namespace {

Tensor leaf(const testing::Vectors& torch, const std::string& name, const Shape& shape) {
  return torch.tensor(name, shape).requires_grad_();
}
std::string text(double v) {
  std::ostringstream out;
  out << v;
  const std::string s = out.str();
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}
Tensor pairwise_1(const Tensor& a, const Tensor& b) { return pairwise_distance(a, b, 1); }
}  // namespace

TEST_CASE("l1_loss, smooth_l1_loss and huber_loss are PyTorch's on both sides of their bounds") {
  const testing::Vectors torch("more_losses.txt");
  const Tensor x = leaf(torch, "elements/x", {10}), y = leaf(torch, "elements/y", {10});
  for (const auto& [r, word] : reductions) {
    check(torch, "l1_loss/" + word, F::l1_loss(x, y, r), {x, y});
    for (const double beta : {0.0, 0.3, 1.0, 2.5}) {
      const std::string name = "smooth_l1_loss/" + text(beta) + "/" + word;
      check(torch, name, F::smooth_l1_loss(x, y, nn::SmoothL1LossOptions(r).beta(beta)), {x, y});
      check(torch, name, F::smooth_l1_loss(x, y, r, beta), {x, y});
    }
    for (const double delta : {0.3, 1.0, 2.5})
      check(torch, "huber_loss/" + text(delta) + "/" + word,
            F::huber_loss(x, y, nn::HuberLossOptions(r).delta(delta)), {x, y});
    CHECK(testing::same_bits(F::smooth_l1_loss(x, y, r), F::smooth_l1_loss(x, y, r, 1)));
  }
}

TEST_CASE("an infinite difference costs infinitely much, and pulls with the bounded force") {
  const Tensor x = tensor({kInf, -kInf, 0.5}, kFloat64).requires_grad_();
  const Tensor y = zeros({3}, kFloat64);
  F::huber_loss(x, y, nn::HuberLossOptions(kSum).delta(2)).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{2, -2, 0.5});
  CHECK(huber_loss(x, y, kSum).item() == kInf);
}

TEST_CASE("kl_div is PyTorch's for targets and their logarithms, and 0·ln 0 is 0") {
  const testing::Vectors torch("more_losses.txt");
  const Tensor x = leaf(torch, "kl_div/x", {3, 4}), y = leaf(torch, "kl_div/y", {3, 4});
  for (const auto& [r, word] : {std::pair{kNone, "none"}, std::pair{kMean, "mean"},
                                std::pair{kSum, "sum"}, std::pair{kBatchMean, "batchmean"}}) {
    check(torch, std::string("kl_div/plain/") + word, F::kl_div(x, y, nn::KLDivLossOptions(r)),
          {x, y});
    const Tensor log_y = log(y.detach()).requires_grad_();
    check(torch, std::string("kl_div/log/") + word,
          F::kl_div(x, log_y, nn::KLDivLossOptions(r).log_target(true)), {x, log_y});
  }
  Tensor zero = y.detach().clone();
  zero[0][1].zero_();
  check(torch, "kl_div/zero", F::kl_div(x, zero, nn::KLDivLossOptions(kNone)), {x});
  zero.requires_grad_();
  F::kl_div(x, zero, kSum).backward();
  for (const double g : zero.grad().to_vector()) CHECK(std::isfinite(g));
  CHECK(kl_div(tensor(-1.0), tensor(0.5), kBatchMean).item() ==
        kl_div(tensor(-1.0), tensor(0.5), kSum).item());
}

TEST_CASE("poisson_nll_loss is PyTorch's with every option") {
  const testing::Vectors torch("more_losses.txt");
  const Tensor x = leaf(torch, "poisson/x", {6}), y = torch.tensor("poisson/y", {6});
  for (const auto& [r, word] : reductions)
    for (const bool log_input : {false, true})
      for (const bool full : {false, true})
        for (const auto& [eps, eps_word] : {std::pair{1e-8, "1e-08"}, std::pair{0.1, "0.1"}})
          check(torch,
                "poisson_nll_loss/" + std::to_string(log_input) + std::to_string(full) + "_" +
                    eps_word + "/" + word,
                F::poisson_nll_loss(
                    x, y,
                    nn::PoissonNLLLossOptions().log_input(log_input).full(full).eps(eps).reduction(
                        r)),
                {x});
  // Counts may be whole numbers, whose logarithm is as exact as the input.
  const Tensor counts = tensor({0, 3, 7, 1, 2, 5}, kInt64);
  const auto o = nn::PoissonNLLLossOptions().full(true);
  CHECK(testing::same_bits(F::poisson_nll_loss(x, counts, o),
                           F::poisson_nll_loss(x, counts.to(kFloat64), o)));
}

TEST_CASE("gaussian_nll_loss is PyTorch's, with gradients for all three") {
  const testing::Vectors torch("more_losses.txt");
  const Tensor x = leaf(torch, "gaussian/x", {3, 4}), y = leaf(torch, "gaussian/y", {3, 4});
  const Tensor whole = leaf(torch, "gaussian/var", {3, 4});
  const Tensor row = leaf(torch, "gaussian/row", {3}), column = leaf(torch, "gaussian/row", {3, 1});
  for (const bool full : {false, true}) {
    for (const auto& [eps, eps_word] : {std::pair{1e-6, "1e-06"}, std::pair{0.01, "0.01"}}) {
      auto o = nn::GaussianNLLLossOptions().full(full).eps(eps);
      const std::string suffix = std::to_string(full) + "_" + eps_word + "/";
      for (const auto& [r, word] : reductions)
        check(torch, "gaussian_nll_loss/whole" + suffix + word,
              F::gaussian_nll_loss(x, y, whole, o.reduction(r)), {x, y, whole});
      o.reduction(kNone);
      check(torch, "gaussian_nll_loss/row" + suffix + "none", F::gaussian_nll_loss(x, y, row, o),
            {x, y, row});
      check(torch, "gaussian_nll_loss/column" + suffix + "none",
            F::gaussian_nll_loss(x, y, column, o), {x, y, column});
    }
  }
}

TEST_CASE("the losses of signs are PyTorch's, also exactly at the margin") {
  const testing::Vectors torch("margin_losses.txt");
  const Tensor x = leaf(torch, "sign/x", {8}), other = leaf(torch, "sign/other", {8});
  const Tensor y = torch.tensor("sign/y", {8});
  for (const auto& [r, word] : reductions) {
    for (const double margin : {0.5, 1.0})
      check(torch, "hinge_embedding_loss/" + text(margin) + "/" + word,
            F::hinge_embedding_loss(x, y,
                                    nn::HingeEmbeddingLossOptions().margin(margin).reduction(r)),
            {x});
    check(torch, "soft_margin_loss/" + word, F::soft_margin_loss(x, y, r), {x});
    for (const double margin : {0.0, 0.4})
      check(torch, "margin_ranking_loss/" + text(margin) + "/" + word,
            F::margin_ranking_loss(x, other, y,
                                   nn::MarginRankingLossOptions().margin(margin).reduction(r)),
            {x, other});
  }
  CHECK(soft_margin_loss(tensor({-1000.0}, kFloat64), ones({1}, kFloat64)).item() == 1000);
}

TEST_CASE("the losses of vectors are PyTorch's for every norm, margin and swap") {
  const testing::Vectors torch("margin_losses.txt");
  const Tensor u = leaf(torch, "vectors/u", {4, 3}), v = leaf(torch, "vectors/v", {4, 3}),
               w = leaf(torch, "vectors/w", {4, 3}), y = torch.tensor("vectors/sign", {4});
  const Tensor first = u.detach()[0].clone().requires_grad_(),
               second = v.detach()[0].clone().requires_grad_();
  for (const auto& [r, word] : reductions) {
    for (const double margin : {0.0, 0.3})
      check(torch, "cosine_embedding_loss/" + text(margin) + "/" + word,
            F::cosine_embedding_loss(u, v, y,
                                     nn::CosineEmbeddingLossOptions().margin(margin).reduction(r)),
            {u, v});
    check(torch, "cosine_embedding_loss/one/" + word,
          F::cosine_embedding_loss(first, second, y[0],
                                   nn::CosineEmbeddingLossOptions().reduction(r)),
          {first, second});
    for (const bool swap : {false, true}) {
      for (const double p : {1.0, 2.0, 3.0}) {
        if (p != 2 && r != kNone) continue;
        for (const auto& [margin, eps] : {std::pair{1.0, 1e-6}, std::pair{0.2, 0.01}})
          check(
              torch,
              "triplet_margin_loss/" + text(p) + "_" + std::to_string(swap) + "_" + text(margin) +
                  "/" + word,
              F::triplet_margin_loss(
                  u, v, w,
                  nn::TripletMarginLossOptions().margin(margin).p(p).eps(eps).swap(swap).reduction(
                      r)),
              {u, v, w});
      }
      auto o = nn::TripletMarginWithDistanceLossOptions().margin(0.7).swap(swap).reduction(r);
      const std::string suffix = std::to_string(swap) + "/" + word;
      check(torch, "triplet_margin_with_distance_loss/default_" + suffix,
            F::triplet_margin_with_distance_loss(u, v, w, o), {u, v, w});
      o.distance_function(
          [](const Tensor& a, const Tensor& b) { return sum(square(a - b), {-1}); });
      check(torch, "triplet_margin_with_distance_loss/squared_" + suffix,
            F::triplet_margin_with_distance_loss(u, v, w, o), {u, v, w});
    }
  }
}

TEST_CASE("the margins of classes are PyTorch's, by weight, power and number of labels") {
  const testing::Vectors torch("margin_losses.txt");
  const Tensor x = leaf(torch, "classes/x", {4, 5}), weight = torch.tensor("classes/weight", {5});
  const Tensor target = classes(torch["classes/target"]),
               labels = classes(torch["labels/target"]).reshape({4, 5}),
               y = torch.tensor("labels/y", {4, 5});
  const Tensor first = x.detach()[0].clone().requires_grad_();
  for (const auto& [r, word] : reductions) {
    for (const int64_t p : {1, 2})
      for (const double margin : {0.3, 1.0})
        for (const bool weighted : {false, true})
          check(torch,
                "multi_margin_loss/" + std::to_string(p) + "_" + text(margin) +
                    (weighted ? "_weighted/" : "/") + word,
                F::multi_margin_loss(x, target,
                                     nn::MultiMarginLossOptions()
                                         .p(p)
                                         .margin(margin)
                                         .weight(weighted ? weight : Tensor())
                                         .reduction(r)),
                {x});
    check(torch, "multi_margin_loss/one/" + word,
          F::multi_margin_loss(first, target[0], nn::MultiMarginLossOptions().reduction(r)),
          {first});
    check(torch, "multilabel_margin_loss/" + word, F::multilabel_margin_loss(x, labels, r), {x});
    check(torch, "multilabel_margin_loss/one/" + word,
          F::multilabel_margin_loss(first, labels[0], r), {first});
    for (const bool weighted : {false, true})
      check(
          torch,
          std::string("multilabel_soft_margin_loss/") + (weighted ? "weighted/" : "plain/") + word,
          F::multilabel_soft_margin_loss(x, y,
                                         nn::MultiLabelSoftMarginLossOptions()
                                             .weight(weighted ? weight : Tensor())
                                             .reduction(r)),
          {x});
  }
}

TEST_CASE("the modules are the functions with their options") {
  manual_seed(6);
  const Tensor x = rand({3, 4}), y = rand({3, 4}), z = rand({3, 4}), t = classes({0, 3, 2});
  const Tensor signs = tensor({1.0, -1.0, 1.0});
  using testing::same_bits;
  CHECK(same_bits(nn::L1Loss(kSum)(x, y), F::l1_loss(x, y, kSum)));
  CHECK(same_bits(nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(0.1))(x, y),
                  F::smooth_l1_loss(x, y, kMean, 0.1)));
  CHECK(same_bits(nn::HuberLoss(nn::HuberLossOptions().delta(0.1))(x, y),
                  huber_loss(x, y, kMean, 0.1)));
  CHECK(same_bits(nn::KLDivLoss(kBatchMean)(x, y), kl_div(x, y, kBatchMean)));
  CHECK(same_bits(nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(true))(x, 5 * y),
                  poisson_nll_loss(x, 5 * y, true, true)));
  CHECK(same_bits(nn::GaussianNLLLoss()(x, y, z), gaussian_nll_loss(x, y, z)));
  CHECK(same_bits(nn::HingeEmbeddingLoss()(x, y), hinge_embedding_loss(x, y)));
  CHECK(same_bits(nn::SoftMarginLoss()(x, y), soft_margin_loss(x, y)));
  CHECK(same_bits(nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(2))(x, y, z),
                  margin_ranking_loss(x, y, z, 2)));
  CHECK(same_bits(nn::CosineEmbeddingLoss()(x, y, signs), cosine_embedding_loss(x, y, signs)));
  CHECK(same_bits(nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2))(x, t),
                  multi_margin_loss(x, t, 2)));
  const Tensor labels = classes({0, 3, -1, 1, 2, -1, 0, 0, 1, 2, 3, 0}).reshape({3, 4});
  CHECK(same_bits(nn::MultiLabelMarginLoss()(x, labels), multilabel_margin_loss(x, labels)));
  CHECK(same_bits(nn::MultiLabelSoftMarginLoss()(x, y), multilabel_soft_margin_loss(x, y)));
  CHECK(same_bits(nn::TripletMarginLoss()(x, y, z), triplet_margin_loss(x, y, z)));
  CHECK(same_bits(nn::TripletMarginWithDistanceLoss()(x, y, z),
                  triplet_margin_with_distance_loss(x, y, z)));
}

TEST_CASE("half losses are computed in float32, whose mean does not overflow") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor x = full({200}, 300, d), y = full({200}, -300, d);
    CHECK(huber_loss(x, y, kMean, 100).item() == doctest::Approx(55000).epsilon(0.01));
    CHECK(l1_loss(x, y).item() == 600);
    CHECK(l1_loss(x, y).dtype() == d);
    CHECK(l1_loss(x, y.to(kFloat32)).dtype() == kFloat32);
    const auto rounded = [d](const Tensor& exact) { return exact.to(d).to(kFloat64).item(); };
    const Tensor large = tensor({300.0, 0.0, 0.0, 0.0}, d), none = zeros({4}, d);
    CHECK(mse_loss(large, none).item() == rounded(tensor({22500.0})));
    CHECK(mse_loss(large, none).dtype() == d);
    // ln(1 + e⁻⁸), of which 1 − σ(−8) has no digit in 16 bits.
    const Tensor logit = full({1}, -8, d).requires_grad_(), is_one = zeros({1}, d);
    const Tensor loss = binary_cross_entropy_with_logits(logit, is_one);
    CHECK(loss.item() == doctest::Approx(std::log1p(std::exp(-8.0))).epsilon(epsilon(d)));
    CHECK(loss.dtype() == d);
    loss.backward();
    CHECK(logit.grad().item() == doctest::Approx(1 / (1 + std::exp(8.0))).epsilon(epsilon(d)));
    const Tensor heavy = full({2}, 40000, d), p = full({2}, 0.5, d);
    CHECK(binary_cross_entropy(p, zeros({2}, d), heavy).item() ==
          rounded(heavy.to(kFloat64).mean() * std::log(2.0)));
    CHECK(binary_cross_entropy_with_logits(zeros({2}, d), zeros({2}, d), heavy.to(kFloat32))
              .dtype() == kFloat32);
  }
}

TEST_CASE("options and shapes that do not fit are refused with both") {
  const auto said = [](const char* words, const std::function<void()>& f) {
    CHECK_THROWS_WITH_AS(f(), doctest::Contains(words), Error);
  };
  const Tensor x = rand({3, 4}), y = rand({4}), t = classes({0, 3, 2});
  said("smooth_l1_loss: beta -1 is negative", [&] { smooth_l1_loss(x, x, kMean, -1); });
  said("beta 2 is given, and 1 in the options",
       [&] { F::smooth_l1_loss(x, x, nn::SmoothL1LossOptions().beta(1), 2); });
  said("huber_loss: delta 0 is not positive", [&] { huber_loss(x, x, kMean, 0); });
  said("gaussian_nll_loss: eps 0", [&] { gaussian_nll_loss(x, x, x, false, 0); });
  said("gaussian_nll_loss: var [4] for input [3, 4]", [&] { gaussian_nll_loss(x, x, y); });
  said("multi_margin_loss: p 3 is neither 1 nor 2", [&] { multi_margin_loss(x, t, 3); });
  said("multi_margin_loss: target 4 at position 1 is out of range [0, 4)", [&] {
    multi_margin_loss(x, classes({0, 4, 1}));
    testing::settle();
  });
  said("multi_margin_loss: weight [3] for 4 classes",
       [&] { multi_margin_loss(x, t, 1, 1, ones({3})); });
  said("multilabel_margin_loss: target 4 at position 1 is out of range [0, 4)", [&] {
    multilabel_margin_loss(y, classes({0, 4, -1, 1}));
    testing::settle();
  });
  said("multilabel_margin_loss: target is float32", [&] { multilabel_margin_loss(y, y); });
  said("cosine_embedding_loss: inputs [3, 4] and [3, 4] and target [4]",
       [&] { cosine_embedding_loss(x, x, y); });
  said("margin_ranking_loss: inputs [3, 4] and [3, 4] and target [4]",
       [&] { margin_ranking_loss(x, x, y); });
  said("triplet_margin_loss: anchor [3, 4], positive [4]", [&] { triplet_margin_loss(x, y, x); });
  said("triplet_margin_with_distance_loss: triplet_margin_loss: anchor [3, 4], positive [4]",
       [&] { triplet_margin_with_distance_loss(x, y, x); });
  said("triplet_margin_with_distance_loss: anchor [3, 4], positive [4]",
       [&] { triplet_margin_with_distance_loss(x, y, x, pairwise_1); });
  for (const auto loss : {l1_loss, soft_margin_loss, mse_loss}) {
    said("[3, 4] and target [4] differ", [&] { loss(x, y, kMean); });
    said("kBatchMean is kl_div's alone", [&] { loss(x, x, kBatchMean); });
  }
  said("l1_loss: of int64 tensors; convert them", [&] { l1_loss(t, t); });
}
