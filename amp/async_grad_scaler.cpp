#include "halftape/amp/async_grad_scaler.h"

#include <string>
#include <utility>

#include "halftape/amp/agreement.h"
#include "halftape/amp/gradients.h"
#include "halftape/core/machine/warn.h"

namespace halftape::amp {

AsyncGradScaler::AsyncGradScaler(GradScalerOptions options, ScaleDelivery delivery)
    : ScalerBase(options), delivery_(delivery) {
  state_number_ = new_state_number();
  newest_state_.scale = scale_in_use_ = static_cast<float>(options.init_scale);
}

Tensor AsyncGradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  check_loss(loss, "AsyncGradScaler::scale");
  HALFTAPE_CHECK(!bad_loss_.defined() || loss.device() == bad_loss_.device(),
                 "AsyncGradScaler::scale: the loss is on ", loss.device(),
                 ", this step's first one on ", bad_loss_.device());
  if (delivery_ == ScaleDelivery::Prompt) {
    settle();
    scale_in_use_ = newest_state_.scale;
  }
  const Ref<GradTag> tag = scaled_ ? scaled_ : make_ref<ScaleTag>();
  const bool begins = !bad_loss_.defined();
  Array bad_loss = begins ? Array({}, kFloat32, loss.device()) : bad_loss_;
  Tensor scaled = scaled_loss(loss,
                              {.scale = full({}, scale_in_use_, kFloat32, loss.device()),
                               .nonfinite = bad_loss,
                               .begins = begins},
                              tag);
  scaled_ = tag;
  bad_loss_ = std::move(bad_loss);
  return scaled;
}

optim::AsyncStep AsyncGradScaler::step(optim::AsyncOptimizer& optimizer,
                                       optim::AsyncStepOptions options) {
  HALFTAPE_CHECK(!options.scale, "AsyncGradScaler::step: options.scale ", options.scale.value_or(0),
                 " is the scaler's to fill in; leave it out");
  HALFTAPE_CHECK(!options.found_inf.defined(),
                 "AsyncGradScaler::step: options.found_inf is the scaler's to fill in; leave it "
                 "out");
  if (!options_.enabled) {
    tell_disabled(optimizer.parameters(), 1);
    return optimizer.step(options);
  }
  HALFTAPE_CHECK(scaled_,
                 "AsyncGradScaler::step: nothing was scaled since the last update(); call "
                 "scaler.scale(loss).backward() first");
  const std::vector<Tensor>& parameters = optimizer.parameters();
  check_divisible(collect_gradients(parameters), "AsyncGradScaler::step", scaled_,
                  bad_loss_.device(), options_.allow_fp16_grads);
  call_gradient_hook(parameters);
  if (const auto agreement = agreement_of(parameters)) {
    const Array bad_loss = bad_loss_.clone();
    const Array scale = full({}, scale_in_use_, kFloat32, bad_loss.device());
    // Which verdicts have been read by now may differ, and with them the trackers.
    agreement->agree({&bad_loss, 1}, {scale, {}, law_, state_number_}, {});
    bad_loss_ = bad_loss;
  }
  options.found_inf = bad_loss_;  // which the optimizer copies
  options.scale = scale_in_use_;
  optim::AsyncStep step = optimizer.step(options);
  steps_.push_back({step, registry_.number_of(optimizer.id(), optimizer.param_groups())});
  return step;
}

void AsyncGradScaler::update(const ScaleUpdate& how) {
  if (!options_.enabled) return;
  HALFTAPE_CHECK(how.new_scale || !steps_.empty(),
                 "AsyncGradScaler::update: nothing was handed over since the last update(); call "
                 "scaler.step(optimizer) first");
  if (how.new_scale) check_scale(*how.new_scale, law_);
  settle();
  scale_in_use_ =
      newest_state_.scale;  // Late: the newest one so far. Prompt: scale() settles again.
  pending_ =
      PendingUpdate{std::exchange(steps_, {}), std::exchange(bad_loss_, {}), law_, how.new_scale};
  scaled_ = {};
  if (how.is_async) return;
  settle();
  scale_in_use_ = newest_state_.scale;
}

/// Waits for the verdicts of the pending update, and runs the law on them.
void AsyncGradScaler::settle() {
  if (!pending_) return;
  const PendingUpdate update = *std::exchange(pending_, {});
  bool learnt = false;
  const StartedStep* overflow = nullptr;
  for (const StartedStep& one : update.steps) {
    const optim::StepVerdict verdict = one.step.verdict();
    learnt |= verdict == optim::StepVerdict::Finite || verdict == optim::StepVerdict::NonFinite;
    if (!overflow && verdict == optim::StepVerdict::NonFinite) overflow = &one;
  }
  if (update.new_scale) {
    newest_state_.scale = static_cast<float>(*update.new_scale);
  } else if (learnt) {
    const float before = newest_state_.scale;
    const bool bad_loss = update.bad_loss.defined() && read_double(update.bad_loss) != 0;
    const Verdict verdict = bad_loss   ? Verdict::BadLoss
                            : overflow ? Verdict::Overflow
                                       : Verdict::Finite;
    newest_state_ = next(newest_state_, verdict, update.law);
    counts_ = counted(counts_, verdict, before, newest_state_.scale);
    if (overflow) {
      const auto first = overflow->step.nonfinite();
      counts_.list = overflow->optimizer;
      counts_.position = first ? static_cast<int64_t>(*first) : -1;
    }
    if (verdict != Verdict::Finite) report(bad_loss);
  }
}

/// Warns or throws after too many skips in a row.
void AsyncGradScaler::report(bool bad_loss) const {
  const int64_t in_row = counts_.skips_in_row, most = options_.throw_after_skips;
  const std::string text = skip_warning("AsyncGradScaler", in_row, newest_state_.scale, bad_loss);
  if (in_row == options_.warn_after_skips) warn(text);
  HALFTAPE_CHECK(most == 0 || in_row < most, text, " (throw_after_skips ", most, ")");
}

double AsyncGradScaler::get_scale(bool newest) {
  if (!options_.enabled) return 1;
  if (!newest) return scale_in_use_;
  settle();
  return newest_state_.scale;
}

ScalerStats AsyncGradScaler::stats() {
  settle();
  return registry_.stats(counts_);
}

AsyncGradScaler::StateDict AsyncGradScaler::state_dict() {
  if (!options_.enabled) return {};
  settle();
  StateDict saved = to_dict({law_, newest_state_, counts_});
  saved["_scale_in_use"] = scale_in_use_;
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
  state_number_ = new_state_number();
  newest_state_ = loaded.state;
  counts_ = loaded.counts;
  scale_in_use_ = static_cast<float>(scale);
  pending_.reset();
  steps_.clear();
  bad_loss_ = {};
  scaled_ = {};
}

}  // namespace halftape::amp
