// Windows over the last dimensions of an array, for convolution and pooling.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// One number for each of the windowed dimensions, at most three: window l covers the positions
/// l·stride + k·dilation − padding for 0 ≤ k < size that lie inside the dimension.
struct Windows {
  Dims size, stride, dilation, padding;

  int dims() const { return size.size(); }
  /// The number of positions from a window's first to its last one.
  int64_t span(int d) const { return dilation[d] * (size[d] - 1) + 1; }
  /// Throws if padded dimensions of these lengths, or so many windows, reach positions that do not
  /// fit 64 bits. Must come before arithmetic with these numbers, none of which is negative.
  void check_reach(const char* op, const Shape& lengths, const Shape& count = {}) const {
    for (int d = 0; d < dims(); ++d) {
      const auto real = [d](const Dims& dims) { return static_cast<double>(dims[d]); };
      const double windows = count.empty() ? 1 : real(count);
      const double reach =
          real(lengths) + 2 * real(padding) + windows * real(stride) + real(dilation) * real(size);
      HALFTAPE_CHECK(reach < 0x1p62, op, ": kernel ", size, " with dilation ", dilation,
                     ", stride ", stride, " and padding ", padding,
                     " reaches positions that do not fit 64 bits");
    }
  }
};

/// The same for kernels, always with three dimensions: missing ones come in front, with one
/// element.
struct WindowLoop {
  struct Axis {
    int64_t size, stride, dilation, padding;
    int64_t length;  // of the dimension
    int64_t count;   // of windows
    // Strides in bytes: along the dimension, from window to window, and inside a window.
    int64_t step = 0, window_step = 0, inner_step = 0;
  };
  Axis axis[3] = {{1, 1, 1, 0, 1, 1}, {1, 1, 1, 0, 1, 1}, {1, 1, 1, 0, 1, 1}};

  /// whole: (…, lengths…). windows: one element for each window (…, windows…) or, if `inside`, for
  /// each position in each window (…, sizes…, windows…).
  WindowLoop(const Windows& w, const Array& whole, const Array& windows, bool inside) {
    const int n = w.dims();
    for (int i = 0; i < n; ++i) {
      Axis& a = axis[3 - n + i];
      const int in = whole.dim() - n + i, out = windows.dim() - n + i;
      const auto item = [](const Array& x) {
        return static_cast<int64_t>(element_size(x.dtype()));
      };
      a = {w.size[i], w.stride[i], w.dilation[i], w.padding[i], whole.size(in), windows.size(out)};
      a.step = whole.strides()[in] * item(whole);
      a.window_step = windows.strides()[out] * item(windows);
      if (inside) a.inner_step = windows.strides()[out - n] * item(windows);
    }
  }
};

/// `count` windows over the last dimensions of x, with zeros beyond its edges:
/// (…, lengths…) → (…, sizes…, count…). A view if no window reaches beyond an edge.
Array window_view(const Array& x, const Windows& windows, const Shape& count);

/// x at element 0 of its last `count` dimensions: where each block of them begins.
inline Array block_starts(Array x, int count) {
  for (int i = 0; i < count; ++i) x = x.select(x.dim() - 1, 0);
  return x;
}

}  // namespace halftape
