// 6. Save and resume: a training that is stopped at any moment goes on as if it never was.
//
// Stop it with Ctrl-C and start it again: it goes on from the last checkpoint, and its last lines
// are those of a run that was never stopped. It takes a second and writes to the folder
// "digits_run". Last line: training is complete after 1000 steps
#include <halftape/halftape.h>

#include <cstdio>

using namespace halftape;
using Digits = data::datasets::Digits;

int main() {
  manual_seed(1);
  const Digits train;
  const Tensor images = train.images().flatten(1), labels = train.targets();
  nn::Sequential model{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3));
  amp::GradScaler scaler({.growth_interval = 100});

  // Everything on which the next step depends. The state of the random generators, which choose the
  // batches, and the number of the step are always part of it.
  TrainState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);

  // A checkpoint is written to a file of another name first, so a crash while saving harms none.
  // The newest sound one is loaded; damaged ones are named and passed over.
  const Checkpoints checkpoints("digits_run");
  if (const auto file = checkpoints.load_latest(state))
    std::printf("resumed from %s\n", file->string().c_str());

  while (state.step < 1000) {
    const Tensor batch = randint(images.size(0), {32});
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(images.index_select(0, batch)),
                                           labels.index_select(0, batch));
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();

    if (++state.step % 100 == 0) {
      std::printf("step %lld: loss %.6f, scale %.0f\n", static_cast<long long>(state.step),
                  loss.item<double>(), scaler.get_scale());
      checkpoints.save(state);
    }
  }
  // The digits of one number tell whether two runs are equal.
  std::printf("sum of the weights of the first layer: %.17g\n",
              model->parameters()[0].to(kFloat64).sum().item<double>());
  std::printf("training is complete after %lld steps\n", static_cast<long long>(state.step));
}
