// ctc_loss against PyTorch's: scripts/torch_vectors/ctc.py states the same problems. Its row, in
// tests/support/rows/recurrent_rows.cpp, goes through all paths.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/modules/module_vectors.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::has;
using testing::kInf;
using testing::message;
using testing::ModuleVectors;
using testing::same_bits;
namespace F = nn::functional;

namespace {

Tensor padded() { return tensor({{1, 2, 2}, {3, 0, 0}, {4, 1, 3}, {1, 1, 1}}); }
Tensor lengths() { return tensor({3, 1, 3, 0}); }
Tensor steps() { return tensor({6, 5, 3, 4}); }

}  // namespace

TEST_CASE("ctc_loss gives PyTorch's values and gradients with every option") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("ctc.txt", dtype);
    const Tensor logits = torch.leaf("logits", {6, 4, 5}), x = log_softmax(logits, 2);
    for (const auto& [r, word] :
         {std::pair{kNone, "none"}, std::pair{kMean, "mean"}, std::pair{kSum, "sum"}}) {
      const auto o = F::CTCLossFuncOptions().reduction(r);
      torch.check(std::string("padded/") + word, F::ctc_loss(x, padded(), steps(), lengths(), o),
                  {logits});
      torch.check(std::string("joined/") + word,
                  nn::CTCLoss(o)(x, tensor({1, 2, 2, 3, 4, 1, 3}), steps(), lengths()), {logits});
    }
    const Tensor other = where(padded() == 0, 2, padded() - 1);
    torch.check("blank",
                F::ctc_loss(x, other, steps(), lengths(),
                            F::CTCLossFuncOptions().reduction(kNone).blank(4)),
                {logits});
    torch.check("zero_infinity",
                F::ctc_loss(x, tensor({{1, 2, 2}, {3, 3, 0}, {4, 1, 3}, {1, 1, 1}}),
                            tensor({6, 2, 3, 4}), tensor({3, 2, 3, 0}),
                            F::CTCLossFuncOptions().reduction(kNone).zero_infinity(true)),
                {logits});
    const Tensor one = torch.leaf("one", {6, 5});
    torch.check("no_batch",
                F::ctc_loss(log_softmax(one, 1), tensor({1, 2, 2}), tensor(6), tensor(3)), {one});
  }
}

TEST_CASE("ctc_loss of a target that does not fit is infinite, and pulls nowhere") {
  const Tensor x = log_softmax(randn({2, 1, 3}, kFloat64), 2).requires_grad_();
  const Tensor target = tensor({{1, 1}});
  const Tensor loss = ctc_loss(x, target, tensor({2}), tensor({2}));
  CHECK(loss.item() == kInf);
  loss.backward();
  CHECK(x.grad().equal(zeros({2, 1, 3}, kFloat64)));
  CHECK(ctc_loss(x, target, tensor({2}), tensor({2}), 0, kMean, true).item() == 0);
}

TEST_CASE("ctc_loss of a class that is impossible at a step is finite where a path is left") {
  const Tensor x = log(tensor({{0.5, 0.5}, {0.0, 1.0}}, kFloat64)).requires_grad_();
  const Tensor loss = ctc_loss(x, tensor({1}), tensor(2), tensor(1));
  CHECK(loss.item() == doctest::Approx(0).epsilon(1e-12));  // both paths end in 1: p = 1
  loss.backward();
  CHECK(x.grad().allclose(tensor({{-0.5, -0.5}, {0.0, -1.0}}, kFloat64)));
}

TEST_CASE("a long ctc_loss stays in the range of float32, and half is float32's rounded") {
  manual_seed(5);
  const Tensor x = log_softmax(randn({400, 2, 20}), 2);
  const Tensor target = randint(1, 20, {2, 60}, kInt64);
  const auto loss = [&](const Tensor& given) {
    return ctc_loss(given, target, std::vector<int64_t>{400, 300}, {60, 45}, 0, kSum);
  };
  CHECK(loss(x).item() == doctest::Approx(loss(x.to(kFloat64)).item()).epsilon(1e-5));
  const Tensor half = x.to(kBFloat16);
  CHECK(same_bits(loss(half), loss(half.to(kFloat32)).to(kBFloat16)));
}

TEST_CASE("ctc_loss says what does not fit") {
  const Tensor x = log_softmax(randn({6, 4, 5}), 2);
  const auto said = [&](const Tensor& targets, const Tensor& in, const Tensor& out, int64_t blank) {
    return message([&] { (void)ctc_loss(x, targets, in, out, blank); });
  };
  CHECK(said(padded(), steps(), lengths(), 0) == "");
  CHECK(has(said(padded(), steps(), lengths(), 5), "blank 5 is not in [0, 5)"));
  CHECK(has(said(padded(), steps() + 1, lengths(), 0), "value at most 6, but got value 7"));
  CHECK(has(said(padded(), steps().to(kFloat32), lengths(), 0), "input_lengths must be integral"));
  CHECK(has(said(padded(), steps(), lengths() + 1, 0), "size at least 4 at dimension 1"));
  CHECK(has(said(tensor({1, 2}), steps(), lengths(), 0), "target_lengths that add up to 7"));
  CHECK(has(said(padded() + 2, steps(), lengths(), 0), "target 5 is not in [0, 5)"));
  CHECK(has(said(padded(), tensor({6}), lengths(), 0), "1 input_lengths for a batch of 4"));
}
