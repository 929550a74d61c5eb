// Flat storage: what makes a region, and what flatten() and a region refuse.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <vector>

#include "halftape/tests/support/flat_training.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("regions are by group, dtype and device, and a group that is added waits for flatten()") {
  const auto leaf = [](Dtype d) { return ones({3}, TensorOptions(d).requires_grad(true)); };
  const Tensor a = leaf(kFloat32), b = leaf(kBFloat16), c = leaf(kFloat32), late = leaf(kFloat32);
  optim::SGD optimizer(std::vector<optim::OptimizerParamGroup>{TensorList{a, b, c}},
                       optim::SGDOptions(0.5));
  CHECK(optimizer.flat_regions().empty());
  auto& regions = optimizer.flatten();
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].params().size() == 2);
  CHECK(regions[0].parameters().dtype() == kFloat32);
  CHECK(regions[1].parameters().dtype() == kBFloat16);
  CHECK(regions[0].offsets() == std::vector<int64_t>{0, 32});
  CHECK(regions[0].numel() == 64);
  optimizer.add_param_group(optim::OptimizerParamGroup(TensorList{late}));
  const char* where = address(late);
  for (const Tensor& p : {a, b, c, late}) p.mutable_grad() = ones({3}, p.dtype());
  optimizer.step();
  CHECK(address(late) == where);
  CHECK(optimizer.flat_regions().size() == 2);
  const char* stays = address(a);
  optimizer.flatten();
  REQUIRE(optimizer.flat_regions().size() == 3);
  CHECK(address(late) != where);
  CHECK(address(a) == stays);
  for (const Tensor& p : {a, b, c, late}) CHECK(p.detach().equal(full({3}, 0.5, p.dtype())));
}

TEST_CASE("what flatten() cannot move is refused, and nothing has moved") {
  const auto refused = [](const TensorList& params, const char* reason) {
    const Tensor fine = ones({2}, requires_grad());
    const char* where = address(fine);
    TensorList all{fine};
    all.insert(all.end(), params.begin(), params.end());
    optim::SGD optimizer(all, optim::SGDOptions(0.1).momentum(0.9));
    CHECK_MESSAGE(has(message([&] { optimizer.flatten(); }), reason), reason);
    CHECK(address(fine) == where);
    CHECK(optimizer.flat_regions().empty());
  };
  const Tensor base = ones({4});
  refused({base.slice(0, 0, 2).set_requires_grad(true)}, "is a view of another tensor");
  const Tensor w = ones({3}, requires_grad());
  {
    const Tensor alias = w.detach();
    refused({w}, "[3] shares its bytes with another tensor");
  }
  {
    const Tensor loss = (w * w).sum();
    refused({w}, "shares its bytes with another tensor");
  }
  optim::SGD optimizer(TensorList{w}, optim::SGDOptions(0.1).momentum(0.9));
  w.mutable_grad() = ones({3});
  optimizer.step();
  {
    const Array held = optimizer.state_of(w).find("momentum_buffer")->second;
    CHECK(has(message([&] { optimizer.flatten(); }),
              "\"momentum_buffer\" of a parameter of shape [3] shares its bytes"));
  }
  CHECK_NOTHROW(optimizer.flatten());
}

TEST_CASE("gradients that do not fit are refused with both kinds, and none is moved") {
  FlatTraining t;
  t.backward();
  const TensorList p = t.params();
  const Tensor all = t.region().gradients();
  const Tensor elsewhere = p[0].grad().clone();
  p[0].mutable_grad() = elsewhere;
  p[1].mutable_grad() = p[1].grad().to(kFloat64);
  CHECK(has(message([&] { t.region().gradients(); }),
            "the gradient of parameter 1 ([33, 7], float64"));
  CHECK(address(p[0].grad()) == address(elsewhere));
}

TEST_CASE("a parameter that was given other bytes is named, and taken in again by flatten()") {
  FlatTraining t, other(adam_kind(), false);
  t.step(0, 2), other.step(0, 2);
  const TensorList p = t.params();
  p[1].set_data(p[1].detach().clone());
  CHECK(has(message([&] { t.region().parameters(); }), "parameter 1 of shape [33, 7]"));
  t.step(2, 3), other.step(2, 3);  // it trains on meanwhile
  CHECK(same(t, other));
  t.optimizer->zero_grad(), other.optimizer->zero_grad();
  t.optimizer->flatten();
  CHECK(in_slots(t.region(), t.region().parameters(), p));
  CHECK(in_slots(t.region(), t.region().state("exp_avg"), state_of(*t.optimizer, p, "exp_avg")));
  t.step(3, 5), other.step(3, 5);
  CHECK(same(t, other));
  CHECK(grads_in_slots(t.region(), t.region().gradients()));
}

TEST_CASE("a model that is converted after flatten() trains on without it") {
  FlatTraining t;
  t.step(0, 2);
  t.optimizer->zero_grad();
  t.net->to(kFloat64);
  t.net->to(kFloat32);
  CHECK(has(message([&] { t.region().parameters(); }), "call flatten() again"));
  CHECK_NOTHROW(t.step(2, 4));
  CHECK_NOTHROW(t.optimizer->flatten());
}
