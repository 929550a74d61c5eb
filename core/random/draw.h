// Arrays of random numbers from the default generator of their device: by the device's kernel, or
// from the CPU's Mt19937 as PyTorch draws them.
#pragma once
#include "halftape/core/array.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

/// y ← numbers of that distribution; for integers see draw_integers().
void draw(const Array& y, Distribution kind, double a, double b = 0);
/// y ← integers in [low, high). `any`: nobody asked for bounds, and PyTorch gives an int64 its 63
/// bits.
void draw_integers(const Array& y, int64_t low, int64_t high, bool any = false);

}  // namespace halftape
