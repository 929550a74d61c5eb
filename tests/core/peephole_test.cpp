// Joining neighbouring calls of a training step changes no visible result.
#include "halftape/core/capture/peephole.h"

#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace halftape;

namespace {

/// Notes calls. Memory is kept, and used again as soon as it can be, as in a captured step.
class Beneath final : public ForwardingBackend {
 public:
  Beneath() : ForwardingBackend(backend(get_default_device())) {}
  BufferPtr allocate(size_t bytes, bool pinned) override {
    if (pinned) return to().allocate(bytes, true);
    BufferPtr* best = nullptr;
    for (BufferPtr& b : kept_)
      if (b->use_count() == 1 && b->size() >= bytes && (!best || b->size() < (*best)->size()))
        best = &b;
    const BufferPtr& b = best ? *best : kept_.emplace_back(to().allocate(bytes));
    constexpr auto let_go = [](void*, size_t, void* of) noexcept {
      Ref<Buffer>::adopt(static_cast<Buffer*>(of));
    };
    auto used = make_ref<Buffer>(b->bytes(), bytes, b->device(), let_go, b.get());
    static_cast<void>(BufferPtr(b).leak());  // used's from here on
    return used;
  }
  int64_t count(const std::string& call) const {
    return std::count(calls_.begin(), calls_.end(), call);
  }
  void forget_calls() { calls_.clear(); }

 private:
  void before(const std::string& call, const Touched&) override { calls_.push_back(call); }
  std::vector<std::string> calls_;
  std::deque<BufferPtr> kept_;
};

/// What comes between the calls of a step.
enum class Between {
  Nothing,
  LossTimesWeight,
  Clipping,
  ClippingOfGroups,  // of one optimizer, in another order
  ClippingOfAll,     // of two optimizers, and of a gradient that none updates
  ClippingOfScaled,  // before unscale_()
  ClippingTwice,
  TwoOptimizers,
  TwoBackwards,
  Fault,
  OtherScale,
  Forgetting,  // the scaled loss, of which only its backward pass is wanted
};

struct Training {
  bool fused_mlp;
  Between between;
  nn::FusedMLP model{nn::FusedMLPOptions(6, 16, 2, 4)};
  nn::Linear other{6, 4};
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  amp::GradScaler scaler{{.init_scale = 0x1p18, .growth_interval = 2}};
  Tensor x = zeros({8, 6}), y = zeros({8}, kInt64), loss, scaled = zeros({}), norm = zeros({});
  Tensor beside = ones({5}, requires_grad());

