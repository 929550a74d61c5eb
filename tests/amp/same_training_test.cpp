// The same training, again and again, on any number of threads.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <set>
#include <string>

#include "halftape/core/machine/threads.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
namespace F = nn::functional;

namespace {

/// The bytes of all weights, statistics, moments and the scale after a few steps.
std::string trained(const std::filesystem::path& file) {
  manual_seed(3);
  nn::Sequential model{nn::Conv2d(nn::Conv2dOptions(1, 8, 3)),
                       nn::BatchNorm2d(8),
                       nn::ReLU(),
                       nn::Flatten(),
                       nn::Dropout(0.2),
                       nn::Linear(8 * 14 * 14, 64),
                       nn::GELU(),
                       nn::Linear(64, 10)};
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2));
  amp::GradScaler scaler;
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = randn({48, 1, 16, 16}), y = randint(10, {48});
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = F::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    scaler.step(optimizer);
    scaler.update();
    ++state.step;
  }
  state.save(file);
  return testing::read_bytes(file);
}

}  // namespace

TEST_CASE("twenty trainings on each of five numbers of threads leave the same file") {
  const testing::TempFolder folder;
  const int before = get_num_threads();
  std::set<std::string> files;
  for (const int threads : {1, 2, 3, 4, 8}) {
    set_num_threads(threads);
    for (int run = 0; run < 20; ++run) files.insert(trained(folder / "state"));
  }
  set_num_threads(before);
  CHECK(files.size() == 1);
}
