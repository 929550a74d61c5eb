#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/distributed/data_parallel/partly_used_net.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/thread_ranks.h"
#include "halftape/tests/support/waves.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::fill_with_waves;
using testing::numbers, testing::Numbers, testing::state_numbers;
using testing::on_ranks;
namespace F = nn::functional;

namespace {

nn::Sequential make_model(Dtype dtype) {
  nn::Sequential model{nn::Linear(5, 7), nn::ReLU(), nn::Linear(7, 3), nn::Linear(2, 2)};
  fill_with_waves(model->parameters());
  model->to(dtype);
  return model;
}

void backward(nn::Sequential& model, int64_t step, Dtype dtype) {
  const Tensor x =
      (arange(20).to(kFloat32) * 0.713 + static_cast<double>(step)).sin().reshape({4, 5}).to(dtype);
  Tensor h = x;
  for (int i = 0; i < 3; ++i)
    h = i == 1 ? relu(h) : model[static_cast<size_t>(i)]->as<nn::Linear>()->forward(h);
  (h * h).sum().backward();  // the last layer gets no gradient
}

template <class Optimizer, class Options>
void same_as_alone(Dtype dtype, const Options& options) {
  nn::Sequential alone = make_model(dtype);
  Optimizer reference(alone->parameters(), options);
  for (int64_t step = 0; step < 6; ++step) {
    reference.zero_grad();
    backward(alone, step, dtype);
    reference.step();
  }
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model = make_model(dtype);
      auto optimizer =
          std::make_unique<ZeroRedundancyOptimizer<Optimizer>>(model->parameters(), options, group);
      for (int64_t step = 0; step < 6; ++step) {
        if (step == 2) {  // saved, and loaded into another one
          optimizer->consolidate_state();
          const optim::OptimizerState saved = optimizer->state_dict();
          optimizer = std::make_unique<ZeroRedundancyOptimizer<Optimizer>>(model->parameters(),
                                                                           options, group);
          optimizer->load_state_dict(saved);
        }
        if (step == 4) {  // goes on alone, and back
          optimizer->consolidate_state();
          Optimizer plain(model->parameters(), options);
          plain.load_state_dict(optimizer->state_dict());
          plain.zero_grad();
          backward(model, step, dtype);
          plain.step();
          optimizer->load_state_dict(plain.state_dict());
          continue;
        }
        optimizer->zero_grad();
        backward(model, step, dtype);
        optimizer->step();
      }
      CHECK(numbers(model->parameters()) == numbers(alone->parameters()));
      optimizer->consolidate_state();
      CHECK(state_numbers(*optimizer) == state_numbers(reference));
    });
}

}  // namespace

TEST_CASE("a sharded optimizer gives the bits of the whole one, and its files") {
  same_as_alone<optim::AdamW>(kFloat32, optim::AdamWOptions(1e-2).weight_decay(0.1));
  same_as_alone<optim::SGD>(kFloat32, optim::SGDOptions(1e-2).momentum(0.9));
  same_as_alone<optim::SGD>(kFloat32, optim::SGDOptions(1e-2));
  same_as_alone<optim::Adam>(kFloat64, optim::AdamOptions(1e-2).amsgrad(true));
  for (const optim::Weights weights :
       {optim::Weights::Plain, optim::Weights::Master, optim::Weights::Kahan})
    for (const Dtype dtype : {kFloat16, kBFloat16})
      same_as_alone<optim::AdamW>(dtype, optim::AdamWOptions(1e-2).weights(weights));
}

TEST_CASE("a sharded weight that is set to other bytes goes on from these") {
  const auto group = std::make_shared<ProcessGroup>(nullptr, 0, 1);
  const auto options = optim::SGDOptions(0x1p-5).weights(optim::Weights::Master);
  const auto leaf = [](double value) { return full({64}, value, kBFloat16).requires_grad_(); };
  const auto step = [](optim::Optimizer& optimizer, const Tensor& p) {
    p.mutable_grad() = ones({64}, kBFloat16);
    optimizer.step();
  };
  const Tensor p = leaf(1024);
  ZeroRedundancyOptimizer<optim::SGD> optimizer(TensorList{p}, options, group);
  step(optimizer, p);
  // The buffer of the first weight goes, and that of another tensor takes its place and version.
  for (int i = 0; i < 4; ++i) {
    p.set_data(full({64}, 5.0, kBFloat16));
    const Tensor next = full({64}, 7.0, kBFloat16);
    for (int writes = 0; writes < i; ++writes) next.mul_(1);
    p.set_data(next);
    const Tensor fresh = leaf(7);
    optim::SGD expected({fresh}, options);
    step(optimizer, p), step(expected, fresh);
    CHECK(testing::same_bits(p.detach(), fresh.detach()));
  }
}

