// Fault injection: puts an infinity into one gradient at one step, to test a training loop.
#pragma once
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::amp {

/// A change of one element of one gradient.
struct Fault {
  int64_t step = 0;  // the n-th check of the parameter's gradient after inject(), from 0
  std::variant<int64_t, std::string> parameter = int64_t{0};  // position, or name
  double value = std::numeric_limits<double>::infinity();     // what is written
  int64_t element = 0;                                        // in row-major order
};

/// Keeps a fault planned during its lifetime.
class [[nodiscard]] Injection {
 public:
  struct Plan;
  explicit Injection(std::shared_ptr<Plan> plan);
  ~Injection();
  Injection(Injection&&) noexcept = default;
  Injection& operator=(Injection&&) = delete;
  /// True once the fault was written.
  bool happened() const;

 private:
  std::shared_ptr<Plan> plan_;
};

/// Plans a fault for GradScaler::unscale_() and step() and for AsyncGradScaler::step(), in every
/// thread. The device writes the value into the scaled gradient, in the order of its other work; an
/// asynchronous step starts after that.
///
///     const auto fault = amp::inject({.step = 12, .parameter = "0.weight"},
///                                    model->named_parameters().pairs());
///
/// A position counts `parameters`, or those of each optimizer if none are given. Throws for an
/// unknown name. The step throws when the parameter has no gradient, or one without this element.
Injection inject(const Fault& fault,
                 const std::vector<std::pair<std::string, Tensor>>& parameters = {});

}  // namespace halftape::amp
