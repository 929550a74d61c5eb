#include "halftape/amp/inspector/side_batch.h"

#include <cmath>
#include <limits>
#include <map>

#include "halftape/amp/autocaster.h"
#include "halftape/autograd/methods.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {
namespace {

/// While it lives, autocast regions of this thread compute in float32. Off, they would not: weights
/// or inputs of 16 bits, which a region casts, need not fit together without one.
class [[nodiscard]] AutocastToFloat32 {
 public:
  AutocastToFloat32() : autocaster_(Autocaster::current()) { set(true); }
  ~AutocastToFloat32() { set(false); }
  AutocastToFloat32(const AutocastToFloat32&) = delete;
  AutocastToFloat32& operator=(const AutocastToFloat32&) = delete;

 private:
  void set(bool on) {
    autocaster_.to_float32 = on;
    autocaster_.install();
  }
  Autocaster& autocaster_;
};

bool all_finite(const TensorList& gradients) {
  std::vector<Array> arrays;
  for (const Tensor& g : gradients)
    if (g.defined()) arrays.push_back(g.array());
  if (arrays.empty()) return true;
  const Array found = full({}, 0, kFloat32, arrays[0].device());
  backend(found.device()).check_finite(arrays, found);
  return read_double(found) == 0;
}

double norm_of(const Tensor& x) { return (x * x).sum().sqrt().item(); }

}  // namespace

StateKeeper::StateKeeper(const nn::Module& model, const RandomState& begin) : random_(begin) {
  for (const Tensor& t : model.buffers()) keep(t);
  for (const Tensor& t : model.parameters()) keep(t);  // a lookup with max_norm writes to them
}

void StateKeeper::keep(const Tensor& t) {
  kept_.push_back({t, t.array(), t.array().clone(), t.array().version()});
}

StateKeeper::~StateKeeper() {
  for (const Kept& b : kept_) {
    b.tensor.impl()->set_value(b.value);  // undoes set_data()
    if (b.value.version() == b.version) continue;
    backend(b.value.device()).copy(b.value, b.copy);
    b.value.bump_version();
  }
}

SideBatch::SideBatch(const nn::Module& model, const std::function<Tensor()>& loss,
                     const RandomState& begin, bool float32)
    : counter_(model), float32_counter_(model) {
  for (const auto& p : model.named_parameters()) {
    if (!p.value().requires_grad()) continue;
    names_.push_back(p.key());
    parameters_.push_back(p.value());
  }
  HALFTAPE_CHECK(!parameters_.empty(),
                 "Inspector: no parameter of the model requires grad; nothing can be tried");
  counter_.values = float32_counter_.values = false;
  // A dtype may decide whether a rule repeats a number or writes it down as often.
  counter_.stored_alone = float32_counter_.stored_alone = false;
  const AutoGradMode recording(true);
  const auto compute = [&](ValueCounter& counter) {
    const ValueWatcher::Scope watched(&counter);  // so that nodes know their modules
    Tensor y = loss();
    HALFTAPE_CHECK(y.defined() && y.numel() == 1 && y.requires_grad(),
                   "Inspector: the closure must return the loss, a tensor of one element that "
                   "requires grad");
    return y;
  };
  if (float32) {
    const AutocastToFloat32 regions;
    const StateKeeper keeper(model, begin);
    float32_counter_.bins = ValueCounter::Bins::All;
    true_gradients_ = backward(compute(float32_counter_), 1, &float32_counter_);
    float32_parameters_ = bins_of_parameters(float32_counter_);
  }
  keeper_.emplace(model, begin);
  loss_ = compute(counter_);
  // The first pass takes what mlp_loss() has made ready in forward, at a scale of its own.
  (void)backward(loss_, 1, float32 ? &counter_ : nullptr);
  if (float32) pair_up();
}

bool SideBatch::loss_is_finite() const { return std::isfinite(loss_.item<double>()); }

