// The typical loop in several processes: the lines that end in a number are new or changed. Each
// process takes some of the 8 shards of a batch, and 1, 2, 4 or 8 of them end with the same
// weights, bit for bit.
//
//     torchrun --no-python --nproc-per-node 4 recipe_distributed
//     mpirun -n 4 recipe_distributed
//
// or, by hand:
//
//     (export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
//     for rank in 0 1; do RANK=$rank recipe_distributed & done; wait)
//
// With a folder as first argument it saves there every 50 steps and goes on from the last
// checkpoint, with any number of processes. The second argument is the step at which to stop.
#include <cstdlib>

#include "recipe.h"

using namespace recipe;

int main(int argc, char** argv) {
  const auto group = distributed::init_process_group();  // 1
  const bool first = group->rank() == 0;                 // 2
  const Set train = train_set();
  manual_seed(1);
  nn::Sequential model{nn::Linear(64, 64), nn::ReLU(), nn::Dropout(0.1), nn::Linear(64, 10)};
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  amp::GradScaler scaler({.init_scale = 0x1p24, .growth_interval = 50});
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);
  const Checkpoints checkpoints(argc > 1 ? argv[1] : "no folder");
  if (argc > 1) checkpoints.load_latest(state);                     // every process reads the file
  distributed::DistributedDataParallel ddp(*model, {.shards = 8});  // 3

  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 300;
  while (state.step < steps) {
    const Set batch = train.batch(state.step, 64);
    optimizer.zero_grad();
    for (const auto shard : ddp.shards(static_cast<uint64_t>(state.step))) {  // 4
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = cross_entropy(model->forward(shard.of(batch.images)), shard.of(batch.labels));  // 5
      }
      scaler.scale(loss).backward();
    }
    scaler.step(optimizer);
    scaler.update();
    ++state.step;
    if (argc > 1 && state.step % 50 == 0) {
      ddp.check_weights();                 // 6
      if (first) checkpoints.save(state);  // 7
    }
  }

  ddp.check_weights();   // 8
  if (!first) return 0;  // 9
  model->eval();
  const double right = accuracy(model, test_set());
  std::printf("accuracy %.1f %% after %lld steps, scale %g\n", right,
              static_cast<long long>(state.step), scaler.get_scale());
  std::printf("sum of all weights, the same for any number of processes: %.17g\n",
              weights(model).to(kFloat64).sum().item<double>());
  expect(steps < 300 || right > 93, "it learns");
  return verdict();
}
