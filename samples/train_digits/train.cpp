// The training loop, as it is written with torch.amp.
#include "train.h"

#include <chrono>

#include "program.h"
#include "progress.h"
#include "record.h"

using namespace halftape;
namespace F = halftape::nn::functional;

const std::vector<Precision>& precisions() {
  static const std::vector<Precision> list{
      {.name = "float32", .title = "float32", .autocast = {}},
      {.name = "fp16", .title = "fp16, not scaled", .autocast = kFloat16},
      {.name = "amp", .title = "fp16 + GradScaler", .autocast = kFloat16, .scaler = true},
      {.name = "bf16", .title = "bf16", .autocast = kBFloat16}};
  return list;
}

Outcome train(const Dataset& data, const Precision& precision, const Settings& s) {
  manual_seed(s.seed);  // every precision starts from the same weights and sees the same batches
  nn::Sequential model = make_mlp(data, s.hidden);

  // Adam divides a gradient by its own size, so a weight on the loss cancels out, except against
  // eps. The default eps, 1e-8, is as large as many gradients of a loss weighted by 1e-5; weighted
  // alike, it leaves float32 training as it is at weight 1.
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(s.lr).eps(1e-8 * s.loss_weight));
  amp::GradScaler scaler({.growth_interval = s.growth_interval, .enabled = precision.scaler});

  Record record(precision, data, s);
  for (int epoch = 1; epoch <= s.epochs; ++epoch) {
    // The rate falls, so that the last accuracy does not depend on the last batches.
    optimizer.param_groups()[0].options().set_lr(s.lr * (1 - (epoch - 1.0) / s.epochs));
    const Tensor order = randperm(data.train.size()).to(s.device);
    for (int64_t i = 0; i < data.train.size(); i += s.batch_size) {
      const Tensor batch = order.slice(0, i, i + s.batch_size);
      const Tensor x = data.train.images.index_select(0, batch);
      const Tensor y = data.train.labels.index_select(0, batch);

      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(s.device.type(), precision.autocast,
                                   precision.autocast.has_value());
        loss = F::cross_entropy(model->forward(x), y);
      }
      scaler.scale(loss * s.loss_weight).backward();
      const amp::StepResult result = scaler.step(optimizer);  // skipped if a gradient is not finite
      record.step(loss.item(), scaler.get_scale(), result.applied());
      scaler.update();
      if (sample::Interrupt::asked()) break;
    }
    record.epoch(test_accuracy(model, data.test, precision.autocast));
    if (epoch == (s.epochs + 1) / 2) record.gradients(model, scaler.get_scale());
    if (sample::Interrupt::asked()) break;
  }
  return record.finish(model);
}
