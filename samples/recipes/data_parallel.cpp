// Data parallel in one process: worker threads take a shard each, in the autocast region that the
// main thread stands in; their gradients are summed in a fixed order, so that the weights have the
// same bits however the threads ran.
#include <thread>

#include "recipe.h"

using namespace recipe;

namespace {

constexpr int kWorkers = 4, kShard = 32;

/// The gradients of one shard, times `scale`; the model's own .grad is left alone.
TensorList shard_gradients(nn::Sequential& model, const Set& shard, const Tensor& scale,
                           const amp::AutocastState& state) {
  Tensor loss;
  {
    const amp::autocast region(state);
    const Tensor scores = model->forward(shard.images);
    if (scores.dtype() != kFloat16) throw Error("the worker is not in the region");
    loss = cross_entropy(scores, shard.labels) / kWorkers;
  }
  return autograd::grad({loss * scale}, model->parameters());
}

Tensor train(bool threads) {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  amp::GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 100; ++step) {
    std::vector<TensorList> grads(kWorkers);
    const Tensor scale =
        scaler.scale(ones({}));  // a scaler belongs to one thread; its scale can be shared
    {
      const amp::autocast region(kCPU, kFloat16);
      // A worker must not throw: an error that leaves a std::thread ends the program.
      auto work = [&, state = amp::capture()](int i) {
        grads[static_cast<size_t>(i)] =
            shard_gradients(model, train.batch(step * kWorkers + i, kShard), scale, state);
      };
      if (threads) {
        std::vector<std::thread> workers;
        for (int i = 0; i < kWorkers; ++i) workers.emplace_back(work, i);
        for (std::thread& w : workers) w.join();
      } else {
        for (int i = 0; i < kWorkers; ++i) work(i);
      }
    }
    const std::vector<Tensor> parameters = model->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = grads[0][p];
      for (size_t i = 1; i < kWorkers; ++i)
        parameters[p].mutable_grad() = parameters[p].grad() + grads[i][p];
    }
    scaler.step(optimizer);
    scaler.update();
  }
  std::printf("%s: accuracy %.1f %%\n", threads ? "four threads" : "one thread  ",
              accuracy(model, test_set()));
  expect(accuracy(model, test_set()) > 90, "it learns");
  return weights(model);
}

}  // namespace

int main() {
  expect(train(true).equal(train(false)), "the same bits");
  return verdict();
}
