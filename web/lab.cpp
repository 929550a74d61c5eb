#include "lab.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/amp/autocast.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/bit_cast.h"
#include "halftape/core/check.h"
#include "halftape/core/random/random.h"
#include "halftape/nn/functional.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace lab {

void Settings::check() const {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  HALFTAPE_CHECK(positive(loss_weight), "loss weight: expected a number above 0, found ",
                 loss_weight);
  HALFTAPE_CHECK(positive(scale) && positive(static_cast<float>(scale)),
                 "first scale: expected a positive number of float32, found ", scale);
  HALFTAPE_CHECK(growth_interval > 0, "growth interval: expected at least 1 step, found ",
                 growth_interval);
  HALFTAPE_CHECK(positive(lr), "learning rate: expected a number above 0, found ", lr);
  HALFTAPE_CHECK(batch > 0 && batch <= 1024, "batch: expected 1 to 1024 samples, found ", batch);
  HALFTAPE_CHECK(widths.size() <= kMostLayers, "widths: expected at most ", kMostLayers,
                 " hidden layers, found ", widths.size());
  for (const int64_t w : widths)
    HALFTAPE_CHECK(w > 0 && w <= 512, "widths: expected 1 to 512, found ", w);
}

namespace {
amp::GradScalerOptions law(const Settings& s) {
  auto o = s.fixed_scale ? amp::GradScalerOptions::fixed(s.scale) : amp::GradScalerOptions();
  o.init_scale = s.scale;
  if (!s.fixed_scale) o.growth_interval = s.growth_interval;
  o.enabled = s.precision == Precision::ScaledFp16;
  o.warn_after_skips = 0;  // the page shows them
  return o;
}

const Settings& checked(const Settings& s) {
  s.check();
  manual_seed(s.seed);
  return s;
}
}  // namespace

Lab::Lab(const Settings& settings)
    : settings_(checked(settings)),
      data_(make_dataset(settings.data, settings.seed)),
      scaler_(law(settings)) {
  int64_t in = data_.features;
  std::vector<int64_t> outs = settings.widths;
  outs.push_back(data_.classes);
  std::vector<Tensor> parameters;
  for (const int64_t out : outs) {
    layers_.emplace_back(in, out);
    for (const Tensor& p : layers_.back()->parameters()) parameters.push_back(p);
    in = out;
  }
  // Adam divides a gradient by its own size, but for eps: weighted as the loss, it changes nothing.
  optimizer_ = std::make_unique<optim::Adam>(
      parameters, optim::AdamOptions(settings.lr).eps(1e-8 * settings.loss_weight));
}

std::optional<Dtype> Lab::lower() const {
  switch (settings_.precision) {
    case Precision::Float32:
      return {};
    case Precision::Bfloat16:
      return kBFloat16;
    default:
      return kFloat16;
  }
}

Tensor Lab::forward(const Tensor& x, std::vector<Tensor>* outputs) const {
  Tensor h = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    h = F::linear(i == 0 ? h : relu(h), layers_[i]->weight, layers_[i]->bias);
    if (outputs) outputs->push_back(h);
  }
  return h;
}

const Samples& Lab::batch() {
  if (batch_) return *batch_;
  const int64_t n = data_.train.labels.size(0);
  if (!order_.defined() || at_ >= n) {
    order_ = randperm(n);
    at_ = 0;
  }
  const Tensor these = order_.slice(0, at_, std::min(at_ + settings_.batch, n));
  at_ += settings_.batch;
  exact_.reset();
  return batch_.emplace(Samples{data_.train.inputs.index_select(0, these),
                                data_.train.labels.index_select(0, these)});
}

Step Lab::step() {
  const Samples now = batch();
  batch_.reset();
  optimizer_->zero_grad();
  Tensor loss;
  {
    const amp::autocast region(kCPU, lower(), lower().has_value());
    loss = F::cross_entropy(forward(now.inputs), now.labels);
  }
  scaler_.scale(loss * settings_.loss_weight).backward();
  const bool applied = scaler_.step(*optimizer_).applied();
  const Step step{loss.item<double>(), scale(), applied};
  scaler_.update();
  ++steps_;
  skipped_ += !applied;
  return step;
}

double Lab::accuracy() const {
  const NoGradGuard no_grad;
  const amp::autocast region(kCPU, lower(), lower().has_value());
  const Tensor right = forward(data_.test.inputs).argmax(1) == data_.test.labels;
  return 100 * right.sum().item<double>() / static_cast<double>(right.numel());
}

std::string Lab::hash() const {
  uint64_t h = 0xcbf29ce484222325;
  for (const auto& layer : layers_)
    for (const Tensor& p : layer->parameters())
      for (const float x : p.detach().to_vector<float>()) {
        const uint32_t bits = std::isnan(x) ? 0x7fc00000 : bit_cast<uint32_t>(x);
        for (int shift = 0; shift < 32; shift += 8)
          h = (h ^ (bits >> shift & 0xff)) * 0x100000001b3;
      }
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[h >> shift & 15];
  return text;
}

Tensor Lab::probabilities(const Tensor& values) const {
  const NoGradGuard no_grad;
  const amp::autocast region(kCPU, lower(), lower().has_value());
  return forward((values - data_.mean) / data_.deviation).to(kFloat32).softmax(1);
}

Lab::Pass Lab::backward(std::optional<Dtype> dtype, double scale) {
  const Samples& now = batch();
  Pass pass;
  std::vector<Tensor> of;
  Tensor loss;
  {
    const amp::autocast region(kCPU, dtype, dtype.has_value());
    loss = F::cross_entropy(forward(now.inputs, &of), now.labels);
  }
  for (const auto& layer : layers_) of.push_back(layer->weight);
  const TensorList grads = autograd::grad({loss * settings_.loss_weight * scale}, of);
  const auto half = grads.begin() + static_cast<std::ptrdiff_t>(layers_.size());
  pass.outputs.assign(grads.begin(), half);
  pass.weights.assign(half, grads.end());
  return pass;
}

const Lab::Pass& Lab::exact() {
  batch();
  if (!exact_) exact_ = backward({}, 1);
  return *exact_;
}

Ledger Lab::ledger() { return ledger_at(scale()); }

Ledger Lab::ledger_at(double scale) {
  const Pass& right = exact();
  const Pass pass = backward(lower(), scale);
  Ledger ledger{steps_, scale, {}};
  for (size_t i = 0; i < layers_.size(); ++i) {
    // In float64: neither the norm nor what it is divided by may leave float32's range.
    const Tensor truth = right.weights[i].to(kFloat64);
    const Tensor off = pass.weights[i].to(kFloat64) / scale - truth;
    const double error = off.norm().item<double>() / truth.norm().item<double>();
    ledger.layers.push_back(
        {amp::count_exponents(pass.outputs[i]), amp::count_exponents(right.outputs[i]),
         amp::count_exponents(pass.weights[i]),
         std::isfinite(error) ? error : std::numeric_limits<double>::infinity()});
  }
  return ledger;
}

}  // namespace lab
