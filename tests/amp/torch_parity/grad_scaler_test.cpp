// PyTorch's own tests of GradScaler (test/test_torch.py, test/test_cuda.py), by their names and
// with their numbers. Left out: sparse gradients, several devices, deprecated aliases.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using amp::GradScaler;
using testing::kInf, testing::kNaN;

namespace {

/// Two layers, and an SGD whose rate of 1 hides nothing.
struct Model {
  nn::Sequential net{nn::Linear(8, 8), nn::Linear(8, 8)};
  optim::SGD optimizer{net->parameters(), optim::SGDOptions(1.0)};
  Tensor second_weight() { return net->parameters()[2]; }
  void spoil() { second_weight().grad().fill_(kInf); }
};

struct Data {
  std::vector<std::pair<Tensor, Tensor>> batches;
};

constexpr size_t kSkip = 2;  // the iteration whose gradient is made infinite

/// Trains one model by hand, leaving out the bad step, and one with a scaler; both must agree.
template <class Run>
void run_scaling_case(const Run& run, int unskipped, int skipped, double atol = 1e-7) {
  for (const bool enabled : {true, false}) {
    CAPTURE(enabled);
    manual_seed(1);
    Model control;
    manual_seed(1);
    Model scaling;
    Data data;
    for (int i = 0; i < 4; ++i) data.batches.emplace_back(randn({8, 8}), randn({8, 8}));
    GradScaler scaler({.init_scale = 128, .growth_interval = 1, .enabled = enabled});
    run(data, control, scaler, false);
    run(data, scaling, scaler, true);
    const double expected = enabled ? 128 * std::pow(2.0, unskipped) * std::pow(0.5, skipped) : 1.0;
    CHECK(scaler.get_scale() == expected);
    const auto ours = scaling.net->parameters(), theirs = control.net->parameters();
    for (size_t i = 0; i < ours.size(); ++i) {
      CHECK(ours[i].allclose(theirs[i], 1e-5, atol));
      CHECK(ours[i].grad().allclose(theirs[i].grad(), 1e-5, atol));
    }
  }
}

Tensor loss_of(Model& m, const std::pair<Tensor, Tensor>& batch) {
  return mse_loss(m.net->forward(batch.first), batch.second);
}

double first_element(const Array& a) { return read_double(a); }

}  // namespace

TEST_CASE("test_grad_scaling_unscale") {
  const auto plain = [](double bad) {
    const Tensor g = full({10, 10}, 4.0);
    if (bad != 0) g.index_put_({2, 2}, bad);
    return g;
  };
  const auto unscale = [](const std::vector<Tensor>& grads) {
    std::vector<Array> arrays;
    for (const Tensor& g : grads) arrays.push_back(g.array());
    const Array found = full({}, 0, kFloat32, kCPU), inverse = full({}, 0.25, kFloat32, kCPU);
    backend(kCPU).unscale(arrays, inverse, found);
    return first_element(found);
  };
  using Layout = Tensor (*)(const Tensor&);
  const std::vector<Layout> layouts = {
      [](const Tensor& g) { return g.clone(); }, [](const Tensor& g) { return g.clone().t(); },
      [](const Tensor& g) { return g.clone().slice(1, 0, 5); },
      [](const Tensor& g) { return g.clone().t().slice(1, 0, 5); }};
  for (const Layout& first : layouts) {
    for (const Layout& second : layouts) {
      const std::vector<Tensor> grads = {first(plain(0)), second(plain(0))};
      CHECK(unscale(grads) == 0);
      for (const Tensor& g : grads) CHECK(g.equal(ones_like(g)));
      for (const double bad : {kInf, kNaN}) {
        CHECK(unscale({first(plain(bad)), second(plain(0))}) == 1);
        CHECK(unscale({first(plain(0)), second(plain(bad))}) == 1);
      }
    }
  }
  // One list of several dtypes, an infinity in any of them.
  for (int bad = -1; bad < 4; ++bad) {
    std::vector<Tensor> grads;
    for (const Dtype d : {kFloat16, kFloat32, kFloat16, kFloat32})
      grads.push_back(full({10, 10}, 4.0, d));
    if (bad >= 0) grads[static_cast<size_t>(bad)].fill_(kInf);
    CHECK(unscale(grads) == (bad < 0 ? 0 : 1));
  }
}

