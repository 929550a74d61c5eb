#include "training.h"

#include <halftape/amp/autocast.h>
#include <halftape/amp/grad_scaler.h>
#include <halftape/core/random/random.h>
#include <halftape/io/data/sets/image_sets.h>
#include <halftape/nn/functional.h>
#include <halftape/nn/modules.h>
#include <halftape/optim/algorithms/first_order.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "course.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace course {
namespace {

struct Samples {
  Tensor images, labels;
};

/// (N, 64), with mean 0 and deviation 1 over all pixels.
Samples samples(const data::Images& from) {
  Tensor x = data::datasets::image_tensor(from).view({from.count, from.rows * from.cols});
  return {(x - 0.305) / 0.376, data::datasets::label_tensor(from)};
}
const Samples& train_set() {
  static const Samples all = samples(data::digits().train);
  return all;
}
const Samples& test_set() {
  static const Samples all = samples(data::digits().test);
  return all;
}

struct Layers {
  std::vector<nn::Linear> linear;
  explicit Layers(const Net& net) {
    manual_seed(0);
    int64_t in = 64;
    for (const int64_t out : net.hidden) linear.emplace_back(in, out), in = out;
    linear.emplace_back(in, 10);
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const nn::Linear& layer : linear)
      for (const Tensor& p : layer->parameters()) all.push_back(p);
    return all;
  }
  /// The scores. Calls `seen` for each layer's output.
  Tensor forward(Tensor x, const std::function<void(const Tensor&)>& seen = nullptr) const {
    for (size_t i = 0; i < linear.size(); ++i) {
      x = linear[i]->forward(x);
      if (seen) seen(x);
      if (i + 1 < linear.size()) x = relu(x);
    }
    return x;
  }
};

constexpr int64_t kSteps = 180;

/// Trains, and calls `step` with the loss of each step, which is to do the rest.
void train(const Net& net, const Layers& layers, std::optional<Dtype> lower, double weight,
           const std::function<void(const Tensor&)>& seen, const std::function<void()>& after) {
  optim::Adam optimizer(layers.parameters(),
                        optim::AdamOptions(2e-3).eps(1e-8 * weight * net.factor));
  const Samples& all = train_set();
  const int64_t in_an_epoch = all.labels.size(0) / net.batch;
  Tensor order;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t i = step % in_an_epoch;
    if (i == 0) order = randperm(all.labels.size(0));
    const Tensor batch = order.slice(0, i * net.batch, (i + 1) * net.batch);
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, lower, lower.has_value());
      loss = F::cross_entropy(layers.forward(all.images.index_select(0, batch), seen),
                              all.labels.index_select(0, batch));
    }
    (loss * (weight * net.factor)).backward();
    if (after) after();
    optimizer.step();
  }
}

std::vector<float> to_vector(const Tensor& x) {
  const float* from = x.const_data_ptr<float>();
  return {from, from + x.numel()};
}

/// −log of the right class's share, as it should not be written: in float16 exp(12) is infinite.
Tensor naive_cross_entropy(const Tensor& scores, const Tensor& labels) {
  const Tensor picked = scores.gather(1, labels.unsqueeze(1)).squeeze(1);
  return (scores.exp().sum(1).log() - picked).to(kFloat32).mean();
}

