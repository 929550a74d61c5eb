// explain(): which casts autocast made in a computation, and why.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "halftape/amp/autocast.h"

namespace halftape::amp {

/// The casts of a computation, in the order of its ops. Equal steps in a row are one with a count.
class CastPlan final : public CastObserver {
 public:
  /// A tensor that an op was given.
  struct Input {
    Shape shape;        // of the tensor
    Dtype given, used;  // before and after the cast
    // Elements of a float32 input that the region's dtype would turn into inf, or into 0.
    int64_t overflows = 0, vanishes = 0;
    bool operator==(const Input&) const = default;
  };
  struct Step {
    std::string op;             // "linear"
    Dtype dtype;                // of the computation
    std::string why;            // "list: Lower", "user rule: Float32", "promotion", …
    std::vector<Input> inputs;  // in the order of the arguments
    int64_t count = 1;          // how many equal steps in a row
  };
  std::vector<Step> steps;

  /// The number of casts, cached ones included.
  int64_t casts() const;

  void note(const CastOp& op, Cast rule, const AutocastState::PerDevice& region,
            std::span<const Tensor* const> given, std::span<const Tensor> casts,
            std::optional<Dtype> compute_as) override;
};

/// A table: op, dtype, reason, casts, and the elements that would not fit.
std::ostream& operator<<(std::ostream& out, const CastPlan& plan);

/// Records this thread's ops in autocast regions during its lifetime:
///
///     amp::CastPlan plan;
///     {
///       amp::CastRecorder recorder(plan);
///       amp::autocast region(kCPU, kFloat16);
///       loss = model->forward(x);
///     }
///     std::cout << plan;
///
/// Ops outside a region and in backward are not recorded. Every float32 input is read once more.
/// Recorders end as autocast regions do: in their thread, the innermost first.
class [[nodiscard]] CastRecorder {
 public:
  [[nodiscard]] explicit CastRecorder(CastPlan& plan);
  ~CastRecorder();
  CastRecorder(const CastRecorder&) = delete;
  CastRecorder& operator=(const CastRecorder&) = delete;

 private:
  struct Before {
    CastObserver* observer;
  };
  std::shared_ptr<Autocaster> autocaster_;
  Region<Before> region_;
};

/// Runs f and returns its plan. f opens a region or runs inside one.
CastPlan explain(const std::function<void()>& f);

}  // namespace halftape::amp
