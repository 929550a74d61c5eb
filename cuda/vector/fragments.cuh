// Matrices in shared memory as the operands of products on tensor cores: how they lie there, and
// which part of a fragment (ptx.cuh) is whose.
#pragma once
#include "halftape/cuda/vector/ptx.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {

/// Widths and heights are rounded up to tiles of 16; the padding is 0.
HALFTAPE_HD int padded(int n) { return (n + 15) / 16 * 16; }
/// Elements from row to row in shared memory. Eight more than the width, so that 16 bytes of eight
/// rows, which are loaded together, are in different banks.
HALFTAPE_HD int stride_of(int width) { return padded(width) + 8; }

/// This lane's part of a fragment, and the rows whose addresses it gives to load_matrices().
struct Lane {
  int g, t;            // row and first column of its elements
  int down8, across8;  // of 16×16 as four matrices, the one below the first coming second:
  int right8, below8;  // and the one beside it coming second:
  __device__ Lane() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    g = lane / 4, t = lane % 4 * 2;
    down8 = lane % 8 + lane / 8 % 2 * 8, across8 = lane / 16 * 8;
    right8 = lane % 8 + lane / 16 * 8, below8 = lane / 8 % 2 * 8;
  }
};

}  // namespace halftape::cuda