Log record(Cause cause, Random& random) {
  constexpr int kLines = 120;
  const Layers layers(Net{"", {64, 64}});
  double lr = 1e-3 * (1 + random.uniform()), weight = 1;
  amp::GradScalerOptions options{.growth_interval = 40, .warn_after_skips = 0};
  Samples all = train_set();
  switch (cause) {
    case Cause::Healthy:  // half of the time with a first scale that is much too large
      if (random.below(2))
        options.init_scale = std::ldexp(1.0, 24 + static_cast<int>(random.below(8)));
      break;
    case Cause::GradientsVanish:
      options = amp::GradScalerOptions::fixed(1);
      weight = std::pow(10, -5.0 - 0.6 * random.uniform());
      break;
    case Cause::LearningRate:
      lr = 0.2 + 0.3 * random.uniform();
      break;
    case Cause::BadData: {
      all.images = all.images.clone();
      for (int i = 0; i < 3; ++i)
        all.images[static_cast<int64_t>(random.below(1000))].fill_(
            std::numeric_limits<double>::quiet_NaN());
      break;
    }
    case Cause::ForwardOverflow:
    case Cause::GradientInfinite:
      break;
  }
  optim::Adam optimizer(layers.parameters(), optim::AdamOptions(lr).eps(1e-8 * weight));
  amp::GradScaler scaler(options);
  Log log;
  Tensor order;
  for (int step = 0; step < kLines; ++step) {
    constexpr int64_t kBatch = 128, kInAnEpoch = 11;
    if (step % kInAnEpoch == 0) order = randperm(all.labels.size(0));
    const int64_t at = step % kInAnEpoch * kBatch;
    const Tensor batch = order.slice(0, at, at + kBatch),
                 labels = all.labels.index_select(0, batch);
    optimizer.zero_grad();
    std::vector<Tensor> outputs;
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      const Tensor scores =
          layers.forward(all.images.index_select(0, batch), [&](const Tensor& output) {
            output.retain_grad();
            outputs.push_back(output);
          });
      if (cause == Cause::ForwardOverflow) {
        const amp::autocast off(kCPU, kFloat16, false);
        loss = naive_cross_entropy(scores * 8, labels);
      } else {
        loss = F::cross_entropy(scores, labels);
      }
      if (cause == Cause::GradientInfinite) {
        // The length of a bias that is 0: its derivative is 0 / 0.
        const Tensor bias = layers.linear[1]->bias * 0;
        loss = loss + (bias * bias).sum().sqrt() * 1e-4;
      }
    }
    LogLine line;
    line.step = step;
    line.loss = loss.item<double>();
    line.scale = scaler.get_scale();
    scaler.scale(loss * weight).backward();
    int64_t zeros_seen = 0, seen = 0;
    for (const Tensor& output : outputs) {
      zeros_seen += (output.grad() == 0).sum().item<int64_t>();
      seen += output.numel();
    }
    line.zeros = static_cast<double>(zeros_seen) / static_cast<double>(seen);
    scaler.unscale_(optimizer);
    double squares = 0;
    for (size_t i = 0; i < layers.linear.size(); ++i)
      for (const auto& p : layers.linear[i]->named_parameters()) {
        const double norm = p.value().grad().norm().item<double>() / weight;
        squares += norm * norm;
        if (!std::isfinite(norm) && line.first_bad.empty())
          line.first_bad = "fc" + std::to_string(i + 1) + "." + p.key();
      }
    line.gradient_norm = std::sqrt(squares);
    line.skipped = !scaler.step(optimizer).applied();
    scaler.update();
    log.push_back(line);
  }
  return log;
}

}  // namespace

Histogram activation_gradients(const Net& net) {
  Histogram histogram;
  const Layers layers(net);
  std::vector<Tensor> outputs;
  int64_t step = 0;
  train(
      net, layers, std::nullopt, 1,
      [&](const Tensor& output) {
        output.retain_grad();
        outputs.push_back(output);
      },
      [&] {
        if (++step % 20 == 0)
          for (const Tensor& output : outputs) {
            const Tensor gradient = output.grad().contiguous();
            const float* x = gradient.const_data_ptr<float>();
            for (int64_t i = 0; i < gradient.numel(); ++i) {
              if (x[i] == 0)
                ++histogram.zeros;
              else
                ++histogram.counts[static_cast<size_t>(
                    std::clamp(std::ilogb(x[i]) - Histogram::kLeast, 0, 99))];
            }
          }
        outputs.clear();
      });
  return histogram;
}

double accuracy_in_float16(const Net& net, double loss_weight) {
  const Layers layers(net);
  train(net, layers, kFloat16, loss_weight, nullptr, nullptr);
  const NoGradGuard no_grad;
  return 100 * (layers.forward(test_set().images).argmax(1) == test_set().labels)
                   .to(kFloat32)
                   .mean()
                   .item<double>();
}

Layer recorded_layer(const Net& net, size_t index, double loss_weight) {
  const Layers layers(net);
  std::vector<Tensor> outputs, inputs;
  Layer recorded;
  int64_t step = 0;
  train(
      net, layers, std::nullopt, loss_weight,
      [&](const Tensor& output) {
        output.retain_grad();
        outputs.push_back(output);
      },
      [&] {
        if (++step == kSteps) {
          const Tensor delta = outputs[index].grad().contiguous();
          const Tensor input = relu(outputs[index - 1]).detach().contiguous();
          recorded = {delta.size(0), input.size(1), delta.size(1), to_vector(input),
                      to_vector(delta)};
        }
        outputs.clear();
      });
  return recorded;
}

std::vector<RecordedRun> recorded_runs(uint64_t seed) {
  Random random(seed);
  std::vector<Cause> causes;
  for (int i = 0; i < 12; ++i) causes.push_back(static_cast<Cause>(i / 2));
  for (size_t i = 0; i < 12; ++i) std::swap(causes[i], causes[i + random.below(12 - i)]);
  std::vector<RecordedRun> runs;
  for (const Cause cause : causes) runs.push_back({cause, record(cause, random)});
  return runs;
}

}  // namespace course
