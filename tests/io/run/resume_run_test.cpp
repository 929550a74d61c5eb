// A whole training, with its data loader: stopped after any step, in the middle of an epoch too,
// and resumed from its file in new objects or a new process, it is the training that was not
// stopped.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <halftape/halftape.h>

#include "halftape/core/machine/os.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kLoaderSteps = 40;
constexpr size_t kBatch = 4, kExamples = 27;  // 7 batches an epoch, the last one shorter

using Set = data::datasets::MapDataset<data::datasets::LabelledTensors, data::transforms::Stack<>>;
using Loader = data::StatelessDataLoader<Set, data::samplers::RandomSampler>;

struct Examples {
  Tensor x, y;
};
/// The same in every process.
Examples examples() {
  manual_seed(5);
  const auto n = static_cast<int64_t>(kExamples);
  const Tensor x = randn({n, 6}, kCPU);
  return {x, randint(0, 3, {n}, TensorOptions(kInt64).device(kCPU))};
}

std::unique_ptr<Loader> make_loader(const Examples& all, size_t workers) {
  // The sampler's seed comes from the default stream: another one in every run.
  return data::make_data_loader(
      data::datasets::LabelledTensors(all.x, all.y).map(data::transforms::Stack<>()),
      data::DataLoaderOptions(kBatch).workers(workers));
}

/// A classifier with dropout, computed in float32 or under autocast, with a scaler that overflows
/// now and then in float16.
class LoaderRun {
 public:
  LoaderRun(const Examples& all, size_t workers, Dtype precision)
      : precision_(precision), loader_(make_loader(all, workers)) {
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
  void load(const fs::path& path) { state_.load(path); }
  void save(const fs::path& path) const { state_.save(path); }
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
  optim::WarmupCosineLR schedule_{optimizer_, 5, kLoaderSteps, 1e-3};
  amp::GradScaler scaler_{{.init_scale = 65536, .growth_interval = 2}};
  TrainState state_;
};

/// Goes on from the file of each stop in other objects, which were in the middle of another
/// training. Returns how many end in the bytes of the training that was not stopped.
int resumed(const fs::path& folder, size_t workers, Dtype precision) {
  const Examples all = examples();
  const std::string end = read_bytes(folder / std::to_string(kLoaderSteps));
  int equal = 0;
  for (int64_t stop = 1; stop < kLoaderSteps; ++stop) {
    CAPTURE(stop);
    manual_seed(static_cast<uint64_t>(100 + stop));
    LoaderRun run(all, workers, precision);
    run.steps(2);
    run.load(folder / std::to_string(stop));
    run.steps(kLoaderSteps);
    run.save(folder / "resumed");
    const bool same = read_bytes(folder / "resumed") == end;
    CHECK(same);
    equal += same;
  }
  return equal;
}
/// The same in a process that has not written the files, where the system has /proc.
int resumed_elsewhere(const fs::path& folder, size_t workers, Dtype precision) {
  std::error_code unknown;
  const fs::path self = fs::read_symlink("/proc/self/exe", unknown);
  if (unknown) return resumed(folder, workers, precision);
  write_bytes(folder / "precision", std::to_string(static_cast<int>(precision)));
  const std::string said = os::output_of("HALFTAPE_RESUMED='" + folder.string() + "' '" +
                                         self.string() + "' --no-skip --no-intro --test-case='" +
                                         "what another process began goes on' 2>&1");
  CAPTURE(said);
  REQUIRE(fs::exists(folder / "equal"));
  const int equal = std::stoi(read_bytes(folder / "equal"));
  fs::remove(folder / "equal");
  CHECK(equal == kLoaderSteps - 1);
  return equal;
}

}  // namespace

// The other process.
TEST_CASE("what another process began goes on" * doctest::skip()) {
  const char* folder = std::getenv("HALFTAPE_RESUMED");
  REQUIRE(folder);
  const int precision = std::stoi(read_bytes(fs::path(folder) / "precision"));
  write_bytes(fs::path(folder) / "equal",
              std::to_string(resumed(folder, 1, static_cast<Dtype>(precision))));
}

TEST_CASE("a training in the middle of an epoch resumes bit for bit at each of 39 stops") {
  const TempFolder folder;
  const Examples all = examples();
  int equal = 0, elsewhere = 0;
  for (const Dtype precision : {kFloat16, kBFloat16, kFloat32}) {
    CAPTURE(precision);
    std::optional<std::string> end;
    for (const size_t workers : {0, 1, 4}) {
      if (workers > 0 && precision != kFloat16) continue;  // the same loader, for two seconds more
      CAPTURE(workers);
      manual_seed(1);
      LoaderRun whole(all, workers, precision);
      whole.steps(kLoaderSteps, &folder);
      CHECK((whole.skips() > 0) == (precision == kFloat16));
      const std::string bytes = read_bytes(folder / std::to_string(kLoaderSteps));
      if (!end) end = bytes;
      CHECK(bytes == *end);  // for any number of workers
      // With another number of workers than the run had.
      if (workers == 0)
        elsewhere += resumed_elsewhere(folder.path(), 1, precision);
      else
        equal += resumed(folder.path(), workers == 4 ? 0 : 4, precision);
    }
  }
  MESSAGE(elsewhere, " of 117 trainings resumed in a new process, in 3 precisions, and ", equal,
          " of 78 in new objects end in the bytes of the whole one");
}
