// The 16-bit copy of a float32 weight that outlives an autocast region: the region makes it, an
// optimizer's update writes it as it writes the weight, and the next region finds it there.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {
class Capture;
}

namespace halftape::detail {

// A leaf has one copy at most. It counts while neither the leaf's bytes nor its own have been
// written since, and never where a plain pointer into the leaf's bytes was given out: through that
// they change without a word. Other bytes behind the leaf end it. Any thread may call.

/// The copy in this dtype; undefined where there is none that counts.
Array find_low_copy(const Tensor& leaf, Dtype dtype);
/// The same in a step that is being captured: one that every replay finds as the leaf is when it
/// begins. Undefined where the step has written one of them alone.
Array find_captured_low_copy(const Tensor& leaf, Dtype dtype, Capture& capture);
/// Uninitialised, for a cast of the leaf that may be kept: where a leaf in flat storage has its
/// place for it, if that is free, else new.
Array low_copy_array(const Tensor& leaf, Dtype dtype);
/// `low` is cast from the leaf's bytes as they were at `version`. It is kept unless a copy in
/// another dtype has been of use since the last update.
void keep_low_copy(const Tensor& leaf, const Array& low, uint64_t version);

/// For an update that writes both: the leaf is without the copy until return_low_copy(). Undefined
/// where there is none that counts, where no region asked for it during the last
/// kMostIdleUpdates, and where somebody else than a Graph holds its bytes: a recorded
/// backward pass shall find in them what it saved. Such a copy is dropped.
Array take_low_copy(const Tensor& leaf);
inline constexpr int kMostIdleUpdates = 8;
/// After the update. Not kept where more than that one write came to the leaf's bytes.
void return_low_copy(const Tensor& leaf, const Array& low);

void drop_low_copy(const TensorImpl* leaf) noexcept;
void drop_low_copies();
size_t low_copy_count();

}  // namespace halftape::detail
