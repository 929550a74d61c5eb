// Where a leaf in flat storage keeps its gradient and its 16-bit copy, beside those of other
// leaves.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// Belongs to the leaf's Accumulate; optim/state/flat_storage.h implements it. Thread-safe.
class LeafSlots : public RefCounted {
 public:
  virtual ~LeafSlots() = default;
  /// Uninitialised bytes of the leaf's shape and dtype for its gradient. Undefined while another
  /// array has them.
  virtual Array gradient() = 0;
  /// The same for a 16-bit copy of the leaf.
  virtual Array low_copy(Dtype dtype) = 0;
};

}  // namespace halftape
