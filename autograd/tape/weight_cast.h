// The 16-bit copy of a float32 weight, kept between autocast regions: a region makes it, the
// optimizer's update writes it together with the weight, and the next region finds it.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {
class Capture;
}

namespace halftape::detail {

// A leaf has at most one copy. It is valid until the leaf or the copy is written, and never valid
// if a plain pointer into one of them was given out, through which writes are not noticed. Giving
// the leaf other bytes drops the copy. It is there for work in the queue of the device in which it
// was made. Thread-safe.

/// The valid copy in this dtype, or undefined.
Array find_low_copy(const Tensor& leaf, Dtype dtype);
/// The same in a step that is being captured: every replay refreshes the copy before it begins.
/// Undefined if the step has written the leaf or the copy alone.
Array find_captured_low_copy(const Tensor& leaf, Dtype dtype, Capture& capture);
/// An uninitialised array for a cast of the leaf: the leaf's slot in flat storage if it has a free
/// one, else a new array.
Array low_copy_array(const Tensor& leaf, Dtype dtype);
/// Keeps `low`, cast from the leaf at `version`, unless a copy in another dtype, or for another
/// queue, has been used since the last update.
void keep_low_copy(const Tensor& leaf, const Array& low, uint64_t version);

/// Takes the copy away, for an update that writes leaf and copy, until return_low_copy(). Drops the
/// copy and returns undefined if it is not valid, if no region asked for it during the last
/// kMostIdleUpdates updates, or if somebody other than a Graph holds its bytes: a recorded backward
/// pass that saved them needs them unchanged.
Array take_low_copy(const Tensor& leaf);
inline constexpr int kMostIdleUpdates = 8;
/// Gives the copy back after the update. Drops it if the leaf was written more than once.
void return_low_copy(const Tensor& leaf, const Array& low);

void drop_low_copy(const TensorImpl* leaf) noexcept;
void drop_low_copies();
size_t low_copy_count();

}  // namespace halftape::detail
