// Places for what is made of a leaf again and again, beside those of other leaves: an optimizer in
// flat storage (optim/state/flat_storage.h) gives its parameters some.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// Hangs on the end of the tape at a leaf (Accumulate::places). Any thread may call.
class LeafPlaces : public RefCounted {
 public:
  virtual ~LeafPlaces() = default;
  /// Uninitialised bytes of the leaf's shape for a gradient in this dtype, and for a 16-bit copy of
  /// the leaf. Undefined where there is no place for the dtype, or another array has it.
  virtual Array gradient(Dtype dtype) = 0;
  virtual Array low_copy(Dtype dtype) = 0;
};

}  // namespace halftape
