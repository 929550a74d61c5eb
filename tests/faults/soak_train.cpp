// The training that scripts/soak kills: soak_train FOLDER STEPS begins it or goes on with it, with
// another number of workers and threads each time.
#include <halftape/halftape.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>

using namespace halftape;
namespace nn = halftape::nn;

namespace {

void train(const std::filesystem::path& folder, int64_t steps) {
  std::random_device random;
  set_num_threads(static_cast<int>(1 + random() % 4));
  manual_seed(1);
  const data::datasets::Digits digits;
  const auto loader = data::make_data_loader(
      data::datasets::LabelledTensors(digits.images().flatten(1), digits.targets())
          .map(data::transforms::Stack<>()),
      data::DataLoaderOptions(32).workers(random() % 4));
  nn::Sequential model(nn::Linear(64, 96), nn::BatchNorm1d(96), nn::ReLU(), nn::Dropout(0.3),
                       nn::Linear(96, 10));
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(2e-3));
  optim::StepLR schedule(optimizer, 400, 0.9);
  amp::GradScaler scaler({.init_scale = 65536 * 16, .growth_interval = 50});
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("schedule", schedule);
  state.add("scaler", scaler);
  state.add("loader", *loader);
  const Checkpoints checkpoints(folder / "checkpoints");
  checkpoints.load_latest(state);
  RunLog log(folder / "log.csv");
  log.drop_from("step", static_cast<double>(state.step));
  while (state.step < steps)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = nn::functional::cross_entropy(model->forward(batch.data), batch.target);
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      schedule.step();
      log.write(
          {{"step", state.step}, {"loss", loss.item<double>()}, {"scale", scaler.get_scale()}});
      if (++state.step % 10 == 0) checkpoints.save(state);
      if (state.step == steps) break;
    }
  state.save(folder / "final.safetensors");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw Error("usage: soak_train FOLDER STEPS");
    train(argv[1], std::atoll(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak_train: %s\n", error.what());
    return 1;
  }
}
