#include "record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "program.h"

using namespace halftape;

namespace {

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
  const Tensor x = data_.train.images.slice(0, 0, settings_.batch_size);
  const Tensor y = data_.train.labels.slice(0, 0, settings_.batch_size);
  std::vector<std::pair<std::string, Tensor>> outputs;
  Tensor h = x;
  for (auto part = model->begin(); const auto& layer : model->named_children()) {
    h = (part++)->forward(h);
    if (!std::dynamic_pointer_cast<nn::LinearImpl>(layer.value())) continue;
    h.retain_grad();
    outputs.emplace_back(layer.key(), h);
  }
  (cross_entropy(h, y) * settings_.loss_weight).backward();
  for (const auto& [layer, output] : outputs) {
    outcome_.gradients.push_back({layer, amp::count_exponents(output.grad())});
    if (precision_.scaler)
      outcome_.scaled_gradients.push_back({layer, amp::count_exponents(output.grad() * scale)});
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
