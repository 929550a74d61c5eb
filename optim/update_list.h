// A group's parameters on their way to Backend::update(): what every optimizer here does alike.
#pragma once
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class UpdateList {
 public:
  /// For up to `count` parameters without taking memory again.
  explicit UpdateList(size_t count) {
    params_.reserve(count);
    slots_.reserve(count);
  }
  /// A parameter with its gradient and with what is kept of it; moments and step are the caller's
  /// to set, before the next add(). Comes first of all that looks into `state`: see keeping().
  UpdateSlot& add(const Tensor& parameter, Weights chosen, ParamState& state);

  /// One step for all of them. A weight that autocast has a 16-bit copy of
  /// (autograd/tape/weight_cast.h) gets it written along, so that the next region finds it and
  /// casts nothing. `rule` makes it of the group's options: now, and before every replay of a
  /// graph, as they are by then.
  using MakeRule = std::function<UpdateRule(const OptimizerOptions&)>;
  void run(const Optimizer& optimizer, const OptimizerOptions& options, const MakeRule& rule,
           const StepControl& control);

 private:
  std::vector<Tensor> params_;
  std::vector<UpdateSlot> slots_;
};

}  // namespace halftape::optim
