#include "halftape/amp/inspector/inspector.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "halftape/amp/inspector/alarm_watch.h"
#include "halftape/amp/inspector/count_history.h"
#include "halftape/amp/inspector/overflow_watch.h"
#include "halftape/amp/inspector/side_batch.h"
#include "halftape/autograd/methods.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/warn.h"
#include "halftape/optim/loss_history.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::amp {
namespace {

const InspectorOptions& checked(const InspectorOptions& o) {
  HALFTAPE_CHECK(o.every >= 0 && o.shadow_every >= 0 && o.kept > 0, "Inspector: every ", o.every,
                 ", shadow_every ", o.shadow_every, " and kept ", o.kept,
                 " must not be negative, and kept not 0");
  const AlarmOptions& a = o.alarms;
  HALFTAPE_CHECK(a.lost >= 0 && a.error >= 0 && a.stagnant >= 0 && a.skips_in_row > 0,
                 "Inspector: the thresholds of the alarms, lost ", a.lost, ", error ", a.error,
                 ", stagnant ", a.stagnant, " and skips_in_row ", a.skips_in_row,
                 ", must not be negative, and skips_in_row not 0");
  HALFTAPE_CHECK(!ValueWatcher::current(),
                 "Inspector: this thread has a ValueWatcher already, such as another Inspector");
  return o;
}

/// None of options that do not tell theirs.
std::map<std::string, double> values_of(const optim::OptimizerOptions& options) {
  try {
    return options.to_map();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

class Inspector::Impl {
 public:
  Impl(const nn::Module& model, const GradScaler& scaler, const InspectorOptions& options)
      : model_(model),
        scaler_(scaler),
        options_(checked(options)),
        counter_(model),
        overflows_(model, counter_),
        history_rows_(std::max<int64_t>(options.every, 64)),
        history_(history_rows_),
        scales_(history_rows_),
        alarms_(options.alarms, scaler, options.optimizer),
        optimizer_lives_(options.optimizer ? options.optimizer->lifetime()
                                           : std::weak_ptr<const void>()),
        scope_(&counter_) {
    counter_.values = options.values;
    counter_.on_scale = [this] { note_scale(); };
    begin_step();
  }

  void step(const std::function<Tensor()>& loss_again);
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  void look_away() { counter_.off = true; }
  /// What a Graph's replays, or a GPU's steps, have counted since the last call. last_skipped: what
  /// the scaler says of the last of them.
  void read_history(std::optional<bool> last_skipped = {});

  int64_t steps = 0;
  std::vector<ClassCounts> totals;
  std::deque<LedgerRow> rows;
  const std::vector<LedgerPlace>& places() const { return counter_.places(); }
  const std::deque<Overflow>& overflows() const { return overflows_.all(); }
  const std::vector<Alarm>& alarms() const { return alarms_.all(); }

 private:
  bool sampled() const { return options_.every > 0 && calls_ % options_.every == 0; }
  bool shadow_due() const {
    return options_.shadow_every > 0 && calls_ % options_.shadow_every == 0;
  }
  bool on_host() const { return counter_.device() == kCPU; }
  void begin_step();
  void note_scale();
  void remember_counts();
  void finish_step(const std::function<Tensor()>& loss_again);
  std::optional<bool> skipped();
  void absorb(const std::vector<size_t>& events, const std::vector<ClassCounts>& counts,
              std::optional<bool> skipped);
  void note_unexplained_skip(int64_t step);
  size_t take_samples(int64_t step, bool applied);
  void take_shadow(int64_t step, const std::function<Tensor()>& loss_again, size_t first);
  void forget_old_samples();
  void replay(const std::function<Tensor()>& loss_again);
  /// False for a model that is frozen as a whole: a loss has no gradients to compare there.
  bool trains() const {
    const TensorList all = model_.parameters();
    return std::any_of(all.begin(), all.end(), [](const Tensor& p) { return p.requires_grad(); });
  }
  bool may_stagnate(const Tensor& p) const;
  double unchanged_share(const std::string& name, const Tensor& now) const;

  const nn::Module& model_;
  const GradScaler& scaler_;
  const InspectorOptions options_;
  ValueCounter counter_;
  OverflowWatch overflows_;
  const int64_t history_rows_;
  CountHistory history_;                // of a GPU's steps
  optim::LossHistory scales_;           // beside it
  std::vector<size_t> history_events_;  // of each row of the history
  std::vector<ClassCounts> counted_;    // the row that was read last
  int64_t calls_ = 0, read_at_ = 0;     // of step(); how many there were at the last reading
  AlarmWatch alarms_;
  bool scale_is_known_ = false;           // of this step
  double scale_ = 1;                      // of the last loss
  RandomState random_;                    // as it was when this step began
  std::map<std::string, Tensor> before_;  // parameters, at the beginning of a sampled step
  // What the scaler had counted, and of which state.
  int64_t skips_ = scaler_.is_enabled() ? scaler_.stats().skips : 0;
  int64_t judged_ = scaler_.is_enabled() ? scaler_.stats().steps : 0;
  int64_t state_number_ = scaler_.state_number_;
  std::deque<int64_t> samples_;  // the steps of `rows`
  const std::thread::id thread_ = std::this_thread::get_id();
  const std::weak_ptr<const void> optimizer_lives_;
  ValueWatcher::Scope scope_;
};

/// Whether rounding may drop all updates of the parameter: not where the optimizer keeps more of
/// it.
bool Inspector::Impl::may_stagnate(const Tensor& p) const {
  if (!p.requires_grad() || !is_narrow(p.dtype())) return false;
  if (!options_.optimizer) return true;
  for (const optim::OptimizerParamGroup& group : options_.optimizer->param_groups())
    for (const Tensor& own : group.params())
      if (own.is_same(p) && group.has_options()) {
        const auto options = values_of(group.options());
        const auto weights = options.find("weights");
        return weights == options.end() ||
               weights->second == static_cast<double>(optim::Weights::Plain);
      }
  return true;
}

void Inspector::Impl::begin_step() {
  counter_.reset(!on_host());
  counter_.bins = sampled() ? ValueCounter::Bins::Stored16 : ValueCounter::Bins::None;
  random_ = get_random_state();
  scale_is_known_ = false;
  before_.clear();
  if (sampled())
    for (const auto& p : model_.named_parameters())
      if (may_stagnate(p.value())) before_.emplace(p.key(), p.value().detach().clone());
}

void Inspector::Impl::step(const std::function<Tensor()>& loss_again) {
  HALFTAPE_CHECK(!options_.optimizer || !optimizer_lives_.expired(),
                 "Inspector: InspectorOptions::optimizer is gone; it must outlive the Inspector");
  const ValueWatcher::Scope unwatched(nullptr);
  alarms_.look_at_schedule();
  if (!on_host()) {
    remember_counts();
    if (Capture::active_or_tried()) {
      HALFTAPE_CHECK(!loss_again, "Inspector: in the step of a Graph, step() takes no closure");
      scale_is_known_ = false;
      return counter_.reset(true);
    }
  }
  const bool asks = loss_again && (options_.replay || shadow_due());
  try {
    if (on_host() || sampled() || asks) finish_step(loss_again);
  } catch (...) {  // of the closure: the next step begins anew all the same
    ++calls_;
    begin_step();
    throw;
  }
  ++calls_;
  begin_step();
}

/// Keeps the scale of this step's loss; on a GPU, there.
void Inspector::Impl::note_scale() {
  if (std::exchange(scale_is_known_, true)) return;
  if (on_host())
    scale_ = scaler_.get_scale();
  else
    scales_.push(Tensor(scaler_.scale_));
}

/// Keeps what this step has counted on the device.
void Inspector::Impl::remember_counts() {
  if (counter_.events() != history_events_ || calls_ - read_at_ >= history_rows_) {
    HALFTAPE_CHECK(!Capture::active_or_tried() || history_.empty(),
                   "Inspector: this step of a Graph does something else than the one before");
    read_history();
    if (counter_.events() != history_events_) {
      history_.clear();
      history_events_ = counter_.events();
    }
  }
  history_.push(counter_.classes());
}

/// What follows from the counts of a step, which is read for that.
void Inspector::Impl::finish_step(const std::function<Tensor()>& loss_again) {
  const std::optional<bool> skip = skipped();
  if (on_host())
    absorb(counter_.events(), counter_.read_classes(), skip);
  else  // of several steps any may have been skipped
    read_history(skip ? std::optional(scaler_.stats().skips_in_row > 0) : std::nullopt);
  const int64_t now = steps - 1;
  if (skip == true && !overflows_.has(now)) note_unexplained_skip(now);
  const bool applied = !overflows_.has(now);
  const size_t first = sampled() ? take_samples(now, applied) : rows.size();
  if (loss_again && shadow_due() && trains()) take_shadow(now, loss_again, first);
  std::vector<const LedgerRow*> fresh;
  for (size_t i = first; i < rows.size(); ++i) fresh.push_back(&rows[i]);
  alarms_.look_at(fresh, places());
  forget_old_samples();
  // Without a scaler the step was taken all the same, and the weights are no longer what they were.
  if (!applied && loss_again && options_.replay && scaler_.is_enabled() && trains())
    replay(loss_again);
  if (!applied || sampled()) alarms_.look_at_scaler(now);
}

/// Each row holds the counts of all steps up to its own.
void Inspector::Impl::read_history(std::optional<bool> last_skipped) {
  const CountHistory::Taken taken = history_.take();
  read_at_ = calls_;
  if (taken.pushed == 0) return;
  steps += taken.pushed - static_cast<int64_t>(taken.rows.size());
  const std::vector<double> scales = scales_.to_vector();
  const size_t count = taken.rows.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<ClassCounts> counts = taken.rows[i];
    counted_.resize(std::max(counted_.size(), counts.size()));
    for (size_t e = 0; e < counts.size(); ++e)
      for (size_t c = 0; c < counts[e].counts.size(); ++c)
        counts[e].counts[c] -= std::exchange(counted_[e].counts[c], counts[e].counts[c]);
    if (scales.size() >= count) scale_ = scales[scales.size() - count + i];
    absorb(history_events_, counts, i + 1 == count ? last_skipped : std::nullopt);
  }
}

/// Whether the scaler has skipped a step since the last call. Nothing if it has judged none.
std::optional<bool> Inspector::Impl::skipped() {
  if (!scaler_.is_enabled()) return {};
  const ScalerStats stats = scaler_.stats();
  if (std::exchange(state_number_, scaler_.state_number_) != scaler_.state_number_)
    skips_ = scaler_.initial_counts_.skips, judged_ = scaler_.initial_counts_.steps;
  const bool any = stats.skips > std::exchange(skips_, stats.skips);
  if (stats.steps == std::exchange(judged_, stats.steps)) return {};
  return any;
}

/// Adds the counts of a step.
void Inspector::Impl::absorb(const std::vector<size_t>& events,
                             const std::vector<ClassCounts>& counts, std::optional<bool> skipped) {
  totals.resize(places().size());
  for (size_t e = 0; e < counts.size(); ++e) totals[events[e]] += counts[e];
  overflows_.look_at(steps, scale_, events, counts, skipped);
  ++steps;
}

/// Notes that the last step was skipped, if it was and not an earlier one, though no number told.
void Inspector::Impl::note_unexplained_skip(int64_t step) {
  const ScalerStats stats = scaler_.stats();
  if (stats.skips_in_row == 0) return;
  Overflow overflow;
  overflow.step = step;
  overflow.scale = scale_;
  overflow.where = stats.nonfinite ? Overflow::Where::Unscale : Overflow::Where::Loss;
  if (stats.nonfinite && options_.optimizer &&
      scaler_.registry_.is(stats.nonfinite->optimizer, options_.optimizer->id())) {
    const auto& groups = options_.optimizer->param_groups();
    const std::vector<Tensor> parameters = optim::parameters_of(groups);
    for (const auto& p : model_.named_parameters())
      if (stats.nonfinite->index < parameters.size() &&
          p.value().is_same(parameters[stats.nonfinite->index]))
        overflow.parameter = p.key();
  }
  overflows_.add(std::move(overflow));
}

/// Puts the exponents of this step into rows; returns the number of the first.
size_t Inspector::Impl::take_samples(int64_t step, bool applied) {
  const size_t first = rows.size();
  std::map<size_t, size_t> row_of;  // of each place: one row, however often it is visited
  for (size_t e = 0; e < counter_.events().size(); ++e) {
    if (!counter_.has_bins(e)) continue;
    const size_t place = counter_.events()[e];
    const auto [at, is_new] = row_of.emplace(place, rows.size());
    if (is_new)
      rows.push_back({place, step, scale_, counter_.read_bins(e), {}, {}});
    else
      rows[at->second].seen += counter_.read_bins(e);
  }
  if (applied)
    for (const auto& p : model_.named_parameters())
      if (before_.count(p.key()) > 0 && p.value().grad().defined())
        alarms_.look_at_update(step, p.key(), p.value().dtype(),
                               unchanged_share(p.key(), p.value()));
  return first;
}

void Inspector::Impl::forget_old_samples() {
  if (!rows.empty() && (samples_.empty() || samples_.back() != rows.back().step))
    samples_.push_back(rows.back().step);
  while (static_cast<int64_t>(samples_.size()) > options_.kept) {
    // A step whose closure threw has left rows, and is not among the samples.
    while (!rows.empty() && rows.front().step <= samples_.front()) rows.pop_front();
    samples_.pop_front();
  }
}

/// Of the elements that have a gradient.
double Inspector::Impl::unchanged_share(const std::string& name, const Tensor& now) const {
  const NoGradGuard no_grad;
  const Tensor &before = before_.at(name), here = now.detach();
  if (before.sizes() != here.sizes() || before.dtype() != here.dtype()) return 0;
  const Tensor asked = now.grad() != 0;
  const double all = asked.sum().item<double>();
  return all == 0 ? 0 : ((before == here) & asked).sum().item<double>() / all;
}

/// Adds shadows and errors to the rows of this step, from the same batch computed again.
void Inspector::Impl::take_shadow(int64_t step, const std::function<Tensor()>& loss_again,
                                  size_t first) {
  SideBatch batch(model_, loss_again, random_, true);
  SideBatch::Result now = batch.at(scale_, true);
  rows.resize(first);  // the same places without shadows
  const auto number = [&](const auto& is) {
    return static_cast<size_t>(std::find_if(places().begin(), places().end(), is) -
                               places().begin());
  };
  for (size_t i = 0; i < batch.places().size(); ++i) {
    const size_t place = number([&](const LedgerPlace& p) { return p == batch.places()[i]; });
    if (place < places().size())
      rows.push_back({place, step, scale_, now.bins[i], batch.float32()[i], {}});
  }
  for (size_t i = 0; i < batch.parameters().size(); ++i) {
    const size_t place = number([&](const LedgerPlace& p) {
      return p.kind == LedgerPlace::Kind::Parameter && p.parameter == batch.parameters()[i];
    });
    if (place < places().size())
      rows.push_back({place, step, scale_, now.parameter_bins[i], batch.float32_parameters()[i],
                      now.errors[i]});
  }
}

/// Computes the skipped step again at smaller and smaller scales.
void Inspector::Impl::replay(const std::function<Tensor()>& loss_again) {
  SideBatch batch(model_, loss_again, random_, false);
  Overflow& overflow = overflows_.newest();
  overflow.largest_scale_that_passes = 0;
  if (!batch.loss_is_finite()) return;
  for (int halvings = 0; halvings <= 24; ++halvings) {
    const double scale = std::ldexp(scale_, -halvings);
    if (!batch.passes(scale)) continue;
    overflow.largest_scale_that_passes = scale;
    return;
  }
}

Inspector::Inspector(const nn::Module& model, const GradScaler& scaler,
                     const InspectorOptions& options)
    : impl_(std::make_unique<Impl>(model, scaler, options)) {}
Inspector::~Inspector() {
  if (impl_->is_of_this_thread()) return;
  // What the other thread still calls stays, and counts nothing more.
  impl_->look_away();
  static auto* const left = new std::vector<std::unique_ptr<Impl>>;  // NOLINT: see above
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  left->push_back(std::move(impl_));
  warn("Inspector: destroyed in another thread than the one that it looks at");
}

void Inspector::step(const std::function<Tensor()>& loss_again) { impl_->step(loss_again); }
int64_t Inspector::steps() {
  impl_->read_history();
  return impl_->steps;
}
const std::vector<LedgerPlace>& Inspector::places() { return impl_->places(); }
const std::vector<ClassCounts>& Inspector::totals() {
  impl_->read_history();
  impl_->totals.resize(impl_->places().size());
  return impl_->totals;
}
const std::deque<LedgerRow>& Inspector::rows() const { return impl_->rows; }
const std::deque<Overflow>& Inspector::overflows() {
  impl_->read_history();
  return impl_->overflows();
}
std::optional<Overflow> Inspector::last_overflow() {
  return overflows().empty() ? std::optional<Overflow>() : overflows().back();
}
const std::vector<Alarm>& Inspector::alarms() { return impl_->alarms(); }

}  // namespace halftape::amp
