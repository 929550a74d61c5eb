#include "record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "program.h"

using namespace halftape;

namespace {

/// Counts a gradient's elements, times `factor`, by their powers of two.
report::Histogram histogram(const std::string& layer, const Tensor& gradient, double factor) {
  report::Histogram h{.layer = layer};
  for (const double value : gradient.to_vector<double>()) {
    const double g = std::abs(value * factor);
    ++h.total;
    if (g == 0)
      ++h.zeros;
    else if (!std::isfinite(g))
      ++h.nonfinite;
    else
      ++h.bins[static_cast<size_t>(std::clamp(std::ilogb(g), h.kLow, h.kHigh - 1) - h.kLow)];
  }
  return h;
}

int steps_per_epoch(const Dataset& data, const Settings& s) {
  return static_cast<int>((data.train.size() + s.batch_size - 1) / s.batch_size);
}

}  // namespace

Record::Record(const Precision& precision, const Dataset& data, const Settings& settings)
    : precision_(precision),
      data_(data),
      settings_(settings),
      progress_(precision.title, settings.epochs, steps_per_epoch(data, settings)) {
  outcome_.run.name = precision.name;
  outcome_.run.title = precision.title;
  status_.accuracy = std::numeric_limits<double>::quiet_NaN();
}

void Record::step(double loss, double scale, bool applied) {
  report::Run& run = outcome_.run;
  if (precision_.scaler) {
    if (!applied) run.skipped_steps.push_back(static_cast<int64_t>(run.loss.size()));
    run.scale.push_back(scale);
    status_.scale = scale;
    status_.skips = static_cast<int64_t>(run.skipped_steps.size());
  }
  run.loss.push_back(loss);
  status_.epoch = static_cast<int>(run.test_accuracy.size()) + 1;
  status_.step = status_.step % steps_per_epoch(data_, settings_) + 1;
  status_.loss = loss;
  progress_.step(status_);
}

void Record::epoch(double accuracy) {
  outcome_.run.test_accuracy.push_back(accuracy);
  status_.accuracy = accuracy;
  progress_.epoch(status_);
}

void Record::gradients(const nn::Sequential& model, double scale) {
  model->zero_grad();
  const Tensor x = data_.train.images.slice(0, 0, settings_.batch_size);
  const Tensor y = data_.train.labels.slice(0, 0, settings_.batch_size);
  (cross_entropy(model->forward(x), y) * settings_.loss_weight).backward();
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.value().dim() < 2) continue;  // biases
    outcome_.gradients.push_back(histogram(parameter.key(), parameter->grad(), 1));
    if (precision_.scaler)
      outcome_.scaled_gradients.push_back(histogram(parameter.key(), parameter->grad(), scale));
  }
  model->zero_grad();
  outcome_.gradients_epoch = static_cast<int>(outcome_.run.test_accuracy.size());
  outcome_.scale_shown = scale;
}

Outcome Record::finish(const nn::Sequential& model) {
  outcome_.run.seconds = seconds();
  outcome_.hash = sample::hash(*model);
  progress_.finish(status_, outcome_.run.seconds);
  return std::move(outcome_);
}

double Record::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}
