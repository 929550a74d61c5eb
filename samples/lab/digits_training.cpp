// The loop of samples/train_digits, one batch at a time.
#include <fmt/format.h>

#include "train.h"
#include "training.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace lab {
namespace {

Settings settings_of(const TrainingOptions& o) {
  Settings s;
  s.lr = o.lr.value_or(s.lr);
  s.loss_weight = o.loss_weight;
  s.epochs = static_cast<int>(o.epochs.value_or(s.epochs));
  s.seed = o.seed;
  s.device = o.device;
  return s;
}

class DigitsTraining final : public Training {
 public:
  explicit DigitsTraining(const TrainingOptions& o)
      : settings_(settings_of(o)),
        data_(sample::make_dataset(data::digits(), "digits (E. Alpaydin and C. Kaynak, CC BY 4.0)",
                                   o.device)),
        in_an_epoch_((data_.train.size() + settings_.batch_size - 1) / settings_.batch_size),
        steps_(o.steps.value_or(in_an_epoch_ * settings_.epochs)),
        model_((manual_seed(o.seed), sample::make_mlp(data_, settings_.hidden))),
        // eps is weighted as the loss is: see train_digits.
        optimizer_(model_->parameters(),
                   optim::AdamOptions(settings_.lr).eps(1e-8 * o.loss_weight)) {
    if (o.dtype != kFloat32) precision_.autocast = o.dtype;
  }

  nn::Module& model() override { return *model_; }
  optim::Optimizer& optimizer() override { return optimizer_; }
  int64_t steps() const override { return steps_; }
  int64_t growth_interval() const override { return settings_.growth_interval; }

  void next_batch() override {
    const int64_t i = step_++ % in_an_epoch_, epoch = (step_ - 1) / in_an_epoch_;
    if (i == 0) {
      const auto epochs = static_cast<double>((steps_ + in_an_epoch_ - 1) / in_an_epoch_);
      optimizer_.param_groups()[0].options().set_lr(settings_.lr *
                                                    (1 - static_cast<double>(epoch) / epochs));
      order_ = randperm(data_.train.size()).to(settings_.device);
    }
    const Tensor batch = order_.slice(0, i * settings_.batch_size, (i + 1) * settings_.batch_size);
    x_ = data_.train.images.index_select(0, batch);
    y_ = data_.train.labels.index_select(0, batch);
  }

  Tensor loss() override { return loss_of(x_, y_); }
  Tensor loss_of_fixed_batch() override {
    return loss_of(data_.train.images.slice(0, 0, settings_.batch_size),
                   data_.train.labels.slice(0, 0, settings_.batch_size));
  }

  double measure() override {
    return sample::test_accuracy(model_, data_.test, precision_.autocast);
  }
  std::string measure_name() const override { return "test accuracy in percent"; }
  bool measures_after(int64_t step) const override {
    return step % in_an_epoch_ == 0 || step == steps_;
  }

  std::string data_text() const override { return data_.text; }
  std::string model_text() const override {
    return fmt::format(
        "{}-{}-{}-{} with ReLU, {} parameters; Adam, lr {:g} falling linearly, batch {}",
        data_.pixels, settings_.hidden, settings_.hidden, data_.classes, count_parameters(*model_),
        settings_.lr, settings_.batch_size);
  }

 private:
  Tensor loss_of(const Tensor& x, const Tensor& y) {
    const amp::autocast region(settings_.device.type(), precision_.autocast,
                               precision_.autocast.has_value());
    return F::cross_entropy(model_->forward(x), y) * settings_.loss_weight;
  }

  Settings settings_;
  Dataset data_;
  int64_t in_an_epoch_, steps_;
  nn::Sequential model_;
  optim::Adam optimizer_;
  Precision precision_;
  int64_t step_ = 0;
  Tensor order_, x_, y_;
};

}  // namespace

std::unique_ptr<Training> train_digits(const TrainingOptions& options) {
  return std::make_unique<DigitsTraining>(options);
}

int64_t count_parameters(const nn::Module& model) {
  int64_t n = 0;
  for (const Tensor& p : model.parameters()) n += p.numel();
  return n;
}

}  // namespace lab
