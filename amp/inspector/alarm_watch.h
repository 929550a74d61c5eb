// Raises the alarms of an Inspector; internal to the tools.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "halftape/amp/inspector/inspector.h"

namespace halftape::amp {

class AlarmWatch {
 public:
  AlarmWatch(AlarmOptions options, const GradScaler& scaler, const optim::Optimizer* optimizer);
  const std::vector<Alarm>& all() const { return all_; }

  /// What a sampled step found: `rows` of its places.
  void look_at(const std::vector<const LedgerRow*>& rows, const std::vector<LedgerPlace>& places);
  /// The share of a parameter that a step left as it was, of the elements that have a gradient.
  void look_at_update(int64_t step, const std::string& parameter, Dtype dtype, double unchanged);
  /// Called once per step.
  void look_at_schedule();
  /// The state of the scaler after the step; waits for the device.
  void look_at_scaler(int64_t step);

 private:
  template <class Text>
  void set(Alarm::Kind kind, int64_t step, const std::string& where, bool on, double value,
           const Text& text);

  AlarmOptions options_;
  const GradScaler& scaler_;
  const optim::Optimizer* optimizer_;
  std::vector<Alarm> all_;
  std::set<std::pair<Alarm::Kind, std::string>> raised_;
  std::set<std::string> lost_all_;  // modules that the last shadow showed to lose all, not be dead
  std::optional<double> lr_;        // nothing: the optimizer does not tell
  int64_t state_number_ = 0;        // of the scaler's state
  int64_t moves_ = 0;               // of the learning rate, since the last of them was seen
  int64_t updates_before_ = 0;      // that had been applied by then
};

}  // namespace halftape::amp
