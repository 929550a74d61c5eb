// The products that a convolution and its derivatives consist of, on arrays.
#pragma once
#include "halftape/core/contract/windows.h"

namespace halftape::detail {

struct Conv {
  Windows windows;
  int64_t groups;

  int dims() const { return windows.dims(); }
};

// The three sides of one sum, Σ y[n, o, l]·w[o, c, k]·x[n, c, l·stride + k·dilation − padding]:
// each is the derivative of the other two, up to any order. All are products of matrices, one for
// each group: of the kernels (O, C·k), of the columns of all images (C·k, n·l), which are a copy of
// the windows, and of y (O, n·l). On a GPU, products with y and x leave images where they lie:
// a batch of (C·k, l) and (O, l).

/// y: (N, O, count…) of x and w, with a bias for each of its channels, or none.
Array conv_outputs(const Conv& c, const Array& x, const Array& w, const Array& bias,
                   const Shape& count);
/// x: (N, C, lengths…) of y and w, with a bias for each of its channels, or none.
Array conv_inputs(const Conv& c, const Array& y, const Array& w, const Array& bias,
                  const Shape& lengths);
/// w: (O, C/groups, size…) of y and x.
Array conv_weights(const Conv& c, const Array& y, const Array& x);

}  // namespace halftape::detail