TEST_CASE("test_grad_scaling_update_scale") {
  const Array scale = full({}, 4, kFloat32, kCPU), trackers = full({2}, 0, kInt32, kCPU);
  const ScaleLaw law{.growth_factor = 2, .backoff_factor = 0.25, .growth_interval = 2};
  auto update = [&](double found) {
    const CheckResult finding{full({}, found, kFloat32, kCPU), full({}, -1, kInt64, kCPU)};
    backend(kCPU).transition({scale, trackers, {}, {&finding, 1}, {}, 0, law});
  };
  const auto tracker = [&] { return read_int64(trackers.slice(0, 0, 1)); };
  update(0);
  CHECK(tracker() == 1);
  CHECK(first_element(scale) == 4);
  update(0);
  CHECK(tracker() == 0);
  CHECK(first_element(scale) == 8);
  update(1);
  CHECK(tracker() == 0);
  CHECK(first_element(scale) == 2);
}

TEST_CASE("test_grad_scaling_state_dict") {
  for (const bool lazy : {true, false}) {
    GradScaler s0(
        {.init_scale = 3, .growth_factor = 4, .backoff_factor = .5, .growth_interval = 2});
    GradScaler s1(
        {.init_scale = 6, .growth_factor = 7, .backoff_factor = .8, .growth_interval = 1});
    CHECK(s1.get_scale() == 6);
    if (!lazy) s1.scale(full({}, 4.0));
    s1.load_state_dict(s0.state_dict());
    CHECK(s1.get_scale() == 3);
    CHECK(s1.get_growth_tracker() == 0);
    CHECK(s1.get_growth_factor() == 4);
    CHECK(s1.get_backoff_factor() == .5);
    CHECK(s1.get_growth_interval() == 2);
  }
}

TEST_CASE("test_grad_scaling_scale") {
  GradScaler scaler({.init_scale = 2});
  const Tensor t = full({1}, 4.0);
  CHECK(scaler.scale(t).equal(full({1}, 8.0)));
  const auto list = scaler.scale(std::vector<Tensor>{t, full({3}, 2.0), full({}, -1.0)});
  REQUIRE(list.size() == 3);
  CHECK(list[0].equal(full({1}, 8.0)));
  CHECK(list[1].equal(full({3}, 4.0)));
  CHECK(list[2].equal(full({}, -2.0)));
}

TEST_CASE("test_grad_scale_will_not_overflow") {
  nn::Linear model(5, 1);
  optim::Adam optimizer(model->parameters());
  GradScaler scaler({.init_scale = 1e38, .growth_factor = 0x1p4, .growth_interval = 1});
  optimizer.zero_grad();
  const Tensor loss = (model->forward(randn({1, 5})) * 0).sum();
  scaler.scale(loss).backward();
  scaler.step(optimizer);
  scaler.update();
  CHECK(std::isfinite(scaler.get_scale()));
  CHECK(scaler.get_scale() == static_cast<double>(1e38f));
}

TEST_CASE("test_params_invalidated_with_grads_invalidated_between_unscale_and_step") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    manual_seed(3);
    Model m;
    GradScaler scaler({.init_scale = 128});
    scaler.scale(loss_of(m, {randn({8, 8}), randn({8, 8})})).backward();
    scaler.unscale_(m.optimizer);
    for (const Tensor& p : m.net->parameters()) p.grad().fill_(bad);
    CHECK(scaler.step(m.optimizer).applied());  // checked once, at unscale_
    scaler.update();
    for (const Tensor& p : m.net->parameters())
      for (const double x : p.to_vector()) CHECK_FALSE(std::isfinite(x));
  }
}

TEST_CASE("test_grad_scaling_clipping") {
  run_scaling_case(
      [](Data& data, Model& m, GradScaler& scaler, bool scaling) {
        const double max_norm = 0.2;
        for (size_t i = 0; i < data.batches.size(); ++i) {
          m.optimizer.zero_grad();
          const Tensor loss = loss_of(m, data.batches[i]);
          if (scaling) {
            scaler.scale(loss).backward();
            nn::utils::clip_grad_norm_(m.net->parameters(), max_norm * scaler.get_scale(), 2, false,
                                       nn::utils::ScaledGrads::Allow);
            if (i == kSkip && scaler.is_enabled()) m.spoil();
            scaler.step(m.optimizer);
            scaler.update();
          } else {
            loss.backward();
            nn::utils::clip_grad_norm_(m.net->parameters(), max_norm);
            if (!scaler.is_enabled() || i != kSkip) m.optimizer.step();
          }
        }
      },
      3, 1, 1e-5);
}

TEST_CASE("test_grad_scaling_clipping_separate_unscale") {
  run_scaling_case(
      [](Data& data, Model& m, GradScaler& scaler, bool scaling) {
        for (size_t i = 0; i < data.batches.size(); ++i) {
          m.optimizer.zero_grad();
          const Tensor loss = loss_of(m, data.batches[i]);
          if (scaling) {
            scaler.scale(loss).backward();
            if (i == kSkip && scaler.is_enabled()) m.spoil();
            scaler.unscale_(m.optimizer);
            nn::utils::clip_grad_norm_(m.net->parameters(), 0.2, 2, false);
            scaler.step(m.optimizer);
            scaler.update();
          } else {
            loss.backward();
            nn::utils::clip_grad_norm_(m.net->parameters(), 0.2);
            if (!scaler.is_enabled() || i != kSkip) m.optimizer.step();
          }
        }
      },
      3, 1);
}

