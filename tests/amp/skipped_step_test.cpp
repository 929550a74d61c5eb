// A skipped step leaves every bit of parameters and optimizer state; a scale that is a power of two
// leaves every bit of the training.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstring>
#include <limits>
#include <memory>

#include "halftape/amp/agreement.h"
#include "halftape/core/contract/backend.h"

using namespace halftape;
using amp::GradScaler;

namespace {

std::string bytes(const Array& there) {
  const Array a = there.to(kCPU);
  return {static_cast<const char*>(a.raw()),
          static_cast<size_t>(a.numel()) * element_size(a.dtype())};
}

/// Two groups of three parameters each, with rates of their own.
struct GroupedTraining {
  std::vector<Tensor> parameters;
  std::unique_ptr<optim::Optimizer> optimizer;
  GradScaler scaler{{.init_scale = 256}};

  explicit GroupedTraining(bool adam) {
    for (int64_t i = 1; i <= 6; ++i)
      parameters.push_back(rand({i, 5}, TensorOptions().requires_grad(true)));
    std::vector<Tensor> first(parameters.begin(), parameters.begin() + 3),
        second(parameters.begin() + 3, parameters.end());
    const std::vector<optim::OptimizerParamGroup> groups = {first, second};
    if (adam)
      optimizer = std::make_unique<optim::Adam>(groups, optim::AdamOptions(0.1).amsgrad(true));
    else
      optimizer = std::make_unique<optim::SGD>(groups, optim::SGDOptions(0.1).momentum(0.9));
  }
  void backward() {
    optimizer->zero_grad();
    Tensor loss = zeros({});
    for (const Tensor& p : parameters) loss = loss + (p * p).sum();
    scaler.scale(loss).backward();
  }
  /// Every byte that a step may change, by name.
  std::vector<std::string> all() const {
    std::vector<std::string> everything;
    for (const Tensor& p : parameters) everything.push_back(bytes(p.array()));
    for (const auto& state : optimizer->state_dict().state)
      for (const auto& [key, value] : state) everything.push_back(key + bytes(value));
    return everything;
  }
};

}  // namespace

TEST_CASE(
    "an infinity in any parameter of any group leaves every bit, and the next step is right") {
  for (const bool adam : {false, true}) {
    for (int64_t place = 0; place < 6; ++place) {
      CAPTURE(adam);
      CAPTURE(place);
      manual_seed(4);
      GroupedTraining skipping(adam);
      manual_seed(4);
      GroupedTraining plain(adam);
      const auto fault = amp::inject({.step = 2, .parameter = place, .element = place});
      for (int i = 0; i < 5; ++i) {
        const auto before = skipping.all();
        skipping.backward();
        const bool applied = skipping.scaler.step(*skipping.optimizer).applied();
        skipping.scaler.update(256.0);  // the same scale, whatever was found
        CHECK(applied == (i != 2));
        CHECK((skipping.all() == before) == !applied);
      }
      CHECK(fault.happened());
      for (int i = 0; i < 4; ++i) {
        plain.backward();
        plain.scaler.step(*plain.optimizer);
        plain.scaler.update(256.0);
      }
      CHECK(skipping.all() == plain.all());
    }
  }
}

TEST_CASE("a skipped first step remembers nothing: the second is a first") {
  for (const bool adam : {false, true}) {
    manual_seed(4);
    GroupedTraining skipping(adam);
    manual_seed(4);
    GroupedTraining plain(adam);
    const auto fault = amp::inject({.step = 0, .parameter = int64_t{1}});
    skipping.backward();
    CHECK_FALSE(skipping.scaler.step(*skipping.optimizer).applied());
    skipping.scaler.update(256.0);
    for (GroupedTraining* t : {&skipping, &plain}) {
      t->backward();
      CHECK(t->scaler.step(*t->optimizer).applied());
    }
    CHECK(skipping.all() == plain.all());
  }
}

TEST_CASE("200 steps give the same bits at every scale from 1 to 2^20") {
  auto train = [](double scale) {
    manual_seed(7);
    nn::Sequential model(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3));
    optim::Adam optimizer(model->parameters(), optim::AdamOptions(0.01));
    GradScaler scaler({.init_scale = scale, .growth_interval = 100000});
    const Tensor x = randn({16, 6}), y = randn({16, 3});
    for (int i = 0; i < 200; ++i) {
      optimizer.zero_grad();
      scaler.scale(mse_loss(model->forward(x), y)).backward();
      scaler.unscale_(optimizer);
      nn::utils::clip_grad_norm_(model->parameters(), 0.5);
      scaler.step(optimizer);
      scaler.update();
    }
    CHECK(scaler.stats().skips == 0);
    std::vector<std::string> weights;
    for (const Tensor& p : model->parameters()) weights.push_back(bytes(p.array()));
    return weights;
  };
  const auto reference = train(1);
  for (int e = 1; e <= 20; ++e) {
    CAPTURE(e);
    CHECK(train(std::ldexp(1.0, e)) == reference);
  }
  CHECK(train(3) != reference);  // the comparison can tell
}

