// explain(): what autocast did with every op of a computation, and why.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "halftape/amp/autocast.h"

namespace halftape::amp {

/// The casts of a computation, in the order of its ops. Equal ones in a row are counted.
class CastPlan {
 public:
  struct Input {
    Shape shape;
    Dtype given, used;
    // Elements of a float32 input that the region's dtype cannot hold: that would become infinite,
    // or 0 without being 0.
    int64_t overflows = 0, vanishes = 0;
    bool operator==(const Input&) const = default;
  };
  struct Step {
    std::string op;
    Dtype dtype;      // in which it runs
    std::string why;  // "list: Lower", "user rule: Float32", "promotion", …
    std::vector<Input> inputs;
    int64_t count = 1;
  };
  std::vector<Step> steps;

  /// How many casts were asked for, cached ones included.
  int64_t casts() const;

  /// For Autocaster: an op that is about to run.
  void note(const CastOp& op, Cast rule, const AutocastState::PerDevice& region,
            std::span<const Tensor* const> given, std::span<const Tensor> casts);
};

/// A table: op, dtype, reason, the casts, and what would not fit.
std::ostream& operator<<(std::ostream& out, const CastPlan& plan);

/// Records the ops of this thread's regions while it lives:
///
///     amp::CastPlan plan;
///     {
///       amp::CastRecorder recorder(plan);
///       amp::autocast region(kCPU, kFloat16);
///       loss = model->forward(x);
///     }
///     std::cout << plan;
///
/// Ops outside a region, and in backward, are not seen. Every float32 input is read once more.
class [[nodiscard]] CastRecorder {
 public:
  explicit CastRecorder(CastPlan& plan);
  ~CastRecorder();
  CastRecorder(const CastRecorder&) = delete;
  CastRecorder& operator=(const CastRecorder&) = delete;

 private:
  Autocaster& by_;
  CastPlan* before_;
};

/// Runs f and gives its plan: f opens a region or stands in one.
CastPlan explain(const std::function<void()>& f);

}  // namespace halftape::amp