TensorList SideBatch::backward(const Tensor& loss, double scale, ValueWatcher* watcher) {
  const ValueWatcher::Scope watched(watcher);
  const PolicyScope plain(nullptr);
  const Tensor by = full(loss.sizes(), scale, TensorOptions(loss.dtype()).device(loss.device()));
  return autograd::grad({loss}, parameters_, {by}, true, false, true);
}

std::vector<SideBatch::Seen> SideBatch::gradients_of(const ValueCounter& counter, bool stored16) {
  std::vector<Seen> seen;
  std::map<std::string, int> arrived;
  for (size_t event = 0; event < counter.events().size(); ++event) {
    const LedgerPlace& p = counter.places()[counter.events()[event]];
    // Each pass has casts of its own: the gradients of their inputs count.
    if (p.kind == LedgerPlace::Kind::Parameter || p.kind == LedgerPlace::Kind::Value ||
        p.op == "to")
      continue;
    const bool sum = p.kind == LedgerPlace::Kind::Sum;
    std::string key = p.op + '|' + p.module + '|' + std::to_string(p.output) + (sum ? "|sum" : "");
    key += '|' + std::to_string(arrived[key]++);
    if (!stored16 || is_16bit(p.dtype)) seen.push_back({std::move(key), event});
  }
  return seen;
}

/// Finds the gradients that both passes have.
void SideBatch::pair_up() {
  std::map<std::string, size_t> plain;
  for (Seen& s : gradients_of(float32_counter_, false)) plain.emplace(std::move(s.key), s.event);
  const std::vector<ClassCounts> counts = counter_.read_classes();
  for (Seen& s : gradients_of(counter_, true)) {
    const auto like = plain.find(s.key);
    if (like == plain.end()) continue;
    const ExponentCounts truth = float32_counter_.read_bins(like->second);
    // Where ops differ, as those of a recurrent layer do, other gradients have that key.
    if (truth.total() != counts[s.event].total()) continue;
    float32_.push_back(truth);
    places_.push_back(counter_.places()[counter_.events()[s.event]]);
    keys_.push_back(std::move(s.key));
  }
  float32_counter_.reset();
}

std::vector<ExponentCounts> SideBatch::bins_of_parameters(const ValueCounter& counter) const {
  std::vector<ExponentCounts> bins(names_.size());
  for (size_t event = 0; event < counter.events().size(); ++event) {
    const LedgerPlace& p = counter.places()[counter.events()[event]];
    if (p.kind != LedgerPlace::Kind::Parameter || !counter.has_bins(event)) continue;
    for (size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == p.parameter) bins[i] += counter.read_bins(event);
  }
  return bins;
}

SideBatch::Result SideBatch::at(double scale, bool bins) {
  counter_.reset();
  counter_.bins = bins ? ValueCounter::Bins::Stored16 : ValueCounter::Bins::None;
  const TensorList gradients = backward(loss_, scale, &counter_);
  Result result;
  result.classes.resize(places_.size());
  result.bins.resize(bins ? places_.size() : 0);
  const std::vector<ClassCounts> classes = counter_.read_classes();
  std::map<std::string, size_t> events;
  for (Seen& s : gradients_of(counter_, true)) events.emplace(std::move(s.key), s.event);
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto found = events.find(keys_[i]);
    if (found == events.end()) continue;
    result.classes[i] = classes[found->second];
    if (bins) result.bins[i] = counter_.read_bins(found->second);
  }
  if (bins) result.parameter_bins = bins_of_parameters(counter_);
  result.overflows = !all_finite(gradients);
  const NoGradGuard no_grad;
  for (size_t i = 0; i < true_gradients_.size(); ++i) {
    const Tensor &g = gradients[i], &truth = true_gradients_[i];
    if (!g.defined() || !truth.defined()) {
      result.errors.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const Tensor exact = truth.to(kFloat64);
    const double off = norm_of(g.to(kFloat64) / scale - exact);
    result.errors.push_back(std::isfinite(off) ? off / norm_of(exact)
                                               : std::numeric_limits<double>::infinity());
  }
  return result;
}

bool SideBatch::passes(double scale) { return all_finite(backward(loss_, scale, nullptr)); }

}  // namespace halftape::amp
