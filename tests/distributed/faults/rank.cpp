// One process of a training that scripts/rank_faults disturbs: rank FOLDER TIMEOUT_MS PHASE
// [sharded]. At PHASE ("meeting", "model", "bucket", "flags", "update", "save", "end") it says so
// and waits a little, so that a signal meets it there; at "save" it saves again and again
// meanwhile. "sharded": each rank has a part of the optimizer. Prints one line when it ends by an
// error: "ended: …".
#include <halftape/halftape.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace halftape;

namespace {

constexpr int64_t kStep = 3;
constexpr std::chrono::milliseconds kDwell{150};
std::string wanted;
int64_t step = 0;

void reach(const std::string& phase) {
  const bool in_step =
      phase == "bucket" || phase == "flags" || phase == "update" || phase == "save";
  if (phase != wanted || (in_step && step != kStep)) return;
  std::printf("at %s\n", phase.c_str());
  std::fflush(stdout);
  if (phase != "save") std::this_thread::sleep_for(kDwell);
}

class Watched : public optim::AdamW {
 public:
  using AdamW::AdamW;

 protected:
  void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override {
    reach("update");
    AdamW::update(options, params, control);
  }
};
using Sharded = distributed::ZeroRedundancyOptimizer<Watched>;

int train(const std::string& folder, int timeout_ms, bool sharded) {
  std::printf("pid\n");
  std::fflush(stdout);
  reach("meeting");
  const auto group =
      distributed::init_process_group({.timeout = std::chrono::milliseconds(timeout_ms)});
  manual_seed(1);
  nn::Sequential model{nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                       nn::Linear(256, 10)};
  reach("model");
  distributed::DistributedDataParallel ddp(*model,
                                           {.bucket_bytes = 100000, .first_bucket_bytes = 10000});
  const optim::AdamWOptions options(1e-3);
  std::unique_ptr<Watched> optimizer;
  if (sharded)
    optimizer = std::make_unique<Sharded>(model->parameters(), options, ddp);
  else
    optimizer = std::make_unique<Watched>(model->parameters(), options);
  amp::GradScaler scaler;
  TrainState state;
  state.add("model", model);
  state.add("optimizer", *optimizer);
  state.add("scaler", scaler);
  const Checkpoints checkpoints(folder);
  checkpoints.load_latest(state);
  model->parameters()[2].register_hook([](const Tensor& g) {
    reach("bucket");
    return g;
  });
  for (step = 0; step < 60; ++step) {
    const Tensor x = randn({16, 64}), y = randint(10, {16});
    optimizer->zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    reach("flags");
    scaler.step(*optimizer);
    scaler.update();
    ++state.step;
    if (state.step % 2 == 0) {
      if (sharded) static_cast<Sharded&>(*optimizer).consolidate_state();
      if (group->rank() == 0) {
        reach("save");
        const auto end = std::chrono::steady_clock::now() + kDwell;
        do checkpoints.save(state);
        while (wanted == "save" && step == kStep && std::chrono::steady_clock::now() < end);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  reach("end");
  ddp.check_weights();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  wanted = argv[3];
  try {
    return train(argv[1], std::atoi(argv[2]), argc == 5);
  } catch (const std::exception& e) {
    std::printf("ended: %s\n", e.what());
    std::fflush(stdout);
    return 3;
  }
}