  Training(bool fused, Between what) : fused_mlp(fused), between(what) {
    using optim::AdamW, optim::AdamWOptions, optim::OptimizerParamGroup;
    std::vector<Tensor> first = model->parameters(), rest;
    if (between == Between::ClippingOfGroups) {
      rest.assign(first.begin() + 1, first.end());
      first.resize(1);
    }
    optimizers.push_back(std::make_unique<AdamW>(first, AdamWOptions(1e-2)));
    if (!rest.empty())
      optimizers[0]->add_param_group(OptimizerParamGroup(
          rest, std::make_unique<AdamWOptions>(AdamWOptions(1e-2).weight_decay(0.1))));
    if (of_two())
      optimizers.push_back(
          std::make_unique<optim::SGD>(other->parameters(), optim::SGDOptions(1e-2)));
  }
  bool of_two() const {
    return between == Between::TwoOptimizers || between == Between::ClippingOfAll;
  }
  bool clips() const { return between >= Between::Clipping && between <= Between::ClippingTwice; }
  void clip(const std::vector<Tensor>& parameters) {
    norm = nn::utils::clip_grad_norm_(parameters, 0.1, 2, false, nn::utils::ScaledGrads::Allow);
  }
  void step(int number) {
    // At step 3 the scale is 2^19, and a row whose class is improbable has a slope of −2^16. At
    // step 5 the loss is not finite.
    const double size = number == 3 ? 1e3 : number == 5 ? 1e38 : 1;
    x.copy_((arange(0, 48).to(kFloat32) * (0.1 + 0.05 * number)).sin().reshape({8, 6}) * size);
    y.copy_((arange(0, 8) * (number + 1)).remainder(4));
    for (auto& optimizer : optimizers) optimizer->zero_grad();
    const auto backward = [&] {
      {
        const amp::autocast region(get_default_device().type(), kFloat16);
        loss = fused_mlp ? model->loss(x, y, scaler.factor())
                         : nn::functional::cross_entropy(model->forward(x), y);
        if (of_two()) loss = loss + nn::functional::cross_entropy(other->forward(x), y);
        if (between == Between::LossTimesWeight) loss = loss * 0.5;
      }
      if (between == Between::Forgetting) return scaler.scale(loss).backward();
      scaled = scaler.scale(loss);
      scaled.backward();
    };
    backward();
    if (between == Between::TwoBackwards) backward();
    std::optional<amp::Injection> fault;
    if (between == Between::Fault && number == 4)
      fault.emplace(amp::inject({.parameter = int64_t{1}}));
    std::vector<Tensor> all;
    for (const auto& optimizer : optimizers)
      for (const Tensor& p : optim::parameters_of(optimizer->param_groups())) all.push_back(p);
    if (between == Between::ClippingOfAll) {
      beside.mutable_grad() = full({5}, 3.0);
      all.insert(all.begin() + 2, beside);
    }
    if (between == Between::ClippingOfGroups) std::reverse(all.begin(), all.end());
    if (between == Between::ClippingOfScaled) clip(all);
    if (clips())
      for (auto& optimizer : optimizers) scaler.unscale_(*optimizer);
    if (clips() && between != Between::ClippingOfScaled) clip(all);
    if (between == Between::ClippingTwice) clip(all);
    for (auto& optimizer : optimizers) scaler.step(*optimizer);
    if (between == Between::OtherScale)
      scaler.update(512);
    else
      scaler.update();
  }
  /// Every number and every version that a step leaves behind.
  std::vector<double> all() const {
    std::vector<double> values{loss.item<double>(), scaled.item<double>(), scaler.get_scale(),
                               norm.item<double>()};
    for (const auto& [name, value] : scaler.state_dict()) values.push_back(value);
    const auto add = [&](const Tensor& t) {
      values.push_back(static_cast<double>(t.version()));
      for (double v : t.detach().to(kCPU).to(kFloat64).flatten().to_vector<double>())
        values.push_back(v);
    };
    for (const auto& optimizer : optimizers)
      for (const Tensor& p : optim::parameters_of(optimizer->param_groups())) {
        add(p), add(p.grad());
        for (const auto& [name, a] : optimizer->state_of(p)) add(Tensor(a));
      }
    if (beside.grad().defined()) add(beside.grad());
    return values;
  }
};

}  // namespace

namespace {

struct Run {
  std::vector<std::vector<double>> left;       // all() after each step
  int64_t losses = 0, norms = 0, updates = 0;  // joined with their neighbours
  int64_t divisions = 0, alone = 0;            // unscale() and list_norm() not joined
};
Run run(bool fused_mlp, Between between, bool together) {
  ones({}, requires_grad()).mul(2).backward();  // makes objects that outlive every step
  manual_seed(7);
  Beneath beneath;
  Training t(fused_mlp, between);
  Run result;
  for (int i = 0; i < 8; ++i) {
    FusedCalls fused(beneath);
    const BackendGuard guard(get_default_device(),
                             together ? static_cast<Backend&>(fused) : beneath);
    t.step(i);
    fused.settle();
    if (i == 0) beneath.forget_calls();  // the first step also makes the optimizers' state
    result.left.push_back(t.all());
  }
  for (const char* call : {"mlp_loss, checked_scale", "mlp_loss, checked_scale, check_finite",
                           "mlp_loss, checked_scale, unscale", "cross_entropy, checked_scale"})
    result.losses += beneath.count(call);
  result.norms = beneath.count("unscale, list_norm");
  result.updates = beneath.count("adam, transition") + beneath.count("sgd, transition");
  result.divisions = beneath.count("unscale");
  result.alone = beneath.count("list_norm");
  return result;
}

}  // namespace