TEST_CASE("a user's optimizer that knows nothing of StepControl skips, too") {
  struct UsersOwn : optim::Optimizer {
    explicit UsersOwn(std::vector<Tensor> params)
        : Optimizer({optim::OptimizerParamGroup(std::move(params))}, optim::SGDOptions(1).clone()) {
    }
    void update(const optim::OptimizerOptions&, const std::vector<Tensor>& params,
                const StepControl&) override {
      for (Tensor p : params) p.sub_(p.grad());
    }
  };
  for (const Dtype dtype : {kFloat32, kFloat16}) {
    const Tensor w = ones({2}, TensorOptions(dtype).requires_grad(true));
    UsersOwn optimizer({w});
    amp::GradScaler scaler({.init_scale = 8, .allow_fp16_grads = true});
    for (const bool bad : {true, false}) {
      optimizer.zero_grad();
      scaler.scale(w.sum()).backward();
      if (bad) w.grad().fill_(std::numeric_limits<double>::infinity());
      CHECK(scaler.step(optimizer).applied() == !bad);
      scaler.update();
      CHECK(w.equal(full({2}, bad ? 1.0 : 0.0, dtype)));
    }
  }
}

TEST_CASE("optimizer.step() with gradients that a scaler found infinite is refused, or skipped") {
  // The CPU's host knows the verdict and throws; on a GPU the device skips the step.
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<const char*, void (*)(GroupedTraining&)> orders[] = {
      {"unscale_", [](GroupedTraining& t) { t.scaler.unscale_(*t.optimizer); }},
      {"unscale_ and clip",
       [](GroupedTraining& t) {
         t.scaler.unscale_(*t.optimizer);
         nn::utils::clip_grad_value_(t.parameters, 1);
       }},
      {"a skipped step", [](GroupedTraining& t) { t.scaler.step(*t.optimizer); }},
      {"a skipped step and update",
       [](GroupedTraining& t) { t.scaler.step(*t.optimizer), t.scaler.update(); }}};
  for (const bool bad_loss : {false, true})
    for (const auto& order : orders) {
      CAPTURE(bad_loss);
      CAPTURE(order.first);
      GroupedTraining t(true);
      const auto before = t.all();
      t.optimizer->zero_grad();
      t.scaler.scale(t.parameters[0].sum() + t.parameters[4].sum() + (bad_loss ? inf : 0))
          .backward();
      if (!bad_loss) t.parameters[4].grad().fill_(inf);
      order.second(t);
      if (get_default_device().is_cpu())
        CHECK_THROWS_WITH_AS(t.optimizer->step(), doctest::Contains("are not finite"), Error);
      else
        t.optimizer->step();
      CHECK(t.all().size() >= before.size());
      for (size_t i = 0; i < t.parameters.size(); ++i) CHECK(t.all()[i] == before[i]);
      // Mended by hand, they are the user's.
      for (const Tensor& p : t.parameters)
        if (p.grad().defined()) p.grad().fill_(1);
      t.optimizer->step();
      CHECK(t.all()[0] != before[0]);
    }
}

TEST_CASE("LBFGS and AsyncOptimizer refuse gradients that a scaler found infinite, too") {
  const Tensor w = ones({2}).requires_grad_();
  amp::GradScaler scaler({.init_scale = 8});
  const auto find_infinite = [&](optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    scaler.scale(w.sum()).backward();
    w.grad().fill_(std::numeric_limits<double>::infinity());
    scaler.unscale_(optimizer);
  };
  const auto untouched = [&] { return w.equal(ones({2})); };
  optim::LBFGS lbfgs({w}, optim::LBFGSOptions(1));
  find_infinite(lbfgs);
  const auto computed_before = [&] { return w.detach().sum(); };
  CHECK_THROWS_WITH_AS(lbfgs.step(computed_before), doctest::Contains("are not finite"), Error);
  CHECK(untouched());
  scaler.update(8.0);
  optim::SGD sgd({w}, optim::SGDOptions(1));
  optim::AsyncOptimizer async(std::make_unique<optim::SGD>(std::vector{w}, optim::SGDOptions(1)));
  find_infinite(sgd);  // of the same parameters
  CHECK_THROWS_WITH_AS(async.step(), doctest::Contains("are not finite"), Error);
  async.synchronize();
  CHECK(untouched());
  w.grad().fill_(1);  // mended by hand, they are the user's
  async.step();
  async.synchronize();
  CHECK(w.equal(zeros({2})));
}

TEST_CASE("optimizer.step() with gradients that a scaler found finite goes ahead") {
  GroupedTraining t(false);
  const auto before = t.all();
  t.backward();
  t.scaler.unscale_(*t.optimizer);
  t.optimizer->step();
  CHECK(t.all()[0] != before[0]);
}

TEST_CASE("another process's bad loss skips a step of gradients that were assigned by hand, too") {
  struct OtherFailed final : amp::Agreement {
    void agree(std::span<const Array> flags, const amp::ScaleCourse&, const Array&) override {
      for (const Array& flag : flags) backend(flag.device()).fill(flag, 1);
    }
  };
  const Tensor w = ones({2}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  GradScaler scaler;
  scaler.scale(w.sum());
  scaler.update(32.0);  // no loss was scaled since then
  w.mutable_grad() = ones({2});
  amp::set_agreement_finder([](std::span<const Tensor>) -> std::shared_ptr<amp::Agreement> {
    return std::make_shared<OtherFailed>();
  });
  const amp::StepResult result = scaler.step(optimizer);
  amp::set_agreement_finder(nullptr);
  CHECK(result.bad_loss());
  scaler.update();
  CHECK(scaler.stats().bad_losses == 1);
  CHECK(scaler.get_scale() == 32);
  CHECK(w.equal(ones({2})));
}
