#include "halftape/amp/inspector/overflow_watch.h"

#include <set>
#include <string>
#include <utility>

#include "halftape/autograd/tape/anomaly_mode.h"

namespace halftape::amp {
namespace {

constexpr size_t kMostOverflows = 1000;

}  // namespace

OverflowWatch::OverflowWatch(const nn::Module& model, const ValueCounter& counter)
    : model_(model), counter_(counter) {}

void OverflowWatch::add(Overflow overflow) {
  all_.push_back(std::move(overflow));
  if (all_.size() > kMostOverflows) all_.pop_front();
}

void OverflowWatch::look_at(int64_t step, double scale, const std::vector<size_t>& events,
                            const std::vector<ClassCounts>& counts, std::optional<bool> skipped) {
  usual_.resize(counter_.places().size());
  bool bad_loss = false, bad_gradient = false;
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e].nonfinite() == 0) continue;
    const LedgerPlace& p = counter_.places()[events[e]];
    bad_loss |= p.kind == LedgerPlace::Kind::Value && p.op == "scale";
    const bool of_leaf = p.kind == LedgerPlace::Kind::Parameter ||
                         (p.kind == LedgerPlace::Kind::Sum && p.op == "accumulate");
    // Without the scaler's word, those of an input or of another model's parameters tell nothing.
    bad_gradient |= of_leaf && (skipped || !p.parameter.empty());
  }
  const bool bad = bad_loss || bad_gradient;
  if (skipped.value_or(bad)) {
    if (bad) name_first(step, scale, events, counts, bad_loss);
    return;
  }
  any_applied_ = true;
  for (size_t e = 0; e < counts.size(); ++e)
    if (counts[e].nonfinite() > 0) usual_[events[e]] = true;
}

/// That is finite in steps that are applied: a mask of −inf is not what went wrong. Before there is
/// such a step, values count only if the loss is bad.
void OverflowWatch::name_first(int64_t step, double scale, const std::vector<size_t>& events,
                               const std::vector<ClassCounts>& counts, bool bad_loss) {
  Overflow overflow;
  overflow.step = step;
  overflow.scale = scale;
  overflow.where = bad_loss ? Overflow::Where::Loss : Overflow::Where::Backward;
  bool found = false;
  std::set<std::string> parameters;  // whose gradients are not finite
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e].nonfinite() == 0) continue;
    const LedgerPlace& p = counter_.places()[events[e]];
    const bool value = p.kind == LedgerPlace::Kind::Value;
    if (!p.parameter.empty()) parameters.insert(p.parameter);
    if (found || usual_[events[e]] || (value && !bad_loss && !any_applied_)) continue;
    found = true;
    overflow.where = value ? Overflow::Where::Forward : Overflow::Where::Backward;
    const bool sum = p.kind == LedgerPlace::Kind::Sum;
    overflow.op = value ? p.op : sum ? "sum of gradients of " + p.op : p.rule;
    overflow.module = value || sum ? p.module : p.rule_module;
    overflow.dtype = p.dtype;
    overflow.nan = counts[e][NumberClass::Infinite] == 0;
    overflow.call_site = autograd::described_call(counter_.origin(events[e]));
  }
  for (const auto& p : model_.named_parameters())
    if (overflow.parameter.empty() && parameters.count(p.key()) > 0) overflow.parameter = p.key();
  add(std::move(overflow));
}

}  // namespace halftape::amp
