// One process of a training that scripts/rank_faults disturbs: rank FOLDER TIMEOUT_MS PHASE.
// At PHASE ("meeting", "model", "bucket", "flags", "save", "end") it says so and waits a little, so
// that a signal meets it there. Prints one line when it ends by an error: "ended: …".
#include <halftape/halftape.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace halftape;

namespace {

std::string wanted;
int64_t step_wanted = 3;

void reach(const std::string& phase, int64_t step = 3) {
  if (phase != wanted || step != step_wanted) return;
  std::printf("at %s\n", phase.c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

int train(const std::string& folder, int timeout_ms) {
  std::printf("pid\n");
  std::fflush(stdout);
  reach("meeting");
  const auto group =
      distributed::init_process_group({.timeout = std::chrono::milliseconds(timeout_ms)});
  manual_seed(1);
  nn::Sequential model{nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                       nn::Linear(256, 10)};
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
  amp::GradScaler scaler;
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);
  const Checkpoints checkpoints(folder);
  checkpoints.load_latest(state);
  const int64_t first = state.step;
  reach("model");
  distributed::DistributedDataParallel ddp(*model,
                                           {.bucket_bytes = 100000, .first_bucket_bytes = 10000});
  model->parameters()[2].register_hook([&](const Tensor& g) {
    reach("bucket", state.step - first);
    return g;
  });
  for (; state.step < first + 60;) {
    const Tensor x = randn({16, 64}), y = randint(10, {16});
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    reach("flags", state.step - first);
    scaler.step(optimizer);
    scaler.update();
    if (state.step == first + 3) reach("save");
    ++state.step;
    if (state.step % 2 == 0 && group->rank() == 0) checkpoints.save(state);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  reach("end");
  ddp.check_weights();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  wanted = argv[3];
  try {
    return train(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& e) {
    std::printf("ended: %s\n", e.what());
    std::fflush(stdout);
    return 3;
  }
}