TEST_CASE("test_grad_scaling_penalty") {
  run_scaling_case(
      [](Data& data, Model& m, GradScaler& scaler, bool scaling) {
        for (size_t i = 0; i < data.batches.size(); ++i) {
          m.optimizer.zero_grad();
          Tensor loss = loss_of(m, data.batches[i]);
          TensorList grads =
              scaling ? autograd::grad({scaler.scale(loss)}, m.net->parameters(), {}, {}, true)
                      : autograd::grad({loss}, m.net->parameters(), {}, {}, true);
          Tensor norm;
          for (Tensor& g : grads) {
            if (scaling) g = g * (1 / scaler.get_scale());
            const Tensor square = sum(g * g);
            norm = norm.defined() ? norm + square : square;
          }
          loss = loss + norm.sqrt();
          if (scaling) {
            scaler.scale(loss).backward();
            if (i == kSkip && scaler.is_enabled()) m.spoil();
            scaler.step(m.optimizer);
            scaler.update();
          } else {
            loss.backward();
            if (!scaler.is_enabled() || i != kSkip) m.optimizer.step();
          }
        }
      },
      3, 1);
}

TEST_CASE("test_grad_scaling_accumulation") {
  run_scaling_case(
      [](Data& data, Model& m, GradScaler& scaler, bool scaling) {
        const size_t every = 2;
        for (size_t i = 0; i < data.batches.size(); ++i) {
          const Tensor loss = loss_of(m, data.batches[i]) / static_cast<double>(every);
          (scaling ? scaler.scale(loss) : loss).backward();
          if ((i + 1) % every != 0) continue;
          if (scaling) {
            scaler.step(m.optimizer);
            scaler.update();
          } else {
            m.optimizer.step();
          }
          if (i + 1 < data.batches.size()) m.optimizer.zero_grad();
        }
      },
      2, 0);
}

TEST_CASE("test_grad_scaling_multiple") {
  for (const bool enabled : {true, false}) {
    CAPTURE(enabled);
    manual_seed(5);
    Model control0, control1;
    manual_seed(5);
    Model scaling0, scaling1;
    std::vector<std::pair<Tensor, Tensor>> batches;
    for (int i = 0; i < 4; ++i) batches.emplace_back(randn({8, 8}), randn({8, 8}));
    GradScaler scaler({.init_scale = 128, .growth_interval = 1, .enabled = enabled});
    auto run = [&](Model& m0, Model& m1, bool scaling) {
      for (size_t i = 0; i < batches.size(); ++i) {
        m0.optimizer.zero_grad(), m1.optimizer.zero_grad();
        const Tensor out0 = m0.net->forward(batches[i].first);
        const Tensor out1 = m1.net->forward(batches[i].first);
        const Tensor loss0 = mse_loss(out0 * 0.3 + out1 * 0.7, batches[i].second);
        const Tensor loss1 = mse_loss(out0 * 0.6 - out1 * 0.4, batches[i].second);
        if (scaling) {
          scaler.scale(loss0).backward({}, true);
          scaler.scale(loss1).backward();
          if (i == kSkip && enabled) m1.spoil();
          scaler.unscale_(m0.optimizer);
          CHECK(scaler.step(m0.optimizer).applied());
          CHECK(scaler.step(m1.optimizer).applied() == !(i == kSkip && enabled));
          scaler.update();
        } else {
          loss0.backward({}, true);
          loss1.backward();
          m0.optimizer.step();
          if (!enabled || i != kSkip) m1.optimizer.step();
        }
      }
    };
    run(control0, control1, false);
    run(scaling0, scaling1, true);
    CHECK(scaler.get_scale() == (enabled ? 128 * 2 * 2 * 2 * 0.5 : 1));
    for (size_t i = 0; i < 4; ++i) {
      CHECK(scaling0.net->parameters()[i].allclose(control0.net->parameters()[i], 1e-5, 1e-7));
      CHECK(scaling1.net->parameters()[i].allclose(control1.net->parameters()[i], 1e-5, 1e-7));
    }
  }
}

