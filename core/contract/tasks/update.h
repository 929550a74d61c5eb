// Lists of gradients and parameters: checks, norms, and updates by a rule.
#pragma once
#include <array>
#include <span>

#include "halftape/core/contract/step_control.h"
#include "halftape/core/formula/scale.h"
#include "halftape/core/formula/update.h"
#include "halftape/core/formula/weights.h"

namespace halftape {

/// If an element of an array is not finite, as it is or times inv_scale: found_inf ← 1, and first ←
/// the position in the list of the first such array. Otherwise both keep their values. With
/// `divides` each array ← array·inv_scale. Undefined arrays are passed over.
struct GradientCheck {
  std::span<const Array> grads;
  Array inv_scale = {};  // one float32; undefined: 1, and nothing is divided
  Array found_inf = {};  // one float32; undefined only with `divides`, which then is all
  Array first = {};      // one int64, or undefined
  bool divides = false;
};
/// norm ← the norm of all elements of all arrays: unit·(Σ |x / unit|ᵖ)^(1/p), or the largest |x|
/// for an infinite p; sums are kept in double. factor ← min(1, most / (norm + 1e-6)), which brings
/// the norm down to `most`, or 1 if the norm is not finite.
struct ListNorm {
  std::span<const Array> xs;  // of floating dtypes
  double p = 2;
  Array unit = {};  // one float64; undefined: 1
  double most = 0;
  Array norm, factor;  // one element each, float32 or float64
};

/// What numbers are counted by: by powers of two (core/formula/exponents.h), or by NumberClass.
enum class CountBy : uint8_t { Exponent, Class };

/// How a parameter of 16 bits is kept (core/formula/weights.h); others are Plain.
struct Keeping {
  Weights weights = Weights::Plain;
  /// Master: float32, of the parameter's shape. Kahan: of its shape and dtype. Stochastic: int64
  /// (2): the key of its Philox stream, and the number of updates, which the update itself raises.
  Array extra = {};
};
/// One parameter in a list. Arrays behind grad may be undefined if the rule or its options do not
/// need them.
struct UpdateSlot {
  Array param, grad;
  std::array<Array, kMostMoments> moments = {};  // in the order of the rule
  Array step = {};  // one float32: the number of updates, which the update itself raises
  Keeping keeping = {};
  Array low = {};  // of the parameter's shape, in 16 bits ← the new parameter, rounded once
};
/// Every parameter takes one step by the rule. All arrays that the update may write get a new
/// version, also if the step is skipped, which the device alone knows.
struct ListUpdate {
  std::span<const UpdateSlot> slots;
  const UpdateRule& rule;
  const StepControl& control;
};

/// state ← next(state, verdict, rule), and counts ← counted(counts, verdict, …), by the formula of
/// the rule. The verdict is BadLoss if bad_loss is not 0, else Overflow if any result's found_inf
/// is not 0, else Finite.
struct Transition {
  Array scale;                           // one float32
  Array trackers;                        // int32 (2): the integers of the state
  Array counts = {};                     // int64 (8); undefined: not kept
  std::span<const CheckResult> results;  // one for each list that was checked
  Array bad_loss = {};                   // one float32; undefined: 0
  int64_t warn_after = 0;  // skips in a row after which `report` is called on the host; 0: never
  ScaleLaw rule = {};
  SkipReport report = nullptr;
};

/// ring[count mod n] ← value, and count ← count + 1. ring: (n, …), n > 0; count: one int64; value:
/// as many elements as a row has, of the ring's dtype; or both are of floating dtypes.
struct Push {
  Array ring, count, value;
};

}  // namespace halftape
