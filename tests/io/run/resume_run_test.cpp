// A whole training, with its data loader: stopped after any step, in the middle of an epoch too,
// and resumed from its file in new objects, it is the training that was not stopped.
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <halftape/halftape.h>

#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::read_bytes;
using testing::TempFolder;

namespace {

constexpr int64_t kSteps = 40;
constexpr size_t kBatch = 4, kExamples = 27;  // 7 batches an epoch, the last one shorter

using Set = data::datasets::MapDataset<data::datasets::LabelledTensors, data::transforms::Stack<>>;
using Loader = data::StatelessDataLoader<Set, data::samplers::RandomSampler>;

std::unique_ptr<Loader> make_loader(const Tensor& x, const Tensor& y, size_t workers) {
  // The sampler's seed comes from the default stream: another one in every run.
  return data::make_data_loader(
      data::datasets::LabelledTensors(x, y).map(data::transforms::Stack<>()),
      data::DataLoaderOptions(kBatch).workers(workers));
}

/// A classifier with dropout, computed in float32 or under autocast, with a scaler that overflows
/// now and then in float16.
class Run {
 public:
  Run(const Tensor& x, const Tensor& y, size_t workers, Dtype precision)
      : precision_(precision), loader_(make_loader(x, y, workers)) {
    state_.add("model", model_);
    state_.add("optimizer", optimizer_);
    state_.add("schedule", schedule_);
    state_.add("scaler", scaler_);
    state_.add("loader", *loader_);
  }
  /// Goes on to step `to`. With a folder, saves after each step under the step's number.
  void steps(int64_t to, const TempFolder* folder = nullptr) {
    while (state_.step < to) {
      for (auto& batch : *loader_) {
        step(batch);
        ++state_.step;
        if (folder) state_.save(*folder / std::to_string(state_.step));
        if (state_.step == to) return;
      }
    }
  }
  void load(const std::filesystem::path& path) { state_.load(path); }
  void save(const std::filesystem::path& path) const { state_.save(path); }
  double skips() const { return static_cast<double>(scaler_.stats().skips); }

 private:
  static nn::Sequential make_model() {
    nn::Sequential model{nn::Linear(6, 16), nn::ReLU(), nn::Dropout(0.4), nn::Linear(16, 3)};
    model->to(get_default_device());
    return model;
  }
  void step(const data::Example<>& batch) {
    const Device device = get_default_device();
    optimizer_.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(device.type(), precision_, precision_ != kFloat32);
      loss = cross_entropy(model_->forward(batch.data.to(device)), batch.target.to(device));
    }
    scaler_.scale(loss).backward();
    scaler_.unscale_(optimizer_);
    nn::utils::clip_grad_norm_(model_->parameters(), 1);
    scaler_.step(optimizer_);
    scaler_.update();
    schedule_.step();
  }

  const Dtype precision_;
  std::unique_ptr<Loader> loader_;
  nn::Sequential model_ = make_model();
  optim::AdamW optimizer_{model_->parameters(), optim::AdamWOptions(0.02)};
  optim::WarmupCosineLR schedule_{optimizer_, 5, kSteps, 1e-3};
  amp::GradScaler scaler_{{.init_scale = 65536, .growth_interval = 2}};
  TrainState state_;
};

}  // namespace

TEST_CASE("a training in the middle of an epoch resumes bit for bit at each of 39 stops") {
  TempFolder folder;
  manual_seed(5);
  const Tensor x = randn({static_cast<int64_t>(kExamples), 6}, kCPU);
  const Tensor y =
      randint(0, 3, {static_cast<int64_t>(kExamples)}, TensorOptions(kInt64).device(kCPU));
  int equal = 0;
  for (const Dtype precision : {kFloat16, kBFloat16, kFloat32}) {
    CAPTURE(precision);
    std::optional<std::string> end;
    for (const size_t workers : {0, 1, 4}) {
      if (workers > 0 && precision != kFloat16) continue;  // the same loader, for two seconds more
      CAPTURE(workers);
      manual_seed(1);
      Run whole(x, y, workers, precision);
      whole.steps(kSteps, &folder);
      CHECK((whole.skips() > 0) == (precision == kFloat16));
      const std::string bytes = read_bytes(folder / std::to_string(kSteps));
      if (!end) end = bytes;
      CHECK(bytes == *end);  // for any number of workers
      for (int64_t stop = 1; stop < kSteps; ++stop) {
        CAPTURE(stop);
        manual_seed(static_cast<uint64_t>(100 + stop));
        // Other weights, another order of the data, and another number of workers than the run had.
        Run resumed(x, y, workers == 4 ? 0 : workers == 0 ? 1 : 4, precision);
        resumed.steps(2);
        resumed.load(folder / std::to_string(stop));
        resumed.steps(kSteps);
        resumed.save(folder / "resumed");
        const bool same = read_bytes(folder / "resumed") == *end;
        CHECK(same);
        equal += same;
      }
    }
  }
  MESSAGE(equal, " of 195 resumed trainings, in 3 precisions, end in the bytes of the whole one");
}
