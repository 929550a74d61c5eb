// Names the first number of a skipped step that was not finite; internal to the tools.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "halftape/amp/inspector/inspector.h"
#include "halftape/amp/inspector/value_counter.h"

namespace halftape::amp {

class OverflowWatch {
 public:
  /// The counter is that of the places of all steps.
  OverflowWatch(const nn::Module& model, const ValueCounter& counter);

  /// The last 1000, oldest first.
  const std::deque<Overflow>& all() const { return all_; }
  Overflow& newest() { return all_.back(); }
  bool has(int64_t step) const { return !all_.empty() && all_.back().step == step; }

  /// What a step counted: `counts` of each of its `events`. Where the scaler does not say whether
  /// the step was skipped, that is told from the counts.
  void look_at(int64_t step, double scale, const std::vector<size_t>& events,
               const std::vector<ClassCounts>& counts, std::optional<bool> skipped);
  void add(Overflow overflow);

 private:
  void name_first(int64_t step, double scale, const std::vector<size_t>& events,
                  const std::vector<ClassCounts>& counts, bool bad_loss);

  const nn::Module& model_;
  const ValueCounter& counter_;
  std::deque<Overflow> all_;
  std::vector<bool> usual_;  // places whose numbers were not finite in a step that was applied
  bool any_applied_ = false;
};

}  // namespace halftape::amp
