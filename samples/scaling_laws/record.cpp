// The training whose overflow limits are recorded.
#include <fmt/format.h>
#include <halftape/halftape.h>

#include <cmath>
#include <limits>
#include <optional>

#include "program.h"
#include "trace.h"

using namespace halftape;

namespace {

constexpr int kLow = -24, kHigh = 60;  // smallest and largest exponent of the search

struct Training {
  nn::Sequential model;
  Tensor images, labels;
};

Training make(uint64_t seed, Device device) {
  manual_seed(seed);
  const data::Images digits = data::digits().train;
  Training t;
  t.images = empty({digits.count, digits.rows * digits.cols});
  auto* x = t.images.data_ptr<float>();
  for (size_t i = 0; i < digits.pixels.size(); ++i)
    x[i] = static_cast<float>(digits.pixels[i]) / 8 - 1;  // the levels 0…16
  t.labels = tensor(std::vector<int64_t>(digits.labels.begin(), digits.labels.end()), kInt64);
  t.images = t.images.to(device);
  t.labels = t.labels.to(device);
  t.model->push_back(nn::Linear(64, 64));
  t.model->push_back(nn::ReLU());
  t.model->push_back(nn::Linear(64, 64));
  t.model->push_back(nn::ReLU());
  t.model->push_back(nn::Linear(64, 10));
  t.model->to(device);
  return t;
}

/// One step's backward pass at any scale.
class Step {
 public:
  Step(optim::Optimizer& optimizer, Tensor loss) : optimizer_(optimizer), loss_(std::move(loss)) {}

  /// Computes the gradients of 2^exponent times the loss; true if they are finite.
  bool passes(int exponent) {
    optimizer_.zero_grad();
    (loss_ * std::ldexp(1.0, exponent)).backward({}, /*retain_graph=*/true);
    for (const Tensor& p : optimizer_.parameters())
      if ((p.grad() - p.grad()).abs().sum().item() != 0) return false;  // ∞ − ∞ is NaN
    return true;
  }
  /// The largest exponent that passes, searched from `start`; none if kLow does not pass.
  std::optional<int> largest(int start) {
    int n = start;
    if (passes(n)) {
      while (n < kHigh && passes(n + 1)) ++n;
      return n;
    }
    while (n > kLow)
      if (passes(--n)) return n;
    return {};
  }

 private:
  optim::Optimizer& optimizer_;
  Tensor loss_;
};

}  // namespace

LimitTrace record_trace(const RecordedRun& settings) {
  Training t = make(settings.seed, settings.device);
  optim::Adam optimizer(t.model->parameters(), optim::AdamOptions(settings.lr));
  LimitTrace trace;
  int exponent = 16;
  const int64_t images = t.labels.size(0);
  const sample::Interrupt ctrl_c;
  const auto goes_on = [&] { return trace.limits.empty() || !ctrl_c.asked(); };
  for (int epoch = 0; epoch < settings.epochs && goes_on(); ++epoch) {
    const Tensor order = randperm(images).to(settings.device);
    for (int64_t i = 0; i < images && goes_on(); i += settings.batch_size) {
      const Tensor batch = order.slice(0, i, i + settings.batch_size);
      Tensor loss;
      {
        const amp::autocast region(settings.device.type(), kFloat16);
        loss = nn::functional::cross_entropy(t.model->forward(t.images.index_select(0, batch)),
                                             t.labels.index_select(0, batch));
      }
      Step step(optimizer, loss);
      const std::optional<int> found = step.largest(exponent);
      if (!found) {
        trace.limits.push_back(0);
        continue;  // the loss itself is not finite
      }
      exponent = *found;
      trace.limits.push_back(exponent < kHigh ? std::ldexp(1.0, exponent)
                                              : std::numeric_limits<double>::infinity());
      step.passes(exponent);
      for (const Tensor& p : optimizer.parameters())
        p.mutable_grad().mul_(std::ldexp(1.0, -exponent));
      optimizer.step();
    }
  }
  trace.text = fmt::format(
      "64-64-64-10 network with ReLU on the embedded 8x8 digits, products in float16; Adam, lr "
      "{:g}, batch {}, {} epochs, seed {}",
      settings.lr, settings.batch_size, settings.epochs, settings.seed);
  const auto done = static_cast<int64_t>(trace.limits.size());
  const int64_t all = settings.epochs * ((images + settings.batch_size - 1) / settings.batch_size);
  if (done < all) trace.text += fmt::format("; stopped after {} of {} steps", done, all);
  return trace;
}