TEST_CASE("joined calls leave the same bits and versions as single calls") {
  for (const bool fused_mlp : {false, true}) {
    for (const Between between :
         {Between::Nothing, Between::LossTimesWeight, Between::Clipping, Between::ClippingOfGroups,
          Between::ClippingOfAll, Between::ClippingOfScaled, Between::ClippingTwice,
          Between::TwoOptimizers, Between::TwoBackwards, Between::Fault, Between::OtherScale,
          Between::Forgetting}) {
      CAPTURE(fused_mlp);
      CAPTURE(static_cast<int>(between));
      const Run unfused = run(fused_mlp, between, false), fused = run(fused_mlp, between, true);
      for (size_t i = 0; i < unfused.left.size(); ++i) {
        CAPTURE(i);
        CHECK(std::equal(unfused.left[i].begin(), unfused.left[i].end(), fused.left[i].begin(),
                         fused.left[i].end(), [](double a, double b) {
                           return a == b || (std::isnan(a) && std::isnan(b));
                         }));
      }
      if (between == Between::Nothing) CHECK(unfused.left[3][2] == unfused.left[2][2] / 2);
      // Calls are not joined across another call.
      const bool of_two = between == Between::TwoOptimizers || between == Between::ClippingOfAll;
      const bool loss_alone = between == Between::LossTimesWeight || of_two;
      CHECK(unfused.losses + unfused.updates == 0);
      CHECK((fused.losses > 0) == !loss_alone);
      CHECK((fused.updates > 0) == (!of_two && between != Between::OtherScale));
      // In 7 steps. The call of the loss or of the norm divides the gradients, that of the update
      // clips them.
      const int64_t by_loss = fused_mlp && !loss_alone ? 7 : 0;
      if (between == Between::Clipping || between == Between::ClippingOfGroups) {
        CHECK(unfused.divisions == 14);
        CHECK(fused.divisions == 0);
        CHECK(fused.norms == 7 - by_loss);
        CHECK(fused.alone == by_loss);
      }
      if (between == Between::ClippingTwice) {  // the second norm's call applies the first factor
        CHECK(fused.divisions == 0);
        CHECK(fused.norms == 14 - by_loss);
        CHECK(fused.alone == by_loss);
      }
      if (between == Between::ClippingOfAll) {  // one clipped gradient has no optimizer
        CHECK(fused.divisions == 7 * 3);
        CHECK(fused.norms == 0);
      }
      if (between == Between::ClippingOfScaled) CHECK(fused.norms == 0);
    }
  }
}

TEST_CASE("each of two losses is scaled by itself, and no held-back call is lost") {
  Beneath beneath;
  FusedCalls fused(beneath);
  const Device device = get_default_device();
  const auto one = [&](double v) { return full({}, v, kFloat32, device); };
  const auto scaling = [&](const Array& loss) {
    return CheckedScale{.x = loss, .y = one(0), .scale = one(4), .nonfinite = one(0)};
  };
  const Array x = full({2, 3}, 0.5, kFloat32, device), target = full({2}, 1, kInt64, device);
  const auto task = [&] {
    return CrossEntropy{.x = x,
                        .target = target,
                        .loss = full({2}, -1, kFloat32, device),
                        .counted = full({2}, -1, kFloat32, device),
                        .total = one(-1),
                        .mean = one(-1)};
  };
  const CrossEntropy first = task(), second = task();
  const CheckedScale of_first = scaling(first.mean), of_second = scaling(second.mean);
  fused.cross_entropy(first);
  CHECK(read_double(first.mean) == -1);  // held back until the next call
  fused.cross_entropy(second);
  CHECK(read_double(first.mean) == doctest::Approx(std::log(3.0)));
  fused.run(of_first);
  CHECK(beneath.count("cross_entropy, checked_scale") == 0);
  CHECK(read_double(of_first.y) == 4 * read_double(first.mean));
  fused.run(of_second);
  CHECK(read_double(of_second.y) == 4 * read_double(second.mean));
  // A check of other gradients is not joined with the MLP's call.
  MlpLoss m{.x = full({2, 3}, 1, kFloat16, device),
            .target = full({2, 1}, 0, kFloat32, device),
            .weights = {full({1, 3}, 2, kFloat32, device)}};
  m.loss = one(-1);
  m.dweights = {full({1, 3}, -1, kFloat32, device)};
  const CheckedScale of_mlp = scaling(m.loss);
  const Array other = full({3}, std::numeric_limits<double>::infinity(), kFloat32, device),
              found = one(0);
  fused.run(m);
  fused.run(of_mlp);
  CHECK(read_double(m.loss) == -1);
  fused.check_finite({&other, 1}, found, {}, {});
  CHECK(read_double(found) == 1);
  CHECK(read_double(of_mlp.y) == 4 * 36);
  CHECK(beneath.count("mlp_loss, checked_scale") == 1);
  CHECK(beneath.count("check_finite") == 1);
}
