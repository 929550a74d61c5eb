// Arrays of random numbers from the default generator of their device: by the device's kernel, or
// from the CPU's Mt19937 in PyTorch's way.
#pragma once
#include "halftape/core/array.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

/// y ← numbers of the distribution; for integers see draw_integers().
void draw(const Array& y, Distribution kind, double a, double b = 0);
/// y ← integers in [low, high). `any`: the caller gave no bounds, for which PyTorch draws 63 bits
/// of an int64.
void draw_integers(const Array& y, int64_t low, int64_t high, bool any = false);

}  // namespace halftape