TEST_CASE("test_grad_scaling_autocast") {
  run_scaling_case(
      [](Data& data, Model& m, GradScaler& scaler, bool scaling) {
        for (size_t i = 0; i < data.batches.size(); ++i) {
          m.optimizer.zero_grad();
          Tensor loss;
          {
            const amp::autocast region(kCPU, kFloat16, scaling);
            loss = loss_of(m, data.batches[i]);
          }
          if (scaling) {
            scaler.scale(loss).backward();
            if (i == kSkip && scaler.is_enabled()) m.spoil();
            scaler.step(m.optimizer);
            scaler.update();
            const auto saved = scaler.state_dict();  // torch pickles it here
            scaler = GradScaler({.enabled = scaler.is_enabled()});
            scaler.load_state_dict(saved);
          } else {
            loss.backward();
            if (!scaler.is_enabled() || i != kSkip) m.optimizer.step();
          }
        }
      },
      3, 1, 1e-3);
}

TEST_CASE("test_grad_scaling_autocast_fused_optimizers") {
  // Ours decide on the device; the control decides on the host by leaving the step out.
  for (const bool decoupled : {false, true}) {
    for (const bool amsgrad : {false, true}) {
      for (const bool separate : {false, true}) {
        auto train = [&](bool by_hand) {
          manual_seed(9);
          nn::Linear net(8, 4);
          optim::AdamWOptions options(0.01);
          options.amsgrad(amsgrad);
          std::unique_ptr<optim::Adam> optimizer;
          if (decoupled)
            optimizer = std::make_unique<optim::AdamW>(net->parameters(), options);
          else
            optimizer = std::make_unique<optim::Adam>(net->parameters(), options);
          GradScaler scaler({.init_scale = 128, .growth_interval = 1});
          const Tensor x = randn({6, 8}), y = randn({6, 4});
          for (size_t i = 0; i < 4; ++i) {
            optimizer->zero_grad();
            const Tensor loss = mse_loss(net->forward(x), y);
            if (by_hand) {
              loss.backward();
              if (i != kSkip) optimizer->step();
              continue;
            }
            scaler.scale(loss).backward();
            if (i == kSkip) net->weight.grad().fill_(kNaN);
            if (separate) scaler.unscale_(*optimizer);
            scaler.step(*optimizer);
            scaler.update();
          }
          return std::pair(net->weight.detach(), optimizer->state_dict().state[0]);
        };
        const auto ours = train(false), control = train(true);
        CHECK(ours.first.equal(control.first));
        CHECK(ours.second.size() == control.second.size());
        for (const auto& [key, value] : ours.second)
          CHECK(Tensor(value).equal(Tensor(control.second.at(key))));
      }
    }
  }
}

TEST_CASE("test_grad_scaler_pass_itself") {
  // torch hands found_inf and grad_scale to optimizers that say they can use them; so do we.
  struct Receiver final : optim::SGD {
    using SGD::SGD;
    StepControl seen;
    void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
                const StepControl& control) override {
      seen = control;
      SGD::update(options, params, control);
    }
  };
  const Tensor w = ones({2}, requires_grad());
  Receiver optimizer(std::vector<Tensor>{w}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 2});
  scaler.scale(w.sum()).backward();
  scaler.step(optimizer);
  REQUIRE(optimizer.seen.found_inf.defined());
  CHECK(optimizer.seen.found_inf.dtype() == kFloat32);
  CHECK(read_double(optimizer.seen.found_inf) == 0);
  CHECK(w.equal(zeros({2})));
  scaler.update();
  optimizer.zero_grad();
  w.mutable_grad() = ones({2});
  optimizer.step();  // without a scaler nothing is passed
  CHECK_FALSE(optimizer.seen.found_inf.defined());
}

TEST_CASE("test_graph_grad_scaling") {
  // torch's loss is itself infinite in half at 20000 and more; that is another verdict with us, so
  // the one here has one element.
  const Tensor weight = ones({1}, requires_grad());
  optim::SGD optimizer({weight}, optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 4});
  const std::vector<double> inputs = {5, 20000, 5, 40000}, scales = {4, 2, 2, 1},
                            trackers = {1, 0, 1, 0}, grads = {20, kInf, 10, kInf};
  for (size_t i = 0; i < inputs.size(); ++i) {
    optimizer.zero_grad();
    const Tensor loss = (weight.to(kFloat16).detach() * 0).sum() +
                        (weight.to(kFloat16) * full({1}, inputs[i], kFloat16)).sum();
    scaler.scale(loss).backward();
    CHECK(weight.grad().item<double>() == grads[i]);
    weight.detach().copy_(ones({1}));  // torch's test does not step, either
    scaler.step(optimizer);
    weight.detach().copy_(ones({1}));
    scaler.update();
    CHECK(scaler.get_scale() == scales[i]);
    CHECK(static_cast<double>(scaler.get_growth_tracker()) == trackers[i]);
  }
}
