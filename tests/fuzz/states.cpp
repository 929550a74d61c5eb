// Saved states of the stateful classes: numbers by name, changed, and loaded.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "halftape/halftape.h"
#include "halftape/tests/support/optimizers.h"
#include "same.h"
#include "target.h"

namespace halftape::fuzz {
namespace {

/// Changes a few numbers, takes some away and adds others.
void edit(Numbers& numbers, Reader& in) {
  static const double kNumbers[] = {0,
                                    -0.0,
                                    1,
                                    -1,
                                    0.5,
                                    2,
                                    3,
                                    1e300,
                                    -1e300,
                                    1e-320,
                                    0x1p53,
                                    0x1p63,
                                    0x1p64,
                                    std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN(),
                                    1e9};
  for (int64_t n = in.between(1, 3); n > 0 && !numbers.empty(); --n) {
    auto at = std::next(numbers.begin(), in.below(static_cast<int64_t>(numbers.size())));
    switch (in.below(8)) {
      case 0:
        numbers.erase(at);
        break;
      case 1:
        numbers[at->first + "." + std::to_string(in.below(4))] = 1;
        break;
      default:
        at->second = kNumbers[in.below(std::size(kNumbers))];
    }
  }
}

/// Loads an edited state into a part, which holds the numbers of some names as float32; a refused
/// state must leave the part as it was.
template <class Part>
bool load_edited(Part& part, Reader& in, const std::set<std::string>& float32 = {}) {
  const Numbers before = part.state_dict();
  Numbers edited = before;
  edit(edited, in);
  try {
    part.load_state_dict(edited);
  } catch (const Error&) {
    if (!same(part.state_dict(), before)) throw Finding("a refused state changed something");
    return false;
  }
  // Names that it does not know may be passed over.
  for (const auto& [name, value] : part.state_dict()) {
    auto given = edited.find(name);
    if (name == "_scale_in_use" && given == edited.end()) given = edited.find("scale");
    double expected = given == edited.end() ? before.at(name) : given->second;
    if (float32.contains(name)) expected = static_cast<float>(expected);
    if (name == "min_scale" && expected >= 0)  // 1/scale must be finite
      expected = std::max<double>(expected, std::numeric_limits<float>::min());
    if (value != expected)
      throw Finding(name + " was loaded as " + std::to_string(value) + ", given " +
                    std::to_string(expected));
  }
  return true;
}

/// A schedule, and its step.
struct Schedule {
  std::unique_ptr<optim::SavedSchedule> made;
  std::function<void()> step;
  template <class S>
  Schedule(std::unique_ptr<S> s) : step([s = s.get()] { s->step(); }) {  // NOLINT: it is one
    made = std::move(s);
  }
  Schedule(std::unique_ptr<optim::ReduceLROnPlateauScheduler> s)  // NOLINT: it is one
      : step([s = s.get()] { s->step(1); }) {
    made = std::move(s);
  }
};

bool schedule(std::string_view input) {
  Reader in(input);
  const Tensor weight = zeros({2});
  optim::SGD optimizer({weight}, optim::SGDOptions(0.1).momentum(0.5));
  static const std::vector<std::function<Schedule(optim::SGD&)>> kinds = {
      [](auto& o) { return std::make_unique<optim::StepLR>(o, 2); },
      [](auto& o) {
        return std::make_unique<optim::MultiStepLR>(o, std::vector<int64_t>{1, 3});
      },
      [](auto& o) { return std::make_unique<optim::ExponentialLR>(o, 0.9); },
      [](auto& o) { return std::make_unique<optim::ConstantLR>(o); },
      [](auto& o) { return std::make_unique<optim::LinearLR>(o); },
      [](auto& o) { return std::make_unique<optim::PolynomialLR>(o); },
      [](auto& o) { return std::make_unique<optim::CosineAnnealingLR>(o, 4); },
      [](auto& o) { return std::make_unique<optim::CosineAnnealingWarmRestarts>(o, 2); },
      [](auto& o) { return std::make_unique<optim::WarmupCosineLR>(o, 2, 6, 0.01); },
      [](auto& o) { return std::make_unique<optim::SWALR>(o, 0.05); },
      [](auto& o) {
        return std::make_unique<optim::ReduceLROnPlateauScheduler>(
            o, optim::ReduceLROnPlateauScheduler::min, 0.5, 1);
      },
      [](auto& o) {
        return std::make_unique<optim::OneCycleLR>(o, optim::OneCycleLROptions(0.1, 20));
      },
      [](auto& o) {
        return std::make_unique<optim::LambdaLR>(o, [](int64_t epoch) { return 1. / (1 + epoch); });
      },
      [](auto& o) {
        return std::make_unique<optim::MultiplicativeLR>(o, [](int64_t) { return 0.9; });
      },
      [](auto& o) {
        return std::make_unique<optim::SequentialLR>(
            o,
            optim::LRSchedulers{std::make_shared<optim::LinearLR>(o),
                                std::make_shared<optim::ExponentialLR>(o, 0.9)},
            std::vector<int64_t>{2});
      },
      [](auto& o) {
        return std::make_unique<optim::ChainedScheduler>(optim::LRSchedulers{
            std::make_shared<optim::ConstantLR>(o), std::make_shared<optim::StepLR>(o, 2)});
      },
  };
  const Schedule schedule = kinds[in.below(static_cast<int64_t>(kinds.size()))](optimizer);
  for (int64_t n = in.below(3); n > 0; --n) schedule.step();
  const bool taken = load_edited(*schedule.made, in);
  try {
    for (int i = 0; i < 4; ++i) schedule.step();
  } catch (const Error& e) {  // an edited state may have a OneCycleLR at its last step
    if (std::string(e.what()).find("OneCycleLR") == std::string::npos) throw;
  }
  return taken;
}

bool applied_steps(std::string_view input) {
  Reader in(input);
  amp::AppliedSteps applied(in.between(1, 3));
  const Tensor weight = zeros({2}, requires_grad());
  optim::SGD optimizer({weight}, optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.scale((weight * (in.below(2) == 0 ? INFINITY : 1)).sum()).backward();
    (void)applied.step(scaler.step(optimizer), [] {});
    scaler.update();
  };
  for (int64_t n = in.below(4); n > 0; --n) step();
  const bool taken = load_edited(applied, in);
  for (int i = 0; i < 4; ++i) step();
  return taken;
}

/// A loader goes on with an edited state to the end of an epoch of 20 examples.
bool loader(std::string_view input) {
  Reader in(input);
  const data::DataLoaderOptions options =
      data::DataLoaderOptions(3).workers(static_cast<size_t>(in.below(2)));
  const auto batches =
      data::make_data_loader(data::datasets::TensorDataset(arange(20)),
                             data::samplers::RandomSampler(20, uint64_t{3}), options);
  int64_t left = in.below(8);
  for (const auto& batch : *batches) {
    (void)batch;
    if (left-- == 0) break;
  }
  const Numbers before = batches->state_dict();
  Numbers edited = before;
  edit(edited, in);
  bool taken = true;
  try {
    batches->load_state_dict(edited);
  } catch (const Error&) {
    taken = false;
    if (!same(batches->state_dict(), before)) throw Finding("a refused state changed something");
  }
  size_t seen = 0;
  for (const auto& batch : *batches) seen += batch.size();
  if (seen > 20) throw Finding("an epoch of more examples than there are");
  return taken;
}

/// `optimizer` steps with either scaler.
template <class Scaler, class Optimizer>
bool load_and_train(Scaler& scaler, Optimizer& optimizer, const Tensor& weight, Reader& in) {
  const bool taken = load_edited(scaler, in, {"scale", "min_scale", "max_scale", "_scale_in_use"});
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    scaler.scale(weight.sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  if (!(scaler.get_scale() > 0)) throw Finding("a scale that is not above zero");
  return taken;
}

bool scaler(std::string_view input) {
  Reader in(input);
  amp::GradScaler scaler;
  const Tensor weight = zeros({2}, requires_grad());
  optim::SGD optimizer({weight}, optim::SGDOptions(0.1));
  return load_and_train(scaler, optimizer, weight, in);
}

bool async_scaler(std::string_view input) {
  Reader in(input);
  amp::AsyncGradScaler scaler(
      {}, in.below(2) == 0 ? amp::ScaleDelivery::Prompt : amp::ScaleDelivery::Late);
  const Tensor weight = zeros({2}, requires_grad());
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector{weight}, optim::SGDOptions(0.1)));
  return load_and_train(scaler, optimizer, weight, in);
}

/// The averages of a model are tensors by name.
bool averaged(std::string_view input) {
  Reader in(input);
  nn::Linear model(2, 1);
  optim::AveragedModel average(*model);
  for (int64_t n = in.below(3); n > 0; --n) average.update_parameters(*model);
  const optim::AveragedModelState before = average.state_dict();
  optim::AveragedModelState edited = before;
  for (int64_t n = in.between(1, 3); n > 0 && !edited.empty(); --n) {
    const auto at = std::next(edited.begin(), in.below(static_cast<int64_t>(edited.size())));
    static const int64_t kCounts[] = {0,         1,         -1,        int64_t{1} << 52,
                                      1LL << 53, INT64_MIN, INT64_MAX, 7};
    switch (in.below(6)) {
      case 0:
        edited.erase(at);
        break;
      case 1:
        edited["module." + std::to_string(in.below(4))] = at->second;
        break;
      case 2:
        at->second = ones(in.below(2) == 0 ? Shape{in.below(3)} : Shape{2, in.below(3)}).array();
        break;
      case 3:
        at->second = Tensor(at->second).to(in.below(2) == 0 ? kFloat64 : kInt64).array();
        break;
      case 4:
        edited["n_averaged"] = full({}, kCounts[in.below(std::size(kCounts))], kInt64).array();
        break;
      default:
        at->second = full_like(Tensor(at->second), in.byte()).array();
    }
  }
  bool taken = true;
  try {
    average.load_state_dict(edited);
  } catch (const Error&) {
    taken = false;
  }
  if (!same_arrays(average.state_dict(), taken ? edited : before))
    throw Finding(taken ? "an average was loaded as another" : "a refused state changed something");
  average.update_parameters(*model);
  const auto in_model = average.swapped_in(*model);
  (void)model->forward(ones({1, 2}));
  return taken;
}

/// The groups' options are numbers by name, the states tensors by name. `whole` is called after a
/// step, before the state is looked at.
bool load_into_optimizer(
    optim::Optimizer& optimizer, const Tensor& weight, Reader& in,
    const std::function<void()>& whole = [] {}) {
  const auto step = [&] {
    int calls = 0;  // an edited state may ask for 10^9 of them
    optimizer.step([&] {
      HALFTAPE_CHECK(++calls < 100, "enough");
      optimizer.zero_grad();
      const Tensor loss = (weight * weight).sum();
      loss.backward();
      return loss;
    });
    whole();
  };
  step();
  optim::OptimizerState saved = optimizer.state_dict();
  const auto before = saved;
  edit(saved.groups[0], in);
  if (in.below(4) == 0) saved.groups.push_back(saved.groups[0]);
  if (in.below(4) == 0) saved.state.clear();
  bool taken = true;
  try {
    optimizer.load_state_dict(saved);
  } catch (const Error&) {
    taken = false;
    if (!same_state(optimizer.state_dict(), before))
      throw Finding("a refused state changed something");
  }
  if (taken) {
    const optim::OptimizerState loaded = optimizer.state_dict();
    for (auto& [name, value] : loaded.groups[0])  // names that it does not know are passed over
      if (const auto given = saved.groups[0].find(name);
          given == saved.groups[0].end() || given->second != value)
        throw Finding(name + " was loaded as " + std::to_string(value));
    saved.groups = loaded.groups;
    if (!same_state(loaded, saved)) throw Finding("a state was loaded as another");
  }
  step();
  return taken;
}

bool optimizer(std::string_view input) {
  Reader in(input);
  const auto& kinds = testing::optimizers();
  const Tensor weight = ones({2}, requires_grad());
  const auto made = kinds[in.below(static_cast<int64_t>(kinds.size()))].make({weight});
  return load_into_optimizer(*made, weight, in);
}

/// A group of one has the only part of the state; it is brought together, and divided again.
bool zero_optimizer(std::string_view input) {
  static const auto group = std::make_shared<distributed::ProcessGroup>(nullptr, 0, 1);
  Reader in(input);
  const Tensor weight = ones({2}, requires_grad());
  distributed::ZeroRedundancyOptimizer<optim::AdamW> optimizer(
      std::vector{weight}, optim::AdamWOptions(0.01).amsgrad(in.below(2) == 0), group);
  return load_into_optimizer(optimizer, weight, in, [&] { optimizer.consolidate_state(); });
}

bool same_state(const optim::AsyncOptimizerState& a, const optim::AsyncOptimizerState& b) {
  const auto same = [](const std::vector<Array>& x, const std::vector<Array>& y) {
    return std::ranges::equal(x, y, [](const Array& of_x, const Array& of_y) {
      return Tensor(of_x).equal(Tensor(of_y));
    });
  };
  return fuzz::same_state(a.optimizer, b.optimizer) && same(a.weights, b.weights) &&
         same(a.newest, b.newest) && a.steps == b.steps && a.stale == b.stale;
}

/// An optimizer on a worker thread has weights of its own beside the model's.
bool async_optimizer(std::string_view input) {
  Reader in(input);
  std::vector<testing::OptimizerKind> kinds = testing::optimizers();
  std::erase_if(kinds, [](const auto& kind) { return !kind.has_rule; });
  const Tensor weight = ones({2}, requires_grad());
  optim::AsyncOptimizer optimizer(
      kinds[in.below(static_cast<int64_t>(kinds.size()))].make({weight}));
  const auto step = [&] {
    (weight * weight).sum().backward();
    optimizer.step({.is_async = in.below(2) == 0});
  };
  for (int64_t n = in.below(3); n > 0; --n) step();
  const optim::AsyncOptimizerState before = optimizer.state_dict();
  optim::AsyncOptimizerState edited = before;
  if (in.below(2) == 0) edit(edited.optimizer.groups[0], in);
  static const int64_t kSteps[] = {0, -1, INT64_MIN, INT64_MAX, int64_t{1} << 53, 7};
  static const Array kWeights[] = {Array(), ones({3}).array(), ones({2}, kFloat64).array(),
                                   zeros({2}).array(), zeros({}).array()};
  switch (in.below(6)) {
    case 0:
      edited.steps = kSteps[in.below(std::size(kSteps))];
      break;
    case 1:
      edited.stale = !edited.stale;
      break;
    case 2:
      (in.below(2) == 0 ? edited.weights : edited.newest).resize(static_cast<size_t>(in.below(3)));
      break;
    case 3:
      (in.below(2) == 0 ? edited.weights : edited.newest)[0] =
          kWeights[in.below(std::size(kWeights))];
      break;
    case 4:
      edited.optimizer.state.clear();
      break;
    default:
      break;
  }
  bool taken = true;
  try {
    optimizer.load_state_dict(edited);
  } catch (const Error&) {
    taken = false;
  }
  const optim::AsyncOptimizerState now = optimizer.state_dict();
  if (taken) edited.optimizer.groups = now.optimizer.groups;  // unknown names are passed over
  if (!same_state(now, taken ? edited : before))
    throw Finding(taken ? "a state was loaded as another" : "a refused state changed something");
  if (!taken || now.stale) return taken;
  if (!Tensor(now.weights[0]).equal(Tensor(now.newest[0])))
    throw Finding("not stale, and two weights");
  step();
  optimizer.synchronize();
  return taken;
}

std::vector<std::string> seeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> list(8);
  for (std::string& seed : list)
    for (int i = 0; i < 12; ++i) seed += static_cast<char>(random());
  return list;
}

}  // namespace

std::span<const Target> state_targets() {
  static const Target kTargets[] = {{"schedule", &schedule, &seeds},
                                    {"scaler", &scaler, &seeds},
                                    {"async_scaler", &async_scaler, &seeds},
                                    {"averaged", &averaged, &seeds},
                                    {"optimizer", &optimizer, &seeds},
                                    {"async_optimizer", &async_optimizer, &seeds},
                                    {"applied_steps", &applied_steps, &seeds},
                                    {"loader", &loader, &seeds},
                                    {"zero_optimizer", &zero_optimizer, &seeds}};
  return kTargets;
}

}  // namespace halftape::fuzz
