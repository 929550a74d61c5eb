// Faults on purpose: an infinity in one gradient at one step, to see what a training loop does with
// it.
#pragma once
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::amp {

/// Which gradient, when, and what becomes of it.
struct Fault {
  int64_t step = 0;  // the parameter's gradient is met for the step-th time since inject(), from 0
  std::variant<int64_t, std::string> parameter = int64_t{0};  // its place, or its name
  double value = std::numeric_limits<double>::infinity();
  int64_t element = 0;  // in row-major order
};

/// Keeps a fault planned for as long as it lives.
class [[nodiscard]] Injection {
 public:
  struct Plan;
  explicit Injection(std::shared_ptr<Plan> plan);
  ~Injection();
  Injection(Injection&&) noexcept = default;
  Injection& operator=(Injection&&) = delete;
  /// Has it come to pass?
  bool happened() const;

 private:
  std::shared_ptr<Plan> plan_;
};

/// Plans a fault for GradScaler::unscale_() (and the step() that calls it) and for
/// AsyncGradScaler::step(), in every thread. The value is written into the scaled gradient by the
/// device, in the order of its other work; for an asynchronous step before it is handed over.
///
///     const auto fault = amp::inject({.step = 12, .parameter = "0.weight"},
///                                    model->named_parameters().pairs());
///
/// A number counts the given parameters, or those of each optimizer where none are given. Throws on
/// a name that is not there; the step throws when the parameter has no gradient, or too short a
/// one.
Injection inject(const Fault& fault,
                 const std::vector<std::pair<std::string, Tensor>>& parameters = {});

namespace detail {
/// Is anything planned, for whichever optimizer?
bool faults_planned();
/// Carries out what is due for an optimizer of these parameters. Costs a branch when nothing is
/// planned.
void apply_faults(std::span<const Tensor> parameters);
}  // namespace detail

}  // namespace halftape::amp
