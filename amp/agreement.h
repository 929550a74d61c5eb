// The seam for training in several processes: how their scalers come to one verdict.
#pragma once
#include <memory>
#include <span>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/scale.h"

namespace halftape::amp {

/// What decides a scaler's scales from here on.
struct ScaleCourse {
  Array scale;          // () float32; 0 of a disabled scaler
  Array trackers = {};  // (2) int32, as in Transition; undefined: not compared
  ScaleLaw law = {};
  int64_t state_number = 0;  // of the scaler; 0 of a disabled one
};

/// A number for the state of a scaler that is new, or has loaded one: no other in this process has
/// had it, and an address may be another scaler's by now.
int64_t new_state_number();

/// What the scalers of several processes share. Without it, one rank's bad loss would be an
/// overflow for the others: its scale would stay, and theirs would back off.
class Agreement {
 public:
  virtual ~Agreement() = default;
  /// Replaces each of the flags, () float32, by the largest of all processes, and the position
  /// `first`, () int64, if defined, by the least that is not negative: a process may have looked at
  /// a part of the gradients alone. Throws when their courses are not equal: on all of them where
  /// the host waits for the numbers; else on those that have a new scaler, law or state since they
  /// compared.
  virtual void agree(std::span<const Array> flags, const ScaleCourse& course,
                     const Array& first) = 0;
};

/// Finds what scalers of an optimizer with these parameters must agree over; null if they are this
/// process's alone.
using AgreementFinder = std::shared_ptr<Agreement> (*)(std::span<const Tensor> parameters);
void set_agreement_finder(AgreementFinder finder);
std::shared_ptr<Agreement> agreement_of(std::span<const Tensor> parameters);
/// Of a disabled scaler: says so to the other processes, which throw instead of waiting for its
/// flags, of which they send `flags`. False, with nothing done, where no parameter has a gradient
/// or there is no agreement.
bool agree_disabled(std::span<const Tensor> parameters, int64_t flags);

}  // namespace halftape::amp