TEST_CASE("each rank keeps its share of the state alone") {
  on_ranks(4, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(64, 64)};
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(model->parameters(), optim::AdamWOptions(1e-2),
                                                    group);
    for (const Tensor& p : model->parameters()) p.mutable_grad() = ones(p.sizes());
    optimizer.step();
    int64_t kept = 0;
    for (const auto& [p, state] : std::as_const(optimizer).state())
      for (const auto& [name, value] : state)
        if (name != "step") kept += value.numel();
    CHECK(kept == 2 * (64 * 64 + 64) / 4);
  });
}

TEST_CASE("a parameter of one element, whose state has the form of a number") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(3, 1), alone(3, 1);
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(net->parameters(), optim::AdamWOptions(1e-2),
                                                    group);
    optim::AdamW reference(alone->parameters(), optim::AdamWOptions(1e-2));
    for (const nn::Linear& one : {net, alone}) {
      one->weight.mutable_grad() = ones({1, 3});
      one->bias.mutable_grad() = full({1}, 2.);
    }
    optimizer.step();
    reference.step();
    optimizer.consolidate_state();
    CHECK(state_numbers(optimizer) == state_numbers(reference));
    const Tensor late = ones({3}).requires_grad_();
    late.mutable_grad() = ones({3});
    optimizer.param_groups()[0].params().push_back(late);
    CHECK_THROWS_WITH_AS(optimizer.step(),
                         doctest::Contains("came to a group after its first step"), Error);
    CHECK(late.detach().equal(ones({3})));
  });
}

TEST_CASE("a sharded optimizer with a scaler, clipping, groups, flat storage and other options") {
  Numbers first;
  for (const int size : {1, 2, 4})
    for (const bool flat : {false, true})
      on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
        nn::Sequential model = make_model(kFloat32);
        const std::vector<Tensor> all = model->parameters();
        ZeroRedundancyOptimizer<optim::AdamW> optimizer(
            std::vector<optim::OptimizerParamGroup>{
                std::vector<Tensor>(all.begin(), all.begin() + 3)},
            optim::AdamWOptions(1e-2), group);
        amp::GradScaler scaler({.init_scale = 1024});
        for (int64_t step = 0; step < 6; ++step) {
          if (step == 2)
            optimizer.add_param_group(
                optim::OptimizerParamGroup(std::vector<Tensor>(all.begin() + 3, all.end()),
                                           std::make_unique<optim::AdamWOptions>(3e-2)));
          if (step == 3 && flat) optimizer.flatten();
          for (auto& one : optimizer.param_groups())
            one.options().set_lr(1e-2 / static_cast<double>(step + 1));
          model->zero_grad();
          const Tensor x =
              (arange(20).to(kFloat32) * 0.713 + static_cast<double>(step)).sin().reshape({4, 5});
          const Tensor h =
              model[2]->as<nn::Linear>()->forward(relu(model[0]->as<nn::Linear>()->forward(x)));
          scaler.scale((h * h).sum() * (step == 4 ? INFINITY : 1.)).backward();
          scaler.unscale_(optimizer);
          nn::utils::clip_grad_norm_(optimizer.parameters(), 1.0);
          CHECK(scaler.step(optimizer).applied() == (step != 4));
          scaler.update();
        }
        if (group->rank() != 0) return;
        if (first.empty()) first = numbers(model->parameters());
        CHECK(numbers(model->parameters()) == first);
      });
}

TEST_CASE("what a sharded optimizer refuses") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model(kBFloat16);
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(
        model->parameters(), optim::AdamWOptions(1e-2).weights(optim::Weights::Stochastic), group);
    backward(model, 0, kBFloat16);
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("Weights::Stochastic"), Error);
    optimizer.flatten();  // the step that failed holds nothing
    const Tensor columns = rand({4, 4}).t().requires_grad_();
    ZeroRedundancyOptimizer<optim::SGD> other(std::vector<Tensor>{columns}, optim::SGDOptions(0.1),
                                              group);
    columns.mutable_grad() = ones({4, 4});
    CHECK_THROWS_WITH_AS(other.step(), doctest::Contains("is not contiguous"), Error);
  });
}

TEST_CASE("parameters and states that the shares of an optimizer do not have") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Tensor p = ones({4}).requires_grad_(), stranger = ones({3});
    StateShards shards(group);
    const std::vector<optim::OptimizerParamGroup> groups{std::vector<Tensor>{p}};
    const StateShards::Pieces pieces(shards, groups);
    CHECK(shards.has(p));
    CHECK_FALSE(shards.has(stranger));
    CHECK_THROWS_WITH_AS((void)shards.piece(stranger),
                         doctest::Contains("a parameter of shape [3] is in none of its groups"),
                         Error);
    CHECK_THROWS_WITH_AS((void)shards.cut(stranger, {}),
                         doctest::Contains("a parameter of shape [3] is in none of its groups"),
                         Error);
    // A rank's names travel in 512 bytes.
    const optim::ParamState long_named{{std::string(600, 'n'), ones({}).array()}};
    CHECK_THROWS_WITH_AS((void)shards.join(p, long_named),
                         doctest::Contains("ZeroRedundancyOptimizer: the names of a state, 60"),
                         Error);
    group->barrier();  // nothing was sent
  });
}
