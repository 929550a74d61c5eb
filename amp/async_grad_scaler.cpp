#include "halftape/amp/async_grad_scaler.h"

#include <utility>

#include "halftape/amp/scaler_state.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/policy.h"

namespace halftape::amp {

AsyncGradScaler::AsyncGradScaler(GradScalerOptions options, ScaleDelivery delivery)
    : options_(options), delivery_(delivery), law_(law_of(options)) {
  if (options.enabled) check_options(options);
  newest_.scale = in_use_ = static_cast<float>(options.init_scale);
}

Tensor AsyncGradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  HALFTAPE_CHECK(loss.defined() && loss.is_floating_point(),
                 "AsyncGradScaler::scale: expected a floating-point tensor");
  if (delivery_ == ScaleDelivery::Prompt) {
    settle();
    in_use_ = newest_.scale;
  }
  scaled_ = true;
  const PolicyScope plain(nullptr);
  return loss * Tensor(full({}, in_use_, kFloat32, loss.device()));
}

std::vector<Tensor> AsyncGradScaler::scale(const std::vector<Tensor>& losses) {
  std::vector<Tensor> scaled;
  scaled.reserve(losses.size());
  for (const Tensor& loss : losses) scaled.push_back(scale(loss));
  return scaled;
}

optim::AsyncStep AsyncGradScaler::step(optim::AsyncOptimizer& optimizer,
                                       optim::AsyncStepOptions options) {
  HALFTAPE_CHECK(!options.scale, "AsyncGradScaler::step: options.scale ", options.scale.value_or(0),
                 " is the scaler's to fill in; leave it out");
  if (!options_.enabled) return optimizer.step(options);
  HALFTAPE_CHECK(scaled_,
                 "AsyncGradScaler::step: nothing was scaled since the last update(); call "
                 "scaler.scale(loss).backward() first");
  for (const Tensor& p : optimizer.parameters())
    HALFTAPE_CHECK(options_.allow_fp16_grads || !p.grad().defined() || p.grad().dtype() != kFloat16,
                   "AsyncGradScaler::step: the gradient of a ", p.sizes(),
                   " parameter is float16, which loses what scaling saved when it is divided back; "
                   "keep parameters in float32 and let autocast make the halves, or set "
                   "allow_fp16_grads");
  options.scale = in_use_;
  return steps_.emplace_back(optimizer.step(options));
}

void AsyncGradScaler::update(const ScaleUpdate& how) {
  if (!options_.enabled) return;
  HALFTAPE_CHECK(how.new_scale || !steps_.empty(),
                 "AsyncGradScaler::update: nothing was handed over since the last update(); call "
                 "scaler.step(optimizer) first");
  if (how.new_scale) check_scale(*how.new_scale, law_);
  settle();
  in_use_ = newest_.scale;  // Late: what is decided by now. Prompt: scale() looks again.
  pending_ = Pending{std::exchange(steps_, {}), law_, how.new_scale};
  scaled_ = false;
  if (how.is_async) return;
  settle();
  in_use_ = newest_.scale;
}

/// Runs the law on the update that is pending, once its verdicts are there.
void AsyncGradScaler::settle() {
  if (!pending_) return;
  const Pending update = *std::exchange(pending_, {});
  bool learnt = false, found_inf = false;
  for (const optim::AsyncStep& step : update.steps) {
    const optim::StepVerdict verdict = step.verdict();
    learnt |= verdict == optim::StepVerdict::Finite || verdict == optim::StepVerdict::NonFinite;
    found_inf |= verdict == optim::StepVerdict::NonFinite;
  }
  if (update.new_scale) {
    newest_.scale = static_cast<float>(*update.new_scale);
  } else if (learnt) {
    const float before = newest_.scale;
    newest_ = next(newest_, found_inf, update.law);
    counts_ =
        counted(counts_, found_inf ? Verdict::Overflow : Verdict::Finite, before, newest_.scale);
  }
}

double AsyncGradScaler::get_scale(bool up_to_date) {
  if (!options_.enabled) return 1;
  if (!up_to_date) return in_use_;
  settle();
  return newest_.scale;
}

int64_t AsyncGradScaler::get_growth_tracker(bool up_to_date) {
  if (up_to_date) settle();
  return newest_.growth_tracker;
}

double AsyncGradScaler::get_growth_factor(bool up_to_date) {
  if (up_to_date) settle();
  return law_.growth_factor;
}
double AsyncGradScaler::get_backoff_factor(bool up_to_date) {
  if (up_to_date) settle();
  return law_.backoff_factor;
}
int64_t AsyncGradScaler::get_growth_interval(bool up_to_date) {
  if (up_to_date) settle();
  return law_.growth_interval;
}

void AsyncGradScaler::set_growth_factor(double factor) {
  change(law_, &ScalerLaw::growth_factor, factor);
}
void AsyncGradScaler::set_backoff_factor(double factor) {
  change(law_, &ScalerLaw::backoff_factor, factor);
}
void AsyncGradScaler::set_growth_interval(int64_t interval) {
  change(law_, &ScalerLaw::growth_interval, interval);
}

AsyncGradScaler::StateDict AsyncGradScaler::state_dict() {
  if (!options_.enabled) return {};
  settle();
  StateDict saved = to_dict({law_, newest_, counts_});
  saved["_scale_in_use"] = in_use_;
  return saved;
}

void AsyncGradScaler::load_state_dict(const StateDict& saved) {
  if (!options_.enabled) return;
  StateDict shared = saved;
  const auto in_use = shared.extract("_scale_in_use");
  const SavedScaler loaded = from_dict(shared, law_);
  const double scale = in_use ? in_use.mapped() : loaded.state.scale;
  check_scale(scale, loaded.law);
  law_ = loaded.law;
  newest_ = loaded.state;
  counts_ = loaded.counts;
  in_use_ = static_cast<float>(scale);
  pending_.reset();
  steps_.clear();
  scaled_ = false;
}

}  // namespace halftape::amp
