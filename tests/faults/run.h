// A small training with all that a checkpoint holds.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include <halftape/halftape.h>

#include "halftape/tests/support/temp_folder.h"

namespace halftape::testing {

class Run {
  using Set =
      data::datasets::MapDataset<data::datasets::LabelledTensors, data::transforms::Stack<>>;
  using Loader = data::StatelessDataLoader<Set, data::samplers::RandomSampler>;

 public:
  /// After so many steps from the seed 1.
  explicit Run(int64_t steps, size_t workers = 0) {
    const Tensor x = randn({10, 3}), y = randint(0, 2, {10}, TensorOptions(kInt64));
    loader_ = data::make_data_loader(
        data::datasets::LabelledTensors(x, y).map(data::transforms::Stack<>()),
        data::DataLoaderOptions(4).workers(workers));
    state.add("model", model);
    state.add("optimizer", optimizer);
    state.add("schedule", schedule);
    state.add("scaler", scaler);
    state.add("loader", *loader_);
    step(steps);
  }

  void step(int64_t n) {
    const int64_t end = state.step + n;
    while (state.step < end)
      for (auto& batch : *loader_) {
        train(batch);
        if (++state.step == end) break;
      }
  }
  /// All that the next step depends on.
  std::string bytes() const {
    static const TempFolder folder;
    state.save(folder / "state");
    return read_bytes(folder / "state");
  }

  const bool seeded = (manual_seed(1), true);  // before the model draws its weights
  nn::Sequential model{nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Dropout(0.4), nn::Linear(4, 2)};
  optim::AdamW optimizer{model->parameters(), optim::AdamWOptions(0.02)};
  optim::StepLR schedule{optimizer, 2, 0.5};
  amp::GradScaler scaler{{.init_scale = 65536, .growth_interval = 2}};
  TrainState state;

 private:
  void train(const data::Example<>& batch) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = cross_entropy(model->forward(batch.data), batch.target);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    schedule.step();
  }

  std::unique_ptr<Loader> loader_;
};

}  // namespace halftape::testing
